"""An artifact that is replaced while it is read: the old one or the new one, never a mixture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from artifact_builder import build_artifact

from aotc.base.errors import AotcError
from aotc.base.files.replacing import erase, put_in_place
from aotc.runtime.store.installing import install
from aotc.runtime.store.system_store import take
from aotc.tools.inspect import inspect
from aotc.trust.container import FolderContainer
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.opening import open_container
from aotc.trust.policy.host_trust import resolve


class Replaced:
    """An artifact that another command replaces whenever something begins to read it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.spare, self.key = folder / "a.aotc", folder / "spare", folder / "key.pub"
        private, _ = generate(folder / "key.pem")
        build_artifact(self.place, load_private(private))
        shutil.copytree(self.place, self.spare)
        self.left = 0
        read = FolderContainer.read

        def replaced_first(container: FolderContainer, path: str, limit: int) -> bytes:
            if container.root == self.place and self.left:
                self.left -= 1
                self.replace()
            return read(container, path, limit)

        monkeypatch.setattr(FolderContainer, "read", replaced_first)

    def replace(self) -> None:
        """Put a copy in its place and remove the old one, as `--force` does."""
        draft = self.place.with_name("new")
        shutil.copytree(self.spare, draft)
        put_in_place(draft, self.place, force=True)
        erase(draft)


@pytest.fixture
def replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replaced:
    return Replaced(tmp_path, monkeypatch)


READS: dict[str, Callable[[Replaced], str]] = {
    "verify": lambda it: verify(it.place, key=it.key).verdict,
    "inspect": lambda it: str(
        inspect(it.place).problems == inspect(it.spare).problems and "optimal"
    ),
    "install": lambda it: str(
        install(it.place, resolve(None, it.key), store=it.place.with_name("store")).installed
        and "optimal"
    ),
    "take": lambda it: str(
        take(
            it.place, resolve(None, it.key), reads=lambda _: (), store=it.place.with_name("store")
        ).authentic.id
        and "optimal"
    ),
}


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", READS)
def test_what_is_replaced_while_it_is_read(name: str, times: int, replaced: Replaced) -> None:
    replaced.left = times
    assert READS[name](replaced) == "optimal"
    assert not replaced.left


def test_what_is_replaced_by_a_bad_one_is_refused(replaced: Replaced) -> None:
    (replaced.spare / "payload" / "manifest.json").write_text("{}")
    replaced.left = 1
    report = verify(replaced.place, key=replaced.key)
    assert not report.authentic
    # What is reported is about the new artifact, and nothing about the old one.
    assert {refusal.code for refusal in report.refusals} == {
        refusal.code for refusal in verify(replaced.place, key=replaced.key).refusals
    }


def test_a_reader_is_not_kept_waiting_by_endless_replacing(replaced: Replaced) -> None:
    replaced.left = 1000
    assert not verify(replaced.place, key=replaced.key).authentic
    assert replaced.left > 900


def test_a_bad_one_that_stays_is_read_once(
    replaced: Replaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(replaced.place.rglob("weights.bin")).unlink()
    opened = []
    begin = FolderContainer.__init__

    def counted(container: FolderContainer, root: Path) -> None:
        opened.append(root)
        begin(container, root)

    monkeypatch.setattr(FolderContainer, "__init__", counted)
    assert not verify(replaced.place, key=replaced.key).authentic
    assert opened == [replaced.place]


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_a_word_that_is_not_a_path(word: str) -> None:
    for read in (verify, inspect, lambda it: open_container(Path(it))):
        with pytest.raises(AotcError) as caught:
            read(word)
        assert caught.value.code == "AOTC-I027"
