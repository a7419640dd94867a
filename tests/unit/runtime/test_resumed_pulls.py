"""What a copy from afar that ended halfway leaves, and what the next one makes of it.

The source is a folder that says it is far away, and ends a transfer where the test wants it.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of

from aotc.base.errors import AotcError
from aotc.base.files.replacing import NEW
from aotc.base.files.work_folders import prepare_output, resumable_folder
from aotc.runtime.store.pruning import prune
from aotc.runtime.store.publication import PREFIX, Draft, fetch, is_cut
from aotc.runtime.store.user_store import Store
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust.container import ArtifactFile, FolderContainer
from aotc.trust.gate import authenticate
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.policy.host_trust import Trust

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# Three chunks of the largest file have digests of their own.
PADDING = 40 << 20
CHUNK = 16 << 20
DAY = 86_400


class Far(FolderContainer):
    """A folder that counts what is read of large files, and ends after `limit` bytes of them."""

    origin = f"registry.example.com/team/linear@sha256:{'5' * 64}"

    def __init__(self, root: Path, limit: int, end: Callable[[], object]) -> None:
        super().__init__(root)
        self.read_bytes, self._limit, self._end = 0, limit, end
        self._guard = threading.Lock()

    def open(self, path: str) -> ArtifactFile:
        file = super().open(path)
        if file.size < CHUNK:
            return file
        read = file.readinto

        def counted(buffer: memoryview) -> int | None:
            with self._guard:
                if self.read_bytes >= self._limit:
                    self._end()
                done = read(buffer)
                self.read_bytes += done or 0
            return done

        file.readinto = counted  # type: ignore[method-assign]
        return file


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(code: str) -> Callable[[], object]:
    def end() -> object:
        raise AotcError(code, "ended by the test")

    return end


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> PrivateKey:
    return load_private(generate(tmp_path_factory.mktemp("key") / "key.pem")[0])


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, signer: PrivateKey) -> Path:
    return build_artifact(tmp_path_factory.mktemp("far") / "a.aotc", signer, padding=PADDING)


@pytest.fixture
def trust(signer: PrivateKey) -> tuple[TrustedKey, ...]:
    return (signer.trusted(),)


def install(root: Path, source: Far, trust: tuple[TrustedKey, ...]) -> Path:
    with source:
        stored = Store(root).install_from(source, trust)
    stored.close()
    return stored.folder.parent


def killed_install(root: Path, artifact: Path, trust: tuple[TrustedKey, ...], limit: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            install(root, Far(artifact, limit, die), trust)
        finally:
            os._exit(3)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


def size_of(root: Path) -> int:
    return max(path.stat().st_size for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("limit", "saved"), [(0, 0), (CHUNK + (8 << 20), 0), (2 * CHUNK + (4 << 20), 1)]
)
def test_a_killed_copy_goes_on_from_its_whole_chunks(
    limit: int, saved: int, artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...]
) -> None:
    """Two transfers may be under way, so that of N chunks read at least N - 1 are whole."""
    root = tmp_path / "store"
    killed_install(root, artifact, trust, limit)
    (left,) = root.iterdir()
    assert left.name.startswith(PREFIX)
    second = Far(artifact, 1 << 40, die)
    entry = install(root, second, trust)
    assert size_of(artifact) - second.read_bytes >= saved * CHUNK
    assert folders(root) == [entry]
    assert contents_of(entry) == contents_of(artifact)
    with FolderContainer(entry) as copy:
        assert authenticate(copy, trust).id == entry.name.removeprefix("sha256-")
    assert {path.stat().st_mode & 0o777 for path in entry.rglob("*") if path.is_file()} == {0o444}


def test_what_was_left_is_trusted_by_its_digests_alone(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...]
) -> None:
    """Other bytes, too many of them, files that no artifact has, and links in their places."""
    root = tmp_path / "store"
    killed_install(root, artifact, trust, 2 * CHUNK + (4 << 20))
    (left,) = root.iterdir()
    with Far(artifact, 1 << 40, die) as source:
        listed = source.listing()
    for path in listed.files:
        place = left / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            file.write(b"more than there should be" * 8)
    (left / "payload" / "surprise").write_bytes(b"unsigned")
    (left / "payload" / "folder").mkdir()
    (left / "attestations" / "other.sigstore.json").write_bytes(b"{}")
    entry = install(root, Far(artifact, 1 << 40, die), trust)
    assert contents_of(entry) == contents_of(artifact)
    with FolderContainer(entry) as copy:
        assert authenticate(copy, trust).id

    killed_install(tmp_path / "other", artifact, trust, 2 * CHUNK + (4 << 20))
    (left,) = (tmp_path / "other").iterdir()
    largest = max(
        (path for path in left.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    elsewhere = tmp_path / "elsewhere"
    shutil.move(largest, elsewhere)
    largest.symlink_to(elsewhere)
    again = Far(artifact, 1 << 40, die)
    entry = install(tmp_path / "other", again, trust)
    assert again.read_bytes >= size_of(artifact)
    assert contents_of(entry) == contents_of(artifact)


def test_one_changed_byte_of_what_was_left_is_fetched_again(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...]
) -> None:
    root = tmp_path / "store"
    # Cut near its end, so that all but one chunk is whole.
    almost = size_of(artifact) - (1 << 20)
    with pytest.raises(AotcError):
        install(root, Far(artifact, almost, refuse("AOTC-I204")), trust)
    (left,) = root.iterdir()
    largest = max(
        (path for path in left.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    with largest.open("r+b") as file:
        file.seek(CHUNK + 5)
        byte = file.read(1)
        file.seek(CHUNK + 5)
        file.write(bytes([byte[0] ^ 1]))
    second = Far(artifact, 1 << 40, die)
    entry = install(root, second, trust)
    assert CHUNK <= second.read_bytes < 3 * CHUNK
    assert contents_of(entry) == contents_of(artifact)


@pytest.mark.parametrize(
    ("code", "kept"), [("AOTC-I204", True), ("AOTC-I197", True), ("AOTC-I205", False)]
)
def test_what_is_cut_is_kept_and_what_is_wrong_is_not(
    code: str, kept: bool, artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...]
) -> None:
    root = tmp_path / "store"
    with pytest.raises(AotcError) as caught:
        install(root, Far(artifact, CHUNK, refuse(code)), trust)
    assert caught.value.code == code
    assert len(list(root.iterdir())) == kept


def test_what_nobody_goes_on_with_goes_after_a_day(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...]
) -> None:
    root = tmp_path / "store"
    killed_install(root, artifact, trust, CHUNK)
    (left,) = root.iterdir()
    assert prune(root).leftovers == 0
    assert left.exists()
    old = time.time() - DAY - 60
    for path in (*left.rglob("*"), left):
        os.utime(path, (old, old))
    assert prune(root).leftovers == 1
    assert not left.exists()


def test_one_that_is_done_meanwhile_is_no_obstacle(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process published its draft after this one had listed it."""
    root = tmp_path / "store"
    killed_install(root, artifact, trust, CHUNK)
    (left,) = root.iterdir()
    listed = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:
        found = list(listed(self))
        if self == root and left.exists():
            shutil.rmtree(left)
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert install(root, Far(artifact, 1 << 40, die), trust).is_dir()


