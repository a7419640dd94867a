"""Whole builds of detectors in 8 bits: what is shipped must still detect.

The head joins boxes in pixels and scores of 0 to 1.  With one scale of 8 bits for both, every score
becomes 0, and the error is small beside the pixels.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.fresh import AOTC
from benchmarks.judge.faults import INTEGER_BAR
from benchmarks.judge.graphs import write_detector
from benchmarks.judge.slices import Array, Scales, Slice
from benchmarks.judge.variants import session

FORMS: Final = ("joined", "transposed", "flat")
PRECISIONS: Final = ("auto", "int8")
_WIDTH: Final = 64
_SIZE: Final = 96
_CELLS: Final = _SIZE * _SIZE // 16
_SEED: Final = 38
_SCORES: Final[Mapping[str, Slice]] = {
    "joined": Slice(1, 4, 84),
    "transposed": Slice(2, 4, 84),
    "flat": Slice(1, 4 * _CELLS, 84 * _CELLS),
}
_CODE: Final = re.compile(r"AOTC-[A-Z]\d{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What a build of a detector came to."""

    form: str
    precision: str
    found: str
    held: bool


def shipped(form: str, precision: str, folder: Path) -> Shipped:
    """Build a detector with calibration data, and ask what was built.

    A refusal with a code holds, and an artifact whose scores are off by less than a fault.
    """
    place = folder / f"{form}-{precision}"
    place.mkdir(parents=True, exist_ok=True)
    model, data, output = place / "detector.onnx", place / "data.npz", place / "detector.aotc"
    from aotc.trust import key_files

    write_detector(model, form=form, seed=_SEED, width=_WIDTH, size=_SIZE)
    rng = np.random.default_rng(_SEED)
    np.savez(data, image=rng.random((8, 3, _SIZE, _SIZE), np.float32))
    private, public = place / "bench.pem", place / "bench.pub"
    if not private.exists():
        private, public = key_files.generate(private)
    command = [str(AOTC), "build", str(model), "-o", str(output), "--force", "-q"]
    command += ["--dim", "batch=1..2", "--precision", precision, "--calibration", str(data)]
    command += ["--key", str(private)]
    done = subprocess.run(
        command,
        env={**os.environ, "HOME": str(place)},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    codes = sorted(set(_CODE.findall(done.stdout + done.stderr)))
    if done.returncode:
        found = f"refused: exit {done.returncode}, {', '.join(codes) or 'no code'}"
        return Shipped(form=form, precision=precision, found=found, held=bool(codes))
    given = {"image": rng.random((2, 3, _SIZE, _SIZE), np.float32)}
    wanted = session(model).run(None, given)[0]
    error = scores_error(form, wanted, _answer(output, public, given))
    return Shipped(
        form=form,
        precision=precision,
        found=f"shipped, scores off by {error:.1%} of their scale, {', '.join(codes) or 'no code'}",
        held=error < INTEGER_BAR,
    )


def _answer(artifact: Path, key: Path, given: Mapping[str, Any]) -> Array:
    import aotc

    with aotc.load(artifact, key=key) as ready:
        found: Array = ready.run(given)["detections"]
    return found


def scores_error(form: str, wanted: Array, found: Array) -> float:
    """The root mean square error of the scores in `detections`, as a share of their scale."""
    scales = Scales([wanted], [found], [np.zeros(wanted.shape, bool)])
    _, scale, error = scales.at(_SCORES[form])
    return float(error[0] / scale[0])
