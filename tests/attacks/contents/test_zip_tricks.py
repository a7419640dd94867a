"""Zips that show different files to different readers: each is refused with its code."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_archives import Entry, build, end_record, good, zip64_records

from aotc.base.errors import AotcError
from aotc.tools.inspect import inspect
from aotc.trust.archive import ArchiveContainer
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.packing import pack, unpack

MALFORMED, SPECIAL, LIMITS = "AOTC-G039", "AOTC-G008", "AOTC-G012"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("keys") / "a.pem")[1]


def changed(number: int, **fields: Any) -> list[Entry]:
    """The good files, one of them with other fields."""
    entries = good()
    for name, value in fields.items():
        setattr(entries[number], name, value)
    return entries


def added(*names: bytes) -> list[Entry]:
    """The good files and further ones, sorted."""
    entries = [*good(), *(Entry(name, b"x") for name in names)]
    return sorted(entries, key=lambda entry: entry.name)


def both(number: int, **fields: Any) -> list[Entry]:
    """The good files, with the same fields wrong in both headers of one."""
    return changed(number, local=dict(fields), central=dict(fields))


def deflated() -> list[Entry]:
    entries = good()
    data = entries[2].data
    packer = zlib.compressobj(wbits=-15)
    raw = packer.compress(data) + packer.flush()
    fields = {"method": 8, "packed": len(raw), "needed": 20}
    entries[2] = Entry(entries[2].name, data, dict(fields), dict(fields), raw)
    return entries


def described() -> list[Entry]:
    """The sizes follow the data, as streaming writers write them."""
    entries = good()
    data = entries[2].data
    stated = struct.pack("<4s3L", b"PK\7\10", zlib.crc32(data), len(data), len(data))
    entries[2].local = {"flags": 0x808, "crc": 0, "packed": 0, "size": 0}
    entries[2].central = {"flags": 0x808}
    entries[2].after = stated
    return entries


def overlapping() -> bytes:
    """Many records of one file, as in a zip bomb."""
    entries = good()
    other = Entry(b"payload/model/second.onnx", entries[2].data)
    packed = build(entries)
    start = packed.index(b"PK\1\2")
    offset = packed.rindex(b"PK\3\4", 0, start)
    other.central = {"offset": offset}
    directory = build([*entries, other])
    directory = directory[directory.index(b"PK\1\2") : -22]
    return packed[:start] + directory + end_record(4, len(directory), start)


def swallowing() -> bytes:
    """A file whose bytes hold the next one's header and data."""
    inner = good()
    packed = build(inner)
    middle = packed.index(b"PK\3\4", 1)
    last = packed.index(b"PK\3\4", middle + 1)
    start = packed.index(b"PK\1\2")
    taken = packed[packed.index(b"{}") : last]
    inner[0].data = taken
    directory = build(inner)
    directory = directory[directory.index(b"PK\1\2", len(taken)) : -22]
    return packed[:start] + directory + end_record(3, len(directory), start)


def two_ends() -> bytes:
    """The comment of one end record is another directory with its own end record."""
    shown = build(good())
    hidden = build([Entry(b"payload/evil.onnx", b"evil")])
    return build(good(), comment=hidden[:0] + end_record(1, 60, len(shown)))


def second_directory() -> bytes:
    """Two complete zips in one file: the first and the last end record differ."""
    return build(good()) + build(added(b"payload/evil.onnx"))


def zip64_where_none_is_needed() -> bytes:
    plain = build(good())
    start = plain.index(b"PK\1\2")
    size = len(plain) - 22 - start
    return build(good(), zip64_end=zip64_records(3, size, start, start + size))


def zip64_elsewhere(count: int = 3, size: int | None = None, start: int | None = None) -> bytes:
    """The end record points to a zip64 record with any values."""
    plain = build(good())
    place = plain.index(b"PK\1\2")
    length = len(plain) - 22 - place
    records = zip64_records(
        count, length if size is None else size, place if start is None else start, place + length
    )
    return build(good(), zip64_end=records, start=0xFFFFFFFF)


