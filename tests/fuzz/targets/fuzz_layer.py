"""Tar layers of artifacts in registries: accepted bytes are exactly those that pushing writes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping

from fuzz_target import Target

from aotc.spec.registry_forms import END, MalformedTar, read_tar, tar_header, tar_padding

LIMIT = 20


def check(data: bytes) -> bool:
    """Writing the files again gives the same bytes, and another reader of tars finds the same."""
    read = []

    def read_at(offset: int, length: int) -> bytes:
        assert offset >= 0
        assert length >= 0
        read.append(length)
        return data[offset : offset + length]

    try:
        members = read_tar(read_at, len(data), LIMIT)
    except MalformedTar:
        # However long a header says that something is.
        assert max(read, default=0) <= 4096
        assert len(read) <= 8 * (LIMIT + 1)
        return False
    contents = {each.path: data[each.offset : each.offset + each.size] for each in members}
    assert len(members) <= LIMIT
    if len(contents) == len(members):
        assert _layer(contents) == data
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        found = opened.getmembers()
        assert [(each.name, each.size, each.offset_data) for each in found] == [*members]
        assert {each.type for each in found} <= {tarfile.REGTYPE}
    return True


def _layer(contents: Mapping[str, bytes]) -> bytes:
    files = (
        tar_header(path, len(content)) + content + tar_padding(len(content))
        for path, content in contents.items()
    )
    return b"".join(files) + END


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """Another layer: of other files, or with another kind of entry whose checksum is right."""
    if not seed % 3:
        return None
    member = tarfile.TarInfo(("payload/a", "payload/é", "../a", "x" * 200, "a/", "")[seed // 3 % 6])
    content = bytes([seed % 251]) * (seed // 5 % 1200)
    member.size = len(content)
    kinds = (b"0", b"0", b"\0", b"1", b"2", b"5", b"7", b"x", b"g", b"L", b"S")
    member.type = kinds[seed // 7 % len(kinds)]
    if seed % 11 == 0:
        member.mtime = 1
    if seed % 13 == 0:
        member.pax_headers = {("path", "size", "comment")[seed % 3]: str(seed % 1000)}
    form = tarfile.GNU_FORMAT if seed % 17 == 0 else tarfile.PAX_FORMAT
    try:
        made = member.tobuf(form, "utf-8", "strict") + content + tar_padding(len(content))
    except ValueError:
        return None
    made = made + END if seed % 2 else made + data
    return made if len(made) <= size else None


def seeds() -> Iterator[bytes]:
    """No file, one, and several; with a long path, a large size, and names out of order."""
    for contents in (
        {},
        {"payload/aotc.json": b"{}"},
        {"payload/a": b"", "payload/aotc.json": b"x" * 513},
        {"models/payload/" + "ä" * 100: b"1"},
        {"b": b"1", "a": b"1"},
    ):
        yield _layer(contents)
    yield tar_header("payload/a", 9 << 30) + END


TARGET = Target("layer", check, seeds, frozenset(), 8192, _mutate)
