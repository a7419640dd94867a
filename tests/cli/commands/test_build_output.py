"""Where `aotc build` writes: one file or a folder, what it refuses, and what it replaces."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import onnx
import pytest
from command import Command
from made_models import FEATURES, linear, save

REPLACE = "Choose another output with -o, or replace it with --force."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command in a folder with `model.onnx`, `model.aotc` and `model.aotc.zip`."""
    aotc = Command(tmp_path_factory.mktemp("made"))
    save(linear(), aotc.folder / "model.onnx")
    for words in ((), ("-o", "model.aotc.zip")):
        assert aotc.plain("build", "model.onnx", *words, "-q").status == 0
    return aotc


@pytest.fixture
def aotc(made: Command, tmp_path: Path) -> Command:
    """The same files in a folder of the test's own, for this user."""
    own = tmp_path / "own"
    shutil.copytree(made.folder, own)
    return Command(own, made.extra)


def said(what: str, where: str, fix: str = REPLACE) -> str:
    return (
        "error: AOTC-I017 output already exists\n"
        f"  what:     {what}\n"
        f"  where:    {where}\n"
        f"  fix:      {fix}\n"
    )


# -- one file
@pytest.mark.parametrize("name", ["out.zip", "out.aotc.zip", "out.ZIP"])
def test_one_file_is_the_folder_packed(aotc: Command, name: str) -> None:
    built = aotc("build", "model.onnx", "-o", name, "--report", "r.json")
    assert built.status == 0
    assert built.document["artifact"] == name
    assert f'"artifact": "{name}"' in (aotc.folder / "r.json").read_text()
    assert (aotc.folder / name).is_file()
    assert aotc("pack", "model.aotc", "-o", "packed.zip").status == 0
    packed = [zipfile.ZipFile(aotc.folder / each).namelist() for each in (name, "packed.zip")]
    assert packed[0] == packed[1]
    assert aotc.leftovers() == []
    if name != "out.ZIP":
        assert aotc("verify", name).document["verdict"] == "optimal"
        assert aotc("run", name).document["load"]["artifact_id"] == built.document["artifact_id"]


def test_a_suffix_alone_is_a_name_of_one_file(aotc: Command) -> None:
    assert aotc("build", "model.onnx", "-o", ".zip").status == 0
    assert zipfile.is_zipfile(aotc.folder / ".zip")


def test_one_file_is_shown_as_a_folder_is(aotc: Command) -> None:
    shown = aotc.plain("build", "model.onnx", "-o", "out.zip").stdout
    assert shown.startswith("out.zip  from the build cache; built, proven and signed\n")


@pytest.mark.parametrize("name", ["o.tar", "o.tar.gz", "o.onnx", "o.7z", "o.ORT", "o.safetensors"])
def test_names_of_other_things(aotc: Command, name: str) -> None:
    done = aotc.plain("build", "model.onnx", "-o", name)
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "error: AOTC-I027 argument is not valid\n"
        "  what:     an artifact is a folder, or one file whose name ends in .zip\n"
        f"  where:    -o {name}\n"
        "  expected: NAME.aotc, or NAME.aotc.zip\n"
        "  fix:      Name a folder NAME.aotc, or one file NAME.aotc.zip; 'aotc pack' makes a file "
        "of a folder, too.\n"
    )
    assert not (aotc.folder / name).exists()


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_file_of_somebody_stays(aotc: Command, force: tuple[str, ...]) -> None:
    with zipfile.ZipFile(aotc.folder / "mine.zip", "w") as file:
        file.writestr("payload/aotc.json", "{}")
    before = (aotc.folder / "mine.zip").read_bytes()
    done = aotc.plain("build", "model.onnx", "-o", "mine.zip", "-q", *force)
    assert done.status == 3
    assert done.stderr == said(
        "the output exists and is not an artifact, so that --force does not replace it",
        "mine.zip",
        "Choose another output with -o, or remove it yourself.",
    )
    assert (aotc.folder / "mine.zip").read_bytes() == before


# -- what stands there
@pytest.mark.parametrize("name", ["model.aotc", "model.aotc.zip"])
def test_its_own_artifact_is_replaced(aotc: Command, name: str) -> None:
    words = ("build", "model.onnx", "-o", name, "--dim", "batch=1..4", "-q")
    before = aotc.plain("inspect", name, "-q").stdout
    built = aotc.plain(*words)
    assert (built.status, built.stderr) == (0, "")
    assert built.stdout == aotc.plain("inspect", name, "-q").stdout != before
    assert aotc("verify", name).status == 0
    assert aotc.leftovers() == []


