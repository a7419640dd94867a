"""Trust anchors: public keys, certificate authorities, and identities of keyless signers."""

from __future__ import annotations

import base64
import hashlib
import re

from aotc.base.records import record

# Each part matches in one way only, so that a text that ends nowhere takes no longer than others.
PEM = re.compile(
    r"-----BEGIN PUBLIC KEY-----\s[A-Za-z0-9+/=\s]++-----END PUBLIC KEY-----", re.ASCII
)
CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]++-----END CERTIFICATE-----", re.ASCII
)


@record
class TrustedKey:
    """A P-256 public key (SPKI, PEM) and its origin, such as the file that it was read from.

    For a key that is trusted by its certificate, `origin` is that of the authority, `certificate`
    names subject and issuer, `subject` names the subject only, and `issuers` are the ids of the
    keys of all CAs on the certification path.
    """

    pem: str
    origin: str
    development: bool = False
    certificate: str = ""
    subject: str = ""
    issuers: tuple[str, ...] = ()


@record
class TrustedAuthority:
    """A CA certificate (PEM) whose code signing certificates are accepted, and its origin."""

    pem: str
    origin: str


@record
class TrustedIdentity:
    """An identity that may sign keyless with sigstore, and the OIDC issuer that must confirm it.

    `trusted_root` is the path of a sigstore trusted root, or its JSON text; if empty, that of the
    public instance is used.
    """

    identity: str
    issuer: str
    origin: str
    trusted_root: str = ""


# What can make a bundle trusted.
Anchor = TrustedKey | TrustedAuthority | TrustedIdentity


def key_id(public_pem: str) -> str:
    """The id of a public key: sha256 (hex) of its SPKI PEM as OpenSSL writes it.

    Sigstore bundles hold it as `hint`.
    """
    return hashlib.sha256(public_pem.encode("ascii")).hexdigest()


def split_pem(text: str) -> tuple[str, ...]:
    """The `PUBLIC KEY` blocks of a text, in order."""
    return tuple(match[0] + "\n" for match in PEM.finditer(text))


def split_certificates(text: str) -> tuple[str, ...]:
    """The `CERTIFICATE` blocks of a text, in order."""
    return tuple(match[0] + "\n" for match in CERTIFICATE.finditer(text))


def text_around(text: str, *blocks: re.Pattern[str], comments: bool = True) -> str:
    """The first line of a text that lies in none of its PEM blocks; empty if there is none.

    Blank lines do not count, nor, with `comments`, lines that start with `#`.  Any other text could
    say that a key is revoked, so a reader of keys refuses it.
    """
    text = text.removeprefix("\ufeff")
    for block in blocks:
        text = block.sub("\0", text)
    for line in text.splitlines():
        is_comment = comments and line.startswith("#") and "\0" not in line
        if line.rstrip() not in ("", "\0") and not is_comment:
            return line.replace("\0", " ").strip() or "blocks on one line"
    return ""


def der_of_pem(block: str) -> bytes:
    """The DER bytes of one PEM block (RFC 7468); raises ValueError if it is not valid base64."""
    body = "".join(block.strip().splitlines()[1:-1])
    return base64.b64decode("".join(body.split()), validate=True)
