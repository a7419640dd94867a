"""Types and shapes of all values of a graph: ONNX's inference, and ONNX Runtime's for the rest.

ONNX's own inference knows no operators of ONNX Runtime's domains.  ONNX Runtime infers them all
when it creates a session, and tells those of the graph's outputs: so unknown values are made
outputs of a copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import onnx

from aotc.contract.manifest import SessionSpec
from aotc.engine.session import create_session
from aotc.errors import AotcError

_ELEMENT_TYPES: Final = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOL",
    "string": "STRING",
}


def with_types(model: onnx.ModelProto, weights: Path) -> onnx.ModelProto:
    """A copy of `model` in which every value has its type, and its shape where one is inferred.

    External data in the folder `weights` is not read but by ONNX Runtime.  Values that neither
    inference knows stay without.
    """
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    # What a file declares may lie.
    del typed.graph.value_info[:]
    try:
        typed = onnx.shape_inference.infer_shapes(typed, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        pass
    missing = [name for name in _made(typed) if name not in _known(typed)]
    if missing:
        _ask_runtime(typed, missing, weights)
    return typed


def _made(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in node.output if name]


def _known(model: onnx.ModelProto) -> set[str]:
    found = set()
    for value in (*model.graph.value_info, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind is None:
            continue
        tensor = value.type.tensor_type
        if kind != "tensor_type" or (tensor.elem_type and tensor.HasField("shape")):
            found.add(value.name)
    return found


def _ask_runtime(model: onnx.ModelProto, missing: list[str], weights: Path) -> None:
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
            providers=["CPUExecutionProvider"],
            weights_folder=weights,
        )
    except AotcError:
        return
    found = {value.name: value for value in session.get_outputs()}
    wanted = set(missing)
    for value in model.graph.output:
        if value.name in wanted and (info := _value_info(found[value.name])) is not None:
            value.CopyFrom(info)
    stated = {value.name: value for value in model.graph.value_info}
    for name in missing:
        info = _value_info(found[name])
        if info is None or name in outputs:
            continue
        if name in stated:
            stated[name].CopyFrom(info)
        else:
            model.graph.value_info.append(info)


def _value_info(value: Any) -> onnx.ValueInfoProto | None:
    """From ORT's description, such as `tensor(float)` and `['batch', 8]`; tensors only."""
    if not value.type.startswith("tensor("):
        return None
    word = value.type[len("tensor(") : -1]
    kind = onnx.TensorProto.DataType.Value(_ELEMENT_TYPES.get(word, word.upper()))
    shape = [
        dim if isinstance(dim, int) and dim >= 0 else (dim if isinstance(dim, str) else None)
        for dim in value.shape
    ]
    # No sizes stand for a scalar and for an unknown rank alike.
    return onnx.helper.make_tensor_value_info(value.name, kind, shape or None)
