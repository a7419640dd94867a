"""One view of a graph, over its protos and read-only: subgraphs, who makes and reads values.

Subgraphs are control flow's, in attributes of one graph (`g`) or a list (`graphs`).  Outer graphs
come before inner ones, breadth first.  What a graph defines itself (inputs, initializers, sparse
ones too, and what its nodes make) is never a value of the graph around it, as in ONNX Runtime.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar, cast

from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx

    Holder = onnx.ModelProto | onnx.GraphProto | onnx.NodeProto

T = TypeVar("T")
_SOURCES = ("Shape", "Size")


def named_subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The node's own subgraphs by attribute: `then_branch`; of a list `branches[0]` and so on."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for at, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}[{at}]", graph


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The node's own subgraphs, without those inside of them."""
    return [graph for _, graph in named_subgraphs(node)]


def has_subgraphs(node: onnx.NodeProto) -> bool:
    """Whether a node is control flow."""
    return any(True for _ in named_subgraphs(node))


def inner_graphs(holder: Holder) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The subgraphs in a model, a graph or a node, each with a path such as `/If_3.then_branch`.

    Paths in a model's functions begin with `domain::name`.  A graph is looked into after it was
    yielded: its nodes may be replaced till then.
    """
    pending = deque(_own_nodes(holder))
    while pending:
        path, nodes = pending.popleft()
        for node in nodes:
            for name, graph in named_subgraphs(node):
                label = f"{path}/{node.name or node.op_type}.{name}"
                yield label, graph
                pending.append((label, graph.node))


def _own_nodes(holder: Holder) -> list[tuple[str, Iterable[onnx.NodeProto]]]:
    import onnx

    if isinstance(holder, onnx.NodeProto):
        return [("", [holder])]
    if isinstance(holder, onnx.GraphProto):
        return [("", holder.node)]
    functions = ((f"{item.domain}::{item.name}", item.node) for item in holder.functions)
    return [("", holder.graph.node), *functions]


def every_graph(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph, and every subgraph in it and in functions."""
    yield model.graph
    yield from (graph for _, graph in inner_graphs(model))


def every_node(holder: Holder) -> Iterator[onnx.NodeProto]:
    """The nodes of a model (then of its functions) or a graph, or a node; then all in subgraphs."""
    for _, nodes in _own_nodes(holder):
        yield from nodes
    for _, graph in inner_graphs(holder):
        yield from graph.node


def declared_values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """What a graph declares of values: of a name that it declares twice, the last counts."""
    yield from (*graph.value_info, *graph.output, *graph.input)


def constant_names(graph: onnx.GraphProto) -> set[str]:
    """The names of a graph's initializers, sparse ones too."""
    found = {tensor.name for tensor in graph.initializer}
    return found | {tensor.values.name for tensor in graph.sparse_initializer}


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """By value: initializers, and the tensors of `Constant` nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        # ONNX Runtime refuses a Constant without an output.
        if node.op_type == "Constant" and node.domain in STANDARD and node.output:
            found.update((node.output[0], a.t) for a in node.attribute if a.HasField("t"))
    return found


def made_values(graph: onnx.GraphProto) -> list[str]:
    """What the nodes of a graph make, in order."""
    return [name for node in graph.node for name in node.output if name]


def defined_names(graph: onnx.GraphProto) -> set[str]:
    """The values that a graph has itself: inputs, initializers, and what its nodes make."""
    inputs = {value.name for value in graph.input}
    return inputs | constant_names(graph) | set(made_values(graph))


def captured_values(subgraph: onnx.GraphProto) -> set[str]:
    """Values that a subgraph reads from the graphs around it."""
    read = {name for node in subgraph.node for name in read_values(node)}
    read |= {value.name for value in subgraph.output}
    return read - defined_names(subgraph)


def captured_by(node: onnx.NodeProto) -> list[str]:
    """The values that each subgraph of a node reads from the graphs around it."""
    return [name for subgraph in subgraphs(node) for name in sorted(captured_values(subgraph))]


def read_values(node: onnx.NodeProto) -> list[str]:
    """The values that a node reads, those that its subgraphs capture included."""
    return [name for name in (*node.input, *captured_by(node)) if name]


def op_of(node: onnx.NodeProto) -> str:
    """The operator as `domain::op_type`; without the domain for ONNX's own."""
    own = node.domain in STANDARD
    return node.op_type if own else f"{node.domain}::{node.op_type}"


def attribute_of(node: onnx.NodeProto, name: str, default: T) -> T:
    """The value of a node's attribute, text as `str`; `default` if it has none of that name."""
    import onnx

    for attribute in node.attribute:
        if attribute.name == name:
            value = onnx.helper.get_attribute_value(attribute)
            text = isinstance(value, bytes)
            return cast("T", value.decode("utf-8", "replace") if text else value)
    return default


