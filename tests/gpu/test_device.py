"""A device that is not there, and one without enough memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from on_gpu import Built, close_to, note
from residual_artifacts import EXACT, image, residual_artifact

import aotc
from aotc.base.errors import AotcError

pytestmark = pytest.mark.gpu


def test_a_device_that_is_not_there_is_refused(captured: Built) -> None:
    with pytest.raises(AotcError) as caught:
        aotc.load(captured.path, device=63)
    note("device 63", caught.value.line())
    assert caught.value.code == "AOTC-R025"


def test_a_model_is_on_the_device_that_was_asked_for(captured: Built) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU here, and this needs two")
    with aotc.load(captured.path) as first, aotc.load(captured.path, device=1) as second:
        expected = first.run(image(4))["logits"]
        close_to(second.run(image(4))["logits"], expected, 1e-4)
        given = torch.from_numpy(image(4)["image"]).to("cuda:1")
        call = second.bind({"image": given})
        found = torch.from_dlpack(call()["logits"])
        assert found.device.index == 1
        close_to(found.cpu().numpy(), expected, 1e-4)
        with pytest.raises(AotcError) as caught:
            first.bind({"image": given})
        note("a tensor of another GPU", caught.value.line())
        assert caught.value.code == "AOTC-R022"


def test_a_context_and_a_stream_are_made_before_the_bindings_are_imported() -> None:
    program = """
import sys
from aotc.session.device.cuda_place import CudaPlace
from aotc.host.nvidia import make_context, make_stream
assert make_context(0) and not make_context(63)
assert make_stream(63) is None
place = CudaPlace()
place.begin()
(options,) = place.settings(capturing=True).values()
assert "cuda.bindings.runtime" not in sys.modules
device = place.device()
assert options["user_compute_stream"] == str(device.stream), (options, device.stream)
from cuda.bindings import driver, runtime
error, flags, active = driver.cuDevicePrimaryCtxGetState(0)
assert not int(error) and active, (error, active)
# The runtime knows the stream as its own, which does not wait for the default stream.
error, flags = runtime.cudaStreamGetFlags(device.stream)
assert not int(error) and flags == runtime.cudaStreamNonBlocking, (error, flags)
device.synchronize()
device.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_first_load_does_not_import_the_bindings_before_its_session(captured: Built) -> None:
    """They are imported beside its first run, and there when it is ready."""
    program = """
import sys
import aotc
from aotc.session.device import cuda_place
opened = cuda_place.CudaPlace.device

def device(place):
    print("cuda.bindings.runtime" in sys.modules, flush=True)
    return opened(place)

cuda_place.CudaPlace.device = device
with aotc.load(sys.argv[1]) as model:
    print("cuda.bindings.runtime" in sys.modules, model.ready)
"""
    command = [sys.executable, "-c", program, str(captured.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The device is asked for once the session is there.
    assert done.stdout.splitlines() == ["False", "True True"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array(True),
        np.arange(9) % 2 == 0,
        np.empty((0, 3), np.float16),
        np.arange(1 << 20, dtype=np.int64),
        np.float64(2.5),
        np.arange(200, dtype=np.uint8)[::3],
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_a_tensor_on_the_device_has_the_elements_of_an_array(array: Any) -> None:
    from aotc.providers.named_backends import prepare
    from aotc.session.device.cuda_device import CudaDevice
    from aotc.session.device.device import read_values

    prepare("CUDAExecutionProvider")
    device, given = CudaDevice(), np.asarray(array)
    (found,) = read_values([device.tensor_of(given, str(given.dtype))], device)
    assert (found.dtype, found.shape) == (given.dtype, given.shape)
    np.testing.assert_array_equal(found, given)
    (bits,) = read_values([device.tensor_of(np.arange(3, dtype=np.uint16), "bfloat16")], device)
    assert bits.view(np.uint16).tolist() == [0, 1, 2]


@pytest.mark.alone
@pytest.mark.parametrize("left", [4 << 20, 64 << 20])
def test_a_load_without_enough_memory_is_refused(captured: Built, left: int) -> None:
    torch = pytest.importorskip("torch")
    torch.cuda.empty_cache()
    held = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device=0)
    try:
        with pytest.raises(AotcError) as caught:
            aotc.load(captured.path)
        note(f"a load with {left} bytes left", caught.value.line())
        assert caught.value.code == "AOTC-M004"
    finally:
        del held
        torch.cuda.empty_cache()
    with aotc.load(captured.path) as model:
        assert model.run(image(4))["logits"].shape == (4, 10)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("left", "wanted"), [(16 << 20, "a tensor of float32"), (48 << 20, "the activations")]
)
def test_too_little_memory_is_refused_and_the_model_goes_on(
    captured: Built, left: int, wanted: str
) -> None:
    """Of 64 images, which take 38 MB, and more as activations."""
    torch = pytest.importorskip("torch")
    with aotc.load(captured.path) as model:
        expected = model.run(image(4))["logits"]
        given = image(64)
        torch.cuda.empty_cache()
        held = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device=0)
        try:
            with pytest.raises(AotcError) as caught:
                model.bind(given)
            note("too little memory", caught.value.line())
            assert caught.value.code == "AOTC-M004"
            assert wanted in caught.value.expected
            close_to(model.run(image(4))["logits"], expected, 1e-5)
        finally:
            del held
            torch.cuda.empty_cache()
        assert model.run(given)["logits"].shape == (64, 10)


