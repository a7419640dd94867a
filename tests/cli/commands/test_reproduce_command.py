"""`aotc reproduce`: what it says of an artifact that is built again, what it signs and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from changed_runtime import changed_runtime
from command import Command
from made_models import FEATURES, linear, save
from repository import TOOLCHAIN

from aotc import verify
from aotc.host.probe import probe
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.json_schema import schema_of
from aotc.spec.reproduction import ReproduceReport
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.signers import own_anchors
from aotc.trust.statements import sign
from aotc.trust.statements import verify as verify_statement

KIND = KINDS["provenance"].predicate_type
LESSER = "sse4_1 sse4_2"
POLICY = """\
schema: aotc.trust/1
name: site
sequence: 1
expires: "2099-01-01T00:00:00Z"
keys:
  - {{id: release, pem: {release}, usage: [oms, provenance, reproduction]}}
  - {{id: second, pem: {second}, usage: [reproduction]}}
rules:
  - name: all
    match: {{name: "*"}}
    require:
      - {{predicate: oms, signers: [release]}}
      - {{predicate: reproduction, signers: [release, second]}}
"""
BOTH = """\
schema: aotc.profile/1
name: both
target: host
providers: [cpu]
variants:
  - {name: portable, isa: baseline}
  - {name: native, isa: host}
