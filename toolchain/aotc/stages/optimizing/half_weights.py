"""Weights in half precision for ONNX Runtime's CPU, which computes with them in float32."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from aotc.contract.codec.parsing import Json
from aotc.contract.finding import Finding
from aotc.contract.manifest.toolchain import KEPT, PassRecord
from aotc.errors import AotcError
from aotc.passes.base import run_passes, walk_graphs
from aotc.passes.half_precision.half_types import HALF_TYPES, HalfType
from aotc.passes.half_precision.stored_weights import (
    MIN_BYTES,
    StoreInHalf,
    Weight,
    large_weights,
)
from aotc.passes.half_precision.typed_graph import lift_constants
from aotc.passes.quantize.scoped_constants import scopes_of
from aotc.records import replace

Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]

# Why a node is kept, as the manifest counts it.
WEIGHTS: Final = f"{KEPT}constants out of range"
PROFILE: Final = f"{KEPT}profile"


def weights_to_half(
    model: onnx.ModelProto, request: Json, kept: frozenset[str]
) -> tuple[PassRecord, tuple[Finding, ...]]:
    """In the worker: store the weights of `model`, which are in the working directory, in half.

    `kept` are names of its nodes whose weights stay in float32.  Finding AOTC-N028 tells that
    nothing is computed in half precision.  Raises AOTC-N012 if no weight can be changed.
    """
    half = HALF_TYPES[request["to"]]
    lift_constants(model)
    sizes = {weight: math.prod(tensor.dims) for weight, tensor in _weights(model).items()}
    left, reasons = _left(model, half, kept, read_tensor)
    counts = Counter(reasons.values())
    changed = sizes.keys() - left
    if not changed:
        raise AotcError(
            "AOTC-N012",
            f"no weight can be stored in {half.name}",
            where=request["where"],
            found=", ".join(f"{count} {why}" for why, count in counts.items())
            or f"none takes {MIN_BYTES} bytes",
            fix="Choose precision: keep.",
        )
    before = _float_bytes(model)
    (made,) = run_passes(model, (StoreInHalf(to=half.name, read=read_tensor, kept=left),))
    saved = 2 * sum(sizes[weight] for weight in changed)
    what = (
        f"ONNX Runtime's CPU provider computes in float32: {len(changed)} weights are stored in "
        f"{half.name}, {saved} of {before} bytes are saved, and calls take as long as before"
    )
    record = replace(
        made,
        matched=dict(sorted({"weights": len(changed), **counts}.items())),
        kept=tuple(reasons),
    )
    return record, (Finding(code="AOTC-N028", what=what, where=request["where"]),)


def rounding_twin(
    model: onnx.ModelProto, request: Json, kept: frozenset[str]
) -> tuple[onnx.ModelProto, frozenset[str]]:
    """A graph that rounds its weights when it runs, as `weights_to_half` stores them.

    Those that nodes named in `kept` read stay as they are; so does the file that has them all.
    With it come the names of the nodes that read rounded ones.
    """
    half = HALF_TYPES[request["to"]]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    lift_constants(made)
    read = partial(read_tensor, folder=Path(request["weights"]))
    left, _ = _left(made, half, kept, read)
    readers = frozenset(node.name for node, given in _readers(made) if given - left)
    run_passes(made, (StoreInHalf(to=half.name, read=read, kept=left, cast_constants=True),))
    return made, readers


def _left(
    model: onnx.ModelProto, half: HalfType, kept: frozenset[str], read: Read
) -> tuple[frozenset[Weight], dict[str, str]]:
    """The weights that stay in float32, and why, by the nodes that read them."""
    weights = _weights(model)
    narrow = {weight for weight, tensor in weights.items() if not half.holds(read(tensor))}
    reasons: dict[str, str] = {}
    left = set(narrow)
    for node, given in _readers(model):
        if node.name in kept:
            reasons[node.name] = PROFILE
            left |= given
        elif given & narrow:
            reasons[node.name] = WEIGHTS
    return frozenset(left), reasons


def _readers(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, set[Weight]]]:
    """The nodes that read large weights, and which."""
    weights = _weights(model)
    known = {id(tensor): weight for weight, tensor in weights.items()}
    names = {name for _, name in weights}
    for scope in scopes_of(model.graph):
        for node in scope.graph.node:
            seen = [scope.constant(name) for name in node.input if name in names]
            given = {known[id(one[0])] for one in seen if one is not None and id(one[0]) in known}
            if given:
                yield node, given


def read_tensor(tensor: onnx.TensorProto, folder: Path = Path()) -> np.ndarray[Any, Any]:
    """The values of a tensor whose data may be in `folder`."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        loaded = onnx.TensorProto()
        loaded.CopyFrom(tensor)
        load_external_data_for_tensor(loaded, str(folder))
        tensor = loaded
    return onnx.numpy_helper.to_array(tensor)


def _weights(model: onnx.ModelProto) -> dict[Weight, onnx.TensorProto]:
    return {
        (at, tensor.name): tensor
        for at, graph in enumerate(walk_graphs(model))
        for tensor in large_weights(graph)
    }


def _float_bytes(model: onnx.ModelProto) -> int:
    return sum(
        4 * math.prod(tensor.dims)
        for graph in walk_graphs(model)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    )
