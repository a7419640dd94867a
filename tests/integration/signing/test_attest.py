"""Signatures, approvals and qualifications that are added to a real artifact."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built_artifact import BuiltArtifact
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from file_bytes import flip_bit
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.statement import Statement
from refusals import refusal
from repository import ROOT

from aotc import inspect, verify
from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.runtime.qualification import AcceptanceRequest, accept, qualify
from aotc.spec.attestations import (
    Approval,
    AttestReport,
    Qualification,
    parse_instant,
    target_digest,
)
from aotc.spec.codec import decode
from aotc.spec.trust_policy import Signer
from aotc.trust import key_files, oms
from aotc.trust.attesting import approve, sign
from aotc.trust.container import MAX_BUNDLES
from aotc.trust.key_loading import load_private, load_public

TOOLCHAIN = str(ROOT / "toolchain")
Add = Callable[[Path, Signer, Path], AttestReport]


@dataclasses.dataclass(frozen=True)
class Bench:
    """A copy of the artifact to add to, the key that vouches for it, and another person's key."""

    artifact: Path
    trust: Path
    signer: Signer
    public: Path


@pytest.fixture
def bench(digits: BuiltArtifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shutil.copytree(digits.path, tmp_path / "a.aotc")
    private, public = key_files.generate(tmp_path / "other.pem")
    return Bench(
        artifact=tmp_path / "a.aotc",
        trust=digits.public_key,
        signer=load_private(private),
        public=public,
    )


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def statement(path: Path) -> dict[str, Any]:
    bundle = json.loads(path.read_bytes())
    found = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    assert isinstance(found, dict)
    return found


def _sign(artifact: Path, signer: Signer, trust: Path) -> AttestReport:
    return sign(artifact, signer, trust=trust)


def _approve(artifact: Path, signer: Signer, trust: Path) -> AttestReport:
    return approve(artifact, signer, channel="prod", expires="2099-01-31", trust=trust)


def _qualify(artifact: Path, signer: Signer, trust: Path) -> AttestReport:
    return qualify(artifact, signer, trust=trust, runs=3)


@pytest.mark.parametrize("add", [_sign, _approve, _qualify])
def test_one_file_is_added_and_nothing_else_changes(bench: Bench, add: Add) -> None:
    before = digests(bench.artifact)
    answer = add(bench.artifact, bench.signer, bench.trust)
    after = digests(bench.artifact)
    added = Path(answer.path).relative_to(bench.artifact).as_posix()
    assert set(after) - set(before) == {added}
    assert {name: after[name] for name in before} == before
    assert list(bench.artifact.parent.glob(".*")) == []
    assert verify(bench.artifact, key=bench.trust).authentic
    assert answer.artifact_id == before["payload/aotc.json"]


@pytest.mark.parametrize("add", [_sign, _approve, _qualify])
def test_a_second_of_the_same_name_is_refused_and_replaced_by_force(bench: Bench, add: Add) -> None:
    first = add(bench.artifact, bench.signer, bench.trust)
    before = digests(bench.artifact)
    error = refusal(lambda: add(bench.artifact, bench.signer, bench.trust))
    assert (error.code, error.where) == ("AOTC-I017", first.path)
    assert digests(bench.artifact) == before


def test_force_replaces_only_that_file(bench: Bench) -> None:
    words: dict[str, Any] = {"channel": "prod", "trust": bench.trust}
    first = approve(bench.artifact, bench.signer, expires="2098-01-01", **words)
    before = digests(bench.artifact)
    again = approve(bench.artifact, bench.signer, expires="2099-01-01", force=True, **words)
    assert (first.replaced, again.replaced, again.path) == (False, True, first.path)
    after = digests(bench.artifact)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {Path(first.path).relative_to(bench.artifact).as_posix()}


def test_a_further_signature_vouches_only_for_the_payload(bench: Bench) -> None:
    assert not verify(bench.artifact, key=bench.public).authentic
    answer = sign(bench.artifact, bench.signer, trust=bench.trust)
    assert Path(answer.path).name == f"oms-{bench.signer.key_id[:16]}.sigstore.json"
    report = verify(bench.artifact, key=bench.public)
    assert report.authentic
    assert report.signers == (bench.signer.key_id,)
    signed_statement = statement(Path(answer.path))
    first = statement(bench.artifact / "attestations" / "oms.sigstore.json")
    assert signed_statement == first
    assert signed_statement["predicateType"] == oms.PREDICATE_TYPE


def test_who_has_signed_already_does_not_sign_again(digits: BuiltArtifact, bench: Bench) -> None:
    own = load_private(digits.public_key.with_suffix(".pem"))
    error = refusal(lambda: sign(bench.artifact, own))
    assert (error.code, error.found) == ("AOTC-I036", f"key {own.key_id[:16]}")


def test_what_an_approval_says(bench: Bench) -> None:
    answer = approve(
        bench.artifact,
        bench.signer,
        channel="prod",
        expires="2099-01-31",
        note="tested by hand",
        trust=bench.trust,
    )
    path = Path(answer.path)
    assert path.name == f"approval-prod-{bench.signer.key_id[:16]}.sigstore.json"
    found = statement(path)
    assert found["predicateType"] == "urn:aotc:approval:v1"
    assert found["subject"] == [{"name": "aotc.json", "digest": {"sha256": answer.artifact_id}}]
    approval = decode(Approval, found["predicate"])
    assert approval == answer.approval
    assert (approval.channel, approval.expires, approval.note) == (
        "prod",
        "2099-01-31T00:00:00Z",
        "tested by hand",
    )
    assert (approval.artifact.name, approval.artifact.id) == ("digits", answer.artifact_id)
    assert parse_instant(approval.issued_at) < parse_instant(approval.expires)
    assert stat.S_IMODE(path.stat().st_mode) & 0o133 == 0


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ({"channel": "Prod"}, "--channel"),
        ({"channel": "../prod"}, "--channel"),
        ({"channel": ""}, "--channel"),
        ({"expires": "2020-01-01"}, "--expires"),
        ({"expires": "2099-02-30"}, "--expires"),
        ({"expires": "soon"}, "--expires"),
        ({"expires": "2099-01-01T00:00:00+01:00"}, "--expires"),
        ({"note": "x" * 2001}, "--note"),
    ],
)
def test_an_approval_that_makes_no_sense(bench: Bench, words: dict[str, str], where: str) -> None:
    before = digests(bench.artifact)
    stated = {"channel": "prod", "expires": "2099-01-01", **words}
    error = refusal(lambda: approve(bench.artifact, bench.signer, trust=bench.trust, **stated))
    assert (error.code, error.where) == ("AOTC-I036", where)
    assert digests(bench.artifact) == before


