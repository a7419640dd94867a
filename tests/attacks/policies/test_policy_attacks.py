"""Attempts to pass a trust policy, each with the code of its refusal."""

from __future__ import annotations

import base64
import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from artifact_builder import build_artifact
from made_certificates import authority, leaf
from policy_setting import BUILDER, Setting, ago, ahead, make_keys
from refusals import refusal, refusal_code

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.spec.json import canonical_json
from aotc.spec.target import Target
from aotc.trust import statements
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate, verify
from aotc.trust.key_loading import PrivateKey
from aotc.trust.policy import roots as roots_module
from aotc.trust.policy.document import read_policy
from aotc.trust.policy.host_trust import resolve
from aotc.trust.policy.state import user_state


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PrivateKey]:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, PrivateKey]) -> Path:
    return Setting(tmp_path_factory.mktemp("template"), keys).artifact


@pytest.fixture
def host(
    template: Path,
    keys: dict[str, PrivateKey],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Setting:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots_module, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    shutil.copytree(template, tmp_path / "linear.aotc")
    return Setting(tmp_path, keys)


# Attestations that do not count.


def _nothing_is_there(host: Setting) -> None:
    host.require("approval", "ops")


def _replay_as_approval(host: Setting) -> None:
    host.require("approval", "ops")
    host.provenance(name="approval-prod-0000000000000000")


def _one_key_twice(host: Setting) -> None:
    host.require("approval", "ops", "security", threshold=2)
    host.approve("ops", name="approval-1")
    host.approve("ops", name="approval-2", issued_at=ago(minutes=1))


def _one_bundle_copied(host: Setting) -> None:
    host.require("approval", "ops", "security", threshold=2)
    path = host.approve("ops")
    shutil.copy(path, path.with_name("approval-security.sigstore.json"))


def _signature_negated(host: Setting) -> None:
    """The other S of a signature is valid too, but not a second signer."""
    host.require("approval", "ops", "security", threshold=2)
    path = host.approve("ops")
    bundle = json.loads(path.read_bytes())
    signature = bundle["dsseEnvelope"]["signatures"][0]
    signature["sig"] = _negated(signature["sig"])
    path.with_name("approval-other.sigstore.json").write_bytes(canonical_json(bundle))


def _hint_of_another(host: Setting) -> None:
    host.require("approval", "ops", "security", threshold=2)
    path = host.approve("ops")
    bundle = json.loads(path.read_bytes())
    bundle["verificationMaterial"]["publicKey"]["hint"] = host.keys["security"].key_id
    path.with_name("approval-other.sigstore.json").write_bytes(canonical_json(bundle))


def _not_a_signer(host: Setting) -> None:
    host.require("approval", "ops")
    host.approve("security")


def _unknown_key(host: Setting) -> None:
    host.require("approval", "ops")
    host.approve("stranger")


def _without_usage(host: Setting) -> None:
    host.require("approval", "ops")
    host.approve("ci", name="approval-ops")


def _key_expired(host: Setting) -> None:
    host.policy["keys"][2]["valid_until"] = ago(minutes=1)
    host.require("approval", "ops")
    host.approve("ops")


def _key_not_yet_valid(host: Setting) -> None:
    host.policy["keys"][2]["valid_from"] = ahead(days=1)
    host.require("approval", "ops")
    host.approve("ops")


def _key_revoked(host: Setting) -> None:
    host.policy["keys"][2]["revoked"] = "lost"
    host.require("approval", "ops")
    host.approve("ops")


def _key_revoked_by_digest(host: Setting) -> None:
    host.policy["revoked"] = {"keys": [host.keys["ops"].key_id]}
    host.require("approval", "ops")
    host.approve("ops")


def _other_channel(host: Setting) -> None:
    host.require("approval", "ops", channel="prod")
    host.approve("ops", channel="staging")


def _approval_expired(host: Setting) -> None:
    host.require("approval", "ops", channel="prod")
    host.approve("ops", expires=ago(minutes=1), issued_at=ago(days=3))


def _too_old(host: Setting) -> None:
    host.require("approval", "ops", max_age=7)
    host.approve("ops", issued_at=ago(days=8))


def _from_the_future(host: Setting) -> None:
    host.require("approval", "ops", max_age=7)
    host.approve("ops", issued_at=ahead(days=2))


def _other_builder(host: Setting) -> None:
    host.require("provenance", "ci", builders=[BUILDER])
    host.provenance(builder=f"{BUILDER}/../2")


def _other_target(host: Setting) -> None:
    host.require("qualification", "ci")
    host.qualify(Target(schema="aotc.target/1", name="host", architecture="aarch64"))


def _renamed_target(host: Setting) -> None:
    """The digest of this host with the description of another one."""
    host.require("qualification", "ci", target="any")
    host.qualify(target_sha256="0" * 64)


def _revoked_artifact(host: Setting) -> None:
    host.policy["revoked"] = {"artifacts": [host.id]}


def _too_large(host: Setting) -> None:
    host.policy["limits"] = {"payload_bytes": 100}


def _too_many_files(host: Setting) -> None:
    host.policy["limits"] = {"files": 3}


def _too_many_bundles(host: Setting) -> None:
    host.policy["limits"] = {"bundles": 2}
    host.provenance()


def _no_rule(host: Setting) -> None:
    host.rule["match"]["name"] = "Linear"


def _two_rules(host: Setting) -> None:
    host.policy["rules"].append(copy.deepcopy({**host.rule, "name": "all", "match": {"name": "*"}}))


def _two_channels(host: Setting) -> None:
    host.approve("ops", channel="prod")
    host.approve("security", channel="staging")


def _below_version(host: Setting) -> None:
    host.rule["min_version"] = "1.10"
    host.provenance(version="1.9.3")


def _without_version(host: Setting) -> None:
    host.policy["min_versions"] = {"linear": "1.0"}
    host.provenance()


def _signature_without_usage(host: Setting) -> None:
    host.policy["keys"][0]["usage"] = ["evidence"]
    host.policy["keys"][1]["usage"] = ["oms"]
    host.rule["require"][0]["signers"] = ["ci"]


def _signature_by_revoked_key(host: Setting) -> None:
    host.policy["keys"][0]["revoked"] = "stolen"


ATTACKS = [
    (_nothing_is_there, ["AOTC-G025"]),
    (_replay_as_approval, ["AOTC-G025"]),
    (_one_key_twice, ["AOTC-G026"]),
    (_one_bundle_copied, ["AOTC-G026"]),
    (_signature_negated, ["AOTC-G026"]),
    (_hint_of_another, ["AOTC-G003"]),
    (_not_a_signer, ["AOTC-G025", "AOTC-G026"]),
    (_unknown_key, ["AOTC-G025"]),
    (_without_usage, ["AOTC-G025", "AOTC-G027"]),
    (_key_expired, ["AOTC-G028"]),
    (_key_not_yet_valid, ["AOTC-G028"]),
    (_key_revoked, ["AOTC-G028"]),
    (_key_revoked_by_digest, ["AOTC-G028"]),
    (_other_channel, ["AOTC-G025"]),
    (_approval_expired, ["AOTC-G032"]),
    (_too_old, ["AOTC-G032"]),
    (_from_the_future, ["AOTC-G032"]),
    (_other_builder, ["AOTC-G031"]),
    (_other_target, ["AOTC-G033"]),
    (_renamed_target, ["AOTC-G033"]),
    (_revoked_artifact, ["AOTC-G029"]),
    (_too_large, ["AOTC-G034"]),
    (_too_many_files, ["AOTC-G034"]),
    (_too_many_bundles, ["AOTC-G034"]),
    (_no_rule, ["AOTC-G023"]),
    (_two_rules, ["AOTC-G024"]),
    (_two_channels, ["AOTC-G024"]),
    (_below_version, ["AOTC-G030"]),
    (_without_version, ["AOTC-G030"]),
    (_signature_without_usage, ["AOTC-G027"]),
    (_signature_by_revoked_key, ["AOTC-G028"]),
]


@pytest.mark.parametrize(
    ("attack", "wanted"), ATTACKS, ids=lambda each: getattr(each, "__name__", "")
)
def test_what_does_not_count_is_refused(
    attack: Callable[[Setting], None], wanted: list[str], host: Setting
) -> None:
    attack(host)
    host.write()
    channel = None if attack in (_two_channels, _other_channel) else "prod"
    report = host.verify(channel)
    assert [refusal.code for refusal in report.refusals if refusal.code in wanted] == wanted
    assert not report.authentic
    assert report.verdict == "unverified"
    assert report.policy is None or not report.policy.accepted
    with pytest.raises(AotcError) as caught, FolderContainer(host.artifact) as opened:
        authenticate(opened, resolve(host.path, channel=channel))
    assert caught.value.code == wanted[0]
    # Nothing that was refused counts later.
    assert user_state().read().artifacts == {}


# Policies that must not be taken.


def test_a_policy_must_be_signed_by_enough_distinct_roots(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(2, "root-a", "root-b")))
    host.write()
    assert refusal_code(host.verify) == "AOTC-G021"
    host.write("root-a")
    assert refusal_code(host.verify) == "AOTC-G021"
    # The same root under another file name, and a key that is not a root.
    (one,) = host.folder.glob("trust.yaml.*.sigstore.json")
    shutil.copy(one, one.with_name("trust.yaml.0000000000000000.sigstore.json"))
    assert refusal_code(host.verify) == "AOTC-G021"
    host.write("root-a", "stranger")
    assert refusal_code(host.verify) == "AOTC-G021"
    host.write("root-a", "root-b")
    assert host.verify().authentic
    assert len(host.verify().policy.roots) == 2  # type: ignore[union-attr]
    # With one more byte, no signature is valid.
    host.path.write_bytes(host.path.read_bytes() + b"\n")
    assert refusal_code(host.verify) == "AOTC-G021"


