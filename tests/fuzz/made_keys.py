"""Keys and certificates that anyone can reproduce: nothing outside the tests trusts them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aotc.spec.trust_anchors import TrustedAuthority, key_id
from aotc.trust.key_loading import PrivateKey
from aotc.trust.p256 import public_pem

# The order of P-256 (SEC 2, secp256r1).
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BEGIN, NOW, END = (datetime(year, 1, 1, tzinfo=UTC) for year in (2026, 2027, 2126))


def secret(text: str) -> ec.EllipticCurvePrivateKey:
    """The key whose scalar is the sha256 of a text."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % (ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


@cache
def signer(text: str) -> PrivateKey:
    """A key that signs."""
    pem = public_pem(secret(text).public_key())
    return PrivateKey(pem, key_id(pem), False, secret(text))


TRUSTED = signer("aotc fuzzing: the trusted key, public to all")


def certificate(
    subject: str,
    issuer: str,
    *,
    ca: bool = False,
    path_length: int | None = None,
    more: x509.ExtensionType | None = None,
) -> bytes:
    """A certificate (DER) for the key made from `subject`, issued by the one made from `issuer`."""
    extended = () if ca else ((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),)
    usage = x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(secret(subject).public_key())
        .serial_number(int.from_bytes(hashlib.sha256(subject.encode()).digest()[:8], "big"))
        .not_valid_before(BEGIN)
        .not_valid_after(END)
        .add_extension(x509.BasicConstraints(ca, path_length), True)
        .add_extension(usage, True)
    )
    for extension, critical in (*extended, *(((more, False),) if more else ())):
        builder = builder.add_extension(extension, critical)
    made = builder.sign(secret(issuer), hashes.SHA256(), ecdsa_deterministic=True)
    return made.public_bytes(serialization.Encoding.DER)


def pem_of(der: bytes) -> str:
    """A certificate as PEM."""
    made = x509.load_der_x509_certificate(der)
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


ROOT = certificate("root", "root", ca=True)
MIDDLE = certificate("middle", "root", ca=True, path_length=0)
LEAF = certificate("leaf", "root")
LOWER_LEAF = certificate(
    "lower leaf", "middle", more=x509.SubjectAlternativeName([x509.RFC822Name("a@example.com")])
)
AUTHORITY = TrustedAuthority(pem=pem_of(ROOT), origin="the CA")
