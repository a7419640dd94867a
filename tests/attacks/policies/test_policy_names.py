"""Which of the policies that its roots signed a host takes: the named one or its replacement."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from policy_setting import Setting
from refusals import refusal
from repository import ROOT

from aotc.cli.main import main
from aotc.trust.gate import verify
from aotc.trust.policy.authoring import sign_policy
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.policy.host_trust import resolve
from aotc.trust.policy.roots import bundle_path
from aotc.trust.policy.state import user_state


def write_strict(host: Setting, sequence: int) -> None:
    """Write the host's policy, under which the artifact lacks an approval."""
    host.policy.update(name="prod", sequence=sequence)
    host.rule["require"] = [{"predicate": "oms", "signers": ["release"]}]
    host.require("approval", "ops", "security", threshold=2)
    host.write("root-a")


def write_lenient(host: Setting, **more: object) -> None:
    """Write another policy of the same root, for trials: a signature is enough."""
    host.policy.update(name="trials", sequence=1, **more)
    host.rule["require"] = [{"predicate": "oms", "signers": ["release"]}]
    host.write("root-a")


def test_another_policy_by_the_same_roots_is_not_taken(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a", policy="prod")))
    write_strict(host, 9)
    assert host.codes("prod") == ["AOTC-G025"]
    write_lenient(host)
    refused = refusal(lambda: host.verify("prod"))
    assert (refused.code, refused.found) == ("AOTC-G042", "policy trials")
    # Also on a host that has seen nothing.
    user_state().path.unlink()
    assert refusal(lambda: host.verify("prod")).code == "AOTC-G042"
    assert refusal(lambda: resolve(host.path, remember=False)).code == "AOTC-G042"
    assert main(["trust", "check", str(host.path)]) == 1


def test_a_name_is_changed_by_a_policy_that_says_so(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a", policy="prod")))
    write_strict(host, 9)
    host.verify("prod")
    old = {path.name: path.read_bytes() for path in host.folder.glob("trust.yaml*")}
    # Its sequence continues: a new name does not start it again.
    write_lenient(host, replaces=["prod"])
    assert refusal(lambda: host.verify("prod")).code == "AOTC-G022"
    host.policy["sequence"] = 9
    host.write("root-a")
    assert refusal(lambda: host.verify("prod")).code == "AOTC-G022"
    host.policy["sequence"] = 10
    host.write("root-a")
    assert host.codes("prod") == []
    assert host.codes("prod") == []
    # The old name does not come back.
    for name, data in old.items():
        (host.folder / name).write_bytes(data)
    assert refusal(lambda: host.verify("prod")).code == "AOTC-G022"
    # The replaced name is remembered, even when the policy no longer states it.
    del host.policy["replaces"]
    host.policy["sequence"] = 11
    host.write("root-a")
    assert refusal(lambda: host.verify("prod")).code == "AOTC-G042"


def test_the_command_renames_a_policy_that_hosts_take_then(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = host.folder / "root.yaml"
    public = host.folder / "root.pub"
    public.write_text(host.keys["root-a"].public_pem)
    words = ["trust", "root", "-o", str(root), "--policy", "prod", "--key", str(public)]
    assert main([*words, "--threshold", "1"]) == 0
    stated = yaml.safe_load(root.read_text())
    assert (stated["schema"], stated["policy"]) == ("aotc.root/1", "prod")
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(root))
    host.policy["name"] = "prod"
    host.write("root-a")
    assert host.codes() == []
    for name in ("plant", "factory", "plant"):
        assert main(["trust", "add", str(host.path), "--name", name]) == 0
    found = read_policy(host.path).policy
    assert (found.name, found.replaces, found.sequence) == ("plant", ("prod", "factory"), 4)
    key = host.keys["root-a"]
    bundle_path(host.path, key.key_id).write_bytes(sign_policy(read_policy(host.path), key))
    assert host.codes() == []
    assert {name: seen.sequence for name, seen in user_state().read().policies.items()} == {
        "prod": 4, "plant": 4, "factory": 4,
    }  # fmt: skip


def test_the_administrator_names_another_policy(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a", policy="prod")))
    write_strict(host, 9)
    host.verify("prod")
    host.write_roots(1, "root-a", policy="trials")
    write_lenient(host)
    assert host.codes("prod") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": None}, "policy"),
        ({"schema": "aotc.root/2", "policy": "prod"}, "schema"),
        ({"policy": "a b"}, "policy"),
    ],
)
def test_roots_that_contradict_themselves(
    change: dict[str, str | None], said: str, host: Setting
) -> None:
    path = host.write_roots(1, "root-a")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    refused = refusal(lambda: read_roots(path))
    # Roots of a newer aotc are not reported as malformed, but refused as well.
    assert refused.code == ("AOTC-I046" if "schema" in change else "AOTC-G019")
    assert said in f"{refused.where} {refused.found}"


def test_roots_of_a_release_take_its_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat = ROOT / "manifests" / "compat" / "0.1.0"
    shutil.copytree(compat, tmp_path / "kept")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(tmp_path / "kept" / "root.yaml"))
    report = verify(
        tmp_path / "kept" / "digits.aotc",
        trust=tmp_path / "kept" / "trust.yaml",
        target=tmp_path / "kept" / "target.yaml",
        channel="prod",
    )
    assert report.authentic, report.refusals