def junk(host: Setting, name: str, content: bytes) -> None:
    (host.folder / f"trust.yaml.{name}.sigstore.json").write_bytes(content)


@pytest.mark.parametrize("renamed", [False, True])
def test_bundles_of_strangers_beside_a_policy_do_not_make_it_bad(
    host: Setting, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    """However many there are, whatever their names, and whatever they hold."""
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    host.write("root-a")
    (good,) = host.folder.glob("trust.yaml.*.sigstore.json")
    content = good.read_bytes()
    if renamed:
        good.rename(good.with_name("trust.yaml.zzzz.sigstore.json"))
    for number in range(200):
        kind = (b"", b"{}", b"[" * 5000, content[:-9], content.replace(b"a", b"b"))[number % 5]
        junk(host, f"{number:016x}", kind)
    junk(host, "f" * 16, b"[" + b"0," * (10 << 20) + b"0]")
    for name, target in (("d", "/dev/zero"), ("n", "none")):
        (host.folder / f"trust.yaml.{name}.sigstore.json").symlink_to(target)
    os.mkfifo(host.folder / "trust.yaml.p.sigstore.json")
    assert host.verify().authentic


def test_not_all_that_is_wrong_with_bundles_is_told(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    host.write()
    for number in range(200):
        junk(host, f"{number:016x}", b"{}")
    error = refusal(host.verify)
    assert error.code == "AOTC-G021"
    assert 0 < len(error.also) <= 20


def test_the_policy_does_not_say_how_many_roots_it_needs(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(2, "root-a", "root-b")))
    host.policy["threshold"] = 1
    host.path.write_text(json.dumps(host.policy))
    assert refusal_code(host.verify) == "AOTC-G019"


def test_a_statement_of_another_kind_is_not_a_signature_of_a_policy(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    path = host.write("root-a")
    (bundle,) = host.folder.glob("trust.yaml.*.sigstore.json")
    said = statements.read_unverified(bundle.read_bytes())
    replayed = statements.sign("urn:aotc:approval:v1", {}, said.subjects, host.keys["root-a"])
    bundle.write_bytes(replayed)
    assert refusal_code(lambda: resolve(path)) == "AOTC-G021"


def test_where_roots_are_set_nothing_else_is_trusted(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    public = host.folder / "release.pub"
    public.write_text(host.keys["release"].public_pem)
    assert refusal_code(lambda: verify(host.artifact, key=public)) == "AOTC-G021"
    assert refusal_code(lambda: verify(host.artifact, trust=public)) == "AOTC-G021"
    # The user's development key is not trusted: without --trust, the policy next to the roots
    # decides.
    assert refusal_code(lambda: verify(host.artifact)) == "AOTC-I001"
    host.write("root-a")
    assert verify(host.artifact).authentic


def test_the_administrators_roots_are_not_replaced_by_a_variable(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = roots_module.SYSTEM_ROOT
    system.parent.mkdir()
    shutil.copy(host.write_roots(1, "root-a"), system)
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "stranger")))
    host.write("stranger")
    assert refusal_code(host.verify) == "AOTC-G021"


def test_a_policy_is_taken_only_within_its_period(host: Setting) -> None:
    host.policy["expires"] = ago(minutes=1)
    host.write()
    assert refusal_code(host.verify) == "AOTC-G020"
    host.policy["expires"] = ahead(days=2)
    host.policy["valid_from"] = ahead(days=1)
    host.write()
    assert refusal_code(host.verify) == "AOTC-G020"


@pytest.mark.parametrize("roots", [(), ("root-a",)])
def test_an_older_policy_is_not_taken_again(
    roots: tuple[str, ...], host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    if roots:
        monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, *roots)))
    host.policy["sequence"] = 7
    host.write(*roots)
    assert host.verify().authentic
    host.policy["sequence"] = 6
    host.write(*roots)
    assert refusal_code(host.verify) == "AOTC-G022"
    host.policy["sequence"] = 8
    host.write(*roots)
    assert host.verify().authentic


