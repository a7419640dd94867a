"""What TensorRT for RTX's ONNX parser takes: asked round by round, as one answer hides others.

The parser looks properly only at nodes whose inputs it could compute, so what lies behind a refused
node is asked anew without it.  Types are judged here: the parser computes float64 as float32
without saying so.
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


@record(kw_only=False)
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
            fix=install_extra("rtx"),
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
    """Reasons by name of the main-graph node that they are about; empty: about no one node."""
    owners = {node.name: owner.name for owner in graph.node for node in walk(owner)}
    makers = {value: node.name for node in graph.node for value in node.output if value}
    found: dict[str, str] = {}
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, said = error.node_name(), one_line(error.desc())
        if name not in owners and 0 <= error.node() < len(graph.node):
            name = graph.node[error.node()].name
        if name not in owners:
            words = [word.rstrip(".") for word in re.split(r"[\s'\",]+", error.desc())]
            name = next((makers[word] for word in words if word in makers), "")
        inside = f" in its body, {name!r}" if owners.get(name, name) != name else ""
        what = f"the parser refuses {error.node_operator() or 'it'}{inside}"
        reason = f"{what} ({error.code().name}, {error.func()}): {said}"
        found.setdefault(owners.get(name, ""), reason)
    return found


def _ask(builder: Any, model: onnx.ModelProto, weights: Path) -> Answer:
    """Ask of a whole model."""
    listener().errors = []
    # A parser does not keep its network alive.
    network = new_network(builder)
    parser = tensorrt().OnnxParser(network, listener())
    supported = parser.supports_model_v2(model.SerializeToString(), str(weights / "model.onnx"))
    groups = [parser.get_subgraph_nodes(index) for index in range(parser.num_subgraphs)]
    return Answer(
        bool(supported),
        frozenset(index for group in groups for index in group),
        parser_errors(parser, model.graph),
    )


def refusals(model: onnx.ModelProto, weights: Path) -> tuple[dict[str, str], bool]:
    """Main-graph nodes that the parser does not take, with its reason, and whether these are all.

    Where they are not, the parser refused others in every round.
    """
    nodes = list(model.graph.node)
    source = _Source(model)
    refused = {node.name: why for node in nodes if (why := _unfit(node, source.types))}
    builder = tensorrt().Builder(listener())
    alone: dict[int, str] = {}
    for _ in range(_ROUNDS):
        left = [index for index, node in enumerate(nodes) if node.name not in refused]
        part, untyped = source.part(left)
        if untyped:
            refused |= untyped
            continue
        answer = _ask(builder, part, weights) if left else None
        if answer is None or answer.supported:
            return refused, True
        new = _refused_of(part.graph, answer)
        refused |= new
        for index in _same_operators(nodes, left, new):
            if index not in alone:
                single, untyped = source.part([index])
                found = {} if untyped else _ask(builder, single, weights).refused
                alone[index] = found.get(nodes[index].name, "")
        refused |= _twins(nodes, alone, new)
    return refused, False


def _refused_of(graph: onnx.GraphProto, answer: Answer) -> dict[str, str]:
    """Nodes of a graph that an answer refuses; all of them where it names none."""
    new = {name: why for name, why in answer.refused.items() if name}
    for index, node in enumerate(graph.node):
        if index not in answer.listed:
            new.setdefault(node.name, "the parser lists it in no subgraph")
    if new:
        return new
    said = answer.refused.get("") or "; ".join(listener().errors) or "it gives no reason"
    why = f"the parser refuses the graph: {said}"[:_MESSAGE]
    return {node.name: why for node in graph.node}


def _same_operators(
    nodes: Sequence[onnx.NodeProto], left: Sequence[int], refused: Mapping[str, str]
) -> list[int]:
    kinds = {nodes[index].op_type for index in left if nodes[index].name in refused}
    return [index for index in left if nodes[index].op_type in kinds]


def _twins(
    nodes: Sequence[onnx.NodeProto], alone: Mapping[int, str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Nodes that, asked alone, are refused in the same words as one that was just refused.

    The parser stops at the first node that it cannot translate, so a graph with a hundred of them
    would take a hundred rounds.
    """
    words = {_words(refused[node.name], node) for node in nodes if node.name in refused}
    return {
        nodes[index].name: why
        for index, why in alone.items()
        if why and _words(why, nodes[index]) in words
    }


def _words(why: str, node: onnx.NodeProto) -> str:
    """A reason without the node's own names."""
    for name in sorted({node.name, *node.input, *node.output}, key=len, reverse=True):
        why = why.replace(name, "") if name else why
    return why


def walk(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The node, and those of its bodies at any depth."""
    yield node
    for body in bodies(node):
        for inner in body.node:
            yield from walk(inner)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The node's own bodies of control flow."""
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
        for body in bodies(node):
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
    for body in bodies(node):
        own = {value.name for value in body.input}
        own |= {tensor.name for tensor in body.initializer}
        own |= {value for inner in body.node for value in inner.output}
        read += [value.name for value in body.output if value.name not in own]
        read += [value for inner in body.node for value in reads(inner) if value not in own]
    return read


class _Source:
    """A model, of some of whose main-graph nodes models of their own are made."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.model = model
        self.types = _types(graph)
        self.infos = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.reads = [reads(node) for node in graph.node]
        self.readers = Counter(value for read in self.reads for value in set(read))
        self.readers.update(value.name for value in graph.output)

    def part(self, indices: Sequence[int]) -> tuple[onnx.ModelProto, dict[str, str]]:
        """The model of some nodes, and those that read a value whose type is not known."""
        import onnx

        nodes = [self.model.graph.node[index] for index in indices]
        made = [value for node in nodes for value in node.output if value]
        read = dict.fromkeys(value for index in indices for value in self.reads[index])
        inside = Counter(value for index in indices for value in set(self.reads[index]))
        constants = self.constants.keys() | self.sparse.keys()
        inputs = read.keys() - set(made) - constants
        unknown = inputs - self.infos.keys()
        untyped = {
            self.model.graph.node[index].name: f"the type of {value!r} is not known"
            for index in indices
            for value in self.reads[index]
            if value in unknown
        }
        part = onnx.ModelProto()
        part.ir_version = self.model.ir_version
        part.opset_import.extend(self.model.opset_import)
        part.functions.extend(self.model.functions)
        part.graph.name = self.model.graph.name
        part.graph.node.extend(nodes)
        part.graph.initializer.extend(self.constants[v] for v in read if v in self.constants)
        part.graph.sparse_initializer.extend(self.sparse[v] for v in read if v in self.sparse)
        part.graph.input.extend(self.infos[v] for v in read if v in inputs - unknown)
        # TensorRT infers types itself; an output needs none to be asked about.
        outputs = [value for value in made if self.readers[value] > inside[value]]
        part.graph.output.extend(
            self.infos.get(value, onnx.ValueInfoProto(name=value)) for value in outputs
        )
        return part, untyped
