"""Tensors that other libraries take by DLPack, shown with the host's memory as the device."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from aotc.base.errors import AotcError
from aotc.runtime.dlpack import DeviceTensor, take_tensor
from aotc.session.device.cuda_device import CudaDevice
from aotc.session.device.cuda_place import CudaPlace
from aotc.session.device.device import HostDevice, read_values

ARRAYS = [
    np.array([[True, False], [False, True]]),
    np.array([0, 1, 255], np.uint8),
    np.array([[1.5, -2.0]], np.float32),
    np.array([1, 2], np.float16),
    np.zeros((0, 3), np.int64),
]


def tensor(array: np.ndarray[Any, Any]) -> DeviceTensor:
    # On the host, the value is in the memory of its array.
    return DeviceTensor(ort.OrtValue.ortvalue_from_numpy(array.copy()), HostDevice())


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_its_memory_and_type_are_those_that_others_see(array: np.ndarray[Any, Any]) -> None:
    shared = tensor(array)
    found = np.from_dlpack(shared)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    if array.size:
        assert found.ctypes.data == shared.address


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_a_copy_that_is_asked_for_is_one(array: np.ndarray[Any, Any]) -> None:
    shared = tensor(array)
    copied = np.from_dlpack(shared, copy=True)
    assert copied.dtype == array.dtype
    np.testing.assert_array_equal(copied, array)
    if array.size:
        assert copied.ctypes.data != shared.address
        ctypes.memset(shared.address, 1, array.nbytes)
        np.testing.assert_array_equal(copied, array)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_another_call_takes_it_where_it_is(array: np.ndarray[Any, Any]) -> None:
    shared = tensor(array)
    given = take_tensor("x", shared, HostDevice())
    assert (given.dtype, given.shape, given.on_device) == (shared.dtype, shared.shape, True)
    np.testing.assert_array_equal(given.value.numpy(), array)
    if array.size:
        assert given.value.data_ptr() == shared.address


def test_bools_of_other_libraries_are_taken() -> None:
    torch = pytest.importorskip("torch")
    given = take_tensor("mask", torch.tensor([True, False]), HostDevice())
    assert (given.dtype, given.value.numpy().tolist()) == ("bool", [True, False])
    narrow = take_tensor("x", torch.tensor([1, 0], dtype=torch.uint8), HostDevice())
    assert narrow.dtype == "uint8"


def test_what_cannot_be_had_is_refused() -> None:
    shared = tensor(ARRAYS[2])
    with pytest.raises(BufferError, match="cpu:0"):
        shared.__dlpack__(dl_device=(2, 0))
    np.testing.assert_array_equal(np.array(shared), ARRAYS[2])
    with pytest.raises(ValueError, match="from_dlpack"):
        np.array(shared, copy=False)


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_no_session_is_on_the_default_stream(stream: int) -> None:
    assert CudaPlace(stream=stream).settings() == {}
    (options,) = CudaPlace(stream=77).settings().values()
    assert options["user_compute_stream"] == "77"


def test_memory_that_is_not_there_is_refused() -> None:
    with pytest.raises(AotcError) as caught:
        HostDevice().empty((1 << 45,), "float32")
    assert caught.value.code == "AOTC-M004"
    assert caught.value.expected == "room for a tensor of float32[35184372088832]"


def test_a_tensor_has_the_elements_of_an_array_and_memory_of_its_own() -> None:
    for array, kind in (
        (np.arange(12, dtype=np.float32).reshape(3, 4).T, "float32"),
        (np.array(True), "bool"),
        (np.empty((0, 3), np.float16), "float16"),
        (np.arange(3, dtype=np.uint16), "bfloat16"),
    ):
        value = HostDevice().tensor_of(array, kind)
        assert tuple(value.shape()) == array.shape
        assert value.data_type() == f"tensor({'float' if kind == 'float32' else kind})"
        found = read_values([value], HostDevice())[0]
        np.testing.assert_array_equal(found.view(array.dtype), array)
        assert not np.shares_memory(found, array)
        assert array.size == 0 or value.data_ptr() != array.ctypes.data


def test_a_device_whose_stream_was_made_needs_the_bindings() -> None:
    if find_spec("cuda") is not None:
        pytest.skip("NVIDIA's bindings are installed here")
    with pytest.raises(AotcError) as caught:
        CudaDevice(made=7)
    assert caught.value.code == "AOTC-I019"
