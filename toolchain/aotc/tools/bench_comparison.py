"""Whether one side is slower than another, and the history of measurements by machine."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read, cannot_write
from aotc.base.files.locks import lock
from aotc.base.files.reading import open_plain, read_at_most
from aotc.base.records import record
from aotc.host.cpu import system_text, usable_cores
from aotc.host.nvidia import missing_gpu
from aotc.host.probe import probe
from aotc.runtime.telemetry import percentile
from aotc.spec.bench_reports import MAX_SAMPLES, HistoryLine, Machine, Verdict
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.json import strict_json
from aotc.spec.versions import artifact_path, stated_id, stated_reference

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The history of measurements: one JSON line each in a file that many runs may append to.


# Of the file that is read as a baseline.
_MAX_BYTES: Final = 64 << 20
# Measurements of one artifact that are compared with.
_MAX_LINES: Final = 20
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
_NOT_WAITING: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@record
class Conditions:
    """What two measurements must have in common to be compared."""

    machine: Machine
    model_sha256: str
    variant: str
    sizes: Mapping[str, int]
    threads: int | None
    streams: int


def require_appendable(path: Path) -> None:
    """Raise AOTC-I026 if something is there that is not a regular file, and so holds no lines."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    except OSError as error:
        raise _not_appended(error, path) from None