class Links:
    """Who makes and who reads values, by the indices of nodes in order.

    `reads` (each value once) and `makes` are those of each node.
    """

    def __init__(self, reads: Iterable[Iterable[str]], makes: Iterable[Iterable[str]]) -> None:
        self.reads = [tuple(filter(None, dict.fromkeys(names))) for names in reads]
        self.makes = [tuple(filter(None, names)) for names in makes]

    @cached_property
    def producers(self) -> dict[str, int]:
        """By value, the node that makes it."""
        return {name: index for index, names in enumerate(self.makes) for name in names}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """By value, the nodes that read it."""
        found: dict[str, list[int]] = {}
        for index, names in enumerate(self.reads):
            for name in names:
                found.setdefault(name, []).append(index)
        return found

    @cached_property
    def before(self) -> list[list[int]]:
        """For each node, those that make what it reads."""
        made = self.producers
        return [sorted({made[name] for name in names if name in made}) for names in self.reads]

    def behind(
        self, values: Iterable[str], stops: Collection[str] = ()
    ) -> tuple[list[int], tuple[str, ...]]:
        """The nodes that make `values` of those in `stops`, and which of these they read."""
        found: set[int] = set()
        read: dict[str, None] = {}
        pending = list(values)
        while pending:
            index = self.producers.get(pending.pop())
            if index is None or index in found:
                continue
            found.add(index)
            read |= {name: None for name in self.reads[index] if name in stops}
            pending += [name for name in reversed(self.reads[index]) if name not in stops]
        return sorted(found), tuple(read)


class NodeLinks(Links):
    """Nodes in order, and who makes and reads their values.

    A node also reads what its subgraphs capture: `captured`, by the index of such nodes.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto]) -> None:
        self.nodes = tuple(nodes)
        self.captured = {
            index: frozenset(names)
            for index, node in enumerate(self.nodes)
            if (names := captured_by(node))
        }
        super().__init__(
            (
                read_values(node) if index in self.captured else node.input
                for index, node in enumerate(self.nodes)
            ),
            (node.output for node in self.nodes),
        )

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each node by its name."""
        return {node.name: index for index, node in enumerate(self.nodes)}

    def maker(self, value: str) -> onnx.NodeProto | None:
        """The node that makes a value; None if none does."""
        index = self.producers.get(value)
        return self.nodes[index] if index is not None else None


class GraphView(NodeLinks):
    """A graph, which must not change meanwhile, and `bodies`, the views of its subgraphs.

    Of a subgraph, `around` is the graph around it, `owner` the node of the main graph that has it,
    and `label` tells of the node that holds it, and in which attribute: `node.attribute`.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        around: GraphView | None = None,
        holder: onnx.NodeProto | None = None,
        attribute: str = "",
    ) -> None:
        super().__init__(graph.node)
        self.graph, self.around = graph, around
        self.holder = holder.name if holder is not None else ""
        self.owner: str = (around.owner if around is not None else "") or self.holder
        self.label = f"{self.holder}.{attribute}"

    @cached_property
    def initializers(self) -> frozenset[str]:
        """The names of the initializers that nodes see, those of the graphs around too."""
        outer = self.around.initializers - defined_names(self.graph) if self.around else frozenset()
        return outer | constant_names(self.graph)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What the caller supplies, or the node that holds the graph: no initializers."""
        own = constant_names(self.graph)
        return tuple(value.name for value in self.graph.input if value.name not in own)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(value.name for value in self.graph.output)

    @cached_property
    def bodies(self) -> tuple[GraphView, ...]:
        """All subgraphs at any depth."""
        found = [self]
        for around in found:
            found += (
                GraphView(graph, around, node, attribute)
                for node in around.nodes
                for attribute, graph in named_subgraphs(node)
            )
        return tuple(found[1:])

    @cached_property
    def inside(self) -> dict[str, list[str]]:
        """By node that has subgraphs: the names of all nodes in them."""
        found: dict[str, list[str]] = {}
        for body in self.bodies:
            found.setdefault(body.owner, []).extend(node.name for node in body.nodes)
        return found

    @cached_property
    def constant_places(self) -> tuple[dict[str, int], dict[str, int]]:
        """The indices of the graph's own initializers by name, and of the sparse ones."""
        dense, sparse = self.graph.initializer, self.graph.sparse_initializer
        return (
            {tensor.name: index for index, tensor in enumerate(dense)},
            {tensor.values.name: index for index, tensor in enumerate(sparse)},
        )

    @cached_property
    def element_types(self) -> dict[str, str]:
        """Element types by value, if known; of a name used again, that of the outermost graph."""
        import onnx

        return {
            value.name: onnx.TensorProto.DataType.Name(kind).lower()
            for view in reversed((self, *self.bodies))
            for value in declared_values(view.graph)
            if (kind := value.type.tensor_type.elem_type)
        }


