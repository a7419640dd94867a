"""Attestations other than the OMS signature: in-toto Statements v1 about an artifact.

Their subject is the digest of `aotc.json`, which lists every file with its name; the OMS root
alone would not bind names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from aotc.contract.codec.parsing import Json, ParseError, Problem
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.trust.anchors import Anchor, TrustedKey
from aotc.contract.trust.signer import Sealer, Signer
from aotc.signing import dsse
from aotc.signing.bundle_verification import VerifiedBundle, claimed_signer, verify_bundle

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class Attestation(NamedTuple):
    """What a trusted key said, of which subjects (sha256 by name)."""

    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    key: TrustedKey


class Claim(NamedTuple):
    """What a bundle says, with nobody vouching for it; `hint` names a key, or is empty."""

    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    hint: str


def attest(
    predicate_type: str, predicate: Json, subjects: Mapping[str, str], key: Signer | Sealer
) -> bytes:
    """A bundle that says `predicate` of `subjects` (sha256 hex by name).

    Equal arguments give equal bytes.
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


def read(
    bundle: bytes,
    anchors: Iterable[Anchor],
    *,
    predicate_type: str | None = None,
    at: datetime | None = None,
) -> Attestation:
    """Verify a bundle and read its statement; raises G002 to G004, G037, G038 as `verify_bundle`.

    With `predicate_type`, a statement of another type is refused (G004).
    """
    said = statement(verify_bundle(dsse.parse(bundle), anchors, at=at))
    if predicate_type is not None and said.predicate_type != predicate_type:
        what = f"expected {predicate_type}, found {said.predicate_type}"
        raise dsse.malformed(ParseError([Problem("predicateType", what)]))
    return said


def statement(verified: VerifiedBundle) -> Attestation:
    """The statement of a verified bundle; raises G004."""
    kind, predicate, subjects = _read(verified.payload)
    return Attestation(kind, predicate, subjects, verified.key)


def peek(bundle: bytes) -> Claim:
    """What a bundle claims, UNVERIFIED: to show, never to act on; raises G004, G037."""
    parsed = dsse.parse(bundle)
    kind, predicate, subjects = _read(parsed.payload)
    return Claim(kind, predicate, subjects, claimed_signer(parsed))


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
    for index, each in enumerate(listed):
        name = each.get("name") if isinstance(each, dict) else None
        digest = each.get("digest") if isinstance(each, dict) else None
        sha256 = digest.get("sha256") if isinstance(digest, dict) else None
        if not isinstance(name, str) or not isinstance(sha256, str) or name in found:
            raise ParseError(
                [Problem(f"subject[{index}]", "expected a name of its own and a sha256")]
            )
        found[name] = sha256
    return found
