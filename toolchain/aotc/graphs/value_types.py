"""Types and shapes of all values of a graph, inferred by ONNX and by ONNX Runtime.

ONNX's inference does not know operators of ONNX Runtime's domains.  ONNX Runtime infers all types
when it creates a session, but reports only those of graph outputs: so unknown values become outputs
of a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx

from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.session import create_session, run
from aotc.engine.values import Data
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnxruntime as ort

_ELEMENT_TYPES: Final = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOL",
    "string": "STRING",
}


def with_types(
    model: onnx.ModelProto,
    weights: Path,
    inputs: Mapping[str, Data] | None = None,
    *,
    sizes: bool = False,
) -> onnx.ModelProto:
    """A copy of `model` in which every value has its type, and its shape if it can be inferred.

    External data in the folder `weights` is only read by ONNX Runtime.  Values that neither
    inference knows are computed if `inputs` are given, and get the rank that they have then, or
    with `sizes` the full shape.
    """
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    # Declared types may be wrong.
    del typed.graph.value_info[:]
    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        typed = onnx.shape_inference.infer_shapes(typed, data_prop=True)
    known = _typed_values(typed, sizes)
    missing = [name for name in _node_outputs(typed) if name not in known]
    if missing:
        _infer_with_runtime(typed, missing, weights, inputs, sizes)
    return typed


def _node_outputs(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in node.output if name]


def _typed_values(model: onnx.ModelProto, sizes: bool) -> set[str]:
    """Values that have a type and a rank, and with `sizes` every size."""
    found = set()
    for value in (*model.graph.value_info, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind is None:
            continue
        tensor = value.type.tensor_type
        sized = tensor.HasField("shape") and not (
            sizes and any(not dim.HasField("dim_value") for dim in tensor.shape.dim)
        )
        if kind != "tensor_type" or (tensor.elem_type and sized):
            found.add(value.name)
    return found


def _infer_with_runtime(
    model: onnx.ModelProto,
    missing: list[str],
    weights: Path,
    inputs: Mapping[str, Data] | None,
    sizes: bool,
) -> None:
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    outputs = {value.name for value in extended.graph.output}
    for name in missing:
        if name not in outputs:
            extended.graph.output.append(onnx.ValueInfoProto(name=name))
    try:
        session = create_session(
            extended.SerializeToString(),
            SessionSpec(optimization="disable"),
            providers=[CPU],
            weights_folder=weights,
        )
    except AotcError:
        return
    found = {value.name: value for value in session.get_outputs()}
    seen = _shapes_of_run(session, missing, inputs) if inputs is not None else {}
    wanted = set(missing)
    for value in model.graph.output:
        if (
            value.name in wanted
            and (info := _value_info(found[value.name], seen, sizes)) is not None
        ):
            value.CopyFrom(info)
    stated = {value.name: value for value in model.graph.value_info}
    for name in missing:
        info = _value_info(found[name], seen, sizes)
        if info is None or name in outputs:
            continue
        if name in stated:
            stated[name].CopyFrom(info)
        else:
            model.graph.value_info.append(info)


def _shapes_of_run(
    session: ort.InferenceSession, names: list[str], inputs: Mapping[str, Data]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the values in one run; empty if it fails."""
    try:
        found = run(session, inputs, names)
    except AotcError:
        return {}
    return {
        name: tuple(data.shape)
        for name, data in zip(names, found, strict=True)
        if hasattr(data, "shape")
    }


def _value_info(
    value: Any, seen: Mapping[str, tuple[int, ...]], sizes: bool
) -> onnx.ValueInfoProto | None:
    """From ORT's description, such as `tensor(float)` and `['batch', 8]`; None if not a tensor."""
    if not value.type.startswith("tensor("):
        return None
    word = value.type[len("tensor(") : -1]
    kind = onnx.TensorProto.DataType.Value(_ELEMENT_TYPES.get(word, word.upper()))
    shape = [
        dim if isinstance(dim, int) and dim >= 0 else (dim if isinstance(dim, str) else None)
        for dim in value.shape
    ]
    shape_in_run = seen.get(value.name)
    if shape_in_run is not None and sizes:
        return onnx.helper.make_tensor_value_info(value.name, kind, shape_in_run)
    if shape_in_run is not None and len(shape_in_run) != len(shape):
        return onnx.helper.make_tensor_value_info(value.name, kind, [None] * len(shape_in_run))
    if shape_in_run == ():
        return onnx.helper.make_tensor_value_info(value.name, kind, ())
    # An empty list means a scalar or an unknown rank.
    return onnx.helper.make_tensor_value_info(value.name, kind, shape or None)
