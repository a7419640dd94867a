"""Branches and loops of real builds: what the fixtures ran, found inputs, findings and the gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_models import linear
from made_profiles import profile_with
from model_parts import constant, info, model_of, node
from onnx import TensorProto, helper
from refusals import refusal
from workbench import Built, Workbench

from aotc import inspect
from aotc.report.html.artifact_page import artifact_page
from aotc.report.markdown import as_markdown
from aotc.report.sheets.artifact import inspect_view
from aotc.spec.codec import encode
from aotc.spec.run_report import Journal

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def graph(*nodes: onnx.NodeProto, out: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, f"of_{out}", [], [info(out, None)])


def choice(
    condition: str, out: str, name: str, then: onnx.NodeProto | None = None
) -> onnx.NodeProto:
    taken = then or node("Tanh", "x", f"{name}_t", f"{name}_tanh")
    return node(
        *("If", condition, out, name),
        then_branch=graph(taken, out=taken.output[0]),
        else_branch=graph(node("Neg", "x", f"{name}_e", f"{name}_neg"), out=f"{name}_e"),
    )


def model(*nodes: onnx.NodeProto, more: Sequence[Any] = (), **constants: Any) -> onnx.ModelProto:
    tensors = [constant(name, value) for name, value in constants.items()]
    return model_of(nodes, [info("x", ["n", 4]), *more], [info("y", None)], tensors)


def above(limit: float, op: str = "Greater", **choices: Any) -> onnx.ModelProto:
    """An If by the sum of all elements."""
    return model(
        node("ReduceSum", "x", "s", "sum", keepdims=0),
        node(op, "s limit", "c", "compare"),
        choice("c", "y", "pick", **choices),
        limit=np.float32(limit),
    )


def paths(built: Built) -> dict[str, tuple[int, bool]]:
    return {
        f"{each.node} {each.path}": (each.fixtures, each.missing)
        for each in built.manifest.branches
    }


def told(built: Built, code: str) -> list[str]:
    return [found.what for found in built.manifest.findings if found.code == code]


def test_a_branch_that_values_reach_is_searched_for_and_compared(bench: Workbench) -> None:
    built = bench.build(above(1e6), "found", cache=False)
    ran = paths(built)
    assert ran["pick then_branch"][0] == 1
    assert ran["pick else_branch"][0] == len(built.report.variants[0].comparisons) - 1
    assert not any(missing for _, missing in ran.values())
    (text,) = told(built, "AOTC-N047")
    assert text.startswith("then_branch of If 'pick' was not run before")
    assert "x: one value above 1e+06" in text
    assert built.report.variants[0].comparisons[-1].fixture == "shown0"


def test_a_branch_that_nothing_reaches_is_told(bench: Workbench) -> None:
    never = model(
        node("ReduceSum", "x", "s", "sum", keepdims=0),
        node("Abs", "s", "size", "size"),
        node("Less", "size limit", "c", "compare"),
        choice("c", "y", "pick"),
        limit=np.float32(-1),
    )
    built = bench.build(never, "never", cache=False)
    assert paths(built)["pick then_branch"] == (0, True)
    (text,) = told(built, "AOTC-N048")
    assert text.startswith("then_branch of If 'pick' was not run by the proof: none of ")


@pytest.mark.parametrize(
    ("nodes", "more", "constants", "expected"),
    [
        pytest.param(
            [choice("b", "y", "pick")],
            [info("b", [], BOOL)],
            {},
            {"pick then_branch", "pick else_branch"},
            id="truth value",
        ),
        pytest.param(
            [node("Equal", "mode other", "c", "compare"), choice("c", "y", "pick")],
            [info("mode", [], INT64)],
            {"other": np.array(77)},
            {"pick then_branch", "pick else_branch"},
            id="integer",
        ),
        pytest.param(
            [choice("b", "y", "outer", choice("c", "in", "inner"))],
            [info("b", [], BOOL), info("c", [], BOOL)],
            {},
            {f"{name} {path}_branch" for name in ("inner", "outer") for path in ("then", "else")},
            id="nested",
        ),
        pytest.param(
            [
                node("Shape", "x", "sizes", "shape"),
                node("Gather", "sizes first", "n", "gather"),
                node("Equal", "n wanted", "c", "compare"),
                choice("c", "y", "pick"),
            ],
            [],
            {"first": np.array(0), "wanted": np.array(37)},
            {"pick then_branch", "pick else_branch"},
            id="size",
        ),
    ],
)
def test_each_kind_of_condition_is_searched(
    bench: Workbench,
    nodes: Sequence[onnx.NodeProto],
    more: Sequence[Any],
    constants: dict[str, Any],
    expected: set[str],
) -> None:
    built = bench.build(model(*nodes, more=more, **constants), "kind", cache=False)
    assert {name for name, (count, _) in paths(built).items() if count} == expected
    assert "AOTC-N048" not in built.codes()
    assert "AOTC-N047" in built.codes()


def test_an_if_in_a_function_is_seen(bench: Workbench) -> None:
    function = helper.make_function(
        *("own", "Pick", ["x"], ["y"]),
        [
            node("ReduceSum", "x", "s", "sum", keepdims=0),
            node("Constant", "", "limit", "limit", value_float=-1.0),
            node("Abs", "s", "size", "size"),
            node("Less", "size limit", "c", "compare"),
            choice("c", "y", "inside"),
        ],
        [helper.make_opsetid("", 21)],
    )
    made = model_of(
        [helper.make_node("Pick", ["x"], ["y"], name="call", domain="own")],
        [info("x", ["n", 4])],
        [info("y", None)],
        domains=["own"],
        functions=[function],
    )
    built = bench.build(made, "function", cache=False)
    (text,) = told(built, "AOTC-N048")
    assert "inside" in text


def loop(trips: str, condition: str = "-", inner: Sequence[onnx.NodeProto] = ()) -> onnx.NodeProto:
    body = helper.make_graph(
        [
            node("Add", "total x", "sum", "add"),
            *(inner or [node("Identity", "going", "again", "again")]),
        ],
        "body",
        [info("trip", [], INT64), info("going", [], BOOL), info("total", None)],
        [info("again", [], BOOL), info("sum", None)],
    )
    return node("Loop", f"{trips} {condition} x", "y", "turns", body=body)


def test_trips_of_loops_are_counted(bench: Workbench) -> None:
    three = bench.build(model(loop("three"), three=np.array(3)), "three", cache=False)
    ran = paths(three)
    fixtures = len(three.report.variants[0].comparisons)
    assert ran == {
        "turns 0 trips": (0, False),
        "turns 1 trip": (0, False),
        "turns many trips": (fixtures, False),
    }
    asked = bench.build(model(loop("k"), more=[info("k", [], INT64)]), "asked", cache=False)
    assert paths(asked)["turns many trips"][0]
    # A loop whose count is fixed runs as often as it can.
    for count in (0, 1):
        fixed = bench.build(model(loop("k"), k=np.array(count)), f"fixed{count}", cache=False)
        assert not {"AOTC-N047", "AOTC-N048"} & set(fixed.codes())


def test_a_body_that_never_runs_is_told(bench: Workbench) -> None:
    made = model(
        node("ReduceSum", "x", "s", "sum", keepdims=0),
        node("Abs", "s", "size", "size"),
        node("Less", "size limit", "c", "compare"),
        loop("three", "c"),
        limit=np.float32(-1),
        three=np.array(3),
    )
    (text,) = told(bench.build(made, "never", cache=False), "AOTC-N048")
    assert text.startswith("the body of Loop 'turns' was not run by the proof")


def test_a_search_ends_loops_without_end(bench: Workbench) -> None:
    """Doubled, a positive number leaves the loop, and a negative one never does."""
    body = helper.make_graph(
        [
            node("Add", "total total", "sum", "add"),
            node("ReduceMax", "sum", "most", "most", keepdims=0),
            node("Less", "most limit", "again", "less"),
        ],
        "body",
        [info("trip", [], INT64), info("going", [], BOOL), info("total", None)],
        [info("again", [], BOOL), info("sum", None)],
    )
    made = model(node("Loop", "- - x", "y", "turns", body=body), limit=np.float32(-1e3))
    # Which counts as a hang after a minute; but that is not what is tried here.
    (bench.folder / "hangs.yaml").write_text(
        "schema: aotc.profile/1\nname: hangs\nprobe: {run_seconds: 1}\n"
    )
    built = bench.build(made, "endless", cache=False, profile=bench.folder / "hangs.yaml")
    (text,) = told(built, "AOTC-N048")
    assert "for more than one trip" in text


def test_scans_are_counted(bench: Workbench) -> None:
    body = helper.make_graph(
        [node("Add", "state row", "next", "add"), node("Identity", "next", "out", "out")],
        "body",
        [info("state", [4]), info("row", [4])],
        [info("next", [4]), info("out", [4])],
    )
    scan = node("Scan", "zeros x", "last y", "steps", body=body, num_scan_inputs=1)
    built = bench.build(model(scan, zeros=np.zeros(4, np.float32)), "scan", cache=False)
    assert paths(built)["steps many trips"][0]
    assert "AOTC-N048" not in built.codes()


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param([choice("truth", "y", "pick")], id="constant"),
        pytest.param(
            [
                node("Shape", "x", "sizes", "shape"),
                node("Gather", "sizes second", "n", "gather"),
                node("Equal", "n five", "c", "compare"),
                choice("c", "y", "pick"),
            ],
            id="fixed size",
        ),
    ],
)
def test_conditions_that_never_change_are_no_findings(
    bench: Workbench, condition: Sequence[onnx.NodeProto]
) -> None:
    made = model(*condition, truth=np.array(True), second=np.array(1), five=np.array(5))
    profile = profile_with("edge", gates={"branches": "all"})
    built = bench.build(made, "constant", profile=profile, cache=False)
    assert not {"AOTC-N047", "AOTC-N048"} & set(built.codes())


def test_without_control_flow_there_is_no_table(bench: Workbench) -> None:
    built = bench.build(linear(), "linear", cache=False)
    assert built.manifest.branches == ()
    assert "branches" not in json.loads((built.payload / "aotc.json").read_text())


# The gate.


def gated(bench: Workbench) -> Path:
    path = bench.folder / "gated.yaml"
    path.write_text("schema: aotc.profile/1\nname: gated\ngates:\n  branches: all\n")
    return path


def test_the_gate_passes_and_is_judged(bench: Workbench) -> None:
    journal = Journal()
    bench.build(above(0.0), "both", profile=gated(bench), cache=False, journal=journal)
    (gate,) = (each for each in journal.gates if each.name == "gates.branches")
    assert (gate.status, gate.place.line if gate.place else 0) == ("passed", 4)


def test_the_gate_names_what_was_not_run(bench: Workbench) -> None:
    made = above(-1.0, "Less")
    made.graph.node.insert(1, node("Abs", "s", "size", "size"))
    made.graph.node[2].input[0] = "size"
    journal = Journal()
    refused = refusal(bench.build, made, "no", profile=gated(bench), cache=False, journal=journal)
    assert (refused.code, refused.exit_status) == ("AOTC-N049", 1)
    assert refused.found == "If pick: then_branch"
    assert [each.status for each in journal.gates] == ["failed"]
    assert list(bench.folder.glob("*.aotc")) == []


def test_the_gate_needs_control_flow(bench: Workbench) -> None:
    refused = refusal(bench.build, linear(), "no", profile=gated(bench), cache=False)
    assert (refused.code, refused.exit_status) == ("AOTC-N050", 3)
    assert refused.place is not None
    assert refused.place.line == 4


# What people see.


def test_inspect_and_the_page_show_the_table(bench: Workbench) -> None:
    built = bench.build(above(1e6), "shown", cache=False)
    report = inspect(built.path)
    assert report.artifact is not None
    assert encode(report.artifact.branches) == encode(built.manifest.branches)
    text = as_markdown(inspect_view(report))
    assert "branches and trips" in text
    assert "inputs searched for 1" in text
    assert "optimal sizes" in text
    page = artifact_page(built.path)
    assert "branches and trips" in page
    assert "If pick" in page
