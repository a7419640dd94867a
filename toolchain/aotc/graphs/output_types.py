"""Types of graph outputs that the file omits, by inference."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.errors import AotcError
from aotc.graphs.original import open_original

_ELEMENTS: Final = {"float": "FLOAT", "double": "DOUBLE"}


def untyped_outputs(model: onnx.ModelProto) -> tuple[onnx.ValueInfoProto, ...]:
    """Outputs without an element type in the file."""
    return tuple(value for value in model.graph.output if not _is_typed(value.type))


def _is_typed(proto: onnx.TypeProto) -> bool:
    case = proto.WhichOneof("value")
    if case in ("sequence_type", "optional_type"):
        return _is_typed(getattr(proto, case).elem_type)
    if case == "map_type":
        return bool(proto.map_type.key_type)
    return case is not None and bool(getattr(proto, case).elem_type)


def infer_outputs(model: onnx.ModelProto) -> None:
    """Add missing output types by ONNX's inference, which knows only ONNX's operators.

    Raises AOTC-I007 if an output still has no type.
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


def infer_outputs_with_runtime(model: onnx.ModelProto, path: Path) -> None:
    """Add missing output types by ONNX Runtime's inference; `path` is the file of `model`.

    Raises AOTC-I008, I009, I012, I015 and I016 if ONNX Runtime refuses the model.
    """
    missing = untyped_outputs(model)
    if not missing:
        return
    _, session = open_original(path)
    found = {value.name: value for value in session.get_outputs()}
    for value in missing:
        value.type.CopyFrom(_type_of(found[value.name].type, found[value.name].shape))


def _type_of(text: str, shape: list[Any]) -> onnx.TypeProto:
    """The type from ORT's description, such as `seq(tensor(float))`, and a tensor's dims."""
    outer, _, inner = text.removesuffix(")").partition("(")
    if outer == "seq":
        return onnx.helper.make_sequence_type_proto(_type_of(inner, []))
    if outer == "optional":
        return onnx.helper.make_optional_type_proto(_type_of(inner, shape))
    if outer == "map":
        key, _, item = inner.partition(",")
        return onnx.helper.make_map_type_proto(_element(key), _type_of(item, []))
    # An empty list means a scalar or an unknown rank.
    sizes = [_size(dim) for dim in shape] or None
    if outer == "sparse_tensor":
        return onnx.helper.make_sparse_tensor_type_proto(_element(inner), sizes)
    return onnx.helper.make_tensor_type_proto(_element(inner), sizes)


def _element(word: str) -> int:
    return int(onnx.TensorProto.DataType.Value(_ELEMENTS.get(word, word.upper())))


def _size(dim: Any) -> int | str | None:
    if isinstance(dim, str):
        # Inference invents such names.
        return None if dim.startswith("unk__") else dim
    return dim if isinstance(dim, int) and dim >= 0 else None
