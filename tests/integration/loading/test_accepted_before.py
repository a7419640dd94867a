"""Fixtures that matched at an earlier load are not run again where nothing has changed since."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from reforged_artifact import promised, with_other_golden

from aotc.base.errors import AotcError
from aotc.runtime import warmup
from aotc.runtime.loading import load
from aotc.runtime.store.entries import LOCK
from aotc.runtime.store.pruning import prune
from aotc.runtime.warmup import AcceptedFixtures

ONE_RAN = 1


def ran(artifact: Path, public: Path, store: Path, **options: Any) -> int:
    """How many fixtures a load runs; all of them match."""
    with load(artifact, key=public, store=store, **options) as model:
        report = model.report
        assert report.fixtures == len(model.manifest.fixtures) > 1
        assert report.fixtures_before == sum(each.fixtures_before for each in report.variants)
        assert model.ready
        return report.fixtures - report.fixtures_before


def kept_in(store: Path) -> Path:
    (found,) = store.glob("accepted-*.json")
    return found


def test_a_second_load_runs_one_fixture(digits: BuiltArtifact, tmp_path: Path) -> None:
    every = len(promised(digits).fixtures)
    assert ran(digits.path, digits.public_key, tmp_path) == every
    assert ran(digits.path, digits.public_key, tmp_path) == ONE_RAN
    # Each variant is accepted by itself, and does not take the other's place.
    assert ran(digits.path, digits.public_key, tmp_path, variant="portable") == every
    assert ran(digits.path, digits.public_key, tmp_path, variant="portable") == ONE_RAN
    assert ran(digits.path, digits.public_key, tmp_path) == ONE_RAN


def test_all_run_where_that_is_asked(digits: BuiltArtifact, tmp_path: Path) -> None:
    every = len(promised(digits).fixtures)
    for _ in range(2):
        assert ran(digits.path, digits.public_key, tmp_path, rerun_fixtures=True) == every


def test_all_run_in_another_store(digits: BuiltArtifact, tmp_path: Path) -> None:
    every = len(promised(digits).fixtures)
    for name in ("one", "other"):
        assert ran(digits.path, digits.public_key, tmp_path / name) == every


def test_what_is_known_goes_with_the_entry(digits: BuiltArtifact, tmp_path: Path) -> None:
    ran(digits.path, digits.public_key, tmp_path)
    assert kept_in(tmp_path).is_file()
    assert prune(tmp_path, limit=0).kept == 0
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert ran(digits.path, digits.public_key, tmp_path) == len(promised(digits).fixtures)


def other_threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"threads": 1}


def other_variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("ORT_SOMETHING", "1")
    return {}


def other_processor(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(warmup, "processor_identity", lambda: ("model: another",))
    return {}


def unknown_processor(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(warmup, "processor_identity", lambda: ())
    return {}


def other_release(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(warmup, "VERSION", "0.0.0")
    return {}


def other_runtime(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As installed again: another time of change."""
    monkeypatch.setattr(warmup, "_onnxruntime", lambda: ["1.31.1", "", 1, 2, 3])
    return {}


@pytest.mark.parametrize(
    "change",
    [
        other_threads,
        other_runtime,
        other_variables,
        other_processor,
        unknown_processor,
        other_release,
    ],
)
def test_all_run_under_other_conditions(
    digits: BuiltArtifact,
    tmp_path: Path,
    change: Callable[[pytest.MonkeyPatch], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran(digits.path, digits.public_key, tmp_path, threads=2)
    options = {"threads": 2, **change(monkeypatch)}
    every = len(promised(digits).fixtures)
    assert ran(digits.path, digits.public_key, tmp_path, **options) == every


def linked(path: Path) -> None:
    elsewhere = path.with_name("elsewhere.json")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def linked_twice(path: Path) -> None:
    os.link(path, path.with_name("elsewhere.json"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def of_a_later_form(path: Path) -> None:
    path.write_text(path.read_text().replace("aotc.accepted/1", "aotc.accepted/2"))


def of_other_types(path: Path) -> None:
    document = json.loads(path.read_text())
    document["variants"] = {name: [] for name in document["variants"]}
    path.write_text(json.dumps(document))


def of_fewer_fixtures(path: Path) -> None:
    document = json.loads(path.read_text())
    for entry in document["variants"].values():
        entry["fixtures"].pop()
    path.write_text(json.dumps(document))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def of_others(path: Path) -> None:
    os.chown(path, 65534, -1)


@pytest.mark.parametrize(
    "change",
    [
        *(linked, linked_twice, cut, of_a_later_form, of_other_types, of_fewer_fixtures, a_folder),
        a_pipe,
        lambda path: path.chmod(0o620),
        pytest.param(
            of_others, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give away")
        ),
    ],
)
def test_what_is_not_this_users_alone_is_not_known(
    digits: BuiltArtifact, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    ran(digits.path, digits.public_key, tmp_path)
    kept = kept_in(tmp_path)
    change(kept)
    assert ran(digits.path, digits.public_key, tmp_path) == len(promised(digits).fixtures)
    if not kept.is_dir():
        # What was found is replaced.
        assert ran(digits.path, digits.public_key, tmp_path) == ONE_RAN
        assert (kept.stat().st_mode & 0o777, kept.stat().st_nlink) == (0o600, 1)


def load_as_accepted(digits: BuiltArtifact, folder: Path, fixture: int, **options: Any) -> None:
    """Load a copy whose golden answer of one fixture is wrong, after it was noted as matching."""
    artifact, public = with_other_golden(digits, folder, fixture=fixture)
    store = folder / "store"
    with load(artifact, key=public, store=store, warm_up=False) as model:
        known = AcceptedFixtures(store, model.report.artifact_id)
        known.record(model.variant, [each.name for each in model.manifest.fixtures])
    load(artifact, key=public, store=store, **options).close()


def by_size(digits: BuiltArtifact) -> list[int]:
    """Numbers of the fixtures, by the bytes of their inputs."""
    sizes = {entry.path: entry.size for entry in promised(digits).files}
    return sorted(
        range(len(promised(digits).fixtures)),
        key=lambda number: sum(
            sizes[tensor.path] for tensor in promised(digits).fixtures[number].inputs
        ),
    )


def test_the_smallest_is_compared_at_each_load(digits: BuiltArtifact, tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        load_as_accepted(digits, tmp_path, by_size(digits)[0])
    assert caught.value.code == "AOTC-N003"


def test_the_others_are_not_run_again(digits: BuiltArtifact, tmp_path: Path) -> None:
    load_as_accepted(digits, tmp_path, by_size(digits)[-1])
    (tmp_path / "again").mkdir()
    with pytest.raises(AotcError) as caught:
        load_as_accepted(digits, tmp_path / "again", by_size(digits)[-1], rerun_fixtures=True)
    assert caught.value.code == "AOTC-N003"


def test_a_store_that_cannot_be_written_keeps_nothing(
    digits: BuiltArtifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aotc.base.files.writing.write_atomically", full)
    for _ in range(2):
        assert ran(digits.path, digits.public_key, tmp_path) == len(promised(digits).fixtures)
    assert not list(tmp_path.glob("accepted-*"))
