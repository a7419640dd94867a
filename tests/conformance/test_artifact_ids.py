"""Today's builds have the recorded artifact ids: no change of the source changed their bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "ci")
    import artifact_ids
    from identified_models import IDENTIFIED

HOST = {"aotc": "1", "python": "3", "packages": {"onnx": "1"}, "cpu": "of a kind"}
OTHER = {**HOST, "cpu": "of another kind"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return artifact_ids.host_key(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def kept(host: dict[str, Any]) -> dict[str, str]:
    """The recorded ids for this host."""
    found = artifact_ids.kept_ids(host)
    if found is None:
        pytest.skip(
            f"no artifact ids are kept for this host ({artifact_ids.host_text(host)});"
            " 'make ids KEEP=1' keeps them"
        )
    return found


@pytest.fixture(scope="module")
def built(
    host: dict[str, Any], kept: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The artifact id, or the refusal, of every model that this host builds."""
    models, _ = artifact_ids.buildable_models(host)
    folder = tmp_path_factory.mktemp("ids")
    outcomes = artifact_ids.build_all(models, ROOT / "toolchain", folder / "here")
    return {name: str(each) for name, each in outcomes.items()}


@pytest.mark.parametrize("name", [model.name for model in IDENTIFIED])
def test_id_is_the_one_that_is_kept(
    name: str, host: dict[str, Any], kept: dict[str, str], built: dict[str, str]
) -> None:
    _, absent = artifact_ids.buildable_models(host)
    if reasons := [line for line in absent if line.startswith(f"{name}:")]:
        pytest.skip(reasons[0])
    assert built[name] == kept.get(name), (
        "'make ids AGAINST=REVISION' says which bytes differ from what a revision builds;"
        " where they are meant to, 'make ids KEEP=1' keeps the new ids"
    )


def test_ten_models_are_built_on_any_host() -> None:
    assert len([model for model in IDENTIFIED if not model.needs]) == 10
    assert len({model.name for model in IDENTIFIED}) == len(IDENTIFIED)


def test_every_host_kept_the_ten() -> None:
    ten = {model.name for model in IDENTIFIED if not model.needs}
    for host in artifact_ids.read_kept():
        assert ten <= set(host["ids"]) <= {model.name for model in IDENTIFIED}


def test_differences_name_the_model() -> None:
    lines = artifact_ids.differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"})
    assert lines == [
        "a: kept 1, built not",
        "b: kept 2, built 3",
        "c: kept nothing, built 4",
    ]
    assert artifact_ids.differences({"a": "1"}, {"a": "1"}) == []


def test_ids_of_other_hosts_are_dropped_once_builds_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_ids, "KEPT", tmp_path / "kept.json")
    assert artifact_ids.keep_ids(HOST, {"a": "1"}) == []
    assert artifact_ids.keep_ids(OTHER, {"a": "2"}) == []
    assert artifact_ids.keep_ids(HOST, {"a": "1"}) == []
    assert artifact_ids.kept_ids(OTHER) == {"a": "2"}

    (line,) = artifact_ids.keep_ids(HOST, {"a": "5"})
    assert "of another kind" in line
    assert artifact_ids.kept_ids(OTHER) is None
    assert json.loads((tmp_path / "kept.json").read_text())["hosts"] == [
        {"host": HOST, "ids": {"a": "5"}}
    ]


def test_ids_are_of_the_profiles_and_manifests_that_they_were_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile that changed on another host must not make this one's ids wrong."""
    monkeypatch.setattr(artifact_ids, "KEPT", tmp_path / "kept.json")
    before, after = {**HOST, "formats": "1"}, {**HOST, "formats": "2"}
    other = {**OTHER, "formats": "2"}
    assert artifact_ids.keep_ids(before, {"a": "1"}) == []
    assert artifact_ids.kept_ids(after) is None
    (line,) = artifact_ids.keep_ids(other, {"a": "2"})
    assert "of a kind" in line
    assert artifact_ids.keep_ids(after, {"a": "3"}) == []
    assert artifact_ids.kept_ids(other) == {"a": "2"}


def test_a_changed_byte_is_reported_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = []
    for side, weights in (("here", b"1"), ("there", b"2")):
        folder = tmp_path / side
        (folder / "payload").mkdir(parents=True)
        (folder / "payload" / "aotc.json").write_text(f'{{"made": "{side}"}}')
        (folder / "payload" / "weights.bin").write_bytes(weights)
        sides.append(artifact_ids.BuildOutcome(folder=folder, id=side))
    here, there = sides
    assert artifact_ids.compare({"m": here}, {"m": here}, "REVISION") == 0
    assert "m           here          here          2, all equal" in capsys.readouterr().out

    assert artifact_ids.compare({"m": here}, {"m": there}, "REVISION") == 1
    printed = capsys.readouterr().out
    assert "payload/weights.bin: 6b86b273ff34 here, d4735e3a265e there" in printed
    assert '- "made": "there"' in printed
    assert '+ "made": "here"' in printed
