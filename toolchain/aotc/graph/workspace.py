"""What kernels of the CPU provider ask the arena for, beside their outputs: at load and in a run.

At load they pack constant weights, which stays.

In a run they need room for what they transpose, unfold or multiply in pieces, and give it back.
ONNX Runtime says nothing of either ahead; the formulas were found by running each operator alone,
with ONNX Runtime 1.31 and 1.32, and reading how far the arena's peak was above its bytes in use at
the end.  Operators that are not here ask for nothing, or for a few kilobytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aotc.base.records import field, record
from aotc.graph.view import attribute_of, op_of

if TYPE_CHECKING:
    import onnx

    from aotc.graph.arena import Arena

Sizes = Sequence[int]

_FLOAT: Final = 4
_POINTER: Final = 8
# What a thread of a convolution unfolds at once.
_UNFOLDED: Final = 64 << 10
# A block of keys and values, which follows from the size of the second-level cache.
_FLASH: Final = 256 << 10
_NOTHING: Final = (0,)


class Integers(NamedTuple):
    """A constant of integers: whether they have a sign, and whether all are 0."""

    signed: bool
    zero: bool


@record(kw_only=False)
class Call:
    """A node at sizes: the shapes of its inputs and outputs (empty: absent, or a scalar).

    `widths` are the bytes of an element of each output, `input_widths` of each input.  `integers`
    are constants of 8 bits by name.
    """

    node: onnx.NodeProto
    inputs: Sequence[Sizes]
    outputs: Sequence[Sizes]
    widths: Sequence[int]
    input_widths: Sequence[int]
    threads: int
    integers: Mapping[str, Integers] = field(default_factory=dict)

    def has(self, index: int) -> bool:
        """Whether the node is given an input `index`."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def shape(self, index: int) -> Sizes:
        """The shape of an input; empty if it is absent."""
        return self.inputs[index] if self.has(index) and index < len(self.inputs) else ()

    def output(self, width: int = 0) -> int:
        """Bytes of the first output, of elements as wide as they are or of `width`."""
        return math.prod(self.outputs[0]) * (width or self.widths[0])


_QUANTIZED: Final = frozenset({"QLinearConv", "com.microsoft::QLinearConv"})
_TURNED: Final = frozenset({"com.microsoft::QGemm"})
_PACKED: Final[Mapping[str, tuple[int, ...]]] = {
    "ConvTranspose": (1,),
    "GRU": (1, 2),
    "Gemm": (1,),
    "LSTM": (1, 2),
    "MatMul": (1,),
    "MatMulInteger": (1,),
    "QLinearConv": (3,),
    "QLinearMatMul": (3,),
    "com.microsoft::Attention": (1,),
    "com.microsoft::DynamicQuantizeMatMul": (1,),
    "com.microsoft::FusedGemm": (1,),
    "com.microsoft::FusedMatMul": (1,),
    "com.microsoft::MatMulIntegerToFloat": (1,),
    "com.microsoft::MatMulNBits": (1, 2),
    "com.microsoft::QAttention": (1,),
    "com.microsoft::QGemm": (3,),
    "com.microsoft::QLinearConv": (3,),
}


def workspace(call: Call) -> tuple[int, ...]:
    """Bytes of each piece that a kernel asks for while it runs, all at once."""
    formula = _FORMULAS.get(op_of(call.node))
    return () if formula is None else tuple(size for size in formula(call) if size > 0)


def packed_weights(call: Call, constants: Collection[str]) -> int:
    """Bytes of the packed copies that a kernel keeps of its constant weights."""
    total = 0
    for index in _PACKED.get(op_of(call.node), ()):
        if call.has(index) and call.node.input[index] in constants:
            total += math.prod(call.shape(index)) * call.input_widths[index]
    return total


def pack(call: Call, constants: Collection[str], arena: Arena) -> None:
    """Let a kernel pack its weights at load, as far as it does so in chunks of the arena.

    Other packed weights stand beside it, but they may be turned in a chunk first.
    """
    packed, op = packed_weights(call, constants), op_of(call.node)
    if packed and (op == "ConvTranspose" or (op in _QUANTIZED and _is_direct(call))):
        arena.allocate(packed)
    elif packed and op in _TURNED and attribute_of(call.node, "transB", 0):
        arena.release(arena.allocate(packed))


