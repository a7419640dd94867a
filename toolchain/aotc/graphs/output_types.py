"""Types of graph outputs that a file leaves out, as ONNX Runtime infers them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.errors import AotcError
from aotc.graphs.original import open_original

_ELEMENTS: Final = {"float": "FLOAT", "double": "DOUBLE"}


def untyped_outputs(model: onnx.ModelProto) -> tuple[onnx.ValueInfoProto, ...]:
    """Outputs of which the file says no element type."""
    return tuple(value for value in model.graph.output if not _is_typed(value.type))


def _is_typed(proto: onnx.TypeProto) -> bool:
    case = proto.WhichOneof("value")
    if case in ("sequence_type", "optional_type"):
        return _is_typed(getattr(proto, case).elem_type)
    if case == "map_type":
        return bool(proto.map_type.key_type)
    return case is not None and bool(getattr(proto, case).elem_type)


def infer_outputs(model: onnx.ModelProto) -> None:
    """Write the types that ONNX's own inference finds; it knows ONNX's operators alone.

    Raises AOTC-I007 where an output has none then.
    """
    missing = untyped_outputs(model)
    if not missing:
        return
    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        inferred = onnx.shape_inference.infer_shapes(model)
        found = {value.name: value for value in inferred.graph.output}
        for value in missing:
            value.type.CopyFrom(found[value.name].type)
    for value in untyped_outputs(model):
        raise AotcError(
            "AOTC-I007",
            "an output has no type, and ONNX's inference finds none",
            where=value.name,
            fix="Export the model with the type; or build it: ONNX Runtime knows more operators.",
        )


def ask_runtime(model: onnx.ModelProto, path: Path) -> None:
    """Write the types that ONNX Runtime infers for outputs of `model`, whose file is `path`.

    Raises AOTC-I008, I009, I012, I015 and I016 where ONNX Runtime refuses the model.
    """
    missing = untyped_outputs(model)
    if not missing:
        return
    _, session = open_original(path)
    found = {value.name: value for value in session.get_outputs()}
    for value in missing:
        value.type.CopyFrom(_type_of(found[value.name].type, found[value.name].shape))


def _type_of(text: str, shape: list[Any]) -> onnx.TypeProto:
    """From ORT's words, such as `seq(tensor(float))`, and a tensor's sizes and names."""
    outer, _, inner = text.removesuffix(")").partition("(")
    if outer == "seq":
        return onnx.helper.make_sequence_type_proto(_type_of(inner, []))
    if outer == "optional":
        return onnx.helper.make_optional_type_proto(_type_of(inner, shape))
    if outer == "map":
        key, _, item = inner.partition(",")
        return onnx.helper.make_map_type_proto(_element(key), _type_of(item, []))
    # No sizes stand for a scalar and for an unknown rank alike.
    sizes = [_size(dim) for dim in shape] or None
    if outer == "sparse_tensor":
        return onnx.helper.make_sparse_tensor_type_proto(_element(inner), sizes)
    return onnx.helper.make_tensor_type_proto(_element(inner), sizes)


def _element(word: str) -> int:
    return int(onnx.TensorProto.DataType.Value(_ELEMENTS.get(word, word.upper())))


def _size(dim: Any) -> int | str | None:
    if isinstance(dim, str):
        # Inference makes such names up.
        return None if dim.startswith("unk__") else dim
    return dim if isinstance(dim, int) and dim >= 0 else None
