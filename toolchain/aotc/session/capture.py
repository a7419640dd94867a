"""Capture: what an ONNX file contains, read without running the model.

`read_capture` serves both the build and `aotc inspect MODEL`.  It covers all subgraphs of control
flow and all model-local functions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph.external_data import external_files, locations, path_with_data
from aotc.graph.model import (
    dependent_outputs,
    draws,
    escape_text,
    graph_inputs,
    model_bytes,
    parse_model,
    refuse_compiled,
    tensor_bytes,
    tensors,
)
from aotc.graph.values import NUMPY_NAMES
from aotc.graph.view import captured_values, every_graph, every_node, named_subgraphs
from aotc.session.inference import infer_outputs
from aotc.session.sessions import op_name
from aotc.spec.json import MAX_INTEGER
from aotc.spec.manifest import Capture, ControlFlow
from aotc.spec.payload import Finding, Kind, Value
from aotc.spec.relations import is_anonymous

ORT_DOMAINS = (
    "com.microsoft",
    "com.microsoft.nchwc",
    "com.microsoft.experimental",
    "com.ms.internal.nhwc",
)
ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
# DequantizeLinear too: with a MatMul it is fused into an integer product.
_QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "MatMulNBits",
)
_MAX_NAMED = 5
Nodes = Sequence[onnx.NodeProto]
_HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def read_capture(path: Path) -> tuple[Capture, tuple[Value, ...], tuple[Value, ...]]:
    """The capture of the model at `path`, its inputs and its outputs.

    Raises AOTC-I001 to I007 and I010.
    """
    data = model_bytes(path)
    model = parse_model(data, path)
    escaped = escape_text(model)
    infer_outputs(model)
    clashing = clashing_names(model)
    path = path_with_data(locations(tensors(model)), path.absolute())
    captured = capture(model, path, len(data), hashlib.sha256(data).hexdigest())
    return (
        replace(captured, findings=(*captured.findings, *escaped, *random_findings(model))),
        tuple(value_of(info, clashing) for info in graph_inputs(model)),
        tuple(value_of(info, clashing) for info in model.graph.output),
    )


def random_findings(model: onnx.ModelProto) -> Iterator[Finding]:
    """AOTC-I098 for the nodes that draw random numbers, of many the first."""
    found = draws(model)
    behind = dependent_outputs(model, found)
    for draw, outputs in list(zip(found, behind, strict=True))[:_MAX_NAMED]:
        node = draw.described(outputs)
        where = f"node {node.node or node.op_type}"
        yield Finding(code="AOTC-I098", what=node.in_words(), where=where)
    if len(found) > _MAX_NAMED:
        what = f"{len(found) - _MAX_NAMED} more nodes draw random numbers"
        yield Finding(code="AOTC-I098", what=what, where="model")


def capture(model: onnx.ModelProto, path: Path, size: int, sha256: str) -> Capture:
    """The capture of a parsed model whose file is `path`; raises as `read_capture` does.

    `size` and `sha256` are those of the bytes that were parsed.
    """
    # Each walk over a large model takes its time.
    all_nodes, all_tensors = tuple(every_node(model)), tuple(tensors(model))
    for tensor in all_tensors:
        _dtype_name(tensor.data_type, f"tensor {tensor.name}")
    local = {(function.domain, function.name) for function in model.functions}
    initializers = [t for graph in every_graph(model) for t in graph.initializer]
    refuse_compiled(all_nodes)
    op_types: Counter[str] = Counter()
    custom, contrib = set(), set()
    constants = 0
    for node in all_nodes:
        name = op_name(node.domain, node.op_type)
        op_types[name] += 1
        constants += node.op_type == "Constant"
        if (node.domain, node.op_type) in local:
            continue
        if node.domain in ORT_DOMAINS:
            contrib.add(name)
        elif node.domain not in ONNX_DOMAINS:
            custom.add(name)
    return Capture(
        sha256=sha256,
        size=size,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=max(-MAX_INTEGER, min(model.model_version, MAX_INTEGER)),
        graph_name=model.graph.name,
        ir_version=model.ir_version,
        opsets={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        nodes=len(model.graph.node),
        nodes_total=sum(op_types.values()),
        op_types=dict(sorted(op_types.items())),
        initializers=len(initializers),
        initializer_bytes=sum(tensor_bytes(tensor) for tensor in initializers),
        constants=constants,
        functions=tuple(sorted(op_name(f.domain, f.name) for f in model.functions)),
        custom_ops=tuple(sorted(custom)),
        contrib_ops=tuple(sorted(contrib)),
        control_flow=tuple(_control_flow(all_nodes)),
        outer_scope_values=tuple(_side_inputs(all_nodes)),
        external_data=external_files(all_tensors, path),
        quantized=any(
            node.op_type in _QUANTIZED or node.op_type.startswith("QLinear") for node in all_nodes
        ),
        half_precision=any(tensor.data_type in _HALF for tensor in initializers),
        metadata_bytes=_metadata_bytes(model, all_nodes),
        findings=tuple(_findings(model, all_nodes)),
    )


def value_of(info: onnx.ValueInfoProto, clashing: Mapping[str, str] | None = None) -> Value:
    """A graph input or output as a `Value`; a dim with neither size nor name becomes `NAME.INDEX`.

    An anonymous name (`None`, `unk__12`) counts as no name.  `clashing` is the result of
    `clashing_names` for the whole graph.  Raises AOTC-I007.
    """
    renamed = clashing or {}
    kind, proto = _unwrap(info.type)
    dtype = _dtype_name(proto.elem_type, info.name)
    shape: tuple[int | str, ...] | None = None
    if proto.HasField("shape"):
        shape = tuple(
            dim.dim_value
            if dim.HasField("dim_value") and dim.dim_value >= 0
            else f"{info.name}.{index}"
            if is_anonymous(dim.dim_param)
            else renamed.get(dim.dim_param, dim.dim_param)
            for index, dim in enumerate(proto.shape.dim)
        )
    return Value(
        name=info.name,
        kind=kind,
        dtype=NUMPY_NAMES.get(dtype, dtype),
        shape=shape,
        form=_form(info.type, info.name) if kind == "map" else "",
    )


def anonymous_names(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """The positions `INPUT.AXIS` of free dims, by their anonymous name (`None`, `unk__12`)."""
    found: dict[str, tuple[str, ...]] = {}
    for info in graph_inputs(model):
        if _unwrap(info.type)[0] == "tensor":
            for position, name in _free_dims(info):
                if name and is_anonymous(name):
                    found[name] = (*found.get(name, ()), position)
    return found


def clashing_names(model: onnx.ModelProto) -> dict[str, str]:
    """A new name for each dim whose name in the file is the position of an anonymous dim.

    If `x.0` were also the name of a dim of `y`, it could not be told from the first dim of `x`.
    """
    inputs = graph_inputs(model)
    free = [dim for info in (*inputs, *model.graph.output) for dim in _free_dims(info)]
    positions = {position for position, name in free if is_anonymous(name)}
    positions |= {
        f"{info.name}.0" for info in inputs if not _unwrap(info.type)[1].HasField("shape")
    }
    names = {name for _, name in free if not is_anonymous(name)}
    found: dict[str, str] = {}
    for name in sorted(names & positions):
        other = f"{name}_"
        while other in names | positions:
            other += "_"
        found[name] = other
        names.add(other)
    return found


def refuse_sparse(values: Iterable[onnx.ValueInfoProto]) -> None:
    """Raise AOTC-I042 if an input or output is a sparse tensor."""
    for info in values:
        value = value_of(info)
        if value.kind == "sparse":
            raise AotcError(
                "AOTC-I042",
                "the model has a sparse tensor as an input or output",
                where=info.name,
                expected="a tensor, sequence, optional or map",
                found=f"sparse_tensor({value.dtype})",
            )


def _dtype_name(code: int, where: str) -> str:
    if code == onnx.TensorProto.STRING:
        return "string"
    if code not in onnx.TensorProto.DataType.values() or code == onnx.TensorProto.UNDEFINED:
        raise AotcError("AOTC-I007", "unknown element type", where=where, found=str(code))
    return str(onnx.TensorProto.DataType.Name(code)).lower()


def _unwrap(proto: onnx.TypeProto) -> tuple[Kind, onnx.TypeProto.Tensor]:
    case = proto.WhichOneof("value")
    if case == "sequence_type":
        inner_kind, inner = _unwrap(proto.sequence_type.elem_type)
        return ("map" if inner_kind == "map" else "sequence"), inner
    if case == "optional_type":
        return "optional", _unwrap(proto.optional_type.elem_type)[1]
    if case == "map_type":
        return "map", onnx.TypeProto.Tensor(elem_type=proto.map_type.key_type)
    if case == "sparse_tensor_type":
        sparse = proto.sparse_tensor_type
        return "sparse", onnx.TypeProto.Tensor(elem_type=sparse.elem_type, shape=sparse.shape)
    return "tensor", proto.tensor_type


def _form(proto: onnx.TypeProto, where: str) -> str:
    """The whole type, as ONNX writes it: `seq(map(int64,float))`."""
    case = proto.WhichOneof("value")
    if case == "sequence_type":
        return f"seq({_form(proto.sequence_type.elem_type, where)})"
    if case == "map_type":
        key = _dtype_name(proto.map_type.key_type, where)
        return f"map({key},{_form(proto.map_type.value_type, where)})"
    if case == "optional_type":
        return f"optional({_form(proto.optional_type.elem_type, where)})"
    return _dtype_name(proto.tensor_type.elem_type, where)


def _free_dims(info: onnx.ValueInfoProto) -> Iterator[tuple[str, str]]:
    """Each free dim's position `NAME.INDEX`, and its name in the file."""
    proto = _unwrap(info.type)[1]
    for index, dim in enumerate(proto.shape.dim):
        if not dim.HasField("dim_value") or dim.dim_value < 0:
            yield f"{info.name}.{index}", dim.dim_param


