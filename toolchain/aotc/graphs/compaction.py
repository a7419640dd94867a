"""Compact external data: drop what the final graphs no longer read."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import onnx

from aotc.graphs import weights

# A file of which more is read than this share is linked, not copied.
_MAX_USED_SHARE = 0.95


def compact(
    models: Sequence[Path], source: Path, target: Path, *, unchanged_files: Collection[str] = ()
) -> None:
    """Create the folder `target` with the parts of `source` that the graphs `models` read.

    If little of a file is read, only that is copied and the graphs are changed to refer to the
    copy; other files are linked, and so are `unchanged_files`, which are also read by something
    other than the graphs.  The folder `source` stays as it is.
    """
    target.mkdir()
    graphs = {path: onnx.load(path, load_external_data=False) for path in models}
    read: dict[str, dict[tuple[int, int], None]] = {}
    packed: set[str] = set()
    for graph in graphs.values():
        for tensor, offset, length in weights.external_tensors(graph):
            name = next(p.value for p in tensor.external_data if p.key == "location")
            read.setdefault(name, {})[offset, length] = None
            if weights.packed_forms(tensor):
                packed.add(name)
    for name in unchanged_files:
        read.setdefault(name, {})
    for name, ranges in sorted(read.items()):
        file = source / name
        wanted = sum(length for _, length in ranges)
        if (
            name in packed
            or name in unchanged_files
            or wanted >= _MAX_USED_SHARE * file.stat().st_size
        ):
            os.link(file, target / name)
            continue
        with file.open("rb") as old, (target / name).open("wb", buffering=0) as new:
            moved = weights.copy_ranges(old, sorted(ranges), new)
        for graph in graphs.values():
            weights.repoint(graph, name, moved)
    for path, graph in graphs.items():
        path.write_bytes(graph.SerializeToString(deterministic=True))
