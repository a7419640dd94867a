"""DSSE envelopes in sigstore bundles v0.3: writing, and strict parsing.

Sources: DSSE protocol v1.0.2 (pre-authentication encoding), sigstore bundle specification v0.3
(a bundle's envelope has exactly one signature).  A parsed bundle is not verified;
`bundles.verify_bundle` does that.
"""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING

from aotc.base.errors import AotcError, with_others
from aotc.base.records import field, record, replace
from aotc.spec.codec import Json, ParseError, Problem
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.trust_anchors import der_of_pem

if TYPE_CHECKING:
    from aotc.spec.trust_policy import Sealer, Signer


IN_TOTO = "application/vnd.in-toto+json"
BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_BUNDLE_BYTES = 32 << 20
# The payload is one value, however long; a keyless bundle with all its proofs has hundreds.
MAX_BUNDLE_VALUES = 10_000
MAX_CERTIFICATES = 8
# How many problems of an unverified object are reported.
_MAX_PROBLEMS = 20

# A bundle has exactly one of these (VerificationMaterial of the bundle specification).
_CLAIMS = ("publicKey", "certificate", "x509CertificateChain")


@record(kw_only=False)
class Bundle:
    """A parsed bundle, not verified.

    The signer is claimed by `hint`, the id of a key, or by `certificates` (DER, the signer's
    first); both may be empty.  `has_log_entries` says whether it holds entries of a transparency
    log, and `source` is the bundle as it was read.
    """

    payload: bytes
    signature: bytes
    hint: str
    certificates: tuple[bytes, ...] = ()
    has_log_entries: bool = False
    source: bytes = field(default=b"", repr=False)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding, which is signed: type and payload with their lengths."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(statement: Json, signer: Signer | Sealer) -> bytes:
    """A sigstore bundle (JSON) with a signed in-toto statement.

    With a key in a file, equal arguments give equal bytes; a signer command may use random nonces.
    """
    from aotc.spec.trust_policy import Sealer

    payload = canonical_json(statement)
    if isinstance(signer, Sealer):
        return signer.seal(payload)
    return canonical_json(
        {
            "mediaType": BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {**_verification_material(signer), "tlogEntries": []},
            "dsseEnvelope": {
                "payload": _base64(payload),
                "payloadType": IN_TOTO,
                "signatures": [{"keyid": "", "sig": _base64(signer.sign(pae(IN_TOTO, payload)))}],
            },
        }
    )


def parse(bundle: bytes) -> Bundle:
    """Read a bundle that names a key or holds certificates, without verifying it.

    Raises AOTC-G004 with every problem of the bundle.
    """
    try:
        parsed = _parse(strict_json(bundle, limit=MAX_BUNDLE_BYTES, values=MAX_BUNDLE_VALUES))
        return replace(parsed, source=bundle)
    except ParseError as error:
        raise malformed(error) from None


def malformed(error: ParseError) -> AotcError:
    """AOTC-G004 for the problems of a bundle or statement; `also` holds all but the first."""
    return with_others(
        AotcError("AOTC-G004", "the signature bundle is malformed", found=str(problem))
        for problem in error.problems
    )


def _verification_material(signer: Signer) -> dict[str, Json]:
    """The signer's claim: the id of a key, or its certificates with its own first."""
    if not signer.chain:
        return {"publicKey": {"hint": signer.key_id}}
    listed = [{"rawBytes": _base64(der_of_pem(block))} for block in signer.chain]
    return {"x509CertificateChain": {"certificates": listed}}