# The subject of an approval.


@pytest.mark.parametrize("about", ["approval", "qualification"])
def test_an_attestation_that_names_another_artifact_counts_for_none(
    about: str, host: Setting
) -> None:
    """Its subject is this artifact, but its signer read the id of the other one."""
    host.rule["require"] = [{"predicate": "oms", "signers": ["release"]}]
    host.write()
    if about == "approval":
        host.require("approval", "ops")
        host.approve("ops", artifact={"name": "linear", "id": "0" * 64})  # type: ignore[arg-type]
    else:
        host.require("qualification", "ci")
        host.qualify(artifact={"name": "linear", "id": "0" * 64})
    host.write()
    refused = [refusal for refusal in host.verify("prod").refusals if refusal.code == "AOTC-G014"]
    assert [each.found for each in refused] == ["0" * 64]
    assert about in refused[0].what


# Revocations.


@pytest.mark.parametrize(
    "spell",
    [
        lambda key: key.upper(),
        lambda key: f"sha256:{key}",
        lambda key: f"SHA256:{key}",
        lambda key: ":".join(key[at : at + 2] for at in range(0, 64, 2)),
        lambda key: f" {key}",
        lambda key: key[:16],
    ],
)
def test_a_revoked_key_in_another_spelling_is_refused(
    spell: Callable[[str], str], host: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    host.write()
    text = spell(host.keys["release"].key_id)
    assert main(["trust", "add", str(host.path), "--revoke-key", text]) == 2
    assert "64 lowercase hexadecimal digits" in " ".join(capsys.readouterr().err.split())
    host.policy["revoked"] = {"keys": [text]}
    assert refusal(lambda: resolve(host.write())).code == "AOTC-G019"


def test_a_misspelt_revoked_name_is_answered_with_the_right_one(host: Setting) -> None:
    host.policy["revoked"] = {"keys": ["Release"]}
    assert "'release' is" in refusal(lambda: resolve(host.write())).found


def test_a_revocation_of_an_unknown_key_is_reported(
    host: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    import base64

    pem = host.keys["release"].public_pem
    der = base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    for digest, names in (
        ("0" * 64, ""),
        (hashlib.sha256(der).hexdigest(), "'release'"),
        (hashlib.sha256(pem.strip().encode()).hexdigest(), "'release'"),
    ):
        host.policy["revoked"] = {"keys": [digest]}
        (finding,) = (
            each for each in verify(host.artifact, trust=host.write()).findings
            if each.code == "AOTC-G044"
        )  # fmt: skip
        assert digest in finding.what
        assert names in finding.what
    host.policy["revoked"] = {"keys": [host.keys["stranger"].key_id]}
    host.write()
    for words in (["check"], ["add", "--expires", "2099-01-01"]):
        assert main(["trust", words[0], str(host.path), *words[1:]]) == 0
        assert "AOTC-G044" in capsys.readouterr().out
    # A key that an authority certifies is unknown before it signs.
    host.policy["revoked"] = {"keys": [host.keys["ops"].key_id]}
    codes = [each.code for each in verify(host.artifact, trust=host.write()).findings]
    assert "AOTC-G044" not in codes
