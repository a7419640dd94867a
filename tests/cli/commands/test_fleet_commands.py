"""`aotc fleet verify`, `merge-reports` and `emit`: what they answer, write and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from artifact_builder import build_artifact, native_fits
from command import Command
from made_fleets import cells_of, in_shards, report_of
from made_models import linear, save

from aotc.spec.codec import decode, encode
from aotc.spec.fleet import FleetReport
from aotc.spec.json import document
from aotc.spec.matrix_report import CompatibilityReport, EmitReport
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private


@pytest.fixture
def artifact(aotc: Command) -> Path:
    """`good.aotc`, signed with `key.pem`."""
    key = load_private(generate(aotc.folder / "key.pem")[0])
    return build_artifact(aotc.folder / "good.aotc", key)


def test_verify_answers_with_a_matrix(aotc: Command, artifact: Path) -> None:
    words = ("fleet", "verify", "good.aotc", "--key", "key.pub", "--targets")
    done = aotc.plain(*words, "linux-x86-64,linux-arm64")
    assert done.status == 1
    here = "optimal" if native_fits("linux-x86-64") else "degraded"
    told = "optimal     " if here == "optimal" else "degraded AOTC-C010"
    assert f"  good.aotc  {told}  incompatible AOTC-C002, AOTC-C004\n" in done.stdout
    found = decode(CompatibilityReport, aotc(*words, "linux-x86-64,linux-arm64").document)
    assert [each.verdict for each in found.cells] == [here, "incompatible"]
    assert [each.code for each in found.failed] == ["AOTC-I184"]
    # One option for each host, and the gate as asked.
    done = aotc.plain(
        *words, "linux-x86-64", "--targets", "linux-arm64", "--require", "some", "--quiet"
    )
    assert (done.status, done.stdout) == (0, f"1 {here}, 1 incompatible\n")


def test_verify_writes_every_form(aotc: Command, artifact: Path) -> None:
    forms = ("json", "md", "xml", "sarif", "codequality.json", "html")
    words = [word for form in forms for word in ("--report", f"out.{form}")]
    done = aotc.plain("fleet", "verify", "good.aotc", "--key", "key.pub", *words)
    assert done.status == 0, done
    assert all((aotc.folder / f"out.{form}").stat().st_size for form in forms)
    page = (aotc.folder / "out.html").read_text()
    assert 'href="./good.aotc"' in page
    # A report may take the place of a report of the same run.
    again = aotc.plain("fleet", "verify", "good.aotc", "--key", "key.pub", *words)
    assert "replaces a file" not in again.stderr


def test_verify_tells_who_is_no_host(aotc: Command, artifact: Path) -> None:
    call = aotc("fleet", "verify", "good.aotc", "--targets", "linux-x86")
    call.refused("AOTC-I021", 3)
    aotc("fleet", "verify", "good.aotc", "--on", "roy://x").refused("AOTC-I027", 2)


@pytest.fixture
def shards(aotc: Command) -> list[str]:
    """Reports of three shards, of which one cell failed."""
    outcomes = ("built", "failed", *["built"] * 10)
    names = []
    for number, part in enumerate(in_shards(report_of(cells_of(), outcomes), 3), 1):  # type: ignore[arg-type]
        names.append(f"shard-{number}.json")
        (aotc.folder / names[-1]).write_text(document(encode(part)))
    return names


def test_reports_are_joined_and_fail_as_the_fleet(aotc: Command, shards: list[str]) -> None:
    done = aotc("fleet", "merge-reports", *shards, "--report", "all.xml")
    assert done.status == 1
    found = decode(FleetReport, done.document)
    assert (len(found.cells), found.shard) == (12, "")
    assert 'tests="12" failures="1"' in (aotc.folder / "all.xml").read_text()
    missing = aotc("fleet", "merge-reports", shards[0], shards[2])
    assert missing.refused("AOTC-I188", 3)["found"] == "not 2/3"
    part = aotc("fleet", "merge-reports", shards[2], "--partial")
    assert (part.status, part.document["shard"]) == (0, "3/3")


def test_a_report_stays_no_input(aotc: Command, shards: list[str]) -> None:
    aotc("fleet", "merge-reports", *shards, "--report", shards[0]).refused("AOTC-I027", 2)


def test_emitted_files_are_told(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    fleet = {"schema": "aotc.fleet/1", "name": "zoo", "models": ["model.onnx"]}
    (aotc.folder / "fleet.yaml").write_text(json.dumps(fleet))
    words = ("fleet", "emit", "fleet.yaml", "--form", "kubernetes", "-o", "jobs", "--shards")
    found = decode(EmitReport, aotc(*words, "4").document)
    # One cell is one shard.
    assert (found.shards, found.machines) == (1, {"1 core": 1})
    assert found.files == ("jobs/fleet-zoo-shards.yaml", "jobs/fleet-zoo-merge.yaml")
    assert all((aotc.folder / file).is_file() for file in found.files)
    aotc(*words, "4").refused("AOTC-I017", 3)
    done = aotc.plain(*words, "4", "--force")
    assert done.stdout.startswith("zoo  1 shard for kubernetes\n")