def test_one_sequence_has_one_content(host: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    host.write("root-a")
    assert host.verify().authentic
    host.policy["expires"] = ahead(days=300)
    host.write("root-a")
    assert refusal_code(host.verify) == "AOTC-G022"


def test_a_policy_that_nobody_signed_replaces_none(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.policy["sequence"] = 2**53 - 1
    host.write()
    assert host.verify().authentic
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    host.policy["sequence"] = 1
    host.write("root-a")
    assert host.verify().authentic


# Older releases.


def test_an_older_release_is_not_taken_again(host: Setting) -> None:
    host.provenance(version="1.10.0")
    host.write()
    assert host.verify().authentic
    host.provenance(version="1.9.9")
    assert host.codes() == ["AOTC-G030"]
    # Leaving out the version does not help, however recent the approval is.
    host.provenance()
    host.approve("ops")
    assert host.codes("prod") == ["AOTC-G030"]
    # The policy can allow it, and the release that was seen stays.
    host.provenance(version="1.9.9")
    host.policy["rollback"] = [host.id]
    host.write()
    assert host.verify("prod").authentic
    assert user_state().read().artifacts["linear"].value == "1.10.0"


def test_approving_an_artifact_again_makes_it_current(host: Setting) -> None:
    host.require("approval", "ops", "security", threshold=2)
    host.write()
    host.approve("ops", issued_at=ago(days=1))
    host.approve("security", issued_at=ago(days=2))
    assert host.verify().authentic
    seen = user_state().read().artifacts["linear"]
    # The second approval completes it, so its time counts.
    assert seen.value < ago(days=1, hours=12)
    host.approve("ops", issued_at=ago(minutes=1))
    host.approve("security", issued_at=ago(days=3))
    assert host.codes() == ["AOTC-G030"]
    host.approve("security", issued_at=ago(hours=1))
    assert host.verify().authentic


def test_a_clock_that_was_set_back_is_noticed(host: Setting) -> None:
    host.write()
    assert host.verify().authentic
    state = user_state()
    seen = json.loads(state.path.read_bytes())
    seen["latest"] = ahead(hours=2)
    state.path.write_bytes(canonical_json(seen))
    assert refusal_code(host.verify) == "AOTC-G036"
    seen["latest"] = ahead(minutes=30)
    state.path.write_bytes(canonical_json(seen))
    assert host.verify().authentic


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}x",
        b'{"schema": "aotc.trust-state/0"}',
        b'{"latest": "2026-13-01T00:00:00Z"}',
        b"\0" * 99,
    ],
)
def test_a_damaged_state_is_not_replaced_by_an_empty_one(damage: bytes, host: Setting) -> None:
    host.write()
    assert host.verify().authentic
    path = user_state().path
    path.write_bytes(damage)
    assert refusal_code(host.verify) == "AOTC-G035"
    assert path.read_bytes() == damage


