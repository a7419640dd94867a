"""Any one flipped byte of a packed artifact is refused: every byte is checked."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from artifact_builder import build_artifact

from aotc.base.errors import AotcError
from aotc.trust.archive import ArchiveContainer, read_files
from aotc.trust.gate import authenticate
from aotc.trust.key_loading import PrivateKey
from aotc.trust.packing import pack

# Only every n-th byte of a file is flipped for the complete gate, which takes milliseconds.
STEP = 23


@pytest.fixture
def packed(tmp_path: Path, key: PrivateKey) -> Path:
    place = tmp_path / "a.aotc.zip"
    pack(build_artifact(tmp_path / "a.aotc", key, native=False), place)
    return place


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


def test_every_byte_outside_the_files(packed: Path) -> None:
    data = packed.read_bytes()
    files = read_files(lambda at, length: data[at : at + length], len(data))
    own = {place for file in files for place in range(file.data, file.data + file.size)}
    changed = bytearray(data)

    def read_at(offset: int, length: int) -> bytes:
        return bytes(changed[offset : offset + length])

    accepted = []
    for place in sorted(set(range(len(data))) - own):
        changed[place] ^= 1 << place % 8
        try:
            read_files(read_at, len(data))
            accepted.append(place)
        except AotcError as error:
            # A bit of a mode may turn a file into a link; a bit of a number may exceed a limit.
            assert error.code in ("AOTC-G039", "AOTC-G008", "AOTC-G012")
        changed[place] ^= 1 << place % 8
    assert accepted == []
    assert bytes(changed) == data


def test_every_byte_of_files_read_into_memory(packed: Path) -> None:
    """Bundles and documents, by CRC-32 alone: it notices any one byte."""
    with ArchiveContainer(packed) as archive:
        small = [path for path in archive.listing().files if path.endswith(".json")]
        assert len(small) == 4
        for path in small:
            content = archive.read(path, 1 << 20)
            right = zlib.crc32(content)
            for place in range(len(content)):
                assert zlib.crc32(flipped(content, place)) != right
    data = packed.read_bytes()
    for file in read_files(lambda at, length: data[at : at + length], len(data)):
        if file.name not in small:
            continue
        packed.write_bytes(flipped(data, file.data + file.size // 2))
        with ArchiveContainer(packed) as archive, pytest.raises(AotcError) as caught:
            archive.read(file.name, 1 << 20)
        assert (caught.value.code, caught.value.where) == ("AOTC-G039", file.name)


def test_bytes_of_the_files(packed: Path, key: PrivateKey) -> None:
    data = packed.read_bytes()
    trust = (key.trusted(),)
    with ArchiveContainer(packed) as archive:
        authenticate(archive, trust)
    for file in read_files(lambda at, length: data[at : at + length], len(data)):
        documents = file.name.endswith(".json")
        for place in {*range(file.data, file.data + file.size, STEP), file.data + file.size - 1}:
            packed.write_bytes(flipped(data, place))
            with ArchiveContainer(packed) as archive, pytest.raises(AotcError) as caught:
                authenticate(archive, trust)
            assert caught.value.code == ("AOTC-G039" if documents else "AOTC-G005"), place
