"""What may be replaced, and how a finished file or folder takes its name in one step.

Where the system can exchange two names (renameat2 of Linux), a reader finds what was there or what
is new, and nothing between.  Where it cannot, as on some network file systems, what was there is
moved aside first, and back if the rest fails.  A folder of a lower layer of an overlay, as in every
container, can be neither exchanged nor moved: it is copied aside, emptied and renamed over.  In
both cases what a killed process leaves is put right by `recover`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import time
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.files.failures import cannot_write
from aotc.files.folders import FOLDER
from aotc.files.mounts import mounted_in
from aotc.files.removing import empty, empty_open, erase
from aotc.files.renaming import EXISTS, UNKNOWN, exchange, rename_new

NEW: Final = "new"
"""The draft in a work folder; once it has its place, nothing is to be put back any more."""
OLD: Final = "old"
"""What was moved aside, beside the draft that takes its place."""

# All that an artifact's folder holds; what lies beside them is somebody's own.
_PARTS: Final = frozenset((PAYLOAD, ATTESTATIONS))
# Others replace the same: who was slower tries again.
_TRIES: Final = 200
_PAUSE_SECONDS: Final = 0.01


def check_output(
    place: Path,
    *,
    folder: bool = False,
    force: bool = False,
    writes_through: bool = False,
    fix: str = "",
) -> None:
    """Raise AOTC-I017 where what is at `place` must stay, AOTC-I026 where nothing can be written.

    Without `force` whatever is there stays.  With it an output that is a `folder` replaces the
    folder of an artifact alone, with nothing else in it, and a file a plain file alone that this
    user may write.  Other folders, links, devices and pipes are nobody's output of ours and stay.
    `writes_through`: the caller follows links and writes to devices instead of replacing them.
    """
    try:
        why = why_kept(place, folder=folder, writes_through=writes_through)
        if why is not None and not force:
            raise _refused(place, "the output exists", fix)
        if why:
            what = f"the output exists and {why}, so that --force does not replace it"
            raise _refused(
                place, what, fix or "Choose another output with -o, or remove it yourself."
            )
        if why is None and not place.absolute().parent.is_dir():
            raise AotcError(
                "AOTC-I026", "the output's folder does not exist", where=str(place.parent)
            )
    except OSError as error:
        raise cannot_write(error, "cannot write the output", str(place)) from None


def why_kept(place: Path, *, folder: bool = False, writes_through: bool = False) -> str | None:
    """Why what is there stays; empty where it may be replaced, None where nothing is there.

    See `check_output`.  Raises OSError.
    """
    try:
        found = named = place.lstat()
    except FileNotFoundError:
        return None
    if writes_through and not stat.S_ISDIR(found.st_mode):
        try:
            found = place.stat()
        except FileNotFoundError:
            return ""
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            return ""
    if stat.S_ISLNK(found.st_mode):
        return "is no artifact but a link" if folder else "is a link"
    if folder:
        why = _why_folder_kept(place)
        if not why or _stands(place, named):
            return why
        # Somebody replaced it meanwhile.
        return why_kept(place, folder=folder, writes_through=writes_through)
    if not stat.S_ISREG(found.st_mode):
        return "is a folder" if stat.S_ISDIR(found.st_mode) else "is no plain file"
    owner = getattr(os, "geteuid", lambda: found.st_uid)()
    if owner in (0, found.st_uid) or os.access(place, os.W_OK):
        return ""
    return "belongs to another user, who lets nobody write it"


def _why_folder_kept(place: Path) -> str:
    if not place.name.strip(".") or not is_artifact(place):
        return "is no artifact"
    try:
        foreign = sorted({each.name for each in place.iterdir()} - _PARTS)
    except FileNotFoundError:
        return "is no artifact"
    if foreign:
        return f"holds {foreign[0]!r}, which is of no artifact"
    mounted = mounted_in(place)
    if mounted is not None:
        # To remove what was replaced would remove what is mounted there.
        if mounted == place.resolve():
            return "is a mount point"
        return f"has {mounted.name!r} mounted in it"
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return ""
    # No folder is taken away from under who stands in it.
    return "holds the current folder" if here.is_relative_to(place.resolve()) else ""


def put(draft: Path, place: Path, *, force: bool = False, fix: str = "") -> None:
    """Give the finished file or folder `draft` the name `place`.

    What it replaced lies at `draft` then, or at `OLD` beside it: the caller's to remove.
    Of several processes that replace the same at once, the last one's stands.
    Raises AOTC-I017 as `check_output` does, and OSError; what was there stands then.
    """
    folder = draft.is_dir()
    for _ in range(_TRIES):
        check_output(place, folder=folder, force=force, fix=fix)
        try:
            rename_new(draft, place)
            return
        except FileExistsError:
            if not force:
                raise _refused(place, "the output exists", fix) from None
        try:
            if _swap(draft, place, folder=folder):
                return
        except OSError as error:
            if error.errno not in EXISTS and not _is_gone(error, draft):
                raise
        time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - only to be out of step
    raise AotcError(
        "AOTC-I026",
        "other processes replace the output all the time",
        where=str(place),
        fix="Let one of them write it at a time.",
    )


def recover(old: Path, place: Path) -> bool:
    """Put back what a process that was killed moved aside; whether it was.

    Only where nothing stands at `place`, or the rest of what `old` is the whole of.
    Raises OSError.
    """
    if not os.path.lexists(old):
        return False
    if not os.path.lexists(place):
        try:
            rename_new(old, place)
        except FileExistsError:
            return False
        return True
    if not _is_rest(place, old):
        return False
    empty(place)
    old.rename(place)
    return True


def is_artifact(folder: Path) -> bool:
    """Whether a folder, and no link to one, holds an artifact."""
    return not folder.is_symlink() and (folder / MANIFEST).is_file()


def _stands(place: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(place.lstat(), found)
    except FileNotFoundError:
        return False


def _refused(place: Path, what: str, fix: str) -> AotcError:
    return AotcError("AOTC-I017", what, where=str(place), fix=fix)


# -- replacing
def _swap(draft: Path, place: Path, *, folder: bool) -> bool:
    """Replace what is at `place`; False where somebody else changed it meanwhile."""
    try:
        exchange(draft, place)
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise
    else:
        # Between the look and the exchange it may have become another thing.
        if why_kept(draft, folder=folder):
            exchange(draft, place)
            return False
        return True
    if not folder:
        draft.replace(place)
        return True
    old = draft.with_name(OLD)
    erase(old)
    try:
        place.rename(old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_whole(place, old)
        return _over_lower(draft, place, old)
    return _instead(draft, place, old)


def _instead(draft: Path, place: Path, old: Path) -> bool:
    """Take the name of what was moved aside; where that fails it gets its name back."""
    try:
        if is_artifact(old):
            draft.rename(place)
            return True
    except BaseException as error:
        recover(old, place)
        if isinstance(error, OSError) and error.errno in EXISTS:
            return False
        raise
    recover(old, place)
    return False


def _over_lower(draft: Path, place: Path, old: Path) -> bool:
    """Empty a folder that cannot be moved, `old` being its copy, and take its name."""
    descriptor = os.open(place, FOLDER)
    try:
        # What another process puts there meanwhile is not emptied.
        empty_open(descriptor)
        draft.rename(place)
    except BaseException as error:
        recover(old, place)
        if isinstance(error, OSError) and error.errno in EXISTS:
            return False
        raise
    finally:
        os.close(descriptor)
    return True


def _copy_whole(source: Path, target: Path) -> None:
    """A copy that has its name once it is whole."""
    part = target.with_name(f"{target.name}.part")
    erase(part)
    shutil.copytree(source, part, symlinks=True)
    part.rename(target)


def _is_rest(place: Path, whole: Path) -> bool:
    """Whether `place` is what is left of an artifact that was emptied: all of it is in `whole`."""
    if place.is_symlink() or not place.is_dir() or (place / MANIFEST).exists():
        return False
    return all(
        os.path.lexists(whole / each.relative_to(place))
        for folder, folders, files in os.walk(place)
        for each in (Path(folder, name) for name in (*folders, *files))
    )


def _is_gone(error: OSError, draft: Path) -> bool:
    """Whether what was to be replaced went meanwhile."""
    return error.errno == errno.ENOENT and os.path.lexists(draft)
