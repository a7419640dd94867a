"""Builds whose budget of memory is judged on the plan, with calls at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Command
from made_models import linear, save

from aotc.spec.codec import decode
from aotc.spec.reports import InspectReport

PROFILE = """\
schema: aotc.profile/1
name: crowded
dims:
  batch: 1..4000
budgets:
  peak_memory_bytes: 4000000000
  concurrency: {calls}
"""


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command in a folder with a model of one free dim."""
    folder = tmp_path_factory.mktemp("crowded")
    save(linear(), folder / "linear.onnx")
    return Command(folder)


def build(aotc: Command, calls: int) -> tuple[int, str]:
    (aotc.folder / "crowded.yaml").write_text(PROFILE.format(calls=calls))
    words = ("--profile", "crowded.yaml", "-o", f"at-{calls}.aotc", "--no-cache")
    outcome = aotc.plain("build", "linear.onnx", *words)
    return outcome.status, outcome.stderr


def test_calls_at_once_exceed_a_budget_that_one_meets(aotc: Command) -> None:
    status, told = build(aotc, 1)
    assert (status, "AOTC-M008" in told) == (0, False)
    status, told = build(aotc, 10_000_000)
    assert status == 1
    text = " ".join(told.split())
    assert "AOTC-M008 planned memory exceeds its budget" in text
    assert "10000000 calls at once of batch=4000; it begins at batch=" in text
    assert not (aotc.folder / "at-10000000.aotc").exists()


def test_the_evidence_has_the_plan(aotc: Command, tmp_path: Path) -> None:
    if not (aotc.folder / "at-1.aotc").exists():
        assert build(aotc, 1)[0] == 0
    outcome = aotc("inspect", "at-1.aotc", "--json")
    report = decode(InspectReport, json.loads(outcome.stdout))
    assert report.artifact is not None
    (variant, *_) = report.artifact.variants
    plan, observed = variant.planned, variant.observed
    assert plan is not None
    assert observed is not None
    assert not plan.why_not
    seen = {found.fixture: found.activation_bytes for found in observed.at}
    assert {run.fixture for run in plan.at} >= set(seen)
    assert all(run.peak_bytes == seen[run.fixture] for run in plan.at if run.fixture in seen)
    assert any("batch" in term.dims for term in plan.live)
    assert [point.sizes["batch"] for point in plan.curve][::8] == [1, 4000]
