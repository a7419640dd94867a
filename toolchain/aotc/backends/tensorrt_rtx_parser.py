"""Which nodes TensorRT for RTX's ONNX parser accepts, found in several rounds.

The parser only checks nodes whose inputs it could compute, so nodes behind a refused one are
checked in another round without it.  Types are checked here: the parser silently computes float64
as float32.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.errors import AotcError, install_extra
from aotc.records import record

if TYPE_CHECKING:
    import onnx

MODULE: Final = "tensorrt_rtx_bindings"
_MAX_ROUNDS: Final = 64
_MAX_MESSAGE: Final = 400
_MAX_ERRORS: Final = 20
# Without a GPU every failure also mentions that; the other lines only frame the message.
_NOISE: Final = ("catchCudaError", "Begin node", "End node", "While parsing node")
# TensorRT's names of element types, by ONNX's.
_DATA_TYPES: Final = {
    "FLOAT": "FLOAT",
    "FLOAT16": "HALF",
    "BFLOAT16": "BF16",
    "BOOL": "BOOL",
    "INT4": "INT4",
    "INT8": "INT8",
    "UINT8": "UINT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "FLOAT8E4M3FN": "FP8",
    "FLOAT4E2M1": "FP4",
}


@record(kw_only=False)
class ParserResult:
    """The parser's result for a model: main-graph nodes by index, refusals by name of node."""

    supported: bool
    listed: frozenset[int]
    refused: Mapping[str, str]


@cache
def tensorrt() -> Any:
    """The module of TensorRT for RTX; raises AOTC-I019."""
    try:
        return importlib.import_module(MODULE)
    except (ImportError, OSError) as error:
        raise AotcError(
            "AOTC-I019",
            "TensorRT for RTX cannot be imported",
            found=str(error),
            fix=install_extra("rtx"),
        ) from None