def test_one_that_is_under_way_is_not_taken_over(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...], signer: PrivateKey
) -> None:
    root = tmp_path / "store"
    with Far(artifact, 1 << 40, die) as source:
        wanted = authenticate(source, trust, files_to_read=lambda _: ()).id
    root.mkdir(mode=0o700)
    living = Draft(root, resumes=wanted)
    entry = install(root, Far(artifact, 1 << 40, die), trust)
    assert {entry, living.folder} == set(folders(root))
    living.discard()


def test_an_output_goes_on_too(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...]
) -> None:
    """Beside the output, whatever it is called; removed where it ends for another reason."""
    place = tmp_path / "out" / "pulled.aotc"
    place.parent.mkdir()

    def copy(source: Far) -> Path:
        with source:
            accepted = authenticate(source, trust, files_to_read=lambda _: ())
            with resumable_folder(place, is_cut) as work:
                draft = Draft.at(work / NEW)
                try:
                    fetch(source, Trust.of(trust), draft, accepted.manifest)
                finally:
                    draft.discard(keep=True)
                draft.folder.rename(place)
        return place

    child = os.fork()
    if child == 0:
        try:
            copy(Far(artifact, 2 * CHUNK + (4 << 20), die))
        finally:
            os._exit(3)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert len(list(place.parent.iterdir())) == 1
    with pytest.raises(AotcError):
        copy(Far(artifact, 4 << 20, refuse("AOTC-I204")))
    assert len(list(place.parent.iterdir())) == 1
    last = Far(artifact, 1 << 40, die)
    copy(last)
    assert size_of(artifact) - last.read_bytes >= CHUNK
    assert list(place.parent.iterdir()) == [place]
    assert contents_of(place) == contents_of(artifact)
    shutil.rmtree(place)
    with pytest.raises(AotcError):
        copy(Far(artifact, CHUNK, refuse("AOTC-I205")))
    assert list(place.parent.iterdir()) == []


def test_a_folder_beside_an_output_that_nothing_is_in_goes_at_once(tmp_path: Path) -> None:
    """Of a pull that was killed once its output had its name."""
    place = tmp_path / "pulled.aotc"
    child = os.fork()
    if child == 0:
        with resumable_folder(place, is_cut) as work:
            (work / NEW).mkdir()
            (work / NEW).rename(place)
            die()
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 2
    prepare_output(tmp_path / "another.aotc")
    assert list(tmp_path.iterdir()) == [place]


def test_two_are_under_way_at_once(
    artifact: Path, tmp_path: Path, trust: tuple[TrustedKey, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one CPU too: a transfer that waits keeps no other waiting."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    both = threading.Barrier(2, timeout=30)
    met = threading.Event()

    class Waiting(Far):
        def open(self, path: str) -> ArtifactFile:
            file = super().open(path)
            if file.size >= CHUNK and not met.is_set():
                both.wait()
                met.set()
            return file

    install(tmp_path / "store", Waiting(artifact, 1 << 40, die), trust)
    assert met.is_set()
