"""Runs of the reference side by side, each on one thread: its bits are those of a run alone.

A run that crashes or hangs ends the process, and nobody knows which of them it was: the analysis
then starts anew with one run after the other, as where memory is not enough for several.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from aotc.engine.worker import peak_memory_bytes
from aotc.errors import AotcError
from aotc.graphs.rejection import out_of_memory
from aotc.host.available_memory import available_bytes
from aotc.host.cores import usable_cores

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

# Other builds may run beside this one.
_SHARE: Final = 4


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