@cache
def listener() -> Any:
    """TensorRT's logger, one per process; its `errors` are the last error messages."""
    trt = tensorrt()

    class Listener(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR and not any(noise in message for noise in _NOISE):
                self.errors = [*self.errors, one_line(message)][-_MAX_ERRORS:]

    return Listener()


def one_line(text: str) -> str:
    """A message of TensorRT without line breaks, truncated."""
    lines = [line for line in text.splitlines() if not any(noise in line for noise in _NOISE)]
    return " ".join(" ".join(lines).split())[:_MAX_MESSAGE]


def parse_into(network: Any, text: bytes, weights: Path) -> Any:
    """A parser that has read a serialized model with external data in the folder `weights`.

    Its errors tell what it refused.
    """
    parser = tensorrt().OnnxParser(network, listener())
    parser.parse(text, str(weights / "model.onnx"))
    return parser


def new_network(builder: Any) -> Any:
    """An empty network that computes in the types that the model declares."""
    flag = tensorrt().NetworkDefinitionCreationFlag.STRONGLY_TYPED
    return builder.create_network(1 << int(flag))


def parser_errors(parser: Any, graph: onnx.GraphProto) -> dict[str, str]:
    """Reasons by name of the main-graph node that they concern; "": not a single node."""
    owners = {node.name: owner.name for owner in graph.node for node in with_inner_nodes(owner)}
    makers = {value: node.name for node in graph.node for value in node.output if value}
    found: dict[str, str] = {}
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, message = error.node_name(), one_line(error.desc())
        if name not in owners and 0 <= error.node() < len(graph.node):
            name = graph.node[error.node()].name
        if name not in owners:
            words = [word.rstrip(".") for word in re.split(r"[\s'\",]+", error.desc())]
            name = next((makers[word] for word in words if word in makers), "")
        inside = f" in its body, {name!r}" if owners.get(name, name) != name else ""
        what = f"the parser refuses {error.node_operator() or 'it'}{inside}"
        reason = f"{what} ({error.code().name}, {error.func()}): {message}"
        found.setdefault(owners.get(name, ""), reason)
    return found


def _check_model(builder: Any, model: onnx.ModelProto, weights: Path) -> ParserResult:
    """The parser's result for a whole model."""
    listener().errors = []
    # The parser does not keep its network alive.
    network = new_network(builder)
    parser = tensorrt().OnnxParser(network, listener())
    supported = parser.supports_model_v2(model.SerializeToString(), str(weights / "model.onnx"))
    groups = [parser.get_subgraph_nodes(index) for index in range(parser.num_subgraphs)]
    return ParserResult(
        bool(supported),
        frozenset(index for group in groups for index in group),
        parser_errors(parser, model.graph),
    )


def refusals(model: onnx.ModelProto, weights: Path) -> tuple[dict[str, str], bool]:
    """Main-graph nodes that the parser refuses, with its reasons, and whether these are all.

    They are not all if the parser refused further nodes in every round.
    """
    nodes = list(model.graph.node)
    source = _Source(model)
    refused = {node.name: why for node in nodes if (why := _unfit(node, source.types))}
    builder = tensorrt().Builder(listener())
    refused_alone: dict[int, str] = {}
    for _ in range(_MAX_ROUNDS):
        remaining = [index for index, node in enumerate(nodes) if node.name not in refused]
        extract, untyped = source.extract(remaining)
        if untyped:
            refused |= untyped
            continue
        result = _check_model(builder, extract, weights) if remaining else None
        if result is None or result.supported:
            return refused, True
        new = _refused_nodes(extract.graph, result)
        refused |= new
        for index in _same_operators(nodes, remaining, new):
            if index not in refused_alone:
                single, untyped = source.extract([index])
                found = {} if untyped else _check_model(builder, single, weights).refused
                refused_alone[index] = found.get(nodes[index].name, "")
        refused |= _twins(nodes, refused_alone, new)
    return refused, False


def _refused_nodes(graph: onnx.GraphProto, result: ParserResult) -> dict[str, str]:
    """Nodes of a graph that a result refuses; all of them if it names none."""
    new = {name: why for name, why in result.refused.items() if name}
    for index, node in enumerate(graph.node):
        if index not in result.listed:
            new.setdefault(node.name, "the parser lists it in no subgraph")
    if new:
        return new
    message = result.refused.get("") or "; ".join(listener().errors) or "it gives no reason"
    why = f"the parser refuses the graph: {message}"[:_MAX_MESSAGE]
    return {node.name: why for node in graph.node}


def _same_operators(
    nodes: Sequence[onnx.NodeProto], remaining: Sequence[int], refused: Mapping[str, str]
) -> list[int]:
    kinds = {nodes[index].op_type for index in remaining if nodes[index].name in refused}
    return [index for index in remaining if nodes[index].op_type in kinds]


def _twins(
    nodes: Sequence[onnx.NodeProto], refused_alone: Mapping[int, str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Nodes that, checked alone, are refused in the same words as one that was just refused.

    The parser stops at the first node that it cannot translate, so a graph with a hundred of them
    would take a hundred rounds.
    """
    words = {_without_names(refused[node.name], node) for node in nodes if node.name in refused}
    return {
        nodes[index].name: why
        for index, why in refused_alone.items()
        if why and _without_names(why, nodes[index]) in words
    }


def _without_names(why: str, node: onnx.NodeProto) -> str:
    """A reason without the node's own names."""
    for name in sorted({node.name, *node.input, *node.output}, key=len, reverse=True):
        why = why.replace(name, "") if name else why
    return why


def with_inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The node, and those in its subgraphs at any depth."""
    yield node
    for subgraph in subgraphs(node):
        for inner in subgraph.node:
            yield from with_inner_nodes(inner)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The node's own control-flow subgraphs."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    """Element types by name of value, subgraphs included; 0 for values that are not tensors."""
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.input, *graph.output)
        if value.type.WhichOneof("value") is not None
    }
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    types |= {tensor.values.name: tensor.values.data_type for tensor in graph.sparse_initializer}
    for node in graph.node:
        for subgraph in subgraphs(node):
            types |= _types(subgraph)
    return types


def unfit_type(element: int) -> str:
    """Why TensorRT has no tensors of an ONNX element type; "" if it has."""
    import onnx

    if not element:
        return "no tensor"
    name = onnx.TensorProto.DataType.Name(element)
    members = tensorrt().DataType.__members__
    return "" if _DATA_TYPES.get(name) in members else f"of type {name.lower()}"


def data_type(element: int) -> Any:
    """TensorRT's type for an ONNX element type that is not unfit."""
    import onnx

    name = onnx.TensorProto.DataType.Name(element)
    return tensorrt().DataType.__members__[_DATA_TYPES[name]]


def _unfit(owner: onnx.NodeProto, types: Mapping[str, int]) -> str:
    for node in with_inner_nodes(owner):
        for value in (*node.input, *node.output):
            if value in types and (why := unfit_type(types[value])):
                return f"TensorRT has no such values: {value!r} is {why}"
    return ""


def read_values(node: onnx.NodeProto) -> list[str]:
    """Values that the node reads, including those that its subgraphs read from outside."""
    read = [value for value in node.input if value]
    for subgraph in subgraphs(node):
        own = {value.name for value in subgraph.input}
        own |= {tensor.name for tensor in subgraph.initializer}
        own |= {value for inner in subgraph.node for value in inner.output}
        read += [value.name for value in subgraph.output if value.name not in own]
        read += [
            value for inner in subgraph.node for value in read_values(inner) if value not in own
        ]
    return read


class _Source:
    """A model from which models of some main-graph nodes are extracted."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.model = model
        self.types = _types(graph)
        self.infos = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.read_values = [read_values(node) for node in graph.node]
        self.readers = Counter(value for read in self.read_values for value in set(read))
        self.readers.update(value.name for value in graph.output)

    def extract(self, indices: Sequence[int]) -> tuple[onnx.ModelProto, dict[str, str]]:
        """The model of some nodes, and those nodes that read a value of unknown type."""
        import onnx

        nodes = [self.model.graph.node[index] for index in indices]
        outputs_made = [value for node in nodes for value in node.output if value]
        read = dict.fromkeys(value for index in indices for value in self.read_values[index])
        inside = Counter(value for index in indices for value in set(self.read_values[index]))
        constants = self.constants.keys() | self.sparse.keys()
        inputs = read.keys() - set(outputs_made) - constants
        unknown = inputs - self.infos.keys()
        untyped = {
            self.model.graph.node[index].name: f"the type of {value!r} is not known"
            for index in indices
            for value in self.read_values[index]
            if value in unknown
        }
        extract = onnx.ModelProto()
        extract.ir_version = self.model.ir_version
        extract.opset_import.extend(self.model.opset_import)
        extract.functions.extend(self.model.functions)
        extract.graph.name = self.model.graph.name
        extract.graph.node.extend(nodes)
        extract.graph.initializer.extend(self.constants[v] for v in read if v in self.constants)
        extract.graph.sparse_initializer.extend(self.sparse[v] for v in read if v in self.sparse)
        extract.graph.input.extend(self.infos[v] for v in read if v in inputs - unknown)
        # TensorRT infers types itself, so outputs need none.
        outputs = [value for value in outputs_made if self.readers[value] > inside[value]]
        extract.graph.output.extend(
            self.infos.get(value, onnx.ValueInfoProto(name=value)) for value in outputs
        )
        return extract, untyped
