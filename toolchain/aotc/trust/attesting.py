"""Adding attestations, such as approvals, to an artifact of which nothing else changes.

An artifact must have a trusted signature, or nothing is signed.  One in a registry gets a referrer
of its manifest; of its payload only the documents are fetched, in which every file's digest is.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS
from aotc.base.records import replace
from aotc.registry.references import SCHEME
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, KINDS, Usage
from aotc.spec.attestations import (
    CHANNEL,
    Approval,
    ArtifactName,
    AttestReport,
    Predicate,
    Qualification,
    format_instant,
    parse_date,
)
from aotc.spec.codec import encode
from aotc.spec.trust_policy import Sealer, Signer
from aotc.spec.versions import artifact_name, artifact_path, stated_reference
from aotc.trust import oms, sealing, statements
from aotc.trust.container import MAX_BUNDLES, FolderContainer
from aotc.trust.gate import AuthenticArtifact, authenticate
from aotc.trust.opening import open_container
from aotc.trust.policy.host_trust import Trust, resolve
from aotc.trust.signers import findings_of, own_key, signed_by

_FIX_UNTRUSTED: Final = (
    "Give a file with the public key that signed the artifact, such as its builder's, with --trust."
)
# How many digits of a key's id a file name has.
_TAG_DIGITS: Final = 16


def sign(
    artifact: str | Path,
    signer: Signer | Sealer,
    *,
    trust: str | Path | None = None,
    force: bool = False,
) -> AttestReport:
    """Add another OMS signature over the payload of an artifact that a trusted key signed.

    `trust` is a file of public keys, or a trust policy, of which only the keys are used.  Without
    it this user's development key and the signer's own key, if it has one, are trusted.  The name
    of the file holds the id of the key or identity; `force` replaces a file of that name.

    Raises the gate's refusals (AOTC-G), AOTC-I001 (there is no such artifact), I017 (there is such
    a file), I018 and I026 (it cannot be written), and I036 (the key signed the payload already, or
    the artifact takes no further attestation).
    """
    place = attested_place(artifact)
    name = KINDS["oms"].file_stem(signer_tag(signer))
    check_can_add(place, name, force=force)
    found = authenticate_artifact(place, signer, trust)
    own = own_key(signer)
    if not force and own is not None and own.pem in {key.pem for key in found.keys}:
        raise AotcError(
            "AOTC-I036",
            "this key has already signed the payload",
            where=str(place),
            found=f"key {signer_tag(signer)}",
        )
    bundle = oms.sign(found.digests, signer)
    return _add(place, found.id, name, oms.PREDICATE_TYPE, bundle, signer, force=force)


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
    """Add an approval of an artifact for a channel, valid until `expires`.

    `expires` is a date or time in UTC, such as 2027-01-31 or 2027-01-31T12:00:00Z.  `trust` and
    `force` are as for `sign`.  Raises what `sign` does, and AOTC-I036 if channel, date or note is
    not valid.
    """
    place = attested_place(artifact)
    name = KINDS["approval"].file_stem(channel, signer_tag(signer))
    now = datetime.datetime.now(datetime.UTC)
    # Refuses wrong arguments before anything is read.
    unknown = ArtifactName(name="", id="0" * 64)
    make_approval(unknown, channel=channel, expires=expires, note=note, now=now)
    check_can_add(place, name, force=force)
    found = authenticate_artifact(place, signer, trust)
    predicate = make_approval(
        ArtifactName(name=found.manifest.name, id=found.id),
        channel=channel,
        expires=expires,
        note=note,
        now=now,
    )
    return add_statement(place, name, "approval", predicate, signer, force=force)


def attested_place(artifact: str | Path) -> Path:
    """Where an artifact is; of a reference the digest that its tag has now, for all that follows.

    Raises what opening a reference does.
    """
    place = artifact_path(artifact)
    if stated_reference(place) is None:
        return place
    with open_container(place) as container:
        return Path(container.place)


def check_can_add(artifact: Path, name: str, *, force: bool) -> None:
    """Raise AOTC-I001, I017 or I036 if an attestation `name` cannot be added to an artifact.

    In a registry `force` adds it beside the one of that name, as nothing there is replaced.
    """
    if stated_reference(artifact) is not None:
        with open_container(artifact) as container:
            found = container.listing(ATTESTATIONS).files
        wanted = f"{ATTESTATIONS}/{name}{BUNDLE_SUFFIX}"
        if wanted in found and not force:
            raise AotcError(
                "AOTC-I017",
                "the registry has this attestation already",
                where=f"{artifact_name(artifact)}: {wanted}",
                fix="Add another one beside it with --force.",
            )
        if len(found) >= MAX_BUNDLES:
            raise _too_many(artifact_name(artifact), len(found))
        return
    if not artifact.exists():
        raise AotcError("AOTC-I001", "there is no such artifact", where=str(artifact))
    path = sealing.attestation_path(artifact, name, force=force)
    if _count_beside(path) >= MAX_BUNDLES and not path.exists():
        raise _too_many(str(path.parent), _count_beside(path))


def _add(
    artifact: Path,
    artifact_id: str,
    name: str,
    predicate_type: str,
    bundle: bytes,
    signer: Signer | Sealer,
    *,
    force: bool,
) -> AttestReport:
    """Add an attestation, unless other processes have meanwhile added as many as readers take."""
    by = signed_by(bundle, signer)
    replaced = False
    if stated_reference(artifact) is not None:
        written = _push(artifact, name, bundle)
    else:
        path, replaced = sealing.add_attestation(artifact, name, bundle, force=force)
        if not replaced and _count_beside(path) > MAX_BUNDLES:
            path.unlink(missing_ok=True)
            raise _too_many(str(path.parent), MAX_BUNDLES + 1)
        written = str(path)
    return AttestReport(
        artifact=artifact_name(artifact),
        artifact_id=artifact_id,
        path=written,
        predicate_type=predicate_type,
        key_id=by.key_id,
        identity=by.identity,
        development_key=by.development_key,
        replaced=replaced,
        findings=findings_of(signer),
    )


def _count_beside(path: Path) -> int:
    """The number of attestations in the folder of one."""
    return sum(file.name.endswith(BUNDLE_SUFFIX) for file in path.parent.iterdir())


def _push(artifact: Path, name: str, bundle: bytes) -> str:
    """Add a referrer to what a registry holds; returns its own reference."""
    from aotc.trust.registry_container import RegistryContainer, attach

    with RegistryContainer(artifact_name(artifact)) as container:
        added = attach(container.repository, container.manifest, f"{name}{BUNDLE_SUFFIX}", bundle)
        return f"{SCHEME}{container.reference.repository_name}@{added.digest}"


def _too_many(where: str, count: int) -> AotcError:
    return AotcError(
        "AOTC-I036",
        "the artifact would have more attestations than readers accept",
        where=where,
        expected=f"at most {MAX_BUNDLES}",
        found=str(count),
    )


def signer_tag(signer: Signer | Sealer) -> str:
    """The 16 hexadecimal digits that identify a signer in the name of a file."""
    return signer.tag() if isinstance(signer, Sealer) else signer.key_id[:_TAG_DIGITS]


def attesting_trust(signer: Signer | Sealer, trust: str | Path | None) -> Trust:
    """The trust by which an artifact must be signed before it gets another attestation.

    It is the keys in `trust`, or by default this user's development key and the signer's own.  The
    rules of a policy are not applied, because they may require the attestation that is to be added.
    Raises what `resolve` does.
    """
    found = resolve(trust, remember=False)
    if found.policy is not None:
        return replace(found, rules=False)
    own = own_key(signer)
    if trust is not None or own is None or own.pem in {key.pem for key in found.keys}:
        return found
    return replace(found, keys=(*found.keys, own))


def authenticate_artifact(
    artifact: Path, signer: Signer | Sealer, trust: str | Path | None
) -> AuthenticArtifact:
    """The artifact after signature and digests were verified, in a registry those of documents.

    Raises the gate's refusals (AOTC-G), and AOTC-I001 if there is no such artifact.
    """
    far = stated_reference(artifact) is not None
    with open_container(artifact) if far else FolderContainer(artifact) as container:
        try:
            return authenticate(
                container,
                attesting_trust(signer, trust),
                files_to_read=(lambda _: ()) if far else None,
            )
        except AotcError as error:
            for refusal in (error, *error.also):
                if refusal.code == "AOTC-G002":
                    # The reason's own fix names --key, which here is the key that signs.
                    refusal.fix = _FIX_UNTRUSTED
            raise


def add_statement(
    artifact: Path,
    name: str,
    usage: Usage,
    predicate: Predicate,
    signer: Signer | Sealer,
    *,
    force: bool,
) -> AttestReport:
    """Sign a predicate about an artifact, and add it as the attestation `name`.

    `predicate` is the record of the kind of attestation `usage`.  Raises AOTC-I017, I018, I026 and
    I036.
    """
    predicate_type = KINDS[usage].predicate_type
    artifact_id = predicate.artifact.id
    subjects = {"aotc.json": artifact_id}
    bundle = statements.sign(predicate_type, encode(predicate), subjects, signer)
    return replace(
        _add(artifact, artifact_id, name, predicate_type, bundle, signer, force=force),
        approval=predicate if isinstance(predicate, Approval) else None,
        qualification=predicate if isinstance(predicate, Qualification) else None,
    )


def make_approval(
    artifact: ArtifactName, *, channel: str, expires: str, note: str = "", now: datetime.datetime
) -> Approval:
    """The approval of an artifact, issued `now`.

    `expires` is a time such as 2027-01-31T12:00:00Z, or a date, which is its start in UTC.  Raises
    AOTC-I036 if the channel is not a valid name, the expiry is not a valid time or not after `now`,
    or the note has more than 2000 characters.
    """
    if not re.fullmatch(CHANNEL, channel):
        raise AotcError(
            "AOTC-I036",
            "this is not a valid name of a channel",
            where="--channel",
            expected="lowercase letters, digits, '.', '-' and '_', at most 64",
            found=channel,
        )
    try:
        until = parse_date(expires)
    except ValueError:
        raise AotcError(
            "AOTC-I036",
            "this is not a valid date",
            where="--expires",
            expected="a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z",
            found=expires,
        ) from None
    if until <= now:
        raise AotcError(
            "AOTC-I036",
            "the approval would have expired already",
            where="--expires",
            expected=f"after {format_instant(now)}",
            found=expires,
        )
    if len(note) > 2000:
        raise AotcError(
            "AOTC-I036",
            "the note is too long",
            where="--note",
            expected="at most 2000 characters",
            found=str(len(note)),
        )
    return Approval(
        channel=channel,
        expires=format_instant(until),
        issued_at=format_instant(now),
        artifact=artifact,
        note=note,
    )
