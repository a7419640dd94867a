"""What is kept of each cell: read back, whole or not at all, and lost without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.fleet.state import FleetState, default_state
from aotc.spec.fleet import Cell, CellResult, MergedArtifact

_CELL = Cell(model="a", profile="edge", target="host", source="a.onnx", output="a.aotc")
_RESULT = CellResult(cell=_CELL, outcome="built", key="k", artifact_id="i", seconds=2.5)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    FleetState(tmp_path / "new" / "state").keep(_RESULT)
    state = FleetState(tmp_path / "new" / "state")
    assert state.result("a/edge/host") == _RESULT
    assert state.result("b/edge/host") is None
    merged = MergedArtifact(model="a", profile="edge", output="x", cells=("a/edge/host",))
    state.keep_merged("a/edge", merged)
    assert state.merged("a/edge") == merged
    assert state.findings() == ()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"cell": 1}', b"\xff"])
def test_what_cannot_be_read_is_not_there(tmp_path: Path, damage: bytes) -> None:
    state = FleetState(tmp_path)
    state.keep(_RESULT)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert state.result("a/edge/host") is None
    state.keep(_RESULT)
    assert state.result("a/edge/host") == _RESULT


def test_what_cannot_be_kept_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = FleetState(tmp_path / "file")
    state.keep(_RESULT)
    state.keep(_RESULT)
    (finding,) = state.findings()
    assert finding.code == "AOTC-I168"
    assert FleetState(None).result("a/edge/host") is None


def test_each_file_has_a_state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = (default_state(tmp_path / name / "fleet.yaml", "shop") for name in "ab")
    assert one is not None
    assert one != other
    assert one.parent == tmp_path / "aotc" / "fleets"
