"""`aotc merge`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from command import Command
from made_models import linear, save
from repository import ROOT


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A folder with two builds of one model."""
    made = Command(tmp_path_factory.mktemp("merge"))
    save(linear(), made.folder / "model.onnx")
    for name in ("a", "b"):
        built = made.plain("build", "model.onnx", "--dim", "batch=1..4", "-o", f"{name}.aotc")
        assert built.status == 0, built
    return made


def test_what_people_read(aotc: Command) -> None:
    merged = aotc.plain("merge", "a.aotc", "b.aotc", "-o", "c.aotc")
    assert merged.status == 0, merged
    lines = merged.stdout.splitlines()
    assert lines[0] == "c.aotc  merged from 2 artifacts and signed"
    assert re.search(r"payload +as one build on one of the hosts", merged.stdout)
    row = next(line for line in lines if line.lstrip().startswith("portable "))
    assert row.split() == [
        *("portable", "a.aotc,", "b.aotc"),
        *("loaded", "here,", "fixtures", "ran"),
    ]
    shown = aotc.plain("inspect", "c.aotc").stdout
    assert re.search(r"merged from +target +host +ONNX Runtime", shown)
    assert aotc.plain("verify", "c.aotc").status == 0


def test_a_document_matches_its_schema(aotc: Command) -> None:
    merged = aotc.plain("merge", "b.aotc", "a.aotc", "-o", "d.aotc.zip", "--json")
    schema = json.loads((ROOT / "manifests" / "merge.schema.json").read_text())
    jsonschema.validate(merged.document, schema)
    assert merged.document["built_alike"] is True
    assert aotc.plain("verify", "d.aotc.zip").status == 0
    again = aotc.plain("merge", "a.aotc", "b.aotc", "-o", "d.aotc.zip", "-q")
    assert (again.status, again.stdout.strip()) == (0, merged.document["artifact_id"])


def test_refusals(aotc: Command) -> None:
    for words, code, status in (
        (("a.aotc", "-o", "x.aotc"), "AOTC-I182", 3),
        (("a.aotc", "a.aotc", "-o", "x.aotc"), "AOTC-I182", 3),
        (("a.aotc", "none.aotc", "-o", "x.aotc"), "AOTC-I001", 3),
        (("a.aotc", "b.aotc", "-o", "x.onnx"), "AOTC-I027", 2),
        (("a.aotc", "b.aotc", "-o", "b.aotc"), "AOTC-I182", 3),
        (("a.aotc", "model.onnx", "-o", "x.aotc"), "AOTC-G015", 1),
    ):
        aotc.plain("merge", *words, "--json").refused(code, status)
    assert aotc.plain("merge", "a.aotc", "b.aotc").status == 2
    assert not any((aotc.folder / name).exists() for name in ("x.aotc", "x.onnx"))
    assert not [path for path in aotc.folder.iterdir() if path.name.startswith(".x")]


def test_help_says_what_is_trusted(aotc: Command) -> None:
    shown = aotc.plain("merge", "--help").stdout
    assert re.search(r"--trust FILE +trust policy, or list of public keys", shown)