@pytest.mark.parametrize("name", ["model.aotc", "model.aotc.zip"])
def test_one_of_another_model_is_kept(aotc: Command, name: str) -> None:
    save(linear(features=FEATURES + 1), aotc.folder / "model.onnx")
    done = aotc.plain("build", "model.onnx", "-o", name, "-q")
    assert done.status == 3
    assert done.stderr == said("the output exists and is of another model", name)
    assert aotc("build", "model.onnx", "-o", name, "--force").status == 0


def test_one_that_another_key_signed_is_kept(aotc: Command) -> None:
    assert aotc("keygen", "-o", "release.pem").status == 0
    words = ("build", "model.onnx", "-q", "--key", "release.pem")
    done = aotc.plain(*words)
    assert done.stderr == said("the output exists and is signed by another key", "model.aotc")
    assert aotc.plain(*words, "--force").status == 0
    # The development key does not replace what the release key signed.
    done = aotc.plain("build", "model.onnx", "-q")
    assert done.stderr == said("the output exists and is signed by another key", "model.aotc")


def test_one_with_an_approval_is_kept(aotc: Command) -> None:
    words = ("--approve", "--channel", "prod", "--expires", "2099-01-31")
    assert aotc("attest", "model.aotc", *words).status == 0
    (path,) = (aotc.folder / "model.aotc" / "attestations").glob("approval-*")
    done = aotc.plain("build", "model.onnx", "-q")
    what = f"the output exists and has attestations/{path.name}, which a build does not make again"
    assert done.stderr == said(what, "model.aotc")
    assert path.exists()


@pytest.mark.parametrize("damage", ["no manifest", "bad manifest", "foreign file", "link"])
def test_what_is_no_sound_artifact_is_kept(aotc: Command, damage: str) -> None:
    place = aotc.folder / "model.aotc"
    if damage == "no manifest":
        (place / "payload" / "aotc.json").unlink()
    elif damage == "bad manifest":
        (place / "payload" / "aotc.json").write_text("{}")
    elif damage == "foreign file":
        (place / "notes.txt").write_text("mine")
    else:
        place.rename(aotc.folder / "elsewhere.aotc")
        place.symlink_to("elsewhere.aotc")
    before = sorted(place.rglob("*"))
    found = aotc("build", "model.onnx").refused("AOTC-I017", 3)
    assert found["what"].startswith("the output exists")
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [
        ("build", "model.onnx", "-o", "model.aotc/inner.aotc"),
        ("build", "model.onnx", "-o", "link/inner.zip", "--force"),
        ("pack", "model.aotc", "-o", "model.aotc/payload/packed.zip"),
        ("unpack", "model.aotc.zip", "-o", "model.aotc/unpacked.aotc"),
        ("export", "model.aotc.zip", "-o", "model.aotc/exported"),
    ],
)
def test_nothing_is_written_into_an_artifact(aotc: Command, words: tuple[str, ...]) -> None:
    (aotc.folder / "link").symlink_to("model.aotc")
    before = sorted((aotc.folder / "model.aotc").rglob("*"))
    found = aotc(*words).refused("AOTC-I026", 3)
    assert found["what"] == (
        "the output would be within an artifact, which holds what was signed and nothing else"
    )
    assert sorted((aotc.folder / "model.aotc").rglob("*")) == before
    assert aotc("verify", "model.aotc").document["verdict"] == "optimal"


def test_external_data_is_part_of_the_model(aotc: Command) -> None:
    model = onnx.load(aotc.folder / "model.onnx")
    for constant in model.graph.initializer:
        array = onnx.numpy_helper.to_array(constant)
        constant.CopyFrom(onnx.numpy_helper.from_array(array, constant.name))
    onnx.save(
        model,
        aotc.folder / "large.onnx",
        save_as_external_data=True,
        size_threshold=0,
        location="weights",
    )
    data = aotc.folder / "weights"
    assert aotc("build", "large.onnx").status == 0
    assert aotc("build", "large.onnx").status == 0
    kept = data.read_bytes()
    data.unlink()
    # Of what is missing the build tells, and not the output.
    aotc("build", "large.onnx").refused("AOTC-I003", 3)
    aotc("build", "lrage.onnx", "-o", "large.aotc").refused("AOTC-I001", 3)
    data.write_bytes(bytes(len(kept)))
    found = aotc("build", "large.onnx").refused("AOTC-I017", 3)
    assert found["what"] == "the output exists and is of another model"
