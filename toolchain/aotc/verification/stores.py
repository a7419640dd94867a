"""Where stores are, whose they have to be, and which entry an id names.

A store belongs to root, to the user of this process, or to the user whom $AOTC_SYSTEM_STORE_OWNER
names, and so does each folder that leads to it; nobody else may write them (`files.ownership`).
Else its owner could swap what is in it between check and use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.contract.artifact_names import ID_PREFIX
from aotc.errors import AotcError
from aotc.files.ownership import ROOT_USER, Unsafe, can_check_owners, open_folder
from aotc.files.user_folders import cache_folder

DEFAULT_ROOT: Final = Path("/var/lib/aotc/store")
_ELSEWHERE: Final = "--store, AOTC_STORE"


def default_root() -> Path:
    """$AOTC_STORE, or aotc/store in $XDG_CACHE_HOME or ~/.cache; raises R007 with no home."""
    stated = os.environ.get("AOTC_STORE")
    if stated:
        return Path(stated)
    cache = cache_folder()
    if cache is None:
        raise AotcError("AOTC-R007", "this user has no home folder for a store")
    return cache / "aotc" / "store"


def system_root() -> Path | None:
    """$AOTC_SYSTEM_STORE, or /var/lib/aotc/store; None where the variable is empty."""
    stated = os.environ.get("AOTC_SYSTEM_STORE")
    if stated is None:
        return DEFAULT_ROOT
    return Path(stated) if stated else None


def system_owner() -> int:
    """The user that $AOTC_SYSTEM_STORE_OWNER names, or root; raises R016 for no such user."""
    stated = os.environ.get("AOTC_SYSTEM_STORE_OWNER", "")
    if not stated:
        return ROOT_USER
    if stated.isascii() and stated.isdigit():
        return int(stated)
    import pwd

    try:
        return pwd.getpwnam(stated).pw_uid
    except KeyError:
        raise AotcError(
            "AOTC-R016",
            "there is no such user to own the system-wide store",
            where="AOTC_SYSTEM_STORE_OWNER",
            expected="a user's name or number",
            found=stated,
            fix="Name a user of this host, or leave the variable out for root.",
        ) from None


def owners() -> tuple[int, ...]:
    """Who may own a store beside root: this user, and whom the environment names; raises R016."""
    return (os.geteuid(), system_owner())


def require_safe(root: Path, *, make: int | None = None) -> bool:
    """Whether a store is there; R016 where others than its owners may change it.

    With a mode to `make` them with, it and the folders above it that are missing are made.
    Raises OSError where it cannot be looked at or made.
    """
    if not can_check_owners():
        if make is not None:
            root.mkdir(parents=True, exist_ok=True)
        return root.is_dir()
    try:
        os.close(open_folder(root, owners(), make=make))
    except FileNotFoundError:
        return False
    except Unsafe as error:
        raise error.refusal("AOTC-R016", "the store", _ELSEWHERE) from None
    return True


def entry_path(artifact_id: str, roots: Iterable[Path] | None = None) -> Path:
    """The entry of an id in the first of these stores that has it.

    Without `roots` they are the system-wide one and this user's.  Raises I001 where none has it,
    R016 where one that is looked into is not safe.
    """
    name = f"{ID_PREFIX}{artifact_id}"
    looked = []
    for root in _safe_roots() if roots is None else roots:
        looked.append(str(root.absolute()))
        if (root.absolute() / name).is_dir():
            return root.absolute() / name
    raise AotcError(
        "AOTC-I001",
        "no store has an artifact of this id",
        where=name,
        expected="sha256- and all 64 digits of an id, to take an entry of a store",
        found=f"an id that is not in {' or '.join(looked)}",
        fix=f"'aotc store list --json' tells a store's ids. A folder of this name is ./{name}",
    )


def _safe_roots() -> Iterator[Path]:
    system = system_root()
    if system is not None:
        try:
            if require_safe(system):
                yield system
        except (AotcError, OSError):
            # One that nobody named is passed over; this user's may still have it.
            if "AOTC_SYSTEM_STORE" in os.environ:
                raise
    own = default_root()
    with suppress(OSError):
        require_safe(own)
    yield own
