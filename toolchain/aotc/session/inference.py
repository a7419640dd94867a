"""What ONNX Runtime says of a graph: its optimizer, its types, its values, its rejections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import onnx

from aotc.base.errors import AotcError
from aotc.graph.passes.base import all_names, free_name
from aotc.graph.types import inferred
from aotc.graph.values import Data
from aotc.graph.view import every_node, made_values, op_of
from aotc.graph.weights import EXTERNAL_BYTES
from aotc.providers.ort import new_session_options
from aotc.session.sessions import (
    TEXT_NOT_UTF8,
    create_session,
    drawing_anew,
    import_onnxruntime,
    ort_errors,
    ort_message,
    ort_text,
    reference_options,
    run,
    session_options,
)
from aotc.spec.providers import CPU, STANDARD
from aotc.spec.variant import Optimization, SessionSpec

if TYPE_CHECKING:
    import onnxruntime as ort


MODEL: Final = "model.onnx"
# Makes a Gemm of a product and a sum: between QuantizeLinear and DequantizeLinear no fusion takes
# that up, and it stays in float32 (BERT-base 1.8 times as slow as without any quantization).  Where
# it runs twice it may fail with "Attempt to replace the existing tensor".
SPOILS_QUANTIZED: Final = ("MatMulAddFusion",)
DATA: Final = "model.bin"
# Some models have operators that only have kernels after fusion.
_LEVELS: Final[tuple[Optimization, ...]] = ("disable", "basic", "extended")
_MISSING_KERNELS: Final = frozenset({"AOTC-I009", "AOTC-I012"})
_TENSOR: Final = "tensor("
_ELEMENTS: Final = {"float": "FLOAT", "double": "DOUBLE"}
_MEMORY = r"bad_alloc|Failed to allocate memory|bad allocation|out of memory"
_KERNEL_FIX = (
    "Answers to compare with come from that provider. If the model computes in bfloat16 or float16,"
    " export it in float32, and let `precision` of the profile say in which to build."
)
# The domain and the operator that no library has.
_UNREGISTERED: Final = re.compile(r"([^\s:]*):(\w+)\(-?\d+\) is not a registered function/op")
# A pattern, the code, what is wrong, and the fix where it is not the code's own.  ONNX Runtime has
# one exception class per status; the rest is English text.  These were seen with 1.31 and 1.32.
_RULES: tuple[tuple[str, str, str, str], ...] = (
    (r"Unsupported model IR version", "AOTC-I016",
     "the IR version is newer than ONNX Runtime's", ""),
    (r"is under development and support for this is limited|only \*guarantees\* support for models",
     "AOTC-I008", "the opset is newer than ONNX Runtime supports", ""),
    (r"Could not find an implementation for|Failed to find kernel", "AOTC-I009",
     "ONNX Runtime's CPU provider has no kernel of an operator, or none for these types",
     _KERNEL_FIX),
    (r"is not a registered function/op|No Op registered for|NOT_IMPLEMENTED|NotImplemented|"
     r"No opset registered|No opset import for domain",
     "AOTC-I009", "ONNX Runtime has no such operator or kernel", ""),
    (_MEMORY, "AOTC-I015", "ONNX Runtime could not allocate memory", ""),
    (r"No space left on device", "AOTC-I018", "ONNX Runtime could not write a file", ""),
)  # fmt: skip
# Weights are not packed for what runs at most once.
_UNPACKED: Final = {"session.disable_prepacking": "1"}
SHAPES_ALONE: Final = SessionSpec(optimization="disable", config=_UNPACKED)
T = TypeVar("T")


def write_optimized(
    graph: Path,
    level: Optimization,
    weights: Path,
    *,
    prepack: bool = False,
    into: Path | None = None,
    without: Sequence[str] = (),
) -> None:
    """Let ONNX Runtime write `graph`, optimized at `level`, to `MODEL` and its weights to `DATA`.

    Both are written to the folder `into` (default: the working directory); the weights of `graph`
    are in the folder `weights`.  With `prepack`, weights are also written in the packed form of the
    kernels of this CPU.  Optimizers that `without` names, as ONNX Runtime does, do not run.
    Raises AOTC-O001.
    """
    place = into or Path()
    settings = {
        "session.optimized_model_external_initializers_file_name": DATA,
        "session.optimized_model_external_initializers_min_size_in_bytes": str(EXTERNAL_BYTES),
        "session.model_external_initializers_file_folder_path": str(weights),
    }
    if prepack:
        settings["session.save_external_prepacked_constant_initializers"] = "1"
    options = session_options(SessionSpec(optimization=level, config=settings))
    options.optimized_model_filepath = str(place / MODEL)
    (place / DATA).unlink(missing_ok=True)
    try:
        import_onnxruntime().InferenceSession(
            str(graph), options, providers=[CPU], disabled_optimizers=list(without)
        )
    except ort_errors() as error:
        raise rejection(
            error, "AOTC-O001", "ONNX Runtime cannot optimize the model", where=f"level {level}"
        ) from None


def create_original(model: Path, options: Any) -> Any:
    """A session of the model file on the CPU, whose runs are profiled if `options` say so.

    Raises AOTC-I008, I009, I012, I015, I016 and I018.
    """

    def opened() -> ort.InferenceSession:
        found: ort.InferenceSession = import_onnxruntime().InferenceSession(
            str(model), options, providers=[CPU]
        )
        return found

    try:
        return opened() if options.enable_profiling else drawing_anew(opened)
    except ort_errors() as error:
        raise rejection(
            error, "AOTC-I012", "ONNX Runtime rejects the model", where=model.name
        ) from None


def open_original(
    model: Path, weights: Path | None = None, *, custom_ops: Sequence[Path] | None = None
) -> tuple[Optimization, Any]:
    """The lowest level at which ONNX Runtime accepts `model`, and a session at that level.

    `weights` is the folder of its external data, if it is not the model's own folder, and
    `custom_ops` are libraries to register (None: those of the process).  Raises what
    `create_original` raises at the lowest level.
    """
    refusals: list[AotcError] = []
    for level in _LEVELS:
        try:
            options = reference_options(level=level, weights=weights, custom_ops=custom_ops)
            return level, create_original(model, options)
        except AotcError as error:
            refusals.append(error)
            if error.code not in _MISSING_KERNELS:
                break
    raise refusals[0]


def operators_by_library(
    model: onnx.ModelProto, libraries: Mapping[str, Path]
) -> dict[str, list[str]]:
    """By a library's name, the operators of `model` that are its own, as `domain::op_type`.

    Each library is asked by graphs of one node.  Raises AOTC-I106 if one cannot be registered, or
    if they cannot be registered together.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    known = {(schema.domain, schema.name) for schema in native.get_all_operator_schema()}
    known |= {(function.domain, function.name) for function in model.functions}
    wanted = {
        op_of(node): (node.domain, node.op_type)
        for node in every_node(model)
        if (node.domain, node.op_type) not in known
    }
    versions = {each.domain: each.version for each in model.opset_import}

    def has(library: Path, domain: str, op: str) -> bool:
        try:
            _open_node(domain, op, versions.get(domain, 1), [library])
        except ort_errors() as error:
            return _UNREGISTERED.search(ort_text(error)) is None
        return True

    found = {
        name: sorted(word for word, (domain, op) in wanted.items() if has(library, domain, op))
        for name, library in libraries.items()
    }
    try:
        _open_node("", "RandomNormal", 18, list(libraries.values()), shape=[1])
    except ort_errors() as error:
        raise AotcError(
            "AOTC-I106",
            "ONNX Runtime cannot register these libraries of custom operators together",
            where=", ".join(library.name for library in libraries.values()),
            found=ort_message(error),
        ) from None
    return found


