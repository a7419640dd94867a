"""Key files: new key pairs, written atomically and never over another key, and encrypted."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read, cannot_write
from aotc.base.files.reading import read_at_most
from aotc.spec.payload import Finding
from aotc.trust.p256 import public_pem

MAX_KEY_FILE_BYTES = 1 << 20

ROUNDS: Final = 600_000
_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")
_PBKDF2: Final = bytes.fromhex("06092a864886f70d01050c")
_HMAC_SHA256: Final = bytes.fromhex("06082a864886f70d0209")
_AES_256_CBC: Final = bytes.fromhex("060960864801650304012a")
_NULL: Final = b"\x05\x00"
_INTEGER, _OCTETS, _SEQUENCE = 0x02, 0x04, 0x30
_KEY_BYTES = 32
_BLOCK_BYTES = 16


def generate(path: Path, *, password: bytes | None = None) -> tuple[Path, Path]:
    """Write a new private key (PKCS#8 PEM, mode 0600) to `path`, and its public half next to it.

    With `password`, the private key is encrypted (PBES2 with AES-256).  Returns both paths; the
    public key's has the suffix `.pub`.  Empty files, which a killed process may leave, are
    replaced. Raises AOTC-I017 if one of the files exists, I018 if the disk is full, I026 if the
    folder is not writable, and I027 if the name is not valid.
    """
    if not path.name or path.is_dir():
        raise AotcError(
            "AOTC-I027", "the private key needs a file name", where=str(path), fix="Give NAME.pem."
        )
    public = path.with_suffix(".pub")
    if public == path:
        raise AotcError(
            "AOTC-I027",
            "the private key's name must not end in .pub",
            where=str(path),
            fix="Give a name that ends in .pem.",
        )
    try:
        for file in (path, public):
            remove_empty(file)
    except OSError as error:
        raise cannot_write_key(path, error) from None
    if os.path.lexists(path) and not os.path.lexists(public):
        make = f"openssl pkey -in {path} -pubout -out {public}"
        raise _exists_error(
            path, f"Choose another name with -o. Its public half is missing: {make}"
        )
    if os.path.lexists(public):
        raise _exists_error(public)
    secret_pem, public_pem = new_pair(password)
    write_new(path, secret_pem, 0o600)
    try:
        write_new(public, public_pem.encode("ascii"), 0o644)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path, public


def remove_empty(path: Path) -> None:
    """Remove a file if it is empty; raises OSError, AOTC-G041, I018 and I026."""
    if _is_empty(path):
        from aotc.base.files.locks import editing

        # The lock prevents that another process removes a key that was written meanwhile.
        with editing(path):
            if _is_empty(path):
                path.unlink()


def _is_empty(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and not found.st_size


def new_pair(password: bytes | None = None) -> tuple[bytes, str]:
    """A new P-256 key pair: the private half (PKCS#8 PEM), and the public half (SPKI PEM)."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = ec.generate_private_key(ec.SECP256R1())
    encoding = serialization.Encoding.PEM if password is None else serialization.Encoding.DER
    data = secret.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    if password is not None:
        data = encrypted_pem(data, password)
    return data, public_pem(secret.public_key())


def read(path: Path) -> bytes:
    """The first `MAX_KEY_FILE_BYTES` bytes of a file; raises AOTC-I001."""
    try:
        return read_at_most(path, MAX_KEY_FILE_BYTES)[:MAX_KEY_FILE_BYTES]
    except OSError as error:
        raise cannot_read(error, "cannot read the key file", str(path)) from None
    except ValueError as error:
        # A signer file may name something that cannot be a path.
        raise AotcError(
            "AOTC-I001", f"cannot read the key file: {error}", where=repr(str(path))
        ) from None


def exposure_findings(path: Path) -> tuple[Finding, ...]:
    """AOTC-I038 if users other than its owner may read a private key; nothing on Windows."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ()
    if os.name != "posix" or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return ()
    what = f"others may read the private key: mode {mode:04o}, not 0600"
    return (Finding(code="AOTC-I038", what=what, where=str(path)),)


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file atomically; raises AOTC-I017 if it exists, I018 and I026."""
    from aotc.base.files import writing

    try:
        writing.write_new(path, data, mode=mode, durable=True)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError as error:
        raise cannot_write_key(path, error) from None


def cannot_write_key(path: Path, error: OSError) -> AotcError:
    """AOTC-I018 if the disk is full, else I026."""
    return cannot_write(error, "cannot write the key", str(path))


def _exists_error(path: Path, fix: str = "Choose another name with -o.") -> AotcError:
    return AotcError(
        "AOTC-I017",
        "the key file already exists, and keys are never overwritten",
        where=str(path),
        fix=fix,
    )


# Encryption of private keys by a password: PKCS#8 with PBES2 (RFC 8018), as TLS libraries read it.
#
# `cryptography` writes only 2048 rounds of PBKDF2, so that each guess of a password takes about a
# millisecond. A file states its number of rounds, so this module can write more.


def encrypted_pem(private_key_info: bytes, password: bytes) -> bytes:
    """An `ENCRYPTED PRIVATE KEY` block (PEM) with a PrivateKeyInfo (DER); takes some 0.1 s."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    salt, start = os.urandom(16), os.urandom(_BLOCK_BYTES)
    key = hashlib.pbkdf2_hmac("sha256", password, salt, ROUNDS, _KEY_BYTES)
    padder = PKCS7(8 * _BLOCK_BYTES).padder()
    padded = padder.update(private_key_info) + padder.finalize()
    cipher = Cipher(algorithms.AES(key), modes.CBC(start)).encryptor()
    secret = cipher.update(padded) + cipher.finalize()
    rounds = ROUNDS.to_bytes(ROUNDS.bit_length() // 8 + 1, "big")
    derivation = _der(
        _SEQUENCE,
        _der(_OCTETS, salt) + _der(_INTEGER, rounds) + _der(_SEQUENCE, _HMAC_SHA256 + _NULL),
    )
    scheme = _der(
        _SEQUENCE,
        _der(_SEQUENCE, _PBKDF2 + derivation)
        + _der(_SEQUENCE, _AES_256_CBC + _der(_OCTETS, start)),
    )
    document = _der(_SEQUENCE, _der(_SEQUENCE, _PBES2 + scheme) + _der(_OCTETS, secret))
    text = base64.b64encode(document).decode("ascii")
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    label = "ENCRYPTED PRIVATE KEY"
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode("ascii")


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


# What the derivation of a key from a password would cost: a file states it, and the work is done
# before the password is known to be right.


MAX_ROUNDS: Final = 10_000_000
MAX_SCRYPT_BYTES: Final = 1 << 28
_SCRYPT: Final = bytes.fromhex("06092b06010401da47040b")
_BODY: Final = re.compile(
    rb"-----BEGIN (ENCRYPTED )?[A-Z ]*PRIVATE KEY-----((?:(?!-----).)++)-----END ", re.DOTALL
)
_CONSTRUCTED: Final = 0x20
_MAX_DEPTH: Final = 16


def refused_cost(pem: bytes) -> str:
    """What a key file would cost to decrypt, in words, if that is too much; else empty."""
    body = _BODY.search(pem)
    if body is None:
        return ""
    try:
        # As lenient as any reader of PEM: headers and what is no base64 are left out.
        text = body[2] if b":" not in body[2] else re.split(rb"\n\s*\n", body[2])[-1]
        document = base64.b64decode(re.sub(rb"[^A-Za-z0-9+/]", b"", text) + b"==")
        _, content, _ = _element(document, 0)
        _, scheme, _ = _element(content, 0)
        numbers = list(_integers(scheme, 0))
    except (ValueError, IndexError):
        return "an encryption that cannot be read" if body[1] else ""
    if _SCRYPT in scheme:
        # Cost, block size and parallelization, and perhaps the length of the key.
        cost, block, parallel = (*numbers, 1, 1, 1)[:3]
        if 128 * cost * block * max(parallel, 1) > MAX_SCRYPT_BYTES:
            return f"scrypt with more than {MAX_SCRYPT_BYTES} bytes to go through"
    elif max(numbers, default=0) > MAX_ROUNDS:
        return f"a key derivation of {max(numbers)} rounds, of at most {MAX_ROUNDS}"
    return ""


def _integers(data: bytes, depth: int) -> Iterator[int]:
    """All integers in the DER elements of `data`, in order."""
    at = 0
    while at < len(data) and depth <= _MAX_DEPTH:
        tag, content, at = _element(data, at)
        if tag == _INTEGER:
            yield int.from_bytes(content, "big")
        elif tag & _CONSTRUCTED:
            yield from _integers(content, depth + 1)


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag and content of the DER element at `at`, and the place after it."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length > 0x7F:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    if start + length > len(data):
        raise ValueError("an element that is longer than its file")
    return tag, data[start : start + length], start + length
