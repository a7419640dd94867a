"""How sizes that nothing was compiled for are padded, and the answers cropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.records import field, record

Side = Literal["right", "left"]


@record
class PadSpec:
    """What an input is filled up with, and where."""

    value: Annotated[bool | int | float | str, "as the input's dtype; text where that is text"] = 0
    side: Annotated[Side, "after or before the given elements"] = "right"


@record
class Crop:
    """One axis of an output that grows with padded dims: its size is their sum plus `constant`."""

    output: str
    axis: Annotated[int, Bounds(0)]
    dims: Annotated[tuple[str, ...], Bounds(1)]
    constant: int = 0
    side: Annotated[Side, "side that is cut off"] = "right"

    def size(self, sizes: Mapping[str, int]) -> int:
        """Elements that remain along the axis, of unpadded `sizes`."""
        return sum(sizes[dim] for dim in self.dims) + self.constant


@record
class Padding:
    """How calls are padded and answers cropped; inputs and outputs not named stay as they are."""

    inputs: Annotated[Mapping[str, PadSpec], "by input that has a padded dim"] = field(
        default_factory=dict
    )
    crops: tuple[Crop, ...] = ()
