"""Two artifacts on the same inputs: `aotc diff`, and `aotc build --against`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_models import network, saved
from changed_runtime import changed_runtime
from command import TOOLCHAIN, Command, Outcome
from onnx import numpy_helper, save


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Artifacts of a model, of the same with other names, and of others with its interface."""
    command = Command(tmp_path_factory.mktemp("answers"))
    folder = command.folder
    saved(folder, "old")
    saved(folder, "renamed", suffix="_anew")
    saved(folder, "other", seed=2)
    # Twice the scores: the best of them is the same.
    scaled = network()
    weight = numpy_helper.to_array(scaled.graph.initializer[1])
    scaled.graph.initializer[1].CopyFrom(numpy_helper.from_array(weight * 2, "v"))
    save(scaled, folder / "scaled.onnx")
    narrow = network()
    del narrow.graph.node[3:], narrow.graph.output[1:]
    save(narrow, folder / "narrow.onnx")
    for name in ("old", "renamed", "other", "scaled", "narrow"):
        done = command("build", f"{name}.onnx", "-o", f"{name}.aotc")
        assert done.status == 0, done
    return command


@pytest.fixture(scope="module")
def stranger(aotc: Command, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A user who trusts none of these artifacts."""
    home = tmp_path_factory.mktemp("stranger")
    return replace(aotc, extra={"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")})


def area(done: Outcome, name: str = "answers") -> dict[str, Any]:
    return next(each for each in done.document["areas"] if each["area"] == name)


def outputs(done: Outcome) -> set[str]:
    return {each["what"] for each in area(done)["changes"]}


def test_another_model_with_the_same_interface(aotc: Command) -> None:
    done = aotc("diff", "old.aotc", "other.aotc")
    answers = done.document["answers"]
    assert (done.status, answers["how"], answers["reason"]) == (0, "ran", "")
    assert len(answers["calls"]) == 2
    assert outputs(done) == {"y", "k"}
    # Each is as exact to its own model, which says nothing of the answers.
    exactness = area(done, "exactness")
    assert (exactness["status"], exactness["reason"]) == ("not-compared", "the answers differ")
    text = aotc.plain("diff", "old.aotc", "other.aotc").stdout
    assert "both were run on 2 inputs" in text
    (unchanged,) = [line for line in text.splitlines() if line.startswith("  unchanged")]
    assert "exactness" not in unchanged
    failing = aotc("diff", "old.aotc", "other.aotc", "--fail-on", "answers")
    assert failing.status == 1
    assert [each["code"] for each in failing.document["failed"]] == ["AOTC-I061"]


def test_the_same_answers(aotc: Command) -> None:
    done = aotc("diff", "old.aotc", "renamed.aotc", "--fail-on", "answers,exactness")
    assert (done.status, area(done)["status"]) == (0, "same")
    assert done.document["answers"]["how"] == "ran"
    again = aotc("diff", "old.aotc", "old.aotc", "--fail-on", "answers")
    assert (again.status, again.document["answers"]["how"]) == (0, "one-id")


def test_one_output_of_two(aotc: Command) -> None:
    done = aotc("diff", "old.aotc", "scaled.aotc")
    assert outputs(done) == {"y"}
    assert "exceeds" in area(done)["changes"][0]["b"]


def test_without_trust_golden_outputs_are_compared(stranger: Command, aotc: Command) -> None:
    done = stranger("diff", "old.aotc", "scaled.aotc")
    answers = done.document["answers"]
    assert (answers["how"], outputs(done)) == ("golden", {"y"})
    assert "A is not run, as it does not verify: AOTC-G" in answers["reason"]
    assert area(stranger("diff", "old.aotc", "renamed.aotc"))["status"] == "same"
    done = aotc("diff", "old.aotc", "scaled.aotc", "--no-run")
    assert (done.document["answers"]["how"], outputs(done)) == ("golden", {"y"})


def test_a_changed_payload_is_not_run(aotc: Command, tmp_path: Path) -> None:
    """Its signature covers another model; and a golden output that was changed is not read."""
    forged = tmp_path / "forged.aotc"
    shutil.copytree(aotc.folder / "renamed.aotc", forged)
    model = forged / "payload" / "model" / "portable" / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1] + b"\0")
    # A store that has the artifact runs what it verified.
    anew = replace(aotc, extra={"AOTC_STORE": str(tmp_path / "store")})
    answers = anew("diff", "old.aotc", str(forged)).document["answers"]
    assert answers["how"] == "golden"
    assert "B cannot be run here: AOTC-G005" in answers["reason"]
    shutil.rmtree(forged)
    shutil.copytree(aotc.folder / "scaled.aotc", forged)
    for file in (forged / "payload" / "fixtures").rglob("output_0.npy"):
        file.write_bytes(file.read_bytes()[:-1] + b"\0")
    done = anew("diff", "old.aotc", str(forged))
    assert area(done)["status"] == "not-compared"
    assert "AOTC-G005" in area(done)["reason"]


_BASE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "onnxruntime", "numpy", "ml_dtypes"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from aotc.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("other", "status"), [("renamed", "same"), ("scaled", "not-compared")])
def test_a_base_install_compares_digests(aotc: Command, other: str, status: str) -> None:
    """What it cannot compare it calls neither the same nor as exact."""
    done = subprocess.run(
        [sys.executable, "-c", _BASE, "diff", "old.aotc", f"{other}.aotc", "--json"],
        cwd=aotc.folder,
        env=aotc.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    found = Outcome(status=0, stdout=done.stdout, stderr="")
    assert area(found)["status"] == area(found, "exactness")["status"] == status
    reason = area(found)["reason"] or found.document["answers"]["reason"]
    assert "needs the extra cpu" in reason or "without the extra cpu" in reason


def test_other_inputs_or_outputs(aotc: Command) -> None:
    done = aotc("diff", "old.aotc", "narrow.aotc", "--fail-on", "answers")
    assert (done.status, done.document["answers"]) == (1, None)
    assert area(done)["reason"] == "output 'k' is gone in B"
    refused = aotc("build", "narrow.onnx", "-o", "n.aotc", "--against", "old.aotc")
    assert refused.refused("AOTC-N061", 3)["found"] == "output 'k' is gone"
    assert not (aotc.folder / "n.aotc").exists()


# A gate of a build.


def built(aotc: Command, name: str, *words: str) -> tuple[Outcome, dict[str, tuple[str, str]]]:
    """The outcome of a build against the old artifact, and its gates `answers` by output."""
    target = aotc.folder / "new.aotc"
    shutil.rmtree(target, ignore_errors=True)
    words = ("-o", "new.aotc", "--against", "old.aotc", "--report", "new.json", *words)
    done = aotc("build", f"{name}.onnx", *words)
    assert target.exists() is (done.status == 0)
    report = json.loads((aotc.folder / "new.json").read_text("utf-8"))
    return done, {
        each["subject"]: (each["status"], each["measured"])
        for each in report["gates"]
        if each["name"] == "answers"
    }


def test_a_build_that_answers_as_before(aotc: Command) -> None:
    done, gates = built(aotc, "renamed")
    assert (done.status, done.document["against"]) == (0, "old.aotc")
    assert {name: gate[0] for name, gate in gates.items()} == {
        "output 'y'": "passed",
        "output 'k'": "passed",
    }
    assert all(
        measured.endswith("(both run, and golden outputs of the earlier one)")
        for _, measured in gates.values()
    )
    text = aotc.plain(
        *("build", "renamed.onnx", "-o", "new.aotc", "--force", "--against", "old.aotc")
    )
    assert "as those of old.aotc" in text.stdout
    # The artifact itself is the same that a build without the gate makes.
    assert (
        done.document["artifact_id"]
        == aotc("inspect", "renamed.aotc").document["artifact"]["artifact_id"]
    )


def test_a_build_that_answers_otherwise(aotc: Command) -> None:
    done, gates = built(aotc, "scaled")
    refused = done.refused("AOTC-N059", 1)
    assert refused["what"] == "output 'y' differs from that of the earlier artifact"
    assert refused["where"].endswith("of old.aotc")
    assert "exceeds" in refused["found"]
    assert {name: gate[0] for name, gate in gates.items()} == {
        "output 'y'": "failed",
        "output 'k'": "passed",
    }
    done, _ = built(aotc, "other")
    assert (done.status, done.codes) == (1, ["AOTC-N059", "AOTC-N059"])
    # From the cache as well.
    assert built(aotc, "scaled")[0].status == 1


def test_every_form_of_a_report_has_the_gate(aotc: Command) -> None:
    files = ("r.md", "r.xml", "r.sarif", "r.codequality.json", "r.html")
    words = [word for name in files for word in ("--report", name)]
    done = aotc(
        *("build", "scaled.onnx", "-o", "new.aotc", "--force", "--against", "old.aotc"), *words
    )
    assert done.status == 1
    for name in files:
        assert "AOTC-N059" in (aotc.folder / name).read_text("utf-8"), name


def test_an_earlier_one_that_is_not_trusted(stranger: Command) -> None:
    """It is not run: the new one runs on its inputs, and its golden outputs are expected."""
    done, gates = built(stranger, "renamed")
    assert done.status == 0
    assert all(each.endswith("(golden outputs of the earlier one)") for _, each in gates.values())
    assert built(stranger, "scaled")[0].refused("AOTC-N059", 1)


def test_a_runtime_that_answers_otherwise(aotc: Command, tmp_path: Path) -> None:
    """Both run on the new runtime, and agree; golden outputs of the old one do not."""
    site = changed_runtime(tmp_path, "o * o.dtype.type(2) if o.dtype.kind == 'f' else o")
    moved = replace(aotc, extra={"PYTHONPATH": f"{site}:{TOOLCHAIN}"})
    assert built(moved, "old", "--no-cache")[0].refused("AOTC-N059", 1)


def test_another_precision_has_its_tolerance(aotc: Command) -> None:
    """The gate judges by the wider of both tolerances, a comparison by the narrower."""
    words = ("-o", "int8.aotc", "--precision", "int8", "--against", "narrow.aotc")
    assert aotc("build", "narrow.onnx", *words).status == 0
    done = aotc("diff", "narrow.aotc", "int8.aotc")
    assert outputs(done) == {"y"}
    assert area(done, "exactness")["status"] == "changed"


def test_nothing_to_compare_with(aotc: Command) -> None:
    profile = "schema: aotc.profile/1\nname: bare\nfixtures: {max_count: 0}\n"
    (aotc.folder / "bare.yaml").write_text(profile)
    bare = aotc("build", "old.onnx", "-o", "bare.aotc", "--profile", "bare.yaml")
    assert bare.status == 0
    words = ("-o", "new.aotc", "--force", "--profile", "bare.yaml", "--against", "bare.aotc")
    done = aotc("build", "scaled.onnx", *words, "--report", "new.json")
    assert done.refused("AOTC-N060", 1)["found"] == "neither has a fixture"
    report = json.loads((aotc.folder / "new.json").read_text("utf-8"))
    assert [each["status"] for each in report["gates"] if each["name"] == "answers"] == [
        "not-judged"
    ]
    # Its own fixtures are enough where the earlier one has none.
    assert aotc("build", "renamed.onnx", "-o", "n.aotc", "--against", "bare.aotc").status == 0
    done = aotc("diff", "bare.aotc", "old.aotc")
    assert done.document["answers"]["how"] == "ran"


def test_sizes_that_the_new_one_refuses(aotc: Command) -> None:
    done, _ = built(aotc, "renamed", "--dim", "batch=7..9")
    refused = done.refused("AOTC-N060", 1)
    assert "B refuses it, AOTC-R004" in refused["found"] or "AOTC-S010" in refused["found"]


@pytest.mark.parametrize(
    ("path", "code"), [("gone.aotc", "AOTC-I001"), ("old.onnx", "AOTC-G015"), (".", "AOTC-G015")]
)
def test_what_is_no_artifact(aotc: Command, path: str, code: str) -> None:
    done = aotc("build", "old.onnx", "-o", "new.aotc", "--force", "--against", path)
    assert done.codes[0] == code
