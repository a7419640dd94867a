"""Bound calls with arrays of torch, CuPy and JAX that stay on the device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from on_gpu import Built, close_to
from residual_artifacts import image

import aotc
from aotc.base.errors import AotcError
from aotc.runtime.model import Model

pytestmark = pytest.mark.gpu
ON_CUDA = (2, 0)


@pytest.fixture(scope="module")
def model(captured: Built) -> Iterator[Model]:
    with aotc.load(captured.path) as loaded:
        yield loaded


@dataclass(frozen=True)
class Library:
    """How a library makes an array on the device, tells its address, and takes another's."""

    make: Callable[[Any], Any]
    address: Callable[[Any], int]
    take: Callable[[Any], Any]
    host: Callable[[Any], Any] = np.asarray


def library(name: str) -> Library:
    found = pytest.importorskip(name)
    if name == "torch":
        return Library(
            make=lambda array: found.from_numpy(array).cuda(),
            address=lambda tensor: tensor.data_ptr(),
            take=found.from_dlpack,
            host=lambda tensor: tensor.cpu().numpy(),
        )
    if name == "cupy":
        return Library(
            make=found.asarray,
            address=lambda array: array.data.ptr,
            take=found.from_dlpack,
            host=found.asnumpy,
        )
    return Library(
        make=lambda array: found.block_until_ready(found.device_put(array)),
        address=lambda array: array.unsafe_buffer_pointer(),
        take=import_module("jax.numpy").from_dlpack,
    )


@pytest.mark.parametrize("name", ["torch", "cupy", "jax"])
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_inputs_and_outputs_stay_on_the_device(model: Model, name: str, batch: int) -> None:
    used = library(name)
    given = image(batch)
    array = used.make(given["image"])
    call = model.bind({"image": array})
    assert call.inputs["image"].__dlpack_device__() == ON_CUDA
    # Neither the input nor the output was copied.
    assert call.inputs["image"].address == used.address(array)
    output = call()["logits"]
    assert output.__dlpack_device__() == ON_CUDA
    shared = used.take(output)
    assert used.address(shared) == output.address == call.outputs["logits"].address
    close_to(used.host(shared), model.run(given)["logits"], 1e-4)
    close_to(output.numpy(), model.run(given)["logits"], 1e-4)


@pytest.mark.parametrize("name", ["torch", "cupy", "jax"])
def test_a_further_tensor_is_copied_on_the_device(model: Model, name: str) -> None:
    used = library(name)
    call = model.bind({"image": used.make(image(4)["image"])})
    for seed in range(1, 4):
        given = image(4, seed)
        found = call({"image": used.make(given["image"])})["logits"].numpy()
        close_to(found, model.run(given)["logits"], 1e-4)
        # Arrays of the host work too.
        np.testing.assert_array_equal(call(given)["logits"].numpy(), found)


@pytest.mark.parametrize("locked", [True, False])
def test_a_further_tensor_of_the_host_is_sent(model: Model, locked: bool) -> None:
    torch = pytest.importorskip("torch")
    for batch in (4, 7):
        call = model.bind({"image": torch.from_numpy(image(batch)["image"]).cuda()})
        for seed in range(1, 4):
            given = image(batch, seed)
            tensor = torch.from_numpy(given["image"])
            found = call({"image": tensor.pin_memory() if locked else tensor})["logits"].numpy()
            np.testing.assert_array_equal(found, call(given)["logits"].numpy())


def test_what_the_tensor_holds_is_read_anew(model: Model) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(image(4)["image"]).cuda()
    call = model.bind({"image": tensor})
    assert call.captured
    first = call()["logits"].numpy()
    tensor.copy_(torch.from_numpy(image(4, 1)["image"]))
    second = call()["logits"].numpy()
    assert not np.allclose(first, second)
    close_to(second, model.run(image(4, 1))["logits"], 1e-4)


@pytest.mark.parametrize("batch", [2, 3])
def test_a_bound_call_is_padded_to_a_captured_size(model: Model, batch: int) -> None:
    torch = pytest.importorskip("torch")
    call = model.bind({"image": torch.from_numpy(image(batch)["image"]).cuda()})
    assert call.captured
    for seed in range(2):
        given = image(batch, seed)
        found = call({"image": torch.from_numpy(given["image"]).cuda()})["logits"]
        assert found.shape == (batch, 10)
        close_to(torch.from_dlpack(found).cpu().numpy(), model.run(given)["logits"], 1e-4)


def test_a_call_waits_for_the_stream_of_its_caller(model: Model) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    tensor = torch.from_numpy(image(4)["image"]).cuda()
    other = torch.from_numpy(image(4, 1)["image"]).cuda()
    torch.cuda.synchronize()
    call = model.bind({"image": tensor}, stream=stream)
    with torch.cuda.stream(stream):
        # Some tenths of a second in which the input is not written yet.
        torch.cuda._sleep(500_000_000)
        tensor.copy_(other)
    close_to(call()["logits"].numpy(), model.run(image(4, 1))["logits"], 1e-4)


