"""A small real artifact, changed by a list of edits and signed again, so that it is trusted.

An input is a JSON list of edits `[document, path, what, with]`: `set`, `drop`, `copy` (from another
path of the document) or `grow` (repeat a text or list) what is at the path of aotc.json or
manifest.json; `put` bytes in hex at an offset of another file, or `cut` it there.  It does not
depend on the release that made the artifact, so it keeps its meaning when the manifest changes.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from made_keys import TRUSTED
from structured import ODD

from aotc.trust import oms

Json = Any
DOCUMENTS = ("aotc.json", "manifest.json")
MOST_EDITS, MOST_GROWN = 8, 20_000
GROWN = (2, 100, 8193, 20_000)
# What other parts of a manifest look like, so that they are reached at all.
PARTS: tuple[Json, ...] = (
    *("batch", "x", "y", "string", "int64", "int4", "tensor", "sequence", "map", "optional"),
    *("fixtures/opt/x.npy", "model/portable/model.onnx", "CPUExecutionProvider", "a/b", "native"),
    {"min": 1, "opt": 2, "max": 8, "origin": "stated"},
    {"min": 1, "opt": 2, "max": 8, "origin": "stated", "pad_from": 4},
    {"min": 1, "opt": 2, "max": 8, "origin": "stated", "buckets": [2, 8]},
    {"inputs": {"x": {"value": 0}}, "crops": [{"output": "y", "axis": 0, "dims": {"batch": 1}}]},
    {"dim": "total", "terms": {"batch": 2}, "constant": 1},
    {"name": "opt", "path": "fixtures/opt/x.npy"},
    {"atol": 1e-9, "rtol": 0.0},
    {"session.intra_op.allow_spinning": "0"},
)


@dataclass(frozen=True)
class Base:
    """The artifact before it is edited."""

    documents: dict[str, Json]
    files: dict[str, bytes]


@functools.cache
def base() -> Base:
    """Built once; only its sizes and digests depend on this machine."""
    from artifact_builder import build_artifact

    with tempfile.TemporaryDirectory(prefix="aotc-fuzz-") as place:
        payload = build_artifact(Path(place) / "a.aotc", TRUSTED, native=False) / "payload"
        files = {
            path.relative_to(payload).as_posix(): path.read_bytes()
            for path in sorted(payload.rglob("*"))
            if path.is_file()
        }
    documents = {name: json.loads(files.pop(name)) for name in DOCUMENTS}
    return Base(documents, files)


def edited(data: bytes) -> Base | None:
    """The artifact with the edits of an input; None if it is not a list of edits."""
    try:
        edits = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(edits, list) or len(edits) > MOST_EDITS:
        return None
    made = Base(json.loads(json.dumps(base().documents)), dict(base().files))
    for edit in edits:
        try:
            name, path, what, more = edit
            if name in DOCUMENTS:
                _edit(made.documents, [name, *path], what, more)
            elif name in made.files:
                made.files[name] = _spliced(made.files[name], int(path), what, more)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
            # It fits no more, as an earlier edit took its place away.
            continue
    return made


def written(made: Base, place: Path) -> bool:
    """Write and sign it; false if JSON cannot represent it, or it would be too large."""
    shutil.rmtree(place, ignore_errors=True)
    payload = place / "payload"
    files = dict(made.files)
    try:
        files["manifest.json"] = json.dumps(made.documents["manifest.json"]).encode()
        _refit(made.documents["aotc.json"], files)
        files["aotc.json"] = json.dumps(made.documents["aotc.json"]).encode()
    except (ValueError, RecursionError):
        return False
    if sum(map(len, files.values())) > 1 << 20:
        return False
    for name, content in files.items():
        path = payload / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    (place / "attestations").mkdir()
    (place / "attestations" / "oms.sigstore.json").write_bytes(oms.sign(digests, TRUSTED))
    return True


def mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """One edit more, one less, or a different one."""
    drawn = random.Random(seed)
    try:
        edits = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        edits = []
    if not isinstance(edits, list):
        edits = []
    if edits and (len(edits) == MOST_EDITS or drawn.random() < 0.3):
        edits.pop(drawn.randrange(len(edits)))
    else:
        made = edited(json.dumps(edits).encode()) or base()
        edits.append(_drawn_edit(made, drawn))
    text = json.dumps(edits).encode()
    return text if len(text) <= size else None


def _drawn_edit(made: Base, drawn: random.Random) -> Json:
    if drawn.random() < 0.15:
        name = drawn.choice(sorted(made.files))
        offset = drawn.randrange(len(made.files[name]) + 1)
        if drawn.random() < 0.3:
            return [name, offset, "cut", None]
        return [name, offset, "put", drawn.randbytes(drawn.choice((1, 1, 2, 4, 8))).hex()]
    name = drawn.choice(("aotc.json", "aotc.json", "aotc.json", "manifest.json"))
    places = list(_paths(made.documents[name]))
    path = drawn.choice(places)
    what = drawn.choice(("set", "set", "set", "drop", "copy", "grow", "add"))
    if what == "add":
        # A field of the same record, or an item of the list, that is not there yet.
        return [name, [*path, drawn.choice((*_names(), 0))], "set", _value(drawn)]
    more: Json = None
    if what == "copy":
        more = drawn.choice(places)
    elif what == "grow":
        more = drawn.choice(GROWN)
    elif what == "set":
        more = _value(drawn)
    return [name, path, what, more]


def _value(drawn: random.Random) -> Json:
    return drawn.choice((*ODD, *PARTS, *PARTS))


@functools.cache
def _names() -> tuple[str, ...]:
    from structured import words_of

    from aotc.spec.manifest import Manifest

    return tuple(sorted(words_of(Manifest)))


def _paths(value: Json, at: tuple[Json, ...] = ()) -> Iterator[list[Json]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield [*at, key]
            yield from _paths(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:20]):
            yield [*at, index]
            yield from _paths(item, (*at, index))


def _edit(documents: dict[str, Json], path: list[Json], what: str, more: Json) -> None:
    *way, last = path
    holder = documents
    for part in way:
        holder = holder[part]
    if what == "set":
        _put(holder, last, more)
    elif what == "drop":
        del holder[last]
    elif what == "copy":
        found = documents[path[0]]
        for part in more:
            found = found[part]
        _put(holder, last, json.loads(json.dumps(found)))
    elif what == "grow" and isinstance(holder[last], str | list):
        times = min(int(more), MOST_GROWN // max(1, len(json.dumps(holder[last]))))
        holder[last] = holder[last] * max(1, times)


def _put(holder: Json, last: Json, value: Json) -> None:
    if isinstance(holder, list) and last == len(holder):
        holder.append(value)
    elif isinstance(holder, list) or isinstance(last, str):
        holder[last] = value


def _spliced(content: bytes, offset: int, what: str, more: Json) -> bytes:
    if not 0 <= offset <= len(content):
        return content
    if what == "cut":
        return content[:offset]
    new = bytes.fromhex(more)
    return content[:offset] + new + content[offset + len(new) :]


def _refit(manifest: Json, files: dict[str, bytes]) -> None:
    """Update sizes and digests of existing files, so that only the other edits are wrong."""
    listed = manifest.get("files") if isinstance(manifest, dict) else None
    for entry in listed if isinstance(listed, list) else ():
        content = files.get(str(entry.get("path"))) if isinstance(entry, dict) else None
        if content is not None:
            entry["size"] = len(content)
            entry["sha256"] = hashlib.sha256(content).hexdigest()


def make_place() -> Path:
    """A folder of this process."""
    found = tempfile.TemporaryDirectory(prefix="aotc-fuzz-")
    atexit.register(found.cleanup)
    return Path(found.name)
