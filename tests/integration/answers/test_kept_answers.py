"""Answers of original models are kept, and compared under another ONNX Runtime."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_models import network, saved
from changed_runtime import changed_runtime
from command import TOOLCHAIN, Command, Outcome
from onnx import save

Under = Callable[[str], Command]
# Of so few sizes that finding them takes no time.
_PROFILE = "schema: aotc.profile/1\nname: {name}\n{more}\n"


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Two models, whose answers are in `before.json` and in the folder `kept`."""
    folder = tmp_path_factory.mktemp("kept")
    saved(folder / "models", "small")
    saved(folder / "models", "large", seed=2, columns=2000)
    for name, more in (
        ("narrow", "dims: {batch: 1..2}"),
        ("other", "dims: {batch: 3..5}"),
        ("seeded", "dims: {batch: 1..2}\nparity: {seed: 7}"),
    ):
        (folder / f"{name}.yaml").write_text(_PROFILE.format(name=name, more=more))
    command = Command(folder)
    done = check(command, "--output", "before.json", "--keep-answers", "kept")
    assert (done.status, done.document["answers"]["kept"]) == (0, 2), done
    return command


@pytest.fixture
def under(aotc: Command, tmp_path: Path) -> Under:
    """The same with an ONNX Runtime whose answers are changed by an expression of `o`."""

    def command(change: str) -> Command:
        site = changed_runtime(tmp_path / str(abs(hash(change))), change)
        return replace(aotc, extra={"PYTHONPATH": os.pathsep.join((site, str(TOOLCHAIN)))})

    return command


def changed(done: Outcome) -> set[tuple[str, str]]:
    answers = done.document["answers"]
    assert done.status == (1 if answers["changed"] else 0), done
    return {(each["model"], each["error"]["output"]) for each in answers["changed"]}


def check(
    aotc: Command, *words: str, models: str | Path = "models", profile: str = "narrow"
) -> Outcome:
    return aotc("check-models", models, "--profile", f"{profile}.yaml", *words)


Y = ("small.onnx", "y")
LARGE = {("large.onnx", "y")}
FLOATS = {Y, *LARGE}
# Whether `o` is the `y` of the small model.
SMALL = "o.shape[-1] == 3"
ONE_VALUE = (
    "(__import__('numpy').put(o, {at}, o.flat[{at}] + {by}), o)[1] if o.shape[-1] == 2000 else o"
)


@pytest.mark.parametrize("place", ["before.json", "kept"])
def test_the_same_runtime_answers_as_before(aotc: Command, place: str) -> None:
    done = check(aotc, "--against", place)
    assert changed(done) == set()
    answers = done.document["answers"]
    assert (answers["compared"], answers["before"]) == (2, [place])
    assert (answers["not_compared"], answers["refused"]) == ([], [])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # By less than the tolerance of float32, which is 1e-3 of the largest; and by more.
        (f"o * o.dtype.type(1.0003 if {SMALL} else 1.003) if o.dtype.kind == 'f' else o", LARGE),
        (f"o * o.dtype.type(1.003 if {SMALL} else 1.0003) if o.dtype.kind == 'f' else o", {Y}),
        ("o + 1 if o.dtype.kind == 'i' else o", {("small.onnx", "k"), ("large.onnx", "k")}),
        (f"o.astype('f8') if {SMALL} else o", {Y}),
    ],
)
def test_what_a_document_notices(under: Under, change: str, expected: set[tuple[str, str]]) -> None:
    done = check(under(change), "--against", "before.json")
    assert changed(done) == expected
    # Variant and original changed together, so that no outcome tells.
    assert done.document["against"]["worse"] == []


def test_one_value_of_many(under: Under) -> None:
    """The sketch may miss one value; whole answers have it, and the extreme of a block shows."""
    words = ("--pattern", "large*", "--against")
    moved = under(ONE_VALUE.format(at=777, by=0.5))
    assert changed(check(moved, *words, "kept")) == LARGE
    extreme = under(ONE_VALUE.format(at=777, by=100.0))
    done = check(extreme, *words, "before.json")
    assert changed(done) == LARGE
    assert [each["whole"] for each in done.document["answers"]["changed"]] == [False]


