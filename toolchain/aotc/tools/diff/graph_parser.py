"""In a worker: the graph of a model as JSON, with the bytes of the weights that it holds itself.

The only part of comparing that imports onnx.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import onnx
from google.protobuf.message import DecodeError

from aotc.base.errors import AotcError
from aotc.graph.model import tensor_bytes
from aotc.graph.view import constant_tensors, inner_graphs, op_of
from aotc.graph.wire_count import refuse_costly
from aotc.spec.codec import Json, encode
from aotc.tools.diff.stored_graph import (
    HELD,
    MODEL,
    StoredGraph,
    StoredNode,
    StoredTensor,
    unreadable,
)

_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def read_graph_job(request: Json) -> Json:
    """The graph of `model.onnx`; bytes of weights that it holds are written to `held.bin`.

    Raises AOTC-I062 if it is no model, or refers to what the manifest does not list.
    """
    assert isinstance(request, dict)
    name = str(request["model"])
    model = onnx.ModelProto()
    data = Path(MODEL).read_bytes()
    try:
        refuse_costly(data, name)
        model.ParseFromString(data)
    except AotcError as error:
        raise unreadable(name, error.what) from None
    except (DecodeError, ValueError):
        raise unreadable(name, "it is not an ONNX model") from None
    nodes: list[StoredNode] = []
    tensors: dict[str, StoredTensor] = {}
    with Path(HELD).open("wb") as held:
        for path, graph in (("", model.graph), *inner_graphs(model)):
            for short, tensor in constant_tensors(graph).items():
                full = f"{path}/{short}" if path else short
                tensors[full] = _stored(tensor, full, request, held)
            nodes += [
                StoredNode(
                    node.name, op_of(node), tuple(node.input), tuple(node.output), _attributes(node)
                )
                for node in graph.node
            ]
    outputs = tuple(value.name for value in model.graph.output)
    return encode(StoredGraph(tuple(nodes), outputs, tensors))


def _attributes(node: onnx.NodeProto) -> dict[str, str]:
    """Digests by name; subgraphs have nodes of their own, and a Constant's tensor is a weight."""
    return {
        each.name: hashlib.blake2b(each.SerializeToString(deterministic=True)).hexdigest()[:32]
        for each in node.attribute
        if each.type not in _GRAPHS and not (node.op_type == "Constant" and each.HasField("t"))
    }


def _stored(
    tensor: onnx.TensorProto, name: str, request: Mapping[str, Any], held: BinaryIO
) -> StoredTensor:
    model = str(request["model"])
    try:
        dtype = _dtype(tensor.data_type)
        length = tensor_bytes(tensor)
        shape = tuple(tensor.dims)
        if min(shape, default=0) < 0:
            raise ValueError(f"a shape of {list(shape)}")
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            content = _held(tensor)
            if dtype != "string" and len(content) != length:
                raise ValueError(f"{len(content)} bytes, and not {length}")
            offset = held.tell()
            held.write(content)
            digest = hashlib.blake2b(content).hexdigest()
            return StoredTensor(name, dtype, shape, len(content), offset, digest=digest)
        entry = {pair.key: pair.value for pair in tensor.external_data}
        offset, stated = int(entry.get("offset", "0")), int(entry.get("length", "0"))
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(model, f"weight {name}: {error}") from None
    path = posixpath.join(str(request["weights"]), entry.get("location", ""))
    sizes: Mapping[str, int] = request["sizes"]
    if path not in sizes:
        raise unreadable(model, f"weight {name} is in a file that is not the variant's")
    if stated not in (0, length) or offset < 0 or offset + length > sizes[path]:
        raise unreadable(model, f"weight {name} is not within its file")
    return StoredTensor(name, dtype, shape, length, offset, path)


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
