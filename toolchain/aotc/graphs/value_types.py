"""Types and shapes of all values of a graph: ONNX's inference, and ONNX Runtime's for the rest.

ONNX's own inference knows no operators of ONNX Runtime's domains.  ONNX Runtime infers them all
when it creates a session, and tells those of the graph's outputs: so unknown values are made
outputs of a copy.
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
    """A copy of `model` in which every value has its type, and its shape where one is inferred.

    External data in the folder `weights` is not read but by ONNX Runtime.  Values that neither
    inference knows are run for where `inputs` are given, and get the rank that they have then, or
    with `sizes` the whole shape.
    """
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    # What a file declares may lie.
    del typed.graph.value_info[:]
    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        typed = onnx.shape_inference.infer_shapes(typed, data_prop=True)
    known = _known(typed, sizes)
    missing = [name for name in _made(typed) if name not in known]
    if missing:
        _ask_runtime(typed, missing, weights, inputs, sizes)
    return typed


def _made(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in node.output if name]


def _known(model: onnx.ModelProto, sizes: bool) -> set[str]:
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


def _ask_runtime(
    model: onnx.ModelProto,
    missing: list[str],
    weights: Path,
    inputs: Mapping[str, Data] | None,
    sizes: bool,
) -> None:
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    outputs = {value.name for value in asked.graph.output}
    for name in missing:
        if name not in outputs:
            asked.graph.output.append(onnx.ValueInfoProto(name=name))
    try:
        session = create_session(
            asked.SerializeToString(),
            SessionSpec(optimization="disable"),
            providers=[CPU],
            weights_folder=weights,
        )
    except AotcError:
        return
    found = {value.name: value for value in session.get_outputs()}
    seen = _run(session, missing, inputs) if inputs is not None else {}
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


def _run(
    session: ort.InferenceSession, names: list[str], inputs: Mapping[str, Data]
) -> dict[str, tuple[int, ...]]:
    """Shapes that values have in one run; none where it fails."""
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
    """From ORT's description, such as `tensor(float)` and `['batch', 8]`; tensors only."""
    if not value.type.startswith("tensor("):
        return None
    word = value.type[len("tensor(") : -1]
    kind = onnx.TensorProto.DataType.Value(_ELEMENT_TYPES.get(word, word.upper()))
    shape = [
        dim if isinstance(dim, int) and dim >= 0 else (dim if isinstance(dim, str) else None)
        for dim in value.shape
    ]
    real = seen.get(value.name)
    if real is not None and sizes:
        return onnx.helper.make_tensor_value_info(value.name, kind, real)
    if real is not None and len(real) != len(shape):
        return onnx.helper.make_tensor_value_info(value.name, kind, [None] * len(real))
    if real == ():
        return onnx.helper.make_tensor_value_info(value.name, kind, ())
    # No sizes stand for a scalar and for an unknown rank alike.
    return onnx.helper.make_tensor_value_info(value.name, kind, shape or None)