def _as_output(call: Call) -> tuple[int, ...]:
    return (call.output(),)


def _biased(call: Call) -> tuple[int, ...]:
    return (call.output(),) if call.has(1) else _NOTHING


def _twice(call: Call) -> tuple[int, ...]:
    return call.output(), call.output()


def _softmax(call: Call) -> tuple[int, ...]:
    """Values are transposed, and the answer back, unless the axis is the last."""
    rank = len(call.shape(0))
    axis = attribute_of(call.node, "axis", -1)
    return _NOTHING if axis in (-1, rank - 1) else _twice(call)


def _convolution(call: Call) -> tuple[int, ...]:
    """Windows are unfolded: in pieces by thread, or as a whole where filters outnumber places."""
    weight, places = call.shape(1), math.prod(call.outputs[0][2:])
    if len(weight) < 3 or _is_pointwise(call.node, weight):
        return _NOTHING
    group = attribute_of(call.node, "group", 1)
    if weight[0] // max(group, 1) > places:
        return (math.prod(weight[1:]) * places * _FLOAT,)
    return (_UNFOLDED * call.threads,)


def _is_pointwise(node: onnx.NodeProto, weight: Sizes) -> bool:
    steps: Sequence[int] = attribute_of(node, "strides", [1])
    pads: Sequence[int] = attribute_of(node, "pads", [0])
    return all(size == 1 for size in (*weight[2:], *steps)) and not any(pads)


def _transposed_convolution(call: Call) -> tuple[int, ...]:
    return (math.prod(call.shape(1)[1:]) * math.prod(call.shape(0)[2:]) * _FLOAT,)


def _quantized_convolution(call: Call) -> tuple[int, ...]:
    """Pointers to what windows of all images read; else sums of an image in 32 bits, unfolded.

    The latter has pointers as well, where each channel is for itself.
    """
    weight, image = call.shape(3), call.outputs[0]
    last = attribute_of(call.node, "channels_last", 0)
    if len(weight) < 3 or len(image) < 3:
        return _NOTHING
    places = math.prod(image[1:-1] if last else image[2:])
    pointers = 0 if _is_pointwise(call.node, weight) else places * math.prod(weight[2:]) * _POINTER
    # Other layouts are turned into this one, and back.
    turned = () if last else (math.prod(call.shape(0)[1:]), math.prod(image[1:]))
    if _is_direct(call):
        return (*turned, pointers * (image[0] if last else 1))
    unfolded = pointers if _is_depthwise(call) else pointers // _POINTER * weight[1]
    return (*turned, unfolded, places * weight[0] * _FLOAT)


def _is_depthwise(call: Call) -> bool:
    weight, group = call.shape(3), attribute_of(call.node, "group", 1)
    return group > 1 and weight[0] == group and weight[1] == 1


def _is_direct(call: Call) -> bool:
    """Whether a quantized convolution computes without sums in 32 bits beside its output.

    On x86-64 those of unsigned inputs do, with signed weights about 0: from 16 output channels on
    if input channels come in fours; or in sixteens, where each is for itself.
    """
    weight, (_, _, zero, weights, _, middle, *_) = call.shape(3), call.node.input
    data, kernel, about = (call.integers.get(name) for name in (zero, weights, middle))
    if data is None or kernel is None or about is None:
        return False
    if data.signed or not kernel.signed or not about.zero:
        return False
    if _is_depthwise(call):
        return weight[0] % 16 == 0
    group = attribute_of(call.node, "group", 1)
    return group == 1 and weight[1] % 4 == 0 and weight[0] >= 16


def _recurrent(gates: int, states: float) -> Callable[[Call], tuple[int, ...]]:
    """Products of all steps for each gate and direction; what is turned for the second."""

    def formula(call: Call) -> tuple[int, ...]:
        x, weight = call.shape(0), call.shape(2)
        if len(x) < 3 or len(weight) < 3:
            return _NOTHING
        directions, hidden, rows = weight[0], weight[2], x[0] * x[1]
        each = (gates * rows * hidden + int(states * x[1] * hidden)) * _FLOAT
        turned = (directions - 1) * rows * (x[2] + hidden) * _FLOAT
        if gates == 1:
            return (each,)
        return (*[each] * directions, turned)

    return formula


