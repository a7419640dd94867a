"""The graph of a variant as it is stored: nodes with their values, and where each weight is.

The only part of comparing, with `tensor_differences`, that imports onnx and numpy.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

import onnx
from google.protobuf.message import DecodeError

from aotc.comparing.opened_artifact import ArtifactContents
from aotc.contract.manifest.variant import Variant
from aotc.errors import AotcError
from aotc.files.artifact_layout import PAYLOAD
from aotc.graphs.capture import MAX_PROTOBUF, graphs
from aotc.graphs.external_data import tensor_bytes
from aotc.records import record


@record(kw_only=False)
class StoredNode:
    """One node: its name, `domain::op_type`, and its values in order."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@record(kw_only=False)
class StoredTensor:
    """One weight: in the model itself (`held`), or `length` bytes at `offset` of a payload file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    held: bytes | None
    path: str = ""
    offset: int = 0


@record(kw_only=False)
class StoredGraph:
    """The nodes of a model and of its subgraphs in order, its outputs, and its weights by name."""

    nodes: tuple[StoredNode, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, StoredTensor]


def read_graph(artifact: ArtifactContents, variant: Variant) -> StoredGraph:
    """The stored graph of a variant; weights in other files are not read.

    Raises AOTC-I062 if the model is no model, or refers to what the manifest does not list, and
    what opening a file does.
    """
    content = artifact.container.read(f"{PAYLOAD}/{variant.model}", MAX_PROTOBUF)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError):
        raise _unreadable(variant.model, "it is not an ONNX model") from None
    sizes = {entry.path: entry.size for entry in artifact.manifest.files}
    nodes: list[StoredNode] = []
    tensors: dict[str, StoredTensor] = {}
    for path, graph in graphs(model):
        for name, tensor in _tensors(graph):
            full = f"{path}/{name}" if path else name
            tensors[full] = _stored(tensor, full, variant, sizes)
        nodes += [
            StoredNode(node.name, _operator(node), tuple(node.input), tuple(node.output))
            for node in graph.node
        ]
    return StoredGraph(tuple(nodes), tuple(value.name for value in model.graph.output), tensors)


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers, and the values of Constant nodes by the names of these nodes' outputs."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.HasField("t") and node.output:
                    yield node.output[0], attribute.t


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _stored(
    tensor: onnx.TensorProto, name: str, variant: Variant, sizes: Mapping[str, int]
) -> StoredTensor:
    try:
        dtype = _dtype(tensor.data_type)
        length = tensor_bytes(tensor)
        shape = tuple(tensor.dims)
        if min(shape, default=0) < 0:
            raise ValueError(f"a shape of {shape}")
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            held = _held(tensor)
            if dtype != "string" and len(held) != length:
                raise ValueError(f"{len(held)} bytes, and not {length}")
            return StoredTensor(name, dtype, shape, len(held), held)
        entry = {pair.key: pair.value for pair in tensor.external_data}
        offset, stated = int(entry.get("offset", "0")), int(entry.get("length", "0"))
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(variant.model, f"weight {name}: {error}") from None
    folder = posixpath.dirname(variant.model) if variant.weights is None else variant.weights
    path = posixpath.join(folder, entry.get("location", ""))
    if path not in variant.files:
        raise _unreadable(variant.model, f"weight {name} is in a file that is not the variant's")
    if stated not in (0, length) or offset < 0 or offset + length > sizes.get(path, 0):
        raise _unreadable(variant.model, f"weight {name} is not within its file")
    return StoredTensor(name, dtype, shape, length, None, path, offset)


def _dtype(code: int) -> str:
    if code == onnx.TensorProto.STRING:
        return "string"
    return str(onnx.helper.tensor_dtype_to_np_dtype(code).name)


def _held(tensor: onnx.TensorProto) -> bytes:
    if tensor.data_type == onnx.TensorProto.STRING:
        return b"".join(b"%d:%s" % (len(text), text) for text in tensor.string_data)
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return bytes(onnx.numpy_helper.to_array(tensor).tobytes())


def _unreadable(model: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I062",
        "the model cannot be read as the manifest describes it",
        where=f"{PAYLOAD}/{model}",
        found=found,
    )
