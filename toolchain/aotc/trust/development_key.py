"""The development key of a user, made at its first use, and the default trust.

The default trust needs neither `cryptography` nor what writes files.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import belongs_to_others, config_folder, make_folder
from aotc.base.files.reading import read_at_most
from aotc.spec.trust_anchors import PEM, TrustedKey, split_pem, text_around

if TYPE_CHECKING:
    from aotc.trust.key_loading import PrivateKey


_MAX_PEM_BYTES = 1 << 16
_FIX_FOLDER: Final = "Set XDG_CONFIG_HOME to a folder of yours, or sign with --key."


def development_key() -> PrivateKey:
    """This user's development key, which is created at its first use.

    Raises AOTC-I023 if the file is unusable, and I026 if it cannot be written or its folder belongs
    to another user.
    """
    from aotc.base.files import writing
    from aotc.trust.key_loading import load_private

    require_own_folder()
    secret_path, public_path = _paths()
    if not _exists(secret_path):
        _create(secret_path)
    key = load_private(secret_path, development=True)
    pem = key.public_pem.encode("ascii")
    # Signing needs only the private half, so a key in a read-only folder is enough.
    with contextlib.suppress(OSError):
        if not public_path.exists() or read_at_most(public_path, len(pem)) != pem:
            writing.write_atomically(public_path, pem, mode=0o644, durable=True)
    return key


def development_key_path() -> Path:
    """Where this user's development key is, or will be; raises AOTC-I026 without a home folder."""
    return _paths()[0]


def require_own_folder() -> None:
    """Raise AOTC-I026 if the folder of the development key belongs to another user."""
    folder = _paths()[0].parent
    if _belongs_to_others(folder):
        raise AotcError(
            "AOTC-I026",
            "the folder of the development key belongs to another user",
            where=str(folder),
            fix=_FIX_FOLDER,
        )


def default_trust() -> tuple[TrustedKey, ...]:
    """The public development key of this user, if there is one; by default only it is trusted."""
    try:
        secret_path, public_path = _paths()
        if _belongs_to_others(secret_path.parent) or not secret_path.is_file():
            return ()
        text = ""
        if public_path.is_file():
            text = read_at_most(public_path, _MAX_PEM_BYTES).decode("ascii")
        blocks = () if text_around(text, PEM) else split_pem(text)
    except (AotcError, OSError, UnicodeDecodeError):
        return ()
    if len(blocks) != 1:
        from aotc.trust.key_loading import load_private

        return (load_private(secret_path, development=True).trusted(),)
    return (TrustedKey(pem=blocks[0], origin="development key", development=True),)


def resolve_trust(
    trust: str | Path | None = None, key: str | Path | None = None
) -> tuple[TrustedKey, ...]:
    """The trusted keys: those in the files `trust` and `key`, or by default the development key.

    Raises AOTC-I001 if a file cannot be read, G013 if `trust` is not a list of keys, and I023 if
    `key` is not.
    """
    if trust is None and key is None:
        return default_trust()
    from aotc.trust.key_loading import load_public

    found: dict[str, TrustedKey] = {}
    if trust is not None:
        found.update((item.pem, item) for item in load_public(Path(trust)))
    if key is not None:
        found.update((item.pem, item) for item in load_public(Path(key), code="AOTC-I023"))
    development = {item.pem for item in default_trust()}
    return tuple(
        TrustedKey(pem=item.pem, origin=item.origin, development=item.pem in development)
        for item in found.values()
    )


def _paths() -> tuple[Path, Path]:
    base = config_folder()
    if base is None:
        raise AotcError(
            "AOTC-I026",
            "this user does not have a home folder for a development key",
            fix=_FIX_FOLDER,
        )
    return base / "aotc" / "development.pem", base / "aotc" / "development.pub"


def _exists(path: Path) -> bool:
    """Whether there is a key; a killed process may have left an empty file."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return path.exists()


def _create(path: Path) -> None:
    """Create the key; if several processes do so at once, all use the key of the first."""
    from aotc.base.files import writing
    from aotc.trust import key_files

    secret_pem, _ = key_files.new_pair()
    try:
        make_folder(path.parent)
        key_files.remove_empty(path)
        with contextlib.suppress(FileExistsError):
            writing.write_new(path, secret_pem, mode=0o600, durable=True)
    except OSError as error:
        found = key_files.cannot_write_key(path, error)
        if found.code == "AOTC-I026":
            found.fix = _FIX_FOLDER
        raise found from None


def _belongs_to_others(folder: Path) -> bool:
    """Whether the folder belongs to another user, who could replace the key or link to a file."""
    try:
        return belongs_to_others(folder)
    except OSError:
        return False  # It does not exist, or reading or writing in it will fail.