def test_what_a_qualification_says(bench: Bench) -> None:
    answer = qualify(bench.artifact, bench.signer, trust=bench.trust, variant=["portable"], runs=5)
    found = statement(Path(answer.path))
    assert found["predicateType"] == "urn:aotc:qualification:v1"
    assert found["subject"] == [{"name": "aotc.json", "digest": {"sha256": answer.artifact_id}}]
    qualification = decode(Qualification, found["predicate"])
    assert qualification == answer.qualification
    host = probe(digests=True)
    assert qualification.target == host
    assert qualification.target_sha256 == target_digest(host) == target_digest(probe())
    assert (qualification.variant, qualification.variants) == ("portable", ("portable",))
    assert qualification.artifact.name == "digits"
    assert [latency.runs for latency in qualification.latency] == [5] * qualification.fixtures
    for latency in qualification.latency:
        assert 0 < latency.lower_seconds <= latency.median_seconds <= latency.upper_seconds
    # A process with numpy and ONNX Runtime needs more, and this model next to nothing.
    assert 10 << 20 < qualification.peak_memory_bytes < 1 << 30
    assert qualification.load_seconds > 0


def test_variants_are_qualified_one_by_one(bench: Bench) -> None:
    paths = {
        qualify(bench.artifact, bench.signer, trust=bench.trust, variant=[name], runs=1).path
        for name in ("portable", "native")
    }
    assert len(paths) == 2


def spoil_fixture(digits: BuiltArtifact, artifact: Path) -> None:
    """Other golden outputs, signed with the trusted key."""
    payload = artifact / "payload"
    manifest = json.loads((payload / "aotc.json").read_bytes())
    path = payload / manifest["fixtures"][0]["outputs"][0]["path"]
    np.save(path, np.load(path) + 1)
    entry = next(file for file in manifest["files"] if payload / file["path"] == path)
    entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    _sign_anew(digits, artifact, manifest)


