"""Commands and `aotc.load` take a reference as they take a path: a build in a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from artifact_builder import build_artifact
from built_artifact import BuiltArtifact
from file_bytes import contents_of
from registries import docker_registry

import aotc
from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.trust import key_files
from aotc.trust.key_loading import load_private


@dataclass(frozen=True)
class Pushed:
    """The digits example at `shop/digits:1`, and again at `other/digits:1`."""

    reference: str
    other: str
    digest: str
    artifact: Path
    key: Path

    @property
    def pinned(self) -> str:
        return f"{self.reference.removesuffix(':1')}@{self.digest}"


@pytest.fixture(scope="module")
def pushed(digits: BuiltArtifact, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushed]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as registry:
        names = [f"oci://{registry.host}/{folder}/digits:1" for folder in ("shop", "other")]
        first, second = (aotc.push(digits.path, name) for name in names)
        assert first.digest == second.digest
        yield Pushed(*names, first.digest, digits.path, digits.public_key)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "own-store"))


def said(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    """What a command answers as JSON."""
    assert main([*map(str, words), "--json"]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_verify_and_inspect_tell_the_same(
    pushed: Pushed, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (("verify", "--key", pushed.key), ("inspect",)):
        there = said(capsys, words[0], pushed.reference, *words[1:])
        here = said(capsys, words[0], pushed.artifact, *words[1:])
        for name in ("artifact_id", "signers", "variants", "verdict"):
            assert there.get(name) == here.get(name), name


def test_the_digest_of_a_tag_is_told(pushed: Pushed, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("verify", pushed.reference, "--key", str(pushed.key)),
        ("pull", pushed.reference, "--key", str(pushed.key)),
    ):
        assert main(list(words)) == 0
        told = capsys.readouterr()
        # A digest may be broken where the line ends.
        assert pushed.digest in "".join((told.out + told.err).split()), words


def test_two_references_are_compared(pushed: Pushed, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", pushed.reference, pushed.other, "--fail-on", "contents,weights"]) == 0


def test_a_reference_is_exported_and_run(
    pushed: Pushed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = ("--key", pushed.key)
    said(capsys, "export", pushed.reference, "-o", tmp_path / "there", *key)
    said(capsys, "export", pushed.artifact, "-o", tmp_path / "here", *key)
    there, here = (contents_of(tmp_path / name) for name in ("there", "here"))
    assert {name: there[name] for name in there if name.endswith((".onnx", ".bin"))} == {
        name: here[name] for name in here if name.endswith((".onnx", ".bin"))
    }
    said(capsys, "run", pushed.pinned, *key)


def test_a_model_is_loaded_by_its_digest(pushed: Pushed, tmp_path: Path) -> None:
    """Into the store, from which it comes the next time, and the one of the folder is the same."""
    image = np.zeros((3, 1, 8, 8), np.float32)
    answers = []
    for place in (pushed.pinned, pushed.pinned, str(pushed.artifact)):
        with aotc.load(place, key=pushed.key, store=tmp_path / "store") as model:
            answers.append(model.run({"image": image})["logits"])
    assert len(list((tmp_path / "store").glob("sha256-*"))) == 1
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_what_is_in_the_store_needs_no_registry(digits: BuiltArtifact, tmp_path: Path) -> None:
    with docker_registry(tmp_path / "registry") as registry:
        pushed = aotc.push(digits.path, f"oci://{registry.host}/shop/digits:1")
        aotc.load(pushed.reference, key=digits.public_key).close()
    with aotc.load(pushed.reference, key=digits.public_key) as model:
        assert model.ready


def test_a_tag_that_moves_is_attested_as_it_was(digits: BuiltArtifact, tmp_path: Path) -> None:
    """What was built again, and not what the tag names by then."""
    private, _ = key_files.generate(tmp_path / "second.pem")
    second = load_private(private)
    other = build_artifact(tmp_path / "other.aotc", second)
    with docker_registry(tmp_path / "registry") as registry:
        tag = f"oci://{registry.host}/shop/digits:1"
        pushed = aotc.push(digits.path, tag)
        report = aotc.reproduce(
            tag,
            digits.source,
            trust=digits.public_key,
            signer=second,
            tell=lambda *_: aotc.push(other, tag) and None,
        )
        assert report.outcome == "identical"
        assert report.artifact == tag.replace(":1", "@") + pushed.digest
        assert report.attested is not None
        assert report.attested.artifact == report.artifact
        about = aotc.inspect(report.artifact).artifact
    assert about is not None
    assert any("built again" in each.summary for each in about.claims)


def test_a_digest_of_something_else_is_refused(pushed: Pushed, tmp_path: Path) -> None:
    other = pushed.pinned[:-64] + "0" * 64
    with pytest.raises(AotcError) as caught:
        aotc.load(other, key=pushed.key, store=tmp_path / "store")
    assert caught.value.code == "AOTC-I201"
    assert list((tmp_path / "store").glob("sha256-*")) == []
