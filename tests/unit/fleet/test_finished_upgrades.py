"""What an interrupted comparison had finished is taken for what is the same now, and no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from made_models import linear, save, save_external

from aotc.base.records import replace
from aotc.fleet.runtimes import Runtime
from aotc.fleet.upgrade import Subject, _Finished
from aotc.spec.profile_files import load_profile
from aotc.spec.reports import Refusal
from aotc.spec.upgrade import RuntimeEnvironment, SideBuild, UpgradedModel

HERE = Runtime(about=RuntimeEnvironment(), stamp="one")
FOUND = UpgradedModel(
    model="m",
    outcome="same",
    before=SideBuild(outcome="built"),
    after=SideBuild(outcome="built"),
)


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fixtures = tmp_path / "fixtures" / "test_data_set_0"
    fixtures.mkdir(parents=True)
    (fixtures / "input_0.pb").write_bytes(b"one")
    save(linear(), tmp_path / "m.onnx")
    return Subject(
        name="m",
        stated="m.onnx",
        source=tmp_path / "m.onnx",
        profile=load_profile("edge"),
        fixtures=str(fixtures.parent),
    )


def kept(runtime: Runtime = HERE) -> _Finished:
    return _Finished((HERE, runtime), (1.05, 3.0))


def other_model(subject: Subject) -> None:
    save(linear(features=9), subject.source)


def other_fixtures(subject: Subject) -> None:
    assert subject.fixtures is not None
    (Path(subject.fixtures) / "test_data_set_0" / "input_0.pb").write_bytes(b"two")


@pytest.mark.parametrize("change", [other_model, other_fixtures])
def test_what_a_model_is_made_of_counts(
    subject: Subject, change: Callable[[Subject], None]
) -> None:
    kept().add(subject, FOUND)
    assert kept().find(subject) is not None
    change(subject)
    assert kept().find(subject) is None


def test_weights_count_as_they_are(subject: Subject, tmp_path: Path) -> None:
    """With the size and the time of those before, too."""
    model, content = save_external(tmp_path)
    external = replace(subject, source=model)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(content)
    kept().add(external, FOUND)
    assert kept().find(external) is not None
    time = weights.stat().st_mtime_ns
    weights.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(weights, ns=(time, time))
    assert kept().find(external) is None


def test_a_runtime_that_was_installed_anew_counts(subject: Subject) -> None:
    """Its version may be the same."""
    kept().add(subject, FOUND)
    assert kept(replace(HERE, stamp="two")).find(subject) is None


def test_a_file_that_now_requires_the_model_decides(subject: Subject) -> None:
    kept().add(subject, replace(FOUND, required=False))
    found = kept().find(subject)
    assert found is not None
    assert found.required


def test_what_was_not_built_is_tried_again(subject: Subject) -> None:
    """It may have been for lack of time."""
    refusal = Refusal(code="AOTC-I014", what="build_model ran longer than 1 s")
    late = SideBuild(outcome="timeout", refusal=refusal)
    kept().add(subject, replace(FOUND, outcome="fails", after=late))
    assert kept().find(subject) is None
