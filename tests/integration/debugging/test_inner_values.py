"""Values inside of variants that aotc itself quantized, against the model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from made_profiles import profile_with
from repository import ROOT
from workbench import Workbench

from aotc.tools.debug_parity import debug_parity

DIGITS = ROOT / "examples" / "digits"


def test_a_convolution_stands_for_its_normalization_and_its_activation(
    bench: Workbench, tmp_path: Path
) -> None:
    """Its weights have taken in the one, and the bounds of its integers are the other."""
    with np.load(DIGITS / "heldout.npz") as held:
        images = held["image"]
    np.savez(tmp_path / "calibration.npz", image=images[:100])
    np.savez(tmp_path / "given.npz", image=images[100:104])
    model = DIGITS / "digits.onnx"
    built = bench.build(
        model,
        "digits",
        profile=profile_with("edge", precision="int8"),
        calibration=tmp_path / "calibration.npz",
    )
    report = debug_parity(built.path, model=model, fixtures=tmp_path / "given.npz")
    assert not report.failed
    assert report.errors.first == ""
    assert all(error.passed for error in report.errors.nodes)
    covered = {name for error in report.errors.nodes for name in error.covers}
    assert {"node_conv2d", "node_relu"} <= covered