def append_line(path: Path, line: HistoryLine) -> None:
    """Append one line, whole or not at all, while the file is locked.

    A line that was cut off before, by a full disk or a killed process, is ended first, so that it
    spoils no other.  Raises AOTC-I018 and I026 if the file cannot be written, and G041 if another
    process holds its lock for long.
    """
    text = json.dumps(encode(line, full=True), separators=(",", ":"), allow_nan=False) + "\n"
    data = text.encode()
    try:
        descriptor = os.open(path, _OPEN | _NOT_WAITING, 0o666)
        try:
            lock(descriptor, path, what="another process writes the history")
            _append(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _not_appended(error, path) from None


def _not_appended(error: OSError, path: Path) -> AotcError:
    fix = "Name a regular file." if error.errno == errno.EINVAL else ""
    return cannot_write(error, "cannot append to the history", str(path), further_fix=fix)


def _append(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    if size:
        os.lseek(descriptor, size - 1, os.SEEK_SET)
        if os.read(descriptor, 1) != b"\n":
            data = b"\n" + data
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        # All of a line, or none of it.
        os.ftruncate(descriptor, size)
        raise


def baseline_lines(path: Path, wanted: Conditions, artifact_id: str) -> tuple[HistoryLine, ...]:
    """The last lines of a history that were measured under the conditions `wanted`.

    They are of one artifact, which is that of the last one, and at most 20.  A line that was judged
    slower is none of them, and one of the artifact `artifact_id` itself only where there is no
    other: else a second run would be compared with the first, and pass.

    Raises AOTC-I001 if the file cannot be read, I063 if a line of it cannot (or none is there),
    I064 if no line is of this machine, and I065 if none of those is of the same model and variant,
    at the same sizes and with the same threads and streams, or all such lines were judged slower.
    """
    lines = list(read_history(path))
    here = [line for line in lines if line.machine == wanted.machine]
    if not here:
        what = "the baseline was measured on another machine"
        raise _differs("AOTC-I064", what, path, _machine(wanted), _machine(lines[-1]))
    alike = [line for line in here if _measured(line) == _measured(wanted)]
    if not alike:
        what = "the baseline does not match what is measured"
        raise _differs("AOTC-I065", what, path, _measured(wanted), _measured(here[-1]))
    kept = [line for line in alike if line.verdict != "slower"]
    if not kept:
        raise AotcError(
            "AOTC-I065",
            "every measurement in the history was slower than its own baseline",
            where=str(path),
            fix="To accept the artifact, measure it with --history and without --baseline.",
        )
    others = [line for line in kept if line.artifact_id != artifact_id]
    last = (others or kept)[-1].artifact_id
    same = [line for line in kept if line.artifact_id == last]
    return tuple(same[-_MAX_LINES:])


def read_history(path: Path) -> Iterator[HistoryLine]:
    """All lines of a history; raises AOTC-I001 and I063 (a line is cut off, or there is none)."""
    try:
        data = read_at_most(path, _MAX_BYTES)
    except OSError as error:
        raise cannot_read(error, "the baseline cannot be read", str(path)) from None
    if len(data) > _MAX_BYTES:
        raise _unreadable(str(path), f"more than {_MAX_BYTES} bytes")
    # Not splitlines: it also splits at characters that JSON strings may hold.
    lines = [(number, text) for number, text in enumerate(data.split(b"\n"), 1) if text.strip()]
    if not lines:
        raise _unreadable(str(path), "an empty file")
    for number, text in lines:
        try:
            yield decode(HistoryLine, strict_json(text))
        except ParseError as error:
            raise _unreadable(f"{path}:{number}", str(error.problems[0])) from None


def _unreadable(where: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I063",
        "the baseline is neither an artifact nor a history of 'aotc bench --history'",
        where=where,
        found=found[:300],
    )


def _measured(each: HistoryLine | Conditions) -> dict[str, Json]:
    return {
        "model": each.model_sha256,
        "variant": each.variant,
        "sizes": dict(each.sizes),
        "threads": each.threads or "one for each core",
        "streams": each.streams,
    }


def _machine(each: HistoryLine | Conditions) -> dict[str, Json]:
    facts: dict[str, Json] = encode(each.machine, full=True)
    return facts


def _differs(
    code: str, what: str, path: Path, wanted: Mapping[str, Any], found: Mapping[str, Any]
) -> AotcError:
    """The refusal, with the facts that differ; those of the last line stand for all."""
    other = [name for name in wanted if wanted[name] != found[name]]
    return AotcError(
        code,
        what,
        where=str(path),
        expected="; ".join(f"{name} {_words(wanted[name])}" for name in other)[:500],
        found="; ".join(f"{name} {_words(found[name])}" for name in other)[:500],
    )


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={size}" for name, size in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_words, value)) or "none"
    return "unknown" if value is None or value == "" else str(value)


# What a measured artifact is compared with: an earlier artifact, or a history of measurements.


# The first bytes of a packed artifact, which is a zip.
_ZIP: Final = b"PK"
_ALLOW: Final = 1.05


@record
class Baseline:
    """What an artifact is compared with: another one, or the history in a file."""

    path: Path
    allow: float

    @property
    def is_artifact(self) -> bool:
        """Whether it names an artifact: a folder, a packed file, or an entry of a store."""
        if stated_id(self.path) is not None or not self.path.is_file():
            return True
        with contextlib.suppress(OSError), open_plain(self.path) as file:
            return file.read(len(_ZIP)) == _ZIP
        return False


def stated_baseline(path: str | Path, allow: float | None) -> Baseline:
    """A baseline as a caller states it; raises AOTC-I027 for a ratio that none can have."""
    allow = _ALLOW if allow is None else allow
    if not 0 < allow < math.inf:
        raise AotcError(
            "AOTC-I027", "the allowed ratio is out of range", expected="> 0", found=str(allow)
        )
    return Baseline(path=artifact_path(path), allow=allow)


def require_baseline(baseline: Baseline, history: Path | None) -> None:
    """Raise AOTC-I001 if nothing is there, and I063 if it is a file that is no history.

    AOTC-I027 is for an artifact that the measurement would be appended to.
    """
    path = baseline.path
    if stated_id(path) is None and stated_reference(path) is None and not path.exists():
        if history is not None and history.resolve() == path.resolve():
            raise AotcError(
                "AOTC-I001",
                "there is no baseline yet: nothing was appended to the history",
                where=str(path),
                fix="Measure once with --history and without --baseline.",
            )
        raise AotcError("AOTC-I001", "no such baseline", where=str(path))
    if not baseline.is_artifact:
        list(read_history(path))
    elif history is not None and history.resolve() == path.resolve():
        raise AotcError(
            "AOTC-I027",
            "--history would overwrite an input, or write into it",
            where=f"--history {history}",
            found=str(path),
            fix="Name another file.",
        )


# Whether one side is slower than another: a ratio of medians, with a bootstrap interval.
#
# Samples that follow one another share what else the machine does, so that single calls may not be
# resampled as if they were independent: whole rounds are (a block bootstrap: Künsch, The Jackknife
# and the Bootstrap for General Stationary Observations, 1989). A round holds a block of each side,
# which ran one after the other, and its blocks are drawn together, so that a drift over the rounds
# concerns both sides alike. The interval is Efron's of percentiles (Bootstrap Methods: Another Look
# at the Jackknife, 1979).


CONFIDENCE: Final = 0.95
# With fewer blocks to draw from, an interval is far too narrow.
MIN_ROUNDS: Final = 10
_RESAMPLES: Final = 2000
_SEED: Final = 20260131
# Samples of a block that are resampled: more make no difference to a median, and take long.
_MAX_PER_BLOCK: Final = 200
# Resamples are drawn in so many parts, which bounds the memory.
_PARTS: Final = 10


@record
class Interval:
    """A ratio of medians, and the ends of its confidence interval, from so many blocks."""

    ratio: float
    lower: float
    upper: float
    rounds: int


def paired_interval(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """Our median / theirs, from the blocks (seconds of calls) of the same rounds, one a round."""
    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(len(ours), size=(_RESAMPLES, len(ours)))
    ratio = _median_of_all(ours) / _median_of_all(theirs)
    return _interval(ratio, _medians(ours, drawn) / _medians(theirs, drawn), len(ours))


def unpaired_interval(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> Interval:
    """Our median / theirs, from our blocks and the samples of their measurements, one or several.

    Of several, whole measurements are drawn as well, so that the interval holds how much they
    differ; of one, what changed on the machine since then is not in it.
    """
    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(len(ours), size=(_RESAMPLES, len(ours)))
    earlier = [np.asarray(samples, np.float64) for samples in theirs]
    medians = np.empty(_RESAMPLES)
    for index in range(_RESAMPLES):
        chosen = generator.integers(len(earlier), size=len(earlier))
        samples = [generator.choice(earlier[each], len(earlier[each])) for each in chosen]
        medians[index] = _median_of_all(samples)
    ratio = _median_of_all(ours) / _median_of_all(theirs)
    return _interval(ratio, _medians(ours, drawn) / medians, min(len(ours), sum(map(len, earlier))))


def judge(interval: Interval, allow: float) -> tuple[Verdict, str]:
    """The verdict on a ratio that may be up to `allow`, and the reason in words."""
    if interval.rounds < MIN_ROUNDS:
        return "inconclusive", f"{interval.rounds} rounds, and an interval needs {MIN_ROUNDS}"
    if interval.lower > allow:
        return "slower", f"the whole interval is above {allow:g}"
    if interval.upper <= allow:
        return "within", f"the whole interval is at or below {allow:g}"
    return "inconclusive", f"the interval holds ratios below and above {allow:g}"


def _interval(ratio: float, ratios: NDArray[np.float64], rounds: int) -> Interval:
    """The interval from the ratios of resampled data."""
    tail = (1 - CONFIDENCE) / 2
    lower, upper = np.quantile(ratios, [tail, 1 - tail])
    return Interval(ratio=ratio, lower=float(lower), upper=float(upper), rounds=rounds)


def _medians(blocks: Sequence[Sequence[float]], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """The median of all samples of the drawn blocks: a row of their indices for each.

    Blocks differ by one sample at most, and are thinned to the same number.
    """
    size = min(_MAX_PER_BLOCK, *map(len, blocks))
    equal = np.asarray([thinned(sorted(block), size) for block in blocks])
    rank = _rank(len(blocks) * size)
    parts = [
        np.partition(equal[rows].reshape(len(rows), -1), rank, axis=1)[:, rank]
        for rows in np.array_split(drawn, _PARTS)
    ]
    return np.concatenate(parts)


def _median_of_all(blocks: Sequence[Sequence[float] | NDArray[np.float64]]) -> float:
    joined = np.concatenate([np.asarray(block, np.float64) for block in blocks])
    rank = _rank(len(joined))
    return float(np.partition(joined, rank)[rank])


def _rank(count: int) -> int:
    """The index of the sample of nearest rank, as `percentile` of 0.5 has it."""
    return (count + 1) // 2 - 1


# Quantiles of latencies, and how many samples each of them needs to be stated.
#
# A quantile is the sample of nearest rank: the smallest one with at least that share of all samples
# at or below it, the inverse of the empirical distribution function (type 1 of Hyndman and Fan,
# Sample Quantiles in Statistical Packages, 1996). It is stated only from so many samples that the
# largest of them is, with 95 % confidence, not below the true quantile. That fails with probability
# share^n for n samples (Wilks, Determination of Sample Sizes for Setting Tolerance Limits, 1941),
# so that n >= log(0.05) / log(share): 5 for p50, 29 for p90 and 299 for p99.


_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def samples_needed(share: float) -> int:
    """The smallest number of samples from which the quantile of `share` (0 to 1) is stated."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


def stated_quantiles(ordered: Sequence[float]) -> tuple[dict[str, float], dict[str, int]]:
    """p50, p90 and p99 of ascending samples, and the samples needed for those not stated."""
    stated: dict[str, float] = {}
    needed: dict[str, int] = {}
    for name, share in _SHARES.items():
        if len(ordered) < samples_needed(share):
            needed[name] = samples_needed(share)
        else:
            stated[name] = percentile(list(ordered), share)
    return stated, needed


def thinned(ordered: Sequence[float], most: int = MAX_SAMPLES) -> tuple[float, ...]:
    """Ascending samples; of more than `most`, the quantiles at the middles of `most` even shares.

    The minimum and the maximum are then left out, and the median stays within one rank of its own.
    """
    count = len(ordered)
    if count <= most:
        return tuple(ordered)
    return tuple(ordered[(2 * index + 1) * count // (2 * most)] for index in range(most))


# This machine as it is compared with the one of an earlier measurement.


_CPUS: Final = Path("/sys/devices/system/cpu")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
# What arm64 states instead of a name.
_ARM_FIELDS: Final = ("CPU implementer", "CPU variant", "CPU part", "CPU revision")


def this_machine() -> Machine:
    """What decides how fast this machine is, as far as it says."""
    import platform

    host = probe(gpus=not missing_gpu())
    return Machine(
        cpu=cpu_name_in(system_text(Path("/proc/cpuinfo"))) or platform.processor(),
        architecture=host.architecture,
        isa=host.isa,
        cores=usable_cores(),
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        quota=quota_in(system_text(_QUOTA)),
        governor=_governor(),
        gpus=host.gpus,
        nvidia_driver=host.nvidia_driver,
    )


def cpu_name_in(cpuinfo: str) -> str:
    """The model of the first CPU in the text of /proc/cpuinfo; empty if it states none."""
    fields: dict[str, str] = {}
    for line in cpuinfo.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("model name"):
        stepping = fields.get("stepping", "")
        family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
        # Clouds give processors of several generations one name.
        return f"{fields['model name']} ({family} stepping {stepping or '?'})"
    return ", ".join(f"{name} {fields[name]}" for name in _ARM_FIELDS if fields.get(name))


def quota_in(text: str) -> float | None:
    """The processors that the text of cpu.max (control groups, version 2) allows; None: all."""
    found = re.fullmatch(r"(\d+) (\d+)", text.strip())
    if found is None or int(found[2]) == 0:
        return None
    return round(int(found[1]) / int(found[2]), 3)


def _governor() -> str:
    """The governors of all CPUs' frequencies, each once; empty where the system says none."""
    found = {system_text(path).strip() for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(found - {""}))
