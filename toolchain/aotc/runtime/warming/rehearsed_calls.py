"""Calls before the first one: what a call passes through is then not met for the first time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.variant import Variant
from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.runtime.warming.sized_inputs import inputs_at

# Python specializes code in its first executions, and replays of milliseconds get quicker in their
# first ten.
_LEAST: Final = 3
_MOST: Final = 10
# A load makes no more than the least number of calls once it rehearsed for that long, in equal
# shares for its sizes.
_SETTLING_SECONDS: Final = 0.1
# A run that takes longer hides what its first call costs beyond it, and would delay the load.
_SHORT_SECONDS: Final = 0.01
# The same for runs without a graph: the first call of the shortest takes twice as long as others.
_SHORTEST_SETTLING_SECONDS: Final = 0.005


def rehearse_calls(
    answer: Callable[[Mapping[str, Data]], object],
    variant: Variant,
    manifest: Manifest,
    payload: Path,
    run_seconds: float | None,
    *,
    share: float = 1.0,
) -> None:
    """Answer calls as `run` does, whose answers nobody wants: of each captured size, or one.

    Each comes in arrays of its own, and the answer before it is kept, as with requests, so that the
    memory which they take and free is not met for the first time either; the largest sizes come
    first, as they take the caches from the others.  `run_seconds` is what a run of the variant took
    at its warm-up (None: it was not run), and `share` is the part of a load's rehearsals that it
    may take.  The variant is proven at this point: a refusal, such as of values that a fixture has
    after it was resized, is left to a request that gives cause for it.
    """
    if variant.graphs is not None:
        wanted, least, settling = (
            sorted(
                (manifest.domain.complete(sizes) for sizes in variant.graphs.sizes),
                key=lambda sizes: -prod(sizes.values()),
            ),
            _LEAST,
            _SETTLING_SECONDS,
        )
    elif run_seconds is not None and run_seconds < _SHORT_SECONDS:
        usual = (variant.domain or manifest.domain).corner("opt")
        wanted, least, settling = [usual], 1, _SHORTEST_SETTLING_SECONDS
    else:
        return
    for sizes in wanted:
        settled = time.perf_counter() + settling * share / len(wanted)
        # A sequence, such as of tensors, has no other sizes.
        with suppress(AotcError):
            inputs = inputs_at(manifest, sizes, payload)
            if inputs is None:
                continue
            kept: deque[object] = deque(maxlen=1)
            for turn in range(_MOST):
                if turn >= least and time.perf_counter() > settled:
                    break
                given = {
                    name: data.copy() if isinstance(data, np.ndarray) else data
                    for name, data in inputs.items()
                }
                kept.append(answer(given))