def test_a_build_before_the_year_1000_does_not_spoil_the_state(host: Setting) -> None:
    host.write()
    host.provenance(finished="0999-01-01T00:00:00Z")
    assert [host.codes(), host.codes()] == [[], []]
    assert user_state().read().artifacts["linear"].value == "0999-01-01T00:00:00Z"
    host.rule["min_version"] = "2020-01-01T00:00:00Z"
    host.policy["sequence"] = 2
    host.write()
    assert host.codes() == ["AOTC-G030"]


@pytest.mark.parametrize("version", ["\u00b2", "1" * 5000, "1.\u0663", "1.2.3.4.5", "1.4.0x"])
def test_a_version_that_is_not_like_a_release_is_not_one(version: str, host: Setting) -> None:
    host.rule["min_version"] = "0"
    host.write()
    host.provenance(version=version)
    assert host.codes() == ["AOTC-G030"]
    del host.rule["min_version"]
    host.policy["sequence"] = 2
    host.write()
    assert [host.codes(), host.codes()] == [[], []]
    assert user_state().read().artifacts["linear"].kind == "built"


def test_a_time_in_the_future_is_not_remembered(host: Setting) -> None:
    """Otherwise honest releases would be refused until then."""
    host.write()
    host.provenance(finished="9999-01-01T00:00:00Z")
    host.approve("ops", issued_at="9998-01-01T00:00:00Z", expires="9999-12-31T00:00:00Z")
    assert host.codes("prod") == []
    assert user_state().read().artifacts["linear"].value == ""
    host.provenance(finished=ago(days=9))
    assert host.codes("prod") == []
    host.approve("ops")
    assert host.codes("prod") == []
    assert user_state().read().artifacts["linear"].kind == "approved"


