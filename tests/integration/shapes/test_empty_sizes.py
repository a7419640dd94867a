"""Size 0 of an unbounded dim, at which a variant answers differently from the model.

The defect is planted where a kernel that leaves memory unset would cause it.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from workbench import Workbench

import aotc.pipeline
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.prove import prove as prove_right
from aotc.stages.types import LoweredModel, ProvenModel

FLOAT = TensorProto.FLOAT


def joined() -> onnx.ModelProto:
    """The input is concatenated to a past, which may be empty."""
    graph = helper.make_graph(
        [helper.make_node("Concat", ["past", "x"], ["y"], axis=1)],
        "joined",
        [
            helper.make_tensor_value_info("past", FLOAT, [1, "past"]),
            helper.make_tensor_value_info("x", FLOAT, [1, "length"]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, [1, None])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variant is wrong at the fixtures of size 0."""

    def prove(lowered: LoweredModel, options: BuildOptions) -> ProvenModel:
        analyzed = lowered.analyzed
        for reference in analyzed.references:
            if 0 in reference.sizes.values():
                where = f"variant portable, fixture {reference.name}"
                raise AotcError("AOTC-N001", "output 'y' differs", where=where)
        return prove_right(lowered, options)

    monkeypatch.setattr(aotc.pipeline, "prove", prove)


def test_a_range_begins_above_0_if_a_variant_fails_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Workbench.at(tmp_path)
    assert bench.build(joined(), "right").manifest.domain.dims["past"].min == 0
    plant(monkeypatch)
    built = bench.build(joined(), "wrong", cache=False)
    assert built.manifest.domain.dims["past"].min == 1
    assert "AOTC-N001" in built.finding("AOTC-S027")


def test_size_0_that_is_stated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AotcError) as refused:
        Workbench.at(tmp_path).build(joined(), "stated", dims={"past": "0..8"}, cache=False)
    assert refused.value.code == "AOTC-N001"
