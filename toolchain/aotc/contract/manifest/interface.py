"""Inputs and outputs of a model, and their shapes, as the manifest states them."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.records import record

Kind = Literal["tensor", "sequence", "optional", "map", "sparse"]


@record
class Value:
    """A graph input or output.

    `shape` holds sizes and names of dims; None: the rank is unknown.
    """

    name: str
    kind: Kind = "tensor"
    dtype: Annotated[str, "numpy's name, string for text; for a sequence, of its elements"]
    shape: tuple[int | str, ...] | None = None


@record
class ValueShapes:
    """The shape of one output: as declared, as inferred, and as produced by runs.

    Shapes hold sizes, names of dims, sums of them such as `past + seq`, or `?` for what is none of
    these.  None: the rank is unknown, or the output is not a tensor.
    """

    name: str
    declared: tuple[int | str, ...] | None = None
    inferred: tuple[int | str, ...] | None = None
    produced: tuple[int | str, ...] | None = None