fixtures: {max_count: 2, max_bytes: 4194304}
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, two keys, data, and artifacts of the model."""
    folder = tmp_path_factory.mktemp("given")
    save(linear(), folder / "linear.onnx")
    for name in ("release", "second"):
        generate(folder / f"{name}.pem")
    np.savez(folder / "data.npz", x=np.ones((2, FEATURES), np.float32))
    (folder / "both.yaml").write_text(BOTH)
    aotc = Command(folder)
    built = ("--key", "release.pem", "--no-cache")
    for words in (
        ("-o", "plain.aotc"),
        ("-o", "fixed.aotc", "--fixtures", "data.npz", "--profile", "both.yaml"),
    ):
        assert aotc("build", "linear.onnx", *words, *built).status == 0
    return folder


@pytest.fixture
def aotc(given: Path, tmp_path: Path) -> Command:
    folder = tmp_path / "here"
    shutil.copytree(given, folder, ignore=shutil.ignore_patterns("home", "tmp", "store"))
    return Command(folder)


TRUSTED = ("--trust", "release.pub")
MODEL = ("--model", "linear.onnx")


def test_the_same_bytes_are_attested_and_a_policy_counts_it(aotc: Command) -> None:
    words = ("reproduce", "plain.aotc", *MODEL, *TRUSTED, "--attest", "--key", "second.pem")
    answer = aotc(*words, "--builder-id", "https://second.example.com")
    jsonschema.validate(answer.document, schema_of(ReproduceReport))
    found = answer.document
    assert (answer.status, found["outcome"]) == (0, "identical")
    assert found["rebuilt_id"] == found["artifact_id"]
    assert found["environment"]["how"] == "this"
    assert found["environment"]["aotc_form"] in ("checkout", "release")
    assert all(each["same"] for each in found["environment"]["packages"])
    assert [each["what"] for each in found["not_reproduced"]] == [
        "times, latencies and memory of the evidence, and who signed"
    ]
    assert found["variants"] == [{"name": "portable", "outcome": "identical"}]
    assert aotc.leftovers() == []
    shown = aotc.plain("inspect", "plain.aotc").stdout
    assert "built again by https://second.example.com here" in " ".join(shown.split())
    quote = {
        name: json.dumps((aotc.folder / f"{name}.pub").read_text())
        for name in ("release", "second")
    }
    (aotc.folder / "trust.yaml").write_text(POLICY.format(**quote))
    assert verify(aotc.folder / "plain.aotc", trust=aotc.folder / "trust.yaml").refusals == ()


def test_who_signed_the_artifact_does_not_attest_it(aotc: Command) -> None:
    words = ("reproduce", "plain.aotc", *MODEL, *TRUSTED, "--attest", "--key", "release.pem")
    aotc(*words).refused("AOTC-I240", 3)
    refused = aotc("reproduce", "plain.aotc", *MODEL, "--key", "second.pem").refused("AOTC-I027", 2)
    assert refused["what"] == "--key needs --attest"


def test_who_signed_it_must_be_trusted(aotc: Command) -> None:
    """Else anyone could have packages installed and run."""
    aotc("reproduce", "plain.aotc", *MODEL, "--trust", "second.pub").refused("AOTC-G002", 1)


def test_other_answers_are_told_and_not_attested(aotc: Command, tmp_path: Path) -> None:
    """The artifact was built where ONNX Runtime answers otherwise."""
    changed = f"{changed_runtime(tmp_path / 'changed', 'o + 1')}:{TOOLCHAIN}"
    other = Command(aotc.folder, {"PYTHONPATH": changed})
    words = ("-o", "other.aotc", "--key", "release.pem", "--no-cache")
    assert other("build", "linear.onnx", *words).status == 0
    answer = aotc(
        *("reproduce", "other.aotc", *MODEL, *TRUSTED, "--attest", "--key", "second.pem"),
        *("-o", "again.aotc"),
    )
    found = answer.document
    assert (answer.status, found["outcome"]) == (1, "different")
    assert found["attested"] is None
    assert not list(aotc.folder.glob("other.aotc/attestations/reproduction-*"))
    assert found["variants"] == [{"name": "portable", "outcome": "identical"}]
    differing = {each["path"] for each in found["files"] if not each["stated"]}
    assert "aotc.json" in differing
    assert {path.rpartition("/")[2] for path in differing - {"aotc.json"}} == {"output_0.npy"}
    errors = [each for call in found["answers"]["golden"] for each in call["outputs"]]
    assert errors[0]["max_abs"] == pytest.approx(1.0)
    assert (aotc.folder / "again.aotc" / "payload" / "aotc.json").is_file()


@pytest.mark.slow
@pytest.mark.skipif(
    set(probe(gpus=False).isa or ()) <= set(LESSER.split()), reason="this CPU has no more features"
)
def test_on_a_cpu_with_fewer_features(aotc: Command) -> None:
    """The portable artifact is identical; of one with a native variant, all but that."""
    lesser = Command(aotc.folder, {"AOTC_HOST_ISA": LESSER})
    plain = lesser("reproduce", "plain.aotc", *MODEL, *TRUSTED)
    assert (plain.status, plain.document["outcome"]) == (0, "identical")
    told = lesser.plain("reproduce", "fixed.aotc", *MODEL, *TRUSTED, "--data", ".")
    assert (told.status, told.stdout.splitlines()[0]) == (0, "fixed.aotc  identical, in part")
    # Before anything is built.
    before = told.stderr.partition("rebuild ")[0]
    assert "variant native" in before
    assert "golden outputs of fixtures" in before
    shown = [line.split() for line in told.stdout.splitlines()]
    assert ["native", "not", "built"] in shown
    assert ["portable", "different"] not in shown
    assert "differs" not in told.stdout
    assert any(line[:1] == ["variants.native"] for line in shown)


def test_another_model(aotc: Command) -> None:
    save(linear(features=5), aotc.folder / "linear.onnx")
    refused = aotc("reproduce", "plain.aotc", *MODEL, *TRUSTED).refused("AOTC-I233", 3)
    assert refused["where"] == "linear.onnx"


def test_data_that_is_not_here(aotc: Command) -> None:
    """It is looked for beside the model, else where it is said to be."""
    words = ("reproduce", "fixed.aotc", *MODEL, *TRUSTED)
    (aotc.folder / "data.npz").rename(aotc.folder / "moved.npz")
    refused = aotc(*words).refused("AOTC-I234", 3)
    assert refused["what"] == "the fixtures data that the build read is not here"
    np.savez(aotc.folder / "data.npz", x=np.zeros((2, FEATURES), np.float32))
    refused = aotc(*words).refused("AOTC-I234", 3)
    assert refused["what"] == "the fixtures data is not what the build read"
    # The model's name is in the manifest, and may be another one here.
    (aotc.folder / "linear.onnx").rename(aotc.folder / "renamed.onnx")
    words = ("reproduce", "fixed.aotc", "--model", "renamed.onnx", *TRUSTED)
    found = aotc(*words, "--fixtures", "moved.npz").document
    assert found["outcome"] == "identical"


def test_an_artifact_that_does_not_tell_enough(aotc: Command) -> None:
    """Its provenance is missing, or is that of an earlier release."""
    compat = TOOLCHAIN.parent / "manifests" / "compat" / "0.1.0"
    (earlier,) = (path for path in compat.glob("*.aotc") if path.is_dir())
    keys = list(compat.rglob("*.pub"))
    joined = aotc.folder / "keys.pub"
    joined.write_text("".join(path.read_text() for path in keys))
    aotc("reproduce", earlier, *MODEL, "--trust", joined).refused("AOTC-I232", 3)
    (aotc.folder / "plain.aotc" / "attestations" / "provenance.sigstore.json").unlink()
    refused = aotc("reproduce", "plain.aotc", *MODEL, *TRUSTED).refused("AOTC-I232", 3)
    assert refused["found"].startswith("its provenance: ")


@pytest.mark.parametrize("python", [3, "3.11/../../x", "--help"])
def test_provenance_of_another_form(aotc: Command, python: object) -> None:
    """What it records becomes words of commands, and names of programs."""
    bundle = aotc.folder / "plain.aotc" / "attestations" / "provenance.sigstore.json"
    release = load_private(aotc.folder / "release.pem")
    anchors = own_anchors(release, "the release's")
    found = verify_statement(bundle.read_bytes(), anchors, predicate_type=KIND)
    found.predicate["buildDefinition"]["internalParameters"]["python"] = python
    bundle.write_bytes(sign(KIND, found.predicate, found.subjects, release))
    refused = aotc("reproduce", "plain.aotc", *MODEL, *TRUSTED).refused("AOTC-I232", 3)
    assert refused["found"].startswith("its provenance has another form")


def test_the_artifact_is_not_replaced_by_its_rebuild(aotc: Command) -> None:
    words = ("reproduce", "plain.aotc", *MODEL, *TRUSTED, "-o", "./plain.aotc", "--force")
    refused = aotc(*words).refused("AOTC-I017", 3)
    assert refused["what"] == "the artifact would be replaced by what is compared with it"


def test_nothing_is_replaced_without_force(aotc: Command) -> None:
    words = ("reproduce", "plain.aotc", *MODEL, *TRUSTED, "-o", "fixed.aotc")
    aotc(*words).refused("AOTC-I017", 3)
    unknown = aotc("reproduce", "plain.aotc", *MODEL, "--installer", "conda")
    unknown.refused("AOTC-I027", 2)
