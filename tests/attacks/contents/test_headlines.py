"""The first line of `verify` says what kind of refusal it is: each kind has its own words."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from file_bytes import flip_bit
from made_certificates import NOW, authority, leaf
from policy_host import SIGNATURE, resign
from policy_setting import Setting, ago

from aotc.cli.main import main
from aotc.trust.dsse import parse

CHANGED = "changed since it was signed"
STRANGER = "signed by nobody you trust"
UNSIGNED = "not signed"
POLICY = "the trust policy does not accept it"


def payload(host: Setting, name: str = "*.onnx") -> Path:
    return next(iter((host.artifact / "payload").rglob(name)))


def signature(host: Setting) -> Path:
    return host.artifact / "attestations" / SIGNATURE


def _changed(host: Setting) -> None:
    flip_bit(payload(host))


def _longer(host: Setting) -> None:
    file = payload(host)
    file.write_bytes(file.read_bytes() + b"\0")


def _missing(host: Setting) -> None:
    payload(host).unlink()


def _further(host: Setting) -> None:
    (host.artifact / "payload" / "further.bin").write_bytes(b"x")


def _further_folder(host: Setting) -> None:
    (host.artifact / "payload" / "further").mkdir()


def _beside(host: Setting) -> None:
    (host.artifact / "README").write_text("x")


def _link(host: Setting) -> None:
    file = payload(host)
    copy = host.folder / "copy.onnx"
    shutil.move(file, copy)
    file.symlink_to(copy)


def _manifest(host: Setting) -> None:
    file = payload(host, "aotc.json")
    file.write_bytes(file.read_bytes().replace(b"linear", b"linean", 1))


def _no_manifest(host: Setting) -> None:
    payload(host, "aotc.json").unlink()


def _packaged_manifest(host: Setting) -> None:
    file = payload(host, "manifest.json")
    file.write_bytes(file.read_bytes() + b" ")


def _statement(host: Setting) -> None:
    """Another statement under the same signature."""
    document = json.loads(signature(host).read_bytes())
    other = parse(host.provenance().read_bytes()).payload
    host.provenance().unlink()
    document["dsseEnvelope"]["payload"] = base64.b64encode(other).decode()
    signature(host).write_text(json.dumps(document))


def _stranger(host: Setting) -> None:
    resign(host, host.keys["stranger"])


def _changed_by_stranger(host: Setting) -> None:
    _further(host)
    _changed(host)
    resign(host, host.keys["stranger"])


def _other_authority(host: Setting) -> None:
    host.policy["authorities"] = [{"id": "ca", "pem": authority("ours").pem, "usage": ["oms"]}]
    resign(host, leaf(authority("theirs")).signer())


def _expired_certificate(host: Setting) -> None:
    ours = authority("ours")
    host.policy["authorities"] = [{"id": "ca", "pem": ours.pem, "usage": ["oms"]}]
    ended = NOW - timedelta(days=1)
    resign(host, leaf(ours, begins=NOW - timedelta(days=2), ends=ended).signer())


def _revoked(host: Setting) -> None:
    host.policy["keys"][0]["revoked"] = "laptop lost"


def _key_expired(host: Setting) -> None:
    host.policy["keys"][0]["valid_until"] = ago(days=1)


def _may_not(host: Setting) -> None:
    resign(host, host.keys["ops"])


def _unsigned(host: Setting) -> None:
    for path in (host.artifact / "attestations").iterdir():
        path.unlink()


def _malformed(host: Setting) -> None:
    signature(host).write_text("{}")


def _artifact_revoked(host: Setting) -> None:
    host.policy["revoked"] = {"artifacts": [host.id]}


def _too_old(host: Setting) -> None:
    host.rule["min_version"] = "2.0"
    host.provenance(version="1.0")


def _unapproved(host: Setting) -> None:
    host.require("approval", "ops")


def _no_rule(host: Setting) -> None:
    host.rule["match"]["name"] = "other"


def _too_large(host: Setting) -> None:
    host.policy["limits"] = {"files": 1}


def _empty(host: Setting) -> None:
    shutil.rmtree(host.artifact)
    host.artifact.mkdir()


KINDS: list[tuple[Callable[[Setting], None], str, str]] = [
    (_changed, "AOTC-G005", CHANGED),
    (_longer, "AOTC-G005", CHANGED),
    (_missing, "AOTC-G006", CHANGED),
    (_further, "AOTC-G007", CHANGED),
    (_further_folder, "AOTC-G007", CHANGED),
    (_beside, "AOTC-G007", CHANGED),
    (_link, "AOTC-G008", CHANGED),
    (_manifest, "AOTC-G005", CHANGED),
    (_no_manifest, "AOTC-G006", CHANGED),
    (_packaged_manifest, "AOTC-G005", CHANGED),
    (_statement, "AOTC-G003", CHANGED),
    (_stranger, "AOTC-G002", STRANGER),
    (_changed_by_stranger, "AOTC-G002", STRANGER),
    (_other_authority, "AOTC-G038", STRANGER),
    (
        _expired_certificate,
        "AOTC-G037",
        "signed with a certificate that is not valid now, or not for this",
    ),
    (_revoked, "AOTC-G028", "signed with a key that is revoked, or not valid now"),
    (_key_expired, "AOTC-G028", "signed with a key that is revoked, or not valid now"),
    (_may_not, "AOTC-G027", "signed with a key that may not sign it"),
    (_unsigned, "AOTC-G001", UNSIGNED),
    (_malformed, "AOTC-G004", "its signature is malformed"),
    (_artifact_revoked, "AOTC-G029", "revoked by the trust policy"),
    (_too_old, "AOTC-G030", "older than the trust policy or this host takes"),
    (_unapproved, "AOTC-G025", POLICY),
    (_no_rule, "AOTC-G023", POLICY),
    (_too_large, "AOTC-G034", POLICY),
    (_empty, "AOTC-G015", "not an artifact"),
]


@pytest.mark.parametrize(("spoil", "code", "headline"), KINDS)
def test_the_headline_of_a_refusal(
    spoil: Callable[[Setting], None],
    code: str,
    headline: str,
    host: Setting,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    spoil(host)
    host.write()
    assert main(["verify", str(host.artifact), "--trust", str(host.path)]) == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].endswith(f"  REFUSED: {headline}")
    assert code in shown


@pytest.mark.parametrize("spoil", [_changed, _missing, _further, _manifest])
def test_with_a_key_alone(
    spoil: Callable[[Setting], None], host: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    public = host.folder / "release.pub"
    public.write_text(host.keys["release"].public_pem)
    stranger = host.folder / "stranger.pub"
    stranger.write_text(host.keys["stranger"].public_pem)
    spoil(host)
    for key, headline in ((public, CHANGED), (stranger, STRANGER)):
        assert main(["verify", str(host.artifact), "--key", str(key)]) == 1
        assert f"REFUSED: {headline}" in capsys.readouterr().out
