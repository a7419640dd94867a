"""Digests of test data: they change with whatever a build reads of it, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.base.files.names import data_files
from aotc.pipeline.reuse import folder_digest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_what_is_behind_a_linked_folder_counts(data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "input_0.pb").write_bytes(b"one")
    (data / "s0").symlink_to(elsewhere)
    before = folder_digest(data)
    (elsewhere / "input_0.pb").write_bytes(b"two")
    assert folder_digest(data) != before


def test_a_link_counts_as_what_it_leads_to(data: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "elsewhere", data / "s0"):
        place.mkdir()
        (place / "input_0.pb").write_bytes(b"one")
    plain = folder_digest(data)
    (data / "s0" / "input_0.pb").unlink()
    (data / "s0").rmdir()
    (data / "s0").symlink_to(tmp_path / "elsewhere")
    assert folder_digest(data) == plain


def test_links_back_to_a_folder_around_are_no_cycle(data: Path) -> None:
    (data / "s0").mkdir()
    (data / "s0" / "input_0.pb").write_bytes(b"one")
    (data / "a.npz").write_bytes(b"two")
    (data / "s0" / "back").symlink_to(data)
    (data / "around").symlink_to(data)
    names = [path.relative_to(data).as_posix() for path in data_files(data)]
    assert names == ["a.npz", "s0/input_0.pb"]


def test_what_no_build_reads_is_no_part_of_it(data: Path) -> None:
    (data / "a.npz").write_bytes(b"one")
    before = folder_digest(data)
    (data / "notes.txt").write_text("read me")
    assert folder_digest(data) == before
    (data / "a.npz").rename(data / "b.npz")
    assert folder_digest(data) != before
