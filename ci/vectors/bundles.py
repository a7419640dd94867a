"""Bundles: good ones, malformed ones, and ones signed by another key."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from aotc.spec.attestation_kinds import KINDS
from aotc.trust import dsse
from vectors.collection import Vectors
from vectors.signing import (
    GOOD,
    MODEL,
    OMS,
    ORDER,
    SECOND,
    SIGNATURE,
    TRUSTED,
    UNKNOWN,
    R,
    S,
    bundle_of,
    first_signature,
    statement_of,
)
from vectors.values import Json, b64, changed, compact, json_text, put, sha256


def valid_bundles(out: Vectors) -> None:
    """Bundles that a verifier accepts."""

    def add(name: str, kind: str, why: str, data: bytes) -> None:
        out.add("valid", name, kind, "", why, data)

    add(
        "oms",
        "oms",
        "a signature over every file, as aotc writes it",
        dsse.sign(json.loads(OMS), TRUSTED),
    )
    add("oms-second-key", "oms", "any trusted key will do", json_text(bundle_of(OMS, SECOND)))
    add(
        "no-hint",
        "oms",
        "a bundle may name no key; each trusted one is tried",
        json_text(bundle_of(OMS, hint="")),
    )
    add(
        "keyid-is-hint",
        "oms",
        "the envelope may name the same key again",
        json_text(changed(GOOD, lambda b: put(first_signature(b), "keyid", to=TRUSTED.key_id))),
    )
    other_s = encode_dss_signature(R, ORDER - S)
    add(
        "other-s",
        "oms",
        "ECDSA: s and n - s are both right",
        json_text(bundle_of(OMS, signature=other_s)),
    )
    add(
        "spaces-in-statement",
        "oms",
        "what is signed are bytes, not a form of JSON",
        json_text(bundle_of(json_text(json.loads(OMS)))),
    )
    evidence = compact(statement_of(KINDS["evidence"].predicate_type, {"seconds": 1.5}))
    add(
        "evidence",
        "attestation",
        "a statement about an artifact's aotc.json",
        json_text(bundle_of(evidence)),
    )
    strange = compact(
        statement_of("https://example.com/unknown/v9", {"anything": [None, True, "ä"]})
    )
    add(
        "unknown-predicate",
        "attestation",
        "a type that the reader does not know is not a defect",
        json_text(bundle_of(strange)),
    )


def bad_text(out: Vectors) -> None:
    """Bytes that are not one unambiguous JSON document."""
    text = json_text(GOOD)
    head = text.rstrip()[:-1].rstrip()
    for name, why, data in (
        ("empty", "no bytes", b""),
        ("cut", "the end is missing", text[: len(text) // 2]),
        (
            "not-utf8",
            "a byte that UTF-8 does not have",
            text.replace(b"sigstore", b"sigst\xffre", 1),
        ),
        ("byte-order-mark", "bytes before the JSON", b"\xef\xbb\xbf" + text),
        ("two-documents", "bytes behind the JSON", text + text),
        (
            "duplicate-key",
            "two envelopes: readers may differ in which counts",
            head + b',\n "dsseEnvelope": {}\n}\n',
        ),
        ("nan", "NaN is not JSON", text.replace(b'"tlogEntries": []', b'"tlogEntries": [NaN]')),
        (
            "huge-integer",
            "beyond 2^53 - 1 readers differ",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": [9007199254740993]'),
        ),
        (
            "infinite",
            "a number that overflows",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": [1e999]'),
        ),
        (
            "deep",
            "nested deeper than 64",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": ' + b"[" * 70 + b"]" * 70),
        ),
        ("list", "a list, not a mapping", b"[]\n"),
        (
            "lone-surrogate",
            "half of a surrogate pair: readers differ in what they make of it",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": ["\\ud800"]'),
        ),
        (
            "lone-surrogate-as-key",
            "half of a surrogate pair, in the name of a field",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": [], "\\udfff": 1'),
        ),
    ):
        out.add("invalid", name, "oms", "AOTC-G004", why, data)


def bad_shape(out: Vectors) -> None:
    """JSON that is not a bundle of ours."""
    envelope = "dsseEnvelope"
    sig = b64(SIGNATURE)
    certificate = {"rawBytes": b64(b"certificate")}
    changes: tuple[tuple[str, str, Callable[[Json], object]], ...] = (
        (
            "media-type",
            "another version of bundles",
            lambda b: put(
                b, "mediaType", to="application/vnd.dev.sigstore.bundle+json;version=0.1"
            ),
        ),
        (
            "payload-type",
            "another type of payload",
            lambda b: put(b, envelope, "payloadType", to="application/json"),
        ),
        (
            "two-signatures",
            "a bundle's envelope has exactly one",
            lambda b: b[envelope]["signatures"].append(dict(first_signature(b))),
        ),
        ("no-signatures", "a list of none", lambda b: put(b, envelope, "signatures", to=[])),
        ("no-envelope", "nothing is signed", lambda b: b.pop(envelope)),
        (
            "no-claim",
            "no statement of who signed",
            lambda b: b["verificationMaterial"].pop("publicKey"),
        ),
        (
            "key-and-certificate",
            "two statements of who signed",
            lambda b: put(b, "verificationMaterial", "certificate", to=certificate),
        ),
        (
            "algorithm",
            "a bundle chooses no algorithm",
            lambda b: put(first_signature(b), "alg", to="none"),
        ),
        (
            "keyid-is-not-hint",
            "two names of keys in one bundle",
            lambda b: put(first_signature(b), "keyid", to=SECOND.key_id),
        ),
        (
            "hint-is-a-number",
            "a name that is not text",
            lambda b: put(b, "verificationMaterial", "publicKey", "hint", to=1),
        ),
        (
            "payload-is-a-mapping",
            "a payload that is not base64 text",
            lambda b: put(b, envelope, "payload", to=json.loads(OMS)),
        ),
        (
            "base64-spare-bits",
            "not canonical: bits that count for nothing are set",
            lambda b: put(b, envelope, "payload", to=_spare_bits(OMS)),
        ),
        (
            "base64-no-padding",
            "not canonical: the padding is missing",
            lambda b: put(
                b, envelope, "payload", to=b64(OMS + b" " * (1 + -len(OMS) % 3)).rstrip("=")
            ),
        ),
        (
            "base64-new-line",
            "not canonical: white space",
            lambda b: put(first_signature(b), "sig", to=sig + "\n"),
        ),
        (
            "base64-url",
            "another alphabet",
            lambda b: put(
                first_signature(b),
                "sig",
                to=base64.urlsafe_b64encode(b"\xfb\xff" + SIGNATURE).decode(),
            ),
        ),
    )
    for name, why, change in changes:
        out.add("invalid", name, "oms", "AOTC-G004", why, json_text(changed(GOOD, change)))


def _spare_bits(data: bytes) -> str:
    """Base64 of `data` and white space, with an unused bit set in its last digit."""
    data += b" " * ((1 - len(data)) % 3)
    text = b64(data)
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return text[:-3] + digits[digits.index(text[-3]) + 1] + "=="


def bad_signatures(out: Vectors) -> None:
    """Well-formed bundles that nobody, or another key, signed."""
    zero = encode_dss_signature(0, 0)
    long_form = b"\x30\x81" + SIGNATURE[1:]
    flipped = bytearray(SIGNATURE)
    flipped[-1] ^= 1
    raw = R.to_bytes(32, "big") + S.to_bytes(32, "big")
    json_type = TRUSTED.sign(dsse.pae("application/json", OMS))
    signatures = (
        ("r-s-zero", "r = s = 0", zero),
        ("r-s-order", "r = s = n, the order of the curve", encode_dss_signature(ORDER, ORDER)),
        ("s-plus-order", "s + n: out of range", encode_dss_signature(R, S + ORDER)),
        ("trailing-der", "a byte behind the DER", SIGNATURE + b"\0"),
        ("long-form-der", "a length in the long form: BER, not DER", long_form),
        ("raw", "r and s side by side, not DER", raw),
        ("flipped-bit", "the last bit of s", bytes(flipped)),
        ("no-pae", "the payload was signed without its type and lengths", TRUSTED.sign(OMS)),
        ("other-type-signed", "signed as another type of payload", json_type),
    )
    for name, why, signature in signatures:
        data = json_text(bundle_of(OMS, signature=signature))
        out.add("invalid", name, "oms", "AOTC-G003", why, data)
    other = OMS.replace(sha256(MODEL).encode(), sha256(b"b").encode())
    for name, code, why, bundle in (
        (
            "other-payload",
            "G003",
            "the signature of another payload",
            bundle_of(other, signature=SIGNATURE),
        ),
        (
            "hint-of-another",
            "G003",
            "names a trusted key; another trusted key signed",
            bundle_of(OMS, SECOND, hint=TRUSTED.key_id),
        ),
        (
            "hint-of-nobody",
            "G003",
            "names an unknown key; a trusted key signed",
            bundle_of(OMS, hint="0" * 64),
        ),
        (
            "stolen-hint",
            "G003",
            "names a trusted key; an unknown key signed",
            bundle_of(OMS, UNKNOWN, hint=TRUSTED.key_id),
        ),
        ("other-key", "G002", "by a key that nobody trusts", bundle_of(OMS, UNKNOWN)),
        (
            "other-key-no-hint",
            "G002",
            "by a key that nobody trusts, and names none",
            bundle_of(OMS, UNKNOWN, hint=""),
        ),
    ):
        out.add("invalid", name, "oms", f"AOTC-{code}", why, json_text(bundle))