def drop_fixtures(digits: BuiltArtifact, artifact: Path) -> None:
    payload = artifact / "payload"
    manifest = json.loads((payload / "aotc.json").read_bytes())
    shutil.rmtree(payload / "fixtures")
    manifest["files"] = [file for file in manifest["files"] if file["role"] != "fixture"]
    del manifest["fixtures"]
    _sign_anew(digits, artifact, manifest)


def _sign_anew(digits: BuiltArtifact, artifact: Path, manifest: dict[str, Any]) -> None:
    payload = artifact / "payload"
    (payload / "aotc.json").write_text(json.dumps(manifest))
    for bundle in (artifact / "attestations").iterdir():
        bundle.unlink()
    own = load_private(digits.public_key.with_suffix(".pem"))
    (artifact / "attestations" / "oms.sigstore.json").write_bytes(oms.sign(digests(payload), own))


@pytest.mark.parametrize(
    ("spoil", "reasons"),
    [(spoil_fixture, ["AOTC-N009", "AOTC-N003"]), (drop_fixtures, ["AOTC-N009"])],
)
def test_a_failed_acceptance_leaves_nothing(
    bench: Bench,
    digits: BuiltArtifact,
    spoil: Callable[[BuiltArtifact, Path], None],
    reasons: list[str],
) -> None:
    spoil(digits, bench.artifact)
    before = digests(bench.artifact)
    error = refusal(lambda: qualify(bench.artifact, bench.signer, trust=bench.trust, runs=1))
    assert [refusal.code for refusal in (error, *error.also)] == reasons
    assert error.exit_status == 1
    assert digests(bench.artifact) == before


def test_a_process_that_dies_is_a_failed_acceptance(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ONNX Runtime on the path ends the process that imports it."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "onnxruntime.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "broken"), TOOLCHAIN]))
    error = refusal(lambda: qualify(bench.artifact, bench.signer, trust=bench.trust, runs=1))
    assert error.code == "AOTC-N009"
    assert "SIGABRT" in error.found


def _flip(artifact: Path) -> None:
    flip_bit(artifact / "payload" / "manifest.json", 5)


@pytest.mark.parametrize("add", [_sign, _approve, _qualify])
def test_nothing_is_said_of_an_artifact_that_is_not_authentic(bench: Bench, add: Add) -> None:
    _flip(bench.artifact)
    before = digests(bench.artifact)
    error = refusal(lambda: add(bench.artifact, bench.signer, bench.trust))
    assert error.code == "AOTC-G005"
    assert digests(bench.artifact) == before


@pytest.mark.parametrize("add", [_sign, _approve, _qualify])
def test_nothing_is_attested_if_no_trusted_signature_vouches(bench: Bench, add: Add) -> None:
    before = digests(bench.artifact)
    error = refusal(lambda: add(bench.artifact, bench.signer, bench.public))
    assert error.code == "AOTC-G002"
    assert "--trust" in error.fix
    assert "--key" not in error.fix
    assert digests(bench.artifact) == before


def test_the_signer_s_own_signature_vouches_if_no_trust_is_stated(
    bench: Bench, digits: BuiltArtifact
) -> None:
    own = load_private(digits.public_key.with_suffix(".pem"))
    assert approve(bench.artifact, own, channel="prod", expires="2099-01-01").approval
    assert qualify(bench.artifact, own, runs=1).qualification
    other = bench.signer
    error = refusal(lambda: approve(bench.artifact, other, channel="prod", expires="2099-01-01"))
    assert error.code == "AOTC-G002"


def policy(bench: Bench, digits: BuiltArtifact, *uses: str) -> str:
    """A trust policy that demands the release key's signature, and more of the other key."""

    def pem(path: Path) -> str:
        return "".join(f"      {line}\n" for line in path.read_text().splitlines())

    demands = "".join(
        f"      - {{predicate: {use}, signers: [other]}}\n" for use in ("approval", "qualification")
    )
    return (
        "schema: aotc.trust/1\nname: site\nsequence: 1\nexpires: 2099-01-01T00:00:00Z\n"
        "keys:\n  - id: release\n    usage: [oms]\n    pem: |\n"
        + pem(digits.public_key)
        + f"  - id: other\n    usage: [{', '.join(uses)}]\n    pem: |\n"
        + pem(bench.public)
        + "rules:\n  - name: digits\n    match: {name: digits}\n    require:\n"
        "      - {predicate: oms, signers: [release]}\n" + demands
    )


