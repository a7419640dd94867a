"""Loading signers: from a PEM file, from a signer file, or the development key."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.trust.signer import Signer
from aotc.signing.keys.development import development_key
from aotc.signing.keys.key_loading import load_private


def load_signer(key: str | Path | Signer | None) -> Signer:
    """The signer of a PEM file or a signer file, or for None the development key.

    A signer is returned as it is. Raises AOTC-I001, I023, I034, I046 or G037 if it cannot be
    loaded, and I026 if the development key cannot be made.
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
    """Whether a path has a suffix of signer files: .yaml, .yml or .json."""
    return Path(path).suffix in (".yaml", ".yml", ".json")
