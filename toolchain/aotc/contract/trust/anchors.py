"""Whom to trust: public keys, and certificate authorities that vouch for keys."""

from __future__ import annotations

import base64
import hashlib
import re

from aotc.records import record

PEM = re.compile(
    r"-----BEGIN PUBLIC KEY-----\s+[A-Za-z0-9+/=\s]+?-----END PUBLIC KEY-----", re.ASCII
)
CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s+[A-Za-z0-9+/=\s]+?-----END CERTIFICATE-----", re.ASCII
)


@record
class TrustedKey:
    """A P-256 public key (SPKI, PEM) and where it came from.

    Of a key that a certificate vouched for, `origin` is that of the authority, `certificate`
    names subject and issuer, `subject` the subject alone, and `issuers` are the ids of the keys of
    all CAs on the path.
    """

    pem: str
    origin: str
    development: bool = False
    certificate: str = ""
    subject: str = ""
    issuers: tuple[str, ...] = ()


@record
class TrustedAuthority:
    """A CA certificate (PEM) whose certificates for signing code are accepted, and its origin."""

    pem: str
    origin: str


@record
class TrustedIdentity:
    """Who may sign without a kept key (sigstore keyless), and which OIDC issuer must say so.

    `trusted_root` is the path of a sigstore trusted root, or its JSON text; empty: the public
    instance's.
    """

    identity: str
    issuer: str
    origin: str
    trusted_root: str = ""


# What may vouch for a bundle.
Anchor = TrustedKey | TrustedAuthority | TrustedIdentity


def key_id(public_pem: str) -> str:
    """sha256 (hex) of the SPKI PEM as OpenSSL writes it: the `hint` of a sigstore bundle."""
    return hashlib.sha256(public_pem.encode("ascii")).hexdigest()


def split_pem(text: str) -> tuple[str, ...]:
    """Every `PUBLIC KEY` block of a text, in order."""
    return tuple(match[0] + "\n" for match in PEM.finditer(text))


def split_certificates(text: str) -> tuple[str, ...]:
    """Every `CERTIFICATE` block of a text, in order."""
    return tuple(match[0] + "\n" for match in CERTIFICATE.finditer(text))


def pem_bytes(block: str) -> bytes:
    """The DER inside one PEM block (RFC 7468); raises ValueError where it is no base64."""
    body = "".join(block.strip().splitlines()[1:-1])
    return base64.b64decode("".join(body.split()), validate=True)