def test_what_a_policy_demands_is_made_under_that_policy(
    bench: Bench, digits: BuiltArtifact, tmp_path: Path
) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(policy(bench, digits, "approval", "qualification"))
    assert not verify(bench.artifact, trust=path).authentic
    _approve(bench.artifact, bench.signer, path)
    assert not verify(bench.artifact, trust=path).authentic
    _qualify(bench.artifact, bench.signer, path)
    report = verify(bench.artifact, trust=path)
    assert report.authentic, report.refusals
    assert report.verdict == "optimal"


def test_a_qualification_calls_no_bundle_unknown_whose_key_the_policy_knows(
    bench: Bench, digits: BuiltArtifact, tmp_path: Path
) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(policy(bench, digits, "approval", "qualification"))
    _approve(bench.artifact, bench.signer, path)
    private, _ = key_files.generate(tmp_path / "stranger.pem")
    stranger = approve(
        bench.artifact,
        load_private(private),
        channel="prod",
        expires="2099-01-31",
        trust=bench.trust,
    )
    qualification = _qualify(bench.artifact, bench.signer, path).qualification
    assert qualification is not None
    unknown = [finding.where for finding in qualification.findings if finding.code == "AOTC-G018"]
    assert unknown == [f"attestations/{Path(stranger.path).name}"]


def test_a_key_that_a_policy_does_not_let_sign_payloads_vouches_for_none(
    bench: Bench, digits: BuiltArtifact, tmp_path: Path
) -> None:
    path = tmp_path / "trust.yaml"
    text = policy(bench, digits, "approval", "qualification")
    path.write_text(text)
    sign(bench.artifact, bench.signer, trust=path)
    (bench.artifact / "attestations" / "oms.sigstore.json").unlink()
    error = refusal(lambda: _approve(bench.artifact, bench.signer, path))
    assert error.code == "AOTC-G027"


def test_no_more_than_readers_take(bench: Bench) -> None:
    place = bench.artifact / "attestations"
    original = (place / "evidence.sigstore.json").read_bytes()
    for number in range(MAX_BUNDLES - len(list(place.iterdir()))):
        (place / f"evidence-{number}.sigstore.json").write_bytes(original)
    error = refusal(lambda: _approve(bench.artifact, bench.signer, bench.trust))
    assert (error.code, error.found) == ("AOTC-I036", str(MAX_BUNDLES))


def test_of_many_at_once_no_more_are_added_than_readers_take(bench: Bench) -> None:
    place = bench.artifact / "attestations"
    original = (place / "evidence.sigstore.json").read_bytes()
    for number in range(MAX_BUNDLES - 2 - len(list(place.iterdir()))):
        (place / f"evidence-{number}.sigstore.json").write_bytes(original)

    def one(number: int) -> str:
        try:
            return approve(
                bench.artifact,
                bench.signer,
                channel=f"c{number}",
                expires="2099-01-31",
                trust=bench.trust,
            ).path
        except AotcError as error:
            return error.code

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(one, range(6)))
    # The last one removes its own again; two at once may both do so.
    assert len(list(place.iterdir())) <= MAX_BUNDLES
    assert found.count("AOTC-I036") >= 4
    assert verify(bench.artifact, key=bench.trust).authentic


def test_a_packed_artifact_takes_none(bench: Bench, tmp_path: Path) -> None:
    packed = tmp_path / "a.aotc.zip"
    packed.write_bytes(b"PK")
    error = refusal(lambda: _approve(packed, bench.signer, bench.trust))
    assert error.code == "AOTC-I036"
    error = refusal(lambda: _approve(tmp_path / "none.aotc", bench.signer, bench.trust))
    assert error.code == "AOTC-I001"


def test_of_several_at_once_one_is_written(bench: Bench) -> None:
    def one(_: int) -> str:
        try:
            return _approve(bench.artifact, bench.signer, bench.trust).path
        except AotcError as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(8)))
    assert sorted(found)[1:] == ["AOTC-I017"] * 7
    assert verify(bench.artifact, key=bench.trust).authentic


