"""Further attestations of an artifact that is there: what is said is signed, nothing else changes.

Nothing is signed for an artifact that nobody trusted vouches for.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aotc.attesting.approval import approval
from aotc.contract.artifact_names import artifact_path
from aotc.contract.attestation_kinds import BUNDLE_SUFFIX, KINDS, Usage
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.finding import Finding
from aotc.contract.trust.anchors import TrustedKey
from aotc.contract.trust.attestations import (
    Approval,
    ArtifactName,
    AttestReport,
    Predicate,
    Qualification,
)
from aotc.contract.trust.signer import Sealer, Signer
from aotc.errors import AotcError
from aotc.records import replace
from aotc.signing import dsse, oms, sealing
from aotc.signing import statements as attest
from aotc.signing.bundle_verification import claimed_signer
from aotc.verification.container.base import MAX_BUNDLES
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.gate import AuthenticArtifact, authenticate
from aotc.verification.policy.host_trust import Trust, resolve

_VOUCHING: Final = (
    "Give a file with the public key that vouches for the artifact, such as its builder's, "
    "with --trust."
)
# Digits of a key's id in a file name.
_DIGITS: Final = 16


def sign(
    artifact: str | Path,
    signer: Signer | Sealer,
    *,
    trust: str | Path | None = None,
    force: bool = False,
) -> AttestReport:
    """Add a further OMS signature over the payload that a trusted key signed.

    `trust` is a file of public keys or a trust policy, whose keys count and no more of it; without
    it this user's development key and the signer's own, where it keeps one, are trusted.  The file
    is named after the key or identity; `force` replaces one of that name.
    Raises the gate's refusals (AOTC-G), I001, I017, I018, I026 and I036.
    """
    place = artifact_path(artifact)
    name = KINDS["oms"].file_stem(tag(signer))
    check_place(place, name, force=force)
    found = vouched_for(place, signer, trust)
    own = own_key(signer)
    if not force and own is not None and own.pem in {key.pem for key in found.keys}:
        raise AotcError(
            "AOTC-I036",
            "this key has signed the payload already",
            where=str(place),
            found=f"key {tag(signer)}",
        )
    bundle = oms.sign(found.digests, signer)
    path, replaced = _added(place, name, bundle, force=force)
    return AttestReport(
        artifact=str(place),
        artifact_id=found.id,
        path=str(path),
        predicate_type=oms.PREDICATE_TYPE,
        key_id=claimed_signer(dsse.parse(bundle)),
        identity=_identity(bundle, signer),
        development_key=own is not None and own.development,
        replaced=replaced,
        findings=_findings(signer),
    )


def approve(
    artifact: str | Path,
    signer: Signer | Sealer,
    *,
    channel: str,
    expires: str,
    note: str = "",
    trust: str | Path | None = None,
    force: bool = False,
) -> AttestReport:
    """Approve an artifact for a channel, until `expires` (a date or moment in UTC).

    `trust` and `force` as for `sign`.
    Raises the gate's refusals (AOTC-G), I001, I017, I018, I026 and I036.
    """
    place = artifact_path(artifact)
    name = KINDS["approval"].file_stem(channel, tag(signer))
    now = datetime.datetime.now(datetime.UTC)
    # What is refused for its words is refused before anything is read.
    nobody = ArtifactName(name="", id="0" * 64)
    approval(nobody, channel=channel, expires=expires, note=note, now=now)
    check_place(place, name, force=force)
    found = vouched_for(place, signer, trust)
    said = approval(
        ArtifactName(name=found.manifest.name, id=found.id),
        channel=channel,
        expires=expires,
        note=note,
        now=now,
    )
    return add_statement(place, name, "approval", said, signer, force=force)


def check_place(artifact: Path, name: str, *, force: bool) -> None:
    """Raise I001, I017 or I036 where the attestation `name` cannot be added to an artifact."""
    if not artifact.exists():
        raise AotcError("AOTC-I001", "there is no such artifact", where=str(artifact))
    path = sealing.refuse_existing(artifact, name, force=force)
    if _held(path) >= MAX_BUNDLES and not path.exists():
        raise _too_many(path)


def _added(artifact: Path, name: str, bundle: bytes, *, force: bool) -> tuple[Path, bool]:
    """Add an attestation, unless other processes added the last that readers take meanwhile."""
    path, replaced = sealing.add(artifact, name, bundle, force=force)
    if not replaced and _held(path) > MAX_BUNDLES:
        path.unlink(missing_ok=True)
        raise _too_many(path)
    return path, replaced


def _held(path: Path) -> int:
    """How many attestations there are beside one."""
    return sum(each.name.endswith(BUNDLE_SUFFIX) for each in path.parent.iterdir())


def _too_many(path: Path) -> AotcError:
    return AotcError(
        "AOTC-I036",
        "the artifact would hold more attestations than any reader takes",
        where=str(path.parent),
        expected=f"at most {MAX_BUNDLES}",
        found=str(_held(path)),
    )


def tag(signer: Signer | Sealer) -> str:
    """The digits in a file's name that tell a signer from others."""
    return signer.tag() if isinstance(signer, Sealer) else signer.key_id[:_DIGITS]


