"""What `aotc diff` shows, as exact text: fixed width, no colour.

AOTC_UPDATE_SNAPSHOTS=1 rewrites the expected text, which is then read before it is kept.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from aotc.base.records import replace
from aotc.cli import terminal
from aotc.report.sheets.differences import diff_view
from aotc.spec.diff_report import (
    AREAS,
    AllowedDiff,
    AreaDiff,
    Change,
    ComparedArtifact,
    DiffReport,
    MeasuredRow,
    NodeChange,
    NodesDiff,
    TensorChange,
    VariantPair,
    WeightsDiff,
)
from aotc.spec.reports import Refusal

SNAPSHOT = Path(__file__).parent / "diff_snapshots" / "diff.txt"
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
A = ComparedArtifact(
    path="edge.aotc",
    name="bert",
    artifact_id="f7" * 32,
    manifest="aotc.manifest/1.0",
    payload_bytes=438_141_077,
    built_at="2026-11-23T04:37:43Z",
)
B = replace(A, path="cuda.aotc", artifact_id="80" * 32, payload_bytes=219_304_551, built_at="")


def area(name: str, *changes: Change, ratio: float | None = None) -> AreaDiff:
    (known,) = (each for each in AREAS if each == name)
    return AreaDiff(
        area=known, status="changed" if changes else "same", changes=changes, ratio=ratio
    )


def on(what: str, a: object, b: object, ratio: float | None = None) -> Change:
    return Change(subject="portable", what=what, a=a, b=b, ratio=ratio)


def report() -> DiffReport:
    changed = {
        "toolchain": area(
            "toolchain", Change(what="toolchain.onnxruntime", a="1.30.0", b="1.31.1")
        ),
        "profile": area(
            "profile", *(Change(what=f"profile.field{n}", a=n, b=None) for n in range(9))
        ),
        "variants": area(
            "variants",
            on("providers", [CPU], [CUDA, CPU]),
            Change(what="variant", a=None, b="native"),
            Change(subject="native", what="strict", a=True, b=False),
        ),
        "passes": area(
            "passes",
            on("order", ["one", "two"], ["two", "one"]),
            on("half-precision.matched", {}, {"converted": 56, "kept: range": 2}),
        ),
        "size": area(
            "size",
            Change(what="payload", a=438_141_077, b=219_304_551, ratio=0.500534),
            Change(subject="model/portable/model.onnx", what="size", a=82_612, b=None),
            ratio=0.500534,
        ),
        "weights": AreaDiff(area="weights", status="not-compared", reason="no onnx"),
    }
    node = NodeChange(a="n", b="n", op_a="MatMul", op_b="MatMul", provider_a=CPU, provider_b=CUDA)
    return DiffReport(
        a=A,
        b=B,
        same_id=False,
        areas=tuple(changed.get(name) or area(name) for name in AREAS),
        variants=(
            VariantPair(a="portable", b="portable", matched_by="name"),
            VariantPair(b="native"),
        ),
        nodes=(
            NodesDiff(
                variant="portable",
                nodes_a=5,
                nodes_b=4,
                matched=3,
                by_structure=True,
                moved=(node, node, replace(node, op_b="Add")),
                added=(NodeChange(b="g", op_b="com.microsoft::Attention", provider_b=CUDA),),
                removed=(NodeChange(a="s", op_a="Softmax", provider_a=CPU),) * 2,
                renamed=tuple(NodeChange(a=f"old{n}", b=f"new{n}") for n in range(8)),
                replaced=(NodeChange(a="r", b="r", op_a="Gelu", op_b="FastGelu"),),
                altered=(NodeChange(a="c", b="c", op_a="Conv", op_b="Conv", attributes=("pads",)),),
            ),
        ),
        weights=(
            WeightsDiff(
                variants=("portable",),
                equal=11,
                renamed=2,
                changed=(
                    TensorChange(
                        a="W",
                        b="W_float16",
                        dtype_a="float32",
                        dtype_b="float16",
                        shape_a=(768, 768),
                        shape_b=(768, 768),
                        max_abs=3.05e-05,
                        max_rel=0.00034,
                    ),
                    TensorChange(
                        a="scale",
                        b="scale",
                        dtype_a="int8",
                        dtype_b="int8",
                        shape_a=(),
                        shape_b=(),
                    ),
                ),
                added=(TensorChange(b="new", dtype_b="float16", shape_b=(3,)),),
            ),
        ),
        measured=(
            MeasuredRow(variant="portable", what="load", unit="seconds", a=0.4, b=0.2, ratio=0.5),
            MeasuredRow(variant="portable", what="run max", unit="seconds", a=1.4),
            MeasuredRow(variant="portable", what="peak memory", unit="bytes", a=6e8, b=3e8),
        ),
        allowed=(AllowedDiff(area="size", max_ratio=0.5),),
        failed=(
            Refusal(
                code="AOTC-I061",
                what="A and B differ in their size",
                where="edge.aotc and cuda.aotc",
                expected="at most 0.5 times A's",
                found="0.5005 times A's",
            ),
        ),
        problems=(Refusal(code="AOTC-I062", what="a file of weights is truncated"),),
    )


def test_diff_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    file = io.StringIO()
    terminal.show_sheet(diff_view(report()), file=file)
    if os.environ.get("AOTC_UPDATE_SNAPSHOTS"):
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(file.getvalue(), "utf-8")
    assert file.getvalue() == SNAPSHOT.read_text("utf-8")
