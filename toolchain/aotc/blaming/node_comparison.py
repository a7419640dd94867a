"""Errors inside of a variant: one instrumented run of each graph, compared value by value.

Values may be larger than memory all together: they are read in several passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from aotc.blaming.added_error import largest_added
from aotc.blaming.graph_side import Side, as_loaded, tensor_shapes
from aotc.blaming.matched_values import MatchedValue, matched_values
from aotc.blaming.readable_values import readable_values
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.nodes.node_errors import NodeError, NodeErrors
from aotc.engine.parity import compare, same_bits, sqnr_db
from aotc.engine.values import Data, dtype_name
from aotc.graphs.shown_values import groups_within, outputs_of
from aotc.records import replace

MOST_BYTES: Final = 1 << 30
# Both values, as float64 in parts, and the session's own.
_BYTES_PER_ELEMENT: Final = 8
_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})


def node_errors(
    source: Side,
    variant: Side,
    inputs: Mapping[str, Data],
    tolerance: Tolerance,
    *,
    fixture: str = "",
    most_bytes: int = MOST_BYTES,
    work: Path | None = None,
) -> NodeErrors:
    """The error of each value that both graphs compute at `inputs`, in the source's order.

    A pass holds at most `most_bytes` of values, or one value.  Quantized values are compared
    dequantized, those in half precision in float32.  What the variant has in another shape, such as
    images with channels last, counts as uncompared.  `work` is a folder for what ONNX Runtime
    writes, by default a temporary one.  Raises AOTC-R005 and R008 where a graph does not run.
    """
    with TemporaryDirectory(dir=work, prefix="nodes-") as folder:
        return _compared(
            source, as_loaded(variant, Path(folder)), inputs, tolerance, fixture, most_bytes
        )


def _compared(
    source: Side,
    variant: Side,
    inputs: Mapping[str, Data],
    tolerance: Tolerance,
    fixture: str,
    most_bytes: int,
) -> NodeErrors:
    model, rewritten = source.read(), variant.read()
    matched, uncompared = matched_values(model, rewritten)
    answers = outputs_of(variant.opened(rewritten), inputs)
    shapes = tensor_shapes(source, model, inputs, [value.name for value in matched])
    readable = [value for value in matched if value.name in shapes]
    shown, places = readable_values(rewritten, readable, shapes)
    found: dict[str, NodeError] = {}
    changed = False

    def needed(value: MatchedValue) -> int:
        return math.prod(shapes[value.name]) * _BYTES_PER_ELEMENT

    for group in groups_within(readable, needed, most_bytes):
        expected = source.values(model, inputs, [value.name for value in group])
        wanted = [places[value.name] for value in group]
        given = variant.values(shown, inputs, [*dict.fromkeys((*wanted, *answers))])
        changed |= any(not same_bits(answers[name], given[name]) for name in answers)
        for value in group:
            error = _error(value, expected.pop(value.name), given[places[value.name]], tolerance)
            if error is not None:
                found[value.name] = error
        del expected, given
    uncompared += len(matched) - len(found)
    first, worst, errors = _blamed(matched, found)
    return NodeErrors(
        fixture=fixture,
        nodes=errors,
        uncompared=uncompared,
        first=first,
        worst=worst,
        outputs_changed=changed,
    )


def _error(
    value: MatchedValue, expected: Data, given: Data, tolerance: Tolerance
) -> NodeError | None:
    """The error of one value; None if the variant has it in another shape or kind."""
    expected, given = _of_one_type(expected, given)
    if getattr(expected, "shape", None) != getattr(given, "shape", None):
        return None
    if getattr(expected, "dtype", None) != getattr(given, "dtype", None):
        return None
    error = compare(expected, given, tolerance, value.name)
    return NodeError(
        node=value.node,
        op=value.op,
        value=value.name,
        variant_node=value.variant_node,
        covers=value.covers,
        max_abs=error.max_abs,
        max_rel=error.max_rel,
        cosine=error.cosine,
        sqnr_db=sqnr_db(expected, given),
        passed=error.passed,
        reason=error.reason,
    )


def _of_one_type(expected: Any, given: Any) -> tuple[Any, Any]:
    """Values of different types of floating point, both in float32 or the larger one."""
    if not isinstance(expected, np.ndarray) or not isinstance(given, np.ndarray):
        return expected, given
    kinds = {dtype_name(expected.dtype), dtype_name(given.dtype)}
    if len(kinds) == 2 and kinds <= _FLOATS:
        wide = np.float64 if "float64" in kinds else np.float32
        return expected.astype(wide), given.astype(wide)
    return expected, given


def _blamed(
    matched: Sequence[MatchedValue], found: Mapping[str, NodeError]
) -> tuple[str, str, tuple[NodeError, ...]]:
    """The first and the worst node, and all errors with what each node adds to those it reads."""
    reads = {value.name: [name for name in value.reads if name in found] for value in matched}
    first = next(
        (
            error.node
            for name, error in found.items()
            if not error.passed and all(found[read].passed for read in reads[name])
        ),
        "",
    )
    added = largest_added(found, reads)
    errors = tuple(replace(error, added=added[name]) for name, error in found.items())
    candidates = [error for error in errors if not (error.passed and error.max_abs == 0.0)]
    worst = max(candidates, key=_blame, default=None)
    return first, worst.node if worst is not None and _blame(worst) > 0 else "", errors


def _blame(error: NodeError) -> float:
    """How much a node adds; NaN and infinities out of nothing are the most."""
    return float("inf") if error.added is None and not error.passed else error.added or 0.0
