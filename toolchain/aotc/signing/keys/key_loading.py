"""P-256 keys as records: read from PEM files.

`cryptography` is imported only where a key is used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.finding import Finding
from aotc.contract.trust.anchors import PEM, TrustedKey, key_id, split_certificates, split_pem
from aotc.errors import AotcError
from aotc.records import field, record
from aotc.signing.keys import key_files, passwords
from aotc.signing.keys.p256 import any_key, p256_key, public_pem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

# PKCS#8 (RFC 5958) says so in its label, the older form of OpenSSL in a header.
_ENCRYPTED = rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED"
_SECRET = rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----\s.+?-----END \1-----"


@record(kw_only=False)
class PrivateKey:
    """A P-256 private key; only its signatures and its public half leave it."""

    public_pem: str
    key_id: str
    development: bool
    _secret: EllipticCurvePrivateKey = field(repr=False, compare=False)
    chain: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def sign(self, message: bytes) -> bytes:
        """ECDSA over SHA-256 with a deterministic nonce (RFC 6979), DER-encoded."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._secret.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True))

    def trusted(self) -> TrustedKey:
        """The public half, as a key to trust."""
        return TrustedKey(pem=self.public_pem, origin="signer", development=self.development)


def load_private(
    path: Path, *, development: bool = False, password: bytes | None = None
) -> PrivateKey:
    """Read a PKCS#8 (or SEC1) PEM of a P-256 key, with its certificates where the file holds any.

    An encrypted one takes `password`, else the one that `passwords.stated` finds.
    Raises I001, I023; I034 where the password is missing or wrong; G037 for a certificate that
    cannot be read.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    data = key_files.read(path)
    secret = _secret_key(data, path, password)
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise _unusable(path, f"a key of type {type(secret).__name__}")
    if not isinstance(secret.curve, ec.SECP256R1):
        raise _unusable(path, f"a key on the curve {secret.curve.name}")
    pem = public_pem(secret.public_key())
    chain = split_certificates(data.decode("ascii", "replace"))
    if chain:
        from aotc.signing.keys.certificates import check_belongs

        check_belongs(chain, pem, str(path))
    findings = key_files.exposure(path)
    return PrivateKey(pem, key_id(pem), development, secret, chain, findings)


def load_public(path: Path, *, code: str = "AOTC-G013") -> tuple[TrustedKey, ...]:
    """Every PEM public key in a file, in its order.

    Raises I001 where the file cannot be read, and `code` where it holds no key, one that is not
    on P-256, or anything but keys, blank lines and lines that begin with `#`.
    """
    text = key_files.read(path).decode("utf-8", "replace")
    return read_public(text, str(path), code=code)


def read_public(text: str, origin: str, *, code: str = "AOTC-G013") -> tuple[TrustedKey, ...]:
    """Every PEM public key in a text, in its order; raises `code` as `load_public` does.

    The text holds nothing else but blank lines, and comments: lines that begin with `#`.
    """
    wanted = "one or more PEM public keys on P-256"
    found = []
    for number, block in enumerate(split_pem(text), start=1):
        public = p256_key(block)
        if public is None:
            raise AotcError(
                code,
                f"key {number} of the file is unusable",
                where=origin,
                expected=wanted,
                found="another kind of key" if any_key(block) else "bytes that are no key",
            )
        found.append(TrustedKey(pem=public_pem(public), origin=origin))
    if not found or not _holds_keys_alone(text):
        seen, fix = _instead_of_keys(text)
        raise AotcError(
            code,
            "the file is not a list of public keys",
            where=origin,
            expected=wanted,
            found=seen,
            fix=fix,
        )
    return tuple(found)


def one_key(path: Path) -> str:
    """The one public key of a file, as PEM; raises I001 and I023."""
    found = load_public(path, code="AOTC-I023")
    if len(found) != 1:
        raise AotcError(
            "AOTC-I023",
            "the file holds several keys",
            where=str(path),
            expected="one public key",
            found=str(len(found)),
        )
    return found[0].pem


def _instead_of_keys(text: str) -> tuple[str, str]:
    """What a file holds that is no list of public keys, and what to do with it."""
    if "PRIVATE KEY-----" in text:
        return "a private key", "Give the .pub file beside it."
    if split_certificates(text):
        return (
            "a certificate",
            "Put it into a trust policy with 'aotc trust add POLICY --id ID --authority FILE "
            "--usage oms', and give that with --trust.",
        )
    return "something else", ""


def _holds_keys_alone(text: str) -> bool:
    """Whether nothing is said beside keys but comments: it could be that one is revoked."""
    lines = PEM.sub("\0", text.removeprefix("\ufeff")).splitlines()
    return all(
        line.rstrip() in ("", "\0") or (line.startswith("#") and "\0" not in line) for line in lines
    )


def _secret_key(data: bytes, path: Path, password: bytes | None) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    block = re.search(_SECRET, data, re.ASCII | re.DOTALL)
    secret = block[0] if block else data
    encrypted = re.search(_ENCRYPTED, secret, re.MULTILINE) is not None
    given = (password or passwords.stated(path)) if encrypted else None
    try:
        return load_pem_private_key(secret, password=given)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise AotcError(
                "AOTC-I034", "the password does not open the key file", where=str(path)
            ) from None
        found = "a public key" if split_pem(data.decode("ascii", "replace")) else "something else"
        raise _unusable(path, found) from None


def _unusable(path: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-I023",
        "the file is no usable signing key",
        where=str(path),
        expected="a PEM private key on P-256",
        found=found,
    )
