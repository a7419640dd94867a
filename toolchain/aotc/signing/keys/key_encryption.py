"""Encryption of private keys by a password: PKCS#8 with PBES2 (RFC 8018), as TLS libraries read it.

`cryptography` writes only 2048 rounds of PBKDF2, so that each guess of a password takes about a
millisecond.  A file states its number of rounds, so this module can write more.
"""

from __future__ import annotations

import base64
import hashlib
import os
import textwrap
from typing import Final

ROUNDS: Final = 600_000
_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")
_PBKDF2: Final = bytes.fromhex("06092a864886f70d01050c")
_HMAC_SHA256: Final = bytes.fromhex("06082a864886f70d0209")
_AES_256_CBC: Final = bytes.fromhex("060960864801650304012a")
_NULL: Final = b"\x05\x00"
_INTEGER, _OCTETS, _SEQUENCE = 0x02, 0x04, 0x30
_KEY_BYTES = 32
_BLOCK_BYTES = 16


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
    lines = "\n".join(textwrap.wrap(base64.b64encode(document).decode("ascii"), 64))
    label = "ENCRYPTED PRIVATE KEY"
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode("ascii")


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body