def test_an_approval_ahead_of_time_does_not_renew_another_one(host: Setting) -> None:
    host.require("approval", "ops", "security", threshold=2)
    host.write()
    host.approve("security", issued_at=ago(days=9))
    host.approve("ops", issued_at=ago(days=9))
    assert host.codes("prod") == []
    host.approve("security", issued_at="9998-01-01T00:00:00Z", expires="9999-12-31T00:00:00Z")
    host.approve("ops")
    assert host.codes("prod") == ["AOTC-G030"]


def test_an_artifacts_name_is_bounded(host: Setting, tmp_path: Path) -> None:
    host.rule["match"]["name"] = "*"
    host.write()
    for name in ("x" * 256, "", "a/b", "a\nb"):
        place = tmp_path / "named.aotc"
        shutil.rmtree(place, ignore_errors=True)
        build_artifact(place, host.keys["release"], change={"name": name})
        report = verify(place, trust=host.path)
        assert {refusal.code for refusal in report.refusals} == {"AOTC-G009"}
        assert not report.authentic
    assert user_state().read().artifacts == {}


def test_verifying_without_remembering_leaves_no_state(host: Setting) -> None:
    host.policy["sequence"] = 9
    host.write()
    assert verify(host.artifact, trust=resolve(host.path, remember=False)).authentic
    assert not user_state().path.exists()


def _negated(signature: str) -> str:
    from cryptography.hazmat.primitives.asymmetric.utils import (
        decode_dss_signature,
        encode_dss_signature,
    )

    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    first, second = decode_dss_signature(base64.b64decode(signature))
    return base64.b64encode(encode_dss_signature(first, order - second)).decode()


# A policy in other spellings of YAML.


