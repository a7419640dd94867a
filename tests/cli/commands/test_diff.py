"""`aotc diff`: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import Command
from jsonschema import Draft202012Validator
from made_models import linear, save
from repository import ROOT, TOOLCHAIN

_AREAS = json.loads((ROOT / "manifests" / "diff.schema.json").read_text("utf-8"))
RELEASE = ROOT / "manifests" / "compat" / "0.1.0" / "digits.aotc"
OTHER = ROOT / "tests" / "data" / "onnxruntime-1.30.aotc.zip"


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    shutil.copytree(RELEASE, tmp_path / "a.aotc")
    shutil.copy(OTHER, tmp_path / "b.aotc.zip")
    save(linear(), tmp_path / "model.onnx")
    return Command(tmp_path)


def test_differences_are_no_failure(aotc: Command) -> None:
    done = aotc("diff", "a.aotc", "b.aotc.zip")
    assert done.status == 0
    Draft202012Validator(_AREAS).validate(done.document)
    areas = {area["area"]: area["status"] for area in done.document["areas"]}
    assert (areas["source"], areas["toolchain"], areas["trust"]) == ("same", "changed", "changed")
    assert done.document["status"] == "UNVERIFIED"
    assert (done.document["a"]["path"], done.document["same_id"]) == ("a.aotc", False)
    assert done.stderr == ""


def test_what_people_read(aotc: Command) -> None:
    text = aotc.plain("diff", "a.aotc", "b.aotc.zip").stdout
    lines = text.splitlines()
    assert lines[0].startswith("a.aotc -> b.aotc.zip  ")
    assert lines[0].endswith("areas differ; nothing here was verified")
    order = [text.index(word) for word in ("\nchanged ", "\n  unchanged ", "\nmeasured, not")]
    assert order == sorted(order), "what changed comes first"
    assert any("onnxruntime  " in line and "1.31.1" in line and "1.30.0" in line for line in lines)


def test_the_same_is_said_at_once(aotc: Command) -> None:
    done = aotc.plain("diff", "a.aotc", str(RELEASE.with_name("digits.aotc.zip")))
    assert done.status == 0
    lines = done.stdout.splitlines()
    assert "nothing differs" in f"{lines[0]} {lines[1]}"
    assert "same  both have one id: their manifests are equal, byte for byte" in done.stdout
    assert "measured" not in done.stdout, "both have the same evidence"


def test_areas_that_must_not_differ(aotc: Command) -> None:
    words = ["--fail-on", "source,toolchain", "--fail-on", "size:1.5,size"]
    aotc("diff", "a.aotc", "b.aotc.zip", *words).refused("AOTC-I060", 2)
    words[-1] = "size:0.01,weights"
    done = aotc("diff", "a.aotc", "b.aotc.zip", *words)
    assert done.status == 1
    failed = {each["what"]: each for each in done.document["failed"]}
    assert set(failed) == {
        "A and B differ in their toolchain",
        "A and B differ in their size",
    }
    size = failed["A and B differ in their size"]
    assert (size["code"], size["expected"]) == ("AOTC-I061", "at most 0.01 times A's")
    area = next(area for area in done.document["areas"] if area["area"] == "size")
    assert size["found"] == f"{area['ratio']:.4g} times A's"
    assert [each["area"] for each in done.document["allowed"]] == [
        *("source", "toolchain", "size", "weights")
    ]
    text = aotc.plain("diff", "a.aotc", "b.aotc.zip", *words)
    assert (text.status, "AOTC-I061" in text.stdout) == (1, True)
    assert aotc("diff", "a.aotc", "a.aotc", "--fail-on", "trust,size:1").status == 0


def test_an_area_that_is_not_one(aotc: Command) -> None:
    refused = aotc("diff", "a.aotc", "b.aotc.zip", "--fail-on", "presicion").refused("AOTC-I060", 2)
    assert refused["what"] == "no area is called 'presicion'; did you mean 'precision'?"
    # Most letters of 'placement', and not near to it.
    refused = aotc("diff", "a.aotc", "b.aotc.zip", "--fail-on", "latency").refused("AOTC-I060", 2)
    assert refused["what"].startswith("no area is called 'latency'; known: answers, contents, ")
    assert "exactness, memory and size may have a ratio" in refused["fix"]


def test_what_is_no_artifact(aotc: Command) -> None:
    (aotc.folder / "notes.txt").write_text("PK")
    (aotc.folder / "empty").mkdir()
    aotc("diff", "a.aotc", "notes.txt").refused("AOTC-I059", 3)
    aotc("diff", "a.aotc", "empty").refused("AOTC-G015", 1)
    aotc("diff", "a.aotc", "gone.aotc").refused("AOTC-I001", 3)
    aotc("diff", "a.aotc", "sha256-" + "0" * 64).refused("AOTC-I001", 3)
    manifest = aotc.folder / "a.aotc" / "payload" / "aotc.json"
    manifest.write_bytes(manifest.read_bytes()[:-5])
    aotc("diff", "a.aotc", "b.aotc.zip").refused("AOTC-G009", 1)


def test_an_entry_of_a_store(aotc: Command) -> None:
    done = aotc("install", "a.aotc", "--key", str(RELEASE.with_name("release.pub")))
    assert done.status == 0, done
    entry = f"sha256-{done.document['artifact_id']}"
    assert aotc("diff", entry, "a.aotc").document["same_id"] is True


_BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in (
            *("onnx", "onnxruntime", "numpy", "ml_dtypes", "fast_sugiyama"),
        ):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from aotc.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def base_install(aotc: Command, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BLOCKED, "diff", "a.aotc", "b.aotc.zip", *words, "--json"],
        cwd=aotc.folder,
        env={**aotc.environment(), "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_base_install(aotc: Command) -> None:
    """All but weights, and nodes by name alone; a gate on weights names the extra."""
    done = base_install(aotc, "--fail-on", "source,precision")
    assert (done.returncode, done.stderr) == (0, ""), done
    found = json.loads(done.stdout)
    full = aotc("diff", "a.aotc", "b.aotc.zip").document
    (weights,) = (area for area in found["areas"] if area["area"] == "weights")
    assert weights["status"] == "not-compared"
    assert "[cpu]" in weights["reason"]
    assert not any(each["by_structure"] for each in found["nodes"])
    for one, other in zip(found["areas"], full["areas"], strict=True):
        if one["area"] != "weights":
            assert one == other
    done = base_install(aotc, "--fail-on", "weights")
    assert done.returncode == 3
    (error,) = json.loads(done.stdout)["errors"]
    assert error["code"] == "AOTC-I019"
    assert "[cpu]" in error["fix"]


def test_graphs_on_a_page_need_an_extra(aotc: Command) -> None:
    """Without it the page has all else, and the gate is judged all the same."""
    done = base_install(aotc, "--html", "page.html", "--fail-on", "toolchain")
    assert done.returncode == 1
    assert [each["code"] for each in json.loads(done.stdout)["failed"]] == ["AOTC-I061"]
    page = (aotc.folder / "page.html").read_text("ascii")
    assert "Not drawn: AOTC-I019" in page
    assert "[report]" in page


PAGE = ("diff", "a.aotc", "b.aotc.zip", "--html")


def test_a_page(aotc: Command) -> None:
    page = aotc.folder / "page.html"
    page.write_text("old")
    done = aotc(*PAGE, "page.html")
    assert (done.status, done.document["schema"]) == (0, "aotc.diff/1")
    drawn = page.read_text("ascii")
    assert drawn.startswith("<!doctype html>")
    assert drawn.count('<svg class="graph"') == 2
    aotc(*PAGE, "no/page.html").refused("AOTC-I026", 3)
    aotc("diff", "a.aotc", "model.onnx", "--html", "other.html").refused("AOTC-I059", 3)
    assert not (aotc.folder / "other.html").exists()


def test_a_page_on_standard_output(aotc: Command) -> None:
    done = aotc.plain(*PAGE, "-", "--fail-on", "toolchain")
    assert (done.status, done.stderr) == (1, "")
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.endswith("</html>\n")
    assert "AOTC-I061" in done.stdout
    aotc(*PAGE, "-").refused("AOTC-I027", 2)


def test_a_lost_page_does_not_hide_a_failed_gate(aotc: Command) -> None:
    done = aotc(*PAGE, "no/page.html", "--fail-on", "toolchain")
    assert done.status == 1
    assert [each["code"] for each in done.document["failed"]] == ["AOTC-I061"]
    assert "AOTC-I026" in done.stderr
    assert "no/page.html" in done.stderr


def test_a_page_of_an_entry_of_a_store(aotc: Command) -> None:
    done = aotc("install", "a.aotc", "--key", str(RELEASE.with_name("release.pub")))
    entry = f"sha256-{done.document['artifact_id']}"
    assert aotc("diff", entry, "b.aotc.zip", "--html", "page.html").status == 0
    assert entry in (aotc.folder / "page.html").read_text("ascii")


def test_names_of_others_are_shown_safely(aotc: Command) -> None:
    path = aotc.folder / "a.aotc" / "payload" / "aotc.json"
    document = json.loads(path.read_bytes())
    document["variants"][0]["placement"]["nodes"][0]["name"] = "\x1b[31m\u202e</script>\nnode"
    document["variants"][0]["device"] = "\x1b[2J"
    path.write_text(json.dumps(document))
    done = aotc.plain("diff", "a.aotc", "b.aotc.zip")
    assert done.status == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout
    assert "\\x1b[2J" in done.stdout


def test_completion_knows_the_areas() -> None:
    from aotc.cli.options import area_names

    assert area_names("size,pr") == ["size,profile", "size,precision"]
    assert area_names("pl") == ["placement"]


def test_a_call_starts_no_runtime(aotc: Command) -> None:
    code = (
        "import sys; from aotc.cli.main import main; assert main(['diff', 'a.aotc', 'b.aotc.zip', "
        "'--json']) == 0; assert 'onnxruntime' not in sys.modules"
    )
    environment = {**os.environ, **aotc.environment(), "PYTHONPATH": str(TOOLCHAIN)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=aotc.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
