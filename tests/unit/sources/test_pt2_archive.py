"""What is taken for an archive of an exported program where its name does not say so."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from aotc.sources.pt2_archive import looks_like_pt2


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("model/archive_format", b"pt2", True),
        ("serialized_exported_program.json", b"{}", True),
        # A packed artifact may have an input of that name.
        ("aotc.json", b'{"inputs": [{"name": "archive_format"}]}', False),
        ("payload/of_an_archive_format.onnx", b"", False),
    ],
)
def test_archives_are_told_by_their_lists(
    tmp_path: Path, name: str, content: bytes, expected: bool
) -> None:
    path = tmp_path / "unnamed"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    assert looks_like_pt2(path) is expected
