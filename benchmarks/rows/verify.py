"""Verification of 4 GB, compared with `sha256sum` and `model_signing verify`, on one and two cores.

Some builds of `sha256sum` do not use the processor's SHA instructions, and are easily beaten.
Python's `hashlib`, reading the same files in one thread, is therefore measured too.  For
`model_signing` both sides are complete commands, with the same signature.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.fresh import AOTC, ROOT, fresh_command, pinned_command
from benchmarks.result import Result, Row, at_most, ratio_of_medians, unjudged
from benchmarks.workshop import Workshop

ROUNDS = 5
MIN_RATIO = 0.9
# Limits as a share of the time of `model_signing verify`.
SIGNING_LIMITS = {"one core": 1.0, "two cores": 0.6}
MEMORY_LIMIT = 150_000_000
MODEL = "dense4"


@dataclass(frozen=True, slots=True)
class _Ran:
    seconds: float
    printed: str
    peak: int
    """The maximum resident set size in bytes."""


def run(workshop: Workshop) -> Result:
    """Measure alternately; the files are in the page cache before."""
    artifact = workshop.artifact(MODEL, "edge")
    files = sorted(str(path) for path in (artifact / "payload").rglob("*") if path.is_file())
    size = sum(Path(file).stat().st_size for file in files)
    public = str(workshop.key()[1])
    command = [str(AOTC), "verify", str(artifact), "--key", public, "--json"]
    other = [sys.executable, "-m", "model_signing", "verify", "key", str(artifact / "payload")]
    other += ["--signature", str(artifact / "attestations" / "oms.sigstore.json")]
    other += ["--public_key", public]
    available = sorted(os.sched_getaffinity(0))
    cores: dict[str, list[int]] = {"one core": available[:1], "two cores": available[:2]}
    samples: dict[str, list[float]] = {}
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"round {index}")
        for label, cpus in cores.items():
            sums = _timed(pinned_command(["sha256sum", "--binary", *files], cpus))
            hashed = _timed(pinned_command(fresh_command("rows.verify:hash_files", files), cpus))
            ours = _timed(pinned_command(command, cpus))
            theirs = _timed(pinned_command(other, cpus))
            report = json.loads(ours.printed)
            if index:
                found = {
                    "sha256sum": size / sums.seconds,
                    "hashlib": size / float(hashed.printed),
                    "verify": report["hashed_bytes"] / report["seconds"],
                    "command": ours.seconds,
                    "model_signing": theirs.seconds,
                    "memory": float(ours.peak),
                }
                for what, value in found.items():
                    samples.setdefault(f"{label} {what}", []).append(value)
    return Result(rows=tuple(_rows(samples, workshop.model(MODEL).title)), samples=samples)


def _timed(command: list[str]) -> _Ran:
    started = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    # Linux counts kilobytes.
    return _Ran(time.perf_counter() - started, printed, used.ru_maxrss * 1024)


def hash_files(files: list[str]) -> float:
    """In a fresh process: the seconds of hashing in one thread."""
    started = time.perf_counter()
    for file in files:
        with Path(file).open("rb") as stream:
            hashlib.file_digest(stream, "sha256")
    return time.perf_counter() - started


def _rows(samples: dict[str, list[float]], title: str) -> list[Row]:
    rows = []
    ratios = {
        label: median(samples[f"{label} verify"]) / median(samples[f"{label} sha256sum"])
        for label in SIGNING_LIMITS
    }
    for label, ratio in ratios.items():
        ours, theirs = (
            median(samples[f"{label} {what}"]) / 1e9 for what in ("verify", "sha256sum")
        )
        one = label == "one core"
        rows.append(
            Row(
                what=f"{title}: bytes a second of verify to sha256sum, {label}",
                asked=f"≥ {MIN_RATIO:g}" if one else "more than on one core",
                measured=f"{ratio:.3f} ({ours:.2f} to {theirs:.2f} GB/s)",
                held=ratio >= MIN_RATIO if one else ratio > ratios["one core"],
            )
        )
        alone = median(samples[f"{label} hashlib"]) / 1e9
        rows.append(
            unjudged(
                f"{title}: bytes a second of verify to hashlib, {label}",
                ours / alone,
                f"{ours:.2f} to {alone:.2f} GB/s",
            )
        )
    for label, limit in SIGNING_LIMITS.items():
        both = [samples[f"{label} {what}"] for what in ("command", "model_signing")]
        rows.append(
            at_most(
                f"{title}: seconds of aotc verify to model_signing verify, {label}",
                ratio_of_medians(*both),
                limit,
                " to ".join(f"{median(seconds):.2f} s" for seconds in both),
            )
        )
    peak = max(max(samples[f"{label} memory"]) for label in SIGNING_LIMITS)
    rows.append(
        Row(
            what=f"{title}: resident memory of aotc verify, at most",
            asked=f"≤ {MEMORY_LIMIT / 1e6:.0f} MB",
            measured=f"{peak / 1e6:.0f} MB",
            held=peak <= MEMORY_LIMIT,
        )
    )
    return rows