def _open_node(
    domain: str, op: str, version: int, libraries: Sequence[Path], **attributes: Any
) -> None:
    """Create a session of one node without inputs, with `libraries` alone."""
    node = onnx.helper.make_node(op, [], ["out"], domain=domain, **attributes)
    graph = onnx.helper.make_graph([node], "asked", [], [onnx.ValueInfoProto(name="out")])
    opsets = {"": 18, domain: version}
    asked = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(*each) for each in opsets.items()],
        ir_version=9,
    )
    options = new_session_options(libraries, refusal="AOTC-I106")
    import_onnxruntime().InferenceSession(asked.SerializeToString(), options, providers=[CPU])


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
    found = {value.name: value for value in inferred(model, by_values=False).graph.output}
    for value in missing:
        value.type.CopyFrom(found[value.name].type)
    for value in untyped_outputs(model):
        raise AotcError(
            "AOTC-I007",
            "an output has no type, and ONNX's inference finds none",
            where=value.name,
            fix="Export the model with the type; or build it: ONNX Runtime infers the types "
            "of more operators.",
        )


def infer_outputs_with_runtime(model: onnx.ModelProto, path: Path, weights: Path) -> None:
    """Add missing output types by ONNX Runtime's inference.

    `path` is a file with `model`, and `weights` the folder of its external data.
    Raises AOTC-I008, I009, I012, I015 and I016 if ONNX Runtime refuses the model.
    """
    missing = untyped_outputs(model)
    if not missing:
        return
    _, session = open_original(path, weights)
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


def out_of_memory(message: str) -> bool:
    """Whether ONNX Runtime's message says that it could not allocate memory."""
    return re.search(_MEMORY, message) is not None


def refuse_text(error: AotcError, where: str) -> None:
    """Raise AOTC-I002 if a run failed because of text in an output, which no size can fix."""
    if error.what == TEXT_NOT_UTF8:
        raise AotcError(
            "AOTC-I002",
            error.what,
            where=where,
            found=error.found,
            fix="Export the model with its text values in UTF-8.",
        ) from None


