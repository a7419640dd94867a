"""Captures the sizes that a variant promises, before its first call."""

from __future__ import annotations

import math
from pathlib import Path

from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.variant import Variant
from aotc.errors import AotcError
from aotc.runtime.runners import Runner
from aotc.runtime.warming.sized_inputs import inputs_at


def capture_sizes(runner: Runner, variant: Variant, manifest: Manifest, payload: Path) -> None:
    """Capture each promised size that is not captured yet, the largest first.

    The largest takes the most memory, which the others then use as well.  Inputs are those of a
    fixture, repeated or cut to the size.  Raises AOTC-R024 and M004, and R005 if no inputs could be
    made.
    """
    graphs = variant.graphs
    if graphs is None:
        return
    from aotc.engine.device.capturing_runner import CapturingRunner

    if not isinstance(runner, CapturingRunner):
        return
    done = runner.captured
    for sizes in sorted(graphs.sizes, key=lambda size: -math.prod(size.values())):
        if dict(sizes) in done:
            continue
        inputs = inputs_at(manifest, manifest.domain.complete(sizes), payload)
        if inputs is None:
            raise AotcError(
                "AOTC-R024",
                "a CUDA graph cannot be captured",
                where=f"variant {variant.name}",
                found="no inputs of its sizes could be made",
            )
        runner.capture(inputs, sizes)
