"""Good packed artifacts: what aotc and other readers of zips find in them."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from hypothesis import given, settings
from hypothesis import strategies as st

import aotc
from aotc.base.errors import AotcError
from aotc.runtime.store.user_store import Store
from aotc.spec import packed_form
from aotc.tools.inspect import inspect
from aotc.trust import digests
from aotc.trust.archive import ArchiveContainer, is_packed, read_files
from aotc.trust.container import FolderContainer
from aotc.trust.digests import ExpectedFile
from aotc.trust.gate import verify
from aotc.trust.key_loading import PrivateKey
from aotc.trust.opening import open_container
from aotc.trust.packing import pack

# Of 2^32 + 5 zero bytes.
LARGE, LARGE_CRC = 2**32 + 5, 0xB1C2A1A3


@pytest.fixture(scope="module")
def public(key: PrivateKey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("public") / "a.pub"
    path.write_text(key.trusted().pem)
    return path


@pytest.fixture(scope="module")
def artifact(key: PrivateKey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a weights file of three chunks."""
    return build_artifact(tmp_path_factory.mktemp("a") / "linear.aotc", key, padding=40 << 20)


@pytest.fixture(scope="module")
def packed(artifact: Path) -> Path:
    place = artifact.with_name("linear.aotc.zip")
    pack(artifact, place)
    return place


def raw(files: dict[str, bytes]) -> bytes:
    """A packed artifact of these files, in memory."""
    out, directory = io.BytesIO(), b""
    for name, data in sorted(files.items()):
        entry = (name.encode(), len(data), zlib.crc32(data), out.tell())
        out.write(packed_form.local_header(*entry) + data)
        directory += packed_form.central_record(*entry)
    end = packed_form.end_records(len(files), len(directory), out.tell())
    return out.getvalue() + directory + end


