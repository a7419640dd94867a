"""Packed artifacts: accepted bytes are exactly those that packing the files gives."""

from __future__ import annotations

import atexit
import io
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from fuzz_target import Target

from aotc.base.errors import AotcError
from aotc.spec import packed_form
from aotc.trust.archive import looks_packed, read_files
from aotc.trust.packing import pack, unpack

REFUSED = {"AOTC-G008", "AOTC-G012", "AOTC-G039"}
_FOLDER = tempfile.TemporaryDirectory(prefix="aotc-fuzz-")
atexit.register(_FOLDER.cleanup)
PLACE = Path(_FOLDER.name)


def check(data: bytes) -> bool:
    """The structure is that of the format, another zip reader agrees, and packing reproduces it."""

    def read_at(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    looks_packed(read_at, len(data))
    try:
        files = read_files(read_at, len(data))
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} <= REFUSED
        return False
    assert looks_packed(read_at, len(data))
    contents = {file.name: data[file.data : file.data + file.size] for file in files}
    stated = [file.crc32 for file in files]
    made = _archive(contents, stated)
    assert made == data
    _compare_with_zipfile(data, contents, stated)
    _unpack_and_pack(data, contents, stated)
    return True


def _archive(contents: Mapping[str, bytes], crcs: list[int]) -> bytes:
    """The packed form, with CRC-32s that may be wrong."""
    made, directory = b"", b""
    for (name, content), crc32 in zip(contents.items(), crcs, strict=True):
        encoded, header = name.encode(), len(made)
        directory += packed_form.central_record(encoded, len(content), crc32, header)
        made += packed_form.local_header(encoded, len(content), crc32, header) + content
    return made + directory + packed_form.end_records(len(crcs), len(directory), len(made))


def _compare_with_zipfile(data: bytes, contents: Mapping[str, bytes], crcs: list[int]) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert [item.filename for item in archive.infolist()] == list(contents)
        for (name, content), crc32 in zip(contents.items(), crcs, strict=True):
            if zlib.crc32(content) == crc32:
                assert archive.read(name) == content


def _unpack_and_pack(data: bytes, contents: Mapping[str, bytes], crcs: list[int]) -> None:
    right = all(
        zlib.crc32(content) == crc32 for content, crc32 in zip(contents.values(), crcs, strict=True)
    )
    archive, folder, again = PLACE / "a.zip", PLACE / "folder", PLACE / "again.zip"
    archive.write_bytes(data)
    try:
        unpack(archive, folder)
    except AotcError as error:
        # The file system here may not take a name.
        long = any(len(part.encode()) > 255 for name in contents for part in name.split("/"))
        allowed = {"AOTC-G039"} if not right else set()
        allowed |= {"AOTC-I026"} if long else set()
        allowed |= {"AOTC-G015"} if "payload/aotc.json" not in contents else set()
        assert error.code in allowed, error.code
        return
    assert right
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == contents
    try:
        pack(folder, again, force=True)
        assert again.read_bytes() == data
    except AotcError as error:
        # What is of neither payload nor attestations is unpacked, and not packed.
        assert error.code == "AOTC-I035"
        assert any(not name.startswith(("payload/", "attestations/")) for name in contents)
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """Another archive of the format: names and contents are changed, the rest is adapted."""
    try:
        files = read_files(lambda at, length: data[at : at + length], len(data))
    except AotcError:
        return None
    if not seed % 3:
        return None
    contents = {file.name: data[file.data : file.data + file.size] for file in files}
    names = ("payload/aotc.json", "payload/a/b", "attestations/x", "a", "payload/é", "payload/A/b")
    odd = ("../a", "/a", "a\\b", "a:b", "a.", "CON", "a/", "", "a//b", "./a", "\u0301", "x" * 1025)
    name = (*names, *odd)[seed // 3 % len(names + odd)]
    contents[name] = bytes([seed % 251]) * (seed // 5 % 40)
    if seed % 5 == 0:
        contents.pop(next(iter(contents)))
    listed = dict(sorted(contents.items())) if seed % 4 else contents
    crcs = [zlib.crc32(value) for value in listed.values()]
    if seed % 7 == 0 and crcs:
        crcs[0] ^= 1
    try:
        made = _archive(listed, crcs)
    except UnicodeEncodeError:
        return None
    return made if len(made) <= size else None


def seeds() -> Iterator[bytes]:
    """No file, one, and several; with a wrong CRC-32 and with names that are refused."""
    manifest = json.dumps({"schema": "aotc.manifest/1.0"}).encode()
    for contents in (
        {},
        {"payload/aotc.json": manifest},
        {"attestations/oms.sigstore.json": b"{}", "payload/a": b"", "payload/aotc.json": manifest},
        {"a": b"1", "payload/aotc.json": b"{}"},
        {"payload/../x": b"1"},
        {"payload/A": b"1", "payload/a": b"1"},
    ):
        yield _archive(contents, [zlib.crc32(value) for value in contents.values()])
    yield _archive({"payload/aotc.json": b"{}"}, [0])


TARGET = Target("archive", check, seeds, frozenset(), 16384, _mutate)
