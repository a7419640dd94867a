"""Where further tensors of a bound call are, read at once: by DLPack, and by its table in C."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from aotc.runtime.dlpack import DeviceTensor, HostAddress, Layout, exchange_of
from aotc.session.device.device import HostDevice

SHAPE = (2, 3, 4)
TYPES = ["float32", "float16", "int64", "int32", "uint8", "bool", "float64"]


def array_of(dtype: str, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


class Exported:
    """A tensor of another library, which lends the memory of an array by DLPack."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device = device
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__()


def address(value: Any, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> int | None:
    held: list[Any] = []
    return Layout(dtype, shape, HostDevice()).address_of(value, None, held)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [SHAPE, (5,), (1, 1), (), (0, 3)], ids=str)
def test_tensors_of_the_layout_are_found(dtype: str, shape: tuple[int, ...]) -> None:
    array = array_of(dtype, shape)
    assert Layout(dtype, shape, HostDevice()).is_of(array)
    ours = DeviceTensor(ort.OrtValue.ortvalue_from_numpy(array), HostDevice())
    found = [address(each, dtype, shape) for each in (Exported(array), ours)]
    assert None not in found
    if array.size:
        assert found == [array.ctypes.data] * 2


def test_a_part_of_a_tensor_begins_within_it() -> None:
    array = array_of("float32", (4, 2, 3, 4))
    assert address(Exported(array[2])) == array[2].ctypes.data


def test_what_does_not_fit_is_left_to_who_says_why() -> None:
    array = array_of("float32")
    for other in (
        Exported(array.astype("float64")),
        Exported(array.astype("int32")),
        Exported(array.reshape(3, 2, 4)),
        Exported(array.reshape(6, 4)),
        Exported(array[:, :, ::2].repeat(2, 2)[:, ::-1]),
        Exported(array, (2, 0)),
        Exported(array, (1, 1)),
        DeviceTensor(ort.OrtValue.ortvalue_from_numpy(array[0].copy()), HostDevice()),
        "text",
        [1.0],
        object(),
    ):
        assert address(other) is None
    layout = Layout("float32", SHAPE, HostDevice())
    for one in (array.T, array.astype(">f4"), array[0], array.astype("int32")):
        assert not layout.is_of(one)
    # Which numpy has no type for.
    assert not Layout("bfloat16", SHAPE, HostDevice()).is_of(array.astype("float64"))


def test_types_that_are_not_read_at_once_are_nobodys() -> None:
    array = array_of("uint8")
    for dtype in ("float8e4m3fn", "int4", "string", "complex64"):
        layout = Layout(dtype, SHAPE, HostDevice())
        assert not layout.is_of(array)
        assert layout.address_of(Exported(array), None, []) is None


def test_a_producer_is_told_the_stream_and_held() -> None:
    array = array_of("float32")
    tensor = Exported(array)
    held: list[Any] = []
    layout = Layout("float32", SHAPE, HostDevice())
    assert layout.address_of(tensor, 7, held) == array.ctypes.data
    assert layout.address_of(tensor, None, held) == array.ctypes.data
    assert (tensor.streams, len(held)) == ([7, None], 2)


# DLPack's table in C of a library, made of Python's functions.

_describe_type = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_stream_type = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
_capsule_of = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_NAME = b"dlpack_exchange_api"


