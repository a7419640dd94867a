"""Runs of the original model side by side and on real data, and what a run will cost."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.graph.values import NARROW_BITS, numpy_dtype
from aotc.host.cpu import available_bytes, usable_cores
from aotc.session.inference import open_original, out_of_memory
from aotc.session.sessions import run
from aotc.session.worker import peak_memory_bytes
from aotc.sizes.inputs.samples import tiled
from aotc.sizes.trials import Growth, RunCost
from aotc.spec.codec import Json, decode
from aotc.spec.payload import Value
from aotc.spec.shapes import REPEATED

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
# Other builds may run beside this one.
_SHARE: Final = 4
# A Python string and the reference to it.
_TEXT_BYTES: Final = 64


# Runs of the reference side by side, each on one thread: its bits are those of a run alone.
#
# A run that crashes or hangs ends the process, and nobody knows which of them it was: the analysis
# then starts anew with one run after the other, as where memory is not enough for several.


def runs_at_once(
    count: int, *, cores: int | None = None, peak: int | None = None, room: int | None = None
) -> int:
    """How many of `count` runs may run at once: one for each core, as far as memory goes.

    What one run takes is not known; it is less than `peak`, the most that this process, which has
    run the largest sizes, ever had.  Further ones may take a quarter of `room`, the bytes that are
    left on this machine and in this process.
    """
    cores = cores or usable_cores() or 1
    if min(cores, count) < 2:
        return 1
    peak = peak or peak_memory_bytes()
    room = min(available_bytes(), _allowed_bytes() - peak) if room is None else room
    return max(1, min(cores, count, 1 + room // _SHARE // max(peak, 1)))


def _allowed_bytes() -> int:
    """The bytes of private memory that this process may have."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return soft if soft != resource.RLIM_INFINITY else 2**63 - 1


class TooManyAtOnceError(Exception):
    """There was no memory, or no thread, for runs that may well succeed one after the other."""


def answers(
    items: Sequence[_Item],
    run: Callable[[_Item], _Answer],
    at_once: int,
    finished: Callable[[], object],
) -> Iterator[_Answer | AotcError]:
    """What `run` returns or raises for each item, in order; `at_once` of them run at a time.

    `finished` is called after each.  Raises TooManyAtOnceError.
    """
    rest = iter(items)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="aotc-reference")
    try:
        # Some wait, so that a long run does not leave the others idle.
        waiting = deque(
            pool.submit(answer_or_error, run, item) for item in itertools.islice(rest, 2 * at_once)
        )
        while waiting:
            found = waiting.popleft().result()
            if isinstance(found, AotcError) and out_of_memory(found.found):
                raise TooManyAtOnceError
            finished()
            waiting.extend(
                pool.submit(answer_or_error, run, item) for item in itertools.islice(rest, 1)
            )
            yield found
    except (MemoryError, RuntimeError) as error:
        # Of the second kind is that no thread can be started.
        raise TooManyAtOnceError from error
    finally:
        pool.shutdown(cancel_futures=True)


def answer_or_error(run: Callable[[_Item], _Answer], item: _Item) -> _Answer | AotcError:
    """What `run` returns or raises."""
    try:
        return run(item)
    except AotcError as error:
        return error


# Runs of the original model on real data: the samples as they are, and tiled to further sizes.


