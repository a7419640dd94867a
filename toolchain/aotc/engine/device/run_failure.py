"""What failed on a device: its memory, or ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.backends.onnxruntime_import import is_out_of_memory, ort_message
from aotc.errors import AotcError

if TYPE_CHECKING:
    from aotc.engine.device.device import Device


def failure(error: Exception, device: Device, expected: str = "") -> AotcError:
    """AOTC-M004 if memory was not enough, else R005; `expected` is what it was wanted for."""
    text = ort_message(error)
    if is_out_of_memory(error):
        return AotcError(
            "AOTC-M004",
            "the device has too little memory",
            where=f"{device.name} device {device.index}",
            expected=expected or "room for the activations of this call",
            found=f"{device.free_bytes()} bytes free; {text}",
        )
    return AotcError("AOTC-R005", "ONNX Runtime failed while it ran the model", found=text)
