"""The graph of a variant as it is stored: nodes with their values, and where each weight is.

The model is foreign and not verified, so a sandboxed worker parses it: a file that crashes or hangs
the parser is a problem of the report.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import onnx
from google.protobuf.message import DecodeError

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import record
from aotc.graph.model import graphs, tensor_bytes
from aotc.graph.view import op_of
from aotc.session.worker_pool import Workers
from aotc.spec.codec import Json
from aotc.spec.variant import Variant
from aotc.tools.diff.opened_artifact import LIMITS, MAX_MODEL_BYTES, ArtifactContents

# In the folder of a job: the model, and the weights that it holds itself.
MODEL: Final = "model.onnx"
HELD: Final = "held.bin"
_JOB: Final = "aotc.tools.diff.stored_graph"


@record(kw_only=False)
class StoredNode:
    """One node: its name, `domain::op_type`, its values in order, and digests of attributes."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, str]


@record(kw_only=False)
class StoredTensor:
    """One weight: `length` bytes at `offset` of a payload file, or of `held` if the model has it.

    `digest` is that of its bytes if the model itself has them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    offset: int
    path: str = ""
    held: Path | None = None
    digest: str = ""


@record(kw_only=False)
class StoredGraph:
    """The nodes of a model and of its subgraphs in order, its outputs, and its weights by name."""

    nodes: tuple[StoredNode, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, StoredTensor]


class GraphReader:
    """Reads stored graphs in workers; a context manager that removes their files."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> GraphReader:
        with ExitStack() as stack:
            self._folder = stack.enter_context(temporary_folder("comparing"))
            self._workers = stack.enter_context(Workers(LIMITS, (_JOB,)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, artifact: ArtifactContents, variant: Variant) -> StoredGraph:
        """The stored graph of a variant; weights in other files are not read.

        Raises AOTC-I062 if the model is no model, or refers to what the manifest does not list,
        G012 if it is too large, what opening a file does, and what `Workers.run` does.
        """
        where = f"{PAYLOAD}/{variant.model}"
        place = self._folder / f"graph-{self._count}"
        self._count += 1
        place.mkdir()
        (place / MODEL).write_bytes(artifact.container.read(where, MAX_MODEL_BYTES))
        folder = posixpath.dirname(variant.model) if variant.weights is None else variant.weights
        sizes = {
            entry.path: entry.size
            for entry in artifact.manifest.files
            if entry.path in variant.files
        }
        done = self._workers.run(
            f"{_JOB}:read_graph_job",
            {"model": variant.model, "weights": folder, "sizes": sizes},
            folder=place,
            where=where,
        )
        (place / MODEL).unlink()
        return _graph(done.value, place / HELD)


def unreadable(model: str, found: str) -> AotcError:
    """AOTC-I062 of a model in the payload."""
    return AotcError(
        "AOTC-I062",
        "the model cannot be read as the manifest describes it",
        where=f"{PAYLOAD}/{model}",
        found=found,
    )


def _graph(value: Any, held: Path) -> StoredGraph:
    nodes = tuple(
        StoredNode(
            node["name"],
            node["op"],
            tuple(node["inputs"]),
            tuple(node["outputs"]),
            node["attributes"],
        )
        for node in value["nodes"]
    )
    tensors = {
        name: StoredTensor(
            name,
            each["dtype"],
            tuple(each["shape"]),
            each["length"],
            each["offset"],
            each.get("path", ""),
            held if "digest" in each else None,
            each.get("digest", ""),
        )
        for name, each in value["tensors"].items()
    }
    return StoredGraph(nodes, tuple(value["outputs"]), tensors)


# In a worker: the graph of a model as JSON, with the bytes of the weights that it holds itself.
#
# The only part of comparing that imports onnx.


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def read_graph_job(request: Json) -> Json:
    """The graph of `model.onnx`; bytes of weights that it holds are written to `held.bin`.

    Raises AOTC-I062 if it is no model, or refers to what the manifest does not list.
    """
    assert isinstance(request, dict)
    name = str(request["model"])
    model = onnx.ModelProto()
    try:
        model.ParseFromString(Path(MODEL).read_bytes())
    except (DecodeError, ValueError):
        raise unreadable(name, "it is not an ONNX model") from None
    nodes: list[Json] = []
    tensors: dict[str, Json] = {}
    with Path(HELD).open("wb") as held:
        for path, graph in graphs(model):
            for short, tensor in _tensors(graph):
                full = f"{path}/{short}" if path else short
                tensors[full] = _stored(tensor, full, request, held)
            nodes += [
                {
                    "name": node.name,
                    "op": op_of(node),
                    "inputs": list(node.input),
                    "outputs": list(node.output),
                    "attributes": _attributes(node),
                }
                for node in graph.node
            ]
    return {
        "nodes": nodes,
        "outputs": [value.name for value in model.graph.output],
        "tensors": tensors,
    }


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers, and the values of Constant nodes by the names of these nodes' outputs."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.HasField("t") and node.output:
                    yield node.output[0], attribute.t


def _attributes(node: onnx.NodeProto) -> dict[str, Json]:
    """Digests by name; subgraphs have nodes of their own, and a Constant's tensor is a weight."""
    return {
        each.name: hashlib.blake2b(each.SerializeToString(deterministic=True)).hexdigest()[:32]
        for each in node.attribute
        if each.type not in _GRAPHS and not (node.op_type == "Constant" and each.HasField("t"))
    }


def _stored(
    tensor: onnx.TensorProto, name: str, request: Mapping[str, Any], held: BinaryIO
) -> Json:
    model = str(request["model"])
    try:
        dtype = _dtype(tensor.data_type)
        length = tensor_bytes(tensor)
        shape = list(tensor.dims)
        if min(shape, default=0) < 0:
            raise ValueError(f"a shape of {shape}")
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            content = _held(tensor)
            if dtype != "string" and len(content) != length:
                raise ValueError(f"{len(content)} bytes, and not {length}")
            offset = held.tell()
            held.write(content)
            return {
                **{"dtype": dtype, "shape": shape, "length": len(content), "offset": offset},
                "digest": hashlib.blake2b(content).hexdigest(),
            }
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
    return {"dtype": dtype, "shape": shape, "length": length, "offset": offset, "path": path}


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
