"""torch.compile's max-autotune for the row `autotune`, several cases side by side and ahead of it.

A case takes one to nine minutes, most of it in compilers on the host.  What the row finds of it are
Triton's binaries.  torch.compile's choices among them were timed beside other work, so they are
kept apart: the row makes them anew, in a process that has the GPU to itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.gpu.cases import AUTOTUNED_BATCH, NETWORKS, Only, Settings
from benchmarks.gpu.child import ChildFailedError, OutOfTimeError, one_record
from benchmarks.gpu.rows.latency import AUTOTUNE_SECONDS, AUTOTUNED

AT_ONCE = 3


def compile_ahead(settings: Settings, networks: Sequence[str], only: Only) -> list[str]:
    """Compile the cases of the row; returns what failed."""
    started = time.monotonic()
    threads = max(2, (os.cpu_count() or 1) // AT_ONCE)
    environment = {
        **settings.compiled(ahead=True),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "OMP_NUM_THREADS": "2",
    }

    def compiled(case: tuple[str, str]) -> str:
        name, precision = case
        request = {"settings": settings.to_json(), "network": name, "precision": precision}
        try:
            found = one_record(
                "precompiling:compile_one",
                request,
                seconds=AUTOTUNE_SECONDS,
                environment=environment,
            )
        except (ChildFailedError, OutOfTimeError) as error:
            return f"{name}, {precision}: {error}"
        print(f"   … compiled {name}, {precision} in {found['seconds']:.0f} s", flush=True)
        return ""

    cases = [
        (name, precision)
        for name in networks
        for precision in filter(only.precision, settings.precisions)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [line for line in pool.map(compiled, cases) if line]
    print(f"== compiled ahead: {time.monotonic() - started:.0f} s", flush=True)
    return failed


def compile_one(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: compile at the row's batch, and run once."""
    from benchmarks.gpu import contenders

    contenders.prepare_torch()
    from benchmarks.gpu import networks
    from benchmarks.gpu.inputs import inputs_at

    settings, name = Settings.from_json(request["settings"]), request["network"]
    sizes = NETWORKS[name].sizes(AUTOTUNED_BATCH)
    tensors = contenders.on_device(settings, inputs_at(settings.model(name), sizes))
    module = networks.network(name, settings.small)
    started = time.perf_counter()
    contenders.compiled(settings, module, tensors, request["precision"], AUTOTUNED)()
    yield {"seconds": time.perf_counter() - started}
