"""Accuracy of static int8 on handwritten digits that its calibration did not see.

The held-out images of examples/digits are halved: on one half activations are observed, on the
other the labels are compared, with float32 and int8 alike.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh import ROOT, run_fresh
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop, sources_digest

EXAMPLE = ROOT / "examples" / "digits"
# In points, of 100.
LARGEST_DROP = 0.5


def run(workshop: Workshop) -> Result:
    """One build, and one answer of each side for all images of the second half."""
    folder = workshop.folder / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    held = np.load(EXAMPLE / "heldout.npz")
    order = np.random.default_rng(0).permutation(len(held["image"]))
    seen, unseen = np.array_split(order, 2)
    calibration, judged = folder / "calibration.npz", folder / "judged.npz"
    np.savez(calibration, image=held["image"][seen])
    np.savez(judged, image=held["image"][unseen], label=held["label"][unseen])
    fields = {
        "precision": "int8",
        "quantization": {"form": "static"},
        "calibration": {"data": str(calibration)},
        "dims": {"batch": f"1..{len(unseen)}"},
    }
    key = hashlib.sha256(sources_digest().encode()).hexdigest()[:12]
    found = run_fresh(
        "precision.digits_int8:accuracies",
        {
            "model": str(EXAMPLE / "digits.onnx"),
            "judged": str(judged),
            "profile": str(workshop.profile("digits-int8", fields)),
            "keys": [str(path) for path in workshop.key()],
            "output": str(folder / f"digits-{key}.aotc"),
        },
        store=workshop.store,
    )
    drop = round(100 * (found["float32"] - found["int8"]), 3)
    row = Row(
        what="Digits: points of accuracy that static int8 loses to float32",
        asked=f"≤ {LARGEST_DROP:g}",
        measured=f"{drop:.2f} ({found['float32']:.2%} to {found['int8']:.2%} of {len(unseen)} "
        f"images; {found['same']:.2%} have the same answer)",
        held=drop <= LARGEST_DROP,
    )
    return Result(rows=(row,))


def accuracies(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: build, and the share of right answers of both sides."""
    import onnxruntime as ort

    import aotc
    from aotc.pipeline.build import build

    private, public = request["keys"]
    build(
        request["model"],
        profile=request["profile"],
        key=private,
        output=request["output"],
        # Random pixels lie outside of what any digit has.
        fixtures=request["judged"],
        force=True,
        cache=False,
    )
    with np.load(request["judged"]) as judged:
        images, labels = judged["image"], judged["label"]
    session = ort.InferenceSession(request["model"], providers=["CPUExecutionProvider"])
    (expected,) = session.run(["logits"], {"image": images})
    with aotc.load(Path(request["output"]), key=public) as ready:
        found = ready.run({"image": images})["logits"]
    ours, theirs = found.argmax(axis=1), expected.argmax(axis=1)
    return {
        "int8": float((ours == labels).mean()),
        "float32": float((theirs == labels).mean()),
        "same": float((ours == theirs).mean()),
    }
