"""CPU features and providers that environment variables hide from the probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.host.probe import LESSER, hidden_providers, parse_vendor, visible_isa
from aotc.spec.target import ISA_FEATURES

TOOLCHAIN = ROOT / "toolchain"
FEATURES = ("avx", "avx2", "avx512f")
PROBE = """
import json
from aotc.spec.codec import encode
from aotc.host.probe import probe
print(json.dumps(encode(probe(gpus=False), full=True)))
"""


def probed(**environment: str) -> dict[str, Any]:
    """The probe's answer in a new process, since it is cached for the life of a process."""
    unset = {"AOTC_HOST_ISA", "AOTC_HOST_WITHOUT"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**inherited, "PYTHONPATH": str(TOOLCHAIN), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_nothing_is_hidden_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOTC_HOST_ISA", raising=False)
    monkeypatch.delenv("AOTC_HOST_WITHOUT", raising=False)
    assert visible_isa(FEATURES) == FEATURES
    assert hidden_providers() == frozenset()


@pytest.mark.parametrize(
    ("stated", "left"),
    [
        ("avx avx2", ("avx", "avx2", LESSER)),
        ("avx2,avx", ("avx", "avx2", LESSER)),
        ("", (LESSER,)),
        # Features that this CPU lacks are not added, and naming all that it has changes nothing.
        ("avx amx_tile", ("avx", LESSER)),
        ("avx avx2 avx512f amx_tile", FEATURES),
    ],
)
def test_features_are_taken_away_and_never_added(
    monkeypatch: pytest.MonkeyPatch, stated: str, left: tuple[str, ...]
) -> None:
    monkeypatch.setenv("AOTC_HOST_ISA", stated)
    assert visible_isa(FEATURES) == left


def test_a_feature_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTC_HOST_ISA", "avx2 avx-512")
    with pytest.raises(AotcError) as caught:
        visible_isa(FEATURES)
    error = caught.value
    assert (error.code, error.where, error.found) == ("AOTC-I027", "$AOTC_HOST_ISA", "avx-512")
    assert "avx512f" in error.expected


def test_no_cpu_has_the_feature_that_marks_what_was_compiled_here() -> None:
    assert not any(LESSER in features for features in ISA_FEATURES.values())


def test_the_probe_reports_what_is_left() -> None:
    whole = probed()
    less = probed(AOTC_HOST_ISA="sse4_1", AOTC_HOST_WITHOUT="CPUExecutionProvider")
    if set(whole["isa"] or ()) - {"sse4_1"}:
        assert less["isa"] == [*(name for name in whole["isa"] if name == "sse4_1"), LESSER]
    assert "CPUExecutionProvider" in whole["providers"]
    assert "CPUExecutionProvider" not in less["providers"]
    assert {**less, "isa": None, "providers": None} == {**whole, "isa": None, "providers": None}


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\n", "AuthenticAMD"),
        ("vendor_id : GenuineIntel\n\nvendor_id : Other\n", "GenuineIntel"),
        ("processor : 0\nCPU implementer : 0x41\n", None),
        ("", None),
    ],
)
def test_the_vendor_of_a_cpu(text: str, vendor: str | None) -> None:
    assert parse_vendor(text) == vendor


def test_an_installed_plugin_is_a_provider_if_it_serves_the_cpu() -> None:
    found = probed()
    names = [plugin["name"] for plugin in found["plugins"]]
    if "onnxruntime-ep-openvino" not in names:
        pytest.skip("onnxruntime-ep-openvino is not installed: pip install '.[openvino]'")
    vendor = parse_vendor(Path("/proc/cpuinfo").read_text())
    assert ("OpenVINOExecutionProvider" in found["providers"]) == (vendor == "GenuineIntel")
    hidden = probed(AOTC_HOST_WITHOUT="OpenVINOExecutionProvider")
    assert "OpenVINOExecutionProvider" not in hidden["providers"]
    assert [plugin["name"] for plugin in hidden["plugins"]] == names