def _parse(data: Json) -> Bundle:
    top = _fields(data, "", ("mediaType", "verificationMaterial", "dsseEnvelope"))
    if top["mediaType"] != BUNDLE_MEDIA_TYPE:
        raise ParseError([Problem("mediaType", f"expected {BUNDLE_MEDIA_TYPE}")])
    hint, certificates, has_log_entries = _parse_material(top["verificationMaterial"])
    envelope = _fields(
        top["dsseEnvelope"], "dsseEnvelope", ("payload", "payloadType", "signatures")
    )
    if envelope["payloadType"] != IN_TOTO:
        raise ParseError([Problem("dsseEnvelope.payloadType", f"expected {IN_TOTO}")])
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise ParseError([Problem("dsseEnvelope.signatures", "expected exactly one")])
    where = "dsseEnvelope.signatures[0]"
    signature = _fields(signatures[0], where, ("sig",), optional=("keyid",))
    if signature.get("keyid") not in (None, "", hint):
        raise ParseError([Problem(f"{where}.keyid", "is not the key of the hint")])
    return Bundle(
        payload=_decode_base64(envelope["payload"], "dsseEnvelope.payload"),
        signature=_decode_base64(signature["sig"], f"{where}.sig"),
        hint=hint,
        certificates=certificates,
        has_log_entries=has_log_entries,
    )


def _parse_material(data: Json) -> tuple[str, tuple[bytes, ...], bool]:
    """The hint, the certificates, and whether there are entries of a transparency log."""
    path = "verificationMaterial"
    optional = (*_CLAIMS, "tlogEntries", "timestampVerificationData")
    material = _fields(data, path, (), optional=optional)
    claims = [name for name in _CLAIMS if name in material]
    if len(claims) != 1:
        raise ParseError([Problem(path, f"expected one of {', '.join(_CLAIMS)}, found {claims}")])
    claim, where = material[claims[0]], f"{path}.{claims[0]}"
    has_log_entries = _has_log_entries(material, path)
    if claims[0] == "publicKey":
        hint = _fields(claim, where, (), optional=("hint",)).get("hint") or ""
        if not isinstance(hint, str):
            raise ParseError([Problem(f"{where}.hint", "expected a string")])
        return hint, (), has_log_entries
    if claims[0] == "certificate":
        return "", (_certificate(claim, where),), has_log_entries
    listed = _fields(claim, where, ("certificates",))["certificates"]
    where += ".certificates"
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_CERTIFICATES:
        raise ParseError([Problem(where, f"expected 1 to {MAX_CERTIFICATES} certificates")])
    found = tuple(_certificate(item, f"{where}[{i}]") for i, item in enumerate(listed))
    return "", found, has_log_entries


def _has_log_entries(material: dict[str, Json], path: str) -> bool:
    """Whether there are entries of a log; of a key's bundle they are not looked at any further."""
    entries = material.get("tlogEntries", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ParseError([Problem(f"{path}.tlogEntries", "expected a list of mappings")])
    if not isinstance(material.get("timestampVerificationData", {}), dict):
        raise ParseError([Problem(f"{path}.timestampVerificationData", "expected a mapping")])
    return bool(entries)


def _certificate(data: Json, path: str) -> bytes:
    return _decode_base64(_fields(data, path, ("rawBytes",))["rawBytes"], f"{path}.rawBytes")


def _fields(
    data: Json, path: str, required: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, Json]:
    if not isinstance(data, dict):
        raise ParseError([Problem(path, "expected a mapping")])
    dot = f"{path}." if path else ""
    problems = [Problem(f"{dot}{name}", "missing") for name in required if name not in data]
    known = (*required, *optional)
    unknown = (name for name in data if name not in known)
    problems += [
        Problem(f"{dot}{name[:80]}", "unknown field") for name in islice(unknown, _MAX_PROBLEMS)
    ]
    if problems:
        raise ParseError(problems)
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode_base64(text: Json, path: str) -> bytes:
    """Decode base64 in its canonical spelling only, so that no bit of a bundle can vary."""
    if not isinstance(text, str):
        raise ParseError([Problem(path, "expected a string")])
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ParseError([Problem(path, "is not base64")]) from None
    if _base64(data) != text:
        raise ParseError([Problem(path, "is not canonical base64")])
    return data
