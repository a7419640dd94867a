"""Kernels alone: what the kernels of one call take on the device, of the artifact and of Inductor.

CUPTI records every kernel of the process, whoever starts it, within replayed graphs too; copies and
fills are told apart.  It is on from the beginning, so that graphs are captured under it: such a
process times nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.gpu.rows.calls import COMPILED, OURS, Opened, each_case
from benchmarks.gpu.run import Run

CALLS, NAMED = 20, 12
_COPIES = ("Memcpy", "Memset")


def run(run: Run) -> None:
    """Measure all wanted networks and precisions."""
    each_case(run, "kernels", "rows.kernels:record_cases")


def record_cases(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a record for each batch."""
    from benchmarks.gpu import contenders

    contenders.prepare_torch()
    with recording():
        pass
    opened = Opened.of(request)
    calls = opened.settings.rounds(CALLS)
    for case, batch in request["cases"].items():
        sets = opened.inputs(batch)
        ours = opened.ours(sets)
        sides = {OURS: ours, COMPILED: opened.theirs(sets, compiles=True)}
        found = {name: of_calls(side.bound, calls) for name, side in sides.items()}
        yield {"case": case, "captured": ours.captured, "kernels": found}


def of_calls(call: Callable[[], Any], calls: int) -> dict[str, Any]:
    """Seconds of kernels and of copies of one call, and the longest kernels with their counts."""
    for _ in range(5):
        call()
    with recording() as recorded:
        for _ in range(calls):
            call()
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for event in recorded.events():
        # Annotations span the kernels that are started within them.
        if "CUDA" in str(event.device_type) and not event.is_user_annotation:
            seconds[event.name] += event.time_range.elapsed_us() * 1e-6 / calls
            counts[event.name] += 1
    copies = {name for name in seconds if name.startswith(_COPIES)}
    longest = sorted(seconds, key=lambda name: -seconds[name])[:NAMED]
    return {
        "seconds": sum(seconds[name] for name in seconds.keys() - copies),
        "copies_seconds": sum(seconds[name] for name in copies),
        "longest": [[name[:120], seconds[name], counts[name] / calls] for name in longest],
    }


def recording() -> Any:
    """A context in which the kernels of this process are recorded."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    kinds = torch.profiler.ProfilerActivity
    return torch.profiler.profile(
        activities=[kinds.CUDA if torch.cuda.is_available() else kinds.CPU]
    )
