"""Public keys on P-256, with which aotc signs, and on P-384: reading, writing, and verifying.

The hash of a signature is that of its curve, as in OMS: SHA-256 and SHA-384.

`cryptography` is imported only when a key is used, and its readers of all kinds of keys only if a
key has another form than the one that is written here.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, TypeGuard

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes


_BEGIN: Final = "-----BEGIN PUBLIC KEY-----\n"
_END: Final = "-----END PUBLIC KEY-----\n"
_COLUMNS: Final = 64
# The SubjectPublicKeyInfo of a P-256 key (RFC 5480, section 2) before its point, which is the byte
# 4 and both coordinates of 32 bytes (SEC 1, section 2.3.3).
_INFO: Final = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")
_COORDINATE_BYTES: Final = 32


def p256_key(pem: str) -> EllipticCurvePublicKey | None:
    """The public key of a PEM text, or None if it is not a public key on P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    point = _point(pem)
    if point is None:
        public = any_key(pem)
        return public if is_p256(public) else None
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except ValueError:
        return None


def verifying_key(pem: str) -> EllipticCurvePublicKey | None:
    """The public key of a PEM text, or None if it is not a public key on P-256 or P-384."""
    found = p256_key(pem)
    if found is not None:
        return found
    public = any_key(pem)
    return public if is_verifying(public) else None


def any_key(pem: str) -> PublicKeyTypes | None:
    """The public key of a PEM text, of any kind, or None if it is not a public key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        return load_pem_public_key(pem.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm):
        return None


def public_pem(public: PublicKeyTypes) -> str:
    """Any public key as SPKI PEM, as OpenSSL writes it."""
    if is_p256(public):
        numbers = public.public_numbers()
        coordinates = (n.to_bytes(_COORDINATE_BYTES, "big") for n in (numbers.x, numbers.y))
        return _pem(b"\4" + b"".join(coordinates))
    from cryptography.hazmat.primitives import serialization

    data = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data.decode("ascii")


def is_signed(public: EllipticCurvePublicKey, signature: bytes, message: bytes) -> bool:
    """Whether `signature` (DER, ECDSA over the hash of the curve) of `message` is by this key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384

    digest = SHA256() if is_p256(public) else SHA384()
    try:
        public.verify(signature, message, ec.ECDSA(digest))
    except InvalidSignature:
        return False
    return True


def is_p256(public: PublicKeyTypes | None) -> TypeGuard[EllipticCurvePublicKey]:
    """Whether a key of any kind is a public key on P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1)


def is_verifying(public: PublicKeyTypes | None) -> TypeGuard[EllipticCurvePublicKey]:
    """Whether a key of any kind is a public key on P-256 or P-384."""
    from cryptography.hazmat.primitives.asymmetric import ec

    curves = (ec.SECP256R1, ec.SECP384R1)
    return isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, curves)


def _point(pem: str) -> bytes | None:
    """The point of a PEM text that is exactly what `_pem` writes for it; else None."""
    try:
        data = base64.b64decode(pem.removeprefix(_BEGIN).removesuffix(_END))
    except ValueError:
        return None
    point = data[len(_INFO) :]
    is_full = len(point) == 1 + 2 * _COORDINATE_BYTES and point[0] == 4
    return point if is_full and pem == _pem(point) else None


def _pem(point: bytes) -> str:
    text = base64.b64encode(_INFO + point).decode("ascii")
    lines = (text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS))
    return _BEGIN + "".join(f"{line}\n" for line in lines) + _END
