"""What `aotc debug parity` shows, as exact text: fixed width, no colour.

AOTC_UPDATE_SNAPSHOTS=1 rewrites the expected text, which is then read before it is kept.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from aotc.base.records import replace
from aotc.cli import terminal
from aotc.report.sheets.variants import parity_view
from aotc.spec.evidence import NodeError, NodeErrors, OutputError
from aotc.spec.payload import Finding
from aotc.spec.precision import Tolerance
from aotc.spec.reports import FailingSubmodel, ParityDebugReport, Refusal

SNAPSHOTS = Path(__file__).parent / "parity_snapshots"
UNMEASURED = 1.7976931348623157e308


def node(name: str, op: str, added: float | None, **fields: object) -> NodeError:
    error = NodeError(
        node=name,
        op=op,
        value=f"{name}_output",
        variant_node=name,
        covers=(name,),
        max_abs=0.25,
        max_rel=0.031,
        cosine=0.9991,
        sqnr_db=27.31,
        added=added,
        passed=False,
        reason="error 0.25 exceeds 0.001",
    )
    return replace(error, **fields)


def report() -> ParityDebugReport:
    nodes = (
        node("/embed/Gather", "Gather", 0.0, max_abs=0.0, max_rel=0.0, sqnr_db=None, passed=True),
        node("/layer.0/MatMul", "MatMul", 1e-14, max_rel=2.1e-7, sqnr_db=139.9, passed=True),
        node(
            "/layer.0/Gelu/Mul_1",
            "Mul",
            0.0019,
            variant_node="Gelu_token_3",
            covers=("/layer.0/Gelu/Div", "/layer.0/Gelu/Erf", "/layer.0/Gelu/Mul_1"),
        ),
        node(
            "/layer.1/Exp",
            "Exp",
            None,
            max_abs=UNMEASURED,
            max_rel=UNMEASURED,
            cosine=None,
            sqnr_db=None,
            reason="4 NaN or infinite values differ",
        ),
    )
    return ParityDebugReport(
        artifact="model.aotc",
        artifact_id="f7" * 32,
        model="model.onnx",
        variant="portable",
        fixture="opt",
        compared=("opt", "min"),
        tolerance=Tolerance(atol=1e-5, rtol=1e-3, min_cosine=0.9999),
        outputs=(
            OutputError(
                output="logits",
                max_abs=0.55,
                max_rel=0.065,
                cosine=0.9994,
                passed=False,
                reason="error 0.55 exceeds 0.0086",
            ),
            OutputError(output="pooled", max_abs=0.0, max_rel=0.0, cosine=1.0),
        ),
        errors=NodeErrors(
            fixture="opt",
            nodes=nodes,
            uncompared=31,
            first="/layer.0/Gelu/Mul_1",
            worst="/layer.1/Exp",
            outputs_changed=True,
        ),
        submodel=FailingSubmodel(
            value="/layer.1/Exp_output",
            nodes=("/layer.1/Exp",),
            variant_nodes=("/layer.1/Exp",),
            ops=("Exp",),
            inputs=("/layer.1/Sub_output",),
            error=OutputError(
                output="/layer.1/Exp_output",
                max_abs=UNMEASURED,
                max_rel=UNMEASURED,
                passed=False,
                reason="4 NaN or infinite values differ",
            ),
            trials=2,
            files=("submodel.onnx", "reproduce.py"),
        ),
        findings=(Finding(code="AOTC-N039", what="other bits", where="variant portable"),),
        failed=(
            Refusal(
                code="AOTC-N037",
                what="output 'logits' is out of tolerance",
                where="variant portable, fixture opt",
                expected="error <= 1e-05 + 0.001 * max|reference|, cosine >= 0.9999",
                found="error 0.55 exceeds 0.0086",
                fix="Keep the nodes that are shown in float32.",
            ),
        ),
    )


def passing() -> ParityDebugReport:
    failing = report()
    return replace(
        failing,
        outputs=failing.outputs[1:],
        errors=replace(failing.errors, nodes=failing.errors.nodes[:1], first="", worst=""),
        submodel=None,
        findings=(),
        failed=(),
    )


def accumulated() -> ParityDebugReport:
    failing = report()
    assert failing.submodel is not None
    return replace(failing, submodel=replace(failing.submodel, accumulated=True, files=()))


@pytest.mark.parametrize("made", [report, passing, accumulated], ids=lambda made: made.__name__)
def test_parity_view(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(made)
    monkeypatch.setenv("COLUMNS", "120")
    file = io.StringIO()
    terminal.show_sheet(parity_view(made()), file=file)
    snapshot = SNAPSHOTS / f"{made.__name__}.txt"
    if os.environ.get("AOTC_UPDATE_SNAPSHOTS"):
        SNAPSHOTS.mkdir(exist_ok=True)
        snapshot.write_text(file.getvalue(), "utf-8")
    assert file.getvalue() == snapshot.read_text("utf-8")
