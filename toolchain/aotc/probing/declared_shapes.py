"""Declared shapes of outputs, compared with the shapes that runs produce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aotc.contract.finding import Finding
from aotc.contract.manifest.interface import Value
from aotc.contract.shapes.dim_names import is_anonymous

_Axis = int | None


class DeclaredShapes:
    """What the declared shapes of `outputs` claim, and which runs contradict it.

    A rank and a fixed size are claims.  A name claims the size of the input's dim of that name; a
    name that no input has claims that all its occurrences in one run have one size.  An anonymous
    name claims nothing.  Each tensor of a sequence has the declared rank and fixed sizes; maps and
    an empty optional have no shape.
    """

    def __init__(self, outputs: Sequence[Value]) -> None:
        self._outputs = outputs
        self._reported: list[set[_Axis]] = [set() for _ in outputs]
        self._findings: list[list[Finding]] = [[] for _ in outputs]

    def compare_run(self, sizes: Mapping[str, int], produced: Sequence[Any]) -> None:
        """Compare what one run `produced`, in the order of the outputs.

        `sizes` are those of the inputs' dims by name.  Each axis, or rank, is reported once.
        """
        first: dict[str, tuple[int, str]] = {}
        for index, (value, output) in enumerate(zip(self._outputs, produced, strict=True)):
            for element, shape in _shapes(value, output):
                wrong = {
                    axis: detail
                    for axis, detail in _contradictions(value, shape, sizes, first, element)
                    if axis not in self._reported[index]
                }
                if wrong:
                    self._reported[index].update(wrong)
                    self._findings[index].append(_finding(value, shape, sizes, element, wrong))

    def findings(self) -> list[Finding]:
        """AOTC-S009 by output, in the order in which contradictions were found."""
        return [finding for found in self._findings for finding in found]


def _contradictions(
    value: Value,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    first: dict[str, tuple[int, str]],
    element: int | None,
) -> Iterator[tuple[_Axis, str]]:
    """Each axis (None: the rank) that is not as declared, with details that shapes do not show."""
    declared = value.shape or ()
    if len(declared) != len(shape):
        yield None, ""
        return
    for axis, (claim, size) in enumerate(zip(declared, shape, strict=True)):
        if isinstance(claim, int):
            if claim != size:
                yield axis, ""
        elif element is not None or is_anonymous(claim):
            continue
        elif claim in sizes:
            if sizes[claim] != size:
                yield axis, ""
        else:
            before, where = first.setdefault(claim, (size, value.name))
            if before != size:
                other = f" of {where!r}" if where != value.name else ""
                yield axis, f"; {claim!r}{other} is {before}, and {size} in axis {axis}"


def _shapes(value: Value, output: Any) -> Iterator[tuple[int | None, Sequence[int]]]:
    """The shape of a tensor (key None), or those of a sequence's tensors by position."""
    if value.shape is None or value.kind == "map":
        return
    if isinstance(output, list | tuple):
        for element, item in enumerate(output):
            if hasattr(item, "shape"):
                yield element, item.shape
    elif hasattr(output, "shape"):
        yield None, output.shape


def _finding(
    value: Value,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    element: int | None,
    wrong: Mapping[_Axis, str],
) -> Finding:
    at = ", ".join(f"{name}={size}" for name, size in sizes.items())
    place = f" in element {element}" if element is not None else ""
    return Finding(
        code="AOTC-S009",
        what=f"declared {_text(value.shape or ())}, produced {_text(shape)}{place}"
        + (f" at {at}" if at else "")
        + "".join(wrong.values()),
        where=value.name,
    )


def _text(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"
