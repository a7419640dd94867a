"""The store: what was verified is what is loaded, whatever happens to the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_builder import build_artifact, sign_artifact
from file_bytes import contents_of, flip_bit

from aotc.base.errors import AotcError
from aotc.runtime.store import publication
from aotc.runtime.store import user_store as store_module
from aotc.runtime.store.entries import LOCK, exclusive
from aotc.runtime.store.user_store import Store
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private


@pytest.fixture
def artifact(tmp_path: Path, key: PrivateKey) -> Path:
    return build_artifact(tmp_path / "linear.aotc", key)


@pytest.fixture
def user_store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def flip(path: Path) -> None:
    path.chmod(0o600)
    flip_bit(path, 0)


def weights(folder: Path) -> Path:
    return next(folder.rglob("weights.bin"))


def test_install_copies_everything_read_only(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    stored = user_store.install(artifact, trust)
    assert not stored.from_store
    entry = stored.folder.parent
    assert entry.name == f"sha256-{stored.authentic.id}"
    assert contents_of(entry) == contents_of(artifact)
    for path in entry.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)
        assert path.is_dir() or path.stat().st_nlink == 1
    assert [path.name for path in user_store.root.iterdir()] == [entry.name]
    assert user_store.root.stat().st_mode & 0o777 == 0o700


def test_a_second_load_reads_the_store_only(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    first = user_store.install(artifact, trust)
    before = contents_of(first.folder)
    flip(weights(artifact))
    (artifact / "payload/extra").write_bytes(b"x")
    second = user_store.install(artifact, trust)
    assert second.from_store
    assert second.authentic.bytes_hashed == first.authentic.bytes_hashed
    assert second.folder == first.folder
    assert contents_of(second.folder) == before


def test_a_swap_of_the_source_after_loading_has_no_effect(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    stored = user_store.install(artifact, trust)
    before = contents_of(stored.folder)
    for path in sorted(artifact.rglob("*")):
        if path.is_file():
            path.write_bytes(b"swapped")
    assert contents_of(stored.folder) == before
    shutil.rmtree(artifact)
    assert contents_of(stored.folder) == before


def test_a_bad_source_leaves_nothing(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    flip(weights(artifact))
    with pytest.raises(AotcError) as caught:
        user_store.install(artifact, trust)
    assert caught.value.code == "AOTC-G005"
    assert list(user_store.root.iterdir()) == []
    with pytest.raises(AotcError) as caught:
        user_store.install(artifact, ())
    assert caught.value.code == "AOTC-G002"
    (artifact / "payload/aotc.json").unlink()
    with pytest.raises(AotcError) as caught:
        user_store.install(artifact, trust)
    assert caught.value.code == "AOTC-G006"
    assert list(user_store.root.iterdir()) == []


def test_a_stored_artifact_is_still_refused_to_those_who_do_not_trust_it(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    stored = user_store.install(artifact, trust)
    with pytest.raises(AotcError) as caught:
        user_store.install(artifact, ())
    assert caught.value.code == "AOTC-G002"
    flip(artifact / "attestations/oms.sigstore.json")
    with pytest.raises(AotcError) as caught:
        user_store.install(artifact, trust)
    assert caught.value.code == "AOTC-G004"
    assert stored.folder.is_dir()


def test_a_signature_added_to_the_source_counts_for_the_stored_copy(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...], tmp_path: Path
) -> None:
    user_store.install(artifact, trust)
    other = load_private(generate(tmp_path / "b.pem")[0])
    sign_artifact(artifact, other, f"oms-{other.key_id}.sigstore.json")
    stored = user_store.install(artifact, (other.trusted(),))
    assert stored.from_store
    assert stored.authentic.keys == (other.trusted(),)


@pytest.mark.parametrize("damage", ["flip", "missing", "extra", "link"])
def test_a_damaged_copy_is_installed_again(
    damage: str, artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    stored = user_store.install(artifact, trust)
    good = contents_of(stored.folder.parent)
    path = weights(stored.folder)
    path.parent.chmod(0o700)
    if damage == "flip":
        flip(path)
    elif damage == "missing":
        path.unlink()
    elif damage == "extra":
        (path.parent / "more").write_bytes(b"x")
    else:
        path.rename(user_store.root / "elsewhere")
        path.symlink_to(user_store.root / "elsewhere")
    again = user_store.install(artifact, trust)
    assert not again.from_store
    assert contents_of(again.folder.parent) == good
    assert user_store.install(artifact, trust).from_store


def test_a_damaged_copy_of_a_damaged_source_is_refused(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    stored = user_store.install(artifact, trust)
    flip(weights(stored.folder))
    flip(weights(artifact))
    with pytest.raises(AotcError) as caught:
        user_store.install(artifact, trust)
    assert caught.value.code == "AOTC-R006"
    assert caught.value.where == str(stored.folder.parent)
    assert [refusal.code for refusal in caught.value.also] == ["AOTC-G005", "AOTC-G005"]


def test_concurrent_installs_all_succeed(
    artifact: Path, user_store: Store, key: PrivateKey
) -> None:
    public = artifact.parent / "key.pub"
    public.write_text(key.public_pem)
    program = (
        "import sys; from aotc.runtime.store.user_store import Store; "
        "from aotc.trust.key_loading import load_public; from pathlib import Path; "
        "print(Store(sys.argv[1]).install(sys.argv[2], load_public(Path(sys.argv[3]))).folder)"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(user_store.root), str(artifact), str(public)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(store_module.__file__).parents[2])},
        )
        for _ in range(5)
    ]
    answers = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 5
    assert len(answers) == 1
    (entry,) = user_store.root.iterdir()
    assert verify(entry, key=public).authentic


def test_an_installer_that_lost_the_race_uses_the_copy_that_won(
    artifact: Path,
    user_store: Store,
    trust: tuple[TrustedKey, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = publication.Draft.seal
    raced: list[bool] = []

    def seal(self: publication.Draft) -> None:
        original(self)
        if not raced:
            raced.append(True)
            Store(user_store.root).install(artifact, trust)

    monkeypatch.setattr(publication.Draft, "seal", seal)
    stored = user_store.install(artifact, trust)
    assert raced
    assert [path.name for path in user_store.root.iterdir()] == [stored.folder.parent.name]
    assert contents_of(stored.folder.parent) == contents_of(artifact)


def test_leftovers_of_a_crash_go_with_the_next_install(
    artifact: Path, user_store: Store, trust: tuple[TrustedKey, ...]
) -> None:
    program = (
        "import os, sys; from pathlib import Path; "
        "from aotc.runtime.store.publication import Draft; "
        "Path(sys.argv[1]).mkdir(); draft = Draft(Path(sys.argv[1])); "
        "draft.open('payload/x').write(0, memoryview(b'half')); os._exit(9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(user_store.root)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(store_module.__file__).parents[2])},
    )
    assert done.returncode == 9
    (left,) = user_store.root.iterdir()
    living = publication.Draft(user_store.root)
    entry = user_store.install(artifact, trust).folder.parent
    assert not left.exists()
    # What lives stays, however old it is.
    os.utime(living.folder, (0, 0))
    shutil.rmtree(weights(entry).parent)
    user_store.install(artifact, trust)
    assert sorted(user_store.root.iterdir()) == sorted([entry, living.folder])
    living.discard()


def test_a_store_that_cannot_be_written(
    artifact: Path, trust: tuple[TrustedKey, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AotcError) as caught:
        Store(tmp_path / "file" / "store").install(artifact, trust)
    assert caught.value.code == "AOTC-R007"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    writer = publication.DraftFile(os.open("/dev/full", os.O_WRONLY), tmp_path)
    with pytest.raises(AotcError) as caught:
        writer.write(0, memoryview(b"x"))
    writer.close()
    assert caught.value.line() == f"AOTC-R007 the disk of the store is full [{tmp_path}]"


def test_the_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTC_STORE", str(tmp_path))
    assert Store().root == tmp_path
    monkeypatch.delenv("AOTC_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store().root == tmp_path / "aotc" / "store"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store().root == tmp_path / ".cache" / "aotc" / "store"


def test_a_lock_that_cannot_be_had_says_what_helps(tmp_path: Path) -> None:
    """No free space does, where the disk is not full."""
    (tmp_path / LOCK).mkdir()
    with pytest.raises(AotcError) as caught, exclusive(tmp_path):
        pass
    assert caught.value.code == "AOTC-R007"
    assert "There is a folder" in caught.value.fix
    assert "space" not in caught.value.fix