def _control_flow(all_nodes: Nodes) -> Iterator[ControlFlow]:
    for node in all_nodes:
        bodies = {name: len(graph.node) for name, graph in named_subgraphs(node)}
        if bodies:
            yield ControlFlow(node=node.name, op_type=node.op_type, subgraphs=bodies)


def _side_inputs(all_nodes: Nodes) -> Iterator[str]:
    for node in all_nodes:
        for name, graph in named_subgraphs(node):
            outer = sorted(captured_values(graph))
            yield from (f"{node.name or node.op_type}.{name}: {value}" for value in outer)


def _metadata_bytes(model: onnx.ModelProto, all_nodes: Nodes) -> dict[str, int]:
    doc = len(model.doc_string) + len(model.graph.doc_string)
    doc += sum(len(node.doc_string) for node in all_nodes)
    props = sum(len(p.key) + len(p.value) for p in model.metadata_props)
    for node in all_nodes:
        props += sum(len(p.key) + len(p.value) for p in node.metadata_props)
    return {name: size for name, size in (("doc_string", doc), ("metadata_props", props)) if size}


def _findings(model: onnx.ModelProto, all_nodes: Nodes) -> Iterator[Finding]:
    seen: Counter[str] = Counter(node.name for node in all_nodes)
    blank = seen.pop("", 0)
    repeated = sum(count - 1 for count in seen.values() if count > 1)
    if blank or repeated:
        parts = [f"{blank} nodes had no name"] if blank else []
        parts += [f"{repeated} had another's name"] if repeated else []
        yield Finding(code="AOTC-I031", what=" and ".join(parts))
    overlap = len(model.graph.input) - len(graph_inputs(model))
    if overlap:
        yield Finding(code="AOTC-I032", what=f"{overlap} initializers were also graph inputs")
    listed = Counter(value.name for value in model.graph.output)
    again = [name for name, count in listed.items() if count > 1]
    if again:
        yield Finding(
            code="AOTC-I094",
            what=f"listed more than once: {', '.join(again[:_MAX_NAMED])}",
        )
    if model.training_info:
        size = sum(info.ByteSize() for info in model.training_info)
        yield Finding(
            code="AOTC-I040",
            what=f"training_info is left out: {size} bytes that only training reads",
        )
