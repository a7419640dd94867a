"""The two half-precision types, and which numbers they can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from aotc.records import record

if TYPE_CHECKING:
    import numpy as np
    import onnx

# Above the smallest normal numbers of both types.
_NORMAL: Final = 1e-4
HalfName = Literal["float16", "bfloat16"]


@record
class HalfType:
    """One type: its largest finite number, and the number by which ONNX knows it."""

    name: HalfName
    largest: float
    onnx_type: int

    @property
    def tensor_name(self) -> str:
        """In the spelling of ONNX's schemas."""
        return f"tensor({self.name})"

    def rounded(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`values` in this type, rounded to nearest; what is too large becomes infinite."""
        import ml_dtypes
        import numpy as np

        kind = np.float16 if self.name == "float16" else ml_dtypes.bfloat16
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(kind)

    def holds(self, values: np.ndarray[Any, Any]) -> bool:
        """Whether no finite number becomes infinite, and not all that differ from 0 become 0."""
        import numpy as np

        if values.size:
            magnitude = max(float(values.max()), -float(values.min()))
            # Most constants; the rest is for what is tiny, infinite or no number.
            if _NORMAL <= magnitude <= self.largest:
                return True
        rounded = self.rounded(values)
        if bool(np.any(np.isinf(rounded.astype(np.float32)) & np.isfinite(values))):
            return False
        nonzero = values != 0
        return not bool(np.any(nonzero)) or bool(np.any(rounded[nonzero] != 0))

    def tensor(self, values: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
        """A tensor of `values` in this type."""
        import onnx

        return onnx.numpy_helper.from_array(self.rounded(values), name)


# Numbers are those of `TensorProto.DataType`, which never change.
HALF_TYPES: Final[Mapping[str, HalfType]] = {
    "float16": HalfType(name="float16", largest=65504.0, onnx_type=10),
    "bfloat16": HalfType(name="bfloat16", largest=3.3895313892515355e38, onnx_type=16),
}
