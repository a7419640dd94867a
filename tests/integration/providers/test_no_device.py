"""OpenVINO is installed but offers no device, as on every CPU that is not Intel's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openvino_models as models
import pytest
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.providers.openvino import OpenVinoBackend
from aotc.spec.codec import decode, encode
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile

pytestmark = pytest.mark.skipif(
    OpenVinoBackend().library() is None,
    reason="onnxruntime-ep-openvino is not installed: pip install '.[openvino]'",
)
OPENVINO = "OpenVINOExecutionProvider"
SAYS = "is installed, and offers no device on this CPU"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    """On an Intel CPU its devices are hidden; elsewhere there are none anyway."""
    monkeypatch.setenv("AOTC_HOST_WITHOUT", OPENVINO)
    probe.cache_clear()
    yield Workbench.at(tmp_path)
    monkeypatch.undo()
    probe.cache_clear()


def refused(error: AotcError) -> None:
    assert (error.code, error.exit_status) == ("AOTC-P004", 3)
    assert SAYS in error.found and "Intel" in error.found
    assert "pip install" not in error.found + error.fix
    assert "such as edge" in error.fix


@pytest.mark.parametrize("tune", [False, True])
def test_a_build_is_refused_before_the_model_is_read(bench: Workbench, tune: bool) -> None:
    """The model does not exist, but the refusal comes before it is read."""
    stages: list[str] = []
    with pytest.raises(AotcError) as caught:
        bench.build(
            bench.folder / "nothing.onnx",
            "none",
            profile="edge-openvino",
            tune=tune,
            progress=stages.append,
        )
    refused(caught.value)
    assert stages == []
    assert not (bench.folder / "none.aotc").exists()


def test_candidates_are_asked_for_too(bench: Workbench) -> None:
    """The profile's own order does not need it; a requested candidate does."""
    stated = {**encode(load_profile("edge")), "tune": {"providers": [["openvino"], ["cpu"]]}}
    profile = decode(Profile, stated)
    with pytest.raises(AotcError) as caught:
        bench.build(bench.folder / "nothing.onnx", "none", profile=profile, tune=True)
    refused(caught.value)
    # A build without tuning does not need it.
    assert bench.build(models.plain(), "untuned", profile=profile).report.artifact_id


def test_a_variant_that_is_not_built_here_needs_nothing_here(bench: Workbench) -> None:
    """For another CPU, the variant of OpenVINO is left out, and the CPU's is built."""
    stated = {
        **encode(load_profile("edge")),
        "dims": {"batch": 2},
        "unproven": "allow",
        "variants": [{"name": "portable"}, {"name": "fast", "providers": ["openvino"]}],
    }
    profile = decode(Profile, stated)
    target = "linux-x86-64" if os.uname().machine == "aarch64" else "linux-arm64"
    built = bench.build(models.plain(), "other", profile=profile, target=target)
    assert [variant.name for variant in built.manifest.variants] == ["portable"]
    assert "fast" in built.finding("AOTC-O002")


ASKING = """
import json, sys
from pathlib import Path
from aotc.providers.openvino import OpenVinoBackend
from aotc.base.errors import AotcError
backend = OpenVinoBackend()
found = backend.probe()
mapped = str(backend.library()) in open("/proc/self/maps").read()
try:
    backend.devices(backend.library())
    error = {}
except AotcError as caught:
    error = caught.to_dict()
print(json.dumps([found.available, found.reason, mapped, error]))
"""


def probe_openvino(**environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", ASKING],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_who_asks_does_not_load_the_library() -> None:
    _, _, mapped, _ = probe_openvino()
    assert not mapped


def test_a_session_says_the_same(tmp_path: Path) -> None:
    available, reason, _, error = probe_openvino(AOTC_HOST_WITHOUT=OPENVINO)
    assert not available
    assert SAYS in reason
    assert error["code"] == "AOTC-P004"
    assert SAYS in error["what"]
    assert "Intel" in error["fix"] and "edge" in error["fix"]


def test_doctor_says_so(tmp_path: Path) -> None:
    """And it names the variable that hides it."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("aotc")), "doctor", "--json"],
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "AOTC_HOST_WITHOUT": OPENVINO,
            "AOTC_HOST_ISA": "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["openvino"]["status"] == "note"
    assert SAYS in checks["openvino"]["found"]
    assert "$AOTC_HOST_WITHOUT" in checks["openvino"]["found"]
    assert OPENVINO in checks["AOTC_HOST_WITHOUT"]["found"]
    assert checks["AOTC_HOST_ISA"]["fix"] == "unset AOTC_HOST_ISA"