def test_both_forms_hold_the_same(artifact: Path, packed: Path) -> None:
    with FolderContainer(artifact) as folder, open_container(packed) as archive:
        assert isinstance(archive, ArchiveContainer)
        for place in ("", "payload", "attestations", "payload/fixtures", "payload/none"):
            one, other = folder.listing(place), archive.listing(place)
            assert dict(one.files) == dict(other.files)
            assert one.folders == other.folders
        for path, size in archive.listing().files.items():
            assert archive.read(path, size) == folder.read(path, size)
            with archive.open(path) as file:
                assert file.size == size
                assert file.seek(size // 2) == size // 2
                assert file.read() == (artifact / path).read_bytes()[size // 2 :]
                assert file.readinto(memoryview(bytearray(4))) == 0
                with pytest.raises(OSError):
                    file.fileno()
        with pytest.raises(AotcError) as caught:
            archive.open("payload/none")
        assert caught.value.code == "AOTC-G006"
        with pytest.raises(AotcError) as caught:
            archive.read("payload/aotc.json", 10)
        assert caught.value.code == "AOTC-G012"


def test_data_is_aligned_and_nothing_else_is_there(artifact: Path, packed: Path) -> None:
    data = packed.read_bytes()
    files = read_files(lambda at, length: data[at : at + length], len(data))
    assert [file.name for file in files] == sorted(contents_of(artifact))
    for file in files:
        assert file.data % 4096 == 0
        assert data[file.data : file.data + file.size] == (artifact / file.name).read_bytes()


def test_other_readers_open_it(artifact: Path, packed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == contents_of(artifact)
        for info in archive.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == 0o100644
            assert info.compress_type == zipfile.ZIP_STORED
    unzip = shutil.which("unzip")
    if unzip is None:
        pytest.skip("there is no unzip")
    tested = subprocess.run([unzip, "-t", packed], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    subprocess.run([unzip, "-q", packed, "-d", tmp_path / "a"], check=True)
    assert contents_of(tmp_path / "a") == contents_of(artifact)


@pytest.mark.parametrize("full", [False, True])
def test_verify_says_the_same_of_both(
    full: bool, artifact: Path, packed: Path, public: Path
) -> None:
    one, other = verify(artifact, key=public, full=full), verify(packed, key=public, full=full)
    assert other.authentic
    assert (one.verdict, one.artifact_id) == (other.verdict, other.artifact_id)
    assert one.hashed_bytes == other.hashed_bytes > 40 << 20
    assert one.steps == other.steps


def test_inspect_tells_an_artifact_from_a_model(artifact: Path, packed: Path) -> None:
    one, other = inspect(artifact), inspect(packed)
    assert other.kind == "artifact"
    assert one.artifact == other.artifact
    assert is_packed(packed)
    assert not is_packed(artifact)
    assert not is_packed(artifact / "payload/model/portable/model.onnx")


def test_the_store_installs_it(
    artifact: Path, packed: Path, key: PrivateKey, tmp_path: Path
) -> None:
    stored = Store(tmp_path / "store").install(packed, (key.trusted(),))
    assert not stored.from_store
    assert contents_of(stored.folder.parent) == contents_of(artifact)
    assert Store(tmp_path / "store").install(packed, (key.trusted(),)).from_store


def test_a_packed_artifact_answers(
    artifact: Path, packed: Path, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))
    x = np.load(artifact / "payload/fixtures/opt/x.npy")
    y = np.load(artifact / "payload/fixtures/opt/y.npy")
    with aotc.load(packed, key=public) as model:
        np.testing.assert_allclose(model.run({"x": x})["y"], y, rtol=1e-5)


@pytest.mark.parametrize("by_offset", [True, False])
def test_threads_read_one_archive(
    by_offset: bool, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the system cannot read at an offset, as on Windows."""
    if not by_offset:
        monkeypatch.delattr(os, "preadv")
    with ArchiveContainer(packed) as archive:
        sizes = archive.listing().files

        def digest(path: str) -> str:
            hasher = hashlib.sha256()
            with archive.open(path) as file:
                while part := file.read(4001):
                    hasher.update(part)
            return hasher.hexdigest()

        alone = {path: digest(path) for path in sizes}
        with ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                assert dict(zip(sizes, pool.map(digest, sizes), strict=True)) == alone


def test_a_wrong_CRC_is_reported_with_full(tmp_path: Path) -> None:
    """Digests decide; a CRC-32 that no reader of zips would accept is reported with `full`."""
    data = b"x" * 5000
    entry = (b"payload/a.bin", len(data), zlib.crc32(data) ^ 1, 0)
    directory = packed_form.central_record(*entry)
    body = packed_form.local_header(*entry) + data
    place = tmp_path / "a.zip"
    place.write_bytes(body + directory + packed_form.end_records(1, len(directory), len(body)))
    wanted = [ExpectedFile("payload/a.bin", hashlib.sha256(data).hexdigest(), len(data))]
    with ArchiveContainer(place) as archive:
        assert digests.check_files(archive, wanted).problems == ()
        (problem,) = digests.check_files(archive, wanted, full=True).problems
    assert (problem.code, problem.where) == ("AOTC-G039", "payload/a.bin")


def test_a_file_beyond_4_GiB(tmp_path: Path) -> None:
    """The file is sparse, so it needs no space: zip64 in sizes, in an offset and at the end."""
    place = tmp_path / "large.zip"
    small = b"{}"
    entries = [(b"payload/a-large", LARGE, LARGE_CRC, 0)]
    after = packed_form.data_offset(b"payload/a-large", LARGE, 0) + LARGE
    entries.append((b"payload/aotc.json", len(small), zlib.crc32(small), after))
    directory = b"".join(packed_form.central_record(*entry) for entry in entries)
    with place.open("wb") as file:
        file.write(packed_form.local_header(*entries[0]))
        file.seek(after)
        file.write(packed_form.local_header(*entries[1]) + small)
        file.write(directory + packed_form.end_records(2, len(directory), file.tell()))
    with ArchiveContainer(place) as archive:
        assert archive.listing().files == {"payload/a-large": LARGE, "payload/aotc.json": 2}
        assert archive.read("payload/aotc.json", 10) == small
        with archive.open("payload/a-large") as opened:
            opened.seek(-3, os.SEEK_END)
            assert opened.read(100) == bytes(3)
    with zipfile.ZipFile(place) as other:
        assert [info.file_size for info in other.infolist()] == [LARGE, 2]
        assert other.read("payload/aotc.json") == small
        with other.open("payload/a-large") as opened:
            assert opened.read(1 << 16) == bytes(1 << 16)
    if unzip := shutil.which("unzip"):
        command = [unzip, "-t", place, "payload/aotc.json"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/\\:"), min_size=1, max_size=6),
    min_size=1,
    max_size=3,
).map("/".join)


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.binary(max_size=9000), max_size=5))
def test_what_is_written_is_read_or_its_names_are_refused(files: dict[str, bytes]) -> None:
    data = raw(files)
    unfit = any(map(packed_form.name_problem, files)) or any(
        packed_form.colliding_paths(sorted(files))
    )
    try:
        found = read_files(lambda at, length: data[at : at + length], len(data))
    except AotcError as error:
        assert error.code == "AOTC-G039"
        assert unfit
        return
    assert not unfit
    assert {file.name: data[file.data :][: file.size] for file in found} == files
    with zipfile.ZipFile(io.BytesIO(data)) as other:
        assert {name: other.read(name) for name in other.namelist()} == files


@settings(max_examples=200)
@given(st.binary(max_size=300), st.booleans(), st.binary(max_size=18))
def test_rubbish_is_refused(data: bytes, tail: bool, fields: bytes) -> None:
    data += b"PK\5\6" + fields.ljust(18, b"\0") if tail else b""
    try:
        files = read_files(lambda at, length: data[at : at + length], len(data))
    except AotcError as error:
        assert error.code in ("AOTC-G039", "AOTC-G012", "AOTC-G008")
    else:
        assert data[-22:] == packed_form.end_records(0, 0, 0)
        assert files == ()
