"""No command signs with a certificate that nobody would accept, unless it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from made_certificates import NOW, Issued, authority, leaf
from made_models import linear, save
from policy_host import policy_host
from policy_setting import Setting

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.trust.signers import load_signer

LATER, EARLIER = NOW + timedelta(days=30), NOW - timedelta(days=30)
GOOD: dict[str, Any] = {"begins": EARLIER, "ends": LATER}
EXPIRED: dict[str, Any] = {"begins": EARLIER, "ends": NOW - timedelta(minutes=1)}
EARLY: dict[str, Any] = {"begins": NOW + timedelta(hours=1), "ends": LATER}


@dataclass
class Certified:
    """A folder with a signing key, its certificate and those above it."""

    folder: Path
    root: Issued
    above: Issued
    own: Issued

    @property
    def key(self) -> Path:
        return self.folder / "signing.pem"


@pytest.fixture
def certified(tmp_path: Path) -> Callable[..., Certified]:
    def make(own: dict[str, Any] = GOOD, above: dict[str, Any] = GOOD) -> Certified:
        root = authority("root", **GOOD)
        middle = authority("middle", root, **above)
        found = Certified(tmp_path, root, middle, leaf(middle, **own))
        secret = found.own.secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
        found.key.touch(0o600)
        found.key.write_text(secret + found.own.pem + middle.pem)
        return found

    return make


BAD = {
    "leaf expired": ({"own": EXPIRED}, "CN=release: it expired at"),
    "leaf not yet valid": ({"own": EARLY}, "CN=release: it is not valid before"),
    "authority expired": ({"above": EXPIRED}, "CN=middle: it expired at"),
    "authority not yet valid": ({"above": EARLY}, "CN=middle: it is not valid before"),
}


@pytest.mark.parametrize("how", BAD)
def test_such_a_key_is_not_loaded(how: str, certified: Callable[..., Certified]) -> None:
    wish, said = BAD[how]
    key = certified(**wish).key
    with pytest.raises(AotcError) as caught:
        load_signer(key)
    assert caught.value.code == "AOTC-G037"
    assert caught.value.found.startswith(said)
    assert "--allow-expired" in caught.value.fix
    (finding,) = load_signer(key, allow_expired=True).findings
    assert finding.code == "AOTC-G037"
    assert said in finding.what


def test_both_are_told(certified: Callable[..., Certified]) -> None:
    key = certified(own=EXPIRED, above=EXPIRED).key
    with pytest.raises(AotcError) as caught:
        load_signer(key)
    assert len(caught.value.also) == 1
    assert len(load_signer(key, allow_expired=True).findings) == 2


def test_a_valid_one_has_no_finding(certified: Callable[..., Certified]) -> None:
    assert load_signer(certified().key).findings == ()


def test_so_does_a_signer_file(certified: Callable[..., Certified]) -> None:
    made = certified(own=EXPIRED)
    path = made.folder / "signer.yaml"
    stated = {
        "schema": "aotc.signer/1",
        "command": ["false"],
        "public_key": made.own.signer().public_pem,
        "certificates": made.own.pem,
    }
    path.write_text(yaml.safe_dump(stated))
    with pytest.raises(AotcError) as caught:
        load_signer(path)
    assert caught.value.code == "AOTC-G037"
    assert [item.code for item in load_signer(path, allow_expired=True).findings] == ["AOTC-G037"]


# The commands.


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "host"
    folder.mkdir()
    with policy_host(folder, monkeypatch) as made:
        made.write()
        yield made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _build(host: Setting) -> list[str]:
    model = save(linear(), host.folder / "model.onnx")
    return ["build", str(model), "-o", str(host.folder / "new.aotc"), "--no-cache"]


def _sign(host: Setting) -> list[str]:
    return ["sign", str(host.artifact), "--trust", str(host.path)]


def _approve(host: Setting) -> list[str]:
    asked = ["--approve", "--channel", "prod", "--expires", "2099-01-31"]
    return ["attest", str(host.artifact), *asked, "--trust", str(host.path)]


def _qualify(host: Setting) -> list[str]:
    return ["attest", str(host.artifact), "--qualify", "--trust", str(host.path)]


def _policy(host: Setting) -> list[str]:
    return ["trust", "sign", str(host.path)]


@pytest.mark.parametrize("command", [_build, _sign, _approve, _qualify, _policy])
def test_a_command_that_signs_refuses_it_and_writes_nothing(
    command: Callable[[Setting], list[str]],
    host: Setting,
    certified: Callable[..., Certified],
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = command(host)
    key = str(certified(own=EXPIRED).key)
    before = contents(host.folder)
    assert main([*words, "--key", key]) == 1
    assert "AOTC-G037" in capsys.readouterr().err
    assert contents(host.folder) == before
    if command is _qualify:
        return  # A qualification needs a host that runs the artifact.
    assert main([*words, "--key", key, "--allow-expired", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "AOTC-G037" in [finding["code"] for finding in answer["findings"]]
    assert contents(host.folder) != before


def test_what_is_signed_all_the_same_is_refused_by_who_trusts_the_authority(
    host: Setting, certified: Callable[..., Certified], capsys: pytest.CaptureFixture[str]
) -> None:
    made = certified(own=EXPIRED)
    words = [*_sign(host), "--key", str(made.key), "--allow-expired"]
    assert main(words) == 0
    host.policy["authorities"] = [{"id": "ca", "pem": made.root.pem, "usage": ["oms"]}]
    host.policy["keys"] = []
    host.rule["require"] = [{"predicate": "oms", "signers": ["ca"]}]
    host.policy["sequence"] = 2
    host.write()
    assert "AOTC-G037" in host.codes()


def test_an_identity_has_no_certificate_that_could_be_too_old(
    host: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_sign(host), "--keyless", "--allow-expired"]) == 2
    assert "--allow-expired" in capsys.readouterr().err
