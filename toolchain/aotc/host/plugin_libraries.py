"""Plugin libraries on a machine: where the user says they are, and the digest that names them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.folders import belongs_to_others, make_folder
from aotc.files.locking import editing
from aotc.files.writing import write_atomically

# `NAME=PATH` pairs, separated as in PATH: provider, as ORT names it, and its library.
PLUGINS_VARIABLE = "AOTC_PLUGINS"
_KNOWN = "library-digests.json"
# How long another process is waited for: to hash once more costs less than to wait for long.
_LOCK_SECONDS = 1.0


def stated_libraries() -> dict[str, Path]:
    """Libraries by ORT's name of the provider, as the environment states them; raises I027."""
    stated = {}
    for pair in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep):
        name, equals, path = pair.partition("=")
        if pair and not (name and equals and path):
            raise AotcError(
                "AOTC-I027",
                "this names no plugin",
                where=f"${PLUGINS_VARIABLE}",
                expected="NAME=PATH, the provider as ONNX Runtime names it and its library",
                found=pair,
            )
        if pair:
            stated[name] = Path(path)
    return stated


def libraries_in(folder: Path) -> tuple[Path, ...]:
    """The shared libraries of a plugin's folder: it computes with those beside it as well."""
    return tuple(
        sorted(
            path
            for path in folder.iterdir()
            if (".so" in path.suffixes or path.suffix == ".dll") and not path.is_symlink()
        )
    )


def libraries_digest(files: Iterable[Path]) -> str:
    """The digest of a plugin: of one file its SHA-256.

    Of several, the SHA-256 over the lines `digest, two spaces, name` in order of names.  Digests of
    files are kept in the user's cache and taken from there while inode, size and times of a file
    are the same, as hashing all libraries of a plugin takes longer than loading a small model.
    Raises `OSError` where a file cannot be read.
    """
    ordered = sorted(files)
    return _digest(tuple((path, _state(path)) for path in ordered))


@cache
def _digest(found: tuple[tuple[Path, tuple[int, ...]], ...]) -> str:
    place = _cache_file()
    known = _read(place)
    files = [path for path, _ in found]
    states = {str(path): list(state) for path, state in found}
    missing = [path for path in files if known.get(str(path), [None])[:-1] != states[str(path)]]
    if missing:
        with ThreadPoolExecutor(2) as pool:
            hashed = zip(missing, pool.map(_sha256, missing), strict=True)
            new: dict[str, list[int | str]] = {
                str(path): [*states[str(path)], digest] for path, digest in hashed
            }
        known |= new
        _add(place, new)
    digests = [(path.name, known[str(path)][-1]) for path in files]
    if len(digests) == 1:
        return str(digests[0][1])
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests)
    return hashlib.sha256(lines.encode()).hexdigest()


def _state(path: Path) -> tuple[int, ...]:
    # The time of change cannot be set, unlike that of modification.
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache_file() -> Path | None:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(home) / "aotc" / _KNOWN if home.startswith("/") else None


def _read(place: Path | None) -> dict[str, list[int | str]]:
    try:
        # Elsewhere the time of change may be another one (`_state`).
        if (
            place is None
            or os.name != "posix"
            or belongs_to_others(place.parent)
            or belongs_to_others(place)
        ):
            return {}
        found = json.loads(place.read_text())
    except (OSError, ValueError, AttributeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, list) and len(v) == 6}


def _add(place: Path | None, found: dict[str, list[int | str]]) -> None:
    """Keep digests for the next time; a cache that cannot be written is none."""
    if place is None:
        return
    try:
        make_folder(place.parent)
        if belongs_to_others(place.parent):
            return
        with editing(place, seconds=_LOCK_SECONDS):
            # What other processes kept since it was read stays.
            known = _read(place) | found
            write_atomically(place, json.dumps(known).encode(), mode=0o600)
    except (OSError, AotcError):
        return