def _attention(call: Call) -> tuple[int, ...]:
    """`com.microsoft::Attention`: queries, keys and values; scores; their product."""
    x, weight = call.shape(0), call.shape(1)
    if len(x) != 3:
        return _NOTHING
    heads: int = attribute_of(call.node, "num_heads", 1)
    batch, rows = x[0], x[1]
    past = call.shape(4)
    keys = rows + (past[3] if len(past) == 5 else 0)
    wide = weight[-1] if len(weight) == 2 else 3 * x[2]
    scores = batch * heads * rows * keys * _FLOAT
    mask = batch * keys * _FLOAT if call.has(3) else 0
    return batch * rows * wide * _FLOAT, mask, scores, call.output()


def _multi_head(call: Call) -> tuple[int, ...]:
    """`com.microsoft::MultiHeadAttention`: by blocks, unless there is a mask or a bias."""
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    if len(query) != 3 or len(key) != 3:
        return _NOTHING
    heads: int = attribute_of(call.node, "num_heads", 1)
    past = call.shape(6)
    keys = key[1] + (past[2] if len(past) == 4 else 0)
    turned = tuple(math.prod(each) * _FLOAT for each in (query, key, value))
    if not any(call.has(index) for index in (4, 5, 6)):
        return (*turned, _FLASH * call.threads)
    scores = query[0] * heads * query[1] * keys * _FLOAT
    return (*turned, scores, call.output())


def _standard_attention(call: Call) -> tuple[int, ...]:
    """ONNX's own: the scores."""
    query, key, past = call.shape(0), call.shape(1), call.shape(4)
    if len(query) == 3:
        heads, rows, keys = attribute_of(call.node, "q_num_heads", 1), query[1], key[1]
    elif len(query) == 4:
        heads, rows, keys = query[1], query[2], key[2]
    else:
        return _NOTHING
    keys += past[2] if len(past) == 4 else 0
    return (query[0] * heads * rows * keys * call.widths[0],)


def _grouped_query(call: Call) -> tuple[int, ...]:
    """`com.microsoft::GroupQueryAttention`: scores over the whole cache, and turned queries."""
    query = call.shape(0)
    if len(query) != 3 or len(call.outputs) < 2 or len(call.outputs[1]) != 4:
        return _NOTHING
    heads: int = attribute_of(call.node, "num_heads", 1)
    scores = query[0] * heads * query[1] * call.outputs[1][2] * _FLOAT
    return scores, math.prod(query) * _FLOAT


def _einsum(call: Call) -> tuple[int, ...]:
    first = math.prod(call.shape(0)) * call.widths[0]
    return call.output(), call.output(), first


def _quantized_rows(call: Call) -> tuple[int, ...]:
    return (math.prod(call.shape(0)),)


def _blocks_of_bits(call: Call) -> tuple[int, ...]:
    """`com.microsoft::MatMulNBits`: rows in 8 bits, with scales, at accuracy level 4."""
    if attribute_of(call.node, "accuracy_level", 0) != 4:
        return _NOTHING
    block: int = attribute_of(call.node, "block_size", 32)
    elements = math.prod(call.shape(0))
    return (elements + elements // block * 8,)


def _sums(call: Call) -> tuple[int, ...]:
    return (call.output(4),)


_FORMULAS: Final[Mapping[str, Callable[[Call], tuple[int, ...]]]] = {
    "Attention": _standard_attention,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Einsum": _einsum,
    "GRU": _recurrent(3, 5.0),
    "LSTM": _recurrent(4, 3.5),
    "LogSoftmax": _softmax,
    "MeanVarianceNormalization": _twice,
    "QLinearConv": _quantized_convolution,
    "QLinearMatMul": _sums,
    "RNN": _recurrent(1, 0),
    "Softmax": _softmax,
    "Where": _twice,
    "com.microsoft::Attention": _attention,
    "com.microsoft::BiasGelu": _as_output,
    "com.microsoft::DynamicQuantizeMatMul": _quantized_rows,
    "com.microsoft::FastGelu": _biased,
    "com.microsoft::FusedConv": _convolution,
    "com.microsoft::GroupQueryAttention": _grouped_query,
    "com.microsoft::MatMulNBits": _blocks_of_bits,
    "com.microsoft::MultiHeadAttention": _multi_head,
    "com.microsoft::QGemm": _sums,
    "com.microsoft::QLinearConv": _quantized_convolution,
}
