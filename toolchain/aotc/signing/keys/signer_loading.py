"""Who signs: the key in a PEM file, the program of a signer file, or the development key."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.trust.signer import Signer
from aotc.signing.keys.development import development_key
from aotc.signing.keys.key_loading import load_private


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
