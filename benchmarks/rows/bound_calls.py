"""What a bound call costs beyond I/O binding of its own session, for a decoder of 49 inputs.

The decoder is one step of a Llama of 24 layers, so small that this cost is visible.  All sides take
turns in one process; tensors of the device are those that a library lends by DLPack.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.networks.llama import write_llama
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

LAYERS, HEADS, HIDDEN, PAST, VOCABULARY = 24, 2, 32, 16, 64
LIMIT_MICROSECONDS = 200.0
ROUNDS = 2000
BINDING = "I/O binding"
# What a call has new, and how many microseconds it may take beyond that of I/O binding.
SIDES = {
    "nothing new": None,
    "one new array": None,
    "49 new arrays": LIMIT_MICROSECONDS,
    "49 new tensors of the device": LIMIT_MICROSECONDS,
}


def run(workshop: Workshop) -> Result:
    """Calls with nothing new, with one input, and with all of them."""
    model = workshop.folder / "models" / "bound_calls.onnx"
    model.parent.mkdir(parents=True, exist_ok=True)
    write_llama(
        model,
        layers=LAYERS,
        hidden=HIDDEN,
        inner=2 * HIDDEN,
        heads=HEADS,
        vocabulary=VOCABULARY,
        tied=False,
        seed=0,
    )
    artifact = workshop.folder / "artifacts" / "bound_calls.aotc"
    artifact.parent.mkdir(parents=True, exist_ok=True)
    profile = workshop.profile("bound_calls", {"dims": {"batch": 1, "past": PAST}})
    request = {
        "model": str(model),
        "profile": str(profile),
        "dims": {},
        "key": str(workshop.key()[0]),
        "output": str(artifact),
    }
    run_fresh("workshop:build", request)
    asked = {
        "artifact": str(artifact),
        "key": str(workshop.key()[1]),
        "rounds": 100 if workshop.smoke else ROUNDS,
    }
    found = run_fresh("rows.bound_calls:by_turns", asked, store=workshop.store)
    rows = []
    for name, limit in SIDES.items():
        ours, theirs = median(found[name]), median(found[f"{name}, {BINDING}"])
        extra = (ours - theirs) * 1e6
        rows.append(
            Row(
                what=f"decoder of 49 inputs: a bound call beyond {BINDING}, {name}",
                asked="" if limit is None else f"≤ {limit:g} µs",
                measured=f"{extra:.1f} µs ({ours * 1e6:.0f} µs to {theirs * 1e6:.0f} µs)",
                held=None if limit is None else extra <= limit,
            )
        )
    return Result(rows=tuple(rows), samples=found)


def by_turns(request: dict[str, Any]) -> dict[str, list[float]]:
    """In a fresh process: seconds of each call, all sides by turns."""
    import numpy as np
    import onnxruntime as ort

    import aotc
    from aotc.runtime.warmup import open_variant

    model = aotc.load(request["artifact"], key=request["key"], threads=1)
    plain = open_variant(model.payload, model.variant, threads=1)
    rng = np.random.default_rng(0)
    shape = (1, HEADS, PAST, HIDDEN // HEADS)

    def inputs() -> dict[str, Any]:
        return {
            value.name: rng.standard_normal(shape, np.float32)
            if value.dtype == "float32"
            else rng.integers(0, VOCABULARY, (1, 1))
            for value in model.inputs
        }

    class Lent(np.ndarray[Any, Any]):
        """An array that is no host array to us, but the tensor of a library with DLPack in C."""

    first, others = inputs(), [inputs() for _ in range(4)]
    tensors = [{name: array.view(Lent) for name, array in given.items()} for given in others]
    binding = plain.io_binding()
    for name, array in first.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    for output in plain.get_outputs():
        binding.bind_output(output.name)
    plain.run_with_iobinding(binding)
    for output, value in zip(plain.get_outputs(), binding.get_outputs(), strict=True):
        binding.bind_ortvalue_output(output.name, value)
    call = model.bind(first)
    run_plain: Callable[[Any], object] = plain.run_with_iobinding
    sides: dict[str, Callable[[int], object]] = {
        "nothing new": lambda turn: call(),
        "one new array": lambda turn: call({"input_ids": others[turn % 4]["input_ids"]}),
        "49 new arrays": lambda turn: call(others[turn % 4]),
        "49 new tensors of the device": lambda turn: call(tensors[turn % 4]),
    }
    found: dict[str, list[float]] = {}
    for name, ours in sides.items():
        # Two sessions: each finds the caches of the processor as the other left them.
        pair: dict[str, Callable[[int], object]] = {
            name: ours,
            f"{name}, {BINDING}": lambda turn: run_plain(binding),
        }
        samples: dict[str, list[float]] = {side: [] for side in pair}
        for turn in range(request["rounds"]):
            for side in pair if turn % 2 else reversed(list(pair)):
                started = time.perf_counter()
                pair[side](turn)
                samples[side].append(time.perf_counter() - started)
        found |= {side: values[len(values) // 10 :] for side, values in samples.items()}
    model.close()
    return found
