"""Files swapped in a loop while they are loaded: each load is refused, or answers correctly.

A process swaps, as fast as it can, what a source folder holds, while loads go on; none warms up,
so that no golden output hides a wrong answer.  A user who may write their own store can swap that
as well: its digests are checked at each load, and changed files are replaced or refused.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact_builder import FEATURES, build_artifact

from aotc.base.errors import AotcError
from aotc.runtime.loading import load
from aotc.runtime.store.installing import install
from aotc.runtime.store.user_store import Store
from aotc.trust import container
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private, load_public
from aotc.trust.packing import pack

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

LOADS = 60
X = np.arange(3 * FEATURES, dtype=np.float32).reshape(3, FEATURES) / 7


class Target:
    """A good artifact, a folder to swap files from, and what the good one answers."""

    def __init__(self, folder: Path) -> None:
        private, self.public = generate(folder / "a.pem")
        self.source = build_artifact(folder / "good.aotc", load_private(private), padding=300_000)
        self.spare = folder / "spare"
        self.spare.mkdir()
        self.store = folder / "store"
        with load(
            self.source,
            key=self.public,
            store=self.store,
            warm_up=False,
            variant="portable",
            threads=1,
        ) as model:
            self.answer = model.run({"x": X})["y"]
            self.id = model.report.artifact_id

    @property
    def weights(self) -> Path:
        return next(self.source.glob("payload/shared_assets/*/weights.bin"))

    def evil(self, path: Path) -> Path:
        """A copy whose first weights have another sign: it loads, and answers wrongly."""
        data = bytearray(path.read_bytes())
        for offset in range(3, 80, 4):
            data[offset] ^= 0x80
        copy = self.spare / "evil"
        copy.write_bytes(data)
        return copy


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def target(made: Target) -> Iterator[Target]:
    """The target, restored for each test."""
    kept = made.source.with_name("kept.aotc")
    shutil.copytree(made.source, kept)
    yield made
    remove(made.source)
    kept.rename(made.source)
    remove(made.spare)
    made.spare.mkdir()


def remove(path: Path) -> None:
    for place in path.rglob("*"):
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o700)
    shutil.rmtree(path)


def rename_over(target: Target) -> Iterator[None]:
    """Replace the file by the evil one and the good one, in turn."""
    path = target.weights
    evil, good = target.evil(path), target.spare / "good"
    shutil.copy(path, good)
    while True:
        for version in (evil, good):
            shutil.copy(version, target.spare / "next")
            (target.spare / "next").rename(path)
            yield


def edit(target: Target) -> Iterator[None]:
    """Change the bytes in place, in a file that stays open."""
    path = target.weights
    evil, good = target.evil(path).read_bytes(), path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        while True:
            for data in (evil, good):
                file.seek(0)
                file.write(data[:80])
                yield


def symbolic_link(target: Target) -> Iterator[None]:
    """Replace the file by a link to evil bytes, and back."""
    path = target.weights
    evil, good = target.evil(path), target.spare / "good"
    shutil.copy(path, good)
    while True:
        (target.spare / "next").symlink_to(evil)
        (target.spare / "next").rename(path)
        yield
        shutil.copy(good, target.spare / "next")
        (target.spare / "next").rename(path)
        yield


def hard_link(target: Target) -> Iterator[None]:
    """Change the bytes of the file through a second name."""
    path = target.weights
    evil, good = target.evil(path).read_bytes(), path.read_bytes()
    other = target.spare / "other"
    while True:
        os.link(path, other)
        with other.open("r+b") as file:
            file.write(evil[:80])
        yield
        with other.open("r+b") as file:
            file.write(good[:80])
        other.unlink()
        yield


def folder(target: Target) -> Iterator[None]:
    """Replace a folder of the path by another one or a link to it, and back."""
    path = target.weights.parent
    evil = target.evil(target.weights)
    other, away = target.spare / "folder", target.spare / "away"
    other.mkdir()
    shutil.copy(evil, other / "weights.bin")
    while True:
        path.rename(away)
        other.rename(path)
        yield
        path.rename(other)
        path.symlink_to(other)
        yield
        path.unlink()
        away.rename(path)
        yield


def fifo(target: Target) -> Iterator[None]:
    """Replace the file by a pipe that nobody writes to: a reader would wait for ever."""
    path = target.weights
    good = target.spare / "good"
    shutil.copy(path, good)
    while True:
        os.mkfifo(target.spare / "next")
        (target.spare / "next").rename(path)
        yield
        shutil.copy(good, target.spare / "next")
        (target.spare / "next").rename(path)
        yield


def truncate(target: Target) -> Iterator[None]:
    """Cut the file short, and complete it again."""
    path = target.weights
    good = path.read_bytes()
    while True:
        os.truncate(path, 40)
        yield
        path.write_bytes(good)
        yield


def manifest(target: Target) -> Iterator[None]:
    """Let the manifest name another model file, which exists."""
    path = target.source / "payload" / "aotc.json"
    good = path.read_bytes()
    evil = good.replace(b"model/portable/model.onnx", b"model/portable/other.onnx")
    shutil.copy(
        target.source / "payload/model/portable/model.onnx",
        target.source / "payload/model/portable/other.onnx",
    )
    while True:
        for data in (evil, good):
            (target.spare / "next").write_bytes(data)
            (target.spare / "next").rename(path)
            yield


SWAPS = (rename_over, edit, symbolic_link, hard_link, folder, fifo, truncate, manifest)
Swap = Callable[[Target], Iterator[None]]


@contextmanager
def swapping(steps: Iterator[None]) -> Iterator[None]:
    """Run the steps in another process until the block ends."""
    child = os.fork()
    if not child:
        try:
            for number, _ in enumerate(steps):
                # Some pauses are short, and some as long as a load.
                time.sleep(0.0002 if number % 7 else 0.004)
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the swaps came to an end"


def outcome(target: Target, source: Path, store: Path) -> str:
    """The code of a load's refusal, or `right`; a wrong answer fails the test."""
    try:
        with load(
            source, key=target.public, store=store, warm_up=False, variant="portable", threads=1
        ) as model:
            assert model.report.artifact_id == target.id
            np.testing.assert_array_equal(model.run({"x": X})["y"], target.answer)
            entry = model.payload.parent
    except AotcError as error:
        assert error.code[:6] in ("AOTC-G", "AOTC-I") or error.code == "AOTC-R006", error
        return error.code
    with FolderContainer(entry) as stored:
        assert authenticate(stored, load_public(target.public)).id == target.id
    return "right"


