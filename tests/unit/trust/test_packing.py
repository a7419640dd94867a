"""Packing and unpacking: reproducible, complete or not at all, and what is refused."""

from __future__ import annotations

import os
import resource
import shutil
import zlib
from pathlib import Path

import pytest
from file_bytes import contents_of
from refusals import refusal

from aotc.base.errors import AotcError
from aotc.spec import packed_form
from aotc.trust.container import FolderContainer
from aotc.trust.packing import pack, unpack

FILES = {
    "payload/aotc.json": b"{}",
    "payload/model/portable/model.onnx": b"\x08\x09" * 4000,
    "payload/shared_assets/a/empty.bin": b"",
    "payload/fixtures/größe/x.npy": b"x",
    "attestations/oms.sigstore.json": b"{ }",
}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write(tmp_path / "m.aotc", FILES)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def refused(code: str, *arguments: Path, unpacks: bool = False) -> AotcError:
    folder = arguments[1].parent
    before = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    error = refusal(unpack if unpacks else pack, *arguments)
    assert error.code == code, error.line()
    if folder.is_dir():
        assert {path.name for path in folder.iterdir()} == before
    return error


def test_the_same_bytes_each_time(artifact: Path, tmp_path: Path) -> None:
    answer = pack(artifact, tmp_path / "a.zip")
    other = write(tmp_path / "elsewhere" / "n.aotc", dict(reversed(FILES.items())))
    (other / "payload/aotc.json").chmod(0o600)
    os.utime(other / "payload/aotc.json", (1, 1))
    pack(other, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert answer.bytes == (tmp_path / "a.zip").stat().st_size
    assert (tmp_path / "a.zip").stat().st_nlink == 1
    assert answer.files == len(FILES)
    # sha256 of {}
    assert answer.artifact_id.startswith("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f6")


def test_there_and_back(artifact: Path, tmp_path: Path) -> None:
    packed = pack(artifact, tmp_path / "a.zip")
    answer = unpack(tmp_path / "a.zip", tmp_path / "back")
    assert contents_of(tmp_path / "back") == FILES
    assert answer.artifact_id == packed.artifact_id
    assert answer.bytes == sum(map(len, FILES.values()))
    pack(tmp_path / "back", tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_outputs_that_exist(artifact: Path, tmp_path: Path) -> None:
    place = tmp_path / "a.zip"
    place.write_bytes(b"mine")
    refused("AOTC-I017", artifact, place)
    assert place.read_bytes() == b"mine"
    pack(artifact, place, force=True)
    assert place.read_bytes().startswith(b"PK\3\4")
    refused("AOTC-I017", place, artifact, unpacks=True)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nothing")
    refused("AOTC-I017", artifact, dangling)
    refused("AOTC-I017", place, dangling, unpacks=True)
    refused("AOTC-I026", artifact, tmp_path / "none" / "a.zip")
    refused("AOTC-I026", place, tmp_path / "none" / "a", unpacks=True)
    with pytest.raises(AotcError) as caught:
        pack(artifact, tmp_path, force=True)
    assert caught.value.code == "AOTC-I017"


def test_unpacking_by_force_replaces_only_an_artifact(artifact: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    pack(artifact, archive)
    place = write(tmp_path / "there.aotc", {"payload/aotc.json": b"old", "payload/gone": b"x"})
    unpack(archive, place, force=True)
    assert contents_of(place) == contents_of(artifact)
    link = tmp_path / "link"
    link.symlink_to(place, target_is_directory=True)
    mine = write(tmp_path / "mine", {"notes.txt": b"x"})
    for other in (link, mine, archive):
        with pytest.raises(AotcError) as caught:
            unpack(archive, other, force=True)
        assert caught.value.code == "AOTC-I017"
    assert contents_of(mine) == {"notes.txt": b"x"}
    # The existing file stays if the archive is not valid.
    broken = tmp_path / "broken.zip"
    broken.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(AotcError) as caught:
        unpack(broken, place, force=True)
    assert caught.value.code == "AOTC-G039"
    assert contents_of(place) == contents_of(artifact)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_write_that_fails_leaves_nothing(artifact: Path, tmp_path: Path) -> None:
    place = tmp_path / "a.zip"
    pack(artifact, place)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        refused("AOTC-I026", artifact, tmp_path / "b.zip")
        refused("AOTC-I026", place, tmp_path / "b.aotc", unpacks=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda folder: (folder / "notes.txt").write_text("x"), "AOTC-I035"),
        (lambda folder: (folder / "payload/empty").mkdir(), "AOTC-I035"),
        (lambda folder: (folder / "payload/AOTC.json").write_text("x"), "AOTC-I035"),
        (lambda folder: (folder / "payload/a:b").write_text("x"), "AOTC-I035"),
        (lambda folder: (folder / "payload/a.").write_text("x"), "AOTC-I035"),
        (lambda folder: (folder / "payload/a\\b").write_text("x"), "AOTC-G007"),
        (lambda folder: (folder / "payload/l").symlink_to("aotc.json"), "AOTC-G008"),
        (lambda folder: os.link(folder / "payload/aotc.json", folder / "l"), "AOTC-G008"),
        (lambda folder: os.mkfifo(folder / "payload/f"), "AOTC-G008"),
        (lambda folder: (folder / "payload/aotc.json").unlink(), "AOTC-G015"),
        (shutil.rmtree, "AOTC-I001"),
        (lambda folder: (shutil.rmtree(folder), folder.write_text("x")), "AOTC-G015"),
    ],
)  # fmt: skip
def test_what_cannot_be_packed(change: object, code: str, artifact: Path, tmp_path: Path) -> None:
    assert callable(change)
    change(artifact)
    refused(code, artifact, tmp_path / "a.zip")


@pytest.mark.parametrize("change", [b"", b"x" * 8001, b"x" * 600_000])
def test_a_file_that_changes_meanwhile(
    change: bytes, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = FolderContainer.open

    def changing(self: FolderContainer, path: str) -> object:
        if path.endswith("model.onnx"):
            (self.root / path).write_bytes(change)
        return opened(self, path)

    monkeypatch.setattr(FolderContainer, "open", changing)
    assert refused("AOTC-I035", artifact, tmp_path / "a.zip").where.endswith("model.onnx")


def test_unpacking_checks_contents(artifact: Path, tmp_path: Path) -> None:
    place = tmp_path / "a.zip"
    pack(artifact, place)
    data = place.read_bytes()
    place.write_bytes(data.replace(b"\x08\x09" * 4000, b"\x08\x09" * 3999 + b"\x08\x08"))
    assert refused("AOTC-G039", place, tmp_path / "out", unpacks=True).where.endswith("model.onnx")
    refused("AOTC-G015", artifact, tmp_path / "out", unpacks=True)
    other = b"payload/other", 1, zlib.crc32(b"x"), 0
    body = packed_form.local_header(*other) + b"x"
    directory = packed_form.central_record(*other)
    place.write_bytes(body + directory + packed_form.end_records(1, len(directory), len(body)))
    refused("AOTC-G015", place, tmp_path / "out", unpacks=True)
