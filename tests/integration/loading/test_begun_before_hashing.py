"""What a load begins in other threads while it hashes, and that a failure there changes nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.nvidia import make_context, missing_gpu
from aotc.providers.cuda import _without_print
from aotc.runtime.loading import EngineImports, load
from aotc.spec.variant import GraphCapture, Variant


@pytest.fixture
def variant(digits: BuiltArtifact, tmp_path: Path) -> Variant:
    with load(digits.path, key=digits.public_key, store=tmp_path, threads=1) as model:
        return model.variant


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> EngineImports:
    # As in a process that has loaded nothing yet.
    monkeypatch.delitem(sys.modules, "aotc.runtime.session_opening", raising=False)
    return EngineImports()


def test_the_device_is_begun_beside_for_captured_graphs_alone(
    variant: Variant, imports: EngineImports
) -> None:
    begun: list[str] = []

    def begin() -> None:
        begun.append(threading.current_thread().name)

    imports.begin([variant], begin)
    imports.end()
    assert not begun
    captured = replace(variant, cuda_graphs=GraphCapture(sizes=({"batch": 1},)))
    other = EngineImports()
    sys.modules.pop("aotc.runtime.session_opening", None)
    other.begin([variant, captured], begin)
    other.end()
    assert begun == ["aotc-device"]


def test_what_fails_beside_is_left_to_where_it_is_needed(
    variant: Variant, imports: EngineImports, capfd: pytest.CaptureFixture[str]
) -> None:
    def begin() -> None:
        raise AotcError("AOTC-R025", "there is no CUDA device 7")

    captured: Any = replace(variant, cuda_graphs=GraphCapture(sizes=({"batch": 1},)))
    imports.begin([captured], begin)
    assert imports.end().__name__ == "aotc.runtime.session_opening"
    assert not capfd.readouterr().err


def test_what_a_plugin_of_the_user_provides_is_not_loaded_besides(
    variant: Variant, imports: EngineImports, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr("aotc.providers.named_backends.prepare", loaded.append)
    name = "CUDAExecutionProvider"
    on_cuda = replace(variant, providers=(name,))
    imports.begin([on_cuda], plugins=[name])
    imports.end()
    assert not loaded
    sys.modules.pop("aotc.runtime.session_opening", None)
    other = EngineImports()
    other.begin([variant])
    other.end()
    assert not loaded
    sys.modules.pop("aotc.runtime.session_opening", None)
    last = EngineImports()
    last.begin([on_cuda])
    last.end()
    assert loaded == [name]


def test_a_function_that_prints_is_silent_and_leaves_standard_output_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def noisy(times: int = 2) -> int:
        print("Failed to load a library" * times)
        return times

    assert _without_print(noisy)() == 2
    assert not capsys.readouterr().out
    noisy()
    assert capsys.readouterr().out


def test_a_host_without_a_gpu_gets_no_context() -> None:
    if not missing_gpu():
        pytest.skip("this machine has an NVIDIA GPU")
    assert not make_context(0)


def test_numpy_is_whole_before_onnxruntime_enters_it() -> None:
    """Else a second thread that imports numpy finds half of it, once in some thirty loads."""
    program = """
import sys
from importlib.abc import MetaPathFinder

class Noted(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            numpy = sys.modules.get("numpy")
            print(numpy is not None and not numpy.__spec__._initializing)

sys.meta_path.insert(0, Noted())
from aotc.host import nvidia
# As on a host with a GPU, where a load does not import numpy first.
nvidia.missing_gpu = lambda: ""
from aotc.runtime import loading
assert "numpy" not in sys.modules
imports = loading.EngineImports()
imports.begin()
imports.end()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
