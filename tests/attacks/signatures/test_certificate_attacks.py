"""Certificates that must not be trusted: each signs a bundle and is refused with its code."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from made_certificates import NOW, TLS, Issued, authority, leaf, p256, public_pem
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedAuthority, TrustedKey, key_id
from aotc.trust import dsse, oms

DIGESTS = {"aotc.json": "2" * 64, "model/model.onnx": "1" * 64}
UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")


@pytest.fixture(scope="module")
def root() -> Issued:
    return authority("root")


def refusals(bundle: bytes, *anchors: TrustedKey | TrustedAuthority, **more: Any) -> AotcError:
    with pytest.raises(AotcError) as caught:
        verify_payload(bundle, anchors, **more)
    return caught.value


def test_a_certified_key_is_trusted(root: Issued) -> None:
    signer = leaf(root)
    bundle = oms.sign(DIGESTS, signer.signer())
    signed = verify_payload(bundle, (root.authority,))
    assert dict(signed.digests) == DIGESTS
    assert signed.key == TrustedKey(
        pem=public_pem(signer.secret),
        origin="the CA",
        certificate="CN=release, issued by CN=root",
        subject="CN=release",
        issuers=(key_id(public_pem(root.secret)),),
    )
    # The same certificate in the other form of a bundle.
    document = json.loads(bundle)
    material = document["verificationMaterial"]
    material["certificate"] = material.pop("x509CertificateChain")["certificates"][0]
    assert verify_payload(json.dumps(document).encode(), (root.authority,)) == signed


def test_a_chain_of_authorities_is_trusted(root: Issued) -> None:
    upper = authority("upper", root, path_length=1)
    lower = authority("lower", upper, path_length=0, extended=[ExtendedKeyUsageOID.CODE_SIGNING])
    signer = leaf(lower)
    for above in ((lower, upper), (upper, lower), (lower, upper, root)):
        bundle = oms.sign(DIGESTS, signer.signer(*above))
        assert verify_payload(bundle, (root.authority,)).key.pem == public_pem(signer.secret)
    # With trust in a lower authority no root is needed; with trust in another one there is no path.
    assert verify_payload(oms.sign(DIGESTS, signer.signer()), (lower.authority,))
    assert refusals(oms.sign(DIGESTS, signer.signer()), root.authority).code == "AOTC-G038"
    other = authority("root")
    bundle = oms.sign(DIGESTS, signer.signer(lower, upper, root))
    assert refusals(bundle, other.authority).code == "AOTC-G038"


def test_the_good_one_of_two_paths_counts(root: Issued) -> None:
    secret = p256()
    expired = authority("lower", root, secret, ends=NOW - timedelta(hours=1))
    current = authority("lower", root, secret)
    signer = leaf(current)
    for above in ((expired, current), (current, expired)):
        assert verify_payload(oms.sign(DIGESTS, signer.signer(*above)), (root.authority,))


BAD_LEAVES: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"ends": NOW - timedelta(hours=1)}, "it expired at"),
    "not yet valid": ({"begins": NOW + timedelta(hours=1)}, "it is not valid before"),
    "TLS only": ({"extended": TLS}, "it is not for code signing (1.3.6.1.5.5.7.3.1"),
    "any usage": ({"extended": [ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]}, "not for code"),
    "no extended usage": ({"extended": None}, "(no extended key usage)"),
    "no key usage": ({"key_usage": False}, "does not have digitalSignature"),
    "wrong key usage": ({"digital_signature": False}, "does not have digitalSignature"),
    "CA as leaf": ({"ca": True}, "it is a CA"),
    "may sign certificates": ({"cert_sign": True}, "has keyCertSign"),
    "unknown critical extension": ({"more": ((UNKNOWN, True),)}, "unknown critical extension"),
    "P-521": ({"secret": ec.generate_private_key(ec.SECP521R1())}, "not on P-256 or P-384"),
    "secp256k1": ({"secret": ec.generate_private_key(ec.SECP256K1())}, "not on P-256"),
    "RSA": ({"secret": rsa.generate_private_key(65537, 2048)}, "not on P-256"),
}


@pytest.mark.parametrize("attack", BAD_LEAVES)
def test_a_bad_leaf_is_refused(attack: str, root: Issued) -> None:
    wish, found = BAD_LEAVES[attack]
    signer = leaf(root, **wish)
    good = oms.sign(DIGESTS, leaf(root).signer())
    document = json.loads(good)
    chain = document["verificationMaterial"]["x509CertificateChain"]["certificates"]
    chain[0]["rawBytes"] = base64.b64encode(signer.certificate.public_bytes(x509_der())).decode()
    if isinstance(signer.secret, ec.EllipticCurvePrivateKey):
        message = dsse.pae(dsse.IN_TOTO, base64.b64decode(document["dsseEnvelope"]["payload"]))
        signature = signer.secret.sign(message, ec.ECDSA(hashes.SHA256()))
        document["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    error = refusals(json.dumps(document).encode(), root.authority)
    assert error.code == "AOTC-G037"
    assert any(found in problem.found for problem in (error, *error.also)), error.found


def x509_der() -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


def test_an_unknown_extension_that_is_not_critical_is_ignored(root: Issued) -> None:
    bundle = oms.sign(DIGESTS, leaf(root, more=((UNKNOWN, False),)).signer())
    assert verify_payload(bundle, (root.authority,))


MAPPINGS = x509.UnrecognizedExtension(ObjectIdentifier("2.5.29.33"), b"\x30\x00")
CONSTRAINED = x509.NameConstraints([x509.DNSName("example.com")], None)
BAD_AUTHORITIES: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"ends": NOW - timedelta(hours=1)}, "CN=lower: it expired at"),
    "a leaf as CA": ({"ca": False}, "CN=lower: it is not a CA"),
    "no constraints": ({"ca": None}, "CN=lower: it is not a CA"),
    "may not sign": ({"cert_sign": False}, "CN=lower: its key usage does not have keyCertSign"),
    "no key usage": ({"key_usage": False}, "CN=lower: its key usage does not have keyCertSign"),
    "for TLS": ({"extended": TLS}, "may not issue certificates for code signing"),
    "unknown critical": ({"more": ((UNKNOWN, True),)}, "unknown critical extension"),
    "constraints": ({"more": ((CONSTRAINED, True),)}, "constraints that are not supported"),
    "quiet constraints": ({"more": ((CONSTRAINED, False),)}, "that are not supported"),
    "quiet mappings": ({"more": ((MAPPINGS, False),)}, "that are not supported"),
    "small RSA": ({"secret": rsa.generate_private_key(65537, 1024)}, "RSA key has 1024 bits"),
    "secp256k1": ({"secret": ec.generate_private_key(ec.SECP256K1())}, "neither RSA nor on"),
}


@pytest.mark.parametrize("attack", BAD_AUTHORITIES)
def test_a_bad_authority_on_the_way_is_refused(attack: str, root: Issued) -> None:
    wish, found = BAD_AUTHORITIES[attack]
    lower = authority("lower", root, **wish)
    error = refusals(oms.sign(DIGESTS, leaf(lower).signer(lower)), root.authority)
    assert error.code == "AOTC-G037"
    assert any(found in problem.found for problem in (error, *error.also)), error.found


def test_path_length_and_length_of_the_chain(root: Issued) -> None:
    upper = authority("upper", root, path_length=0)
    lower = authority("lower", upper)
    error = refusals(oms.sign(DIGESTS, leaf(lower).signer(lower, upper)), root.authority)
    assert (error.code, error.found) == (
        "AOTC-G037",
        "CN=release: CN=upper: it allows 0 CAs below it, and there are 1",
    )
    # One that renewed itself is not counted (RFC 5280, 6.1.4).
    renewed = authority("upper", upper, path_length=0)
    bundle = oms.sign(DIGESTS, leaf(renewed).signer(renewed, upper))
    assert verify_payload(bundle, (root.authority,))
    above: list[Issued] = []
    for number in range(8):
        above.insert(0, authority(f"ca {number}", above[0] if above else root))
    error = refusals(oms.sign(DIGESTS, leaf(above[0]).signer(*above)), root.authority)
    assert error.code == "AOTC-G004"


def test_an_expired_root_is_not_trusted() -> None:
    old = authority("old", ends=NOW - timedelta(hours=1))
    bundle = oms.sign(DIGESTS, leaf(old).signer())
    assert refusals(bundle, old.authority).code == "AOTC-G037"
    # At the time of an earlier trusted record it was valid.
    assert verify_payload(bundle, (old.authority,), at=NOW - timedelta(hours=2))


def test_a_weak_digest_is_refused(root: Issued) -> None:
    # SHA-3 is not weak, but no profile for code signing certificates has it; the library cannot
    # even make SHA-1.
    bundle = oms.sign(DIGESTS, leaf(root, digest=hashes.SHA224()).signer())
    error = refusals(bundle, root.authority)
    assert (error.code, error.found) == ("AOTC-G037", "CN=release: CN=root: it signed with sha224")


def test_the_authority_itself_is_not_a_signer(root: Issued) -> None:
    bundle = oms.sign(DIGESTS, root.signer())
    error = refusals(bundle, root.authority)
    assert error.code == "AOTC-G037"
    assert error.found.startswith("CN=root: it is a CA")


def test_an_authority_of_the_same_name_is_another_one(root: Issued) -> None:
    impostor = authority("root")
    bundle = oms.sign(DIGESTS, leaf(impostor).signer(impostor))
    error = refusals(bundle, root.authority)
    assert (error.code, error.expected) == ("AOTC-G038", "CN=root")


def test_a_self_signed_certificate_has_no_authority(root: Issued) -> None:
    assert refusals(oms.sign(DIGESTS, leaf(None).signer()), root.authority).code == "AOTC-G038"


def test_a_good_certificate_with_the_signature_of_another_key(root: Issued) -> None:
    document = json.loads(oms.sign(DIGESTS, leaf(root).signer()))
    other = json.loads(oms.sign(DIGESTS, leaf(root).signer()))
    document["dsseEnvelope"] = other["dsseEnvelope"]
    assert refusals(json.dumps(document).encode(), root.authority).code == "AOTC-G003"


def test_without_authorities_a_certificate_is_an_unknown_signer(root: Issued) -> None:
    signer = leaf(root)
    bundle = oms.sign(DIGESTS, signer.signer())
    error = refusals(bundle)
    assert (error.code, error.found) == ("AOTC-G002", "CN=release, issued by CN=root")
    stranger = TrustedKey(pem=public_pem(p256()), origin="x")
    assert refusals(bundle, stranger).code == "AOTC-G002"
    # For a key that is trusted itself, the certificate only names the key.
    trusted = TrustedKey(pem=public_pem(signer.secret), origin="x")
    assert verify_payload(bundle, (trusted,)).key == trusted


def test_a_name_cannot_write_on_the_terminal(root: Issued) -> None:
    signer = leaf(root, subject="release\x1b[2J\n" + "x" * 50)
    shown = refusals(oms.sign(DIGESTS, signer.signer())).found
    assert shown.isprintable()
    assert "release\\x1b[2J\\n" in shown


def test_a_certificate_without_a_subject_is_named_by_its_mail_address(root: Issued) -> None:
    san = x509.SubjectAlternativeName([x509.RFC822Name("release@example.com")])
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
        .public_key((secret := p256()).public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(san, True)
        .sign(root.secret, hashes.SHA256())
    )
    found = refusals(oms.sign(DIGESTS, Issued(made, secret).signer())).found
    assert found == "release@example.com, issued by CN=root"


@pytest.mark.parametrize(
    "edit",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\x00",
        lambda raw: b"",
        lambda raw: b"\x30\x03\x02\x01\x01",
        lambda raw: raw.replace(b"\x0c\x04root", b"\x03\x04root"),
    ],
    ids=["truncated", "trailing", "empty", "another structure", "a name that is a bit string"],
)
def test_bytes_that_are_not_a_certificate(edit: Callable[[bytes], bytes], root: Issued) -> None:
    document = json.loads(oms.sign(DIGESTS, leaf(root).signer()))
    chain = document["verificationMaterial"]["x509CertificateChain"]["certificates"]
    raw = edit(base64.b64decode(chain[0]["rawBytes"]))
    chain[0]["rawBytes"] = base64.b64encode(raw).decode()
    for anchors in ((), (root.authority,)):
        assert refusals(json.dumps(document).encode(), *anchors).code == "AOTC-G037"


def test_every_byte_of_a_certificate_counts(root: Issued) -> None:
    document = json.loads(oms.sign(DIGESTS, leaf(root).signer()))
    chain = document["verificationMaterial"]["x509CertificateChain"]["certificates"]
    raw = base64.b64decode(chain[0]["rawBytes"])
    for place in range(len(raw)):
        flipped = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        chain[0]["rawBytes"] = base64.b64encode(flipped).decode()
        error = refusals(json.dumps(document).encode(), root.authority)
        assert error.code in ("AOTC-G037", "AOTC-G038"), place


def test_bits_declared_unused_change_a_certificate(root: Issued) -> None:
    """If the last bit of the signature is zero, leaving it out would give the same number."""
    for _ in range(64):
        document = json.loads(oms.sign(DIGESTS, leaf(root).signer()))
        chain = document["verificationMaterial"]["x509CertificateChain"]["certificates"]
        raw = bytearray(base64.b64decode(chain[0]["rawBytes"]))
        if raw[-1] % 2 == 0:
            break
    place = len(raw) - 1 - len(x509.load_der_x509_certificate(bytes(raw)).signature)
    assert raw[place] == 0
    raw[place] = 1
    chain[0]["rawBytes"] = base64.b64encode(raw).decode()
    assert refusals(json.dumps(document).encode(), root.authority).code == "AOTC-G037"


@pytest.mark.parametrize("spoil", ["leaf", "cut", "other letters", "empty"])
def test_what_is_not_the_certificate_of_a_ca_is_no_authority(spoil: str, root: Issued) -> None:
    pem = {
        "leaf": leaf(root).pem,
        "cut": root.pem.replace("-----END CERTIFICATE-----", ""),
        "other letters": root.pem.replace("M", "A"),
        "empty": "",
    }[spoil]
    trusted = TrustedAuthority(pem=pem, origin="x")
    error = refusals(oms.sign(DIGESTS, leaf(root).signer()), root.authority, trusted)
    assert (error.code, error.where) == ("AOTC-G013", "x")
