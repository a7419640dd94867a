"""Which cells of a fleet's file are compared, within which limits, and which findings count."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_models import linear, save

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.fleet.upgrade import _limits, _subjects
from aotc.fleet.upgrade_outcomes import findings_in_words
from aotc.spec.upgrade import SideBuild, UpgradedModel

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


def test_a_busy_machine_is_no_finding_of_a_version() -> None:
    quiet = SideBuild(outcome="built", findings=("AOTC-S008",))
    busy = SideBuild(outcome="built", findings=("AOTC-N055", "AOTC-S008"))
    found = UpgradedModel(model="m", outcome="same", before=quiet, after=busy)
    assert findings_in_words(found) == ""
    worse = replace(busy, findings=("AOTC-O003",))
    assert "new: AOTC-O003" in findings_in_words(replace(found, after=worse))
