"""Files that somebody exchanges between the look at them and their use: what was judged is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_models import linear, save
from refusals import refusal

from aotc.cli.configuration import read_settings
from aotc.cli.main import main
from aotc.graph import model as graph_model
from aotc.pipeline import build as build_module
from aotc.pipeline.request import BuildRequest, requested_profile
from aotc.session.capture import read_capture
from aotc.spec.profile import Profile

HARMLESS = "schema: aotc.profile/1\nname: harmless\nproviders: [cpu]\n"
TASK = "gates:\n  task: {data: d.npz, metric: 'stranger:metric'}\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose `aotc.yaml` names a profile, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTC_CONFIG", raising=False)
    Path("aotc.yaml").write_text("profile: p.yaml\n")
    Path("p.yaml").write_text(HARMLESS)
    return tmp_path


def test_a_profile_is_judged_and_used_as_one_reading(checkout: Path) -> None:
    settings = read_settings()
    Path("p.yaml").write_text(HARMLESS + TASK)
    for command in ("build", "check-models"):
        stated = settings[command]["profile"].value
        found, places = requested_profile(BuildRequest("m.onnx", profile=stated))
        assert found.gates.task is None
        assert places.file == "p.yaml"
        # It is a text for everybody else.
        assert (str(stated), f"{stated}", Path(stated)) == ("p.yaml", "p.yaml", Path("p.yaml"))


def test_a_profile_that_was_not_readable_is_not_read_again(checkout: Path) -> None:
    """Whoever judged it could say nothing of it, and so nothing of it is used."""
    Path("p.yaml").write_text("schema: aotc.profile/1\nname: [\n")
    stated = read_settings()["build"]["profile"].value
    Path("p.yaml").write_text(HARMLESS + TASK)
    assert refusal(requested_profile, BuildRequest("m.onnx", profile=stated)).code == "AOTC-I022"


def test_the_command_hands_on_what_was_judged(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Profile] = []

    def built(model: Path, **options: Any) -> None:
        Path("p.yaml").write_text(HARMLESS + TASK)
        used.append(requested_profile(BuildRequest(model, profile=options["profile"]))[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(build_module, "build", built)
    assert main(["build", "m.onnx"]) == 130
    assert [(profile.name, profile.gates.task) for profile in used] == [("harmless", None)]


def test_a_model_is_hashed_as_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(linear(), tmp_path / "m.onnx")
    first, *_ = read_capture(path)
    plain = graph_model.parse_model

    def exchanged(data: bytes, place: Path) -> Any:
        place.write_bytes(data + data)
        return plain(data, place)

    monkeypatch.setattr("aotc.session.capture.parse_model", exchanged)
    again, *_ = read_capture(path)
    assert (again.sha256, again.size) == (first.sha256, first.size)