def test_what_people_and_pipelines_read(under: Under) -> None:
    command = under("o + o.dtype.type(.5) if o.dtype.kind == 'f' else o")
    words = ("--profile", "narrow.yaml", "--against", "before.json", "--report", "report.json")
    done = command.plain("check-models", "models", *words)
    assert done.status == 1
    assert "none is worse; THE ANSWERS OF 2 CHANGED" in done.stdout
    assert "answers changed, AOTC-N058" in done.stdout
    report = json.loads((command.folder / "report.json").read_text("utf-8"))
    gates = {
        each["subject"]: each["status"] for each in report["gates"] if each["name"] == "answers"
    }
    assert gates == {"all models": "failed", "small.onnx": "failed", "large.onnx": "failed"}
    breach = report["refusals"][0]
    assert breach["code"] == "AOTC-N058"
    assert breach["where"].startswith("large.onnx, fixture ")
    assert "output 'y'" in breach["what"]
    assert "exceeds" in breach["found"]
    assert "ONNX Runtime" in breach["expected"]


def test_a_folder_is_compared_and_added_to(aotc: Command, under: Under, tmp_path: Path) -> None:
    """Also where it was copied to; what it has stays, until it is kept anew."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(aotc.folder / "kept", copy)
    saved(aotc.folder / "models", "third", seed=5)
    try:
        moved = under("o + o.dtype.type(.5) if o.dtype.kind == 'f' else o")
        done = check(moved, "--keep-answers", str(copy))
        assert changed(done) == FLOATS
        assert (done.document["answers"]["kept"], done.document["answers"]["compared"]) == (1, 2)
        # The third was kept by the changed runtime, the others are as they were.
        assert changed(check(aotc, "--keep-answers", str(copy))) == {("third.onnx", "y")}
        anew = check(aotc, "--keep-answers", str(copy), "--renew-answers")
        assert (anew.status, anew.document["answers"]["before"]) == (0, [])
        assert changed(check(aotc, "--keep-answers", str(copy))) == set()
        index = json.loads((copy / "answers.json").read_text("utf-8"))
        named = {
            f"{value['sha256']}.{value['form']}"
            for model in index["models"]
            for call in model["calls"]
            for value in (*call["inputs"], *call["outputs"])
        }
        assert {each.name for each in (copy / "values").iterdir()} == named
    finally:
        (aotc.folder / "models" / "third.onnx").unlink()


def test_inputs_that_are_made_otherwise(aotc: Command, under: Under) -> None:
    """Other sizes than then: a folder has the inputs, and the original model is run on them."""
    assert changed(check(aotc, "--against", "kept", profile="other")) == set()
    moved = under("o + o.dtype.type(.5) if o.dtype.kind == 'f' else o")
    assert changed(check(moved, "--against", "kept", profile="other")) == FLOATS
    done = check(aotc, "--against", "before.json", profile="other")
    reasons = {each["model"]: each["reason"] for each in done.document["answers"]["not_compared"]}
    assert done.status == 0
    assert set(reasons) == {"small.onnx", "large.onnx"}
    assert all(reason.endswith("other inputs than then") for reason in reasons.values())


# What cannot be compared with.


def entry_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in document["models"] if each["model"] == name)


@pytest.mark.parametrize("place", ["before.json", "kept"])
def test_another_model_of_the_name(aotc: Command, place: str, tmp_path: Path) -> None:
    shutil.copytree(aotc.folder / "models", tmp_path / "models")
    saved(tmp_path / "models", "small", seed=9)
    words = ("--against", place, "--report", "other.json")
    done = check(aotc, *words, models=tmp_path / "models")
    (refused,) = done.document["answers"]["refused"]
    assert (done.status, refused["code"]) == (1, "AOTC-I089")
    assert refused["where"] == f"{place}: small.onnx"
    assert "sha256" in refused["expected"]
    assert "--renew-answers" in refused["fix"]
    assert done.document["answers"]["compared"] == 1
    report = json.loads((aotc.folder / "other.json").read_text("utf-8"))
    assert [each["code"] for each in report["refusals"]] == ["AOTC-I089"]


@pytest.mark.parametrize("place", ["before.json", "kept"])
def test_another_seed(aotc: Command, place: str) -> None:
    done = check(aotc, "--against", place, profile="seeded")
    refused = done.refused("AOTC-I090", 3)
    assert (refused["expected"], refused["found"]) == (
        "parity.seed 1729, as then",
        "parity.seed 7",
    )


def test_a_damaged_document(aotc: Command) -> None:
    document = json.loads((aotc.folder / "before.json").read_text("utf-8"))
    original = entry_of(document, "small.onnx")["original"]
    original["calls"][0]["outputs"][0]["sketch"]["data"] = "AAAA"
    (aotc.folder / "edited.json").write_text(json.dumps(document))
    refused = check(aotc, "--against", "edited.json").refused("AOTC-I091", 3)
    assert "small.onnx" in refused["found"]


def damaged_value(folder: Path) -> None:
    file = sorted((folder / "values").iterdir())[0]
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")


def missing_value(folder: Path) -> None:
    sorted((folder / "values").iterdir())[-1].unlink()


def cut_index(folder: Path) -> None:
    index = folder / "answers.json"
    index.write_bytes(index.read_bytes()[:-9])


def edited_index(folder: Path) -> None:
    index = json.loads((folder / "answers.json").read_text("utf-8"))
    index["models"][0]["calls"][0]["name"] = "other"
    (folder / "answers.json").write_text(json.dumps(index))


def other_form(folder: Path) -> None:
    (folder / "answers.json").write_text('{"schema": "aotc.kept-answers/9", "answers": []}')


@pytest.mark.parametrize("option", ["--against", "--keep-answers"])
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (damaged_value, "AOTC-I091"),
        (missing_value, "AOTC-I091"),
        (cut_index, "AOTC-I091"),
        (edited_index, "AOTC-I091"),
        (other_form, "AOTC-I092"),
    ],
)
def test_a_folder_that_cannot_be_used(
    aotc: Command, tmp_path: Path, option: str, spoil: Callable[[Path], None], code: str
) -> None:
    copy = tmp_path / "kept"
    shutil.copytree(aotc.folder / "kept", copy)
    spoil(copy)
    refused = check(aotc, option, str(copy)).refused(code, 3)
    assert refused["where"].startswith(str(copy))
    assert "--renew-answers" in refused["fix"]
    # What is wrong with a folder is no matter to what makes it anew, unless it is not known.
    if option == "--keep-answers" and spoil in (damaged_value, other_form):
        words = ("--keep-answers", str(copy), "--renew-answers", "--pattern", "small*")
        assert check(aotc, *words).status == 0
        assert check(aotc, "--keep-answers", str(copy), "--pattern", "small*").status == 0


def test_a_folder_of_something_else(aotc: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    check(aotc, "--keep-answers", str(tmp_path)).refused("AOTC-I017", 3)
    words = ("--keep-answers", str(tmp_path), "--renew-answers")
    check(aotc, *words).refused("AOTC-I017", 3)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_document_from_before_answers_were_kept(aotc: Command) -> None:
    document = json.loads((aotc.folder / "before.json").read_text("utf-8"))
    for each in document["models"]:
        del each["original"]
    del document["answers"]
    (aotc.folder / "old.json").write_text(json.dumps(document))
    words = ("--profile", "narrow.yaml", "--against", "old.json")
    done = aotc.plain("check-models", "models", *words)
    assert done.status == 0
    assert "none of these models in old.json, so none was compared" in " ".join(done.stdout.split())


def test_answers_that_are_drawn_are_kept_too(aotc: Command, tmp_path: Path) -> None:
    """Without a seed as well: the build gives one, and each run draws anew from it."""
    shutil.copytree(aotc.folder / "models", tmp_path / "models")
    drawn = network()
    drawn.graph.node.add(op_type="RandomNormalLike", input=["y"], output=["r"], name="drawn")
    drawn.graph.output[0].name = "r"
    save(drawn, tmp_path / "models" / "drawn.onnx")
    words = ("--pattern", "[ds]*", "--keep-answers", str(tmp_path / "kept"))
    written = str(tmp_path / "drawn.json")
    first = check(aotc, *words, "--output", written, models=tmp_path / "models")
    assert (first.status, first.document["answers"]["kept"]) == (0, 2)
    again = check(aotc, *words, "--against", written, models=tmp_path / "models")
    assert (again.status, again.document["answers"]["compared"]) == (0, 2)