def sampled_job(request: Json) -> Json:
    """In the worker: inputs and outputs of each run, as value files below the working directory.

    `points` are names and sizes at which the samples are tiled; one that the model does not run at
    is left out.  Raises AOTC-I075 if it does not run on a sample itself.
    """
    inputs = [decode(Value, item) for item in request["inputs"]]
    samples = [
        {name: values.load(Path(path)) for name, path in sample["inputs"].items()}
        for sample in request["samples"]
    ]
    _, session = open_original(Path(request["model"]), Path(request["weights"]))
    runs: list[Json] = []
    for name, sizes, given in _asked(inputs, samples, request["points"]):
        try:
            outputs = run(session, given)
        except AotcError as error:
            if not name.endswith(REPEATED):
                raise AotcError(
                    "AOTC-I075",
                    "the model does not run on a sample",
                    where=name,
                    found=error.found,
                ) from None
            continue
        place = Path(str(len(runs)))
        place.mkdir()
        runs.append(
            {
                "name": name,
                "sizes": dict(sizes),
                "inputs": {
                    each: str(values.save(value, place / f"input_{number}"))
                    for number, (each, value) in enumerate(given.items())
                },
                "outputs": {
                    each: str(values.save(value, place / f"output_{number}"))
                    for number, (each, value) in enumerate(
                        zip(request["outputs"], outputs, strict=True)
                    )
                },
                "finite": all(values.is_finite(value) for value in outputs),
            }
        )
    return runs


def _asked(
    inputs: list[Value], samples: list[dict[str, Any]], points: Json
) -> Iterator[tuple[str, Mapping[str, int], dict[str, Any]]]:
    for number, sample in enumerate(samples):
        given = {value.name: sample[value.name] for value in inputs}
        yield f"sample{number}", _sizes(inputs, given), given
    for first, (name, sizes) in enumerate(points):
        yield name, sizes, tiled(samples, inputs, sizes, first)


def _sizes(inputs: list[Value], given: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in inputs:
        shape = getattr(given[value.name], "shape", None)
        if shape is None or value.shape is None:
            continue
        found |= {
            dim: size for dim, size in zip(value.shape, shape, strict=True) if isinstance(dim, str)
        }
    return found


# The cost of a run at any sizes, estimated from a few measured runs.


class Estimator:
    """Input bytes, activation bytes and flops at any sizes, from a few measured runs.

    `points` are the base, then sizes in which one free dim (with the dims derived from it) is
    larger.  Growth in several dims at once is estimated as the product of the growths in each.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        points: Sequence[Mapping[str, int]],
        costs: Sequence[RunCost | None],
    ) -> None:
        """`costs` are those measured at `points`; None if the run failed."""
        self._inputs = inputs
        base, *larger = points
        self._first = costs[0] or RunCost(1, 1.0)
        seen: dict[str, list[tuple[int, RunCost]]] = {}
        for sizes, cost in zip(larger, costs[1:], strict=True):
            # A dim derived from several grows with each of them.
            grown = [name for name in base if sizes[name] != base[name]]
            dim = min(grown, key=lambda name: sum(at[name] != base[name] for at in larger))
            if cost is not None:
                seen.setdefault(dim, [(base[dim], self._first)]).append((sizes[dim], cost))
        self._activations = {
            dim: Growth(
                tuple(
                    (size, cost.activation_bytes / max(self._first.activation_bytes, 1))
                    for size, cost in points
                )
            )
            for dim, points in seen.items()
        }
        self._flops = {
            dim: Growth(
                tuple((size, cost.flops / max(self._first.flops, 1.0)) for size, cost in points)
            )
            for dim, points in seen.items()
        }

    def __call__(self, sizes: Mapping[str, int]) -> tuple[int, int, float]:
        """Input bytes, activation bytes and floating-point operations at `sizes`."""
        activations = float(self._first.activation_bytes)
        flops = self._first.flops
        for dim, growth in self._activations.items():
            activations *= growth.at(sizes[dim])
            flops *= self._flops[dim].at(sizes[dim])
        return input_bytes(self._inputs, sizes), int(activations), flops


def input_bytes(inputs: Sequence[Value], sizes: Mapping[str, int]) -> int:
    """Bytes of all tensors among `inputs` at `sizes`, computed without creating them."""
    total = 0
    for value in inputs:
        bits = NARROW_BITS.get(value.dtype)
        if value.dtype == "string":
            width = _TEXT_BYTES
        else:
            width = 1 if bits else numpy_dtype(value.dtype).itemsize
        total += width * math.prod(value.shape_at(sizes))
    return total
