"""Where stores are, who must own them, and which entry an id names.

A store, and each folder on its path, must belong to root, to the user of this process, or to the
user that $AOTC_SYSTEM_STORE_OWNER names, and nobody else may write to them (see `ownership`).
Otherwise its owner could replace its content between check and use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import cache_folder
from aotc.base.files.ownership import ROOT_USER, Unsafe, can_check_owners, open_folder
from aotc.spec.versions import ID_PREFIX

DEFAULT_ROOT: Final = Path("/var/lib/aotc/store")
_STORE_OPTIONS: Final = "--store, AOTC_STORE"


def default_root() -> Path:
    """The store of this user: $AOTC_STORE, or aotc/store in $XDG_CACHE_HOME or ~/.cache.

    Raises AOTC-R007 if the user does not have a home folder.
    """
    stated = os.environ.get("AOTC_STORE")
    if stated:
        return Path(stated)
    cache = cache_folder()
    if cache is None:
        raise AotcError("AOTC-R007", "this user does not have a home folder for a store")
    return cache / "aotc" / "store"


def system_root() -> Path | None:
    """The system-wide store: $AOTC_SYSTEM_STORE or /var/lib/aotc/store; None if that is empty."""
    stated = os.environ.get("AOTC_SYSTEM_STORE")
    if stated is None:
        return DEFAULT_ROOT
    return Path(stated) if stated else None


def system_owner() -> int:
    """The user id that $AOTC_SYSTEM_STORE_OWNER names, or root's.

    Raises AOTC-R016 if there is no such user.
    """
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
            "the owner of the system-wide store is not a user of this host",
            where="AOTC_SYSTEM_STORE_OWNER",
            expected="a user's name or number",
            found=stated,
            fix="Name a user of this host, or leave the variable out for root.",
        ) from None


def owners() -> tuple[int, ...]:
    """The user ids that may own a store besides root: this user, and `system_owner`."""
    return (os.geteuid(), system_owner())


def require_safe(root: Path, *, make: int | None = None) -> bool:
    """Whether a store exists; raises AOTC-R016 if users other than its owners can change it.

    With `make`, a file mode, it and missing folders above it are created with that mode.
    Raises OSError if it cannot be examined or created.
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
        raise error.refusal("AOTC-R016", "the store", _STORE_OPTIONS) from None
    return True


def entry_path(artifact_id: str, roots: Iterable[Path] | None = None) -> Path:
    """The path of an entry in the first store that has it.

    `roots` are the stores; by default the system-wide store and this user's.  Raises AOTC-I001 if
    no store has it, and R016 if a store that is searched is not safe.
    """
    name = f"{ID_PREFIX}{artifact_id}"
    searched = []
    for root in _safe_roots() if roots is None else roots:
        searched.append(str(root.absolute()))
        if (root.absolute() / name).is_dir():
            return root.absolute() / name
    raise AotcError(
        "AOTC-I001",
        "no store has an artifact with this id",
        where=name,
        expected="sha256- and all 64 digits of an id, for an entry of a store",
        found=f"an id that is not in {' or '.join(searched)}",
        fix=f"'aotc store list --json' shows the ids of a store. A folder of this name is ./{name}",
    )


def _safe_roots() -> Iterator[Path]:
    system = system_root()
    if system is not None:
        try:
            if require_safe(system):
                yield system
        except (AotcError, OSError):
            # The default one is skipped if it is unsafe; a named one is not.
            if "AOTC_SYSTEM_STORE" in os.environ:
                raise
    own = default_root()
    with suppress(OSError):
        require_safe(own)
    yield own
