"""What a store holds, and what goes: by size and by age, and never what is in use."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path
from typing import Final

from aotc.contract.artifact_names import ID_PREFIX, stated_id
from aotc.contract.codec.parsing import ParseError
from aotc.contract.codec.strict_json import MAX_JSON_BYTES, strict_json
from aotc.contract.results.store_reports import StoreEntry, StoreListReport, StorePruneReport
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.files.removing import move_aside
from aotc.files.work_folders import name_with_owner
from aotc.records import record
from aotc.store.draft import PREFIX, remove, remove_leftovers
from aotc.store.hold import alone, hold_alone, unwritable, user_of
from aotc.verification.stores import require_safe

# Looking at an entry is no use of it (open(2)); only its owner may ask for that.
_QUIETLY: Final = getattr(os, "O_NOATIME", 0)
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


@record(kw_only=False)
class Entry:
    """An artifact as it lies in a store; sizes in bytes, times in seconds since 1970."""

    path: Path
    bytes: int
    attestations: int
    installed: float
    used: float

    @property
    def artifact_id(self) -> str:
        """That the folder is named by."""
        return self.path.name.removeprefix(ID_PREFIX)


def entries(root: Path) -> list[Entry]:
    """All entries, the one used longest ago first; none where there is no store.

    Raises R007, and R016 where others may change the store.
    """
    try:
        if not require_safe(root):
            return []
        found = [_weighed(path) for path in root.iterdir() if stated_id(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unwritable(error, root) from None
    return sorted(
        (each for each in found if each is not None), key=lambda each: (each.used, each.path.name)
    )


def listed(root: Path) -> StoreListReport:
    """What is in a store, what was used last first; raises what `entries` does."""
    found = entries(root)
    return StoreListReport(
        store=str(root),
        bytes=sum(each.bytes for each in found),
        entries=tuple(
            StoreEntry(
                artifact_id=each.artifact_id,
                name=_name(each.path / MANIFEST),
                bytes=each.bytes,
                attestations=each.attestations,
                installed=_moment(each.installed),
                used=_moment(each.used),
                in_use=_in_use(each.path),
            )
            for each in reversed(found)
        ),
    )


def prune(
    root: Path, *, limit: int | None = None, age: float | None = None, now: float | None = None
) -> StorePruneReport:
    """Remove what was used longest ago until at most `limit` bytes are left, and what is older.

    `age` in seconds since the last use; None for no limit.  What is in use stays, and counts.
    Half-written folders of processes that died go too.  Raises what `entries` does.
    """
    if not _is_there(root):
        return StorePruneReport(store=str(root))
    moment = time.time() if now is None else now
    with alone(root):
        leftovers = _leftovers(root)
        found = entries(root)
        total = sum(each.bytes for each in found)
        gone: list[str] = []
        used: list[str] = []
        freed = 0
        for each in found:
            old = age is not None and moment - each.used > age
            if not old and (limit is None or total - freed <= limit):
                continue
            if _remove(each.path, root):
                gone.append(each.artifact_id)
                freed += each.bytes
            else:
                used.append(each.artifact_id)
    return StorePruneReport(
        store=str(root),
        removed=tuple(gone),
        removed_bytes=freed,
        leftovers=leftovers,
        in_use=tuple(used),
        kept=len(found) - len(gone),
        kept_bytes=total - freed,
    )


def remove_entry(root: Path, artifact_id: str) -> StorePruneReport:
    """Remove one artifact by its id, or by the first digits of it where no other has them.

    Raises I001 where there is no such one, I027 where there are several, R017 where it is in use,
    R007, R016.
    """
    digits = artifact_id.removeprefix(ID_PREFIX)
    before = entries(root)
    found = [each for each in before if digits and each.artifact_id.startswith(digits)]
    if not found:
        raise AotcError(
            "AOTC-I001", "the store has no such artifact", where=f"{root}/{ID_PREFIX}{digits}"
        )
    if len(found) > 1:
        raise AotcError(
            "AOTC-I027",
            "several artifacts of the store have an id that begins so",
            where=digits,
            found=", ".join(each.artifact_id[:16] for each in found),
            fix="Give more digits of the id.",
        )
    (entry,) = found
    with alone(root):
        if not _remove(entry.path, root):
            raise AotcError(
                "AOTC-R017",
                "the artifact is in use, and stays",
                where=str(entry.path),
                found=user_of(entry.path),
            )
    kept = [each for each in before if each is not entry]
    return StorePruneReport(
        store=str(root),
        removed=(entry.artifact_id,),
        removed_bytes=entry.bytes,
        kept=len(kept),
        kept_bytes=sum(each.bytes for each in kept),
    )


def _remove(entry: Path, root: Path) -> bool:
    """Take an entry out of sight by one rename, and remove it; False where it is in use.

    One of an image's lower layer cannot be moved, and is emptied where it is, its aotc.json first.
    What a process that dies on the way leaves is half-written, and goes with the next prune.
    """
    held = hold_alone(entry)
    if held is None:
        return not entry.exists()
    try:
        old = root / name_with_owner(PREFIX)
        try:
            move_aside(entry, old)
        except OSError as error:
            raise unwritable(error, entry) from None
        remove(old)
    finally:
        held.close()
    return True


def _is_there(root: Path) -> bool:
    try:
        return require_safe(root)
    except OSError as error:
        raise unwritable(error, root) from None


def _leftovers(root: Path) -> int:
    try:
        return remove_leftovers(root) + sum(
            _remove(path, root)
            for path in list(root.iterdir())
            if stated_id(path.name) and _is_half_removed(path)
        )
    except OSError as error:
        raise unwritable(error, root) from None


def _is_half_removed(entry: Path) -> bool:
    """Whether an entry has lost its aotc.json, which is there from the first and goes first."""
    try:
        (entry / MANIFEST).lstat()
    except FileNotFoundError:
        return entry.is_dir()
    except OSError:
        return False
    return False


def _weighed(path: Path) -> Entry | None:
    """None for an entry that is gone meanwhile."""
    try:
        own = path.stat()
        payload = (path / PAYLOAD).stat()
        read = _last_read(path / MANIFEST)
        files = [each for each in path.rglob("*") if not each.is_dir()]
        bundles = [each for each in files if each.parent == path / ATTESTATIONS]
        return Entry(
            path=path,
            bytes=sum(each.lstat().st_size for each in files),
            attestations=len(bundles),
            installed=payload.st_mtime,
            used=max(own.st_mtime, read),
        )
    except OSError:
        if not path.exists():
            return None
        # Damaged, or not to be read: it is listed, and may go.
        return Entry(path, 0, 0, path.lstat().st_mtime, path.lstat().st_mtime)


def _last_read(path: Path) -> float:
    """When others than the owner, who may note no use, read a file: as its file system tells."""
    try:
        return path.lstat().st_atime
    except FileNotFoundError:
        return 0.0


def _name(manifest: Path) -> str:
    try:
        try:
            descriptor = os.open(manifest, _READ | _QUIETLY)
        except PermissionError:
            descriptor = os.open(manifest, _READ)
        with os.fdopen(descriptor, "rb") as file:
            document = strict_json(file.read(MAX_JSON_BYTES + 1))
    except (OSError, ParseError):
        return ""
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) else ""


def _in_use(entry: Path) -> bool:
    held = hold_alone(entry)
    if held is None:
        return entry.exists()
    held.close()
    return False


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
