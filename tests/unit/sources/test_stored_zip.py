"""Archives that are not compressed: what is read of them, and how they are made anew."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import zipfile
import zlib

import pytest
from refusals import refusal_code

from aotc.sources.stored_zip import Rewritten, entry_sha256, read_entries, read_entry

FILES = {"a/one": b"1" * 10, "a/two": b"", "a/b/three": bytes(range(256)) * 50}


def packed(*, wide: bool = False) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in FILES.items():
            with archive.open(name, "w", force_zip64=wide) as file:
                file.write(content)
    return out.getvalue()


def with_wide_end(data: bytes) -> bytes:
    """The archive with the end records of one of more than 4 GiB."""
    end = data.rindex(b"PK\5\6")
    count, length, start = struct.unpack_from("<HLL", data, end + 10)
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    full = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    return data[:end] + wide + locator + full


@pytest.mark.parametrize("data", [packed(), packed(wide=True), with_wide_end(packed())])
def test_files_are_found(data: bytes) -> None:
    file = io.BytesIO(data)
    entries = read_entries(file)
    assert {entry.name: read_entry(file, entry, 1 << 20) for entry in entries} == FILES
    assert entry_sha256(file, entries[2]) == hashlib.sha256(FILES["a/b/three"]).hexdigest()


def test_two_lists_that_differ_are_refused() -> None:
    data = bytearray(with_wide_end(packed()))
    struct.pack_into("<H", data, len(data) - 12, 2)
    assert refusal_code(read_entries, io.BytesIO(data)) == "AOTC-I130"


def test_a_file_beyond_its_limit_is_refused() -> None:
    file = io.BytesIO(packed())
    assert refusal_code(read_entry, file, read_entries(file)[0], 9) == "AOTC-I130"


def test_an_archive_made_anew_is_read_in_any_pieces() -> None:
    source = io.BytesIO(packed())
    entries = {entry.name: entry for entry in read_entries(source)}
    made = Rewritten(source, {"m/new": b"new"}, {"m/three": entries["a/b/three"]})
    whole = made.read()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
        assert archive.read("m/three") == FILES["a/b/three"]
        assert archive.namelist() == ["m/new", "m/three"]
    drawn = random.Random(0)
    for _ in range(300):
        start, length = drawn.randrange(len(whole) + 10), drawn.randrange(9000)
        made.seek(start)
        assert made.read(length) == whole[start : start + length]
    assert made.seek(0, io.SEEK_END) == len(whole)
    assert [entry.crc32 for entry in read_entries(io.BytesIO(whole))] == [
        zlib.crc32(b"new"),
        zlib.crc32(FILES["a/b/three"]),
    ]
