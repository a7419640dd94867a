"""Answers of the reference that are drawn from seeds must repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from model_parts import info, model_of, node
from refusals import refusal

from aotc.graph.symbols import Symbols
from aotc.sizes.inputs.fixtures import FixtureInputs
from aotc.sizes.reference import Reference
from aotc.spec.payload import Value


@pytest.mark.parametrize("anew", [False, True])
def test_what_goes_on_drawing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    # Where runs are noted.
    monkeypatch.chdir(tmp_path)
    model = model_of(
        [node("RandomNormalLike", "x", "y", "dice", seed=5.0)],
        [info("x", [4])],
        [info("y", [4])],
        opset=17,
        ir_version=9,
    )
    if anew:
        model.metadata_props.add(key="aotc.random", value="seed")
    path = tmp_path / "drawing.onnx"
    path.write_bytes(model.SerializeToString())
    one = {"kind": "tensor", "dtype": "float32", "shape": (4,)}
    reference = Reference(
        model=path,
        graph=path,
        weights=tmp_path,
        symbols=Symbols(declared=(Value(name="x", **one),)),
        outputs=(Value(name="y", **one),),
        hints={},
        seed=1,
    )
    fixture = FixtureInputs("opt", {"x": np.zeros(4, np.float32)}, {})
    if anew:
        reference.require_repeats(fixture)
        return
    error = refusal(reference.require_repeats, fixture)
    assert (error.code, error.where) == ("AOTC-N063", "output y, fixture opt")
    assert error.exit_status == 3