@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
def test_swaps_of_the_source(
    swap: Swap, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads that copy: into an empty store each time, so that all of the source is read."""
    # A read that is repeated succeeds in the end.
    monkeypatch.setattr(container, "_MAX_READS", 1)
    found = []
    with swapping(swap(target)):
        for number in range(LOADS):
            store = tmp_path / str(number)
            found.append(outcome(target, target.source, store))
            if store.exists():
                remove(store)
    # The swaps were noticed: not every load can have happened between two of them.
    assert set(found) != {"right"}


@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
def test_swaps_of_the_source_once_it_is_installed(swap: Swap, target: Target) -> None:
    """Loads of what the store holds read the payload from there alone."""
    by_id = Path(f"sha256-{target.id}")
    with swapping(swap(target)):
        for _ in range(LOADS // 3):
            assert outcome(target, by_id, target.store) == "right"
            if swap is not manifest:
                assert outcome(target, target.source, target.store) == "right"


@pytest.mark.parametrize("swap", [rename_over, folder, symbolic_link], ids=lambda s: s.__name__)
def test_swaps_while_it_is_installed_permanently(
    swap: Swap, target: Target, tmp_path: Path
) -> None:
    keys = load_public(target.public)
    with swapping(swap(target)):
        for number in range(LOADS // 2):
            root = tmp_path / str(number)
            try:
                entry = Path(install(target.source, keys, store=root).folder)
            except AotcError as error:
                assert error.code[:6] in ("AOTC-G", "AOTC-I")
                assert not list(root.glob("sha256-*"))
                continue
            with FolderContainer(entry) as stored:
                assert authenticate(stored, keys).id == target.id
            remove(root)


def test_swaps_of_a_packed_artifact(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A read that is repeated succeeds in the end.
    monkeypatch.setattr(container, "_MAX_READS", 1)
    packed = tmp_path / "good.zip"
    pack(target.source, packed)
    data = packed.read_bytes()
    at = data.index(target.weights.read_bytes()[:80])
    evil = bytearray(data)
    for offset in range(at + 3, at + 80, 4):
        evil[offset] ^= 0x80

    def swaps() -> Iterator[None]:
        with packed.open("r+b", buffering=0) as file:
            while True:
                for version in (evil, data):
                    file.seek(at)
                    file.write(version[at : at + 80])
                    yield

    found = []
    with swapping(swaps()):
        for number in range(LOADS):
            found.append(outcome(target, packed, tmp_path / f"store{number}"))
    assert set(found) <= {"right", "AOTC-G005", "AOTC-G039"}
    assert set(found) != {"right"}


def test_two_signed_artifacts_that_change_places(target: Target, tmp_path: Path) -> None:
    """Files of both are signed: the one or the other answers, never a mixture."""
    private = target.public.with_suffix(".pem")
    other = build_artifact(
        tmp_path / "other.aotc", load_private(private), change={"name": "other"}, padding=300_000
    )
    names = ("payload", "attestations")

    def swaps() -> Iterator[None]:
        while True:
            for name in names:
                (target.source / name).rename(target.spare / name)
                (other / name).rename(target.source / name)
                yield
                (target.spare / name).rename(other / name)
                yield

    found: list[Any] = []
    with swapping(swaps()):
        for number in range(LOADS):
            store = tmp_path / f"s{number}"
            try:
                with load(target.source, key=target.public, store=store, warm_up=False) as model:
                    known = model.report.artifact_id == target.id
                    assert model.manifest.name == ("linear" if known else "other")
                    found.append(model.report.artifact_id)
            except AotcError as error:
                assert error.code[:6] in ("AOTC-G", "AOTC-I"), error
                found.append(error.code)
    assert len(found) == LOADS


def test_swaps_in_a_store_of_the_users_own_are_seen_at_the_next_load(
    target: Target, tmp_path: Path
) -> None:
    """Not prevented during a load; the next one checks the digests again."""
    store = Store(tmp_path / "store")
    entry = store.install(target.source, load_public(target.public)).folder.parent
    weights = next(entry.glob("payload/shared_assets/*/weights.bin"))
    evil = target.evil(weights)
    weights.parent.chmod(0o755)
    for step in (
        lambda: evil.rename(weights),
        lambda: (weights.unlink(), weights.symlink_to(target.weights)),
        lambda: (weights.unlink(), os.link(target.weights, weights)),
        lambda: (weights.unlink(), os.mkfifo(weights)),
    ):
        weights.parent.chmod(0o755)
        step()
        assert outcome(target, target.source, store.root) in ("right", "AOTC-R006")
        if target.weights.stat().st_nlink > 1:
            weights.unlink()
            assert outcome(target, target.source, store.root) == "right"
        assert weights.is_file()
        assert not weights.is_symlink()
