"""What the terminal shows, as exact text: fixed width, no colour.

AOTC_UPDATE_SNAPSHOTS=1 rewrites the expected texts, which are then read before they are kept.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from aotc.base.records import replace
from aotc.base.text import duration, size
from aotc.cli import terminal
from aotc.report.sheet import Sheet
from aotc.report.sheets import measurements
from aotc.report.sheets.artifact import inspect_view
from aotc.report.sheets.summary import build_view
from aotc.report.sheets.trust import verify_view
from aotc.report.sheets.variants import cost_table
from aotc.spec.command_reports import DoctorCheck, DoctorReport, RunCase, RunOutput, RunReport
from aotc.spec.evidence import OutputError
from aotc.spec.manifest import Capture, ControlFlow, ExternalFile
from aotc.spec.payload import Finding, Value
from aotc.spec.reports import (
    ArtifactSummary,
    BuildReport,
    CheckResult,
    Claim,
    InspectReport,
    LoadReport,
    Refusal,
    VariantSummary,
    VariantVerdict,
    VerifyReport,
)
from aotc.spec.shapes import Dim, Domain, Relation
from aotc.spec.target import Libc, Target
from aotc.spec.variant import MemoryPlan, Parity, PassRecord, Requirements, Toolchain

SNAPSHOTS = Path(__file__).parent / "snapshots"
CPU = "CPUExecutionProvider"
KEY = "7d" * 32
MODEL = "https://model_signing/signature/v1.0"


def capture() -> Capture:
    return Capture(
        sha256="4c" * 32,
        size=66_274,
        producer_name="pytorch",
        producer_version="2.11.0",
        ir_version=10,
        opsets={"ai.onnx": 20, "com.microsoft": 1},
        nodes=12,
        nodes_total=15,
        op_types={"Gemm": 2, "If": 1, "Relu": 1, "com.microsoft::Gelu": 11},
        initializers=4,
        initializer_bytes=61_000,
        contrib_ops=("com.microsoft::Gelu",),
        control_flow=(ControlFlow(node="choose", op_type="If", subgraphs={"then_branch": 3}),),
        outer_scope_values=("choose.then_branch: hidden",),
        external_data=(ExternalFile(location="weights.bin", size=2_500_000_000, sha256="a" * 64),),
        half_precision=True,
    )


def requirements(*isa: str) -> Requirements:
    return Requirements(
        os="linux",
        architecture="x86_64",
        libc=Libc(name="glibc", version="2.28"),
        isa=isa,
        isa_exact=bool(isa),
        onnxruntime_min="1.31.0",
        onnxruntime_below="1.32",
        providers=(CPU,),
    )


def variant(name: str, *isa: str, **change: Any) -> VariantSummary:
    fields: dict[str, Any] = {
        "name": name,
        "component": "model",
        "providers": (CPU,),
        "device": "cpu",
        "precision": "keep",
        "optimization": "all",
        "requirements": requirements(*isa),
        "placement_origin": "observed",
        "nodes": 8,
        "partitions": 1,
        "share": {CPU: 1.0},
        "parity": Parity(status="passed", shapes=({"batch": 1}, {"batch": 8})),
        "worst": (
            OutputError(output="logits", max_abs=4.6e-6, max_rel=9.9e-7, cosine=0.999999999),
            OutputError(output="mask", max_abs=0.0, max_rel=0.0),
        ),
        "memory": MemoryPlan(weights_bytes=61_368),
        "passes": (
            PassRecord(name="strip-metadata", nodes_before=15, nodes_after=15),
            PassRecord(name="onnxruntime-optimizer", nodes_before=15, nodes_after=8),
        ),
        "load_seconds": 0.0712,
        "run_seconds": {"opt": 0.000502, "max": 0.011},
        "peak_memory_bytes": 81_231_872,
    }
    return VariantSummary(**(fields | change))


def artifact_report() -> InspectReport:
    features = (
        "avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl avx512_vnni f16c fma sse4_1 sse4_2"
    )
    return InspectReport(
        kind="artifact",
        path="digits.aotc",
        name="digits",
        source=capture(),
        inputs=(
            Value(name="image", dtype="float32", shape=("batch", 1, 8, 8)),
            Value(name="words", kind="sequence", dtype="string"),
        ),
        outputs=(Value(name="logits", dtype="float32", shape=("batch", 10)),),
        domain=Domain(
            dims={
                "batch": Dim(min=1, max=1024, opt=32, tested=(1, 8, 1024), stopped_by="size"),
                "seq": Dim(min=16, max=128, opt=64, multiple_of=16, origin="stated"),
            },
            relations=(Relation(dim="total", terms=("seq", "past"), constant=1),),
        ),
        artifact=ArtifactSummary(
            artifact_id="8a" * 32,
            profile="server-cpu",
            target="host",
            toolchain=Toolchain(aotc="0.1.0", python="3.11.7", onnx="1.23.2", onnxruntime="1.31.1"),
            claims=(
                Claim(path="attestations/evidence.sigstore.json", predicate_type="other"),
                Claim(
                    path="attestations/approval-prod-ab.sigstore.json",
                    key_id="ab" * 32,
                    predicate_type="urn:aotc:approval:v1",
                    summary="approved for prod until 2027-01-31T00:00:00Z",
                ),
                Claim(
                    path="attestations/oms.sigstore.json",
                    key_id=KEY,
                    development_key=True,
                    predicate_type=MODEL,
                    summary="8 files of the payload",
                ),
            ),
            variants=(
                variant("portable"),
                variant(
                    "native",
                    *features.split(),
                    parity=Parity(status="not-run", reason="no such CPU here"),
                    worst=(),
                    load_seconds=None,
                    run_seconds={},
                    peak_memory_bytes=None,
                    placement_origin="predicted",
                ),
            ),
            bytes_by_role={"model": 8_966, "weights": 117_760, "fixture": 25_376},
            payload_bytes=160_131,
            files=11,
            fixtures=2,
            built_at="2026-11-21T02:50:10+00:00",
        ),
        findings=(Finding(code="AOTC-S008", what="proven from 1 to 1024", where="batch"),),
        problems=(Refusal(code="AOTC-G014", what="is about another artifact", where="a.json"),),
    )


def model_report() -> InspectReport:
    return InspectReport(
        kind="model",
        path="digits.onnx",
        name="digits",
        source=capture(),
        inputs=(Value(name="image\x1b[2J", dtype="float32", shape=("batch", 8)),),
        outputs=(Value(name="logits", dtype="float32"),),
    )


def verify_report(**change: Any) -> VerifyReport:
    fields: dict[str, Any] = {
        "artifact": "digits.aotc",
        "artifact_id": "8a" * 32,
        "authentic": True,
        "verdict": "optimal",
        "signers": (KEY,),
        "development_key": True,
        "target": "host",
        "steps": (
            CheckResult(step="1 container and limits", status="passed"),
            CheckResult(step="8 verdict", status="passed", detail="optimal: native"),
        ),
        "findings": (Finding(code="AOTC-G016", what="signed with a development key"),),
        "variants": (
            VariantVerdict(name="portable", runs=True),
            VariantVerdict(name="native", runs=True),
        ),
        "hashed_bytes": 160_131,
        "seconds": 0.0108,
    }
    return VerifyReport(**(fields | change))


def authentic_report() -> VerifyReport:
    return verify_report(
        verdict="authentic",
        target="none",
        steps=(
            CheckResult(step="1 container and limits", status="passed"),
            CheckResult(
                step="8 host compatibility",
                status="not-run",
                detail="not asked: no ONNX Runtime here; --target host asks, or --target NAME",
            ),
            CheckResult(step="9 verdict", status="passed", detail="authentic"),
        ),
        variants=(),
    )


def refused_report() -> VerifyReport:
    return verify_report(
        authentic=False,
        verdict="unverified",
        signers=(),
        development_key=False,
        steps=(
            CheckResult(step="3 signature", status="failed", detail="1 refused"),
            CheckResult(step="4 digests", status="not-run"),
        ),
        refusals=(
            Refusal(
                code="AOTC-G005",
                what="the file's bytes are not the ones that were signed",
                where="payload/model/portable/model.onnx",
                expected=f"sha256 {'ab' * 32}",
                found=f"sha256 {'cd' * 32}",
                fix="Get the artifact from its builder again.",
            ),
        ),
        findings=(),
        variants=(),
    )


def incompatible_report() -> VerifyReport:
    reason = Refusal(code="AOTC-C002", what="the CPU architecture differs", found="aarch64")
    return verify_report(
        verdict="incompatible",
        target="linux-arm64",
        variants=(VariantVerdict(name="portable", runs=False, reasons=(reason,)),),
        refusals=(Refusal(code="AOTC-C009", what="no variant runs on this host"), reason),
    )


def load_report() -> LoadReport:
    return LoadReport(
        artifact_id="8a" * 32,
        variant="native",
        verdict="optimal",
        from_store=True,
        verify_seconds=0.0041,
        session_seconds=0.0012,
        warmup_seconds=0.0017,
        fixtures=2,
    )


def built_report() -> BuildReport:
    return BuildReport(
        artifact="digits.aotc",
        artifact_id="8a" * 32,
        payload_bytes=160_131,
        key_id=KEY,
        development_key=False,
        variants=(),
        stages={"import": 0.4, "optimize": 1.04, "prove": 0.94, "sign": 0.007},
        seconds=3.4,
    )


def run_answer() -> RunReport:
    outputs = (
        RunOutput(
            name="logits",
            value="float32[1, 10]",
            minimum=-4.68615,
            mean=-1.5,
            maximum=1.0,
            file="o.npy",
        ),
        RunOutput(name="label", value="string[1]"),
    )
    case = RunCase(name="opt", outputs=outputs, seconds=0.000147)
    return RunReport(artifact="digits.aotc", load=load_report(), runs=(case,))


def doctor_answer() -> DoctorReport:
    checks = (
        DoctorCheck(name="Python", status="ok", found="3.11.7"),
        DoctorCheck(name="ONNX Runtime", status="failed", found="two", fix="Uninstall one."),
    )
    host = Target(schema="aotc.target/1", name="host")
    return DoctorReport(healthy=False, checks=checks, host=host)


VIEWS = {
    "inspect_artifact": lambda: inspect_view(artifact_report()),
    "inspect_model": lambda: inspect_view(model_report()),
    "build": lambda: build_view(built_report(), artifact_report()),
    "verify_optimal": lambda: verify_view(verify_report()),
    "verify_authentic": lambda: verify_view(authentic_report()),
    "verify_refused": lambda: verify_view(refused_report()),
    "verify_incompatible": lambda: verify_view(incompatible_report()),
    "run": lambda: measurements.run_view(run_answer()),
    "doctor": lambda: measurements.doctor_view(doctor_answer()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = io.StringIO()
    terminal.show_sheet(VIEWS[name](), file=shown)
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("AOTC_UPDATE_SNAPSHOTS") == "1":
        path.write_text(shown.getvalue(), encoding="utf-8")
    assert shown.getvalue() == path.read_text(encoding="utf-8")


def shown_text(sheet: Sheet) -> str:
    shown = io.StringIO()
    terminal.show_sheet(sheet, file=shown)
    return shown.getvalue()


def test_device_memory_is_told_beside_that_of_a_plain_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a variant has none, nothing of it is shown."""
    monkeypatch.setenv("COLUMNS", "160")
    on_gpu = variant("gpu", device_bytes=730 << 20, plain_device_bytes=612 << 20)
    text = shown_text([cost_table([on_gpu])])
    assert "device memory" in text and "of a plain session" in text
    assert size(730 << 20) in text and size(612 << 20) in text
    assert "device memory" not in shown_text([cost_table([variant("cpu")])])
    answer = run_answer()
    answer = replace(answer, load=replace(answer.load, device_bytes=730 << 20))
    assert size(730 << 20) in shown_text(measurements.run_view(answer))


def test_every_snapshot_is_of_a_view() -> None:
    assert {path.stem for path in SNAPSHOTS.iterdir()} == set(VIEWS)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 us"),
        (0.0000271, "27.1 us"),
        (0.0009996, "1.00 ms"),
        (0.00999, "9.99 ms"),
        (0.0827, "82.7 ms"),
        (0.9996, "1.00 s"),
        (12.34, "12.3 s"),
        (4321.0, "4321 s"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