@pytest.mark.parametrize("told", [True, False])
def test_a_call_waits_for_the_stream_on_which_a_new_tensor_is_made(
    model: Model, told: bool
) -> None:
    """Also where nobody says which stream that is: torch knows."""
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    images = [torch.from_numpy(image(4, seed)["image"]).cuda() for seed in range(3)]
    made = torch.zeros_like(images[0])
    torch.cuda.synchronize()
    call = model.bind({"image": torch.zeros_like(made)}, stream=stream if told else None)
    with torch.cuda.stream(stream):
        for seed in range(3):
            torch.cuda._sleep(200_000_000)
            made.copy_(images[seed])
            found = call({"image": made})["logits"].numpy()
            close_to(found, model.run(image(4, seed))["logits"], 1e-4)


def test_a_call_waits_for_what_the_default_stream_waits_for(model: Model) -> None:
    """Streams that are not made otherwise keep the default one waiting."""
    torch = pytest.importorskip("torch")
    error, handle = import_module("cuda.bindings.runtime").cudaStreamCreate()
    assert not int(error)
    tensor = torch.from_numpy(image(4)["image"]).cuda()
    other = torch.from_numpy(image(4, 1)["image"]).cuda()
    torch.cuda.synchronize()
    call = model.bind({"image": tensor})
    with torch.cuda.stream(torch.cuda.ExternalStream(int(handle))):
        torch.cuda._sleep(500_000_000)
        tensor.copy_(other)
    close_to(call()["logits"].numpy(), model.run(image(4, 1))["logits"], 1e-4)


@pytest.mark.parametrize("given", ["default", "its own handle", "another"])
def test_a_model_may_be_on_the_stream_of_its_caller(captured: Built, given: str) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream() if given == "another" else torch.cuda.default_stream()
    # `cudaStreamLegacy`, by which the default stream is named where null means none.
    handle = 1 if given == "its own handle" else stream.cuda_stream
    images = [torch.from_numpy(image(4, seed)["image"]).cuda() for seed in range(4)]
    tensor = torch.empty_like(images[0])
    torch.cuda.synchronize()
    with aotc.load(captured.path) as other, aotc.load(captured.path, stream=handle) as model:
        with torch.cuda.stream(stream):
            call = model.bind({"image": tensor})
            assert call.captured
            for seed in (0, 1, 2, 3, 0):
                # Some hundredths of a second in which the input is not written yet.
                torch.cuda._sleep(50_000_000)
                tensor.copy_(images[seed])
                close_to(call()["logits"].numpy(), other.run(image(4, seed))["logits"], 1e-4)
        for seed in range(4):
            found = model.run(image(4, seed))["logits"]
            close_to(found, other.run(image(4, seed))["logits"], 1e-4)


def test_bound_calls_of_several_threads_do_not_mix(model: Model) -> None:
    torch = pytest.importorskip("torch")
    expected = [model.run(image(4, seed))["logits"] for seed in range(8)]
    wrong: list[Any] = []

    # Not in the threads: while a graph is captured, CUDA refuses other libraries' allocations.
    images = [torch.from_numpy(image(4, seed)["image"]).cuda() for seed in range(8)]

    def work(number: int) -> None:
        try:
            call = model.bind({"image": images[number]})
            for turn in range(50):
                found = call()["logits"].numpy()
                if not np.allclose(found, expected[number], rtol=1e-4, atol=1e-5):
                    wrong.append((number, turn))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Elsewhere:
    """A tensor that says it is on another GPU."""

    dtype = np.dtype(np.float32)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 63

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("nobody may ask for it")


def wrong_tensor(kind: str) -> Any:
    if kind == "AOTC-R022":
        return Elsewhere()
    torch = pytest.importorskip("torch")
    tensor = torch.zeros((4, 3, 224, 224), device="cuda")
    return {
        "AOTC-R002": tensor.double(),
        "AOTC-R003": tensor[0],
        "AOTC-R004": tensor[:, :2].contiguous(),
        "AOTC-R011": tensor.transpose(2, 3),
    }[kind]


@pytest.mark.parametrize("code", ["AOTC-R002", "AOTC-R003", "AOTC-R004", "AOTC-R011", "AOTC-R022"])
def test_tensors_that_do_not_fit_are_refused(model: Model, code: str) -> None:
    with pytest.raises(AotcError) as caught:
        model.bind({"image": wrong_tensor(code)})
    assert caught.value.code == code
    call = model.bind(image(4))
    with pytest.raises(AotcError) as caught:
        call({"image": wrong_tensor(code)})
    # A bound call has one shape: another rank is another shape.
    assert caught.value.code == ("AOTC-R004" if code == "AOTC-R003" else code)
    close_to(call()["logits"].numpy(), model.run(image(4))["logits"], 1e-4)


def test_a_closed_model_answers_no_bound_call(captured: Built) -> None:
    loaded = aotc.load(captured.path)
    call = loaded.bind(image(4))
    output = call()["logits"]
    loaded.close()
    for refused in (call, lambda: loaded.bind(image(4))):
        with pytest.raises(AotcError) as caught:
            refused()
        assert caught.value.code == "AOTC-R005"
    assert output.shape == (4, 10)
