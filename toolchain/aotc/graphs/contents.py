"""What an ONNX file contains: its graphs and subgraphs, their nodes, tensors and inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from aotc.errors import AotcError
from aotc.files.failures import cannot_read
from aotc.graphs.model_file import require_model_file

MAX_PROTOBUF = 2**31 - 1


def read_model(path: Path) -> onnx.ModelProto:
    """Parse the model file at `path`; external data is not read.

    Raises AOTC-I001 (it cannot be read) and AOTC-I002 (it is not a complete ONNX model).
    """
    require_model_file(path)
    size = path.stat().st_size
    if size == 0:
        raise AotcError("AOTC-I002", "the file is empty", where=str(path))
    if size > MAX_PROTOBUF:
        raise AotcError(
            "AOTC-I002",
            "a protobuf message cannot exceed 2 GiB",
            where=str(path),
            found=f"{size} bytes",
            fix="Save the model with external data (onnx.save with save_as_external_data=True).",
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise cannot_read(error, "cannot read the model", str(path)) from None
    except (DecodeError, ValueError) as error:
        if "MaxDepth" in str(error):
            raise AotcError(
                "AOTC-I002",
                "the model is nested too deeply",
                where=str(path),
                expected="at most 100 nested messages, which is about 31 nested subgraphs of "
                "control flow; ONNX Runtime reads no more",
                fix="Export the model with less control flow inside of control flow.",
            ) from None
        raise AotcError("AOTC-I002", "the file is not a ModelProto", where=str(path)) from None
    if model.ir_version < 1 or not model.opset_import or not model.graph.output:
        raise AotcError(
            "AOTC-I002",
            "the file does not hold a complete model",
            where=str(path),
            expected="ir_version, opset_import and graph outputs",
            found=f"ir_version {model.ir_version}, {len(model.opset_import)} opsets, "
            f"{len(model.graph.output)} outputs",
        )
    return model


def graphs(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The main graph and every subgraph, each with a path such as `/If_3.then_branch`."""
    yield from _graphs_below("", model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _subgraphs(f"{function.domain}::{function.name}", node)


def _graphs_below(path: str, graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    yield path, graph
    for node in graph.node:
        yield from _subgraphs(path, node)


def _subgraphs(path: str, node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    for attribute in node.attribute:
        label = f"{path}/{node.name or node.op_type}.{attribute.name}"
        if attribute.HasField("g"):
            yield from _graphs_below(label, attribute.g)
        for subgraph in attribute.graphs:
            yield from _graphs_below(label, subgraph)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the main graph, of subgraphs and of functions."""
    for _, graph in graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor in the file: initializers and attributes."""
    for _, graph in graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
    for node in nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
            for sparse in attribute.sparse_tensors:
                yield sparse.values
                yield sparse.indices


def graph_inputs(model: onnx.ModelProto) -> tuple[onnx.ValueInfoProto, ...]:
    """The inputs that a caller passes: graph inputs that are not initializers."""
    constant = {tensor.name for tensor in model.graph.initializer}
    return tuple(info for info in model.graph.input if info.name not in constant)
