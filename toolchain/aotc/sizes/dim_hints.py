"""Hints on a model's free dims: from its declaration and weights, and sizes that are common."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aotc.base.records import field, record
from aotc.graph.view import attribute_of
from aotc.spec.payload import Value
from aotc.spec.shapes import Dim, DimRange, Relation

if TYPE_CHECKING:
    import onnx

Kind = Literal["batch", "image", "map", "audio", "length"]
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
# The output has the shape of the first input, or that of both inputs broadcast.
_KEEPS_SHAPE: Final = frozenset(
    ("Identity", "Cast", "QuantizeLinear", "DequantizeLinear", "Clip", "Add", "Sub", "Mul", "Div")
)
_CONVOLUTIONS: Final = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
_RECURRENT: Final = frozenset(("RNN", "GRU", "LSTM"))
Axes = tuple[int, ...]
"""Axes of an input, in the order in which they occur in a value computed from it."""
# 64 first: smaller sizes may run by accident, as five halvings make them 1, which broadcasts.
_FIRST: Final = (64, 32, 16, 8, 4, 3)
_SIZES: Final = (
    *(*_FIRST, 2, 5, 6, 7, 10, 12, 24, 28, 48, 80, 96, 100, 112, 128, 160, 192, 224, 256, 288),
    *(299, 320, 384, 400, 416, 448, 480, 512, 576, 600, 640, 720, 736, 768, 800, 1024),
)
# With three entries, one more or one fewer cannot be broadcast.
_BATCH: Final = 3
_OTHER_BATCHES: Final = (2, 1)
# How many sums from names are tried with a term of 1.
_MAX_DECODING_SUMS: Final = 4
_PAIR_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 224, 256, 512)
_MAX_SUGGESTED_SIZE: Final = 8192
# How many sums of two dims are tried: many dims have more of them than there are runs.
_MAX_DIM_SUMS: Final = 1000
_MISMATCH: Final = re.compile(r"(\d{1,6}) (?:by|vs|and|!=) (\d{1,6})")
IMAGES: Final = (224, 256, 320, 384, 416, 448, 512, 640, 720, 736, 1024)
# Seconds of sound at 16 kHz: one, three, five, ten, half a minute.
_SOUNDS: Final = (16000, 48000, 80000, 160000, 480000)
# Maximums that dims should reach, one stage after the other, before any grows further: first what
# most callers have, then what many have, and entries of a batch last, as they multiply the cost.
STAGES: Final[Sequence[Mapping[Kind, int]]] = (
    {"image": 224, "map": 64, "audio": 16000, "length": 128},
    {"image": 640, "map": 128, "audio": 160000, "length": 512},
    {"image": 1024},
    {"batch": 8},
)
# What is multiplied by all other sizes grows no further than this.
_MOST: Final[Mapping[Kind, int]] = {"batch": 1024, "image": 4096, "map": 4096}
# Sizes that a range is optimized for; one that is not cheap takes the first.
_OPTIMAL_SIZES: Final[Mapping[Kind, int]] = {
    "batch": 1, "image": 224, "map": 64, "audio": 16000, "length": 128,
}  # fmt: skip
_OPTIMAL_IMAGE: Final = 640
_POWERS: Final = tuple(2**power for power in range(31))
# Names of inputs that hold sound, and of images whose fourth channel is no latent one.
_SOUND: Final = re.compile(r"audio|wave?form|wav\b|pcm|speech|sound", re.IGNORECASE)
_PIXELS: Final = re.compile(r"image|pixel|rgb|picture|frame", re.IGNORECASE)
_MIN_SOUND_KERNEL: Final = 8
_COLORS: Final = (1, 3)


# Names and declared shapes come from the exporter. They say what to try first, never what is true.


@record(kw_only=False)
class DimHints:
    """Hints on the free dims of a model's inputs.

    `leading` are dims that occur at axis 0 only (batches); `images` the height and width of image
    inputs, of which `maps` have other channels than colors; `sounds` the samples of raw audio;
    `caches` lengths that grow from call to call; `dense` whether outputs have free dims beside the
    batch; `sums` dims that by name are sums of others; `sizes` fixed sizes of declared outputs;
    `known` sizes that weights require; `labels` what similar dims have in common, such as the past
    of all layers; `grids` the multiples that the profile states.
    """

    leading: frozenset[str] = frozenset()
    images: tuple[tuple[str, ...], ...] = ()
    maps: frozenset[str] = frozenset()
    sounds: frozenset[str] = frozenset()
    caches: frozenset[str] = frozenset()
    dense: bool = False
    sums: tuple[Relation, ...] = ()
    sizes: tuple[int, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, int] = field(default_factory=dict)

    def kind(self, dim: str) -> Kind:
        """What `dim` counts: entries of a batch, pixels, places of a map, samples, or a length."""
        if dim in self.leading:
            return "batch"
        if any(dim in group for group in self.images):
            return "map" if dim in self.maps else "image"
        return "audio" if dim in self.sounds else "length"

    def similar_to(self, dim: str, others: Iterable[str]) -> list[str]:
        """Those of `others` that have the same label as `dim`."""
        return [other for other in others if self._label(other) == self._label(dim)]

    def _label(self, dim: str) -> str:
        return self.labels.get(dim) or re.sub(r"\d+", "#", dim)


def hints_on(
    inputs: Sequence[Value], outputs: Sequence[Value], graph: Path | None = None
) -> DimHints:
    """Hints from the declared `inputs` and `outputs`, and from the nodes of the file `graph`."""
    known: Mapping[str, int] = {}
    concatenated: frozenset[str] = frozenset()
    sounds: frozenset[str] = frozenset()
    if graph is not None:
        import onnx

        read = onnx.load(graph, load_external_data=False).graph
        known, concatenated = known_sizes(inputs, read), _concatenated_dims(inputs, read)
        sounds = _sound_dims(inputs, read)
    leading = leading_dims(inputs) - known.keys()
    images = _image_dims(inputs, known, concatenated)
    free = {dim for value in outputs for dim in value.shape or () if isinstance(dim, str)}
    return DimHints(
        leading=leading,
        images=images,
        maps=_map_dims(inputs, known, images),
        sounds=sounds,
        caches=concatenated - leading,
        dense=bool(free - leading),
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


def _map_dims(
    inputs: Sequence[Value], known: Mapping[str, int], images: Collection[tuple[str, ...]]
) -> frozenset[str]:
    """Those of `images` that have no colors: latents and features, which are smaller."""
    sides = {dim for group in images for dim in group}
    found: set[str] = set()
    for value in inputs:
        shape = [known.get(d, d) if isinstance(d, str) else d for d in value.shape or ()]
        channels = [size for size in shape[1:] if isinstance(size, int)]
        colored = any(size in _COLORS for size in channels) or _PIXELS.search(value.name)
        found |= set() if colored else sides.intersection(d for d in shape if isinstance(d, str))
    return frozenset(found)


def _sound_dims(inputs: Sequence[Value], graph: onnx.GraphProto) -> frozenset[str]:
    """The last dim of inputs that hold raw audio: by their name, or as a wide kernel reads them.

    Such a kernel has one input channel: it slides over single samples.
    """
    kernels = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    heard = {
        kernels[node.input[1]][2] >= _MIN_SOUND_KERNEL
        for node in graph.node
        if node.op_type == "Conv" and len(node.input) > 1
        if len(kernels.get(node.input[1], ())) == 3 and kernels[node.input[1]][1] == 1
    }
    heard |= {node.op_type == "STFT" for node in graph.node}
    found = set()
    for value in inputs:
        *first, last = value.shape or (0,)
        single = all(size == 1 for size in first[1:]) and len(first) < 3 and "float" in value.dtype
        if isinstance(last, str) and single and (True in heard or _SOUND.search(value.name)):
            found.add(last)
    return frozenset(found)


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
    """Dims along which an input is concatenated with something, as the past of attention is.

    It is an input of Concat, or of an operator that has one.
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
                yield same[given], attribute_of(node, "axis", 0)
            elif (node.op_type, index) in _PAST_AXES:
                yield same[given], _PAST_AXES[node.op_type, index]


