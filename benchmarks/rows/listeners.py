"""What a call costs more because it may be told to logs, OpenTelemetry or Prometheus.

Both sides count calls, alternately in one process: those of a loaded model, and those of counters
that nobody is told of.  A process of its own imports what an application would.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

# What all listeners together may take where nobody listens.
LIMIT_MICROSECONDS = 1.0
# So few calls in a round that other work on the machine seldom comes between them.
ROUNDS, CALLS = 1000, 50
NOBODY = {
    "nothing imported": "",
    "logging at WARNING": "import logging; logging.basicConfig(level='WARNING')",
    "OpenTelemetry's API without a provider": (
        "import logging; logging.basicConfig(level='WARNING')\n"
        "from opentelemetry import metrics, trace"
    ),
}
SOMEBODY = {
    "logs at DEBUG": (
        "import logging; logging.getLogger('aotc').setLevel('DEBUG')\n"
        "logging.getLogger('aotc').addHandler(logging.NullHandler())"
    ),
    "Prometheus": "import aotc; aotc.PrometheusMetrics(registry=None)",
    "OpenTelemetry's SDK, which exports nothing": (
        "from opentelemetry import metrics, trace\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "metrics.set_meter_provider(MeterProvider())"
    ),
}


def run(workshop: Workshop) -> Result:
    """Microseconds of a call, with their interval; a limit where nobody listens."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for what, program in {**NOBODY, **SOMEBODY}.items():
        request = {"program": program, "rounds": workshop.rounds(ROUNDS)}
        found = run_fresh("rows.listeners:by_turns", request)
        told, alone = found["told"], found["alone"]
        extra, low, high = _extra(told, alone)
        rows.append(
            Row(
                what=f"A call that is told: {what}",
                asked=f"≤ {LIMIT_MICROSECONDS:g} µs" if what in NOBODY else "",
                measured=f"{extra:.2f} µs ({low:.2f} to {high:.2f}), beside "
                f"{median(alone) * 1e6:.2f} µs for counting",
                held=high <= LIMIT_MICROSECONDS if what in NOBODY else None,
            )
        )
        samples |= {f"{what}: {side}": values for side, values in found.items()}
    return Result(rows=tuple(rows), samples=samples)


def _extra(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """The median of the differences by round in microseconds, and its 95 % interval (bootstrap)."""
    differences = (np.asarray(ours) - np.asarray(theirs)) * 1e6
    draws = np.random.default_rng(0).integers(0, len(differences), (2000, len(differences)))
    low, high = np.percentile(np.median(differences[draws], axis=1), [2.5, 97.5])
    return float(np.median(differences)), float(low), float(high)


def by_turns(request: dict[str, Any]) -> dict[str, list[float]]:
    """In a fresh process: seconds of one call, both sides alternately."""
    exec(request["program"], {})
    from aotc.runtime.listener import LoadedModel, LoadedVariant
    from aotc.runtime.telemetry import Telemetry

    variant = LoadedVariant("portable", "CPUExecutionProvider", "keep", {}, 0, ())
    sides = {"told": Telemetry(["portable"]), "alone": Telemetry(["portable"])}
    model = LoadedModel("digits", "ab" * 32, "", "optimal", [variant])
    sides["told"].begin(model)
    samples: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(request["rounds"] + 10):
        for side in sides if turn % 2 else reversed(list(sides)):
            count = sides[side].call
            started = time.perf_counter()
            for _ in range(CALLS):
                count(1e-4, variant="portable", cause="exact", given=64, added=0)
            if turn >= 10:
                samples[side].append((time.perf_counter() - started) / CALLS)
    return samples
