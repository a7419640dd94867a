"""Bools in DLPack: ONNX Runtime makes and takes them as bytes, other libraries as `kDLBool`."""

from __future__ import annotations

import ctypes
from typing import Any, Final

# `kDLUInt` and `kDLBool` of DLPack.
_UINT: Final = 1
_BOOL: Final = 6
# Where a `DLTensor` has its type's code: after its address, its device and the number of its dims.
_CODE_OFFSET: Final = 20
_NAME: Final = b"dltensor"
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def mark_as_bools(capsule: Any) -> Any:
    """The capsule, of bytes, as one of bools."""
    _code(capsule).value = _BOOL
    return capsule


def mark_as_bytes(capsule: Any) -> Any:
    """The capsule as one of bytes, if it is of bools."""
    code = _code(capsule)
    if code.value == _BOOL:
        code.value = _UINT
    return capsule


def _code(capsule: Any) -> ctypes.c_uint8:
    """The code of the type; raises ValueError for a capsule of DLPack 1.0, or one in use."""
    return ctypes.c_uint8.from_address(_pointer(capsule, _NAME) + _CODE_OFFSET)