@pytest.mark.parametrize("name", ["trust.policy", "trust.pub", "trust"])
@pytest.mark.parametrize(
    "dress",
    [
        lambda text: text,
        lambda text: text.replace("schema:", '"schema":', 1),
        lambda text: text.replace("schema:", " 'schema' :", 1).replace("\n", "\n "),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("schema:", '"sch\\u0065ma":', 1),
        lambda text: text.replace("schema: aotc", "schema: !!str aotc", 1),
        lambda text: text.replace("schema: aotc.trust/1", "schema:\n  aotc.trust/1", 1),
        lambda text: text.replace("schema: ", "? schema\n: ", 1),
        lambda text: text.replace("schema: aotc.trust/1", "{}", 1),
        lambda text: "\r".join(text.splitlines()),
        lambda text: text.encode("utf-8").decode("utf-8") + "\f",
    ],
)
def test_a_policy_is_never_read_as_a_list_of_its_keys(
    name: str, dress: Callable[[str], str], host: Setting
) -> None:
    """Otherwise a revoked key would be trusted like the others."""
    host.policy["keys"][0]["revoked"] = "lost"
    text = yaml.dump(host.policy, Dumper=_Blocks, sort_keys=False)
    assert "|\n    -----BEGIN PUBLIC KEY-----\n" in text
    path = host.folder / name
    path.write_bytes(dress(text).encode("utf-8"))
    try:
        codes = [found.code for found in verify(host.artifact, trust=path).refusals]
    except AotcError as error:
        codes = [error.code]
    assert len(codes) == 1
    assert codes[0] in ("AOTC-G013", "AOTC-G019", "AOTC-G028")
    # It is never read as a key, whatever its name is.
    assert refusal_code(lambda: verify(host.artifact, key=path)) == "AOTC-I023"


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as they are, so that a PEM block looks as in a file."""


_Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


# Certificates under a policy.


def test_a_certified_key_signs_what_its_authority_may(host: Setting) -> None:
    company, stranger = authority("company"), authority("stranger")
    host.policy["authorities"] = [{"id": "ca", "pem": company.pem, "usage": ["approval"]}]
    host.require("approval", "ca", "ops", threshold=2)
    host.write()
    host.keys = {
        **host.keys,
        "alice": leaf(company, subject="alice").signer(),
        "again": leaf(company, subject="alice").signer(),
        "bob": leaf(company, subject="bob").signer(),
        "eve": leaf(stranger, subject="alice").signer(),
    }
    host.approve("alice")
    assert host.codes("prod") == ["AOTC-G026"]
    # Another key of the same person, and the same name from another authority.
    host.approve("again")
    host.approve("eve")
    assert host.codes("prod") == ["AOTC-G026"]
    host.approve("bob")
    assert host.codes("prod") == []
    # What the authority may not sign.
    host.rule["require"] = [{"predicate": "oms", "signers": ["release"]}]
    host.require("provenance", "ci")
    host.write()
    host.provenance(signer="alice")
    assert host.codes("prod") == ["AOTC-G025", "AOTC-G027"]


def test_a_file_with_an_authority_has_nothing_but_its_certificate(
    host: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    """`openssl x509 -text` writes what it holds before it, and people write what they like."""
    company = authority("company")
    host.write()
    file = host.folder / "company.crt"
    words = ["trust", "add", str(host.path), "--id", "ca", "--authority", str(file)]
    file.write_text("Certificate:\n    Data:\n        Version: 3 (0x2)\n" + company.pem)
    assert main([*words, "--usage", "approval"]) == 2
    assert "has text besides the key" in capsys.readouterr().err
    file.write_text(company.pem)
    assert main([*words, "--usage", "approval"]) == 0
    assert read_policy(host.path).policy.authorities[0].pem == company.pem


def test_several_certificates_are_not_one_authority(host: Setting) -> None:
    company = authority("company")
    for pem in (company.pem * 2, company.pem + host.keys["ops"].public_pem, "x" + company.pem[3:]):
        host.policy["authorities"] = [{"id": "ca", "pem": pem, "usage": ["oms"]}]
        with pytest.raises(AotcError) as caught:
            read_policy(host.write())
        assert (caught.value.code, caught.value.found) == (
            "AOTC-G019",
            "is not one PEM certificate",
        )


def test_a_missing_signer_is_reported_before_what_does_not_count(host: Setting) -> None:
    """An approval for another channel, or by a key that no rule names, hides no missing signer."""
    host.require("approval", "ops", "security", threshold=2)
    host.write()
    host.approve("ops")
    host.approve("ops", channel="staging", name="approval-staging")
    host.approve("ci")
    refusals = host.verify("prod").refusals
    assert [refusal.code for refusal in refusals] == ["AOTC-G026"]
    assert "none by security" in refusals[0].found


def test_a_later_release_of_the_same_payload(host: Setting) -> None:
    """The later of two provenances by permitted signers counts."""
    host.require("provenance", "ci")
    host.write()
    host.provenance(version="1.0")
    assert host.codes("prod") == []
    host.provenance(version="1.1", name="provenance-2")
    assert host.codes("prod") == []
    decision = host.verify("prod").policy
    assert decision is not None and decision.release is not None
    assert decision.release.value == "1.1"
