"""The files that a user's test data consists of: fixtures, calibration data, labelled sets."""

from __future__ import annotations

from pathlib import Path


def data_sources(path: Path) -> list[Path]:
    """The `.npz` files, and then the folders of ONNX test data, at or in `path`, sorted."""
    if path.is_file() or (path / "input_0.pb").exists():
        return [path]
    found = [p for p in sorted(path.iterdir()) if p.suffix == ".npz"]
    return found + [p for p in sorted(path.iterdir()) if (p / "input_0.pb").exists()]


def data_files(path: Path) -> list[Path]:
    """The files of all sources at or in `path`, those behind links too; raises `OSError`.

    Nothing below the folder of a source is read, so a link back to a folder around it is no cycle.
    """
    found: set[Path] = set()
    for source in data_sources(path):
        found.update([source] if source.is_file() else source.iterdir())
    return sorted(file for file in found if file.is_file())
