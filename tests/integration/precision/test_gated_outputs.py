"""Gates of outputs in real builds: limits beside the tolerance or in its place, NaN, and loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_models import linear
from model_parts import model_of
from onnx import TensorProto, helper
from refusals import refusal
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.spec.json import strict_json
from aotc.spec.run_report import Journal

FLOAT = TensorProto.FLOAT


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def gated(bench: Workbench, gates: str, more: str = "") -> Path:
    path = bench.folder / "gated.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: gated\ngates:\n  outputs:\n{gates}{more}")
    return path


def refused(bench: Workbench, model: Any, profile: Path, **more: Any) -> AotcError:
    return refusal(bench.build, model, "no", profile=profile, cache=False, **more)


def normalized() -> onnx.ModelProto:
    """A product and a softmax, whose optimized sums differ in the last bits."""
    model = linear()
    model.graph.node.append(helper.make_node("Softmax", ["y"], ["p"], name="softmax", axis=-1))
    model.graph.output[0].name = "p"
    return model


def test_every_limit_is_a_gate_with_its_line(bench: Workbench) -> None:
    profile = gated(
        bench, "    p:\n      min_sqnr_db: 60\n      max_abs: 1\n      min_agreement: 1\n"
    )
    journal = Journal()
    built = bench.build(normalized(), "all", profile=profile, cache=False, journal=journal)
    found = [gate for gate in journal.gates if gate.name.startswith("gates.")]
    assert [(gate.name, gate.place.line if gate.place else 0) for gate in found] == [
        ("gates.outputs.p.min_sqnr_db", 6),
        ("gates.outputs.p.max_abs", 7),
        ("gates.outputs.p.min_agreement", 8),
    ]
    assert {gate.status for gate in found} == {"passed"}
    assert {gate.subject for gate in found} == {"variant portable, output 'p'"}
    figures = {figure.name: figure for figure in journal.measurements}
    assert figures["agreement"].value == 1
    # Where there are no elements, nothing agrees.
    agreed = {
        each.fixture: each.outputs[0].agreement for each in built.report.variants[0].comparisons
    }
    assert {name: value for name, value in agreed.items() if value != 1} == {"empty0": None}
    (variant,) = built.manifest.variants
    assert variant.parity.gates["p"].min_sqnr_db == 60


def test_all_limits_that_are_breached_are_told_at_once_and_nothing_is_built(
    bench: Workbench,
) -> None:
    profile = gated(bench, "    '*':\n      min_sqnr_db: 900\n      max_rel: 1.0e-30\n")
    # What ONNX Runtime computes in other forms differs in the last bits: so does a cast to half.
    model = linear()
    model.graph.node.extend(
        [
            helper.make_node("Softmax", ["y"], ["s"], name="softmax", axis=-1),
            helper.make_node("Erf", ["s"], ["e"], name="erf"),
            helper.make_node("MatMul", ["e", "W"], ["z"], name="again"),
        ]
    )
    model.graph.output[0].name = "z"
    profile.write_text(profile.read_text() + "precision: int8\nquantization: {form: dynamic}\n")
    journal = Journal()
    error = refused(bench, model, profile, journal=journal)
    told = [each for each in error.every() if each.code == "AOTC-N020"]
    assert error.exit_status == 1
    assert [each.place.line for each in told if each.place][:2] == [6, 7]
    assert told[0].expected == "SQNR >= 900 dB"
    assert told[1].expected == "max relative error <= 1e-30"
    assert not (bench.folder / "no.aotc").exists()
    assert "failed" in {gate.status for gate in journal.gates if gate.name.startswith("gates.")}
    assert "SQNR" in {figure.name for figure in journal.measurements}


def test_instead_of_the_tolerance_at_build_and_at_load(bench: Workbench) -> None:
    tight = "parity:\n  int8: {atol: 0, rtol: 0, min_cosine: 1}\n"
    int8 = "precision: int8\nquantization: {form: dynamic}\n"
    error = refused(bench, linear(), gated(bench, "    y: {min_sqnr_db: 10}\n", tight + int8))
    assert error.code == "AOTC-N001"
    profile = gated(bench, "    y: {min_sqnr_db: 10, replaces_tolerance: true}\n", tight + int8)
    journal = Journal()
    built = bench.build(linear(), "loose", profile=profile, cache=False, journal=journal)
    assert "parity.int8" not in {gate.name for gate in journal.gates}
    with bench.load(built) as loaded:
        x = np.ones((2, 16), np.float32)
        assert loaded.run({"x": x})["y"].shape == (2, 16)


def test_a_load_judges_what_the_build_did(bench: Workbench) -> None:
    """A payload with a limit that its own answers do not keep is not accepted."""
    profile = gated(bench, "    p: {min_sqnr_db: 60}\n")
    built = bench.build(normalized(), "strict", profile=profile, cache=False)
    document = strict_json((built.payload / "aotc.json").read_bytes())
    (variant,) = document["variants"]
    assert variant["parity"]["gates"] == {"p": {"min_sqnr_db": 60}}
    # A reader that does not know gates would judge by the tolerance alone: it must refuse.
    assert "output-gates" in document["required_features"]
    plain = bench.build(normalized(), "plain", cache=False)
    assert "output-gates" not in plain.manifest.required_features


def logarithm() -> onnx.ModelProto:
    """`y` is NaN or minus infinity for what is not positive, and `z` is not."""
    nodes = [
        helper.make_node("Log", ["x"], ["y"], name="log"),
        helper.make_node("Neg", ["x"], ["z"], name="negate"),
    ]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", FLOAT, ["n", 3])],
        outputs=[helper.make_tensor_value_info(name, FLOAT, ["n", 3]) for name in "yz"],
    )


def test_what_is_not_finite_is_told_and_nothing_else_is_no_pass(bench: Workbench) -> None:
    profile = gated(bench, "    y: {max_abs: 1}\n    z: {max_abs: 1}\n")
    fixtures = bench.folder / "real.npz"
    np.savez(fixtures, x=np.array([[-1, 1, 2]], np.float32))
    options = {"profile": profile, "fixtures": fixtures, "dims": {"n": "1..2"}}
    built = bench.build(logarithm(), "some", cache=False, **options)
    told = [finding for finding in built.manifest.findings if finding.code == "AOTC-N022"]
    assert "real" in {finding.where.removeprefix("user-") for finding in told} or told
    assert {finding.what.split("'")[1] for finding in told} == {"y"}
    model = logarithm()
    below = helper.make_node("Sub", ["x", "x"], ["o"], name="nothing")
    model.graph.node.insert(0, below)
    model.graph.node[1].op_type, model.graph.node[1].input[0] = "Div", "o"
    model.graph.node[1].input.append("o")
    error = refused(bench, model, gated(bench, "    y: {max_abs: 1}\n"))
    assert (error.code, error.exit_status) == ("AOTC-N021", 1)
    assert error.what.startswith("output 'y' cannot be judged by its gate")
    assert error.found == "cannot be judged: all values of the reference are NaN or infinite"


def test_agreement_of_rows_that_cannot_disagree_is_no_pass(bench: Workbench) -> None:
    profile = gated(bench, "    y: {min_agreement: 1, top_k: 16}\n")
    error = refused(bench, linear(), profile)
    assert (error.code, error.exit_status) == ("AOTC-N021", 1)
    assert error.found == "cannot be judged: no row has more than 16 values that are numbers"


def test_a_gate_of_an_output_that_is_not_there(bench: Workbench) -> None:
    profile = gated(bench, "    logit: {max_abs: 1}\n    p: {max_abs: 1}\n    '*': {max_abs: 1}\n")
    error = refused(bench, normalized(), profile)
    assert (error.code, error.exit_status) == ("AOTC-I078", 3)
    assert (error.what, error.expected) == ("the model has no output 'logit'", "p")
    assert error.also == ()
    assert error.place is not None
    assert error.place.line == 5


def test_candidates_of_tuning_are_judged_by_the_gates(bench: Workbench) -> None:
    tune = "tune: {optimization: [basic, extended], rounds: 3}\n"
    # No sum of float32 is that close to one of float64.
    profile = gated(bench, "    y: {min_sqnr_db: 300}\n", "  against: float64\n" + tune)
    error = refused(bench, linear(), profile, tune=True)
    assert error.code == "AOTC-O006"
    assert "AOTC-N020" in error.found
    profile = gated(bench, "    y: {min_sqnr_db: 60}\n", "  against: float64\n" + tune)
    assert bench.build(linear(), "tuned", profile=profile, tune=True).report.tuning
