"""Certificates of every kind, valid and invalid, made for one test at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aotc.spec.trust_anchors import TrustedAuthority, key_id
from aotc.trust.key_loading import PrivateKey

NOW = datetime.now(UTC).replace(microsecond=0)
CODE_SIGNING = (ExtendedKeyUsageOID.CODE_SIGNING,)
TLS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a certificate should contain."""

    subject: str
    ca: bool | None = None
    path_length: int | None = None
    digital_signature: bool = True
    cert_sign: bool = False
    key_usage: bool = True
    extended: Sequence[x509.ObjectIdentifier] | None = CODE_SIGNING
    begins: datetime = NOW - timedelta(days=1)
    ends: datetime = NOW + timedelta(days=1)
    more: tuple[tuple[x509.ExtensionType, bool], ...] = ()
    digest: Any = field(default_factory=hashes.SHA256)


@dataclass(frozen=True)
class Issued:
    """A certificate with its secret key."""

    certificate: x509.Certificate
    secret: Any

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def authority(self) -> TrustedAuthority:
        return TrustedAuthority(pem=self.pem, origin="the CA")

    def signer(self, *above: Issued) -> PrivateKey:
        """A signer whose bundles contain this certificate and those above it."""
        pem = public_pem(self.secret)
        chain = tuple(item.pem for item in (self, *above))
        return PrivateKey(pem, key_id(pem), False, self.secret, chain)


def public_pem(secret: Any) -> str:
    """The public half of any key."""
    data = secret.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return str(data.decode())


def p256() -> ec.EllipticCurvePrivateKey:
    """A new key."""
    return ec.generate_private_key(ec.SECP256R1())


def authority(name: str, issuer: Issued | None = None, secret: Any = None, **wish: Any) -> Issued:
    """A CA; without an issuer it is self-signed."""
    stated = {
        "ca": True,
        "cert_sign": True,
        "digital_signature": False,
        "extended": None,
        "ends": NOW + timedelta(days=9),
        **wish,
    }
    return issue(Wish(subject=name, **stated), issuer, secret)


def leaf(issuer: Issued | None, secret: Any = None, **wish: Any) -> Issued:
    """A code-signing certificate, with the wished differences."""
    return issue(Wish(**{"subject": "release", "ca": False, **wish}), issuer, secret)


def issue(wish: Wish, issuer: Issued | None, secret: Any = None) -> Issued:
    """A certificate as wished, signed by `issuer` or self-signed."""
    secret = secret or p256()
    subject = _name(wish.subject)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(wish.begins)
        .not_valid_after(wish.ends)
    )
    if wish.ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(wish.ca, wish.path_length), True)
    if wish.key_usage:
        builder = builder.add_extension(_key_usage(wish), True)
    if wish.extended is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(wish.extended), False)
    for extension, critical in wish.more:
        builder = builder.add_extension(extension, critical)
    return Issued(builder.sign(issuer.secret if issuer else secret, wish.digest), secret)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(wish: Wish) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=wish.digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=wish.cert_sign,
        crl_sign=wish.cert_sign,
        encipher_only=False,
        decipher_only=False,
    )
