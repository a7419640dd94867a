"""How inputs are padded to a compiled size, and outputs cropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.records import field, record

Side = Literal["right", "left"]


@record
class PadSpec:
    """The value with which an input is padded, and on which side."""

    value: Annotated[bool | int | float | str, "of the input's dtype; text for text"] = 0
    side: Annotated[Side, "right: after the given elements; left: before them"] = "right"


@record
class Crop:
    """An axis of an output whose size is the sum of `dims` plus `constant`, some of them padded."""

    output: str
    axis: Annotated[int, Bounds(0)]
    dims: Annotated[tuple[str, ...], Bounds(1)]
    constant: int = 0
    side: Annotated[Side, "side on which it is cropped"] = "right"

    def size(self, sizes: Mapping[str, int]) -> int:
        """The size of the axis for the unpadded `sizes`."""
        return sum(sizes[dim] for dim in self.dims) + self.constant


@record
class Padding:
    """How inputs are padded and outputs cropped; those not named stay as they are."""

    inputs: Annotated[Mapping[str, PadSpec], "by input with a padded dim"] = field(
        default_factory=dict
    )
    crops: tuple[Crop, ...] = ()
