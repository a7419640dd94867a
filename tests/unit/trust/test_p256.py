"""Keys on P-256 are read and written without the library's general readers, and as those do."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from hypothesis import given
from hypothesis import strategies as st

from aotc.trust.p256 import any_key, is_signed, p256_key, public_pem

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
INFO = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")


def library_pem(public: PublicKeyTypes) -> str:
    data = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data.decode("ascii")


def pem_of(data: bytes, *, columns: int = 64, end: str = "\n") -> str:
    lines = textwrap.wrap(base64.b64encode(data).decode("ascii"), columns)
    return end.join(["-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----", ""])


def key(number: int = 7, curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(number, curve or ec.SECP256R1())


@given(number=st.integers(min_value=1, max_value=ORDER - 1))
def test_keys_are_read_and_written_as_the_library_does(number: int) -> None:
    public = key(number).public_key()
    pem = library_pem(public)
    assert public_pem(public) == pem
    found = p256_key(pem)
    assert found == public and found is not None and public_pem(found) == pem


@given(point=st.binary(min_size=64, max_size=64))
def test_a_point_off_the_curve_is_not_a_key(point: bytes) -> None:
    pem = pem_of(INFO + b"\4" + point)
    assert (p256_key(pem) is None) == (any_key(pem) is None)


@pytest.mark.parametrize(
    "spelled",
    [
        lambda pem, der: pem.replace("\n", "\r\n"),
        lambda pem, der: f"a comment\n{pem}",
        lambda pem, der: pem.removesuffix("\n"),
        lambda pem, der: pem_of(der, columns=76),
        lambda pem, der: pem_of(der, columns=1000),
    ],
)
def test_other_spellings_are_left_to_the_library(spelled: Callable[[str, bytes], str]) -> None:
    public = key().public_key()
    pem = library_pem(public)
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = spelled(pem, der)
    found = p256_key(text)
    assert found == any_key(text)
    if found is not None:
        assert public_pem(found) == pem


def test_a_compressed_point_is_the_same_key() -> None:
    public = key().public_key()
    short = public.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    data = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + short
    assert p256_key(pem_of(data)) == public


@pytest.mark.parametrize(
    "public",
    [
        key(7, ec.SECP384R1()).public_key(),
        key(7, ec.SECP256K1()).public_key(),
        ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32).public_key(),
        rsa.generate_private_key(65537, 2048).public_key(),
    ],
    ids=["P-384", "secp256k1", "Ed25519", "RSA"],
)
def test_other_kinds_of_keys_are_not_accepted(public: PublicKeyTypes) -> None:
    pem = library_pem(public)
    assert p256_key(pem) is None and any_key(pem) == public and public_pem(public) == pem


@pytest.mark.parametrize(
    "data",
    [
        b"",
        INFO,
        INFO + b"\4" + bytes(64),
        INFO + b"\4" + bytes(63),
        INFO + b"\5" + bytes(64),
        INFO + bytes(1),
    ],
)
def test_other_data_is_not_a_key(data: bytes) -> None:
    assert p256_key(pem_of(data)) is None and any_key(pem_of(data)) is None


@pytest.mark.parametrize("text", ["", "-----BEGIN PUBLIC KEY-----\n%\n-----END PUBLIC KEY-----\n"])
def test_other_text_is_not_a_pem(text: str) -> None:
    assert p256_key(text) is None


def test_a_byte_more_makes_it_another_text() -> None:
    der = INFO + key().public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    assert p256_key(pem_of(der)) is not None
    longer = pem_of(der + b"\0")
    assert (p256_key(longer) is None) == (any_key(longer) is None)


def test_signatures_are_by_the_key_that_was_read() -> None:
    secret = key()
    found = p256_key(library_pem(secret.public_key()))
    assert found is not None
    from cryptography.hazmat.primitives.hashes import SHA256

    signature = secret.sign(b"message", ec.ECDSA(SHA256()))
    assert is_signed(found, signature, b"message")
    assert not is_signed(found, signature, b"another")
