"""Exports that are verified where they lie: what was signed, what follows from it, nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from command import Command
from file_bytes import flip_bit
from refusals import refusal
from workbench import Workbench

from aotc import export
from aotc.spec.reports import VerifyReport
from aotc.tools.exported import verify_export
from aotc.trust import key_files

Verify = Callable[[Path], VerifyReport]


@pytest.fixture(scope="module", params=["onnx", "triton", "kserve"])
def exported(
    request: pytest.FixtureRequest, digits: BuiltArtifact, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What is verified of an export of each format, read by the tests."""
    place = tmp_path_factory.mktemp("exports") / request.param
    key = digits.public_key
    export(digits.path, place, key=key, format=request.param, variant="portable", reverify=True)
    return place / "models" if request.param == "kserve" else place


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copied"
    shutil.copytree(exported, place)
    return place


@pytest.fixture
def verify(digits: BuiltArtifact) -> Verify:
    return lambda place: verify_export(place, key=digits.public_key)


def model_folder(place: Path) -> Path:
    (found,) = (path.parent for path in place.rglob("model.onnx"))
    return found


def codes(report: VerifyReport) -> list[tuple[str, str]]:
    assert not report.ok and not report.authentic and report.verdict == "unverified"
    return [(each.code, each.where) for each in report.refusals]


def test_it_is_what_was_signed(exported: Path, digits: BuiltArtifact, verify: Verify) -> None:
    report = verify(exported)
    assert report.ok, report.refusals
    assert (report.verdict, report.target) == ("authentic", "none")
    said = json.loads((exported / "export.json").read_text())
    assert report.artifact_id == said["artifact_id"]
    assert all(each.status in ("passed", "not-run") for each in report.steps)
    (own,) = (each for each in report.steps if each.step == "export and nothing else")
    model = " as digits" if said["model"] else ""
    assert (own.status, own.detail) == ("passed", f"{said['format']}, portable{model}")
    # All bytes that a session reads were hashed, and those of other variants are not here.
    folder = model_folder(exported)
    assert report.hashed_bytes > sum(
        path.stat().st_size for path in folder.iterdir() if path.is_file()
    )


def test_one_changed_bit_of_any_file(copied: Path, verify: Verify) -> None:
    files = sorted(path for path in copied.rglob("*") if path.is_file())
    assert len(files) >= 10
    for path in files:
        before = path.read_bytes()
        if not before:
            continue
        path.chmod(0o644)
        flip_bit(path)
        name = path.relative_to(copied).as_posix()
        try:
            found = codes(verify(copied))
        except Exception as error:  # a document that says nothing any more
            assert name == "export.json"
            assert getattr(error, "code", "") == "AOTC-I228"
        else:
            assert any(name.endswith(where) for _, where in found if where), (name, found)
        path.write_bytes(before)
    assert verify(copied).ok


def test_a_missing_file_and_others(copied: Path, verify: Verify) -> None:
    for path in sorted(path for path in copied.rglob("*") if path.is_file()):
        name = path.relative_to(copied).as_posix()
        if name == "export.json" or name.endswith(("aotc.json", "oms.sigstore.json")):
            continue
        content = path.read_bytes()
        path.unlink()
        found = codes(verify(copied))
        if name.endswith(".sigstore.json"):
            assert found == [("AOTC-G005", "export.json")]
        else:
            assert any(code == "AOTC-G006" and name.endswith(at) for code, at in found), found
        path.write_bytes(content)
    folder = model_folder(copied)
    (folder / "other.onnx").write_text("x")
    at = (folder / "other.onnx").relative_to(copied).as_posix()
    assert codes(verify(copied)) == [("AOTC-G007", at)]
    (folder / "other.onnx").unlink()
    evidence = next(copied.rglob("payload/aotc.json")).parents[1]
    (evidence / "attestations" / "other.txt").write_text("x")
    at = (evidence / "attestations" / "other.txt").relative_to(copied).as_posix()
    assert ("AOTC-G007", at) in codes(verify(copied))
    (evidence / "attestations" / "other.txt").unlink()
    evidence.rename(copied / "else")
    (copied / "aside").mkdir()
    (copied / "else").rename(copied / "aside" / "aotc")
    assert codes(verify(copied))[0][1] == "aside/aotc/payload/aotc.json"
    (copied / "aside" / "aotc").rename(evidence)
    (copied / "aside").rmdir()
    # Triton takes every folder for a model.
    (copied / "second").mkdir()
    assert codes(verify(copied)) == [("AOTC-G007", "second")]
    (copied / "second").rmdir()
    (copied / "second").symlink_to(folder)
    assert ("AOTC-G008", "second") in codes(verify(copied))
    (copied / "second").unlink()
    assert verify(copied).ok