def zip64_size(size: int) -> list[Entry]:
    field = struct.pack("<2H2Q", 1, 16, size, size)
    fields = {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": field, "needed": 45}
    return changed(2, local=dict(fields), central=dict(fields))


def padded(extra: bytes) -> list[Entry]:
    return changed(1, local={"extra": extra})


def aligned(extra: Callable[[int], bytes]) -> bytes:
    """The second file's extra field, given the number of bytes that would align it."""
    plain = build(good())
    header = plain.index(b"PK\3\4", 1)
    room = -(header + 30 + len(good()[1].name) + 6) % 4096
    return build(padded(extra(room)))


TRICKS: dict[str, tuple[bytes | list[Entry], str]] = {
    # The two headers of a file differ.
    "local name": (changed(1, local={"name": b"payload/aotc.jsoN"}), MALFORMED),
    "local name longer": (changed(1, local={"name": b"payload/aotc.json2"}), MALFORMED),
    "local size": (changed(1, local={"size": 3}), MALFORMED),
    "local packed size": (changed(1, local={"packed": 3}), MALFORMED),
    "local CRC": (changed(1, local={"crc": 0}), MALFORMED),
    "local flags": (changed(1, local={"flags": 0}), MALFORMED),
    "local method": (changed(1, local={"method": 8}), MALFORMED),
    "local date": (changed(1, local={"date": 34}), MALFORMED),
    "local time": (changed(1, local={"time": 1}), MALFORMED),
    "local version": (changed(1, local={"needed": 20}), MALFORMED),
    "local signature": (changed(1, local={"signature": b"PK\3\5"}), MALFORMED),
    "central size": (changed(1, central={"size": 3, "packed": 3}), MALFORMED),
    "central packed size": (changed(1, central={"packed": 3}), MALFORMED),
    "central offset": (changed(1, central={"offset": 1}), MALFORMED),
    "central disk": (changed(1, central={"disk": 1}), MALFORMED),
    "central internal": (changed(1, central={"internal": 1}), MALFORMED),
    "central signature": (changed(1, central={"signature": b"PK\1\3"}), MALFORMED),
    "made elsewhere": (changed(1, central={"made_by": 45}), MALFORMED),
    "folder bit of DOS": (changed(1, central={"external": 0o100644 << 16 | 16}), MALFORMED),
    # Bytes over, between and after the files.
    "overlap": (overlapping(), MALFORMED),
    "one file within another": (swallowing(), MALFORMED),
    "gap between files": (changed(1, after=b"\0"), MALFORMED),
    "gap before the directory": (build(good(), before_directory=b"\0"), MALFORMED),
    "gap before the end": (build(good(), before_end=b"\0"), MALFORMED),
    "no padding": (padded(b""), MALFORMED),
    "padding that is not zero": (
        aligned(lambda n: struct.pack("<3H", 0xD935, 2 + n, 4096) + b"x" * n),
        MALFORMED,
    ),
    "padding without a field": (aligned(lambda n: bytes(n + 6)), MALFORMED),
    "more padding than needed": (
        aligned(lambda n: struct.pack("<3H", 0xD935, 2 + n + 4096, 4096) + bytes(n + 4096)),
        MALFORMED,
    ),
    "another alignment": (
        aligned(lambda n: struct.pack("<3H", 0xD935, 2 + n, 8192) + bytes(n)),
        MALFORMED,
    ),
    "another field of the same length": (
        aligned(lambda n: struct.pack("<3H", 0x7075, 2 + n, 4096) + bytes(n)),
        MALFORMED,
    ),
    "a Unicode path that says another": (
        changed(1, central={"extra": struct.pack("<2HBL4s", 0x7075, 9, 1, 0, b"evil")}),
        MALFORMED,
    ),
    "trailing byte": (build(good(), after=b"\0"), MALFORMED),
    "trailing line": (build(good(), after=b"\r\n"), MALFORMED),
    "trailing data": (build(good(), after=b"x" * 70_000), MALFORMED),
    "prepended data": (build(good(), prefix=b"#!/bin/sh\nexit\n"), MALFORMED),
    "prepended data, offsets of before": (b"#!/bin/sh\n" + build(good()), MALFORMED),
    "two end records": (two_ends(), MALFORMED),
    "two zips in one": (second_directory(), MALFORMED),
    "comment": (build(good(), comment=b"hello"), MALFORMED),
    "comment length without one": (build(good(), comment_length=4), MALFORMED),
    "comment of a file": (changed(1, central={"comment": b"hello"}), MALFORMED),
    # One name for two files.
    "duplicate": (added(b"payload/aotc.json"), MALFORMED),
    "duplicate by case": (added(b"payload/AOTC.json"), MALFORMED),
    "duplicate by folding": (added("payload/ß".encode(), b"payload/ss"), MALFORMED),
    "duplicate by normal form": (
        added("payload/\u00e9".encode(), "payload/e\u0301".encode()),
        MALFORMED,
    ),
    "folders that differ by case": (added(b"payload/Model/x"), MALFORMED),
    "a file that is a folder": (added(b"payload/model"), MALFORMED),
    "not sorted": (good()[::-1], MALFORMED),
    # Files that are not stored uncompressed.
    "compressed": (deflated(), MALFORMED),
    "method unknown": (both(2, method=99), MALFORMED),
    "encrypted": (both(2, flags=0x801), MALFORMED),
    "strongly encrypted": (both(2, flags=0x841), MALFORMED),
    "data descriptor": (described(), MALFORMED),
    "masked headers": (both(2, flags=0x2800), MALFORMED),
    # Wrong numbers.
    "65534 records": (build(good(), count=65534), LIMITS),
    "10001 records": (build(good(), count=10_001), LIMITS),
    "one record too many": (build(good(), count=4), MALFORMED),
    "one record too few": (build(good(), count=2), MALFORMED),
    "records elsewhere": (build(good(), here=2), MALFORMED),
    "several disks": (build(good(), disk=1), MALFORMED),
    "directory on another disk": (build(good(), directory_disk=1), MALFORMED),
    "directory of 4 GB": (build(good(), size=0xFFFFFFFE), LIMITS),
    "directory too short": (build(good(), size=10), MALFORMED),
    "directory beyond the end": (build(good(), start=0xFFFFFFFE), MALFORMED),
    "directory at the start": (build(good(), start=0), MALFORMED),
    "directory in zip64 that is not there": (build(good(), start=0xFFFFFFFF), MALFORMED),
    "zip64 where none is needed": (zip64_where_none_is_needed(), MALFORMED),
    "zip64 of a small directory": (zip64_elsewhere(), MALFORMED),
    "zip64 with 2^63 records": (zip64_elsewhere(count=2**63), LIMITS),
    "zip64 with a directory of 2^63 bytes": (zip64_elsewhere(size=2**63), LIMITS),
    "zip64 with a directory at 2^64 - 1": (zip64_elsewhere(start=2**64 - 1), MALFORMED),
    "file of 2^62 bytes": (zip64_size(2**62), MALFORMED),
    "file of 2^64 - 1 bytes": (zip64_size(2**64 - 1), MALFORMED),
    "zip64 of a small file": (zip64_size(6000), MALFORMED),
    "file of 4 GB": (both(2, size=0xFFFFFFFE, packed=0xFFFFFFFE), MALFORMED),
    "name of 65535 bytes": (changed(1, central={"name_length": 65535}), LIMITS),
    "long name": (added(b"payload/" + b"a" * 1017), LIMITS),
    "deep name": (added(b"payload/" + b"a/" * 8 + b"b"), LIMITS),
    # Kinds of files.
    "symbolic link": (changed(1, central={"external": 0o120777 << 16}), SPECIAL),
    "device": (changed(1, central={"external": 0o020666 << 16}), SPECIAL),
    "FIFO": (changed(1, central={"external": 0o010644 << 16}), SPECIAL),
    "socket": (changed(1, central={"external": 0o140644 << 16}), SPECIAL),
    "folder": (changed(1, central={"external": 0o040755 << 16}), SPECIAL),
    "setuid": (changed(1, central={"external": 0o104755 << 16}), MALFORMED),
    "no mode": (changed(1, central={"external": 0}), MALFORMED),
}
NAMES = {
    "parent": b"payload/../../etc/passwd",
    "parent first": b"../payload/x",
    "parent alone": b"..",
    "here": b"payload/./x",
    "absolute": b"/payload/x",
    "two slashes": b"payload//x",
    "folder": b"payload/x/",
    "empty": b"",
    "backslash": b"payload\\x",
    "NUL": b"payload/aotc.json\0.txt",
    "new line": b"payload/x\n",
    "drive": b"C:/payload/x",
    "drive, relative": b"C:x",
    "stream": b"payload/aotc.json:evil",
    "share": b"//host/share/x",
    "trailing dot": b"payload/aotc.json.",
    "trailing space": b"payload/aotc.json ",
    "folder's trailing dot": b"payload/a./x",
    "not UTF-8": b"payload/\xff",
    "overlong": b"payload/\xc0\xae\xc0\xae/x",
    "surrogate": b"payload/\xed\xa0\x80",
}


def refused(place: Path, key: Path, code: str) -> None:
    """Every way to open it fails with the code."""
    with pytest.raises(AotcError) as caught:
        ArchiveContainer(place)
    assert caught.value.code == code, caught.value.line()
    report = verify(place, key=key)
    assert (report.authentic, report.verdict, report.hashed_bytes) == (False, "unverified", 0)
    assert [refusal.code for refusal in report.refusals] == [code]
    assert report.refusals[0].where
    with pytest.raises(AotcError) as caught:
        inspect(place)
    assert caught.value.code == code
    output = place.with_name("unpacked")
    with pytest.raises(AotcError) as caught:
        unpack(place, output)
    assert caught.value.code == code
    assert not [path for path in place.parent.iterdir() if path.name != place.name]


def test_the_good_one_is_what_pack_writes(tmp_path: Path) -> None:
    for entry in good():
        path = tmp_path / "a" / os.fsdecode(entry.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.data)
    pack(tmp_path / "a", tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == build(good())
    with ArchiveContainer(tmp_path / "a.zip") as opened:
        assert list(opened.listing().files) == [os.fsdecode(entry.name) for entry in good()]


@pytest.mark.parametrize("trick", TRICKS)
def test_trick(trick: str, tmp_path: Path, key: Path) -> None:
    made, code = TRICKS[trick]
    place = tmp_path / "bad.aotc.zip"
    place.write_bytes(made if isinstance(made, bytes) else build(made))
    refused(place, key, code)


@pytest.mark.parametrize("name", NAMES)
def test_name(name: str, tmp_path: Path, key: Path) -> None:
    place = tmp_path / "bad.aotc.zip"
    place.write_bytes(build(added(NAMES[name])))
    refused(place, key, MALFORMED)


def test_more_files_than_are_read(tmp_path: Path, key: Path) -> None:
    place = tmp_path / "bad.aotc.zip"
    names = [b"payload/%04d/x" % number for number in range(5001)]
    place.write_bytes(build([Entry(name) for name in names]))
    refused(place, key, LIMITS)


def test_a_claim_takes_no_memory(tmp_path: Path) -> None:
    places = []
    for trick in ("65534 records", "directory of 4 GB", "file of 2^62 bytes", "file of 4 GB"):
        made, _ = TRICKS[trick]
        places.append(tmp_path / trick)
        places[-1].write_bytes(made if isinstance(made, bytes) else build(made))
    tracemalloc.start()
    try:
        for place in places:
            with pytest.raises(AotcError):
                ArchiveContainer(place)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_cut_anywhere(tmp_path: Path) -> None:
    """At every byte of the tail, and in steps before it; what is not a zip at all is G015."""
    whole = build(good())
    directory = whole.index(b"PK\1\2")
    place = tmp_path / "cut.zip"
    for length in [*range(0, directory, 97), *range(directory, len(whole))]:
        place.write_bytes(whole[:length])
        with pytest.raises(AotcError) as caught:
            ArchiveContainer(place)
        assert caught.value.code == (MALFORMED if length >= 4 else "AOTC-G015"), length


def test_an_empty_zip_is_not_an_artifact(tmp_path: Path, key: Path) -> None:
    place = tmp_path / "empty.zip"
    place.write_bytes(build([]))
    assert [refusal.code for refusal in verify(place, key=key).refusals] == ["AOTC-G015"]
    with pytest.raises(AotcError) as caught:
        unpack(place, tmp_path / "out")
    assert caught.value.code == "AOTC-G015"
    place.write_bytes(b"#!/bin/sh\n" + build(good()) + b"\n")
    assert [refusal.code for refusal in verify(place, key=key).refusals] == ["AOTC-G015"]


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "FIFO"])
def test_the_archive_itself_is_a_regular_file(kind: str, tmp_path: Path, key: Path) -> None:
    real, place = tmp_path / "real.zip", tmp_path / "a.zip"
    real.write_bytes(build(good()))
    if kind == "symbolic link":
        place.symlink_to(real)
    elif kind == "hard link":
        place.hardlink_to(real)
    else:
        os.mkfifo(place)
    with pytest.raises(AotcError) as caught:
        ArchiveContainer(place)
    assert caught.value.code == SPECIAL
    codes = [refusal.code for refusal in verify(place, key=key).refusals]
    assert codes == ([SPECIAL] if kind != "FIFO" else ["AOTC-G015"])


def test_a_CRC_that_both_headers_have_wrong(tmp_path: Path) -> None:
    """Nothing depends on it; reading a small file and unpacking still refuse it."""
    place = tmp_path / "bad.zip"
    place.write_bytes(build(both(1, crc=0)))
    with ArchiveContainer(place) as opened, pytest.raises(AotcError) as caught:
        opened.read("payload/aotc.json", 1 << 20)
    assert caught.value.code == MALFORMED
    with pytest.raises(AotcError) as caught:
        unpack(place, tmp_path / "out")
    assert caught.value.code == MALFORMED
    assert [path.name for path in tmp_path.iterdir()] == ["bad.zip"]