def run_apart(program: str, *arguments: object, **variables: str) -> list[str]:
    """The lines that a process of its own prints, which may lose its GPU."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **variables}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("shown", ["", "-1"])
def test_no_visible_gpu_is_named(captured: Built, without_graphs: Built, shown: str) -> None:
    program = """
import sys
import aotc
from aotc.base.errors import AotcError
for path in sys.argv[1:]:
    try:
        aotc.load(path)
    except AotcError as error:
        print(error.line())
"""
    paths = (captured.path, without_graphs.path)
    lines = run_apart(program, *paths, CUDA_VISIBLE_DEVICES=shown)
    note(f"CUDA_VISIBLE_DEVICES={shown!r}", lines)
    with_graphs, plain = lines
    assert "AOTC-R025" in with_graphs and "CUDA_VISIBLE_DEVICES" in with_graphs
    assert plain.startswith("AOTC-")


def test_a_second_gpu_that_is_hidden_is_refused(captured: Built) -> None:
    program = """
import sys
import aotc
from aotc.base.errors import AotcError
try:
    aotc.load(sys.argv[1], device=1)
except AotcError as error:
    print(error.code)
with aotc.load(sys.argv[1], device=0) as model:
    print(model.ready)
"""
    assert run_apart(program, captured.path, CUDA_VISIBLE_DEVICES="0") == ["AOTC-R025", "True"]


def test_a_gpu_that_fails_in_the_process_is_told_and_the_process_lives(captured: Built) -> None:
    """A kernel of another library ends in an error, after which CUDA refuses everything."""
    pytest.importorskip("torch")
    program = """
import sys
import numpy as np
import torch
import aotc
from aotc.base.errors import AotcError
given = {"image": np.zeros((4, 3, 224, 224), np.float32)}
model = aotc.load(sys.argv[1])
model.run(given)
try:
    torch.zeros(4, device="cuda")[torch.tensor([1 << 20], device="cuda")]
    torch.cuda.synchronize()
except Exception as error:
    print(type(error).__name__)
for _ in range(2):
    try:
        model.run(given)
    except AotcError as error:
        print(error.line(), flush=True)
import os
os._exit(0)
"""
    _, *lines = run_apart(program, captured.path)
    note("a GPU that failed", lines)
    assert len(lines) == 2 and all(line.startswith("AOTC-R036") for line in lines)


@pytest.mark.alone
@pytest.mark.parametrize("left", [2 << 20, 24 << 20])
def test_a_call_answers_where_memory_ends_during_its_capture(tmp_path: Path, left: int) -> None:
    """A size that nobody promised runs without a graph, or is refused; the model goes on."""
    torch = pytest.importorskip("torch")
    artifact = residual_artifact(tmp_path, EXACT, capture="calls")
    with aotc.load(artifact.path) as model:
        expected = model.run(image(4))["logits"]
        torch.cuda.empty_cache()
        held = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device=0)
        try:
            assert model.run(image(64))["logits"].shape == (64, 10)
            told = "answered"
        except AotcError as error:
            told = error.line()
            assert error.code == "AOTC-M004"
        finally:
            del held
            torch.cuda.empty_cache()
        note(f"a capture with {left} bytes left", told)
        close_to(model.run(image(4))["logits"], expected, 1e-5)
