"""Lower: from claimed partitions to files that a session runs, weights shared by all variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aotc.backends.base import BACKENDS
from aotc.contract.manifest import MemoryPlan
from aotc.stages.types import BuildOptions, LoweredModel, PartitionedModel

_FIRST = "weights.bin"
# The portable variant takes the layout step at load, the host's has it baked in.
_LOAD_LEVELS: Final = {"baseline": "all", "host": "disable"}


@dataclass(slots=True)
class WeightStore:
    """The shared asset under construction: tensors by digest, with file and offset."""

    folder: Path
    known: dict[str, tuple[str, int]] = field(default_factory=dict)


def lower(
    partitions: Sequence[PartitionedModel], options: BuildOptions
) -> tuple[LoweredModel, ...]:
    """Lower all variants; the first one's weights are adopted whole, the others add what differs."""
    folder = options.work / "weights"
    folder.mkdir()
    store = WeightStore(folder=folder)
    several = len(partitions) > 1
    return tuple(
        _lower(item, store, options, index, several) for index, item in enumerate(partitions)
    )


def _lower(
    partitioned: PartitionedModel,
    store: WeightStore,
    options: BuildOptions,
    index: int,
    several: bool,
) -> LoweredModel:
    import onnx

    from aotc.engine import weights

    optimized = partitioned.optimized
    spec = optimized.specialized.spec
    model = onnx.load(optimized.graph, load_external_data=False)
    if index == 0:
        if several:
            store.known |= weights.digests(model, optimized.data, _FIRST)
        weights.adopt(model, optimized.data, store.folder, _FIRST)
    else:
        weights.share(model, optimized.data, store.folder, f"{spec.name}.bin", store.known)
    path = optimized.graph.with_name("lowered.onnx")
    path.write_bytes(model.SerializeToString(deterministic=True))
    backend = BACKENDS.load(options.profile.providers[0])()
    return LoweredModel(
        partitioned=partitioned,
        model=path,
        weights=store.folder,
        session=backend.session(_LOAD_LEVELS[spec.isa]),
        memory=_memory(model, partitioned),
    )


def _memory(model: object, partitioned: PartitionedModel) -> MemoryPlan:
    import onnx

    from aotc.engine.fixtures import shape_of

    assert isinstance(model, onnx.ModelProto)
    analyzed = partitioned.optimized.specialized.analyzed
    largest = analyzed.domain.corner("max")
    inputs = 0
    for value in analyzed.source.inputs:
        elements = 1
        for size in shape_of(value, largest):
            elements *= size
        inputs += elements * _WIDTHS.get(value.dtype, 1)
    total = 0
    for tensor in model.graph.initializer:
        entry = {pair.key: pair.value for pair in tensor.external_data}
        total += int(entry.get("length", "0")) or len(tensor.raw_data) or tensor.ByteSize()
    return MemoryPlan(
        weights_bytes=total,
        input_bytes_max=inputs,
        activation_bytes_max=analyzed.activation_bytes,
    )


_WIDTHS = {
    "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "complex64": 8, "complex128": 16,
}  # fmt: skip
