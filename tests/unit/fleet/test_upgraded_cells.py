"""Which cells of a fleet's file are compared, within which limits, and which findings count."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, cast

import pytest
from made_models import linear, save

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.fleet.runtimes import Runtime
from aotc.fleet.upgrade import _Comparison, _limits, _subjects
from aotc.fleet.upgrade_outcomes import findings_in_words
from aotc.report.sheet import Heading
from aotc.report.sheets.upgrades import upgrade_view
from aotc.spec.profile import WorkerLimits
from aotc.spec.reports import Refusal
from aotc.spec.upgrade import RuntimeEnvironment, SideBuild, UpgradedModel, UpgradeReport
from aotc.tools.model_sandbox import Sandbox

CODE = """\
schema: aotc.fleet/1
name: zoo
models:
  - {path: "some.module:function", trust_source: true}
"""


def test_a_source_that_is_no_file_is_left_out_by_name(tmp_path: Path) -> None:
    """And not built from a file of that name, which would fail with both versions."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(CODE)
    with pytest.raises(AotcError) as refused:
        _subjects(fleet, "edge", "*")
    assert refused.value.code == "AOTC-I166"
    save(linear(), tmp_path / "linear.onnx")
    fleet.write_text(f"{CODE}  - linear.onnx\n")
    subjects, skipped = _subjects(fleet, "edge", "*")
    assert [each.name.partition("/")[0] for each in subjects] == ["linear"]
    assert [each.reason for each in skipped] == ["its source is no file"]


def test_only_a_row_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Others have that of the command."""
    for name in ("a", "b"):
        save(linear(), tmp_path / f"{name}.onnx")
    rows = "rows:\n  - {match: {model: a}, settings: {timeout_seconds: 60}}\n"
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(f"schema: aotc.fleet/1\nname: zoo\nmodels: ['*.onnx']\n{rows}")
    subjects, _ = _subjects(fleet, "edge", "*")
    assert [each.seconds for each in subjects] == [60.0, None]


def test_the_first_model_does_not_limit_the_others(tmp_path: Path) -> None:
    save(linear(), tmp_path / "a.onnx")
    save(linear(), tmp_path / "b.onnx")
    (first, second), _ = _subjects(tmp_path, "edge", "*")
    small = replace(first.profile, limits=replace(first.profile.limits, memory_bytes=1 << 30))
    subjects = [replace(first, profile=small), second]
    assert _limits(subjects, 60.0, 1).memory_bytes == second.profile.limits.memory_bytes


class Full:
    """A sandbox on a disk that is full."""

    def run(self, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_no_outcome_of_a_model(tmp_path: Path) -> None:
    """It would fail with both versions, which is not worse."""
    save(linear(), tmp_path / "a.onnx")
    ((subject,), _) = _subjects(tmp_path, "edge", "*")
    runtime = Runtime(about=RuntimeEnvironment())
    comparison = _Comparison(
        runtimes=(runtime, runtime),
        key="",
        pem="",
        work=tmp_path,
        limits=WorkerLimits(),
        allow=1.05,
        measure_seconds=0.0,
    )
    with pytest.raises(AotcError) as refused:
        comparison._built(subject, tmp_path / "before", cast("Sandbox", cast("Any", Full())))
    assert refused.value.code == "AOTC-I018"


def test_that_nothing_is_built_is_not_that_none_is_worse() -> None:
    refusal = Refusal(code="AOTC-I012", what="no")
    side = SideBuild(outcome="refused", refusal=refusal)
    environment = RuntimeEnvironment()
    report = UpgradeReport(
        fleet="zoo",
        before=environment,
        after=environment,
        allow=1.05,
        models=(UpgradedModel(model="m", outcome="fails-in-both", before=side, after=side),),
    )
    heading = upgrade_view(report)[0]
    assert isinstance(heading, Heading)
    assert "none is built by either" in str(heading)


def test_a_busy_machine_is_no_finding_of_a_version() -> None:
    quiet = SideBuild(outcome="built", findings=("AOTC-S008",))
    busy = SideBuild(outcome="built", findings=("AOTC-N055", "AOTC-S008"))
    found = UpgradedModel(model="m", outcome="same", before=quiet, after=busy)
    assert findings_in_words(found) == ""
    worse = replace(busy, findings=("AOTC-O003",))
    assert "new: AOTC-O003" in findings_in_words(replace(found, after=worse))
