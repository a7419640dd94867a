"""Signer files: which program signs, with whose key; nothing runs before it is validated."""

from __future__ import annotations

import json
from collections.abc import Iterator

from edited_artifact import make_place
from fuzz_target import Target
from made_keys import AUTHORITY, LEAF, TRUSTED, pem_of, signer
from structured import mutated, words_of

from aotc.base.errors import AotcError
from aotc.spec.trust_policy import SignerFile
from aotc.trust.signers import CommandSigner, load_command

REFUSED = {"AOTC-I001", "AOTC-I023", "AOTC-I046", "AOTC-G037"}
FILES = [make_place() / name for name in ("signer.yaml", "signer.json")]


def check(data: bytes) -> bool:
    """As YAML and as JSON: refused with a code, or a command with exactly one key."""
    return bool(sum(_reads(path, data) for path in FILES))


def _reads(path: object, data: bytes) -> bool:
    path.write_bytes(data)  # type: ignore[attr-defined]
    try:
        found = load_command(path)  # type: ignore[arg-type]
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} <= REFUSED, error.line()
        return False
    assert isinstance(found, CommandSigner)
    assert found.file.command
    assert "BEGIN PUBLIC KEY" in found.public_pem
    return True


def seeds() -> Iterator[bytes]:
    """With a key, with its certificate, and with those of others."""
    leaf = signer("leaf")
    for public, certificates in (
        (TRUSTED.public_pem, ""),
        (leaf.public_pem, pem_of(LEAF)),
        (TRUSTED.public_pem, AUTHORITY.pem),
        ("no.pub", ""),
    ):
        said = {
            "schema": "aotc.signer/1",
            "command": ["sign", "--fast"],
            "public_key": public,
            "certificates": certificates,
            "format": "raw",
            "timeout_seconds": 5,
        }
        yield json.dumps(said).encode()
    yield b"schema: aotc.signer/2\n"


TARGET = Target("signer", check, seeds, words_of(SignerFile), 4096, mutated)
