"""Shapes of outputs: declared, inferred, and derived from runs; and how inputs are padded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from aotc.base.errors import AotcError
from aotc.graph.values import numpy_dtype
from aotc.spec.payload import Finding, Value, ValueShapes
from aotc.spec.relations import is_anonymous
from aotc.spec.shapes import Crop, Domain, Padding, PadSpec, Side, sizes_in_words

if TYPE_CHECKING:
    import onnx

_Axis = int | None
Shape = tuple[int | str, ...]


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
    at = sizes_in_words(sizes)
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


# How inputs are padded and outputs cropped, from the profile and from observed runs.


def padded_dims(domain: Domain) -> frozenset[str]:
    """Dims that padding enlarges, with those derived from them."""
    found = {name for name, dim in domain.dims.items() if dim.pad_from is not None}
    for relation in domain.relations:
        if found & set(relation.terms):
            found.add(relation.dim)
    return frozenset(found)


def plan_padding(
    domain: Domain,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    axes: Sequence[tuple[Axis | None, ...] | None],
    pads: Mapping[str, PadSpec],
    crops: Mapping[str, Mapping[str, str] | None],
) -> Padding | None:
    """The padding of all inputs that have a padded dim, and the crops of all outputs.

    `axes` are the rules of each output's axes; `crops` are those of the profile, by output and
    axis, and take precedence.  None if nothing is padded.  Raises AOTC-S002 (a pad value of the
    wrong type, an unknown output) and S018.
    """
    dims = padded_dims(domain)
    if not dims:
        return None
    pads_by_input = {}
    for value in inputs:
        if dims & set(value.shape or ()):
            pads_by_input[value.name] = _checked_pad(pads.get(value.name, PadSpec()), value)
    _require_outputs(crops, outputs)
    found: list[Crop] = []
    for value, axis_rules in zip(outputs, axes, strict=True):
        stated = crops.get(value.name)
        if stated is not None:
            found += _stated_crops(
                stated, value, axis_rules, domain, _pad_side(stated.values(), inputs, pads_by_input)
            )
            continue
        for axis, rule in enumerate(axis_rules or ()):
            if rule is None or not rule.is_croppable(dims):
                raise _uncroppable(value, axis, rule)
            if dims & set(rule.dims):
                side = _pad_side(rule.dims, inputs, pads_by_input)
                found.append(
                    Crop(
                        output=value.name,
                        axis=axis,
                        dims=rule.dims,
                        constant=rule.constant,
                        side=side,
                    )
                )
        if axis_rules is None:
            raise _uncroppable(value, None, None)
    return Padding(inputs=pads_by_input, crops=tuple(found))


def _checked_pad(spec: PadSpec, value: Value) -> PadSpec:
    if value.dtype == "string":
        return spec if isinstance(spec.value, str) else PadSpec(value="", side=spec.side)
    dtype = numpy_dtype(value.dtype)
    try:
        with np.errstate(all="ignore"):
            exact = not isinstance(spec.value, str) and bool(
                np.asarray(spec.value).astype(dtype) == spec.value
            )
    except (OverflowError, ValueError):
        exact = False
    # The -1e9 of a mask would become minus infinity in float16.
    with np.errstate(all="ignore"):
        representable = isinstance(spec.value, str) or bool(
            np.isfinite(spec.value)
            == np.isfinite(np.asarray(spec.value).astype(dtype).astype(np.float64))
        )
    if not representable or (not exact and (isinstance(spec.value, str) or dtype.kind in "biu")):
        raise AotcError(
            "AOTC-S002",
            "the pad value is not of the input's type",
            where=f"inputs.{value.name}.pad.value",
            expected=value.dtype,
            found=repr(spec.value),
        )
    return spec


def _require_outputs(
    crops: Mapping[str, Mapping[str, str] | None], outputs: Sequence[Value]
) -> None:
    names = [value.name for value in outputs]
    for name in crops:
        if name not in names:
            raise AotcError(
                "AOTC-S002",
                f"the model has no output {name!r}",
                where=f"outputs.{name}",
                expected=", ".join(names),
            )


def _stated_crops(
    stated: Mapping[str, str],
    value: Value,
    axis_rules: tuple[Axis | None, ...] | None,
    domain: Domain,
    side: Side,
) -> list[Crop]:
    known_dims = {*domain.dims, *(relation.dim for relation in domain.relations)}
    rank = len(axis_rules) if axis_rules is not None else len(value.shape or ()) or None
    found = []
    for axis, dim in stated.items():
        number = int(axis) if axis.isascii() and axis.isdigit() and len(axis) < 4 else -1
        if number < 0 or (rank is not None and number >= rank) or dim not in known_dims:
            raise AotcError(
                "AOTC-S002",
                "the crop names an unknown axis or dim",
                where=f"outputs.{value.name}.crop",
                expected=f"an axis below {rank if rank is not None else 'its rank'}: one of "
                + ", ".join(sorted(known_dims)),
                found=f"{axis}: {dim}",
            )
        found.append(
            Crop(
                output=value.name,
                axis=number,
                dims=(dim,),
                side=side,
            )
        )
    return found


def _pad_side(dims: Iterable[str], inputs: Sequence[Value], pads: Mapping[str, PadSpec]) -> Side:
    """`left` if every input with one of `dims` is padded on the left, else `right`."""
    names = set(dims)
    sides = {pads[v.name].side for v in inputs if v.name in pads and names & set(v.shape or ())}
    return "left" if sides == {"left"} else "right"


def _uncroppable(value: Value, axis: int | None, rule: Axis | None) -> AotcError:
    return AotcError(
        "AOTC-S018",
        f"output {value.name!r} cannot be cropped",
        where=f"output {value.name}" + (f", axis {axis}" if axis is not None else ""),
        expected="a size that is a sum of dims",
        found="not a tensor of fixed rank"
        if axis is None
        else str(rule.text())
        if rule is not None
        else "a size that follows no simple rule",
    )


# How the size of each output axis follows from the dims, derived from runs.


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
        counts = {dim: self.dims.count(dim) for dim in self.dims}
        words = " + ".join(dim if n == 1 else f"{n}*{dim}" for dim, n in counts.items())
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
    choices = [*pairs, *itertools.combinations(names, 2)]
    for chosen in choices:
        yield Axis(chosen)
    for chosen in choices:
        yield Axis(chosen, size - sum(sizes[dim] for dim in chosen))
    for (dim,), factor in itertools.product(pairs, (2, 3, 4, 8, 16)):
        yield Axis((dim,) * factor)
        yield Axis((dim,) * factor, size - factor * sizes[dim])
    for chosen, by in itertools.product(choices, (1, 2, 4, 8, 16, 32, 64)):
        yield Axis(chosen, by=by, rounded="floor")
        yield Axis(chosen, by=by, rounded="ceil")


def inferred_graph(graph: Path) -> onnx.ModelProto | None:
    """A model with the shapes of ONNX's shape inference alone, without those that it declares for
    its outputs; None if inference fails.
    """
    import onnx

    model = onnx.load(graph, load_external_data=False)
    for value in model.graph.output:
        # Inference would only return the declared shape.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return None


def inferred_shapes(inferred: onnx.ModelProto) -> dict[str, Shape | None]:
    """Output shapes by name, of an `inferred_graph`."""
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
