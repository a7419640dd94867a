"""A document of a later major version was made by a newer aotc, whatever else it holds."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from artifact_builder import build_artifact, payload_digests
from policy_setting import Setting, make_keys

from aotc.base.errors import AotcError
from aotc.pipeline.tune import read_tuning
from aotc.spec.profile_files import load_profile, load_target
from aotc.spec.versions import is_newer, unsupported_reason
from aotc.tools.check_outcomes import read_report
from aotc.tools.inspect import inspect
from aotc.trust import statements
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.policy.state import StateFile
from aotc.trust.signers import load_command

READERS: dict[str, Callable[[Path], object]] = {
    "aotc.profile": load_profile,
    "aotc.target": load_target,
    "aotc.trust": read_policy,
    "aotc.root": read_roots,
    "aotc.signer": load_command,
    "aotc.check-models": read_report,
    "aotc.trust-state": lambda path: StateFile(path).read(),
}


@pytest.mark.parametrize("schema", READERS)
@pytest.mark.parametrize("version", ["99", "99.3"])
def test_a_later_version_is_reported_before_anything_else(
    schema: str, version: str, tmp_path: Path
) -> None:
    path = tmp_path / (
        "x.json" if schema in ("aotc.check-models", "aotc.trust-state") else "x.yaml"
    )
    path.write_text(json.dumps({"schema": f"{schema}/{version}", "colour": "red", "name": 7}))
    with pytest.raises(AotcError) as caught:
        READERS[schema](path)
    assert caught.value.code == "AOTC-I046"
    assert caught.value.also == ()
    assert "newer aotc" in f"{caught.value.what} {caught.value.found}"
    assert str(path) in caught.value.where
    assert "Update aotc" in caught.value.fix


@pytest.mark.parametrize("schema", ["aotc.profile/0", "aotc.profile/x", "aotc.profiles/2"])
def test_any_other_version_is_malformed(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"schema: {schema}\nname: x\n")
    with pytest.raises(AotcError) as caught:
        load_profile(path)
    assert caught.value.code == "AOTC-I022"


@pytest.mark.parametrize("schema", ["aotc.manifest/2", "aotc.manifest/2.0", "aotc.manifest/31.4"])
def test_an_artifact_by_a_newer_aotc(schema: str, tmp_path: Path) -> None:
    private, public = generate(tmp_path / "k.pem")
    change = {"schema": schema, "variants": "elsewhere", "colour": "red"}
    artifact = build_artifact(tmp_path / "a.aotc", load_private(private), change=change)
    (refusal,) = verify(artifact, key=public).refusals
    assert (refusal.code, refusal.what) == (
        "AOTC-G010",
        "the artifact was made by a newer aotc",
    )
    assert (refusal.expected, refusal.found) == ("aotc.manifest/1.x", schema)
    with pytest.raises(AotcError) as caught:
        inspect(artifact)
    assert (caught.value.code, caught.value.what) == (refusal.code, refusal.what)


def test_versions() -> None:
    assert unsupported_reason("aotc.manifest/1.0") == ""
    assert unsupported_reason("aotc.manifest/1.99") == ""
    assert unsupported_reason("aotc.manifest/0.9") == "the manifest's version is not supported"
    assert unsupported_reason("aotc.profile/2") == ""
    assert unsupported_reason(None) == ""
    assert is_newer("urn:aotc:approval:v2", "urn:aotc:approval:v1")
    assert not is_newer("urn:aotc:approval:v1", "urn:aotc:approval:v1")
    assert not is_newer("https://slsa.dev/provenance/v2", "https://slsa.dev/provenance/v1")
    assert not is_newer("aotc.profile/" + "9" * 100, "aotc.profile/1")


def test_an_attestation_of_a_later_kind_is_a_finding_and_meets_no_requirement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keys = make_keys(tmp_path)
    host = Setting(tmp_path, keys)
    artifact = host.artifact
    bundle = statements.sign(
        "urn:aotc:approval:v2", {}, {"aotc.json": payload_digests(artifact)["aotc.json"]},
        keys["release"],
    )  # fmt: skip
    (artifact / "attestations" / "approval-next.sigstore.json").write_bytes(bundle)
    public = tmp_path / "release.pub"
    public.write_text(keys["release"].public_pem)
    report = verify(artifact, key=public)
    assert report.authentic
    assert [(finding.code, finding.where) for finding in report.findings] == [
        ("AOTC-G047", "attestations/approval-next.sigstore.json")
    ]
    host.policy["keys"][0]["usage"].append("approval")
    host.require("approval", "release")
    host.write()
    (refusal,) = host.verify(channel="prod").refusals
    assert refusal.code == "AOTC-G025"
    assert "made by a newer aotc: attestations/approval-next.sigstore.json" in refusal.found


def test_evidence_of_a_later_kind(tmp_path: Path) -> None:
    statement = {"predicateType": "urn:aotc:evidence:v2", "predicate": {}}
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    path = tmp_path / "evidence.sigstore.json"
    path.write_text(json.dumps({"dsseEnvelope": {"payload": payload}}))
    with pytest.raises(AotcError) as caught:
        read_tuning(path)
    assert caught.value.code == "AOTC-I046"
