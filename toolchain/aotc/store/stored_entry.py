"""The path of a store's entry, and that only the store's owners can change it."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.artifact_names import ID_PREFIX
from aotc.errors import AotcError
from aotc.files.ownership import Unsafe, can_check_owners, sizes_below
from aotc.store.hold import Hold
from aotc.verification.stores import owners


def entry_path(root: Path, artifact_id: str) -> Path:
    """The folder of an artifact in the store `root`, whether or not it exists."""
    return root / f"{ID_PREFIX}{artifact_id}"


def acceptance_path(root: Path, artifact_id: str) -> Path:
    """The file beside an entry that tells which fixtures matched in loads of the store's owner."""
    return root / f"accepted-{artifact_id}.json"


def require_ours(entry: Path, entry_hold: Hold) -> None:
    """Raise AOTC-R016 if others than the store's owners may change an entry that is held.

    In a store that once belonged to another user, that user may still be there.
    """
    if not can_check_owners():
        return
    try:
        sizes_below(entry_hold.descriptor, entry, owners())
    except Unsafe as error:
        raise error.refusal("AOTC-R016", "the store") from None
    except OSError as error:
        raise AotcError(
            "AOTC-R016", f"the entry cannot be examined: {error.strerror}", where=str(entry)
        ) from None
