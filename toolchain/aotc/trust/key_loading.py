"""Loading P-256 keys from PEM files, with a password where one is needed.

`cryptography` is imported only when a key is used.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.base.errors import AotcError
from aotc.base.files.reading import open_plain
from aotc.base.records import field, record
from aotc.base.text import hidden_characters, printable
from aotc.spec.payload import Finding
from aotc.spec.trust_anchors import (
    CERTIFICATE,
    PEM,
    TrustedKey,
    key_id,
    split_certificates,
    split_pem,
    text_around,
)
from aotc.trust import key_files
from aotc.trust.p256 import any_key, public_pem, verifying_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


# PKCS#8 (RFC 5958) states it in the label, OpenSSL's older form in a header.
_ENCRYPTED = rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED"
# The text of a block holds no other's beginning, so that none is looked through twice.
_SECRET = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----\s"
    r"(?:(?:Proc-Type|DEK-Info): [A-Za-z0-9,-]+\s+)*+"
    r"[A-Za-z0-9+/=\s]++-----END \1-----",
    re.ASCII,
)
# OpenSSL writes the parameters of a curve before a key on it, and some tools its public half.
_BESIDE_SECRET = re.compile(
    r"-----BEGIN (EC PARAMETERS|PUBLIC KEY)-----\s[A-Za-z0-9+/=\s]++-----END \1-----", re.ASCII
)

FILE_VARIABLE = "AOTC_KEY_PASSWORD_FILE"
VARIABLE = "AOTC_KEY_PASSWORD"
# OpenSSL reads no more bytes of a password.
MAX_PASSWORD_BYTES = 1023


@record(kw_only=False)
class PrivateKey:
    """A P-256 private key, which gives only its signatures and its public half."""

    public_pem: str
    key_id: str
    development: bool
    _secret: EllipticCurvePrivateKey = field(repr=False, compare=False)
    chain: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def sign(self, message: bytes) -> bytes:
        """A DER-encoded ECDSA signature over SHA-256, with a deterministic nonce (RFC 6979)."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._secret.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True))

    def trusted(self) -> TrustedKey:
        """The public half as a trusted key."""
        return TrustedKey(pem=self.public_pem, origin="signer", development=self.development)


