"""Recorded requests, as JSON Lines and as CSV."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz_target import Target

from aotc.base.errors import AotcError
from aotc.spec.payload import Value
from aotc.spec.traffic import MAX_SIZE, read_traffic

INPUTS = (
    Value(name="ids", dtype="int64", shape=("batch", "seq")),
    Value(name="image", dtype="float32", shape=("batch", 3, 8, 8)),
    Value(name="any", dtype="float32", shape=None),
)
CODES = {"AOTC-S020", "AOTC-S021", "AOTC-S022", "AOTC-S023"}
_FOLDER = tempfile.TemporaryDirectory(prefix="aotc-fuzz-")
atexit.register(_FOLDER.cleanup)
FILES = [Path(_FOLDER.name) / name for name in ("t.jsonl", "t.csv")]
AGAIN = Path(_FOLDER.name) / "again.jsonl"
WORDS = frozenset(
    {"ids", "image", "any", "batch", "seq", "count", "ids.0", "ids.1", "[1, 3, 8, 8]"}
)


def check(data: bytes) -> bool:
    """Sizes and counts are possible ones, and are written and read back unchanged."""
    accepted = False
    for path in FILES:
        path.write_bytes(data)
        for inputs in (None, INPUTS):
            accepted |= _reads(path, inputs)
    return accepted


def _reads(path: Path, inputs: tuple[Value, ...] | None) -> bool:
    try:
        found = read_traffic(path, inputs)
    except AotcError as error:
        errors = (error, *error.also)
        assert {item.code for item in errors} <= CODES
        assert len(errors) <= 20
        return False
    assert found.requests >= 1
    assert len(set(found.dims)) == len(found.dims)
    for sizes, count in found.counts.items():
        assert len(sizes) == len(found.dims)
        assert all(0 <= size <= MAX_SIZE for size in sizes)
        assert count >= 1
    lines = [{**sizes, "count": count} for sizes, count in found.sizes()]
    if "count" in found.dims or any(count > MAX_SIZE for count in found.counts.values()):
        return True
    AGAIN.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    again = read_traffic(AGAIN)
    assert (again.dims, again.counts) == (found.dims, found.counts)
    return True


def seeds() -> Iterator[bytes]:
    """Each format once, and lines that are refused."""
    yield b'{"ids": [1, 40], "image": [1, 3, 8, 8], "any": [2]}\n{"ids": [2, 7], "count": 3}\n'
    yield b'{"batch": 1, "seq": 40}\n\n{"batch": 2, "seq": 7, "count": 2}\n'
    yield b'{"batch": 1, "ids.1": 40}\n'
    yield b"batch,seq,count\n1,40,2\n\n 2 , 7 ,1\n"
    yield b'\xef\xbb\xbf"batch","ids.1"\r\n1,"40"\r\n'
    yield b'{"seq": -1}\n{"seq": 1.5}\n{"seq": true}\n[]\n{"ids": [1]}\n'
    yield b'a,b\n1\n1,2,3\n1,"2\n'


TARGET = Target("traffic", check, seeds, WORDS, 2048)
