"""The weights of all variants, each content stored once, before anything is compiled with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx

from aotc.graphs import weights
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import OptimizedModel

SHARED: Final = "weights.bin"


def place_weights(
    variants: Sequence[OptimizedModel], options: BuildOptions
) -> tuple[Path, tuple[Path, ...]]:
    """The folder of the weights, and for each variant a graph that refers to the files in it.

    Weights of one variant only get a file of their own, so that loading another does not read them.
    """
    folder = options.work / "weights"
    folder.mkdir()
    graphs = [onnx.load(item.graph, load_external_data=False) for item in variants]
    if len(variants) == 1:
        weights.adopt_file(graphs[0], variants[0].data, folder, SHARED)
    else:
        _place_all(graphs, variants, folder)
    placed = []
    for item, graph in zip(variants, graphs, strict=True):
        path = item.graph.with_name("placed.onnx")
        path.write_bytes(graph.SerializeToString(deterministic=True))
        placed.append(path)
    return folder, tuple(placed)


def _place_all(
    graphs: Sequence[onnx.ModelProto], variants: Sequence[OptimizedModel], folder: Path
) -> None:
    data = [item.data for item in variants]
    keys = [item.tensors for item in variants]
    specs = [item.plan.spec for item in variants]
    bases = {spec: keys[specs.index(spec)] for spec in dict.fromkeys(specs)}
    first, *others = bases.values()
    placed: dict[str, tuple[str, int]] = {}
    if all(set(keys_of_base) == set(first) for keys_of_base in others):
        # The variants share everything that the first one reads: its file is used as it is.
        weights.adopt_file(graphs[0], data[0], folder, SHARED)
        placed = weights.tensor_places(graphs[0], keys[0])
    users = Counter(key for keys_of_base in bases.values() for key in set(keys_of_base))
    for item, graph, file, own in zip(variants, graphs, data, keys, strict=True):
        plan = item.plan
        names = (f"{plan.spec}.bin", f"{plan.name}.bin")
        known = frozenset(bases[plan.spec])

        def file_of(key: str, names: tuple[str, str] = names, known: frozenset[str] = known) -> str:
            if users[key] > 1:
                return SHARED
            return names[0] if key in known else names[1]

        weights.place_tensors(graph, file, own, folder, file_of, placed)
    for file in data:
        file.unlink(missing_ok=True)
