"""In-toto Statements v1 about an artifact: all attestations except the OMS signature.

Their subject is the digest of `aotc.json`, which lists every file with its name; the root digest of
OMS does not depend on names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from aotc.spec.codec import Json, ParseError, Problem
from aotc.spec.json import strict_json
from aotc.spec.trust_anchors import Anchor, TrustedKey
from aotc.trust import dsse
from aotc.trust.bundles import VerifiedBundle, claimed_signer, verify_bundle

if TYPE_CHECKING:
    from aotc.spec.trust_policy import Sealer, Signer


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class Attestation(NamedTuple):
    """A verified statement: its predicate, its subjects (sha256 by name), and the signer's key."""

    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    key: TrustedKey


class UnverifiedStatement(NamedTuple):
    """A statement that was not verified; `hint` is the id of the claimed key, or empty."""

    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    hint: str


def sign(
    predicate_type: str, predicate: Json, subjects: Mapping[str, str], key: Signer | Sealer
) -> bytes:
    """A bundle with a signed statement about `subjects` (sha256 in hex, by name).

    With a key in a file, equal arguments give equal bytes.
    """
    return dsse.sign(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": subjects[name]}} for name in sorted(subjects)
            ],
            "predicateType": predicate_type,
            "predicate": predicate,
        },
        key,
    )


def verify(
    bundle: bytes,
    anchors: Iterable[Anchor],
    *,
    predicate_type: str | None = None,
    at: datetime | None = None,
) -> Attestation:
    """Verify a bundle and read its statement.

    With `predicate_type`, a statement of another type is refused (AOTC-G004).  Raises what
    `verify_bundle` does, and AOTC-G004 if the statement is malformed.
    """
    attestation = read_verified(verify_bundle(dsse.parse(bundle), anchors, at=at))
    if predicate_type is not None and attestation.predicate_type != predicate_type:
        what = f"expected {predicate_type}, found {attestation.predicate_type}"
        raise dsse.malformed(ParseError([Problem("predicateType", what)]))
    return attestation


def read_verified(verified: VerifiedBundle) -> Attestation:
    """The statement of a verified bundle; raises AOTC-G004 if it is malformed."""
    return Attestation(*_read(verified.payload), verified.key)


def read_unverified(bundle: bytes) -> UnverifiedStatement:
    """The statement of a bundle, UNVERIFIED: only to be shown; raises AOTC-G004 and G037."""
    parsed = dsse.parse(bundle)
    return UnverifiedStatement(*_read(parsed.payload), claimed_signer(parsed))


def _read(payload: bytes) -> tuple[str, Json, dict[str, str]]:
    try:
        statement = strict_json(payload, limit=dsse.MAX_BUNDLE_BYTES)
        if not isinstance(statement, dict) or statement.get("_type") != STATEMENT_TYPE:
            raise ParseError([Problem("_type", f"expected {STATEMENT_TYPE}")])
        kind = statement.get("predicateType")
        if not isinstance(kind, str):
            raise ParseError([Problem("predicateType", "expected a string")])
        return kind, statement.get("predicate"), _subjects(statement.get("subject"))
    except ParseError as error:
        raise dsse.malformed(error) from None


def _subjects(listed: Json) -> dict[str, str]:
    if not isinstance(listed, list) or not listed:
        raise ParseError([Problem("subject", "expected a list of subjects")])
    found: dict[str, str] = {}
    for index, subject in enumerate(listed):
        name = subject.get("name") if isinstance(subject, dict) else None
        digest = subject.get("digest") if isinstance(subject, dict) else None
        sha256 = digest.get("sha256") if isinstance(digest, dict) else None
        if not isinstance(name, str) or not isinstance(sha256, str) or name in found:
            raise ParseError([Problem(f"subject[{index}]", "expected a unique name and a sha256")])
        found[name] = sha256
    return found
