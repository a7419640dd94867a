"""What TensorRT for RTX's ONNX parser takes: asked round by round, as one answer hides others.

The parser looks properly only at nodes whose inputs it could compute, so what lies behind a refused
node is asked anew without it.  Types are judged here: the parser computes float64 as float32
without saying so.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnx

MODULE: Final = "tensorrt_rtx_bindings"
_ROUNDS: Final = 64
_MESSAGE: Final = 400
_KEPT: Final = 20
# Without a GPU each failure says so, too; and these only frame what the parser says.
_NOISE: Final = ("catchCudaError", "Begin node", "End node", "While parsing node")
# ONNX's names of element types by TensorRT's.
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What the parser says of a model: main-graph nodes by index, refusals by name of node."""

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
            mend="pip install 'aotc[rtx]'",
        ) from None


@cache
def listener() -> Any:
    """TensorRT's logger, of which it keeps one in a process; the last errors are in `errors`."""
    trt = tensorrt()

    class Listener(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR and not any(noise in message for noise in _NOISE):
                self.errors = [*self.errors, one_line(message)][-_KEPT:]

    return Listener()


def one_line(text: str) -> str:
    """A message of TensorRT without line breaks, cut."""
    lines = [line for line in text.splitlines() if not any(noise in line for noise in _NOISE)]
    return " ".join(" ".join(lines).split())[:_MESSAGE]


def parse_into(network: Any, text: bytes, weights: Path) -> Any:
    """A parser that has read a serialized model with external data in the folder `weights`.

    Its errors say what it refused.
    """
    parser = tensorrt().OnnxParser(network, listener())
    parser.parse(text, str(weights / "model.onnx"))
    return parser


def new_network(builder: Any) -> Any:
    """An empty network that computes in the types that the model states."""
    flag = tensorrt().NetworkDefinitionCreationFlag.STRONGLY_TYPED
    return builder.create_network(1 << int(flag))


def parser_errors(parser: Any, graph: onnx.GraphProto) -> dict[str, str]:
    """Reasons by name of the main-graph node that they are about."""
    owners = {node.name: owner.name for owner in graph.node for node in walk(owner)}
    found: dict[str, str] = {}
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, operator = error.node_name(), error.node_operator()
        if name not in owners and 0 <= error.node() < len(graph.node):
            name = graph.node[error.node()].name
        inside = f" in its body, {name!r}" if owners.get(name, name) != name else ""
        text = f"the parser refuses {operator}{inside} ({error.code().name}, {error.func()})"
        found.setdefault(owners.get(name, name), f"{text}: {one_line(error.desc())}")
    return found


def ask(model: onnx.ModelProto, weights: Path) -> Answer:
    """Ask of a whole model."""
    trt = tensorrt()
    listener().errors = []
    builder = trt.Builder(listener())
    # A parser does not keep its network alive.
    network = new_network(builder)
    parser = trt.OnnxParser(network, listener())
    supported = parser.supports_model_v2(model.SerializeToString(), str(weights / "model.onnx"))
    groups = [parser.get_subgraph_nodes(index) for index in range(parser.num_subgraphs)]
    return Answer(
        bool(supported),
        frozenset(index for group in groups for index in group),
        parser_errors(parser, model.graph),
    )


def refusals(model: onnx.ModelProto, weights: Path) -> dict[str, str]:
    """Main-graph nodes that the parser does not take, with its reason."""
    types = _types(model.graph)
    nodes = list(model.graph.node)
    refused = {node.name: why for node in nodes if (why := _unfit(node, types))}
    for _ in range(_ROUNDS):
        left = [index for index, node in enumerate(nodes) if node.name not in refused]
        if not left:
            break
        part, untyped = _part(model, left)
        if untyped:
            refused |= untyped
            continue
        answer = ask(part, weights)
        if answer.supported:
            break
        known = {nodes[index].name for index in left}
        new = {name: why for name, why in answer.refused.items() if name in known}
        for position, index in enumerate(left):
            if position not in answer.listed:
                new.setdefault(nodes[index].name, "the parser lists it in no subgraph")
        if not new:
            said = "; ".join([*answer.refused.values(), *listener().errors]) or "no reason given"
            new = dict.fromkeys(known, f"the parser refuses the graph: {said}"[:_MESSAGE])
        refused |= new
    return refused


def walk(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The node, and those of its bodies at any depth."""
    yield node
    for body in _bodies(node):
        for inner in body.node:
            yield from walk(inner)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    """Element types by name of value, bodies included; 0 for what is no tensor."""
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.input, *graph.output)
        if value.type.WhichOneof("value") is not None
    }
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    types |= {tensor.values.name: tensor.values.data_type for tensor in graph.sparse_initializer}
    for node in graph.node:
        for body in _bodies(node):
            types |= _types(body)
    return types


def unfit_type(element: int) -> str:
    """Why TensorRT has no tensors of an ONNX element type; empty where it has."""
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
    for node in walk(owner):
        for value in (*node.input, *node.output):
            if value in types and (why := unfit_type(types[value])):
                return f"TensorRT has no such values: {value!r} is {why}"
    return ""


def reads(node: onnx.NodeProto) -> list[str]:
    """Values that it reads, with those that its bodies read from outside."""
    read = [value for value in node.input if value]
    for body in _bodies(node):
        own = {value.name for value in body.input}
        own |= {tensor.name for tensor in body.initializer}
        own |= {value for inner in body.node for value in inner.output}
        read += [value.name for value in body.output if value.name not in own]
        read += [value for inner in body.node for value in reads(inner) if value not in own]
    return read


def _part(model: onnx.ModelProto, indices: Sequence[int]) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The model of some main-graph nodes, or those that read a value of unknown type."""
    import onnx

    graph = model.graph
    if len(indices) == len(graph.node):
        return model, {}
    nodes = [graph.node[index] for index in indices]
    chosen = set(indices)
    infos = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    made = {value for node in nodes for value in node.output}
    read = {value for node in nodes for value in reads(node)}
    inputs = [v for v in dict.fromkeys(v for n in nodes for v in reads(n)) if v not in made]
    inputs = [value for value in inputs if value not in constants]
    unknown = {value for value in inputs if value not in infos}
    untyped = {
        node.name: f"the type of {value!r} is not known"
        for node in nodes
        for value in reads(node)
        if value in unknown
    }
    wanted = {value.name for value in graph.output}
    wanted |= {v for i, n in enumerate(graph.node) if i not in chosen for v in reads(n)}
    part = onnx.ModelProto()
    part.ir_version = model.ir_version
    part.opset_import.extend(model.opset_import)
    part.functions.extend(model.functions)
    part.graph.name = graph.name
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(t for t in graph.initializer if t.name in read)
    part.graph.sparse_initializer.extend(
        t for t in graph.sparse_initializer if t.values.name in read
    )
    part.graph.input.extend(infos[value] for value in inputs if value in infos)
    # TensorRT infers types itself; an output needs none to be asked about.
    outputs = [value for node in nodes for value in node.output if value and value in wanted]
    part.graph.output.extend(infos.get(v, onnx.ValueInfoProto(name=v)) for v in outputs)
    return part, untyped