def test_inspect_tells_what_each_says(bench: Bench) -> None:
    _approve(bench.artifact, bench.signer, bench.trust)
    _qualify(bench.artifact, bench.signer, bench.trust)
    report = inspect(bench.artifact)
    assert report.status == "UNVERIFIED"
    assert report.problems == ()
    assert report.artifact is not None
    claims = {claim.predicate_type: claim.summary for claim in report.artifact.claims}
    assert claims["urn:aotc:approval:v1"] == "approved for prod until 2099-01-31T00:00:00Z"
    assert "accepted on" in claims["urn:aotc:qualification:v1"]
    assert "built by urn:aotc:builder:local" in claims["https://slsa.dev/provenance/v1"]
    assert claims["https://cyclonedx.org/bom"].startswith("CycloneDX 1.6, ")
    assert claims[oms.PREDICATE_TYPE].endswith("files of the payload")


def test_a_build_attests_by_the_official_schemas(digits: BuiltArtifact) -> None:
    artifact_id = hashlib.sha256((digits.payload / "aotc.json").read_bytes()).hexdigest()
    place = digits.path / "attestations"
    provenance = statement(place / "provenance.sigstore.json")
    read = json_format.ParseDict(provenance["predicate"], provenance_pb2.Provenance())
    assert read.build_definition.external_parameters["model"] == "digits.onnx"
    source = hashlib.sha256(digits.source.read_bytes()).hexdigest()
    digest = {
        dependency.name: dict(dependency.digest)
        for dependency in read.build_definition.resolved_dependencies
    }
    assert digest["digits.onnx"] == {"sha256": source}
    root = statement(place / "oms.sigstore.json")["subject"]
    subject = [{"name": "aotc.json", "digest": {"sha256": artifact_id}}, *root]
    assert provenance["subject"] == subject
    bill = statement(place / "sbom.sigstore.json")
    assert (
        JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill["predicate"])) is None
    )
    component = bill["predicate"]["metadata"]["component"]
    assert component["hashes"] == [{"alg": "SHA-256", "content": artifact_id}]
    for path in place.iterdir():
        found = statement(path)
        parsed = json_format.ParseDict(found, Statement([], "", {}).pb)
        Statement.copy_from_pb(parsed).validate()


def test_the_commands(bench: Bench, tmp_path: Path) -> None:
    key = ("--key", str(tmp_path / "other.pem"), "--trust", str(bench.trust), "--json")

    def aotc(*words: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("aotc")), *words],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": TOOLCHAIN},
        )
        return done.returncode, json.loads(done.stdout)

    artifact = str(bench.artifact)
    status, document = aotc("sign", artifact, *key)
    assert (status, document["predicate_type"]) == (0, oms.PREDICATE_TYPE)
    words = ("--approve", "--channel", "prod", "--expires", "2099-01-31")
    status, document = aotc("attest", artifact, *words, *key)
    assert (status, document["approval"]["channel"]) == (0, "prod")
    assert document["schema"] == "aotc.attest/1"
    status, document = aotc("attest", artifact, "--qualify", "--runs", "2", *key)
    assert (status, document["qualification"]["latency"][0]["runs"]) == (0, 2)
    status, document = aotc("attest", artifact, "--approve", "--channel", "prod", *key)
    assert document["errors"][0]["what"] == "--approve lacks --expires DATE"
    (tmp_path / "other.pem").chmod(0o644)
    status, document = aotc("attest", artifact, *words, "--force", *key)
    assert (status, document["findings"][0]["code"]) == (0, "AOTC-I038")
    for bad in (
        ("--approve", "--channel", "prod"),
        ("--qualify", "--channel", "prod"),
        ("--approve", "--qualify"),
        (),
    ):
        status, document = aotc("attest", artifact, *bad, *key)
        assert (status, document["errors"][0]["code"]) == (2, "AOTC-I027"), bad


def test_an_acceptance_tells_of_no_such_variant(bench: Bench) -> None:
    request = AcceptanceRequest(
        artifact=str(bench.artifact),
        keys=load_public(bench.trust),
        variant=("nothing",),
        threads=None,
        runs=1,
    )
    assert refusal(lambda: accept(request)).code == "AOTC-I027"
