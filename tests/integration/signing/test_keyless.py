"""Keyless signatures, verified by the sigstore library without a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

pytest.importorskip("sigstore")

from keyless_world import World

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import Anchor, TrustedIdentity, key_id
from aotc.trust import dsse, statements
from aotc.trust.bundles import claimed_signer

WHO = "https://example.com/release/.github/workflows/release.yml@refs/tags/v1"
ISSUER = "https://token.example.com"
STATEMENT = {
    "_type": statements.STATEMENT_TYPE,
    "subject": [{"name": "aotc.json", "digest": {"sha256": "2" * 64}}],
    "predicateType": "https://example.com/p",
    "predicate": {"a": 1},
}


@pytest.fixture(scope="module")
def world() -> World:
    return World.new()


@pytest.fixture
def trusted(world: World, tmp_path: Path) -> TrustedIdentity:
    root = world.write_trusted_root(tmp_path / "trusted_root.json")
    return TrustedIdentity(identity=WHO, issuer=ISSUER, origin="ci", trusted_root=str(root))


@pytest.fixture(scope="module")
def bundle(world: World) -> dict[str, Any]:
    return world.bundle(STATEMENT, WHO, ISSUER)


def read(bundle: dict[str, Any], *anchors: Anchor) -> statements.Attestation:
    return statements.verify(json.dumps(bundle).encode(), anchors)


def refusal_of(bundle: dict[str, Any], *anchors: Anchor) -> AotcError:
    return refusal(read, bundle, *anchors)


def test_a_trusted_identity_vouches(bundle: dict[str, Any], trusted: TrustedIdentity) -> None:
    attestation = read(bundle, trusted)
    assert attestation.predicate == {"a": 1}
    assert (attestation.key.origin, attestation.key.certificate) == ("ci", f"{WHO} by {ISSUER}")
    # The certificate expired long ago: what counts is the time in the log.
    parsed = dsse.parse(json.dumps(bundle).encode())
    assert key_id(attestation.key.pem) == claimed_signer(parsed)


@pytest.mark.parametrize(
    ("who", "issuer"),
    [
        (WHO, "https://other.example.com"),
        ("https://example.com/other", ISSUER),
        (WHO + "x", ISSUER),
    ],
)
def test_another_identity_does_not(
    who: str, issuer: str, world: World, trusted: TrustedIdentity
) -> None:
    error = refusal_of(world.bundle(STATEMENT, who, issuer), trusted)
    assert (error.code, error.expected) == ("AOTC-G002", f"{WHO} by {ISSUER}")


def test_another_instance_of_sigstore_does_not(trusted: TrustedIdentity) -> None:
    impostor = World.new()
    assert refusal_of(impostor.bundle(STATEMENT, WHO, ISSUER), trusted).code == "AOTC-G037"


def test_without_a_trusted_identity_it_is_an_unknown_signer(bundle: dict[str, Any]) -> None:
    assert refusal_of(bundle).code == "AOTC-G002"


EDITS: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "payload": lambda b, other: b["dsseEnvelope"].update(payload=other["dsseEnvelope"]["payload"]),
    "signature": lambda b, other: b["dsseEnvelope"].update(
        signatures=other["dsseEnvelope"]["signatures"]
    ),
    "certificate": lambda b, other: b["verificationMaterial"].update(
        certificate=other["verificationMaterial"]["certificate"]
    ),
    "log entry": lambda b, other: b["verificationMaterial"].update(
        tlogEntries=other["verificationMaterial"]["tlogEntries"]
    ),
    "time": lambda b, other: b["verificationMaterial"]["tlogEntries"][0].update(
        integratedTime=str(int(b["verificationMaterial"]["tlogEntries"][0]["integratedTime"]) + 1)
    ),
    "proof": lambda b, other: b["verificationMaterial"]["tlogEntries"][0]["inclusionProof"].update(
        rootHash="A" * 43 + "="
    ),
}


@pytest.mark.parametrize("part", EDITS)
def test_parts_of_another_bundle_do_not_fit(
    part: str, bundle: dict[str, Any], world: World, trusted: TrustedIdentity
) -> None:
    forged = json.loads(json.dumps(bundle))
    EDITS[part](forged, world.bundle({**STATEMENT, "predicate": {"a": 2}}, WHO, ISSUER))
    assert refusal_of(forged, trusted).code == "AOTC-G037"


@pytest.mark.parametrize(
    "edit",
    [
        lambda entry: entry.pop("inclusionProof"),
        lambda entry: entry["inclusionProof"].pop("checkpoint"),
        lambda entry: entry.pop("inclusionPromise"),
        lambda entry: entry.update(logIndex="x"),
    ],
)
def test_a_malformed_log_entry_is_refused(
    edit: Callable[[dict[str, Any]], object], bundle: dict[str, Any], trusted: TrustedIdentity
) -> None:
    forged = json.loads(json.dumps(bundle))
    edit(forged["verificationMaterial"]["tlogEntries"][0])
    assert refusal_of(forged, trusted).code == "AOTC-G004"


def test_roots_that_cannot_be_read(bundle: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "root.json"
    for content in (None, "", "{}", "[1]"):
        if content is not None:
            path.write_text(content)
        broken = TrustedIdentity(identity=WHO, issuer=ISSUER, origin="ci", trusted_root=str(path))
        assert refusal_of(bundle, broken).code == "AOTC-G013"


def test_the_public_instance_vouches_not_for_ours(
    bundle: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    public = TrustedIdentity(identity=WHO, issuer=ISSUER, origin="ci")
    assert refusal_of(bundle, public).code == "AOTC-G037"
