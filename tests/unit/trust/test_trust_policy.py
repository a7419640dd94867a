"""Policies: which documents are valid, why others are not, and what a policy decides."""

from __future__ import annotations

import base64
import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from policy_setting import Setting, ago, ahead, make_keys
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.json_schema import schema_of
from aotc.spec.trust_anchors import TrustedKey
from aotc.spec.trust_policy import MAX_DAYS, Match, Revoked, RootKeys, Rule, TrustPolicy
from aotc.spec.yaml import strict_yaml
from aotc.trust import oms
from aotc.trust.key_loading import PrivateKey
from aotc.trust.policy import roots
from aotc.trust.policy.authoring import (
    Change,
    apply_change,
    new_policy,
    parse_requirement,
    write_policy,
)
from aotc.trust.policy.document import normalized_public_key, parse_policy, read_policy, read_roots
from aotc.trust.policy.evaluation import judge
from aotc.trust.policy.host_trust import Trust, resolve
from aotc.trust.policy.signed_attestations import SignedStatement


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PrivateKey]:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, PrivateKey]) -> Path:
    return Setting(tmp_path_factory.mktemp("template"), keys).artifact


@pytest.fixture
def host(
    template: Path, keys: dict[str, PrivateKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Setting:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    shutil.copytree(template, tmp_path / "linear.aotc")
    return Setting(tmp_path, keys)


def made_authority() -> str:
    """The certificate (PEM) of a certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def problems(call: Callable[[], object], code: str = "AOTC-G019") -> str:
    """Every problem of a refusal with `code`; by default that of a file."""
    with pytest.raises(AotcError) as caught:
        call()
    assert {error.code for error in (caught.value, *caught.value.also)} == {code}
    return "\n".join(f"{e.where} {e.found}" for e in (caught.value, *caught.value.also))


def compressed(key: PrivateKey) -> str:
    """The same public key with its point compressed: other bytes, the same key."""
    public = serialization.load_pem_public_key(key.public_pem.encode())
    point = public.public_bytes(  # type: ignore[call-arg]
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    header = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
    text = base64.b64encode(header + point).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n"


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set what is at a path such as `rules.0.require`."""

    def apply(policy: dict[str, Any]) -> None:
        place: Any = policy
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in way:
            place = place[part]
        place[last] = value

    return apply


AGED = {"predicate": "evidence", "signers": ["release"], "max_age": 1_000_000}
BAD = [
    (change("surprise", 1), "surprise unknown field"),
    (change("rules.0.match.nam", "x"), "did you mean 'name'"),
    (change("rules", []), "rules 0 is less than 1"),
    (change("rules.0.require", []), "rules[0].require 0 is less than 1"),
    (change("rules.0.require.0.threshold", 0), "threshold 0 is less than 1"),
    (change("rules.0.require.0.threshold", 2), "2 of 1 can never be met"),
    (change("rules.0.require.0.threshold", True), "expected an integer, found true"),
    (change("rules.0.require.0.signers", []), "signers 0 is less than 1"),
    (change("rules.0.require.0.signers", ["release", "release"]), "'release' is listed 2 times"),
    (change("rules.0.require.0.signers", ["nobody"]), "'nobody' is not an id of this policy"),
    (change("rules.0.require.0.signers", ["ops"]), "'ops' does not have the usage 'oms'"),
    (change("rules.0.require.0.predicate", "vibes"), "is none of: oms"),
    (change("rules.0.require.0.builders", ["x"]), "builders is for provenance and"),
    (change("rules.0.require.0.channel", "prod"), "channel is for approval only"),
    (change("rules.0.require.0.target", "this"), "target is for qualification only"),
    (change("rules.0.require.0.max_age", 3), "oms does not say when it was made"),
    (change("rules.0.require.0", AGED), "max_age 1000000 is more than 36500"),
    (change("rules.0.min_version", "one"), "does not match"),
    (change("rules.0.min_version", "1.\u0663"), "does not match"),
    (change("rules.0.repositories", ["oci://ghcr.io/x"]), "is not like ghcr.io/team/*"),
    (
        change("rules.0.repositories", ["ghcr.io/x@sha256:1"]),
        "in lower case, without scheme and tag",
    ),
    (change("rules.0.repositories", ["ghcr.io/x:1.4"]), "'ghcr.io/x:1.4' is not like"),
    (change("rules.0.repositories", ["GHCR.io/x"]), "'GHCR.io/x' is not like ghcr.io/team/*"),
    (change("rules.0.repositories", ["ghcr.io"]), "'ghcr.io' is not like ghcr.io/team/*"),
    (change("rules.0.repositories", ["a.b/c", "a.b/c"]), "'a.b/c' is listed 2 times"),
    (change("sequence", 0), "sequence 0 is less than 1"),
    (change("expires", "2027-02-30T00:00:00Z"), "is not a valid date and time"),
    (change("expires", "2027-02-03"), "does not match"),
    (change("valid_from", "2099-01-01T00:00:00Z"), "expires is not after valid_from"),
    (change("keys.1.id", "release"), "id 'release' is listed 2 times"),
    (change("keys.1.usage", []), "usage 0 is less than 1"),
    (change("keys.1.usage", ["oms", "oms"]), "'oms' is listed 2 times"),
    (change("keys.1.revoked", ""), "revoked 0 is less than 1"),
    (change("keys.1.pem", "none"), "keys[1].pem is not one PEM public key on P-256"),
    (change("revoked", {"keys": ["nobody"]}), "'nobody' is not an id of this policy"),
    (change("revoked", {"artifacts": ["ABC"]}), "does not match"),
    (change("limits", {"files": 0}), "limits.files 0 is less than 1"),
    (change("min_versions", {"linear": "2027-13-01T00:00:00Z"}), "is not a valid date and time"),
    (change("authorities", [{"id": "ca", "pem": "x", "usage": ["oms"]}]), "is not one PEM cert"),
]


@pytest.mark.parametrize(("spoil", "wanted"), BAD, ids=[wanted for _, wanted in BAD])
def test_what_is_not_a_policy_is_refused_with_its_path(
    spoil: Callable[[dict[str, Any]], None], wanted: str, host: Setting
) -> None:
    spoil(host.policy)
    assert wanted in problems(lambda: read_policy(host.write()))


def test_one_key_under_two_names_is_refused(host: Setting) -> None:
    same = host.keys["release"]
    for pem in (same.public_pem, same.public_pem.replace("\n", "\r\n"), compressed(same)):
        policy = copy.deepcopy(host.policy)
        host.policy["keys"][1]["pem"] = pem
        assert "'release' and 'ci' are the same key" in problems(lambda: read_policy(host.write()))
        host.policy = policy


def test_ambiguous_yaml_is_refused(host: Setting) -> None:
    text = host.write().read_text()
    for bad in (
        text + "sequence: 2\n",
        text.replace("name: prod", "name: &a prod"),
        text + "x: *a",
    ):
        if "&a" in bad:
            bad += "revoked: {keys: [*a]}\n"
        host.path.write_text(bad)
        with pytest.raises(AotcError) as caught:
            read_policy(host.path)
        assert caught.value.code == "AOTC-G019"


def test_only_keys_on_p256_and_p384_are_accepted(host: Setting) -> None:
    from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

    others = [
        ec.generate_private_key(ec.SECP192R1()),
        ec.generate_private_key(ec.SECP256K1()),
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ]
    for other in others:
        pem = other.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        with pytest.raises(ValueError, match="P-256"):
            normalized_public_key(pem.decode())
    two = host.keys["ops"].public_pem + host.keys["ci"].public_pem
    with pytest.raises(ValueError, match="not one"):
        normalized_public_key(two)


def test_roots_are_distinct_and_enough(host: Setting) -> None:
    assert read_roots(host.write_roots(2, "root-a", "root-b")).threshold == 2
    for threshold, names, wanted in [
        (0, ("root-a",), "0 is less than 1"),
        (3, ("root-a", "root-b"), "3 of 2 keys can never be met"),
        (2, ("root-a", "root-a"), "are the same key"),
        (1, (), "keys 0 is less than 1"),
    ]:
        path = host.write_roots(threshold, *names)
        assert wanted in problems(lambda path=path: read_roots(path))


def test_the_schema_takes_what_the_record_takes(host: Setting) -> None:
    host.require("approval", "ops", "security", threshold=2, channel="prod", max_age=3)
    host.policy["min_versions"] = {"linear": "1.2"}
    host.rule["repositories"] = ["ghcr.io/team/*", "127.0.0.1:5000/linear"]
    jsonschema.validate(host.policy, schema_of(TrustPolicy))
    read_policy(host.write())
    jsonschema.validate(
        yaml.safe_load(host.write_roots(1, "root-a").read_text()), schema_of(RootKeys)
    )
    host.policy["rules"][0]["require"][0]["threshold"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(host.policy, schema_of(TrustPolicy))


def test_a_rule_that_is_met_says_why(host: Setting) -> None:
    host.require("provenance", "ci", builders=["https://ci.example.com/builders/1"], max_age=7)
    host.require("approval", "ops", "security", threshold=2)
    host.require("qualification", "ci")
    host.rule["match"]["channel"] = "prod"
    host.rule["min_version"] = "1.4"
    host.provenance(version="1.4.2")
    host.approve("ops")
    host.approve("security")
    host.qualify()
    host.write()
    report = host.verify()
    assert report.refusals == ()
    decision = report.policy
    assert report.signer_names == ("release",)
    assert decision is not None
    assert decision.accepted
    assert (decision.rule, decision.channel, decision.channel_source) == (
        "linear",
        "prod",
        "approval",
    )
    assert [(need.predicate, need.distinct, need.met) for need in decision.requirements] == [
        ("oms", 1, True), ("provenance", 1, True), ("approval", 2, True),
        ("qualification", 1, True),
    ]  # fmt: skip
    assert decision.release is not None
    assert (decision.release.kind, decision.release.value) == ("version", "1.4.2")
    assert [step.detail for step in report.steps if step.step == "7 policy"] == ["rule linear"]
    assert [finding.code for finding in report.findings if finding.code == "AOTC-G021"] == [
        "AOTC-G021"
    ]


def test_what_does_not_count_refuses_nothing_that_something_else_meets(host: Setting) -> None:
    host.policy["keys"][3]["valid_until"] = ago(days=1)
    host.require("approval", "ops", "security")
    host.approve("ops")
    host.approve("security")
    host.sign_payload("ci", "oms-ci")
    host.write()
    report = host.verify()
    assert report.authentic
    assert report.policy is not None
    considered = [
        attestation for need in report.policy.requirements for attestation in need.considered
    ]
    assert sorted(
        (attestation.id, attestation.counts, attestation.code) for attestation in considered
    ) == [
        ("ci", False, "AOTC-G027"),
        ("ops", True, ""),
        ("release", True, ""),
        ("security", False, "AOTC-G028"),
    ]


def test_a_person_with_several_keys_is_one_signer(host: Setting) -> None:
    """Every signature of a keyless signer has another key; of an authority, the names count."""
    certificate = made_authority()
    issuer = "https://ci.example.com"
    host.policy["identities"] = [
        {"id": "bot", "identity": "bot@example.com", "issuer": issuer, "usage": ["approval"]}
    ]
    host.policy["authorities"] = [{"id": "ca", "pem": certificate, "usage": ["approval"]}]
    host.require("approval", "bot", "ca", "ops", threshold=2)
    trust = resolve(host.write(), channel="prod", remember=False)
    assert [anchor.origin for anchor in trust.anchors()][-2:] == ["ca", "bot"]
    predicate = {
        "channel": "prod",
        "expires": ahead(days=1),
        "issued_at": ago(days=1),
        "artifact": {"name": "linear", "id": host.id},
    }
    signed = SignedStatement("o", oms.PREDICATE_TYPE, None, {}, host.keys["release"].trusted())

    def distinct(*keys: TrustedKey) -> int:
        said = [
            SignedStatement("a", KINDS["approval"].predicate_type, predicate, {}, key)
            for key in keys
        ]
        decision, refusals = judge(trust, host.id, "linear", [signed, *said])
        found = decision.requirements[1]
        assert found.met == (found.distinct >= 2)
        assert [refusal.code for refusal in refusals] == ([] if found.met else ["AOTC-G026"])
        return found.distinct

    one, other = (host.keys[name].public_pem for name in ("root-a", "root-b"))
    bot = TrustedKey(pem=one, origin="bot", certificate="bot@example.com")
    assert distinct(bot, replace(bot, pem=other)) == 1
    alice = TrustedKey(pem=one, origin="ca", certificate="CN=alice, by CN=ca")
    bob = TrustedKey(pem=other, origin="ca", certificate="CN=bob, by CN=ca")
    assert distinct(alice, replace(alice, pem=other)) == 1
    assert distinct(alice, replace(bob, pem=one)) == 1
    assert distinct(alice, bob) == 2
    assert distinct(alice, replace(bot, pem=other)) == 2
    # A key of the policy has the name that the policy gives it, whoever certified it.
    ops = replace(alice, pem=host.keys["ops"].public_pem)
    assert distinct(ops, replace(ops, certificate="CN=eve, by CN=ca")) == 1


def test_an_artifact_that_no_rule_matches_is_denied(host: Setting) -> None:
    host.rule["match"]["channel"] = "prod"
    host.write()
    assert host.codes() == ["AOTC-G023"]
    assert host.codes("Prod") == ["AOTC-G023"]
    assert host.codes("prod") == []


def test_trust_is_not_a_list_of_keys(host: Setting) -> None:
    trust = resolve(host.write())
    assert trust.policy is not None
    with pytest.raises(TypeError):
        tuple(trust)  # type: ignore[call-overload]
    assert Trust.of(trust) is trust


def test_a_channel_needs_a_policy(host: Setting) -> None:
    public = host.folder / "release.pub"
    public.write_text(host.keys["release"].public_pem)
    with pytest.raises(AotcError) as caught:
        resolve(public, channel="prod")
    assert caught.value.code == "AOTC-I027"
    assert resolve(public).policy is None
    with pytest.raises(AotcError) as caught:
        resolve(host.write(), public)
    assert caught.value.code == "AOTC-I027"


def test_a_change_is_the_next_sequence_and_reads_back(host: Setting) -> None:
    policy = new_policy("prod", [("release", host.keys["release"].public_pem)], 30)
    path = host.folder / "made.yaml"
    made = write_policy(path, policy, new=True)
    assert read_policy(path).policy == made.policy
    assert "  pem: |\n    -----BEGIN PUBLIC KEY-----\n" in path.read_text()
    rule = Rule(name="default", match=Match(name="b*"), require=(parse_requirement("oms:release"),))
    change = Change(rules=(rule,), rollback=("0" * 64,), expires=ahead(days=2))
    after = write_policy(path, apply_change(made.policy, change), new=False).policy
    assert (after.sequence, len(after.rules), after.rules[0].match.name) == (2, 1, "b*")
    assert after.rollback == ("0" * 64,)
    # What would not be a policy is not written.
    before = path.read_bytes()
    bad = Rule(name="x", match=Match(name="*"), require=(parse_requirement("approval:release"),))
    assert "does not have the usage" in problems(
        lambda: write_policy(path, apply_change(after, Change(rules=(bad,))), new=False),
        "AOTC-I027",
    )
    assert path.read_bytes() == before
    with pytest.raises(AotcError) as caught:
        write_policy(path, policy, new=True)
    assert caught.value.code == "AOTC-I017"


@pytest.mark.parametrize("named", ["53b15", "A" * 64, f"sha256-{'0' * 64}"])
def test_an_artifact_is_revoked_by_its_full_id(named: str, host: Setting) -> None:
    policy = new_policy("prod", [("release", host.keys["release"].public_pem)], 30)
    for change in (Change(revoked=Revoked(artifacts=(named,))), Change(rollback=(named,))):
        with pytest.raises(AotcError) as caught:
            apply_change(policy, change)
        assert (caught.value.code, caught.value.found) == ("AOTC-I027", named)
        assert "64 digits" in caught.value.expected


@pytest.mark.parametrize(
    "text", ["oms", "oms:", "oms:a:0", "oms:a:x", "vibes:a", "oms:a:1:2", ":a"]
)
def test_a_requirement_that_cannot_be_read(text: str) -> None:
    assert problems(lambda: parse_requirement(text), "AOTC-I027")


def test_a_requirement_as_the_command_line_states_it() -> None:
    need = parse_requirement("approval:ops,security:2")
    assert (need.predicate, need.signers, need.threshold) == ("approval", ("ops", "security"), 2)


def test_a_file_without_the_name_is_known_by_its_schema(host: Setting) -> None:
    other = host.folder / "policy.txt"
    other.write_bytes(host.write().read_bytes())
    assert resolve(other).policy is not None
    assert parse_policy(other.read_bytes(), other).policy.name == "prod"


@pytest.mark.parametrize("days", [0, -1, MAX_DAYS + 1, 9_999_999, 10**20])
def test_a_policy_for_more_than_a_century_is_not_made(days: int) -> None:
    with pytest.raises(AotcError) as caught:
        new_policy("a", (), days)
    assert (caught.value.code, caught.value.where) == ("AOTC-I027", "--days")


def test_the_command_says_how_many_days_a_policy_may_have(
    host: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = tmp_path / "release.pub"
    public.write_text(host.keys["release"].public_pem)
    words = ["trust", "init", "--name", "a", "--signer", f"release={public}"]
    output = tmp_path / "new.yaml"
    assert main([*words, "-o", str(output), "--days", "9999999"]) == 2
    assert "AOTC-I027" in capsys.readouterr().err
    assert not output.exists()
    assert main([*words, "-o", str(output), "--days", str(MAX_DAYS)]) == 0


def test_a_key_that_is_certified_for_two_people_counts_the_same_in_any_order(host: Setting) -> None:
    host.policy["authorities"] = [{"id": "ca", "pem": made_authority(), "usage": ["approval"]}]
    host.require("approval", "ca", threshold=2)
    trust = resolve(host.write(), channel="prod", remember=False)
    one, other = (host.keys[name].public_pem for name in ("root-a", "root-b"))
    predicate = {
        "channel": "prod",
        "expires": ahead(days=1),
        "issued_at": ago(days=1),
        "artifact": {"name": "linear", "id": host.id},
    }
    keys = [
        TrustedKey(pem=pem, origin="ca", certificate=name)
        for pem, name in ((one, "CN=alice"), (one, "CN=bob"), (other, "CN=alice"))
    ]
    for order in permutations(keys):
        said = [
            SignedStatement("a", KINDS["approval"].predicate_type, predicate, {}, key)
            for key in order
        ]
        decision, _ = judge(trust, host.id, "linear", said)
        assert decision.requirements[1].distinct == 2


def test_the_example_of_the_guide_is_a_policy(host: Setting) -> None:
    guide = ROOT / "docs" / "guides" / "trust.md"
    example = guide.read_text("utf-8").partition("## The file")[2]
    text = example.partition("```yaml\n")[2].partition("```")[0].replace("d1e5…", "d1e5" * 16)
    stated: Any = strict_yaml(text.encode())
    for each, key in zip(stated["keys"], host.keys.values(), strict=False):
        each["pem"] = key.public_pem
    policy = parse_policy(json.dumps(stated).encode(), guide).policy
    assert policy.name == "plant"
    assert {usage for each in policy.keys for usage in each.usage} >= {"approval", "qualification"}
