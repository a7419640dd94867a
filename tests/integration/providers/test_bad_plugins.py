"""Plugins that are missing, are not libraries, crash or hang: a code, and no artifact."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import openvino_models as models
import pytest
from made_profiles import profile_with
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.spec.codec import encode
from aotc.spec.profile import Profile

OPENVINO = "OpenVINOExecutionProvider"
AOTC = Path(sys.executable).with_name("aotc")


def profile(**fields: Any) -> Profile:
    """`edge` with other fields, for few sizes."""
    return profile_with("edge", **{"dims": {"batch": 2}, **fields})


def own_plugin(library: Path, name: str = OPENVINO) -> dict[str, Any]:
    spec = {"provider": name, "library": str(library)}
    return {"providers": ["mine", "cpu"], "plugins": {"mine": spec}}


def test_an_unknown_provider_is_refused(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(models.plain(), "unknown", profile=profile(providers=["openvinno", "cpu"]))
    error = caught.value
    assert error.code == "AOTC-P007"
    assert "openvino" in error.found + error.expected


def test_a_plugin_that_is_not_there(bench: Workbench, tmp_path: Path) -> None:
    spec = profile(**own_plugin(tmp_path / "nothing.so"))
    with pytest.raises(AotcError) as caught:
        bench.build(models.plain(), "nothing", profile=spec)
    assert caught.value.code == "AOTC-P004"
    assert "nothing.so" in caught.value.found


@pytest.mark.parametrize("tune", [False, True])
def test_a_missing_library_is_reported_before_the_model_is_read(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: bool
) -> None:
    read: list[object] = []
    monkeypatch.setattr("aotc.pipeline.build.inputs_digests", lambda *given: read.append(given))
    monkeypatch.setattr("aotc.pipeline.build.import_model", read.append)
    spec = profile(**own_plugin(tmp_path / "nothing.so"))
    with pytest.raises(AotcError) as caught:
        bench.build(models.plain(), "unread", profile=spec, tune=tune)
    assert caught.value.code == "AOTC-P004"
    assert not read


def test_a_file_that_is_not_a_library(bench: Workbench, tmp_path: Path) -> None:
    library = tmp_path / "text.so"
    library.write_text("no library")
    assert_refused(bench, library, OPENVINO)


def test_a_library_without_that_provider(bench: Workbench) -> None:
    from aotc.providers.openvino import OpenVinoBackend

    library = OpenVinoBackend().library()
    if library is None:
        pytest.skip("onnxruntime-ep-openvino is not installed: pip install '.[openvino]'")
    assert_refused(bench, library, "NoSuchExecutionProvider")


def assert_refused(bench: Workbench, library: Path, name: str) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(models.plain(), "none", profile=profile(**own_plugin(library, name)))
    assert (caught.value.code, caught.value.also) == ("AOTC-P004", ())


def shared_library(folder: Path, body: str) -> Path:
    """A library whose constructor does `body` as soon as it is loaded."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make a bad plugin with")
    source = folder / "bad.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void begin(void) {{ {body} }}\n"
    )
    library = folder / "libbad.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize(
    ("body", "code", "seconds"),
    [
        ('fprintf(stderr, "gone for good\\n"); abort();', "AOTC-I013", 600.0),
        # Whatever else the machine does: providers are asked for before any other step.
        ("for (;;) sleep(1);", "AOTC-I014", 4.0),
    ],
)
def test_a_plugin_that_crashes_or_hangs(
    bench: Workbench, tmp_path: Path, body: str, code: str, seconds: float
) -> None:
    library = shared_library(tmp_path, body)
    path = tmp_path / "bad.yaml"
    limits = {"seconds": seconds}
    spec = profile(**own_plugin(library, "BadExecutionProvider"), limits=limits)
    path.write_text(json.dumps(encode(spec)))
    output = tmp_path / "bad.aotc"
    done = subprocess.run(
        [
            str(AOTC), "build", str(bench.save(models.plain(), "bad")), "--profile", str(path),
            "-o", str(output), "--key", str(bench.private), "--json",
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    error = json.loads(done.stdout)["errors"][0]
    assert error["code"] == code
    assert "mine" in error["where"]
    assert not output.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    if code == "AOTC-I013":
        assert "gone for good" in error["found"]
