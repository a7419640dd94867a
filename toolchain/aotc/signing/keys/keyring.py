"""P-256 keys under one name: made, loaded, and trusted by default or on request."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.trust.signer import Signer
from aotc.signing.keys.development import default_trust, development_key, resolve_trust
from aotc.signing.keys.key_files import generate
from aotc.signing.keys.key_loading import PrivateKey, key_id, load_private, load_public, read_public

__all__ = [
    "PrivateKey",
    "default_trust",
    "development_key",
    "generate",
    "is_signer_file",
    "key_id",
    "load_private",
    "load_public",
    "load_signer",
    "read_public",
    "resolve_trust",
]


def load_signer(key: str | Path | Signer | None) -> Signer:
    """What signs: the key in a PEM file, the program of a signer file, or the development key.

    A signer is given back as it is.
    Raises I001, I023, I033, I034, G037; I026 where a development key cannot be made.
    """
    if key is None:
        return development_key()
    if not isinstance(key, str | Path):
        return key
    if is_signer_file(key):
        from aotc.signing.keys.signer_command import load_command

        return load_command(Path(key))
    return load_private(Path(key))


def is_signer_file(path: str | Path) -> bool:
    """Whether a path is that of a signer file, by its suffix: .yaml, .yml or .json."""
    return Path(path).suffix in (".yaml", ".yml", ".json")
