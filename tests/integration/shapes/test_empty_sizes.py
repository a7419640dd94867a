"""Size 0 of an unbounded dim, at which a variant answers differently from the model.

The defect is planted where a kernel that leaves memory unset would cause it.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from made_profiles import profile_with
from onnx import TensorProto, helper
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline import prove as proving
from aotc.pipeline.context import BuildState
from aotc.pipeline.prove import prove as prove_right
from aotc.pipeline.types import JudgedVariant, LoweredModel
from aotc.spec.run_report import Journal

FLOAT = TensorProto.FLOAT


def joined(batch: int | str = 1) -> onnx.ModelProto:
    """The input is concatenated to a past, which may be empty."""
    graph = helper.make_graph(
        [helper.make_node("Concat", ["past", "x"], ["y"], axis=1)],
        "joined",
        [
            helper.make_tensor_value_info("past", FLOAT, [batch, "past"]),
            helper.make_tensor_value_info("x", FLOAT, [batch, "length"]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, [batch, None])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plant(monkeypatch: pytest.MonkeyPatch, dim: str = "past") -> None:
    """Every variant is wrong at the fixtures of size 0 of `dim`."""

    def prove(lowered: LoweredModel, state: BuildState, plain: int | None) -> JudgedVariant:
        analyzed = lowered.analyzed
        judged = prove_right(lowered, state, plain)
        other = () if judged.breach is None else (judged.breach,)
        for reference in analyzed.references:
            if reference.sizes[dim] == 0:
                where = f"variant portable, fixture {reference.name}"
                wrong = AotcError("AOTC-N001", "output 'y' differs", where=where, also=other)
                judged, other = replace(judged, breach=wrong), (wrong, *other)
        return judged

    monkeypatch.setattr(proving, "prove", prove)


def test_a_range_begins_above_0_if_a_variant_fails_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Workbench.at(tmp_path)
    assert bench.build(joined(), "right").manifest.domain.dims["past"].min == 0
    plant(monkeypatch)
    journal = Journal()
    built = bench.build(joined(), "wrong", cache=False, journal=journal)
    assert built.manifest.domain.dims["past"].min == 1
    assert "AOTC-N001" in built.finding("AOTC-S027")
    # Nothing is left in a report of what the first analysis found.
    assert set(journal.findings) == set(built.report.findings)


def test_size_0_that_is_stated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AotcError) as refused:
        Workbench.at(tmp_path).build(joined(), "stated", dims={"past": "0..8"}, cache=False)
    assert refused.value.code == "AOTC-N001"


def test_size_0_of_a_dim_that_nobody_stated_is_left_out_beside_one_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "batch")
    built = Workbench.at(tmp_path).build(
        joined("batch"), "beside", dims={"past": "0..8"}, cache=False
    )
    dims = built.manifest.domain.dims
    assert (dims["batch"].min, dims["past"].min) == (1, 0)


def test_a_budget_that_is_exceeded_as_well_hides_no_failure_at_size_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range begins above 0 as ever, and what is left is the budget."""
    plant(monkeypatch)
    profile = profile_with("edge", budgets={"peak_memory_bytes": 1000})
    with pytest.raises(AotcError) as refused:
        Workbench.at(tmp_path).build(joined(), "both", profile=profile, cache=False)
    assert [error.code for error in (refused.value, *refused.value.also)] == ["AOTC-M002"]
