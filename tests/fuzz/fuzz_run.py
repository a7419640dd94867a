"""Runs targets under the fuzzer, in separate processes, two at a time."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import resource
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz_target import CORPUS, IN_MEMORY, Target, load

CHILD = Path(__file__).resolve().with_name("fuzz_child.py")
WORKERS = 2
# An input that takes this long hangs; and no reader needs this much memory.
INPUT_SECONDS = 60
MEMORY_MIB = 2048
# Of one target's corpus, in bytes.
MOST_KEPT = 96 << 10


@dataclass(frozen=True)
class Outcome:
    """What a run found; `crash` is the input that broke a target."""

    target: str
    executions: int
    coverage: int
    features: int
    crash: bytes | None
    log: str

    def __str__(self) -> str:
        line = (
            f"{self.target:12} {self.executions:9} inputs, {self.coverage} edges, "
            f"{self.features} features"
        )
        if self.crash is None:
            return line
        text = base64.b64encode(self.crash).decode()
        return f"{line}\n{self.log}\nThe input, in base64:\n{text}"


def can_fuzz() -> bool:
    """Whether the fuzzer is installed; many systems have no package of it."""
    return importlib.util.find_spec("atheris") is not None


def fuzz(
    names: Iterable[str], seconds: int, *, grow: bool = False, keep: Path | None = None
) -> Iterator[Outcome]:
    """Fuzz each target, for about `seconds` in total; raises RuntimeError if one cannot start.

    With `grow`, inputs that reach new code are kept in the corpus of the repository; with `keep`,
    all of them in `keep/corpus`, from which the next run goes on, and what breaks a target in
    `keep/crashes`, named by the target, the seed of the run and its own digest.
    """
    listed = list(names)
    share = max(1, seconds * min(WORKERS, len(listed)) // len(listed))
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from pool.map(lambda name: _fuzz(load(name), share, grow, keep), listed)


def merge(name: str) -> None:
    """Minimize the kept corpus, keeping the coverage that it and the seeds have."""
    target = load(name)
    with tempfile.TemporaryDirectory(prefix="aotc-fuzz-") as place:
        _write_seeds(target, Path(place) / "found")
        _merge(target, Path(place))


def _merge(target: Target, folder: Path) -> None:
    """Keep of `found` what its coverage needs, the smallest first, up to the limit."""
    small = folder / "small"
    small.mkdir()
    result = _run(target, folder, "-merge=1", str(small), str(folder / "found"))
    made = sorted((path.read_bytes() for path in small.iterdir()), key=len)
    if not made:
        raise RuntimeError(f"nothing is left of {target.name}:\n{_tail(result.stderr)}")
    kept = {hashlib.sha256(data).hexdigest()[:16]: data for data in made}
    place = CORPUS / target.name
    place.mkdir(parents=True, exist_ok=True)
    for path in target.kept():
        path.unlink()
    total = 0
    for name, data in kept.items():
        total += len(data)
        if total > MOST_KEPT:
            break
        (place / name).write_bytes(data)


def _fuzz(target: Target, seconds: int, grow: bool, keep: Path | None) -> Outcome:
    with tempfile.TemporaryDirectory(
        prefix="aotc-fuzz-", dir=IN_MEMORY, ignore_cleanup_errors=True
    ) as place:
        folder = Path(place)
        _write_seeds(target, folder / "found")
        words = folder / "words"
        # Zero would be one of libFuzzer's own choice, which nobody could repeat.
        seed = 1 + secrets.randbelow(2**31 - 1)
        words.write_text("".join(f'"{_escaped(item)}"\n' for item in sorted(target.words - {""})))
        result = _run(
            target,
            folder,
            f"-max_total_time={seconds}",
            *((f"-dict={words}",) if target.words else ()),
            "-print_final_stats=1",
            f"-seed={seed}",
            # What reaches more code is written into the first of them.
            *([str(_corpus(target, keep))] if keep is not None else []),
            str(folder / "found"),
        )
        crashes = sorted(folder.glob("bad-*"))
        if keep is not None and crashes:
            _keep_crash(target, keep, seed, crashes[0].read_bytes())
        if result.returncode and not crashes:
            raise RuntimeError(f"the fuzzer of {target.name} failed:\n{_tail(result.stderr)}")
        if grow and not crashes:
            _merge(target, folder)
        return Outcome(
            target.name,
            _number(r"stat::number_of_executed_units:\s+(\d+)", result.stderr),
            _number(r" cov: (\d+) ", result.stderr),
            _number(r" ft: (\d+) ", result.stderr),
            crashes[0].read_bytes() if crashes else None,
            _tail(result.stdout + result.stderr),
        )


def _corpus(target: Target, keep: Path) -> Path:
    place = keep / "corpus" / target.name
    place.mkdir(parents=True, exist_ok=True)
    return place


def _keep_crash(target: Target, keep: Path, seed: int, data: bytes) -> None:
    place = keep / "crashes"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{target.name}-{seed}-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)


def _peak_mib() -> int:
    """Memory attributed to a child before it starts: getrusage(2) counts its parent's peak."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _run(target: Target, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, str(CHILD), target.name, *words),
            f"-max_len={target.max_bytes}",
            f"-timeout={INPUT_SECONDS}",
            f"-rss_limit_mb={MEMORY_MIB + _peak_mib()}",
            f"-artifact_prefix={folder}/bad-",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # The fuzzer ends without a word to Python, whose temporary folders then stay.
        env={**os.environ, "TMPDIR": str(folder)},
    )


def _write_seeds(target: Target, folder: Path) -> None:
    """Write the initial inputs: the seeds and the kept corpus."""
    folder.mkdir()
    inputs = [*target.seeds(), *(path.read_bytes() for path in target.kept())]
    for number, data in enumerate(inputs):
        (folder / str(number)).write_bytes(data)


def _escaped(word: str) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"
        for byte in word.encode()
    )


def _number(pattern: str, text: str) -> int:
    """The last such number, or zero."""
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _tail(text: str) -> str:
    """The traceback of a crash, without the fuzzer's progress."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if "Uncaught Python" in line), len(lines) - 20)
    return "\n".join(lines[max(0, start) : start + 60])
