"""Public keys on P-256, the only supported curve: reading, writing, and verifying signatures.

`cryptography` is imported only when a key is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes


def p256_key(pem: str) -> EllipticCurvePublicKey | None:
    """The public key of a PEM text, or None if it is not a public key on P-256."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(pem.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm):
        return None
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
        return public
    return None


def public_pem(public: PublicKeyTypes) -> str:
    """Any public key as SPKI PEM, as OpenSSL writes it."""
    from cryptography.hazmat.primitives import serialization

    data = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data.decode("ascii")


def is_signed(public: EllipticCurvePublicKey, signature: bytes, message: bytes) -> bool:
    """Whether `signature` (DER, ECDSA over SHA-256) of `message` is by this key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        public.verify(signature, message, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True
