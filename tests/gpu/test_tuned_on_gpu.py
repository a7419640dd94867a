"""`--tune` with the built-in profile: the forms of the graph are proven and timed, captured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import residual
from on_gpu import CUDA, note

import aotc

pytestmark = pytest.mark.gpu
EXPORTS = Path(__file__).parents[1] / "data" / "exports"


# The forms are timed.
@pytest.mark.alone
@pytest.mark.parametrize("network", ["bert", "residual"])
def test_forms_are_measured_and_the_fastest_is_taken(network: str, tmp_path: Path) -> None:
    source, dims = EXPORTS / "bert.onnx", {"batch": 2, "sequence": 16}
    if network == "residual":
        source, dims = tmp_path / "residual.onnx", {"batch": 4}
        source.write_bytes(residual(18, np.float32, width=16, blocks=3))
    output = tmp_path / "tuned.aotc"
    report = aotc.build(
        source, profile="server-cuda", output=output, dims=dims, tune=True, cache=False
    )
    table = report.tuning
    note(
        f"--tune of {network}",
        [[row.fusion, row.layout, row.median_seconds, row.reason, row.chosen] for row in table],
    )
    assert {(row.fusion, row.layout) for row in table} == {
        (fusion, layout) for fusion in ("auto", "none") for layout in ("auto", "nhwc", "nchw")
    }
    timed = [row for row in table if row.passed]
    assert all(row.median_seconds for row in timed)
    assert {row.fusion for row in timed} == {"auto", "none"}
    (chosen,) = (row for row in table if row.chosen)
    assert chosen.median_seconds == min(row.median_seconds or 1 for row in timed)
    with aotc.load(output) as model:
        assert model.variant.parity.status == "passed"
        assert model.variant.placement.share[CUDA] > 0.9
        assert model._runners[0].captured
        fused = any(one.name.startswith("fuse-") and one.matched for one in model.variant.passes)
        assert fused == (network == "bert" and chosen.fusion == "auto")