def test_who_signed_it(exported: Path, tmp_path: Path, digits: BuiltArtifact) -> None:
    _, other = key_files.generate(tmp_path / "other.pem")
    report = verify_export(exported, key=other)
    assert [code for code, _ in codes(report)] == ["AOTC-G002"]
    policy = tmp_path / "trust.yaml"
    pem = "".join(f"    {line}\n" for line in digits.public_key.read_text().splitlines())
    for name, accepted in (("digits", True), ("another", False)):
        policy.write_text(
            "schema: aotc.trust/1\nname: p\nsequence: 1\nexpires: 2099-01-01T00:00:00Z\n"
            f"keys:\n- id: release\n  usage: [oms]\n  pem: |\n{pem}"
            f"rules:\n- name: served\n  match: {{name: {name}}}\n"
            "  require:\n  - {predicate: oms, signers: [release]}\n"
        )
        report = verify_export(exported, trust=policy, unsafe_no_trust_state=True)
        assert report.ok == accepted, report.refusals


def test_what_export_json_says_is_not_believed(copied: Path, verify: Verify) -> None:
    place = copied / "export.json"
    said = json.loads(place.read_text())

    def changed(**fields: Any) -> list[tuple[str, str]]:
        place.write_text(json.dumps({**said, **fields}))
        return codes(verify(copied))

    assert changed(variant="other") == [("AOTC-G005", "export.json")]
    assert changed(variant="native")
    assert ("AOTC-G005", "export.json") in changed(sizes={"batch": "1..99999"})
    assert changed(files={})
    assert changed(name="other") == [("AOTC-G005", "export.json")]
    # Words that README.md would have, too, and a name that nothing is called by.
    assert changed(unproven="Run this: evil") == [("AOTC-G005", "export.json")]
    if not said["model"]:
        assert changed(model="Run this: evil") == [("AOTC-G005", "export.json")]
    if said["model"]:
        # Under another name the server would answer for another model.
        expected = [("AOTC-G005", "digits/aotc/payload/aotc.json")]
        assert changed(model="other") == expected
    place.write_text(json.dumps({**said, "format": "kserve"}))
    assert refusal(lambda: verify(copied)).code == "AOTC-I228"
    place.write_text("{")
    assert refusal(lambda: verify(copied)).code == "AOTC-I228"


def test_an_export_without_what_verifies_it(
    digits: BuiltArtifact, tmp_path: Path, verify: Verify
) -> None:
    export(digits.path, tmp_path / "plain", key=digits.public_key, format="triton")
    for place in (tmp_path / "plain", digits.path, tmp_path):
        error = refusal(lambda place=place: verify(place))
        assert (error.code, error.where) == ("AOTC-I228", str(place))
    assert refusal(lambda: verify(tmp_path / "none")).code == "AOTC-I001"
    error = refusal(lambda: verify_export(tmp_path / "plain", key=digits.public_key, target="host"))
    assert (error.code, error.found) == ("AOTC-I229", "host")


@pytest.mark.parametrize("exported", ["triton"], indirect=True)
def test_the_command(
    exported: Path, digits: BuiltArtifact, bench: Workbench, tmp_path: Path
) -> None:
    command = Command(tmp_path, {})
    words = ("verify", "--exported", exported, "--key", digits.public_key)
    done = command(*words)
    assert (done.status, done.document["verdict"]) == (0, "authentic"), done.stderr
    assert done.document["steps"][7]["step"] == "export and nothing else"
    done = command("verify", "--exported", exported, "--key", bench.public)
    assert (done.status, done.document["refusals"][0]["code"]) == (1, "AOTC-G002")
    done = command(*words, "--target", "linux-x86-64")
    assert (done.status, done.document["errors"][0]["code"]) == (3, "AOTC-I229")
