"""Finds axes of outputs that a graph joins from parts, or takes apart: boxes beside scores.

From an output back through what keeps each value in its place or moves it: elementwise operators,
casts, Transpose, Concat, and Reshape where the shape before it is known.  Axes that a Reshape
joins into one are found too: interleaved values of different kinds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aotc.base.records import replace
from aotc.graph.view import GraphView, attribute_of, constant_tensors
from aotc.spec.parted import LayoutStep, PartedAxis
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx

Shape = tuple[int | str, ...]
_IN_PLACE: Final = frozenset(
    (
        *("Abs", "Cast", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
        *("HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu"),
        *("Round", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
    )
)
_COMBINING: Final = frozenset(
    ("Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Where")
)
_RESHAPES: Final = frozenset(("Flatten", "Reshape", "Squeeze", "Unsqueeze"))
_MAX_NODES: Final = 32
_MAX_PARTS: Final = 256


def parted_axes(model: onnx.ModelProto) -> dict[str, tuple[PartedAxis, ...]]:
    """By output, the axes that are joined or taken apart near it; outputs without any are left out.

    `model` states the shapes of its values, as far as shape inference knows them.  Weights are not
    read.  A part of an unknown size, or that control flow or a function makes, is not found.
    """
    search = _Search(model)
    found = {name: tuple(search.axes_of(name)) for name in search.graph.outputs}
    return {name: axes for name, axes in found.items() if axes}


class _Search:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = GraphView(model.graph)
        self._shapes = dict(_shapes(model.graph))
        self._constants = constant_tensors(model.graph)

    def axes_of(self, output: str) -> Iterator[PartedAxis]:
        own = self._shapes.get(output)
        left = deque([(output, tuple[LayoutStep, ...]())])
        seen = set[str]()
        while left and len(seen) < _MAX_NODES:
            value, steps = left.popleft()
            shape = self._shapes.get(value)
            if shape is None or value in seen:
                continue
            seen.add(value)
            yield from self._taken_apart(value, shape, steps)
            node = self.graph.maker(value)
            if node is None or node.domain not in STANDARD:
                continue
            if node.op_type == "Concat":
                yield from self._joined(node, len(shape), steps)
                left.extend(self._parts(node, len(shape), steps))
            elif node.op_type in _RESHAPES:
                before = self._shapes.get(node.input[0])
                dims = _reshape_dims(before, own)
                if before is not None and dims is not None:
                    steps = (*steps, LayoutStep(kind="reshape", dims=dims))
                    yield from _merged(node, before, shape, steps)
                    left.append((node.input[0], steps))
            elif node.op_type == "Transpose":
                order = _inverse(node, len(shape))
                left.append((node.input[0], (*steps, LayoutStep(kind="transpose", dims=order))))
            else:
                left.extend((name, steps) for name in self._in_place(node, shape))

    def _in_place(self, node: onnx.NodeProto, shape: Shape) -> list[str]:
        """The inputs of `node` whose values stand at the places of its output."""
        if node.op_type in _IN_PLACE:
            return [node.input[0]]
        if node.op_type in _COMBINING:
            named = [name for name in node.input if self._shapes.get(name) == shape]
            return [name for name in named if name not in self._constants]
        return []

    def _parts(
        self, node: onnx.NodeProto, rank: int, steps: tuple[LayoutStep, ...]
    ) -> Iterator[tuple[str, tuple[LayoutStep, ...]]]:
        """What a Concat joins, as far as the places of its parts are known."""
        axis = attribute_of(node, "axis", 0) % rank
        at = 0
        for name in node.input[:_MAX_NODES]:
            size = self._size(name, axis, rank)
            if size is None:
                return
            yield name, (*steps, LayoutStep(kind="slice", dims=(axis, at, at + size)))
            at += size

    def _size(self, name: str, axis: int, rank: int) -> int | None:
        shape = self._shapes.get(name)
        size = shape[axis] if shape is not None and len(shape) == rank else None
        return size if isinstance(size, int) else None

    def _joined(
        self, node: onnx.NodeProto, rank: int, steps: Sequence[LayoutStep]
    ) -> Iterator[PartedAxis]:
        axis = attribute_of(node, "axis", 0) % rank
        starts, at = [0], 0
        for name in node.input:
            size = self._size(name, axis, rank)
            if size is None:
                # What is known of the parts before it is true still.
                break
            at += size
            starts.append(at)
        if len(starts) == len(node.input) + 1:
            starts.pop()
        joined = tuple(node.input) if len(set(starts)) == len(node.input) else ()
        yield from (replace(each, joined=joined) for each in _parted(node, steps, axis, starts))

    def _taken_apart(
        self, value: str, shape: Shape, steps: Sequence[LayoutStep]
    ) -> Iterator[PartedAxis]:
        for index in self.graph.readers.get(value, ()):
            node = self.graph.nodes[index]
            if node.domain not in STANDARD or node.input[0] != value:
                continue
            bounds = {"Split": self._split, "Slice": self._sliced, "Gather": self._gathered}
            if node.op_type in bounds:
                for axis, starts in bounds[node.op_type](node, shape):
                    yield from _parted(node, steps, axis, starts)

    def _split(self, node: onnx.NodeProto, shape: Shape) -> Iterator[tuple[int, list[int]]]:
        axis = attribute_of(node, "axis", 0) % len(shape)
        sizes = self._numbers(node, 1) or attribute_of(node, "split", list[int]())
        size = shape[axis]
        if not sizes and isinstance(size, int):
            part = -(-size // len(node.output))
            sizes = [part] * (len(node.output) - 1)
        if sizes:
            yield axis, [sum(sizes[:at]) for at in range(len(node.output))]

    def _sliced(self, node: onnx.NodeProto, shape: Shape) -> Iterator[tuple[int, list[int]]]:
        starts = self._numbers(node, 1) or attribute_of(node, "starts", list[int]())
        ends = self._numbers(node, 2) or attribute_of(node, "ends", list[int]())
        axes = self._numbers(node, 3) or attribute_of(node, "axes", list[int]())
        for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=False):
            size = shape[axis]
            if isinstance(size, int):
                bounds = [
                    min(max(each + size if each < 0 else each, 0), size) for each in (start, end)
                ]
                yield axis % len(shape), [0, *bounds]
            elif start >= 0:
                yield axis % len(shape), [0, start, *([end] if 0 < end < 1 << 31 else [])]

    def _gathered(self, node: onnx.NodeProto, shape: Shape) -> Iterator[tuple[int, list[int]]]:
        axis = attribute_of(node, "axis", 0) % len(shape)
        size = shape[axis]
        found = self._numbers(node, 1)
        if isinstance(size, int):
            found = [each + size if each < 0 else each for each in found]
        if found and found == list(range(found[0], found[-1] + 1)) and found[0] >= 0:
            yield axis, [0, found[0], found[-1] + 1]

    def _numbers(self, node: onnx.NodeProto, index: int) -> list[int]:
        """An input of integers that is constant and not in a file of weights; else none."""
        import onnx

        name = node.input[index] if index < len(node.input) else ""
        tensor = self._constants.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return []
        return [int(number) for number in onnx.numpy_helper.to_array(tensor).reshape(-1)]


def _parted(
    node: onnx.NodeProto, steps: Sequence[LayoutStep], axis: int, starts: Sequence[int]
) -> Iterator[PartedAxis]:
    distinct = tuple(sorted(set(starts)))
    if 1 < len(distinct) <= _MAX_PARTS:
        yield PartedAxis(node=node.name, steps=tuple(steps), axis=axis, starts=distinct)


def _merged(
    node: onnx.NodeProto, before: Shape, after: Shape, steps: tuple[LayoutStep, ...]
) -> Iterator[PartedAxis]:
    """The axes of a tensor that a reshape to `after` joins into others."""
    first, last = 0, 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    joined = [axis for axis in range(first, len(before) - last) if before[axis] != 1]
    for axis in joined if len(joined) > 1 else ():
        yield PartedAxis(node=node.name, steps=steps, axis=axis, starts=(0,))


def _inverse(node: onnx.NodeProto, rank: int) -> tuple[int, ...]:
    order = attribute_of(node, "perm", list(range(rank))[::-1])
    return tuple(order.index(axis) for axis in range(rank))


def _reshape_dims(before: Shape | None, own: Shape | None) -> tuple[int, ...] | None:
    """The shape before a reshape: sizes, axes of the output, and one that is left; or None."""
    if before is None:
        return None
    named: Mapping[int | str, int] = {
        dim: -2 - axis for axis, dim in enumerate(own or ()) if isinstance(dim, str)
    }
    dims = [dim if isinstance(dim, int) else named.get(dim, -1) for dim in before]
    return tuple(dims) if dims.count(-1) <= 1 else None


def _shapes(graph: onnx.GraphProto) -> Iterator[tuple[str, Shape]]:
    for tensor in constant_tensors(graph).items():
        yield tensor[0], tuple(tensor[1].dims)
    for value in (*graph.value_info, *graph.output, *graph.input):
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and kind.HasField("shape"):
            # A dim without a name is like no other.
            yield (
                value.name,
                tuple(
                    dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"?{at}"
                    for at, dim in enumerate(kind.shape.dim)
                ),
            )
