"""Artifacts whose ranges of activations follow by each method from the user's data."""

from __future__ import annotations

import numpy as np
import pytest
from made_profiles import profile_with
from repository import ROOT
from workbench import Workbench

DIGITS = ROOT / "examples" / "digits"
_LOOSE = {"atol": 0.01, "rtol": 0.2, "min_cosine": 0.98, "max_slice": 0.5}


@pytest.mark.parametrize("method", ["auto", "minmax", "percentile", "entropy"])
def test_digits_are_told_with_ranges_by(
    method: str, bench: Workbench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = tmp_path_factory.mktemp("data") / "calibration.npz"
    held = np.load(DIGITS / "heldout.npz")
    np.savez(data, image=held["image"][:100])
    profile = profile_with(
        "edge",
        precision="int8",
        # Values that the entropy method leaves out are off by more than a rounding.
        parity={"random_shapes": 0, "int8": _LOOSE},
        calibration={"data": str(data), "method": method, "percentile": 99.99},
    )
    built = bench.build(DIGITS / "digits.onnx", f"digits-{method}", profile=profile)
    (change,) = (p for p in built.manifest.variants[0].passes if p.name == "quantize")
    assert (change.options["form"], change.options["method"]) == ("static", method)
    with bench.load(built) as model:
        found = model.run({"image": held["image"][100:]})["logits"]
    assert (found.argmax(1) == held["label"][100:]).mean() > 0.9
