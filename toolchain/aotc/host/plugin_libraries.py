"""Plugin libraries on this machine: the user's setting of their paths, and their digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.folders import belongs_to_others, cache_folder, make_folder
from aotc.base.files.reading import file_sha256, file_state, read_at_most

# `NAME=PATH` pairs, separated as in PATH: the provider's ORT name, and its library.
PLUGINS_VARIABLE = "AOTC_PLUGINS"
_MAX_CACHE_BYTES = 1 << 24
_CACHE_NAME = "library-digests.json"
# How long another process is waited for: hashing again costs less than a long wait.
_LOCK_SECONDS = 1.0


def stated_libraries() -> dict[str, Path]:
    """Libraries by the provider's ORT name, as the environment states them; raises I027."""
    stated = {}
    for pair in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep):
        name, equals, path = pair.partition("=")
        if pair and not (name and equals and path):
            raise AotcError(
                "AOTC-I027",
                "this does not name a plugin",
                where=f"${PLUGINS_VARIABLE}",
                expected="NAME=PATH, the provider as ONNX Runtime names it and its library",
                found=pair,
            )
        if pair:
            stated[name] = Path(path)
    return stated


def libraries_in(folder: Path) -> tuple[Path, ...]:
    """The shared libraries in a plugin's folder: the plugin loads the others there as well."""
    return tuple(
        sorted(
            path
            for path in folder.iterdir()
            if (".so" in path.suffixes or path.suffix == ".dll") and not path.is_symlink()
        )
    )


def libraries_digest(files: Iterable[Path]) -> str:
    """The digest of a plugin: for one file its SHA-256 in hex.

    For several it is the SHA-256 over the lines `digest, two spaces, name`, ordered by path.  The
    digests of files are cached for the user and reused while inode, size and times of a file stay
    the same, because hashing all libraries of a plugin takes longer than loading a small model.
    Raises `OSError` if a file cannot be read.
    """
    ordered = sorted(files)
    return _combined_digest(tuple((path, file_state(path)) for path in ordered))


@cache
def _combined_digest(found: tuple[tuple[Path, tuple[int, ...]], ...]) -> str:
    folder = cache_folder()
    place = folder / "aotc" / _CACHE_NAME if folder is not None else None
    known = _read_cache(place)
    files = [path for path, _ in found]
    states = {str(path): list(state) for path, state in found}
    missing = [path for path in files if known.get(str(path), [None])[:-1] != states[str(path)]]
    if missing:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as pool:
            hashed = zip(missing, pool.map(file_sha256, missing), strict=True)
            new: dict[str, list[int | str]] = {
                str(path): [*states[str(path)], digest] for path, digest in hashed
            }
        known |= new
        _add_to_cache(place, new)
    digests = [(path.name, known[str(path)][-1]) for path in files]
    if len(digests) == 1:
        return str(digests[0][1])
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests)
    return hashlib.sha256(lines.encode()).hexdigest()


def _read_cache(place: Path | None) -> dict[str, list[int | str]]:
    try:
        # On other systems ctime means something else (`file_state`).
        if (
            place is None
            or os.name != "posix"
            or belongs_to_others(place.parent)
            or belongs_to_others(place)
        ):
            return {}
        found = json.loads(read_at_most(place, _MAX_CACHE_BYTES))
    except (OSError, ValueError, AttributeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, list) and len(v) == 6}


def _add_to_cache(place: Path | None, found: dict[str, list[int | str]]) -> None:
    """Keep digests for the next time; a cache that cannot be written is ignored."""
    if place is None:
        return
    from aotc.base.files.locks import editing
    from aotc.base.files.writing import write_atomically

    try:
        make_folder(place.parent)
        if belongs_to_others(place.parent):
            return
        with editing(place, seconds=_LOCK_SECONDS):
            # Keep what other processes added since it was read.
            known = _read_cache(place) | found
            write_atomically(place, json.dumps(known).encode(), mode=0o600)
    except (OSError, AotcError):
        return
