"""The whole line on a real model: build, verify, inspect, load, run, and a refusal.

Run by `make demo`; everything that it writes stays in build/demo.  The exit status is 1 where
anything differs from what this file expects.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

import aotc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "demo"
SOURCE = HERE / "digits.onnx"
HELD_OUT = HERE / "heldout.npz"
ARTIFACT = WORK / "digits.aotc"
TAMPERED = WORK / "tampered.aotc"
PRIVATE = WORK / "release.pem"
PUBLIC = WORK / "release.pub"
STORE = WORK / "store"

EXPECTED_ACCURACY = 0.98
# The tolerance of the profile's parity for float32: absolute, and relative to the largest logit.
ATOL, RTOL = 1e-5, 1e-3
DIGEST_MISMATCH = "AOTC-G005"


class Unexpected(Exception):
    """Something differs from what this demo expects."""


def expect(holds: bool, what: str) -> None:
    """Raise `Unexpected` unless `holds`."""
    if not holds:
        raise Unexpected(what)


def aotc_command(*arguments: str | Path, status: int = 0) -> str:
    """Run the `aotc` command, show it and what it prints, and return that; expect `status`."""
    words = [str(word.relative_to(ROOT)) if isinstance(word, Path) else word for word in arguments]
    print(f"\n$ aotc {shlex.join(words)}", flush=True)
    started = time.perf_counter()
    result = subprocess.run(
        [str(Path(sys.executable).with_name("aotc")), *words],
        cwd=ROOT,
        env={**os.environ, "AOTC_STORE": str(STORE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(result.stdout.rstrip())
    print(f"(exit status {result.returncode}, {time.perf_counter() - started:.1f} s)")
    expect(
        result.returncode == status,
        f"aotc {words[0]} ended with status {result.returncode}, expected {status}",
    )
    return result.stdout


def accuracy(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
    """The share of rows of `logits` [images, 10] whose largest is that of the label."""
    return float((logits.argmax(axis=1) == labels).mean())


def compare_accuracy() -> None:
    """Source and artifact answer the same held-out images."""
    held_out = np.load(HELD_OUT)
    images, labels = held_out["image"], held_out["label"]
    plain = ort.InferenceSession(SOURCE, providers=["CPUExecutionProvider"])
    source = np.asarray(plain.run(["logits"], {"image": images})[0])
    with aotc.load(ARTIFACT, key=PUBLIC, store=STORE) as model:
        built = np.asarray(model.run({"image": images})["logits"])
        report = model.report
    error = float(np.abs(built - source).max())
    print(f"\n{len(labels)} held-out images         accuracy")
    print(f"  source, ONNX Runtime      {accuracy(source, labels):.4f}")
    print(f"  artifact, {report.variant:<14}  {accuracy(built, labels):.4f}")
    print(f"  largest difference of a logit: {error:.2e}")
    print(
        f"  load: verify {report.verify_seconds * 1e3:.0f} ms,"
        f" session {report.session_seconds * 1e3:.0f} ms,"
        f" warm-up of {report.fixtures} fixtures {report.warmup_seconds * 1e3:.0f} ms"
    )
    expect(accuracy(source, labels) >= EXPECTED_ACCURACY, "the source is not accurate")
    expect(accuracy(built, labels) == accuracy(source, labels), "the accuracies differ")
    expect(error <= ATOL + RTOL * float(np.abs(source).max()), "the logits differ")


def flip_one_byte() -> Path:
    """Copy the artifact, change one byte in the middle of its weights, and name the file."""
    shutil.copytree(ARTIFACT, TAMPERED)
    payload = TAMPERED / "payload"
    files = [p for p in payload.rglob("*") if p.is_file() and p.parent.name != "fixtures"]
    largest = max((p for p in files if p.suffix != ".json"), key=lambda p: p.stat().st_size)
    largest.chmod(0o644)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    return largest.relative_to(payload)


def refuse_the_flipped_byte() -> None:
    """Neither `aotc verify` nor `aotc.load` accepts the changed copy."""
    file = flip_one_byte()
    print(f"\nOne byte of {file} is flipped in a copy.")
    printed = aotc_command("verify", TAMPERED, "--key", PUBLIC, status=1)
    expect(DIGEST_MISMATCH in printed, f"the refusal does not say {DIGEST_MISMATCH}")
    try:
        # A store of its own, as on another machine: in the other one lies an intact copy.
        aotc.load(TAMPERED, key=PUBLIC, store=WORK / "another-store")
    except aotc.AotcError as error:
        print(f"\naotc.load refuses it too: {error.line()}")
        expect(error.code == DIGEST_MISMATCH, f"aotc.load refused with {error.code}")
    else:
        raise Unexpected("aotc.load accepted a changed file")


def clear() -> None:
    """An empty folder for this run; the store of an earlier one is read-only."""
    for folder in [WORK, *WORK.rglob("*")]:
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o755)
    if WORK.exists():
        shutil.rmtree(WORK)
    WORK.mkdir(parents=True)


def main() -> int:
    """Run the demo; 0 where everything was as expected."""
    started = time.perf_counter()
    clear()
    try:
        aotc_command("keygen", "-o", PRIVATE)
        aotc_command("build", SOURCE, "--profile", "edge", "--key", PRIVATE, "-o", ARTIFACT)
        aotc_command("verify", ARTIFACT, "--key", PUBLIC)
        aotc_command("inspect", ARTIFACT)
        compare_accuracy()
        refuse_the_flipped_byte()
    except (Unexpected, aotc.AotcError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    print(f"\nAll as expected, in {time.perf_counter() - started:.0f} s. See build/demo.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
