"""Weights without what no final graph reads any more."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import onnx

from aotc.graphs import weights

# A file that is read almost whole is left as it is.
_WORTH = 0.95


def compact(
    models: Sequence[Path], source: Path, target: Path, *, whole: Collection[str] = ()
) -> None:
    """Make `target` a folder with what the graphs `models` read of the folder `source`.

    Of a file of which little is read only that is copied, and the graphs are pointed at it; others
    are linked, and so are the files `whole`, which others than the graphs read by offsets.
    `source` stays as it is.
    """
    target.mkdir()
    graphs = {path: onnx.load(path, load_external_data=False) for path in models}
    read: dict[str, dict[tuple[int, int], None]] = {}
    packed: set[str] = set()
    for graph in graphs.values():
        for tensor, offset, length in weights.external_tensors(graph):
            name = next(p.value for p in tensor.external_data if p.key == "location")
            read.setdefault(name, {})[offset, length] = None
            if weights.packed_of(tensor):
                packed.add(name)
    for name in whole:
        read.setdefault(name, {})
    for name, ranges in sorted(read.items()):
        file = source / name
        wanted = sum(length for _, length in ranges)
        if name in packed or name in whole or wanted >= _WORTH * file.stat().st_size:
            os.link(file, target / name)
            continue
        with file.open("rb") as old, (target / name).open("wb", buffering=0) as new:
            moved = weights.copy_ranges(old, sorted(ranges), new)
        for graph in graphs.values():
            weights.move(graph, name, moved)
    for path, graph in graphs.items():
        path.write_bytes(graph.SerializeToString(deterministic=True))