def load_private(
    path: Path,
    *,
    development: bool = False,
    password: bytes | None = None,
    allow_expired: bool = False,
) -> PrivateKey:
    """Load a P-256 private key from a PKCS#8 or SEC1 PEM file, with its certificates if it has any.

    An encrypted key is decrypted with `password`, or with the one that `password_of` finds.
    With `allow_expired` a certificate outside its validity period is a finding of the key.
    Raises AOTC-I001 if the file cannot be read, I023 if it is not such a key, I034 if the
    password is missing or wrong, and G037 if a certificate cannot be read or is not valid now.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    data = key_files.read(path)
    secret = _secret_key(data, path, password)
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise _unusable(path, f"a key of type {type(secret).__name__}")
    if not isinstance(secret.curve, ec.SECP256R1):
        raise _unusable(path, f"a key on the curve {secret.curve.name}")
    pem = public_pem(secret.public_key())
    text = data.decode("utf-8", "replace")
    if len(_SECRET.findall(text)) > 1:
        raise _unusable(path, "several private keys")
    if other := text_around(text, _SECRET, CERTIFICATE, _BESIDE_SECRET):
        raise AotcError(
            "AOTC-I023",
            "the key file has text besides keys and certificates, which could say not to use them",
            where=str(path),
            expected="a private key, its certificates, and lines that start with #",
            found=printable(other, 80),
            fix="Remove the text, if the key may be used.",
        )
    findings = key_files.exposure_findings(path)
    chain = split_certificates(text)
    if chain:
        from aotc.trust.certificates import check_chain_of_key

        findings += check_chain_of_key(chain, pem, str(path), allow_expired=allow_expired)
    return PrivateKey(pem, key_id(pem), development, secret, chain, findings)


def load_public(path: Path, *, code: str = "AOTC-G013") -> tuple[TrustedKey, ...]:
    """The PEM public keys of a file, in their order.

    Raises AOTC-I001 if the file cannot be read, and `code` if it has no key, a key that is on
    neither P-256 nor P-384, anything other than keys, blank lines and lines that start with `#`, or
    a character that is not seen, behind which a comment could hold a key.
    """
    text = key_files.read(path).decode("utf-8", "replace")
    for at, character in hidden_characters(text):
        raise AotcError(
            code,
            "the list of public keys has a character that is not seen, or shows otherwise than it "
            "reads",
            where=str(path),
            found=f"{character} on line {text.count(chr(10), 0, at) + 1}",
            fix="Delete the character, and look at what the list says then.",
        )
    return read_public(text, str(path), code=code)


def read_public(text: str, origin: str, *, code: str = "AOTC-G013") -> tuple[TrustedKey, ...]:
    """The PEM public keys of a text, in their order; raises `code` as `load_public` does.

    `origin` is the place of the text, for messages and for the keys.
    """
    wanted = "one or more PEM public keys on P-256 or P-384"
    found = []
    for number, block in enumerate(split_pem(text), start=1):
        public = verifying_key(block)
        if public is None:
            raise AotcError(
                code,
                f"key {number} of the file is unusable",
                where=origin,
                expected=wanted,
                found="another kind of key" if any_key(block) else "bytes that are not a key",
            )
        found.append(TrustedKey(pem=public_pem(public), origin=origin))
    if not found or text_around(text, PEM):
        content, fix = _other_content(text)
        raise AotcError(
            code,
            "the file is not a list of public keys",
            where=origin,
            expected=wanted,
            found=content,
            fix=fix,
        )
    return tuple(found)


def load_one_public(path: Path) -> str:
    """The only public key of a file, as PEM; raises AOTC-I001 and I023."""
    found = load_public(path, code="AOTC-I023")
    if len(found) != 1:
        raise AotcError(
            "AOTC-I023",
            "the file has several keys",
            where=str(path),
            expected="one public key",
            found=str(len(found)),
        )
    return found[0].pem


def _other_content(text: str) -> tuple[str, str]:
    """What a file is if it is not a list of public keys, and how to fix that."""
    if "PRIVATE KEY-----" in text:
        return "a private key", "Give the .pub file next to it."
    if split_certificates(text):
        return (
            "a certificate",
            "Put it into a trust policy with 'aotc trust add POLICY --authority ID=FILE "
            "--usage oms', and give that with --trust.",
        )
    return "something else", ""


def _secret_key(data: bytes, path: Path, password: bytes | None) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    block = _SECRET.search(data.decode("latin-1"))
    secret = block[0].encode("latin-1") if block else data
    encrypted = re.search(_ENCRYPTED, secret, re.MULTILINE) is not None
    if cost := key_files.refused_cost(secret):
        raise _unusable(path, cost)
    given = (password or password_of(path)) if encrypted else None
    try:
        return load_pem_private_key(secret, password=given)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise AotcError(
                "AOTC-I034", "the password does not decrypt the key file", where=str(path)
            ) from None
        found = "a public key" if split_pem(data.decode("ascii", "replace")) else "something else"
        raise _unusable(path, found) from None


def _unusable(path: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-I023",
        "the file is not a usable signing key",
        where=str(path),
        expected="a PEM private key on P-256",
        found=found,
    )


# Passwords of key files: from a prompt, a file or an environment variable.
#
# They are never command line arguments, which process lists and shell histories show.


def from_file(path: Path) -> bytes:
    """The first line of a file; raises AOTC-I034 if it is empty, too long or cannot be read."""
    try:
        with open_plain(path) as file:
            line = file.readline(MAX_PASSWORD_BYTES + 3)
    except (OSError, ValueError) as error:
        raise AotcError(
            "AOTC-I034",
            "the password file cannot be read",
            where=str(path),
            found=getattr(error, "strerror", None) or str(error),
            fix="Give a file whose first line is the password.",
        ) from None
    password = line.removesuffix(b"\n").removesuffix(b"\r")
    return _checked(password, str(path), "Put the password on the first line of the file.")


def from_variable(name: str) -> bytes:
    """The value of an environment variable; raises AOTC-I034 if it is unset, empty or too long."""
    stated = os.environ.get(name)
    if stated is None:
        raise AotcError(
            "AOTC-I034",
            "the environment variable is not set",
            where=name,
            fix="Set it to the password, or name the variable that holds it.",
        )
    fix = "Set the variable to the password."
    return _checked(stated.encode("utf-8", "surrogateescape"), name, fix)


def ask_new() -> bytes:
    """A new password, which the user types twice.

    Raises AOTC-I034 if there is no terminal, or the two differ.
    """
    fix = "Without a terminal, give it with --password-file or --password-env."
    first = _ask("password for the new key: ", fix_no_terminal=fix)
    if _ask("the same again: ", fix_no_terminal=fix) != first:
        raise AotcError(
            "AOTC-I034",
            "the two passwords differ",
            where="prompt",
            fix="Run the command again, and type the same password twice.",
        )
    return first


def password_of(key: Path) -> bytes:
    """The password of a key file: from $AOTC_KEY_PASSWORD_FILE, $AOTC_KEY_PASSWORD or a prompt.

    Raises AOTC-I034 if there is none, or it is empty, too long or cannot be read.
    """
    file = os.environ.get(FILE_VARIABLE)
    if file:
        return from_file(Path(file))
    if VARIABLE in os.environ:
        return from_variable(VARIABLE)
    return _ask(f"password of {key}: ", where=str(key))


def _ask(prompt: str, where: str = "prompt", fix_no_terminal: str = "") -> bytes:
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not terminal:
        raise AotcError(
            "AOTC-I034",
            "there is no terminal to ask for a password",
            where=where,
            fix=fix_no_terminal,
        )
    import getpass

    try:
        typed = getpass.getpass(printable(prompt))
    except EOFError:
        typed = ""
    return _checked(typed.encode("utf-8", "surrogateescape"), where, "Type a password.")


def _checked(password: bytes, where: str, fix: str) -> bytes:
    if not password or len(password) > MAX_PASSWORD_BYTES:
        raise AotcError(
            "AOTC-I034",
            "the password is unusable",
            where=where,
            expected=f"1 to {MAX_PASSWORD_BYTES} bytes",
            found=f"{len(password)} bytes" if password else "nothing",
            fix=fix,
        )
    return password