def own_key(signer: Signer | Sealer) -> TrustedKey | None:
    """The key that a signer keeps; None where it keeps none."""
    if isinstance(signer, Sealer):
        return None
    return TrustedKey(pem=signer.public_pem, origin="signer", development=signer.development)


def trusted(signer: Signer | Sealer, trust: str | Path | None) -> Trust:
    """Who may vouch for the payload of what is to be attested, by a signature alone.

    These are the keys in `trust`, or the default and the signer's own.  Of a policy, whoever may
    sign payloads now: what else it demands may be just what is to be attested.
    Raises what `verification.policy.host_trust.resolve` does.
    """
    found = resolve(trust, remember=False)
    if found.policy is not None:
        return replace(found, rules=False)
    own = own_key(signer)
    if trust is not None or own is None or own.pem in {key.pem for key in found.keys}:
        return found
    return replace(found, keys=(*found.keys, own))


def vouched_for(
    artifact: Path, signer: Signer | Sealer, trust: str | Path | None
) -> AuthenticArtifact:
    """The artifact, every byte of it checked; raises the gate's refusals (AOTC-G) and I001."""
    with FolderContainer(artifact) as container:
        try:
            return authenticate(container, trusted(signer, trust))
        except AotcError as error:
            for each in (error, *error.also):
                if each.code == "AOTC-G002":
                    # Here --key is the key that signs.
                    each.fix = _VOUCHING
            raise


def add_statement(
    artifact: Path,
    name: str,
    usage: Usage,
    said: Predicate,
    signer: Signer | Sealer,
    *,
    force: bool,
) -> AttestReport:
    """Sign what is said about an artifact, and put it beside its other attestations as `name`.

    `said` is the record of that kind of attestation.
    Raises I017, I018, I026 and I036.
    """
    predicate_type = KINDS[usage].predicate_type
    predicate: Json = encode(said)
    subjects: Mapping[str, str] = {"aotc.json": said.artifact.id}
    bundle = attest.attest(predicate_type, predicate, subjects, signer)
    path, replaced = _added(artifact, name, bundle, force=force)
    own = own_key(signer)
    return AttestReport(
        artifact=str(artifact),
        artifact_id=said.artifact.id,
        path=str(path),
        predicate_type=predicate_type,
        key_id=claimed_signer(dsse.parse(bundle)),
        identity=_identity(bundle, signer),
        development_key=own is not None and own.development,
        replaced=replaced,
        approval=said if isinstance(said, Approval) else None,
        qualification=said if isinstance(said, Qualification) else None,
        findings=_findings(signer),
    )


def _findings(signer: Signer | Sealer) -> tuple[Finding, ...]:
    return () if isinstance(signer, Sealer) else signer.findings


def _identity(bundle: bytes, signer: Signer | Sealer) -> str:
    """Who signed without a kept key, and which issuer says so; empty for a key."""
    if not isinstance(signer, Sealer):
        return ""
    from aotc.signing.keys.certificates import leaf_name

    return f"{leaf_name(dsse.parse(bundle).certificates)} by {signer.issuer()}"
