"""The kinds of sigstore bundles: which of them are taken, and which are refused, by what code.

Three signers: a key, a key with a certificate chain, and an identity with an entry in a log.  Each
row starts from a bundle that is taken, and changes one thing of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from made_certificates import NOW, Issued, authority, leaf, p256, public_pem

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import Anchor, TrustedIdentity, TrustedKey, key_id
from aotc.trust import dsse, statements
from aotc.trust.key_loading import PrivateKey

TAKEN = ""
UNKNOWN, WRONG, MALFORMED = "AOTC-G002", "AOTC-G003", "AOTC-G004"
INVALID, FOREIGN = "AOTC-G037", "AOTC-G038"
STATEMENT: dict[str, Any] = {
    "_type": statements.STATEMENT_TYPE,
    "subject": [{"name": "aotc.json", "digest": {"sha256": "2" * 64}}],
    "predicateType": "https://example.com/p",
    "predicate": {"a": 1},
}
Bundle = dict[str, Any]
Edit = Callable[[Bundle], object]


def key_of(secret: Any) -> PrivateKey:
    pem = public_pem(secret)
    return PrivateKey(pem, key_id(pem), False, secret)


KEY, OTHER = key_of(p256()), key_of(p256())


def outcome(document: bytes, *anchors: Anchor) -> str:
    """The code with which a bundle is refused; empty if it is taken."""
    try:
        statements.verify(document, anchors)
    except AotcError as error:
        return error.code
    return TAKEN


def made(statement: Any = STATEMENT, signer: PrivateKey = KEY) -> Bundle:
    found: Bundle = json.loads(dsse.sign(statement, signer))
    return found


def written(bundle: Bundle) -> bytes:
    return json.dumps(bundle).encode()


# Ways to change a bundle.


def place_of(bundle: Bundle, path: str) -> tuple[Any, Any]:
    """What holds a field, and its name or index there; a path is such as `dsseEnvelope.payload`."""
    *above, last = (int(name) if name.isdigit() else name for name in path.split("."))
    place: Any = bundle
    for name in above:
        place = place[name]
    return place, last


def put(path: str, value: Any) -> Edit:
    """Set a field."""

    def edit(bundle: Bundle) -> None:
        place, name = place_of(bundle, path)
        place[name] = value

    return edit


def drop(path: str) -> Edit:
    """Remove a field."""

    def edit(bundle: Bundle) -> None:
        place, name = place_of(bundle, path)
        del place[name]

    return edit


def spelled(path: str, change: Callable[[Any], Any]) -> Edit:
    """Set a field to what is made of it."""

    def edit(bundle: Bundle) -> None:
        place, name = place_of(bundle, path)
        place[name] = change(place[name])

    return edit


def payload_of(bundle: Bundle) -> bytes:
    return base64.b64decode(bundle["dsseEnvelope"]["payload"])


def signed_as(message: Callable[[bytes], bytes]) -> Edit:
    """A signature of the trusted key, over another message made of the payload."""

    def edit(bundle: Bundle) -> None:
        data = KEY.sign(message(payload_of(bundle)))
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(data).decode()

    return edit


def signature(change: Callable[[bytes], bytes]) -> Edit:
    """Another signature, made of the good one."""

    def edit(bundle: Bundle) -> None:
        place = bundle["dsseEnvelope"]["signatures"][0]
        place["sig"] = base64.b64encode(change(base64.b64decode(place["sig"]))).decode()

    return edit


def raw(data: bytes) -> bytes:
    r, s = decode_dss_signature(data)
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def several(*signers: PrivateKey) -> Edit:
    def edit(bundle: Bundle) -> None:
        message = dsse.pae(dsse.IN_TOTO, payload_of(bundle))
        entries = [{"sig": base64.b64encode(one.sign(message)).decode()} for one in signers]
        bundle["dsseEnvelope"]["signatures"] = entries

    return edit


SIG, PAYLOAD = "dsseEnvelope.signatures.0.sig", "dsseEnvelope.payload"
MATERIAL, HINT = "verificationMaterial", "verificationMaterial.publicKey"
V03 = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAE = dsse.pae

KEY_BUNDLES: dict[str, tuple[Edit, str]] = {
    "as it is made": (lambda b: None, TAKEN),
    # The type of the bundle: v0.3 alone.
    "media type v0.1": (put("mediaType", V03.replace("0.3", "0.1")), MALFORMED),
    "media type v0.1, as it was": (
        put("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.1"),
        MALFORMED,
    ),
    "media type v0.2": (
        put("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.2"),
        MALFORMED,
    ),
    "media type v0.3, as it was": (
        put("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.3"),
        MALFORMED,
    ),
    "media type v0.4": (put("mediaType", V03.replace("0.3", "0.4")), MALFORMED),
    "media type of protobuf": (put("mediaType", V03.replace("json", "proto")), MALFORMED),
    "media type, capitals": (put("mediaType", V03.upper()), MALFORMED),
    "media type, a parameter": (put("mediaType", V03 + ";charset=utf-8"), MALFORMED),
    "media type, a blank": (put("mediaType", V03 + " "), MALFORMED),
    "media type empty": (put("mediaType", ""), MALFORMED),
    "media type null": (put("mediaType", None), MALFORMED),
    "media type a number": (put("mediaType", 3), MALFORMED),
    "no media type": (drop("mediaType"), MALFORMED),
    # Fields that are missing, or too many.
    "no material": (drop(MATERIAL), MALFORMED),
    "material null": (put(MATERIAL, None), MALFORMED),
    "material empty": (put(MATERIAL, {}), MALFORMED),
    "no content": (drop("dsseEnvelope"), MALFORMED),
    "content null": (put("dsseEnvelope", None), MALFORMED),
    "a signature of a message": (
        lambda b: (
            b.pop("dsseEnvelope"),
            b.update(
                messageSignature={
                    "messageDigest": {"algorithm": "SHA2_256", "digest": "AAAA"},
                    "signature": "AAAA",
                }
            ),
        ),
        MALFORMED,
    ),
    "both contents": (put("messageSignature", {"signature": "AAAA"}), MALFORMED),
    "an unknown field": (put("comment", "x"), MALFORMED),
    "an unknown field of the material": (put(f"{MATERIAL}.comment", "x"), MALFORMED),
    "an unknown field of the envelope": (put("dsseEnvelope.comment", "x"), MALFORMED),
    "an unknown field of a signature": (put("dsseEnvelope.signatures.0.cert", "x"), MALFORMED),
    "an unknown field of the key": (put(f"{HINT}.rawBytes", "AAAA"), MALFORMED),
    "names as in protobuf": (
        lambda b: b.update(media_type=b.pop("mediaType")),
        MALFORMED,
    ),
    # What names the signer.
    "two kinds of signers": (put(f"{MATERIAL}.certificate", {"rawBytes": "AAAA"}), MALFORMED),
    "a key and no chain": (put(f"{MATERIAL}.x509CertificateChain", None), MALFORMED),
    "no hint": (put(HINT, {}), TAKEN),
    "an empty hint": (put(f"{HINT}.hint", ""), TAKEN),
    "a hint of nobody": (put(f"{HINT}.hint", "0" * 64), WRONG),
    "a hint of another trusted key": (put(f"{HINT}.hint", OTHER.key_id), WRONG),
    "a hint in capitals": (spelled(f"{HINT}.hint", str.upper), WRONG),
    "a hint that is a number": (put(f"{HINT}.hint", 1), MALFORMED),
    "a key id that is the hint": (
        put("dsseEnvelope.signatures.0.keyid", KEY.key_id),
        TAKEN,
    ),
    "no key id": (drop("dsseEnvelope.signatures.0.keyid"), TAKEN),
    "another key id": (put("dsseEnvelope.signatures.0.keyid", OTHER.key_id), MALFORMED),
    "a key id that is a number": (put("dsseEnvelope.signatures.0.keyid", 0), MALFORMED),
    # The envelope: its type, its encoding, its signatures.
    "payload type of another kind": (put("dsseEnvelope.payloadType", "text/plain"), MALFORMED),
    "payload type in capitals": (
        put("dsseEnvelope.payloadType", dsse.IN_TOTO.upper()),
        MALFORMED,
    ),
    "payload type, a blank": (put("dsseEnvelope.payloadType", dsse.IN_TOTO + " "), MALFORMED),
    "payload type empty": (put("dsseEnvelope.payloadType", ""), MALFORMED),
    "no payload type": (drop("dsseEnvelope.payloadType"), MALFORMED),
    "signed as another type": (signed_as(lambda p: PAE("text/plain", p)), WRONG),
    "signed without a type": (signed_as(lambda p: PAE("", p)), WRONG),
    "signed without an encoding": (signed_as(lambda p: p), WRONG),
    "signed as base64": (
        signed_as(lambda p: PAE(dsse.IN_TOTO, base64.b64encode(p))),
        WRONG,
    ),
    "signed as DSSE v0": (
        signed_as(lambda p: PAE(dsse.IN_TOTO, p).replace(b"DSSEv1", b"DSSEv0")),
        WRONG,
    ),
    "signed with lengths in binary": (
        signed_as(
            lambda p: b"".join(
                len(part).to_bytes(8, "little") + part for part in (dsse.IN_TOTO.encode(), p)
            )
        ),
        WRONG,
    ),
    "signed with a length too many": (
        signed_as(lambda p: PAE(dsse.IN_TOTO, p).replace(b" %d " % len(p), b" 0%d " % len(p))),
        WRONG,
    ),
    "another payload": (
        spelled(PAYLOAD, lambda t: base64.b64encode(base64.b64decode(t) + b" ").decode()),
        WRONG,
    ),
    "an empty payload": (put(PAYLOAD, ""), WRONG),
    "no payload": (drop(PAYLOAD), MALFORMED),
    "no signatures": (put("dsseEnvelope.signatures", []), MALFORMED),
    "signatures null": (put("dsseEnvelope.signatures", None), MALFORMED),
    "signatures a mapping": (
        lambda b: b["dsseEnvelope"].update(signatures=b["dsseEnvelope"]["signatures"][0]),
        MALFORMED,
    ),
    "two signatures of one key": (several(KEY, KEY), MALFORMED),
    "signatures of two trusted keys": (several(KEY, OTHER), MALFORMED),
    "signature of another key": (several(OTHER), WRONG),
    # The signature itself: DER, and all of it.
    "signature empty": (put(SIG, ""), WRONG),
    "signature null": (put(SIG, None), MALFORMED),
    "signature as r and s": (signature(raw), WRONG),
    "signature cut": (signature(lambda d: d[:-1]), WRONG),
    "signature and more": (signature(lambda d: d + b"\0"), WRONG),
    "signature of zeros": (signature(lambda d: bytes.fromhex("3006020100020100")), WRONG),
    "signature in BER": (
        signature(lambda d: bytes([d[0], 0x81, d[1]]) + d[2:]),
        WRONG,
    ),
    # Base64: one spelling.
    "base64 for the web": (put(PAYLOAD, "-_-_"), MALFORMED),
    "base64 unpadded": (
        spelled(SIG, lambda t: t.rstrip("=") + ("" if "=" in t else "=")),
        MALFORMED,
    ),
    "base64 in lines": (spelled(PAYLOAD, lambda t: t[:64] + "\n" + t[64:]), MALFORMED),
    "base64 with a line end": (spelled(PAYLOAD, lambda t: t + "\n"), MALFORMED),
    "base64 with a blank": (spelled(SIG, lambda t: " " + t), MALFORMED),
    "base64 with other bits": (
        put(PAYLOAD, base64.b64encode(b"{}").decode().replace("e30=", "e31=")),
        MALFORMED,
    ),
    "base64 in hex": (spelled(SIG, lambda t: base64.b64decode(t).hex() + "!"), MALFORMED),
    # Entries of a log, and timestamps: of a key's bundle they are read by nobody.
    "no log entries": (drop(f"{MATERIAL}.tlogEntries"), TAKEN),
    "a log entry": (put(f"{MATERIAL}.tlogEntries", [{"logIndex": "1"}]), TAKEN),
    "log entries null": (put(f"{MATERIAL}.tlogEntries", None), MALFORMED),
    "log entries a text": (put(f"{MATERIAL}.tlogEntries", "x"), MALFORMED),
    "log entries a mapping": (put(f"{MATERIAL}.tlogEntries", {}), MALFORMED),
    "a log entry that is a number": (put(f"{MATERIAL}.tlogEntries", [1]), MALFORMED),
    "a timestamp": (
        put(f"{MATERIAL}.timestampVerificationData", {"rfc3161Timestamps": []}),
        TAKEN,
    ),
    "timestamps in a list": (put(f"{MATERIAL}.timestampVerificationData", []), MALFORMED),
}


@pytest.mark.parametrize("kind", KEY_BUNDLES)
def test_a_bundle_of_a_key(kind: str) -> None:
    edit, code = KEY_BUNDLES[kind]
    bundle = made()
    edit(bundle)
    assert outcome(written(bundle), KEY.trusted(), OTHER.trusted()) == code


def test_a_hint_of_a_key_that_is_not_trusted() -> None:
    bundle = made(signer=OTHER)
    assert outcome(written(bundle), KEY.trusted()) == UNKNOWN
    put(f"{HINT}.hint", KEY.key_id)(bundle)
    assert outcome(written(bundle), KEY.trusted()) == WRONG
    put(HINT, {})(bundle)
    assert outcome(written(bundle), KEY.trusted()) == UNKNOWN


# The document itself: one JSON value in UTF-8, every name once.

GOOD = written(made())
DOCUMENTS: dict[str, tuple[bytes, str]] = {
    "blanks around it": (b" \n\t" + GOOD + b"\r\n", TAKEN),
    "nothing": (b"", MALFORMED),
    "null": (b"null", MALFORMED),
    "a list of it": (b"[" + GOOD + b"]", MALFORMED),
    "a text": (b'"x"', MALFORMED),
    "two of them": (GOOD + GOOD, MALFORMED),
    "two lines of them": (GOOD + b"\n" + GOOD, MALFORMED),
    "a comma behind it": (GOOD + b",", MALFORMED),
    "rubbish behind it": (GOOD + b"x", MALFORMED),
    "a NUL behind it": (GOOD + b"\0", MALFORMED),
    "a comment": (GOOD + b"// x", MALFORMED),
    "cut": (GOOD[:-1], MALFORMED),
    "a mark of the order of bytes": (b"\xef\xbb\xbf" + GOOD, MALFORMED),
    "UTF-16": (GOOD.decode().encode("utf-16"), MALFORMED),
    "bytes that are not UTF-8": (GOOD.replace(b'"keyid": ""', b'"keyid": "\xff"'), MALFORMED),
    "a trailing comma": (GOOD[:-1] + b",}", MALFORMED),
    "names without quotes": (GOOD.replace(b'"mediaType"', b"mediaType"), MALFORMED),
    "single quotes": (GOOD.replace(b'"', b"'"), MALFORMED),
    "NaN": (GOOD.replace(b'"keyid": ""', b'"keyid": NaN'), MALFORMED),
}
for name in ("mediaType", "payload", "payloadType", "sig", "hint", "signatures", "publicKey"):
    at = GOOD.index(f'"{name}"'.encode())
    DOCUMENTS[f"{name} twice"] = (GOOD[:at] + f'"{name}": "x", '.encode() + GOOD[at:], MALFORMED)
    escaped = f'"\\u{ord(name[0]):04x}{name[1:]}"'.encode()
    DOCUMENTS[f"{name} twice, once escaped"] = (
        GOOD[:at] + escaped + b': "x", ' + GOOD[at:],
        MALFORMED,
    )


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document(kind: str) -> None:
    document, code = DOCUMENTS[kind]
    assert outcome(document, KEY.trusted()) == code


# What was signed well, and is no statement of these.

SUBJECT = STATEMENT["subject"][0]
STATEMENTS: dict[str, tuple[Any, str]] = {
    "of in-toto v1": (STATEMENT, TAKEN),
    "of in-toto v0.1": ({**STATEMENT, "_type": "https://in-toto.io/Statement/v0.1"}, MALFORMED),
    "without a type": ({**STATEMENT, "_type": None}, MALFORMED),
    "without a predicate type": ({**STATEMENT, "predicateType": None}, MALFORMED),
    "without a subject": ({**STATEMENT, "subject": []}, MALFORMED),
    "with a subject without a name": ({**STATEMENT, "subject": [{"digest": {}}]}, MALFORMED),
    "with a subject twice": ({**STATEMENT, "subject": [SUBJECT, SUBJECT]}, MALFORMED),
    "with a digest by sha512 alone": (
        {**STATEMENT, "subject": [{"name": "a", "digest": {"sha512": "0" * 128}}]},
        MALFORMED,
    ),
    "that is a list": ([STATEMENT], MALFORMED),
    "that is a text": ("x", MALFORMED),
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_statement(kind: str) -> None:
    statement, code = STATEMENTS[kind]
    assert outcome(written(made(statement)), KEY.trusted()) == code


# Certificates.


def der(issued: Issued) -> dict[str, str]:
    data = issued.certificate.public_bytes(serialization.Encoding.DER)
    return {"rawBytes": base64.b64encode(data).decode()}


ROOT = authority("root")
MIDDLE = authority("middle", ROOT)
LEAF = leaf(MIDDLE)
STRANGE = authority("root")
CHAIN = f"{MATERIAL}.x509CertificateChain"


def listed(*issued: Issued) -> Edit:
    return put(CHAIN, {"certificates": [der(one) for one in issued]})


def one_certificate(issued: Issued) -> Edit:
    return put(MATERIAL, {"certificate": der(issued)})


def certified_by(secret: Any, *issued: Issued) -> Edit:
    """A signature of another key, with certificates."""

    def edit(bundle: Bundle) -> None:
        message = dsse.pae(dsse.IN_TOTO, payload_of(bundle))
        data = key_of(secret).sign(message)
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(data).decode()
        listed(*issued)(bundle)

    return edit


EXPIRED = leaf(MIDDLE, begins=NOW - timedelta(days=9), ends=NOW - timedelta(days=1))
EARLY = leaf(MIDDLE, begins=NOW + timedelta(days=1))
DIRECT = leaf(ROOT)
BELOW_STRANGE = leaf(STRANGE)
OLD_MIDDLE = authority("old", ROOT, begins=NOW - timedelta(days=9), ends=NOW - timedelta(days=1))
BELOW_OLD = leaf(OLD_MIDDLE)

CERTIFIED: dict[str, tuple[Edit, str]] = {
    "as it is made": (lambda b: None, TAKEN),
    "with the root": (listed(LEAF, MIDDLE, ROOT), TAKEN),
    "in another order above": (listed(LEAF, ROOT, MIDDLE), TAKEN),
    "with one that is of no use": (listed(LEAF, MIDDLE, STRANGE), TAKEN),
    "without the one between": (listed(LEAF), FOREIGN),
    "the leaf last": (listed(MIDDLE, LEAF), INVALID),
    "the root alone": (listed(ROOT), INVALID),
    "of an authority of the same name": (
        certified_by(BELOW_STRANGE.secret, BELOW_STRANGE, STRANGE),
        FOREIGN,
    ),
    "of another key": (listed(leaf(MIDDLE), MIDDLE), WRONG),
    "expired": (certified_by(EXPIRED.secret, EXPIRED, MIDDLE), INVALID),
    "not yet valid": (certified_by(EARLY.secret, EARLY, MIDDLE), INVALID),
    "an expired one between": (certified_by(BELOW_OLD.secret, BELOW_OLD, OLD_MIDDLE), INVALID),
    "as a single certificate": (
        lambda b: (certified_by(DIRECT.secret)(b), one_certificate(DIRECT)(b)),
        TAKEN,
    ),
    "no certificates": (put(CHAIN, {"certificates": []}), MALFORMED),
    "certificates null": (put(CHAIN, {"certificates": None}), MALFORMED),
    "nine certificates": (listed(*[LEAF] * 9), MALFORMED),
    "a certificate with more fields": (
        put(CHAIN, {"certificates": [{**der(LEAF), "pem": "x"}]}),
        MALFORMED,
    ),
    "a certificate in PEM": (
        put(CHAIN, {"certificates": [{"rawBytes": base64.b64encode(LEAF.pem.encode()).decode()}]}),
        INVALID,
    ),
    "bytes behind a certificate": (
        put(
            CHAIN,
            {
                "certificates": [
                    {
                        "rawBytes": base64.b64encode(
                            base64.b64decode(der(LEAF)["rawBytes"]) + b"\0"
                        ).decode()
                    }
                ]
            },
        ),
        INVALID,
    ),
    # Without an identity that is trusted, an entry of a log changes nothing.
    "with a log entry": (put(f"{MATERIAL}.tlogEntries", [{"logIndex": "1"}]), TAKEN),
    "an expired one with a log entry": (
        lambda b: (
            certified_by(EXPIRED.secret, EXPIRED, MIDDLE)(b),
            put(f"{MATERIAL}.tlogEntries", [{"integratedTime": "1"}])(b),
        ),
        INVALID,
    ),
}


@pytest.mark.parametrize("kind", CERTIFIED)
def test_a_bundle_of_a_certified_key(kind: str) -> None:
    edit, code = CERTIFIED[kind]
    bundle = made(signer=LEAF.signer(MIDDLE))
    edit(bundle)
    assert outcome(written(bundle), ROOT.authority) == code


# Identities: the entry of a log says when it was signed.

WHO, ISSUER = "https://example.com/release.yml", "https://token.example.com"
ENTRY = f"{MATERIAL}.tlogEntries.0"
PROOF = f"{ENTRY}.inclusionProof"
KEYLESS: dict[str, tuple[Edit, str]] = {
    "as it is made": (lambda b: None, TAKEN),
    "no log entry": (put(f"{MATERIAL}.tlogEntries", []), UNKNOWN),
    "no log entries": (drop(f"{MATERIAL}.tlogEntries"), UNKNOWN),
    "an entry twice": (spelled(f"{MATERIAL}.tlogEntries", lambda entries: entries * 2), MALFORMED),
    "no promise": (drop(f"{ENTRY}.inclusionPromise"), MALFORMED),
    "a wrong promise": (
        put(f"{ENTRY}.inclusionPromise.signedEntryTimestamp", base64.b64encode(b"x" * 70).decode()),
        INVALID,
    ),
    "no proof": (drop(PROOF), MALFORMED),
    "no checkpoint": (drop(f"{PROOF}.checkpoint"), MALFORMED),
    "an empty checkpoint": (put(f"{PROOF}.checkpoint.envelope", ""), INVALID),
    "a checkpoint of another size": (
        spelled(f"{PROOF}.checkpoint.envelope", lambda t: t.replace("\n1\n", "\n2\n")),
        INVALID,
    ),
    "a checkpoint of another log": (
        spelled(f"{PROOF}.checkpoint.envelope", lambda t: t.replace("log.example", "log.other")),
        INVALID,
    ),
    "a checkpoint without signature": (
        spelled(f"{PROOF}.checkpoint.envelope", lambda t: t.partition("\n\n")[0] + "\n\n"),
        INVALID,
    ),
    "a hash too many": (put(f"{PROOF}.hashes", [base64.b64encode(b"0" * 32).decode()]), INVALID),
    "another size of the tree": (put(f"{PROOF}.treeSize", "2"), INVALID),
    "another index in the tree": (put(f"{PROOF}.logIndex", "1"), MALFORMED),
    "another index in the log": (put(f"{ENTRY}.logIndex", "1"), INVALID),
    "another root": (put(f"{PROOF}.rootHash", base64.b64encode(b"0" * 32).decode()), INVALID),
    "another log": (put(f"{ENTRY}.logId.keyId", base64.b64encode(b"0" * 32).decode()), INVALID),
    "another body": (
        put(f"{ENTRY}.canonicalizedBody", base64.b64encode(b"{}").decode()),
        INVALID,
    ),
    "another kind of entry": (put(f"{ENTRY}.kindVersion.kind", "hashedrekord"), INVALID),
    "a later time": (put(f"{ENTRY}.integratedTime", "4000000000"), INVALID),
    "no time": (put(f"{ENTRY}.integratedTime", "0"), INVALID),
    "a malformed entry": (put(ENTRY, {}), MALFORMED),
    "media type v0.2": (
        put("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.2"),
        MALFORMED,
    ),
    "a chain of certificates": (
        lambda b: b["verificationMaterial"].update(
            x509CertificateChain={"certificates": [b["verificationMaterial"].pop("certificate")]}
        ),
        MALFORMED,
    ),
    "timestamps that are none": (
        put(
            f"{MATERIAL}.timestampVerificationData",
            {"rfc3161Timestamps": [{"signedTimestamp": "AAAA"}]},
        ),
        INVALID,
    ),
    "another payload": (
        spelled(PAYLOAD, lambda t: base64.b64encode(base64.b64decode(t) + b" ").decode()),
        INVALID,
    ),
    "a signature of another key": (several(KEY), INVALID),
}


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, TrustedIdentity]:
    """A keyless bundle, and the identity that made it."""
    pytest.importorskip("sigstore")
    from keyless_world import World

    world = World.new()
    root = world.write_trusted_root(tmp_path_factory.mktemp("roots") / "trusted_root.json")
    trusted = TrustedIdentity(identity=WHO, issuer=ISSUER, origin="ci", trusted_root=str(root))
    return world.bundle(STATEMENT, WHO, ISSUER), trusted


@pytest.mark.parametrize("kind", KEYLESS)
def test_a_bundle_of_an_identity(kind: str, identity: tuple[Bundle, TrustedIdentity]) -> None:
    edit, code = KEYLESS[kind]
    bundle = json.loads(json.dumps(identity[0]))
    edit(bundle)
    assert outcome(written(bundle), identity[1]) == code


def test_an_identity_is_no_key(identity: tuple[Bundle, TrustedIdentity]) -> None:
    """Nor is a key an identity: each bundle counts for its own kind of anchor alone."""
    bundle, trusted = identity
    assert outcome(written(bundle), KEY.trusted()) == UNKNOWN
    assert outcome(written(bundle), ROOT.authority) == FOREIGN
    assert outcome(written(made()), trusted) == UNKNOWN


def test_a_trusted_key_needs_no_certificate() -> None:
    """It counts by itself, whatever its certificate says."""
    bundle = made(signer=LEAF.signer(MIDDLE))
    anchor = TrustedKey(pem=LEAF.signer().public_pem, origin="x")
    assert outcome(written(bundle), anchor) == TAKEN