def rejection(error: Exception, default_code: str, what: str, *, where: str = "") -> AotcError:
    """The refusal for an exception of ONNX Runtime; `default_code` is for unknown messages."""
    text = ort_text(error)
    missing = _UNREGISTERED.search(text)
    if missing is not None and missing[1] not in STANDARD:
        return AotcError(
            "AOTC-I009",
            f"ONNX Runtime has no operator {missing[2]} of the domain {missing[1]}",
            where=where,
            found=ort_message(error),
            fix="If it is of a library of custom operators, name that with --custom-ops, or "
            "custom_ops in the profile; else check the operator's name, domain and version.",
        )
    for pattern, code, phrase, fix in _RULES:
        if re.search(pattern, text):
            return AotcError(code, phrase, where=where, found=ort_message(error), fix=fix)
    return AotcError(default_code, what, where=where, found=ort_message(error))


def groups_within(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """`items` in order, in groups whose sizes add up to at most `most`; a larger one is alone."""
    group: list[T] = []
    held = 0
    for item in items:
        size = size_of(item)
        if group and held + size > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += size
    if group:
        yield group


def with_outputs(
    model: onnx.ModelProto,
    names: Iterable[str],
    known: Mapping[str, onnx.ValueInfoProto] | None = None,
) -> onnx.ModelProto:
    """A copy of `model` with further values of its main graph as outputs.

    Those without a type in `known` are left out; without `known`, ONNX Runtime infers their types.
    Names of no node's output are left out as well.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    made = set(made_values(model.graph))
    present = {value.name for value in model.graph.output}
    for name in dict.fromkeys(names):
        if name not in made or name in present:
            continue
        if known is None:
            shown.graph.output.append(onnx.ValueInfoProto(name=name))
        elif name in known:
            shown.graph.output.append(known[name])
    return shown


def outputs_of(
    session: ort.InferenceSession, inputs: Mapping[str, Data], names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Outputs of one run by name, by default all; `inputs` that the session lacks are left out."""
    wanted = {value.name for value in session.get_inputs()}
    asked = [value.name for value in session.get_outputs()] if names is None else list(names)
    given = {name: value for name, value in inputs.items() if name in wanted}
    return dict(zip(asked, run(session, given, asked), strict=True))


def with_types(
    model: onnx.ModelProto,
    weights: Path,
    inputs: Mapping[str, Data] | None = None,
    *,
    sizes: bool = False,
) -> onnx.ModelProto:
    """A copy of `model` in which every value has its type, and its shape if it can be inferred.

    ONNX's inference does not know operators of ONNX Runtime's domains.  ONNX Runtime infers all
    types when it creates a session, but reports only those of graph outputs: so unknown values
    become outputs of a copy.

    External data in the folder `weights` is only read by ONNX Runtime.  Values whose rank, or with
    `sizes` whose full shape, neither inference knows are computed if `inputs` are given, and get
    what they have then.
    """
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    # Declared types may be wrong.
    del typed.graph.value_info[:]
    typed = inferred(typed)
    known = _typed_values(typed, sizes)
    missing = [name for name in made_values(typed.graph) if name not in known]
    if missing:
        _infer_with_runtime(typed, missing, weights, inputs, sizes)
    return typed


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
            SHAPES_ALONE,
            providers=[CPU],
            weights_folder=weights,
        )
    except AotcError:
        return
    found = {value.name: value for value in session.get_outputs()}
    del session
    seen: Mapping[str, tuple[int, ...]] = {}
    if inputs is not None:
        unknown = [name for name in missing if _is_unknown(found[name], sizes)]
        seen = _shapes_of_run(model, unknown, weights, inputs) if unknown else {}
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


def _is_unknown(value: Any, sizes: bool) -> bool:
    """Whether ORT does not say a tensor's rank, or with `sizes` all of its sizes."""
    # An empty list means a scalar or an unknown rank.
    whole = value.shape and not (sizes and any(not isinstance(dim, int) for dim in value.shape))
    return value.type.startswith(_TENSOR) and not whole


def _shapes_of_run(
    model: onnx.ModelProto, names: Sequence[str], weights: Path, inputs: Mapping[str, Data]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the values in one run; empty if it fails.

    They are the only outputs: values that are outputs themselves would all be kept until the end.
    """
    asking = onnx.ModelProto()
    asking.CopyFrom(model)
    used = all_names(asking)
    shapes = {name: free_name("aotc_shape", used) for name in names}
    del asking.graph.output[:]
    for name, shape in shapes.items():
        asking.graph.node.append(onnx.helper.make_node("Shape", [name], [shape], name=shape))
        asking.graph.output.append(
            onnx.helper.make_tensor_value_info(shape, onnx.TensorProto.INT64, [None])
        )
    try:
        session = create_session(
            asking.SerializeToString(),
            SHAPES_ALONE,
            providers=[CPU],
            weights_folder=weights,
            as_listed=True,
        )
        found = outputs_of(session, inputs, shapes.values())
    except AotcError:
        return {}
    return {name: tuple(found[shape].tolist()) for name, shape in shapes.items()}


def _value_info(
    value: Any, seen: Mapping[str, tuple[int, ...]], sizes: bool
) -> onnx.ValueInfoProto | None:
    """From ORT's description, such as `tensor(float)` and `['batch', 8]`; None if not a tensor."""
    if not value.type.startswith(_TENSOR):
        return None
    kind = _element(value.type[len(_TENSOR) : -1])
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
    return onnx.helper.make_tensor_value_info(value.name, kind, shape or None)
