"""Observes the memory of a session: arenas as ONNX Runtime counts them, and the process itself.

For a process of its own: what it holds before is told apart, but not what others do meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from aotc.graph import values
from aotc.graph.values import Data
from aotc.host.cpu import usable_cores
from aotc.providers.named_backends import prepare
from aotc.providers.ort import everywhere, import_onnxruntime
from aotc.session.counted_session import COUNTED, CountedSession, NotCountedError
from aotc.session.padding import Padder
from aotc.session.sessions import own_entries, provider_settings
from aotc.session.worker import peak_memory_bytes
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import (
    ArenaStatistics,
    MemoryAtSizes,
    MixedCalls,
    ObservedMemory,
    ResidentMemory,
)
from aotc.spec.payload import Value
from aotc.spec.shapes import Padding
from aotc.spec.variant import LEVEL_NAMES, SessionSpec

# Calls of one size: the second has a memory pattern.  Whether it stays so, mixed calls show.
_CALLS: Final = 2
# Threads that spin while they wait take time, and no memory.
_SPINNING: Final = "session.intra_op.allow_spinning"
# Order of mixed calls, which is the same each time.
_SEED: Final = 0


class SizedCall(NamedTuple):
    """A call whose memory is observed: the sizes of its dims, and arrays of them by input."""

    fixture: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Data]

    @property
    def bytes(self) -> int:
        """Of all inputs."""
        return sum(values.nbytes(value) for value in self.inputs.values())


class _Opener(NamedTuple):
    """How a session is opened, as `create_session` would."""

    model: bytes | Path
    spec: SessionSpec
    providers: Mapping[str, Mapping[str, str]]
    config: dict[str, str]

    def __call__(self, profile: Path | None) -> CountedSession:
        spec = self.spec
        levels = import_onnxruntime().GraphOptimizationLevel
        return CountedSession(
            self.model,
            {**spec.config, **self.config},
            self.providers,
            level=int(getattr(levels, LEVEL_NAMES[spec.optimization])),
            threads=usable_cores() if spec.threads is None else spec.threads,
            custom_ops=everywhere(),
            profile=profile,
        )


def observe_memory(
    model: bytes | Path,
    spec: SessionSpec,
    calls: Sequence[SizedCall],
    outputs: Sequence[str],
    *,
    providers: Sequence[str],
    weights_folder: Path | None = None,
    context_path: Path | None = None,
    mixed_calls: int = 0,
    seconds: float = 60.0,
    profiles: Mapping[str, Path] | None = None,
) -> ObservedMemory:
    """Observe sessions of `model` in this process: one for each of `calls`, the largest first.

    With `mixed_calls`, so many calls of all sizes in turn follow in the session of the largest, or
    as many as `seconds` allow; without the largest, if a call of it takes more than its share.  The
    session is as by `create_session`, whose arguments have these names; no graph is captured.
    The first call of a fixture is profiled to its file of `profiles`.  Where ONNX Runtime counts
    nothing, the record says why, and no more.  Raises AOTC-P004 if a provider is missing.
    """
    version = str(import_onnxruntime().__version__)
    if apart := [name for name in providers if name not in COUNTED]:
        return ObservedMemory(
            onnxruntime=version,
            why_not=f"{apart[0]} has memory of its own, which ONNX Runtime does not count",
            elsewhere=True,
        )
    settings = provider_settings(
        spec, providers, weights_folder=weights_folder, threads=spec.threads, settings={}
    )
    config = {**own_entries(weights_folder, context_path), _SPINNING: "0"}
    opener = _Opener(model, spec, {name: options for name, options, _ in settings}, config)
    for name in providers:
        prepare(name)
    before = resident_memory()
    files = profiles or {}
    first, *others = sorted(calls, key=lambda call: call.bytes, reverse=True)
    observed: dict[str, MemoryAtSizes] = {}
    loaded = largest = peak = mixed = None
    try:
        with opener(files.get(first.fixture)) as session:
            loaded, started = resident_memory(), time.monotonic()
            observed[first.fixture] = _at_sizes(session, first, outputs, files)
            took = (time.monotonic() - started) / _CALLS
            largest, peak = resident_memory(), peak_memory_bytes()
            turns = calls if took * len(calls) <= seconds else others
            if mixed_calls and turns:
                mixed = _mixed(session, first, turns, outputs, mixed_calls, seconds)
        for call in others:
            with opener(files.get(call.fixture)) as session:
                observed[call.fixture] = _at_sizes(session, call, outputs, files)
    except NotCountedError as error:
        return ObservedMemory(onnxruntime=version, why_not=" ".join(str(error).split())[:500])
    return ObservedMemory(
        onnxruntime=version,
        at=tuple(observed[call.fixture] for call in calls),
        before=before,
        after_load=loaded,
        after_largest=largest,
        peak_resident=peak,
        mixed=mixed,
    )


def _at_sizes(
    session: CountedSession,
    call: SizedCall,
    outputs: Sequence[str],
    profiles: Mapping[str, Path],
) -> MemoryAtSizes:
    """What a session that was just opened uses for equal calls."""
    loaded = session.arenas()
    with session.kept(call.inputs, outputs):
        kept = session.arenas()
    first = session.arenas()
    if call.fixture in profiles:
        session.end_profiling().rename(profiles[call.fixture])
    for _ in range(1, _CALLS):
        session.run(call.inputs, outputs)
    last = session.arenas()
    (cpu, *device) = loaded
    return MemoryAtSizes(
        fixture=call.fixture,
        sizes=call.sizes,
        activation_bytes=last[cpu].max_in_use - loaded[cpu].in_use,
        first_bytes=first[cpu].max_in_use - loaded[cpu].in_use,
        output_bytes=kept[cpu].in_use - first[cpu].in_use,
        loaded=loaded[cpu],
        arena=last[cpu],
        device=last[device[0]] if device else None,
        device_activation_bytes=last[device[0]].max_in_use - loaded[device[0]].in_use
        if device
        else None,
    )


def _mixed(
    session: CountedSession,
    called: SizedCall,
    calls: Sequence[SizedCall],
    outputs: Sequence[str],
    planned: int,
    seconds: float,
) -> MixedCalls:
    """Rounds of all sizes, each in a random order, after a first one of two calls of each.

    Those of `called` were made already.  As many follow as there is time for, and at least one of
    each.
    """
    end = time.monotonic() + seconds
    for call in [*calls, *calls]:
        if call is not called:
            session.run(call.inputs, outputs)
    made = 2 * len(calls)
    first, first_resident = session.arenas(), resident_memory()
    taken, grown = _total(first), None
    order = np.random.default_rng(_SEED)
    least = made + len(calls)
    turn: list[int] = []
    took = dict.fromkeys(range(len(calls)), 0.0)
    while made < planned:
        turn = turn or order.permutation(len(calls)).tolist()
        started, at = time.monotonic(), turn.pop()
        if made >= least and started + took[at] > end:
            break
        session.run(calls[at].inputs, outputs)
        took[at] = time.monotonic() - started
        made += 1
        if (now := _total(session.arenas())) > taken:
            taken, grown = now, made
    last, last_resident = session.arenas(), resident_memory()
    _, *device = last
    return MixedCalls(
        calls=made,
        planned_calls=planned,
        sizes=len(calls),
        first_allocated=_total(first),
        last_allocated=_total(last),
        last_growth=grown,
        last_device_allocated=last[device[0]].allocated if device else None,
        first_in_use=sum(arena.in_use for arena in first.values()),
        last_in_use=sum(arena.in_use for arena in last.values()),
        first_private=first_resident.private if first_resident else None,
        last_private=last_resident.private if last_resident else None,
    )


def _total(arenas: Mapping[str, ArenaStatistics]) -> int:
    """Bytes that all arenas took."""
    return sum(arena.allocated for arena in arenas.values())


def resident_memory() -> ResidentMemory | None:
    """The resident memory of this process now; None where the system does not tell it apart."""
    try:
        text = Path("/proc/self/smaps_rollup").read_text()
        found = {
            words[0].rstrip(":"): int(words[1]) << 10
            for line in text.splitlines()
            if len(words := line.split()) == 3 and words[2] == "kB"
        }
        return ResidentMemory(
            resident=found["Rss"],
            private=found["Private_Dirty"],
            shared=found["Shared_Clean"] + found["Shared_Dirty"],
            file_backed=found["Rss"] - found["Anonymous"],
        )
    except (OSError, ValueError, KeyError):
        return None


def observe_job(request: Json) -> Json:
    """In a worker of its own: observe the variant that `request` describes, on its fixtures.

    What ran in the first call of each is profiled, for `plan_job`.
    """
    inputs = [decode(Value, item) for item in request["inputs"]]
    padder = Padder(inputs, decode(Padding, request["padding"]) if request["padding"] else None)
    calls: list[SizedCall] = []
    for reference in request["references"]:
        given = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        if wanted != sizes:
            given = padder.pad(given, sizes, wanted).inputs
        calls.append(SizedCall(reference["name"], wanted, given))
    model = Path(request["model"])
    return encode(
        observe_memory(
            model if request["contexts"] else model.read_bytes(),
            decode(SessionSpec, request["session"]),
            calls,
            list(request["references"][0]["outputs"]),
            providers=request["providers"],
            weights_folder=Path(request["weights"]),
            context_path=model,
            mixed_calls=request["mixed_calls"],
            seconds=request["seconds"],
            profiles={each["name"]: Path(each["profile"]) for each in request["references"]},
        )
    )
