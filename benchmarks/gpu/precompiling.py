"""torch.compile for the rows `calls` and `kernels`, several cases side by side and ahead of them.

What the rows find of it are Triton's binaries.  torch.compile's choices among them were timed
beside other work, so they are kept apart: the rows make them anew, with the GPU to themselves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.gpu.cases import NETWORKS, Only, Settings
from benchmarks.gpu.child import ChildFailedError, OutOfTimeError, one_record
from benchmarks.gpu.inputs import inputs_at

SECONDS, AT_ONCE = 300, 4


def compile_ahead(settings: Settings, networks: Sequence[str], only: Only) -> list[str]:
    """Compile the cases of the rows; returns what failed."""
    started = time.monotonic()
    threads = max(2, len(os.sched_getaffinity(0)) // AT_ONCE)
    environment = {
        **settings.compiled(ahead=True),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "OMP_NUM_THREADS": "2",
    }

    def compiled(case: tuple[str, str]) -> str:
        name, precision = case
        request = {
            "settings": settings.to_json(),
            "network": name,
            "precision": precision,
            "batches": [n for n in settings.batches(NETWORKS[name], only) if only.batch(n)],
        }
        try:
            one_record(
                "precompiling:compile_one", request, seconds=SECONDS, environment=environment
            )
        except (ChildFailedError, OutOfTimeError) as error:
            return f"{name}, {precision}: {error}"
        return ""

    cases = [
        (name, precision)
        for name in networks
        for precision in settings.precisions(NETWORKS[name], only)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [line for line in pool.map(compiled, cases) if line]
    print(f"== compiled ahead: {time.monotonic() - started:.0f} s", flush=True)
    return failed


def compile_one(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: compile at the rows' batches, and run once at each."""
    from benchmarks.gpu import contenders

    contenders.prepare_torch()
    from benchmarks.gpu import networks

    settings, name = Settings.from_json(request["settings"]), request["network"]
    module = networks.network(name, settings.small)
    for batch in request["batches"]:
        sets = [inputs_at(settings.model(name), NETWORKS[name].sizes(batch))]
        contenders.theirs(settings, module, sets, request["precision"], compiles=True).bound()
    yield {"batches": len(request["batches"])}