class Tabled:
    """A tensor whose library has the table: its DLPack methods must not be asked."""

    def __init__(
        self,
        array: np.ndarray[Any, Any],
        device: tuple[int, int] = (1, 0),
        *,
        fails: bool = False,
    ) -> None:
        self.array = array
        self.device = device
        self.fails = fails
        self.sizes = np.array([*array.shape, *(step // 4 for step in array.strides)], np.int64)


@_describe_type
def describe(tensor: Any, room: int) -> int:
    if tensor.fails:
        return -1
    rank, sizes = tensor.array.ndim, tensor.sizes.ctypes.data
    described = (*tensor.device, rank, 2, 32, 1, sizes, sizes + 8 * rank, 8)
    # It begins where the address and the offset say together.
    data = struct.pack("=QiiiBBHQQQ", tensor.array.ctypes.data - 8, *described)
    ctypes.memmove(room, data, len(data))
    return 0


@_stream_type
def current_stream(kind: int, index: int, found: int) -> int:
    ctypes.c_void_p.from_address(found).value = 100 * kind + index
    return 0


def table(major: int, *functions: Any) -> Any:
    addresses = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions]
    room = ctypes.create_string_buffer(struct.pack("=II6Q", major, 3, 0, 0, 0, 0, *addresses))
    _kept.append(room)
    return _capsule_of(ctypes.addressof(room), _NAME, None)


_kept: list[Any] = []
Tabled.__dlpack_c_exchange_api__ = table(1, describe, current_stream)  # type: ignore[attr-defined]


def test_a_library_with_a_table_is_asked_by_it() -> None:
    array = array_of("float32")
    assert address(Tabled(array)) == array.ctypes.data
    assert address(Tabled(array), "float16") is None
    assert address(Tabled(array), shape=(3, 2, 4)) is None
    assert address(Tabled(array.transpose(2, 1, 0)), shape=(4, 3, 2)) is None
    assert address(Tabled(array, fails=True)) is None
    exchange = exchange_of(Tabled)
    assert exchange is not None
    assert exchange.stream(HostDevice(3)) == 103


class OnOther(HostDevice):
    """A device to which tensors of the host are sent."""

    dlpack_type = 2


@pytest.mark.parametrize("place", [(1, 0), (3, 0), (3, 1), (2, 0)], ids=str)
def test_tensors_of_the_host_are_found_for_another_device(place: tuple[int, int]) -> None:
    array = array_of("float32")
    layout = Layout("float32", SHAPE, OnOther())
    for tensor in (Exported(array, place), Tabled(array, place)):
        held: list[Any] = []
        found = layout.address_of(tensor, 7, held)
        # A capsule of the array itself says that it is on the host.
        on_host = isinstance(tensor, Exported) or place != (2, 0)
        assert (found, type(found)) == (array.ctypes.data, HostAddress if on_host else int)
    # No stream waits for what is on the host.
    lent = Exported(array, place)
    layout.address_of(lent, 7, [])
    assert lent.streams == [7 if place == (2, 0) else None]


def test_tensors_of_the_host_are_sent_nowhere_unless_they_fit() -> None:
    array = array_of("float32")
    layout = Layout("float32", SHAPE, OnOther())
    for other in (
        Tabled(array.reshape(6, 4)),
        Tabled(array.transpose(1, 0, 2)),
        Tabled(array, (2, 1)),
        Tabled(array, (4, 0)),
    ):
        assert layout.address_of(other, None, []) is None
    # Page-locked memory is another place than that of a model of the host.
    assert address(Tabled(array, (3, 0))) is None


def test_a_tensor_that_needs_a_gradient_is_looked_at_closer() -> None:
    tensor = Tabled(array_of("float32"))
    tensor.requires_grad = True  # type: ignore[attr-defined]
    assert address(tensor) is None


def test_tables_of_other_kinds_are_not_asked() -> None:
    class Later:
        __dlpack_c_exchange_api__ = table(2, describe, current_stream)

    class Partial:
        __dlpack_c_exchange_api__ = table(1, 0, current_stream)

    class Wrong:
        __dlpack_c_exchange_api__ = np.zeros(1).__dlpack__()

    class Derived(Tabled):
        """May have its values elsewhere."""

    assert [exchange_of(kind) for kind in (Later, Partial, Wrong, Derived, int)] == [None] * 5


def test_torch_has_such_a_table() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24, dtype=torch.float32).reshape(SHAPE)
    assert exchange_of(type(tensor)) is not None
    assert address(tensor) == tensor.data_ptr()
    assert address(tensor.transpose(0, 1), shape=(3, 2, 4)) is None
    assert address(tensor.half()) is None
    assert address(tensor.clone().requires_grad_()) is None
    assert address(torch.nn.Parameter(tensor.clone())) is None
    assert address(tensor[:, 1:2].expand(2, 3, 4)) is None