# Sizes of free dims that weights determine: channels of images, features of rows.
#
# Exporters leave dims free that the first operator fixes to one size. The sizes found here are
# tried first, and runs decide.


def known_sizes(inputs: Sequence[Value], graph: onnx.GraphProto) -> dict[str, int]:
    """By dim: the size that constant weights in `graph` require of it.

    Found for convolutions (channels), matrix products (features) and recurrent layers, also behind
    operators that keep an input's shape or transpose it.
    """
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in weights:
            weights[node.output[0]] = weights[node.input[0]]
    found: dict[str, int] = {}
    for value in inputs:
        if value.kind != "tensor" or not value.shape:
            continue
        for axis, size in _fixed_axes(value.name, len(value.shape), graph.node, weights):
            dim = value.shape[axis]
            if isinstance(dim, str) and size > 0:
                found.setdefault(dim, size)
    return found


def _fixed_axes(
    name: str, rank: int, nodes: Sequence[onnx.NodeProto], weights: Mapping[str, Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Axes of the input `name`, each with the size that `weights` require."""
    axes_by_value: dict[str, Axes] = {name: tuple(range(rank))}
    for node in nodes:
        source = node.input[0] if node.input else ""
        axes = axes_by_value.get(source)
        if axes is None:
            continue
        if node.op_type in _KEEPS_SHAPE:
            axes_by_value[node.output[0]] = axes
        elif node.op_type == "Transpose":
            order = attribute_of(node, "perm", list(range(rank))[::-1])
            if sorted(order) == list(range(rank)):
                axes_by_value[node.output[0]] = tuple(axes[position] for position in order)
        else:
            required = _required_size(node, rank, weights)
            if required is not None:
                yield axes[required[0]], required[1]


def _required_size(
    node: onnx.NodeProto, rank: int, weights: Mapping[str, Sequence[int]]
) -> tuple[int, int] | None:
    """The axis of a node's first input that its weights fix, and its size."""
    numbers = {a.name: a.i for a in node.attribute}

    def shape(position: int) -> Sequence[int]:
        return weights.get(node.input[position], ()) if len(node.input) > position else ()

    if node.op_type in _CONVOLUTIONS and rank > 2:
        kernel = shape(_CONVOLUTIONS[node.op_type])
        return (1, kernel[1] * numbers.get("group", 1)) if len(kernel) == rank else None
    if node.op_type in ("MatMul", "MatMulInteger"):
        matrix = shape(1)
        return (rank - 1, matrix[-2]) if len(matrix) > 1 else None
    if node.op_type == "Gemm" and rank == 2:
        matrix = shape(1)
        size = matrix[1 if numbers.get("transB") else 0] if len(matrix) == 2 else 0
        return (0 if numbers.get("transA") else 1, size) if size else None
    if node.op_type in _RECURRENT and rank == 3:
        gates = shape(1)
        return (2, gates[2]) if len(gates) == 3 else None
    return None


# Sizes at which an unknown model may run, likeliest first.


def candidates(
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> Iterator[dict[str, int]]:
    """Combinations of sizes of `dims`, likeliest first.

    A dim whose name is a number, or whose size weights require, has that size before others.

    In order: `seeds` (sizes known to make sense); sizes on stated grids; one inner dim as the sum
    of two others, as names suggest; one size for all inner dims with a batch of 3; one size for
    images and another for lengths; any inner dim as the sum of two others; other common sizes; one
    dim, then two, that differ from the rest.  Stated dims first keep their optimal size; then all
    have one size, as they may have to be equal, or all are at one end of their range.
    """
    known = {dim: int(dim) for dim in dims if _is_size(dim)} | dict(hints.known)
    known = {dim: size for dim, size in known.items() if dim in dims and dim not in stated}
    if known:
        yield from _combinations(dims, hints, stated, seeds, known)
    yield from _combinations(dims, hints, stated, seeds, {})


def _combinations(
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
    known: Mapping[str, int],
) -> Iterator[dict[str, int]]:
    fixed = {dim: spec.optimal() for dim, spec in stated.items()} | dict(known)
    free = [dim for dim in dims if dim not in fixed]
    for seed in seeds:
        yield {dim: seed.get(dim, fixed.get(dim, 1)) for dim in dims}
    rows = next((fixed[dim] for dim in stated if dim in hints.leading), _BATCH)
    batches = {dim: rows for dim in free if dim in hints.leading}
    inner = [dim for dim in free if dim not in batches]
    for size in _FIRST if any(dim in hints.grids for dim in free) else ():
        # All equal, as dims may have to be.
        alike = dict.fromkeys(inner, _rounded_up(size, inner, hints))
        yield alike | dict.fromkeys(batches, _rounded_up(_BATCH, batches, hints)) | fixed
    for count in (batches, dict.fromkeys(batches, 1)) if batches else ({},):
        yield from _sum_sizes(hints.sums, free, count, fixed)
    yield from _decoding_sizes(hints.sums, free, batches, fixed)
    alike = {dim: fixed[similar[0]] for dim in inner if (similar := hints.similar_to(dim, stated))}
    for size in _FIRST if alike else ():
        yield dict.fromkeys(free, size) | batches | alike | fixed
    for size, common in itertools.product(_FIRST, _common_sizes(stated)):
        yield dict.fromkeys(free, size) | batches | fixed | common
    pixels = {dim for group in hints.images for dim in group}.intersection(inner)
    for size in _SIZES if 0 < len(pixels) < len(inner) else ():
        yield dict.fromkeys(free, 16) | dict.fromkeys(pixels, size) | batches | fixed
    for grouped in (True, False):
        groups = _groups(inner, hints) if grouped else [[dim] for dim in inner]
        triples = itertools.permutations(range(len(groups)), 3)
        for total, one, other in itertools.islice(triples, _MAX_DIM_SUMS):
            if one < other:
                sizes = {**dict.fromkeys(groups[one], 3), **dict.fromkeys(groups[other], 5)}
                sizes |= dict.fromkeys(groups[total], 8)
                yield dict.fromkeys(free, 8) | sizes | batches | fixed
    for size, end in itertools.product(_FIRST[:2], _range_ends(stated) if stated else ()):
        yield dict.fromkeys(free, size) | batches | fixed | end
    for size in (*_SIZES, *hints.sizes, 1):
        for batch in _OTHER_BATCHES if batches else ():
            yield dict.fromkeys(free, size) | dict.fromkeys(batches, batch) | fixed
        yield dict.fromkeys(free, size) | batches | fixed
    for size, common in itertools.product(_SIZES, list(_common_sizes(stated))[1:]):
        yield dict.fromkeys(free, size) | batches | fixed | common
    for dim, size in itertools.product(free, (2, 4, *_SIZES)):
        yield dict.fromkeys(free, 1) | {dim: size} | fixed
    for first, second in itertools.combinations(free, 2):
        for small, large in itertools.product(_PAIR_SIZES, repeat=2):
            yield dict.fromkeys(free, 1) | {first: small, second: large} | fixed


def _rounded_up(size: int, dims: Iterable[str], hints: DimHints) -> int:
    """The smallest common multiple of the grids of `dims` that is at least `size`."""
    step = math.lcm(*(hints.grids.get(dim, 1) for dim in dims))
    return -(-size // step) * step


def _is_size(name: str) -> bool:
    """Whether a dim's name is a size: some exporters write fixed sizes as names."""
    known = name.isascii() and name.isdecimal() and len(name) <= len(str(_MAX_SUGGESTED_SIZE))
    return known and 0 < int(name) <= _MAX_SUGGESTED_SIZE


def suggested_sizes(error: str, size: int) -> Iterator[int]:
    """Sizes for all inner dims that the error of a failure at `size` suggests.

    ONNX Runtime names the two sizes that do not match, such as "32 by 1500".  If `size` led to 32,
    then a size larger by the same factor leads to 1500.
    """
    for one, other in _MISMATCH.findall(error):
        for have, want in ((int(one), int(other)), (int(other), int(one))):
            if 1 < have <= size and want > 1 and size * want % have == 0:
                found = size * want // have
                if found != size and found <= _MAX_SUGGESTED_SIZE:
                    yield found


def mismatched_with(error: str, size: int) -> Iterator[int]:
    """Sizes that, by the error, do not match `size`."""
    for one, other in _MISMATCH.findall(error):
        for have, want in ((int(one), int(other)), (int(other), int(one))):
            if have == size and 1 < want <= _MAX_SUGGESTED_SIZE and want != size:
                yield want


def _groups(dims: Sequence[str], hints: DimHints) -> list[list[str]]:
    """Dims that are likely to be equal: of floats, those with one label, as all layers' past."""
    groups: dict[str, list[str]] = {}
    for dim in dims:
        label = hints.labels.get(dim, dim)
        groups.setdefault(label if "float" in label else dim, []).append(dim)
    return list(groups.values())


def _sum_sizes(
    sums: Sequence[Relation],
    free: Sequence[str],
    batches: dict[str, int],
    fixed: dict[str, int],
) -> Iterator[dict[str, int]]:
    """Sizes at which one dim or all dims are the sums that their names suggest."""
    known = [relation for relation in sums if relation.dim in free]
    groups = [[relation] for relation in known]
    if len({relation.dim for relation in known}) == len(known) > 1:
        groups.insert(0, known)
    for group, size in itertools.product(groups, _FIRST[2:4]):
        sizes = dict.fromkeys(free, size) | batches | fixed
        for position, term in enumerate(
            dict.fromkeys(t for relation in group for t in relation.terms)
        ):
            if term in free and term not in batches:
                sizes[term] = size + position
        if all(sizes.keys() >= set(relation.terms) for relation in group):
            yield sizes | {relation.dim: relation.value(sizes) for relation in group}


def _decoding_sizes(
    sums: Sequence[Relation],
    free: Sequence[str],
    batches: dict[str, int],
    fixed: dict[str, int],
) -> Iterator[dict[str, int]]:
    """Sizes at which a dim is such a sum with one term of 1: one token that follows a past."""
    for relation in [relation for relation in sums if relation.dim in free][:_MAX_DECODING_SUMS]:
        for one in dict.fromkeys(term for term in relation.terms if term in free):
            sizes = dict.fromkeys(free, _FIRST[3]) | batches | fixed | {one: 1}
            if sizes.keys() >= set(relation.terms):
                yield sizes | {relation.dim: relation.value(sizes)}


def _range_ends(stated: Mapping[str, DimRange]) -> Iterator[dict[str, int]]:
    """All stated dims at their minimum, then all at their maximum."""
    for end in (0, 1):
        yield {dim: spec.compiled_bounds()[end] for dim, spec in stated.items()}


def _common_sizes(stated: Mapping[str, DimRange]) -> Iterator[dict[str, int]]:
    """Sizes of the stated dims: the optimal ones; then equal ones, as they may have to be."""
    yield {dim: spec.optimal() for dim, spec in stated.items()}
    if sum(not spec.is_fixed() for spec in stated.values()) > 1:
        bounds = {dim: spec.compiled_bounds() for dim, spec in stated.items()}
        free = [bounds[dim] for dim, spec in stated.items() if not spec.is_fixed()]
        shared = max(low for low, _ in free), min(high for _, high in free)
        for size in dict.fromkeys(shared):
            yield {dim: min(max(size, low), high) for dim, (low, high) in bounds.items()}


# Sizes that users commonly choose, for ranges that are not stated.


def rungs_of(kind: Kind, low: int, high: int, step: int) -> tuple[int, ...]:
    """Candidates for the maximum of a range, ascending: multiples of `step` within `low..high`.

    Powers of two, the targets, and for images and sounds the usual sizes.
    """
    usual = {"image": IMAGES, "map": IMAGES, "audio": _SOUNDS}.get(kind, ())
    targets = (stage[kind] for stage in STAGES if kind in stage)
    wanted = {*_POWERS, *targets, high, *usual}
    snapped = {size // step * step for size in wanted}
    return tuple(sorted({low, *(size for size in snapped if low <= size <= high)}))


def usual_maximums() -> Iterator[dict[Kind, int]]:
    """Usual maximums by kind, then parts of those of all that is no batch."""
    largest = {kind: size for stage in STAGES for kind, size in stage.items()}
    for part in (1, 2, 4, 8, 16, 32):
        yield {kind: size if kind == "batch" else size // part for kind, size in largest.items()}


def largest_tried(kind: Kind, limit: int) -> int:
    """The largest size of a dim of that kind that is tried, if the profile allows `limit`."""
    return min(limit, _MOST.get(kind, limit))


def sizes_beyond(
    size: int, high: int, step: int, declared_sizes: Sequence[int] = ()
) -> tuple[int, ...]:
    """Sizes above `size` at which a model may run again, at most `high`, multiples of `step`.

    The next multiples of 8, 16, 32 and 64, the usual sizes of images, and `declared_sizes`.
    """
    near = {(size // grid + times) * grid for grid in (8, 16, 32, 64) for times in (1, 2)}
    return tuple(
        sorted(s for s in {*near, *IMAGES, *declared_sizes} if size < s <= high and s % step == 0)
    )


def optimum(kind: Kind, dim: Dim, fallback: int, *, large: bool = False) -> int:
    """The size that a probed range is optimized for: a usual one, on its grid, outside its gaps.

    `fallback` is a size within the range, for a range above the usual sizes.  `large` asks for
    images as detectors have them.
    """
    wanted, step = _OPTIMAL_SIZES[kind], dim.multiple_of
    if large and kind == "image":
        fitting = [size for size in IMAGES if size <= _OPTIMAL_IMAGE and size % step == 0]
        wanted = max((size for size in fitting if dim.min <= size <= dim.max), default=wanted)
    if wanted < dim.min:
        return fallback
    size = min(dim.max, max(dim.min, wanted // step * step))
    if kind == "image" and dim.max < wanted:
        # Patches and strides round down: the intended size is a round number.
        fits = [power for power in _POWERS if dim.min <= dim.max // power * power > 0]
        round_size = dim.max // fits[-1] * fits[-1] if fits else size
        size = round_size if round_size % step == 0 else size
    if size == 0:
        # There is nothing to optimize for size 0.
        size = min(step, dim.max)
    if size in dim.gaps:
        size = min(dim.tested, key=lambda tested: (abs(tested - size), tested))
    return size
