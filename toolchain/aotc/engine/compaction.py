"""Drop from the weights what no final graph reads any more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from aotc.engine import weights

# A file that is read almost whole is left as it is.
_WORTH = 0.95


def compact(models: Sequence[Path], folder: Path) -> None:
    """Rewrite those files of `folder` of which the graphs `models` read little, and the graphs.

    A file that no graph reads is removed.
    """
    graphs = {path: onnx.load(path, load_external_data=False) for path in models}
    read: dict[str, dict[tuple[int, int], None]] = {}
    packed: set[str] = set()
    for graph in graphs.values():
        for tensor, offset, length in weights.external_tensors(graph):
            name = next(p.value for p in tensor.external_data if p.key == "location")
            read.setdefault(name, {})[offset, length] = None
            if weights.packed_of(tensor):
                packed.add(name)
    for file in sorted(folder.iterdir()):
        ranges = read.get(file.name)
        if ranges is None:
            file.unlink()
        elif (
            file.name not in packed
            and sum(length for _, length in ranges) < _WORTH * file.stat().st_size
        ):
            _rewrite(file, list(graphs.values()), sorted(ranges))
    for path, graph in graphs.items():
        path.write_bytes(graph.SerializeToString(deterministic=True))


def _rewrite(
    file: Path, graphs: Sequence[onnx.ModelProto], ranges: Sequence[tuple[int, int]]
) -> None:
    smaller = file.with_name(f"{file.name}.kept")
    with file.open("rb") as source, smaller.open("wb", buffering=0) as target:
        moved = weights.copy_ranges(source, ranges, target)
    smaller.replace(file)
    for graph in graphs:
        weights.move(graph, file.name, moved)
