"""A real artifact under a policy, from the commands that make it to its answers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from command import Command

import aotc
from aotc.base.errors import AotcError
from aotc.trust.policy import roots


@dataclass(frozen=True)
class Host:
    """A separate host: home, state, store and working folder."""

    folder: Path

    @property
    def command(self) -> Command:
        """The command line on this host."""
        home = {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("config", "state")}
        return Command(self.folder, home)

    def environment(self) -> dict[str, str]:
        """The environment of commands."""
        return self.command.environment()

    def aotc(self, *words: str | Path, status: int = 0) -> dict[str, Any]:
        """Run a command with `--json`; its document, after checking the exit status."""
        done = self.command(*words)
        assert done.status == status, done
        return done.document

    def text(self, *words: str | Path) -> str:
        """The output of a command, whatever its exit status."""
        return self.command.plain(*words).stdout


@pytest.fixture
def host(tmp_path: Path, digits: BuiltArtifact, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(roots, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    result = Host(tmp_path)
    shutil.copytree(digits.path, tmp_path / "digits.aotc")
    shutil.copy(digits.public_key, tmp_path / "release.pub")
    for name in ("ops", "root-a", "root-b"):
        result.aotc("keygen", "-o", f"{name}.pem")
    return result


def codes(document: dict[str, Any]) -> list[str]:
    """Codes of a report, or of an error."""
    return [error["code"] for error in document.get("refusals", document.get("errors"))]


def test_from_a_first_policy_to_a_loaded_model(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    assert host.aotc("verify", "digits.aotc", "--trust", "trust.yaml")["policy"]["accepted"]
    host.aotc(
        *("trust", "add", "trust.yaml", "--signer", "ops=ops.pub", "--usage", "approval"),
        *("--rule", "default", "--match", "digits", "--match-channel", "prod"),
        *("--require", "oms:release", "--require", "approval:ops"),
    )
    refused = host.aotc("verify", "digits.aotc", "--trust", "trust.yaml", status=1)
    assert codes(refused) == ["AOTC-G023"]
    arguments = ("digits.aotc", "--trust", "trust.yaml", "--channel", "prod")
    assert codes(host.aotc("verify", *arguments, status=1)) == ["AOTC-G025"]
    assert codes(host.aotc("run", *arguments, status=1)) == ["AOTC-G025"]
    assert not (host.folder / "store").exists() or not list((host.folder / "store").glob("sha*"))

    host.aotc(
        *("attest", "digits.aotc", "--approve", "--channel", "prod", "--expires", "2099-01-01"),
        *("--key", "ops.pem", "--trust", "release.pub"),
    )
    report = host.aotc("verify", *arguments)
    assert (report["policy"]["rule"], report["policy"]["release"]["kind"]) == (
        "default",
        "approved",
    )
    assert host.aotc("run", *arguments)["runs"]
    shown = host.text("verify", *arguments, "--explain")
    assert "approval" in shown
    assert "1 of 1 distinct key" in shown
    for name, value in host.environment().items():
        monkeypatch.setenv(name, value)
    with aotc.load(host.folder / "digits.aotc", trust=host.folder / "trust.yaml") as model:
        assert model.ready
    with pytest.raises(AotcError) as caught:
        aotc.load(host.folder / "digits.aotc", trust=host.folder / "trust.yaml", channel="dev")
    assert caught.value.code == "AOTC-G023"


def test_a_release_that_was_verified_for_no_host_is_remembered(host: Host) -> None:
    """A policy that accepted it takes nothing older later, whoever runs it."""
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    words = ("verify", "digits.aotc", "--trust", "trust.yaml", "--target", "none")
    found = host.aotc(*words)
    assert (found["verdict"], found["policy"]["accepted"]) == ("authentic", True)
    checks = {check["name"]: check["found"] for check in host.aotc("doctor")["checks"]}
    assert "artifacts: 1" in checks["trust state"]


def test_a_release_that_was_exported_is_remembered(host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    host.aotc("export", "digits.aotc", "-o", "plain", "--trust", "trust.yaml")
    checks = {check["name"]: check["found"] for check in host.aotc("doctor")["checks"]}
    assert "artifacts: 1" in checks["trust state"]


def test_a_host_with_roots_takes_what_they_signed(host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    (host.folder / "config" / "aotc").mkdir(parents=True)
    root = host.folder / "config" / "aotc" / "root.yaml"
    host.aotc(
        *("trust", "root", "-o", root, "--name", "plant", "--threshold", "2"),
        *("--key", "root-a.pub", "--key", "root-b.pub"),
    )
    under = ("verify", "digits.aotc", "--trust", "trust.yaml")
    assert codes(host.aotc(*under, status=1)) == ["AOTC-G021"]
    first = host.aotc("trust", "sign", "trust.yaml", "--key", "root-a.pem")
    assert (first["counting"], first["threshold"]) == (first["signed_by"], 2)
    assert "1 of 2 so far" in host.text("trust", "sign", "trust.yaml", "--key", "root-a.pem")
    assert codes(host.aotc("trust", "check", "trust.yaml", status=1)) == ["AOTC-G021"]
    stray = host.aotc("trust", "sign", "trust.yaml", "--key", "ops.pem")
    assert stray["counting"] == first["counting"]
    assert [finding["code"] for finding in stray["findings"]] == ["AOTC-G021"]
    (refused,) = host.aotc("trust", "check", "trust.yaml", status=1)["errors"][1:]
    assert refused["code"] == "AOTC-G002"
    assert "aotc trust sign" in refused["fix"]
    (host.folder / stray["bundle"]).unlink()
    host.aotc("trust", "sign", "trust.yaml", "--key", "root-b.pem")
    assert host.aotc("trust", "check", "trust.yaml")["checked"]
    # Signing again gives the same bytes.
    bundle = host.folder / first["bundle"]
    before = bundle.read_bytes()
    host.aotc("trust", "sign", "trust.yaml", "--key", "root-a.pem")
    assert bundle.read_bytes() == before
    assert len(host.aotc(*under)["policy"]["roots"]) == 2
    assert not host.aotc(*under)["findings"]
    plain = host.aotc("verify", "digits.aotc", "--key", "release.pub", status=1)
    assert codes(plain) == ["AOTC-G021"]
    assert "--trust" in plain["errors"][0]["fix"]
    # A change needs every signature anew; then the earlier policy is not taken back.
    old = {path.name: path.read_bytes() for path in host.folder.glob("trust.yaml*")}
    artifact = host.aotc(*under)["artifact_id"]
    host.aotc("trust", "add", "trust.yaml", "--revoke-artifact", artifact)
    assert codes(host.aotc(*under, status=1))[0] == "AOTC-G021"
    stale = host.aotc("trust", "check", "trust.yaml", status=1)["errors"][1:]
    assert [name["code"] for name in stale] == ["AOTC-G003"] * 2
    assert all("sign again with 'aotc trust sign'" in name["fix"] for name in stale)
    host.aotc("trust", "sign", "trust.yaml", "--key", "root-a.pem")
    host.aotc("trust", "sign", "trust.yaml", "--key", "root-b.pem")
    assert codes(host.aotc(*under, status=1)) == ["AOTC-G029"]
    assert codes(host.aotc("run", *under[1:], status=1)) == ["AOTC-G029"]
    for name, data in old.items():
        (host.folder / name).write_bytes(data)
    assert codes(host.aotc(*under, status=1)) == ["AOTC-G022"]


def test_a_host_with_roots_and_no_policy_asks_for_one(host: Host) -> None:
    (host.folder / "config" / "aotc").mkdir(parents=True)
    root = host.folder / "config" / "aotc" / "root.yaml"
    words = ("trust", "root", "-o", root, "--policy", "plant", "--threshold", "1")
    host.aotc(*words, "--key", "root-a.pub")
    (refused,) = host.aotc("run", "digits.aotc", status=3)["errors"]
    assert refused["code"] == "AOTC-I001"
    assert str(root) in refused["what"]
    assert "--trust" in refused["fix"]
    # Existing files are only replaced if requested.
    assert codes(host.aotc(*words, "--key", "root-b.pub", status=3)) == ["AOTC-I017"]
    host.aotc(*words, "--key", "root-b.pub", "--force")
    policy = root.with_name("trust.yaml")
    init = ("trust", "init", "-o", policy, "--name", "plant", "--signer", "release=release.pub")
    host.aotc(*init)
    assert codes(host.aotc(*init, status=3)) == ["AOTC-I017"]
    host.aotc(*init, "--force")

    found = host.aotc("doctor", status=1)
    assert found["trust"] == {
        "roots": str(root),
        "policy": str(policy),
        "state": str(host.folder / "state" / "aotc" / "trust-state.json"),
    }
    status = {check["name"]: check["status"] for check in found["checks"]}
    assert (status["root keys"], status["trust policy"]) == ("ok", "failed")
    host.aotc("trust", "sign", policy, "--key", "root-b.pem")
    assert host.aotc("run", "digits.aotc")["runs"]
    found = {check["name"]: check["found"] for check in host.aotc("doctor")["checks"]}
    assert "sequence 1" in found["trust policy"]
    assert "artifacts: 1" in found["trust state"]


def test_what_is_revoked_is_shown_as_that(host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    ops = ("--id", "ops", "--key", "ops.pub", "--usage", "approval")
    host.aotc("trust", "add", "trust.yaml", *ops, "--valid-until", "2099-12-31")
    assert "valid_until: 2099-12-31T00:00:00Z\n" in (host.folder / "trust.yaml").read_text()
    revoke = ("--revoke-key", "ops=laptop lost", "--revoke-artifact", "d" * 64)
    answer = host.aotc("trust", "add", "trust.yaml", *revoke)
    assert answer["keys"] == ["release"]
    assert answer["revoked_keys"] == {"ops": "laptop lost"}
    assert answer["revoked_artifacts"] == ["d" * 64]
    assert host.aotc("trust", "check", "trust.yaml")["revoked_keys"] == {"ops": "laptop lost"}
    shown = host.text("trust", "check", "trust.yaml")
    assert "ops (laptop lost)" in shown
    assert "d" * 58 in shown


@pytest.mark.parametrize(
    ("words", "where", "what"),
    [
        (("--valid-until", "2026-12-31"), "--valid-until", "--signer or --authority"),
        (
            ("--signer", "ops.pub", "--usage", "approval"),
            "--signer",
            "--signer takes ID=PUB: a key has a name in the policy",
        ),
        (
            ("--authority", "ca.pem", "--usage", "approval"),
            "--authority",
            "--authority takes ID=CERT: a key has a name in the policy",
        ),
        (("--signer", "ops=ops.pub"), "--usage", "--usage"),
        (("--match", "x"), "--match", "--rule"),
        (("--require", "oms:release"), "--require", "--rule"),
        (("--expires", "2027-13-01"), "--expires", "date"),
        (("--revoke-key", "nosuch"), "--revoke-key", ""),
    ],
)
def test_an_argument_that_is_missing_is_named(
    words: tuple[str, ...], where: str, what: str, host: Host
) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    (refused,) = host.aotc("trust", "add", "trust.yaml", *words, status=2)["errors"]
    assert (refused["code"], refused["where"]) == ("AOTC-I027", where)
    assert what in refused["what"]


def test_an_unknown_usage_gets_the_list_once(host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    words = ("--id", "ops", "--key", "ops.pub", "--usage", "blah")
    (refused,) = host.aotc("trust", "add", "trust.yaml", *words, status=2)["errors"]
    assert (refused["where"], refused["what"].count("provenance")) == ("--usage", 1)


def test_a_rule_names_repositories_and_a_folder_comes_from_none(host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    rule = ("--rule", "default", "--require", "oms:release", "--repository", "ghcr.io/team/*")
    host.aotc("trust", "add", "trust.yaml", *rule, "--repository", "127.0.0.1:5000/x")
    assert "ghcr.io/team/*" in (host.folder / "trust.yaml").read_text()
    found = host.aotc("trust", "explain", "trust.yaml", "digits.aotc")["policy"]
    assert (found["repository"], found["repositories"]) == (
        "",
        ["ghcr.io/team/*", "127.0.0.1:5000/x"],
    )


def test_explaining_remembers_nothing_and_says_who_decides(host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    host.aotc("trust", "add", "trust.yaml", "--rule", "more", "--require", "sbom:release")
    found = host.aotc("trust", "explain", "trust.yaml", "digits.aotc", status=1)
    assert codes(found) == ["AOTC-G024"]
    assert [rule["matches"] for rule in found["policy"]["rules"]] == [True, True]
    shown = host.text("trust", "explain", "trust.yaml", "digits.aotc")
    assert "several rules" in shown
    assert shown.startswith("digits.aotc  REFUSED")
    assert not (host.folder / "state").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("trust", "add", "trust.yaml"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--id", "x", "--key", "ops.pub"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--repository", "ghcr.io/x"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--rule", "x"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--id", "x", "--key", "none.pub"), "AOTC-I001"),
        (("trust", "add", "trust.yaml", "--expires", "soon"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--revoke-key", "nosuch"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--revoke-key", "nosuch=lost"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--revoke-artifact", "53b15"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--rule", "x", "--require", "oms:no"), "AOTC-I027"),
        (("trust", "add", "trust.yaml", "--rule", "x", "--require", "foo"), "AOTC-I027"),
        (("trust", "init", "--name", "a b", "--signer", "a=ops.pub"), "AOTC-I027"),
        (("trust", "init", "--name", "x", "--signer", "release.pub"), "AOTC-I027"),
        (("trust", "init", "--name", "x", "--signer", "a=release.pub"), "AOTC-I017"),
        (
            ("trust", "root", "--policy", "x", "--key", "ops.pub", "--threshold", "2"),
            "AOTC-I027",
        ),
        (
            ("trust", "root", "--policy", "a b", "--key", "ops.pub", "--threshold", "1"),
            "AOTC-I027",
        ),
        (("trust", "check", "ops.pub"), "AOTC-G019"),
        (("verify", "digits.aotc", "--key", "release.pub", "--channel", "x"), "AOTC-I027"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], code: str, host: Host) -> None:
    host.aotc("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    before = (host.folder / "trust.yaml").read_bytes()
    status = 2 if code == "AOTC-I027" else 3
    assert codes(host.aotc(*words, status=status))[0] == code
    assert (host.folder / "trust.yaml").read_bytes() == before
