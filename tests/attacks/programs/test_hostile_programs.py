"""Hostile exported programs: each is refused before PyTorch sees it, and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_programs import ATTACKS, HONEST, Hostile, honest, packed
from refusals import refusal

from aotc.sources.pt2_archive import Pt2File


def opened(path: Path) -> Pt2File:
    return Pt2File(path)


@pytest.mark.parametrize("kind", ATTACKS, ids=lambda kind: kind.name)
def test_each_is_refused_by_its_code(kind: Hostile, tmp_path: Path) -> None:
    path, ran = kind.write(tmp_path)
    error = refusal(opened, path)
    assert (error.code, ran.exists()) == (kind.code, False), error.line()
    assert path.name in error.where


def test_the_honest_one_is_read() -> None:
    with Pt2File(HONEST) as file:
        assert [each.name for each in file.content.inputs] == ["x", "mask"]
        assert file.content.inputs[0].shape == ("s31", 4)
        assert file.content.ranges == {"s31": (2, 64)}
        assert file.content.guards == ("L['x'].size()[0] == L['mask'].size()[0]",)
        assert file.content.torch_version == "2.13.0+cpu"
        assert file.weights_sha256() == (
            "6fadfb7c3614e9fb4b7ec399131851cac2dbf47a6f0d800bfc8851c08612c998"
        )


def test_an_honest_one_that_was_packed_again_is_read(tmp_path: Path) -> None:
    path = tmp_path / "again.pt2"
    path.write_bytes(packed(honest()))
    with Pt2File(path) as again, Pt2File(HONEST) as first:
        assert again.content == first.content
        assert again.weights_sha256() == first.weights_sha256()
