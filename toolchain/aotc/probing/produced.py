"""Shapes of outputs: declared, inferred, and derived from what runs produced."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from aotc.contract.manifest.interface import Value, ValueShapes
from aotc.contract.shapes.dim_names import is_anonymous

Shape = tuple[int | str, ...]


class ObservedRun(NamedTuple):
    """One run: the sizes of all dims, and the shape of each output (None: not a tensor)."""

    sizes: Mapping[str, int]
    shapes: tuple[tuple[int, ...] | None, ...]


class Axis(NamedTuple):
    """A rule for the size of one output axis: the sum of `dims` plus `constant`.

    With `rounded`, it is the product of the dims, each divided by `by` and rounded that way.
    """

    dims: tuple[str, ...] = ()
    constant: int = 0
    by: int = 1
    rounded: Literal["", "floor", "ceil"] = ""

    def matches(self, sizes: Mapping[str, int], size: int) -> bool:
        """Whether a run at `sizes` may have produced `size`."""
        values = [sizes.get(dim, 0) for dim in self.dims]
        if not self.rounded:
            return sum(values) + self.constant == size
        sign = 1 if self.rounded == "floor" else -1
        return math.prod(sign * (sign * value // self.by) for value in values) == size

    def is_croppable(self, dims: Collection[str]) -> bool:
        """Whether the elements that one of `dims` contributes can be cropped."""
        return not self.rounded or not set(self.dims) & set(dims)

    def text(self) -> int | str:
        """The size, or an expression such as `past + seq`, `2*seq`, `floor(h/8)*floor(w/8)`."""
        if not self.dims:
            return self.constant
        if self.rounded:
            parts = [f"{self.rounded}({dim}/{self.by})" for dim in self.dims]
            return "*".join(self.dims if self.by == 1 else parts)
        run_costs = {dim: self.dims.count(dim) for dim in self.dims}
        words = " + ".join(dim if n == 1 else f"{n}*{dim}" for dim, n in run_costs.items())
        if self.constant:
            words += f" {'+' if self.constant > 0 else '-'} {abs(self.constant)}"
        return words


def axes_of(
    output: int, declared: Value, runs: Sequence[ObservedRun], dims: Sequence[str]
) -> tuple[Axis | None, ...] | None:
    """How each axis of an output follows from the dims in all `runs`; None: no simple rule.

    None instead of the tuple if the output is not a tensor or its rank changes.  Of several rules
    that match, the declared name comes first, then the rule with the fewest dims.
    """
    shapes = [run.shapes[output] for run in runs]
    ranks = {len(shape) if shape is not None else -1 for shape in shapes}
    if len(ranks) != 1 or -1 in ranks:
        return None
    rank = ranks.pop()
    declared_name = (
        declared.shape if declared.shape is not None and len(declared.shape) == rank else ()
    )
    axes = []
    for axis in range(rank):
        observed = [
            (run.sizes, shape[axis]) for run, shape in zip(runs, shapes, strict=True) if shape
        ]
        name = declared_name[axis] if declared_name else 0
        first = [name] if isinstance(name, str) and name in dims else []
        others = [dim for dim in dims if dim not in first]
        axes.append(_simplest_rule(observed, [*first, *others], first[0] if first else ""))
    return tuple(axes)


def _simplest_rule(
    observed: Sequence[tuple[Mapping[str, int], int]], dims: Sequence[str], declared_name: str
) -> Axis | None:
    sizes, size = observed[0]
    if all(other == size for _, other in observed):
        varied = any(len({at.get(dim) for at, _ in observed}) > 1 for dim in dims)
        if varied or not declared_name or sizes.get(declared_name) != size:
            return Axis(constant=size)
    for candidate in _candidates(sizes, size, dims):
        if all(candidate.matches(at, other) for at, other in observed):
            return candidate
    return None


def _candidates(sizes: Mapping[str, int], size: int, dims: Sequence[str]) -> Iterable[Axis]:
    """Rules that match one run, simplest first."""
    names = [dim for dim in dims if dim in sizes]
    pairs = [(dim,) for dim in names]
    is_croppable = [*pairs, *itertools.combinations(names, 2)]
    for chosen in is_croppable:
        yield Axis(chosen)
    for chosen in is_croppable:
        yield Axis(chosen, size - sum(sizes[dim] for dim in chosen))
    for (dim,), factor in itertools.product(pairs, (2, 3, 4, 8, 16)):
        yield Axis((dim,) * factor)
        yield Axis((dim,) * factor, size - factor * sizes[dim])
    for chosen, by in itertools.product(is_croppable, (1, 2, 4, 8, 16, 32, 64)):
        yield Axis(chosen, by=by, rounded="floor")
        yield Axis(chosen, by=by, rounded="ceil")


def inferred_shapes(graph: Path) -> dict[str, Shape | None]:
    """Output shapes by name, from ONNX's shape inference; empty if inference fails."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    for value in model.graph.output:
        # Inference would only return the declared shape.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    found: dict[str, Shape | None] = {}
    for value in inferred.graph.output:
        tensor = value.type.tensor_type
        found[value.name] = (
            tuple(
                dim.dim_value if dim.HasField("dim_value") else _printable_name(dim.dim_param)
                for dim in tensor.shape.dim
            )
            if value.type.HasField("tensor_type") and tensor.HasField("shape")
            else None
        )
    return found


def _printable_name(name: str) -> str:
    # Shape inference invents such names.
    return "?" if is_anonymous(name) else name


def value_shapes(
    outputs: Sequence[Value],
    axes: Sequence[tuple[Axis | None, ...] | None],
    inferred: Mapping[str, Shape | None],
) -> list[ValueShapes]:
    """The declared, inferred and produced shape of each output."""
    return [
        ValueShapes(
            name=value.name,
            declared=value.shape,
            inferred=inferred.get(value.name),
            produced=None
            if rules is None
            else tuple("?" if rule is None else rule.text() for rule in rules),
        )
        for value, rules in zip(outputs, axes, strict=True)
    ]
