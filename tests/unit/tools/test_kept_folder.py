"""A folder of kept answers: equal values once, bounded, and what it leaves out is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aotc.spec.answers import KeptCall, KeptValue, ModelAnswers
from aotc.tools import kept_answers
from aotc.tools.kept_answers import (
    AnswersSoFar,
    Compared,
    KeptFolder,
    read_kept,
    with_digest,
)


class Values:
    """Files of values, of any content, and answers made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, str] = {}

    def value(self, name: str, content: bytes) -> KeptValue:
        digest = hashlib.sha256(content).hexdigest()
        path = self.folder / f"given-{digest}"
        path.write_bytes(content)
        self.files[digest] = str(path)
        return KeptValue(
            name=name, value="float32[1]", sha256=digest, bytes=len(content), form="npy", sketch="s"
        )

    def answers(self, model: str, *calls: tuple[bytes, bytes]) -> ModelAnswers:
        made = [
            KeptCall(
                name=f"call{index}",
                inputs=(self.value("x", given),),
                outputs=(self.value("y", answer),),
            )
            for index, (given, answer) in enumerate(calls)
        ]
        return with_digest(
            ModelAnswers(model=model, source="0" * 64, seed=1, onnxruntime="1.0", calls=tuple(made))
        )


@pytest.fixture
def values(tmp_path: Path) -> Values:
    return Values(tmp_path)


def in_folder(folder: Path) -> dict[str, list[bool]]:
    """Of each model, which calls have their files; all files are read through."""
    kept = read_kept(folder, ["a", "b"])
    return {name: [call.in_folder for call in each.calls] for name, each in kept.items()}


def test_equal_values_are_there_once(values: Values, tmp_path: Path) -> None:
    folder = KeptFolder(tmp_path / "kept", [])
    for name in "ab":
        folder.add(values.answers(name, (b"given", b"answer"), (b"given", b"other")), values.files)
    folder.write()
    assert len(list((tmp_path / "kept" / "values").iterdir())) == 3
    assert in_folder(tmp_path / "kept") == {"a": [True, True], "b": [True, True]}


def test_what_is_too_much_of_one_model(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "MAX_MODEL_BYTES", 100)
    folder = KeptFolder(tmp_path / "kept", [])
    folder.add(values.answers("a", (b"x" * 60, b"y" * 41), (b"x", b"y" * 90)), values.files)
    folder.write()
    assert in_folder(tmp_path / "kept") == {"a": [False, True]}
    (left,) = folder.left_out
    assert (left.model, left.reason) == ("a", "fixture call0: 101 bytes are more than is kept")


def test_what_is_too_much_of_all(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "MAX_TOTAL_BYTES", 100)
    folder = KeptFolder(tmp_path / "kept", [])
    folder.add(values.answers("a", (b"x" * 50, b"y" * 40)), values.files)
    # What is there already takes no room.
    folder.add(values.answers("b", (b"x" * 50, b"z" * 10), (b"x" * 50, b"z" * 11)), values.files)
    folder.write()
    assert in_folder(tmp_path / "kept") == {"a": [True], "b": [True, False]}
    again = KeptFolder(tmp_path / "kept", [])
    again.add(values.answers("c", (b"new", b"new too")), values.files)
    assert [each.model for each in again.left_out] == ["c"]


def test_sketches_of_a_document_are_bounded(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "MAX_TOTAL_SKETCH", 1)
    found = AnswersSoFar()
    first, second = (values.answers(name, (b"x", b"y")) for name in "ab")
    assert found.shortened(first) == first
    shortened = found.shortened(second)
    assert shortened.calls[0].outputs[0].sketch is None
    assert shortened.digest == shortened.contents_sha256()
    found.judged("a", Compared(calls=0, reasons=("nothing",)))
    report = found.report([], [], None)
    assert [each.model for each in report.not_kept] == ["b"]
    assert [(each.model, each.reason) for each in report.not_compared] == [("a", "nothing")]
    assert report.compared == 0
