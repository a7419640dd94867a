"""The tar layers of artifacts in registries: their bytes, and what else is refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from contextlib import suppress

import pytest

from aotc.spec.registry_forms import END, MalformedTar, TarMember, read_tar, tar_header, tar_padding

LONG = "payload/" + "ä" * 300 + "/weights.bin"
FILES = {"payload/aotc.json": b"{}", "payload/manifest.json": b"x" * 513, LONG: b"w" * 1024}


def layer(files: dict[str, bytes]) -> bytes:
    return (
        b"".join(
            tar_header(path, len(data)) + data + tar_padding(len(data))
            for path, data in files.items()
        )
        + END
    )


def read(content: bytes, limit: int = 10) -> list[TarMember]:
    return read_tar(lambda offset, length: content[offset : offset + length], len(content), limit)


def test_other_programs_read_what_is_written() -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(FILES))) as opened:
        found = {
            each.name: opened.extractfile(each).read()  # type: ignore[union-attr]
            for each in opened
        }
        kinds = {(e.type, e.mode, e.uid, e.gid, e.uname, e.gname, e.mtime) for e in opened}
    assert found == FILES
    assert kinds == {(tarfile.REGTYPE, 0o644, 0, 0, "", "", 0)}


def test_bytes_never_change() -> None:
    # Digests of layers that are in registries, and that another release must make again.
    assert hashlib.sha256(layer(FILES)).hexdigest() == GOLDEN
    large = tar_header("payload/weights.bin", 9 << 30)
    assert hashlib.sha256(large).hexdigest() == GOLDEN_LARGE


def test_what_is_written_is_read() -> None:
    content = layer(FILES)
    found = read(content)
    assert {m.path: content[m.offset : m.offset + m.size] for m in found} == FILES
    header = tar_header("payload/weights.bin", 9 << 30)
    assert len(header) == 1536

    def read_at(offset: int, length: int) -> bytes:
        end = len(header) + (9 << 30)
        stored = header if offset < len(header) else END
        start = offset if offset < len(header) else offset - end
        return stored[start : start + length]

    (member,) = read_tar(read_at, len(header) + (9 << 30) + len(END), 1)
    assert member == TarMember("payload/weights.bin", 9 << 30, 1536)


def entry(change: Callable[[tarfile.TarInfo], None]) -> bytes:
    member = tarfile.TarInfo("payload/a")
    member.size = 3
    change(member)
    return member.tobuf(tarfile.PAX_FORMAT) + b"abc" + bytes(509) + END


def set_to(name: str, value: object) -> Callable[[tarfile.TarInfo], None]:
    return lambda member: setattr(member, name, value)


@pytest.mark.parametrize(
    "content",
    [
        entry(set_to("mtime", 1)),
        entry(set_to("mode", 0o755)),
        entry(set_to("uid", 1)),
        entry(set_to("uname", "root")),
        entry(set_to("pax_headers", {"comment": "x"})),
        entry(set_to("pax_headers", {"size": "3"})),
        tarfile.TarInfo("payload/a").tobuf(tarfile.GNU_FORMAT) + END,
        *(
            tarfile.TarInfo("payload/a").tobuf()[:156] + kind + bytes(355) + END
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"\0")
        ),
        layer(dict(reversed(FILES.items()))),
        layer(FILES)[:-512],
        layer(FILES) + bytes(512),
        layer(FILES)[:-1] + b"x",
        layer({"payload/a": b"abc"}).replace(b"abc\0", b"abcd"),
        b"",
        bytes(512),
        b"\x28\xb5\x2f\xfd" + bytes(1020),
        b"\x1f\x8b\x08" + bytes(1021),
        tar_header("payload/a", 1 << 40) + END,
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedTar):
        read(content)


def test_every_byte_but_content_is_checked() -> None:
    content = layer(FILES)
    members = read(content)
    inside = {n for each in members for n in range(each.offset, each.offset + each.size)}
    for number in set(range(len(content))) - inside:
        changed = bytearray(content)
        changed[number] ^= 1
        # A long path has no checksum: with another one it is another layer, as good as this.
        with suppress(MalformedTar):
            assert [each.path for each in read(bytes(changed))] != [each.path for each in members]


def test_files_without_end_are_not_read() -> None:
    assert len(read(layer(FILES), limit=3)) == 3
    with pytest.raises(MalformedTar, match="more than 2 files"):
        read(layer(FILES), limit=2)


def test_large_extensions_are_not_read() -> None:
    member = tarfile.TarInfo("x" * 5000)
    with pytest.raises(MalformedTar, match="a pax header of 5"):
        read(member.tobuf(tarfile.PAX_FORMAT) + END)


GOLDEN = "b57da53a262dea781264860f7229c27a3763928256e25f5de699277f74575a92"
GOLDEN_LARGE = "62d006f553f2f7d732953a45602ec829d6e9ff53cd57a792cf534b81ab37ef70"