def shape_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes of the main graph whose value depends only on the inputs' shapes.

    These are `Shape` and `Size`, and every node that reads only their results and constants.
    """
    constant = constant_names(model.graph)
    shape_values: set[str] = set()
    found = []
    for node in model.graph.node:
        given = [name for name in node.input if name and name not in constant]
        has_subgraph = has_subgraphs(node)
        if node.op_type == "Constant" or (not node.input and not has_subgraph):
            constant.update(node.output)
        elif node.op_type in _SOURCES or (
            given and not has_subgraph and all(name in shape_values for name in given)
        ):
            found.append(node.name)
            shape_values.update(node.output)
    return found


# Which nodes of a source graph each node of a rewritten graph stands for.
#
# Rewrites (fusions, quantization, casts) keep the names of the values that they still compute. So a
# rewritten node stands for the source's nodes between the values that both graphs have. Bodies of
# control flow are looked at with the graph around them.


def shared_values(source: onnx.GraphProto, rewritten: onnx.GraphProto) -> tuple[str, ...]:
    """The names of values that nodes of both graphs compute, in the source's order."""
    made = set(made_values(rewritten))
    return tuple(name for name in made_values(source) if name in made)


def covered_nodes(
    source: onnx.GraphProto, rewritten: onnx.GraphProto
) -> dict[str, tuple[str, ...]]:
    """For each node of `rewritten`, by name: the source's nodes that it stands for, in order.

    A node that makes no value of the source stands for the source's node of the same name, or of
    the part before the last `/`, else for none.  Every source node between two shared values
    belongs to the node that makes the later one.  A value that got another name is known by the
    node that reads it, if that was not rewritten.
    """
    before = NodeLinks(every_node(source))
    nodes = list(every_node(rewritten))
    made = {name for node in nodes for name in node.output if name}
    former = _former_names(nodes, before, made)
    kept = made | set(former.values())
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        covered, _ = before.behind([former.get(name, name) for name in node.output], kept)
        # ONNX Runtime fuses a product and a sum into NAME/MatMulAddFusion, whose value a
        # Reshape makes if it has more than two dims.
        alike = [
            name for name in (node.name, node.name.rpartition("/")[0]) if name in before.places
        ]
        found[node.name] = tuple(before.nodes[at].name for at in covered) or tuple(alike[:1])
    return found


def _former_names(
    nodes: Sequence[onnx.NodeProto], links: NodeLinks, made: Collection[str]
) -> dict[str, str]:
    """The source's names of values that have others now, by those, as far as readers tell them."""
    producers = links.producers
    found: dict[str, str] = {}
    for node in reversed(nodes):
        for output in node.output:
            before = links.maker(found.get(output, output))
            if (
                before is None
                or (before.op_type, before.domain) != (node.op_type, node.domain)
                or len(before.input) != len(node.input)
            ):
                continue
            for now, then in zip(node.input, before.input, strict=True):
                if now in made and now not in producers and then in producers and then not in made:
                    found.setdefault(now, then)
    return found


def standing_for(
    source: onnx.GraphProto, rewritten: onnx.GraphProto, names: Collection[str]
) -> frozenset[str]:
    """The nodes of `rewritten` that compute what the source's nodes `names` do, by name.

    With a node that stands for one of them come those before it that make no value of the source:
    a node may be rewritten into several, of which only the last makes a value of the source.
    """
    wanted = frozenset(names)
    covered = covered_nodes(source, rewritten)
    links = NodeLinks(every_node(rewritten))
    found = {name for name, nodes in covered.items() if wanted.intersection(nodes)}
    pending = [links.places[name] for name in found]
    while pending:
        for before in links.before[pending.pop()]:
            name = links.nodes[before].name
            if name not in found and not covered[name]:
                found.add(name)
                pending.append(before)
    return frozenset(found)


# Operators that write an output where an input of theirs is, such as a decoder's caches.
#
# A kernel of one of these reads of the input what the output is to keep, and where both are in one
# buffer it copies nothing: ONNX Runtime's kernels of ScatterND, ScatterElements, TensorScatter and
# GroupQueryAttention compare the addresses.  A second run in the same buffer, with all other inputs
# unchanged, writes the same again.


# By operator: which outputs are written where which inputs are.
_WRITTEN: Final[Mapping[str, Mapping[int, int]]] = {
    "com.microsoft::GroupQueryAttention": {1: 3, 2: 4},
    "ScatterElements": {0: 0},
    "ScatterND": {0: 0},
    "TensorScatter": {0: 0},
}
# With another reduction a second run would add to what the first one wrote.
_REPLACES: Final = "none"
IN_PLACE: Final = frozenset(_WRITTEN)


def shared_buffers(model: onnx.ModelProto) -> dict[str, str]:
    """By input of the model, the output that may have its buffer, as nothing else reads it."""
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    reads = Counter(name for node in every_node(model) for name in read_values(node))
    reads.update(value.name for graph in every_graph(model) for value in graph.output)
    found: dict[str, str] = {}
    for node in model.graph.node:
        if attribute_of(node, "reduction", _REPLACES) != _REPLACES:
            continue
        for made, read in _WRITTEN.get(op_of(node), {}).items():
            names = (node.input[read : read + 1], node.output[made : made + 1])
            source, target = ("".join(name) for name in names)
            if source in inputs and target in outputs and reads[source] == 1:
                found[source] = target
    return found
