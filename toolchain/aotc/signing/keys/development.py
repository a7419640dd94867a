"""The development key of a user, made at its first use, and the trust that holds by default.

The default trust needs no `cryptography`, and nothing that writes files.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.contract.trust.anchors import TrustedKey, split_pem
from aotc.errors import AotcError
from aotc.files.folders import belongs_to_others, make_folder
from aotc.files.user_folders import config_folder

if TYPE_CHECKING:
    from aotc.signing.keys.key_loading import PrivateKey

_ELSEWHERE: Final = "Set XDG_CONFIG_HOME to a folder of yours, or sign with --key."


def development_key() -> PrivateKey:
    """This user's development key, created at its first use.

    Raises I023 where the file is unusable, I026 where it cannot be written, or where its folder is
    another user's.
    """
    from aotc.files import writing
    from aotc.signing.keys.key_loading import load_private

    require_own_folder()
    secret_path, public_path = _paths()
    if not _is_there(secret_path):
        _create(secret_path)
    key = load_private(secret_path, development=True)
    pem = key.public_pem.encode("ascii")
    # To sign needs the private half alone: a key in a folder that only may be read serves.
    with contextlib.suppress(OSError):
        if not public_path.exists() or public_path.read_bytes() != pem:
            writing.write_atomically(public_path, pem, mode=0o644, durable=True)
    return key


def require_own_folder() -> None:
    """Raise I026 where the folder of the development key is another user's."""
    folder = _paths()[0].parent
    if _is_of_others(folder):
        raise AotcError(
            "AOTC-I026",
            "the folder of the development key belongs to another user",
            where=str(folder),
            fix=_ELSEWHERE,
        )


def default_trust() -> tuple[TrustedKey, ...]:
    """The development public key of this user, if there is one; nothing else is trusted unasked."""
    try:
        secret_path, public_path = _paths()
        if _is_of_others(secret_path.parent) or not secret_path.is_file():
            return ()
        blocks = split_pem(public_path.read_text("ascii")) if public_path.is_file() else ()
    except (AotcError, OSError, UnicodeDecodeError):
        return ()
    if len(blocks) != 1:
        from aotc.signing.keys.key_loading import load_private

        return (load_private(secret_path, development=True).trusted(),)
    return (TrustedKey(pem=blocks[0], origin="development key", development=True),)


def resolve_trust(
    trust: str | Path | None = None, key: str | Path | None = None
) -> tuple[TrustedKey, ...]:
    """The keys that may vouch: those of `trust` and `key`, or the default where neither is given.

    Raises I001, G013 (for `trust`), I023 (for `key`).
    """
    if trust is None and key is None:
        return default_trust()
    from aotc.signing.keys.key_loading import load_public

    found: dict[str, TrustedKey] = {}
    if trust is not None:
        found.update((each.pem, each) for each in load_public(Path(trust)))
    if key is not None:
        found.update((each.pem, each) for each in load_public(Path(key), code="AOTC-I023"))
    development = {each.pem for each in default_trust()}
    return tuple(
        TrustedKey(pem=each.pem, origin=each.origin, development=each.pem in development)
        for each in found.values()
    )


def _paths() -> tuple[Path, Path]:
    base = config_folder()
    if base is None:
        raise AotcError(
            "AOTC-I026", "this user has no home folder for a development key", fix=_ELSEWHERE
        )
    return base / "aotc" / "development.pem", base / "aotc" / "development.pub"


def _is_there(path: Path) -> bool:
    """Whether there is a key; a file of no bytes is what a killed process left."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return path.exists()


def _create(path: Path) -> None:
    """Of several processes that create the key at once, one wins and all use its key."""
    from aotc.files import writing
    from aotc.signing.keys import key_files

    secret_pem, _ = key_files.new_pair()
    try:
        make_folder(path.parent)
        key_files.remove_empty(path)
        with contextlib.suppress(FileExistsError):
            writing.write_new(path, secret_pem, mode=0o600, durable=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def _is_of_others(folder: Path) -> bool:
    """Whether what is there is another user's: their key, or a link to a file of this one's."""
    try:
        return belongs_to_others(folder)
    except OSError:
        return False  # It is not there, or is told by what is read or written in it.


def _unwritable(path: Path, error: OSError) -> AotcError:
    from aotc.signing.keys import key_files

    found = key_files.unwritable(path, error)
    if found.code == "AOTC-I026":
        found.fix = _ELSEWHERE
    return found
