"""Key files: one byte for the reader, and then the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from edited_artifact import make_place
from fuzz_target import Target
from made_keys import AUTHORITY, LEAF, NOW, TRUSTED, pem_of, signer

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedAuthority, split_certificates
from aotc.trust import certificates
from aotc.trust.key_loading import load_private, load_public

PLACE = make_place()
FILE = PLACE / "key.pem"


def _private(path: Path) -> None:
    key = load_private(path, password=b"password")
    assert key.sign(b"x")
    assert load_public_text(key.public_pem)


def _public(path: Path) -> None:
    found = load_public(path)
    assert found
    for item in found:
        # Written again it is the same key, in the one spelling that ids are made of.
        assert load_public_text(item.pem) == item.pem


def _certificates(path: Path) -> None:
    blocks = split_certificates(path.read_text("ascii", "replace"))
    authorities = [TrustedAuthority(pem=block, origin=str(path)) for block in blocks]
    assert certificates.verify_chain([LEAF], authorities, NOW).origin == str(path)


def load_public_text(pem: str) -> str:
    """The PEM of the one key in a text."""
    other = PLACE / "again.pub"
    other.write_text(pem)
    (found,) = load_public(other)
    return found.pem


READERS: tuple[tuple[Callable[[Path], None], frozenset[str]], ...] = (
    (_private, frozenset({"AOTC-I023", "AOTC-I034", "AOTC-G037"})),
    (_public, frozenset({"AOTC-G013"})),
    (_certificates, frozenset({"AOTC-G013", "AOTC-G037", "AOTC-G038"})),
)


def check(data: bytes) -> bool:
    """Each reader refuses with its codes, and what it accepts can be written and read again."""
    if not data:
        return False
    reader, codes = READERS[data[0] % len(READERS)]
    FILE.write_bytes(data[1:])
    FILE.chmod(0o600)
    try:
        reader(FILE)
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} <= codes, error.line()
        return False
    return True


def seeds() -> Iterator[bytes]:
    """Each kind of file, complete and halved."""
    secret = signer("aotc fuzzing: a key in a file, public to all")._secret
    pkcs8 = serialization.PrivateFormat.PKCS8
    plain = secret.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())
    old = secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = TRUSTED.public_pem.encode()
    for item in (plain, old, plain[:80], public, plain + pem_of(LEAF).encode()):
        yield b"\0" + item
    for item in (public, public * 2, b"# a comment\n\n" + public, public + b"more\n", b""):
        yield b"\1" + item
    for item in (AUTHORITY.pem.encode(), AUTHORITY.pem.encode() * 2, pem_of(LEAF).encode(), public):
        yield b"\2" + item


WORDS = frozenset(
    {f"-----{edge} {what}-----" for edge in ("BEGIN", "END") for what in
     ("PUBLIC KEY", "PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "CERTIFICATE")}
)  # fmt: skip
TARGET = Target("keys", check, seeds, WORDS, 2048)
