"""How much error a node adds to what it reads, as energy of the error by that of the signal.

`10 log10(signal / error)` is the signal-to-quantization-noise ratio.  Differences of its inverse
are taken, not of decibels: between values that are exact to the rounding a node easily loses 40 dB,
which says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.contract.results.nodes.node_errors import NodeError


def largest_added(
    errors: Mapping[str, NodeError], reads: Mapping[str, Sequence[str]]
) -> dict[str, float | None]:
    """By value: its share of error, less the largest such share among the values that it reads.

    None where a share cannot be measured: NaN or infinities differ, or there is no signal.
    """
    shares = {name: _share(error) for name, error in errors.items()}
    added: dict[str, float | None] = {}
    for name, share in shares.items():
        before = [shares[read] for read in reads[name]]
        if share is None and any(found is None for found in before):
            # It was unmeasurable before.
            added[name] = 0.0
        elif share is None:
            added[name] = None
        else:
            added[name] = max(0.0, share - max((x for x in before if x is not None), default=0.0))
    return added


def _share(error: NodeError) -> float | None:
    """Energy of the error by that of the signal; None if it cannot be measured."""
    if error.max_abs == 0.0:
        return 0.0
    if error.max_abs > 1e300 or error.sqnr_db is None:
        return None
    return float(10.0 ** (-error.sqnr_db / 10.0))
