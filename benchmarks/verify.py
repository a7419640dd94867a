"""Bytes a second of `aotc verify` against `sha256sum` on the same files, on one core and on two.

Some builds of `sha256sum` do without the processor's SHA instructions, and are easily beaten: so
Python's `hashlib`, which reads the same files in one thread, stands beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks.fresh import AOTC, ROOT, child, pinned
from benchmarks.result import Result, Row, beside
from benchmarks.workshop import Workshop

ROUNDS = 5
LEAST = 0.9


def run(workshop: Workshop) -> Result:
    """By turns; the files are in the page cache before."""
    artifact = workshop.artifact("dense", "edge")
    files = sorted(str(path) for path in (artifact / "payload").rglob("*") if path.is_file())
    size = sum(Path(file).stat().st_size for file in files)
    command = [str(AOTC), "verify", str(artifact), "--key", str(workshop.key()[1]), "--json"]
    available = sorted(os.sched_getaffinity(0))
    cores: dict[str, list[int]] = {"one core": available[:1], "two cores": available[:2]}
    samples: dict[str, list[float]] = {}
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"round {index}")
        for label, cpus in cores.items():
            seconds, _ = _timed(pinned(["sha256sum", "--binary", *files], cpus))
            _, hashed = _timed(pinned(child("verify:hash_files", files), cpus))
            wall, printed = _timed(pinned(command, cpus))
            report = json.loads(printed)
            if index:
                samples.setdefault(f"{label} sha256sum", []).append(size / seconds)
                samples.setdefault(f"{label} hashlib", []).append(size / float(hashed))
                rate = report["bytes_hashed"] / report["seconds"]
                samples.setdefault(f"{label} verify", []).append(rate)
                samples.setdefault(f"{label} command", []).append(size / wall)
    return Result(rows=tuple(_rows(samples, workshop.model("dense").title)), samples=samples)


def _timed(command: list[str]) -> tuple[float, str]:
    started = time.perf_counter()
    result = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
    )
    return time.perf_counter() - started, result.stdout


def hash_files(files: list[str]) -> float:
    """In a fresh process: the seconds that hashing takes in one thread."""
    started = time.perf_counter()
    for file in files:
        with Path(file).open("rb") as stream:
            hashlib.file_digest(stream, "sha256")
    return time.perf_counter() - started


def _rows(samples: dict[str, list[float]], title: str) -> list[Row]:
    rows = []
    ratios = {
        label: median(samples[f"{label} verify"]) / median(samples[f"{label} sha256sum"])
        for label in ("one core", "two cores")
    }
    for label, ratio in ratios.items():
        ours, theirs, whole = (
            median(samples[f"{label} {what}"]) / 1e9 for what in ("verify", "sha256sum", "command")
        )
        one = label == "one core"
        rows.append(
            Row(
                what=f"{title}: bytes a second of verify to sha256sum, {label}",
                asked=f"≥ {LEAST:g}" if one else "more than on one core",
                measured=f"{ratio:.3f} ({ours:.2f} to {theirs:.2f} GB/s;"
                f" {whole:.2f} with the start of Python)",
                held=ratio >= LEAST if one else ratio > ratios["one core"],
            )
        )
        alone = median(samples[f"{label} hashlib"]) / 1e9
        rows.append(
            beside(
                f"{title}: bytes a second of verify to hashlib, {label}",
                ours / alone,
                f"{ours:.2f} to {alone:.2f} GB/s",
            )
        )
    return rows
