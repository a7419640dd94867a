"""One screen: at most twenty lines of it, whatever an artifact holds, at any width."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from command import Command
from made_models import linear, save

from aotc.base.records import replace
from aotc.cli import terminal
from aotc.report.sheets.summary import built_summary, inspected_summary
from aotc.spec.manifest import Capture
from aotc.spec.payload import Finding, Value
from aotc.spec.reports import ArtifactSummary, BuildReport, InspectReport, Refusal, VariantSummary
from aotc.spec.shapes import Dim, Domain
from aotc.spec.variant import MemoryPlan, Parity, Requirements, Toolchain

LONG = "x" * 3000
CPU = "CPUExecutionProvider"


def shown(parts: Any, monkeypatch: pytest.MonkeyPatch, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    terminal.show_sheet(parts)
    return stream.getvalue().splitlines()


def variant(name: str, *, proven: bool) -> VariantSummary:
    status = "passed" if proven else "not-run"
    return VariantSummary(
        name=name,
        component="model",
        providers=(CPU,),
        device="cpu",
        precision="keep",
        optimization="all",
        requirements=Requirements(
            os="linux",
            architecture="x86_64",
            onnxruntime_min="1.31.0",
            onnxruntime_below="1.32",
            providers=(CPU,),
        ),
        placement_origin="observed",
        nodes=8,
        partitions=1,
        share={CPU: 1.0},
        parity=Parity(status=status, reason="" if proven else "no such CPU"),
        memory=MemoryPlan(weights_bytes=1),
    )


def hostile(variants: tuple[VariantSummary, ...]) -> InspectReport:
    """As much of everything as there may be, with the longest names."""
    values = tuple(
        Value(name=f"{LONG}{n}\n\x1b[2J", kind="tensor", dtype="float32", shape=(LONG, n))
        for n in range(50)
    )
    return InspectReport(
        kind="artifact",
        path=f"{LONG}.aotc",
        name="model",
        source=Capture(
            sha256="4c" * 32,
            size=66_274,
            producer_name=LONG,
            ir_version=10,
            opsets={f"{LONG}.{n}": n + 1 for n in range(20)},
            nodes=12,
            nodes_total=15,
            op_types={f"{LONG}{n}": n for n in range(100)},
            initializers=4,
            initializer_bytes=61_000,
        ),
        inputs=values,
        outputs=values,
        domain=Domain(dims={f"{LONG}{n}": Dim(min=1, max=8, opt=1) for n in range(40)}),
        artifact=ArtifactSummary(
            artifact_id="8a" * 32,
            profile=LONG,
            target=LONG,
            toolchain=Toolchain(aotc="0.1.0", python="3.11", onnx="1.23.2", onnxruntime="1.31.1"),
            variants=variants,
            bytes_by_role={"weights": 1},
            payload_bytes=1,
            files=1,
            fixtures=0,
        ),
        findings=tuple(Finding(code="AOTC-S008", what=LONG) for _ in range(300)),
        problems=tuple(Refusal(code="AOTC-G014", what=LONG) for _ in range(300)),
    )


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("variants", [1, 4, 5, 60])
def test_at_most_twenty_lines(variants: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(variant(f"v{n}{LONG}", proven=n % 2 == 0) for n in range(variants))
    inspected = hostile(many)
    built = BuildReport(
        artifact=f"{LONG}.aotc",
        artifact_id="8a" * 32,
        payload_bytes=1,
        key_id="7d" * 32,
        development_key=True,
        variants=(),
        findings=inspected.findings,
        cached=True,
        stages={f"{LONG}{n}": 1.0 for n in range(9)},
        seconds=3.4,
    )
    for parts in (inspected_summary(inspected), built_summary(built, inspected)):
        lines = shown(parts, monkeypatch, columns)
        assert len(lines) <= 20, lines
        assert max(map(len, lines)) <= columns
        assert "\x1b" not in "".join(lines)


def test_what_is_not_proven_is_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither behind a long name, nor among the variants that there is no line for."""
    many = tuple(variant(f"v{n}", proven=n < 5) for n in range(8))
    lines = shown(inspected_summary(hostile(many)), monkeypatch, 100)
    assert lines[-1].split() == ["and", "5", "more", "3", "NOT", "PROVEN"]
    built = BuildReport(
        artifact=f"{LONG}.aotc",
        artifact_id="8a" * 32,
        payload_bytes=1,
        key_id="7d" * 32,
        development_key=False,
        variants=(),
        findings=(),
        stages={},
        seconds=1.0,
    )
    first, *_ = shown(built_summary(built, hostile(many)), monkeypatch, 80)
    assert "NOT PROVEN" in first


def test_findings_have_words_and_those_to_act_on_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = ("AOTC-I031", "AOTC-S006", "AOTC-I031", "AOTC-Z123")
    found = tuple(Finding(code=code, what="said") for code in codes)
    lines = shown(inspected_summary(replace(hostile(()), findings=found)), monkeypatch, 120)
    (line,) = [line for line in lines if "findings" in line]
    assert line.split("findings")[1].strip() == (
        "4: AOTC-S006 dim works at one size only, AOTC-I031 nodes were renamed, AOTC-Z123"
    )


def test_names_that_read_as_sizes_are_quoted_and_maps_have_their_whole_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = replace(
        hostile(()),
        inputs=(Value(name="x", dtype="float32", shape=("32", "2", 3)),),
        outputs=(Value(name="z", kind="map", dtype="int64", form="seq(map(int64,float))"),),
        domain=Domain(
            dims={name: Dim(min=int(name), max=int(name), opt=int(name)) for name in ("2", "32")}
        ),
    )
    text = shown(inspected_summary(report), monkeypatch, 120)
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in text if len(line.split()) > 1}
    assert rows["inputs"] == "x float32 ['32', '2', 3]"
    assert rows["outputs"] == "z seq(map(int64,float))"
    assert rows["sizes"] == "'2' 2, '32' 32"


def test_a_build_shows_one_screen_and_in_full_on_demand(tmp_path: Path) -> None:
    save(linear(), tmp_path / "model.onnx")
    aotc = Command(tmp_path)
    short = aotc.plain("build", "model.onnx").stdout
    assert 5 < len(short.splitlines()) <= 20
    assert "exactness" not in short
    full = aotc.plain("build", "model.onnx", "-v", "--force").stdout
    assert "exactness" in full
    wanted = aotc.plain("build", "model.onnx", "-v", "--summary", "--force").stdout
    assert "exactness" not in wanted
    assert "exactness" in aotc.plain("inspect", "model.aotc").stdout
    for place in ("model.aotc", "model.onnx"):
        summed = aotc.plain("inspect", place, "--summary").stdout
        assert 5 <= len(summed.splitlines()) <= 20
        assert "exactness" not in summed
