"""Hints on a model's free dims from its declaration; runs decide whether they hold.

Names and declared shapes come from the exporter.  They say what to try first, never what is true.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aotc.contract.manifest.interface import Value
from aotc.contract.shapes.domain import Relation
from aotc.probing.sizes.known_sizes import known_sizes
from aotc.records import field, record

if TYPE_CHECKING:
    import onnx

Kind = Literal["batch", "image", "length"]

_SUM: Final = re.compile(r"\s*[\w.:/]+(?:\s*\+\s*[\w.:/]+)+\s*")
# The axis of past keys and values, by operator and input index; counted from the end, as some
# have five axes.
_PAST_AXES: Final[Mapping[tuple[str, int], int]] = {
    ("GroupQueryAttention", 3): -2,
    ("GroupQueryAttention", 4): -2,
    ("MultiHeadAttention", 6): -2,
    ("MultiHeadAttention", 7): -2,
    ("DecoderMaskedMultiHeadAttention", 5): -2,
    ("DecoderMaskedMultiHeadAttention", 6): -2,
    ("Attention", 4): -2,
    ("Attention", 5): -2,
}
# If one side of an image is free, the other has at least this many pixels.
_MIN_IMAGE_SIDE: Final = 32
_PASS_THROUGH: Final = ("Identity", "Cast")


@record(kw_only=False)
class DimHints:
    """Hints on the free dims of a model's inputs.

    `leading` are dims that occur at axis 0 only (batches); `images` the height and width of image
    inputs; `may_be_empty` dims for which size 0 makes sense; `sums` dims that by name are sums of
    others; `sizes` fixed sizes of declared outputs; `known` sizes that weights require; `labels`
    what similar dims have in common, such as the past of all layers; `grids` the multiples that the
    profile states.
    """

    leading: frozenset[str] = frozenset()
    images: tuple[tuple[str, ...], ...] = ()
    may_be_empty: frozenset[str] = frozenset()
    sums: tuple[Relation, ...] = ()
    sizes: tuple[int, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, int] = field(default_factory=dict)

    def kind(self, dim: str) -> Kind:
        """What `dim` counts: entries of a batch, pixels of an image, or else a length."""
        if dim in self.leading:
            return "batch"
        return "image" if any(dim in group for group in self.images) else "length"

    def similar_to(self, dim: str, others: Iterable[str]) -> list[str]:
        """Those of `others` that have the same label as `dim`."""
        return [other for other in others if self._label(other) == self._label(dim)]

    def _label(self, dim: str) -> str:
        return self.labels.get(dim) or re.sub(r"\d+", "#", dim)


def hints_on(
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    graph: Path | None = None,
    *,
    try_empty: bool = True,
) -> DimHints:
    """Hints from the declared `inputs` and `outputs`, and from the nodes of the file `graph`.

    Without `try_empty`, no dim may be empty.
    """
    known: Mapping[str, int] = {}
    concatenated: frozenset[str] = frozenset()
    if graph is not None:
        import onnx

        read = onnx.load(graph, load_external_data=False).graph
        known, concatenated = known_sizes(inputs, read), _concatenated_dims(inputs, read)
    return DimHints(
        leading=leading_dims(inputs) - known.keys(),
        images=_image_dims(inputs, known, concatenated),
        may_be_empty=concatenated if try_empty else frozenset(),
        known=known,
        sums=tuple(_sum_relations(inputs, outputs)),
        sizes=_output_sizes(outputs),
        labels=_labels(inputs),
    )


def leading_dims(inputs: Sequence[Value]) -> frozenset[str]:
    """Dims that occur at axis 0 of an input of rank two or more, and nowhere else.

    Or at axis 1 behind a fixed number: of layers and directions in the state of a recurrent
    network, or of keys and values that are stacked into one past of five axes.
    """
    first, later = set(), set()
    for value in inputs:
        shape = value.shape or ()
        if len(shape) > 1:
            first |= {d for d in shape[:1] if isinstance(d, str)}
            state = len(shape) == 3 and isinstance(shape[2], int)
            second = isinstance(shape[0], int) and (state or len(shape) == 5)
            later |= {d for d in shape[2 if second else 1 :] if isinstance(d, str)}
    return frozenset(first - later)


def _image_dims(
    inputs: Sequence[Value], known: Mapping[str, int], concatenated: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    """Height and width of inputs `[n, c, h, w]` or `[n, h, w, c]` whose channels are `known`.

    Dims of inputs of another rank are excluded, and so are `concatenated` dims: masks and caches
    have four axes, too.
    """
    elsewhere = set(concatenated)
    for value in inputs:
        if len(value.shape or ()) != 4:
            elsewhere |= {d for d in value.shape or () if isinstance(d, str)}
    found = []
    for value in inputs:
        shape = tuple(known.get(d, d) if isinstance(d, str) else d for d in value.shape or ())
        if len(shape) != 4:
            continue
        for channels, axes in ((1, (2, 3)), (3, (1, 2))):
            sizes = tuple(shape[axis] for axis in axes)
            free = tuple(dict.fromkeys(d for d in sizes if isinstance(d, str)))
            fixed = isinstance(shape[channels], int)
            rows = max((size for size in sizes if isinstance(size, int)), default=0)
            colors = shape[channels] in (1, 3, 4) and rows >= _MIN_IMAGE_SIDE
            pixels = fixed and (len(free) == 2 or colors)
            if pixels and free and not elsewhere & set(free):
                found.append(free)
                break
    return tuple(found)


def _sum_relations(inputs: Sequence[Value], outputs: Sequence[Value]) -> Iterable[Relation]:
    """Dims that are sums of others by name, or that may equal an output of such a size."""
    dims = list(dict.fromkeys(d for v in inputs for d in v.shape or () if isinstance(d, str)))
    leading = leading_dims(inputs)
    found: dict[tuple[str, tuple[str, ...]], Relation] = {}
    for value in (*inputs, *outputs):
        for name in value.shape or ():
            if not isinstance(name, str) or not _SUM.fullmatch(name):
                continue
            terms = tuple(sorted(part.strip() for part in name.split("+")))
            if not set(terms) <= set(dims):
                continue
            # Any other dim but a batch may have to equal an output of that size.
            others = [d for d in dims if d not in terms and d not in leading]
            wanted = [name] if name in dims else others
            for dim in wanted:
                found.setdefault((dim, terms), Relation(dim=dim, terms=terms))
    for total, past in _grown_dims(inputs, outputs):
        for other in dims:
            if other not in (total, past) and other not in leading:
                terms = tuple(sorted((past, other)))
                found.setdefault((total, terms), Relation(dim=total, terms=terms))
    return found.values()


def _grown_dims(inputs: Sequence[Value], outputs: Sequence[Value]) -> Iterable[tuple[str, str]]:
    """Dims of inputs, each with the dim that it may have grown from.

    A cache enters with one dim and leaves with another, which counts everything then in it.
    """
    dims = {dim for value in inputs for dim in value.shape or () if isinstance(dim, str)}
    for given, output in itertools.product(inputs, outputs):
        before, after = given.shape or (), output.shape or ()
        if len(before) != len(after) or given.dtype != output.dtype or len(before) < 3:
            continue
        changed = [(new, old) for new, old in zip(after, before, strict=True) if new != old]
        if len(changed) == 1:
            total, past = changed[0]
            if isinstance(total, str) and isinstance(past, str) and dims >= {total, past}:
                yield total, past


def _output_sizes(outputs: Sequence[Value]) -> tuple[int, ...]:
    """Fixed sizes of outputs, and two and four times those: strides of 2 are common."""
    fixed = dict.fromkeys(
        size for value in outputs for size in value.shape or () if isinstance(size, int)
    )
    return tuple(
        dict.fromkeys(size * times for size in fixed for times in (1, 2, 4) if 4 < size < 4096)
    )


def _labels(inputs: Sequence[Value]) -> dict[str, str]:
    """By dim: the fixed sizes of the input in which it occurs first, and its axis there."""
    labels: dict[str, str] = {}
    for value in inputs:
        shape = value.shape or ()
        form = ",".join(str(d) if isinstance(d, int) else "?" for d in shape)
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                labels.setdefault(dim, f"{value.dtype}[{form}].{axis}")
    return labels


def _concatenated_dims(inputs: Sequence[Value], graph: onnx.GraphProto) -> frozenset[str]:
    """Dims along which an input is concatenated with something, so that size 0 makes sense.

    The past of attention is, for example: an input of Concat, or of an operator that has one.
    """
    shapes = {v.name: v.shape for v in inputs if v.kind == "tensor" and v.shape}
    concatenated = {
        (name, axis % len(shapes[name])) for name, axis in _concatenated_axes(shapes, graph.node)
    }
    return frozenset(
        dim for name, axis in concatenated if isinstance(dim := shapes[name][axis], str)
    )


def _concatenated_axes(
    names: Iterable[str], nodes: Iterable[onnx.NodeProto]
) -> Iterable[tuple[str, int]]:
    """Inputs among `names`, each with an axis along which it is concatenated."""
    # By value that is still an input unchanged: the input.
    same = {name: name for name in names}
    for node in nodes:
        for index, given in enumerate(node.input):
            if given not in same:
                continue
            if node.op_type in _PASS_THROUGH:
                same[node.output[0]] = same[given]
            elif node.op_type == "Concat" and len(node.input) > 1:
                yield same[given], next((a.i for a in node.attribute if a.name == "axis"), 0)
            elif (node.op_type, index) in _PAST_AXES:
                yield same[given], _PAST_AXES[node.op_type, index]
