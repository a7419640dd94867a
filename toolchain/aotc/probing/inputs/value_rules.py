"""Hints for inputs that are indices, lengths, divisors, scales or ratios.

A rule takes one use of a value and returns a hint (see `generated_fixtures`), or None if it cannot
tell.  Rules follow the operators' specifications: ONNX's, and ONNX Runtime's for `com.microsoft`.
Rules on shapes and axes are in `shape_rules` and `image_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aotc.contract.codec.parsing import Json
from aotc.probing.inputs.extents import Extent, Shape, difference, minimum, product, total
from aotc.probing.inputs.value_flow import Use, size_at

Hint = dict[str, Json]
Rule = Callable[[Use], Hint | None]

# Number of elements of generated sequences.
SEQUENCE_LENGTH: Final = 2
# Enough iterations to show what a loop does.
_MAX_STEPS: Final = 3


def index_below(high: Extent | None, low: int = 0) -> Hint | None:
    """Integers from `low` up to but excluding `high`; None if `high` is unknown."""
    if high is None:
        return None
    return {"kind": "index", "high": high} | ({"low": low} if low else {})


def full(value: Extent | None) -> Hint | None:
    """`value` everywhere; None if it is unknown."""
    return None if value is None else {"kind": "full", "value": value}


def vector(values: Sequence[Extent | None]) -> Hint | None:
    """These elements, in order; None if one is unknown."""
    if any(value is None for value in values):
        return None
    return {"kind": "vector", "values": list(values)}


def uniform_between(low: float, high: float) -> Rule:
    """A rule for floats from `low` up to but excluding `high`."""
    return lambda _: {"kind": "uniform", "low": low, "high": high}


def _constant(value: Extent) -> Rule:
    return lambda _: full(value)


def _within_axis(
    data: int, axis: str = "axis", default: int = 0, *, distinct: bool = False
) -> Rule:
    """Indices into input `data`, along the axis that the attribute `axis` names."""

    def rule(use: Use) -> Hint | None:
        at = use.attribute(axis, default) if axis else default
        hint = index_below(use.size(data, at))
        return {**hint, "distinct": at} if hint and distinct else hint

    return rule


def _nd_indices(use: Use) -> Hint | None:
    """GatherND, ScatterND: the last axis of the indices holds one index per axis of the data."""
    skipped = use.attribute("batch_dims", 0)
    data, indices = use.shape(0), use.shape(1)
    count = size_at(indices, -1)
    if data is None or not isinstance(count, int):
        return None
    highs = data[skipped : skipped + count]
    if any(high is None for high in highs):
        return None
    hint: Hint = {"kind": "columns", "highs": list(highs)}
    return {**hint, "distinct": True} if use.site.node.op_type == "ScatterND" else hint


def _sequence_lengths(use: Use) -> Hint | None:
    """RNN, GRU, LSTM: lengths of at most the size of the time axis."""
    time = 1 if use.attribute("layout", 0) else 0
    return index_below(total(use.size(0, time), 1), 1)


def _reversed_lengths(use: Use) -> Hint | None:
    return index_below(total(use.size(0, use.attribute("time_axis", 0)), 1), 1)


def _write_positions(use: Use) -> Hint | None:
    """TensorScatter: where the update starts, so that it ends within the cache."""
    axis = use.attribute("axis", -2)
    room = difference(use.size(0, axis), use.size(1, axis))
    return index_below(total(room, 1))


def _valid_key_counts(use: Use) -> Hint | None:
    """Attention of ONNX: how many keys of each batch entry are not padding."""
    keys = use.size(1, 2 if use.rank(1) == 4 else 1)
    return index_below(total(keys, 1), 1)


def _total_length(use: Use) -> Extent | None:
    """GroupQueryAttention: the number of keys of the past and of this call."""
    past = use.size(3, 2) if use.has_input(3) else 0
    return total(past, use.size(0, 1))


def _key_mask(query_axis: int, keys: int) -> Rule:
    """A mask of keys: ones if it has two axes, else the length of all keys."""

    def rule(use: Use) -> Hint | None:
        if use.rank(use.index) == 1 and (maximum := use.size(keys, query_axis)) is not None:
            return full(maximum)
        return {"kind": "ones"}

    return rule


def _rotary_positions(table: int) -> Rule:
    """RotaryEmbedding: positions within the rows of the cosines; a single one is the first."""

    def rule(use: Use) -> Hint | None:
        if use.rank(use.index) == 1 and use.length() == 1:
            return full(0)
        return index_below(use.size(table, 0))

    return rule


def _embedding_rows(table: int) -> Rule:
    return lambda use: index_below(use.size(table, 0))


def _unpool_indices(use: Use) -> Hint | None:
    """MaxUnpool: positions in the output, which has at least as many elements as the input."""
    shape: Shape | None = use.shape(0)
    return index_below(product(*shape)) if shape is not None else None


def _divisor(_: Use) -> Hint | None:
    return {"kind": "divisor"}


def _stft_frame(use: Use) -> Hint | None:
    """STFT: a frame is at most as long as the signal, and a step at most as long as a frame."""
    signal = use.size(0, 1)
    if use.index == 1:
        return full(minimum(4, signal))
    window = use.size(2, 0) if use.has_input(2) else None
    return full(window if window is not None else minimum(16, signal))


def _boxes(_: Use) -> Hint | None:
    """Boxes with their corners in order; MaxRoiPool has the index of the image in front."""
    return {"kind": "boxes"}


def _positive(_: Use) -> Hint | None:
    return {"kind": "positive"}


def _zero_point(_: Use) -> Hint | None:
    return {"kind": "zero_point"}


def _for_inputs(rule: Rule, *indices: int) -> dict[int, Rule]:
    return dict.fromkeys(indices, rule)


_ONE: Final = _constant(1)
_ZERO: Final = _constant(0)
_DISTINCT_ROWS: Final = _within_axis(0, distinct=True)

# By operator and input index; an operator of `com.microsoft` without rules of its own has
# those of the ONNX operator of the same name.
VALUE_RULES: Final[dict[str, dict[int, Rule]]] = {
    # Indices.
    "Gather": {1: _within_axis(0)},
    "GatherElements": {1: _within_axis(0)},
    "GatherND": {1: _nd_indices},
    "GatherBlockQuantized": {1: _within_axis(0, "gather_axis")},
    "ScatterElements": {1: _DISTINCT_ROWS},
    "Scatter": {1: _DISTINCT_ROWS},
    "ScatterND": {1: _nd_indices},
    "TensorScatter": {2: _write_positions},
    "ArrayFeatureExtractor": {1: _within_axis(0, "", -1)},
    "NegativeLogLikelihoodLoss": {1: _within_axis(0, "", 1)},
    "SoftmaxCrossEntropyLoss": {1: _within_axis(0, "", 1)},
    "MaxUnpool": {1: _unpool_indices},
    "RoiAlign": {1: _boxes, 2: _within_axis(0, "", 0)},
    "MaxRoiPool": {1: _boxes},
    "EmbedLayerNormalization": {
        0: _embedding_rows(2), 1: _embedding_rows(4), 7: _ONE, 8: _embedding_rows(3),
    },
    "RotaryEmbedding": {3: _rotary_positions(1)},
    "com.microsoft.RotaryEmbedding": {1: _rotary_positions(2)},
    "SequenceAt": {1: _ZERO},
    "SequenceErase": {1: _ZERO},
    "SequenceInsert": {2: _ZERO},
    # Lengths and counts.
    **{name: {4: _sequence_lengths} for name in ("RNN", "GRU", "LSTM")},
    "ReverseSequence": {1: _reversed_lengths},
    "Attention": {6: _valid_key_counts},
    "com.microsoft.Attention": {3: _key_mask(1, 0)},
    "GroupQueryAttention": {
        5: lambda use: full(total(_total_length(use), -1)),
        6: lambda use: full(_total_length(use)),
    },
    "MultiHeadAttention": {4: _key_mask(1, 1)},
    "STFT": {1: _stft_frame, 3: _stft_frame},
    "BlackmanWindow": {0: lambda _: index_below(17, 8)},
    "HannWindow": {0: lambda _: index_below(17, 8)},
    "HammingWindow": {0: lambda _: index_below(17, 8)},
    "MelWeightMatrix": {
        **{0: _constant(8), 1: _constant(64), 2: _constant(8000)},
        3: uniform_between(0.0, 100.0),
        4: uniform_between(3000.0, 4000.0),
    },
    "NonMaxSuppression": {
        2: lambda _: index_below(_MAX_STEPS + 1, 1),
        3: uniform_between(0.3, 0.7),
        4: uniform_between(0.0, 0.1),
    },
    "Loop": {0: lambda _: index_below(_MAX_STEPS, 1), 1: _ONE},
    # Divisors, scales and probabilities.
    "Div": {1: _divisor},
    "Mod": {1: _divisor},
    "BitShift": {1: lambda _: index_below(8)},
    "QuantizeLinear": {1: _positive, 2: _zero_point},
    "DequantizeLinear": {1: _positive, 2: _zero_point},
    "QLinearConv": _for_inputs(_positive, 1, 4, 6),
    "QLinearMatMul": _for_inputs(_positive, 1, 4, 6),
    "QGemm": _for_inputs(_positive, 1, 4, 7),
    "MatMulNBits": {2: _positive},
    "BatchNormalization": {4: _positive},
    "Dropout": {1: uniform_between(0.0, 0.5), 2: _ZERO},
    "Bernoulli": {0: uniform_between(0.0, 1.0)},
    "BeamSearch": {
        **{1: lambda use: full(total(use.size(0, 1), 4)), 2: _ONE, 3: _constant(2), 4: _ONE},
        **_for_inputs(_ONE, 5, 6),
    },
    "GreedySearch": {1: lambda use: full(total(use.size(0, 1), 4)), 2: _ONE, 3: _ONE},
}  # fmt: skip
