"""Lower: from claimed partitions to files that a session runs, weights shared by all variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import onnx

from aotc.backends.base import BACKENDS
from aotc.contract.manifest import MemoryPlan
from aotc.engine import weights
from aotc.engine.capture import tensors
from aotc.engine.fixtures import shape_of
from aotc.stages.types import BuildOptions, LoweredModel, PartitionedModel

_SHARED = "weights.bin"
_NO_PREPACKING = "session.disable_prepacking"
# The portable variant takes the layout step at load, the host's has it baked in.
_LOAD_LEVELS: Final = {"baseline": "all", "host": "disable"}


def lower(
    partitions: Sequence[PartitionedModel], options: BuildOptions
) -> tuple[LoweredModel, ...]:
    """Lower all variants; tensors that several variants have are stored once.

    What only one variant reads gets a file of its own, so that loading another reads it not.
    """
    folder = options.work / "weights"
    folder.mkdir()
    graphs = [onnx.load(item.optimized.graph, load_external_data=False) for item in partitions]
    data = [item.optimized.data for item in partitions]
    if len(partitions) == 1:
        weights.adopt(graphs[0], data[0], folder, _SHARED)
    else:
        _place_all(graphs, data, partitions, folder)
    return tuple(
        _lowered(item, graph, folder, options)
        for item, graph in zip(partitions, graphs, strict=True)
    )


def _place_all(
    graphs: Sequence[onnx.ModelProto],
    data: Sequence[Path],
    partitions: Sequence[PartitionedModel],
    folder: Path,
) -> None:
    keys = [item.optimized.tensors for item in partitions]
    specs = [item.optimized.specialized.plan.spec for item in partitions]
    bases = {spec: keys[specs.index(spec)] for spec in dict.fromkeys(specs)}
    first, *others = bases.values()
    placed: dict[str, tuple[str, int]] = {}
    if all(set(one) == set(first) for one in others):
        # All that the first variant reads is shared: its file is taken as it is.
        weights.adopt(graphs[0], data[0], folder, _SHARED)
        placed = weights.places(graphs[0], keys[0])
    users = Counter(key for one in bases.values() for key in set(one))
    for item, graph, file, own in zip(partitions, graphs, data, keys, strict=True):
        plan = item.optimized.specialized.plan
        names = (f"{plan.spec}.bin", f"{plan.name}.bin")
        known = frozenset(bases[plan.spec])

        def file_of(key: str, names: tuple[str, str] = names, known: frozenset[str] = known) -> str:
            if users[key] > 1:
                return _SHARED
            return names[0] if key in known else names[1]

        weights.place(graph, file, own, folder, file_of, placed)
    for file in data:
        file.unlink(missing_ok=True)


def _lowered(
    partitioned: PartitionedModel, model: onnx.ModelProto, folder: Path, options: BuildOptions
) -> LoweredModel:
    optimized = partitioned.optimized
    path = optimized.graph.with_name("lowered.onnx")
    path.write_bytes(model.SerializeToString(deterministic=True))
    plan = optimized.specialized.plan
    backend = BACKENDS.load(options.profile.providers[0])()
    session = backend.session(_LOAD_LEVELS[plan.isa])
    if plan.prepack == "off":
        session = replace(session, config={**session.config, _NO_PREPACKING: "1"})
    return LoweredModel(
        partitioned=partitioned,
        model=path,
        weights=folder,
        files=weights.locations(model),
        session=session,
        memory=_memory(model, partitioned),
    )


def _memory(model: onnx.ModelProto, partitioned: PartitionedModel) -> MemoryPlan:
    specialized = partitioned.optimized.specialized
    analyzed, domain = specialized.analyzed, specialized.domain or specialized.analyzed.domain
    largest = domain.corner("max")
    inputs = 0
    for value in analyzed.source.inputs:
        elements = 1
        for size in shape_of(value, largest):
            elements *= size
        inputs += elements * _WIDTHS.get(value.dtype, 1)
    total = 0
    for tensor in tensors(model):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        total += int(entry.get("length", "0")) or len(tensor.raw_data) or tensor.ByteSize()
    return MemoryPlan(
        weights_bytes=total,
        input_bytes_max=inputs,
        activation_bytes_max=analyzed.activation_bytes if not specialized.plan.buckets else None,
    )


_WIDTHS = {
    "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "complex64": 8, "complex128": 16,
}  # fmt: skip
