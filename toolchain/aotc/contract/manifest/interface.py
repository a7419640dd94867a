"""Inputs and outputs of a model, and their shapes, as the manifest tells them."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.records import record

Kind = Literal["tensor", "sequence", "optional", "map", "sparse"]


@record
class Value:
    """A graph input or output. `shape`: sizes, dim names; None where the rank is unknown."""

    name: str
    kind: Kind = "tensor"
    dtype: Annotated[str, "numpy's name; string for text; of the elements of a sequence"]
    shape: tuple[int | str, ...] | None = None


@record
class ValueShapes:
    """One output: its shape as declared, as shape inference finds it, and as it was produced.

    Sizes, dim names and sums of them such as `past + seq`; `?` where nothing simple fits.
    None: rank unknown, or no tensor.
    """

    name: str
    declared: tuple[int | str, ...] | None = None
    inferred: tuple[int | str, ...] | None = None
    produced: tuple[int | str, ...] | None = None
