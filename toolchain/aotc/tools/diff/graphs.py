"""The graphs of all pairs of variants, compared where onnx can read them, else by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from aotc.base.errors import AotcError, missing_package
from aotc.base.records import field, record, replace
from aotc.graph.view import Links
from aotc.spec.diff_report import Change, NodeChange, NodesDiff, WeightsDiff
from aotc.spec.reports import Refusal
from aotc.spec.variant import Variant
from aotc.tools.diff.opened_artifact import Pair, changes_of
from aotc.tools.inspect import ArtifactContents

if TYPE_CHECKING:
    from aotc.tools.diff.stored_graph import StoredGraph
    from aotc.tools.diff.weights import WeightReader


# Whether weights are compared: where it can be done, never, or with a refusal where it cannot.
Weights = Literal["where-possible", "never", "always"]


@record
class GraphComparison:
    """The nodes of each pair, the weights of each two models, and what could not be read."""

    nodes: tuple[NodesDiff, ...]
    weights: tuple[WeightsDiff, ...] = ()
    problems: tuple[Refusal, ...] = ()
    why_no_weights: str = ""


def by_name_alone(pairs: Sequence[Pair], why_no_weights: str = "") -> GraphComparison:
    """The nodes of each pair as the manifests list them; nothing is read."""
    nodes = tuple(matched_nodes(pair).diff() for pair in pairs)
    return GraphComparison(nodes=nodes, why_no_weights=why_no_weights)


def compare_graphs(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair], weights: Weights
) -> GraphComparison:
    """Compare the stored graphs of all pairs, and their weights unless `weights` is never.

    A model that cannot be read is a problem of the report, and its nodes are matched by name.
    Raises AOTC-I019 without onnx and numpy if `weights` is always.
    """
    try:
        # They need onnx and numpy, without which all else is compared.
        from aotc.tools.diff.stored_graph import GraphReader
        from aotc.tools.diff.weights import WeightReader

        graphs = GraphReader()
    except ModuleNotFoundError as error:
        refusal = missing_package(error, "comparing weights")
        if weights == "always" or not isinstance(refusal, AotcError):
            raise refusal from None
        return by_name_alone(pairs, f"{refusal.what}: {refusal.fix}")
    with graphs, WeightReader(a, b) as reader:
        comparer = _Comparer(a, b, graphs.read, reader if weights != "never" else None)
        for pair in pairs:
            comparer.add(pair)
    return comparer.result()


class _Comparer:
    """Compares pair by pair; each model is read once, and each two models are compared once."""

    def __init__(
        self,
        a: ArtifactContents,
        b: ArtifactContents,
        read: Callable[..., StoredGraph],
        reader: WeightReader | None,
    ) -> None:
        self._sides = (a, b)
        self._read = read
        self._reader = reader
        self._graphs: dict[tuple[int, str], StoredGraph] = {}
        self._nodes: list[NodesDiff] = []
        self._weights: dict[tuple[str, str], WeightsDiff] = {}
        self._problems: list[Refusal] = []

    def add(self, pair: Pair) -> None:
        """Compare the nodes of a pair, and its weights."""
        try:
            one, other = self._graph(0, pair), self._graph(1, pair)
        except AotcError as error:
            self._problems.append(_problem(error))
            self._nodes.append(matched_nodes(pair).diff())
            return
        matched = matched_nodes(pair, one, other)
        self._nodes.append(matched.diff())
        if self._reader is not None:
            try:
                self._add_weights(self._reader, pair, matched)
            except AotcError as error:
                self._problems.append(_problem(error))

    def _graph(self, side: int, pair: Pair) -> StoredGraph:
        variant = (pair.a, pair.b)[side]
        key = side, variant.model
        if key not in self._graphs:
            self._graphs[key] = self._read(self._sides[side], variant)
        return self._graphs[key]

    def _add_weights(self, reader: WeightReader, pair: Pair, matched: MatchedNodes) -> None:
        one, other = self._graph(0, pair), self._graph(1, pair)
        models = pair.a.model, pair.b.model
        known = self._weights.get(models)
        self._weights[models] = (
            reader.compare(one, other, matched.same_inputs(), pair.label)
            if known is None
            else replace(known, variants=(*known.variants, pair.label))
        )

    def result(self) -> GraphComparison:
        """Everything that was found."""
        reason = "" if self._reader is not None else "it was not asked for"
        if self._problems:
            reason = f"{self._problems[0].where}: {self._problems[0].what}"
        return GraphComparison(
            nodes=tuple(self._nodes),
            weights=_grouped(self._weights.values()),
            problems=tuple(self._problems),
            why_no_weights=reason,
        )


def _problem(error: AotcError) -> Refusal:
    return Refusal(
        code=error.code,
        what=error.what,
        where=error.where,
        expected=error.expected,
        found=error.found,
    )


def _grouped(found: Iterable[WeightsDiff]) -> tuple[WeightsDiff, ...]:
    """Variants whose weights differ in the same way, in one row."""
    groups: list[WeightsDiff] = []
    for each in found:
        for index, group in enumerate(groups):
            if replace(group, variants=each.variants) == each:
                names = (*group.variants, *each.variants)
                groups[index] = replace(group, variants=names)
                break
        else:
            groups.append(each)
    return tuple(groups)


# Which node of one graph is which of another: by name, then by operator and neighbours.


# Of a value that more nodes read, nothing follows about any of them.
_MAX_READERS: Final = 64
# A pass goes through the whole graph, so each further one finds little.
_MAX_ROUNDS: Final = 4


@record(kw_only=False)
class Node:
    """One node of a variant; a node of which no graph tells the values has none."""

    name: str
    op: str
    provider: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)


class _Graph(Links):
    """Nodes by what they read and write."""

    def __init__(self, nodes: Sequence[Node], outputs: Iterable[str]) -> None:
        super().__init__((node.inputs for node in nodes), (node.outputs for node in nodes))
        self.nodes = nodes
        self.outputs = frozenset(outputs)

    def few_readers(self, value: str) -> Iterator[tuple[int, int]]:
        """Who reads a value, at which input; nobody if too many do."""
        found = self.readers.get(value, ())
        for index in found if len(found) <= _MAX_READERS else ():
            for position, name in enumerate(self.nodes[index].inputs):
                if name == value:
                    yield index, position


def match_nodes(
    a: Sequence[Node],
    b: Sequence[Node],
    outputs_a: Iterable[str] = (),
    outputs_b: Iterable[str] = (),
) -> dict[int, int]:
    """Indexes of nodes in `b` by those of the same nodes in `a`.

    Nodes with one name and operator are the same; if a name occurs several times, in their order.
    Of the others, those are that have one operator and read or write the same values: from known
    nodes, inputs and weights of one name onwards, then back from known nodes and outputs.  At last,
    nodes with one name and another operator are.  Takes time in proportion to the number of nodes.
    """
    matching = _Matching(_Graph(a, outputs_a), _Graph(b, outputs_b))
    matching.match_equal([(node.name, node.op) for node in a], [(node.name, node.op) for node in b])
    for _ in range(_MAX_ROUNDS):
        before = len(matching.found)
        matching.forwards()
        matching.backwards()
        if len(matching.found) == before:
            break
    matching.match_equal([node.name for node in a], [node.name for node in b])
    return matching.found


class _Matching:
    def __init__(self, a: _Graph, b: _Graph) -> None:
        self.a = a
        self.b = b
        self.found: dict[int, int] = {}
        self.taken: set[int] = set()
        # Values of B by those of A.  What no node writes is an input or a weight.
        self.values = {
            value: value
            for value in a.readers
            if value in b.readers and value not in a.producers and value not in b.producers
        }

    def match_equal(self, keys_a: Sequence[object], keys_b: Sequence[object]) -> None:
        """Match what is not matched yet and has equal keys, in order."""
        waiting: dict[object, list[int]] = defaultdict(list)
        for other in reversed(range(len(keys_b))):
            if other not in self.taken:
                waiting[keys_b[other]].append(other)
        for one, key in enumerate(keys_a):
            if one not in self.found and waiting.get(key) and self.a.nodes[one].name:
                self._match(one, waiting[key].pop())

    def forwards(self) -> None:
        """Match nodes that read the same values, in order of execution."""
        for one, node in enumerate(self.a.nodes):
            if one not in self.found:
                self._match_best(one, self._readers(node))

    def backwards(self) -> None:
        """Match nodes that write the same values, against the order of execution."""
        for one in reversed(range(len(self.a.nodes))):
            if one not in self.found:
                self._match_best(one, self._writers(self.a.nodes[one]))

    def _readers(self, node: Node) -> Iterator[int]:
        for position, value in enumerate(node.inputs):
            other = self.values.get(value)
            if other is not None:
                for reader, at in self.b.few_readers(other):
                    if at == position:
                        yield reader

    def _writers(self, node: Node) -> Iterator[int]:
        for position, value in enumerate(node.outputs):
            if value in self.a.outputs and value in self.b.outputs:
                yield from self._writer(value, position)
            for reader, at in self.a.few_readers(value):
                other = self.found.get(reader)
                inputs = self.b.nodes[other].inputs if other is not None else ()
                if at < len(inputs):
                    yield from self._writer(inputs[at], position)

    def _writer(self, value: str, position: int) -> Iterator[int]:
        writer = self.b.producers.get(value)
        if writer is not None and self.b.nodes[writer].outputs.index(value) == position:
            yield writer

    def _match_best(self, one: int, candidates: Iterable[int]) -> None:
        op = self.a.nodes[one].op
        votes = Counter(
            other
            for other in candidates
            if other not in self.taken and self.b.nodes[other].op == op
        )
        if votes:
            self._match(one, min(votes, key=lambda other: (-votes[other], other)))

    def _match(self, one: int, other: int) -> None:
        self.found[one] = other
        self.taken.add(other)
        outputs = zip(self.a.nodes[one].outputs, self.b.nodes[other].outputs, strict=False)
        self.values.update((value, same) for value, same in outputs if value and same)


# Where the nodes of two variants run, and what moved.


def placement_changes(pairs: Sequence[Pair]) -> tuple[Change, ...]:
    """Shares of providers, partitions, transfers and refusals of each pair."""
    found: list[Change] = []
    for pair in pairs:
        found += changes_of(_stated(pair.a), _stated(pair.b), subject=pair.label)
    return tuple(found)


def _stated(variant: Variant) -> Mapping[str, Any]:
    divided = variant.partitioning
    stated: dict[str, Any] = {
        "origin": variant.placement.origin,
        "share": variant.placement.share,
        "partitions": variant.placement.partitions,
        "transfers": variant.transfers,
    }
    if divided is not None:
        stated["providers"] = {share.provider: share for share in divided.providers}
        stated["alternations"] = divided.alternations
        stated["refusals"] = len(divided.refusals)
    return stated


@record
class MatchedNodes:
    """The nodes of a pair of variants, and the index in B of each node of A that is in both."""

    label: str
    a: Sequence[Node]
    b: Sequence[Node]
    found: Mapping[int, int]
    by_structure: bool

    def same_inputs(self) -> Iterator[tuple[str, str, bool]]:
        """What the same nodes read in A and in B at one input, and True.

        Of nodes with different operators, which order their inputs otherwise, each that A reads
        with each that B reads, and False.
        """
        for index, same in self.found.items():
            a, b = self.a[index], self.b[same]
            if a.op == b.op:
                pairs = [*zip(a.inputs, b.inputs, strict=False)]
            elif max(len(a.inputs), len(b.inputs)) <= _MAX_READERS:
                pairs = [(one, other) for one in a.inputs for other in b.inputs]
            else:
                continue
            yield from ((one, other, a.op == b.op) for one, other in pairs if one and other)

    def diff(self) -> NodesDiff:
        """What moved, came, went, or has another name."""
        both = [_both(self.a[index], self.b[self.found[index]]) for index in sorted(self.found)]
        taken = set(self.found.values())
        return NodesDiff(
            variant=self.label,
            nodes_a=len(self.a),
            nodes_b=len(self.b),
            matched=len(self.found),
            by_structure=self.by_structure,
            # A plain model has no providers.
            moved=tuple(each for each in both if "" != each.provider_a != each.provider_b != ""),
            renamed=tuple(each for each in both if each.a != each.b),
            replaced=tuple(each for each in both if each.op_a != each.op_b),
            altered=tuple(each for each in both if each.attributes),
            removed=tuple(
                NodeChange(a=node.name, op_a=node.op, provider_a=node.provider)
                for index, node in enumerate(self.a)
                if index not in self.found
            ),
            added=tuple(
                NodeChange(b=node.name, op_b=node.op, provider_b=node.provider)
                for index, node in enumerate(self.b)
                if index not in taken
            ),
        )


def matched_nodes(
    pair: Pair, a: StoredGraph | None = None, b: StoredGraph | None = None
) -> MatchedNodes:
    """The nodes of a pair; without both graphs, nodes are matched by name alone."""
    if a is None or b is None:
        one, other = _placed(pair.a, None), _placed(pair.b, None)
        return MatchedNodes(
            label=pair.label, a=one, b=other, found=match_nodes(one, other), by_structure=False
        )
    one, other = _placed(pair.a, a), _placed(pair.b, b)
    found = match_nodes(one, other, a.outputs, b.outputs)
    return MatchedNodes(label=pair.label, a=one, b=other, found=found, by_structure=True)


def _placed(variant: Variant, graph: StoredGraph | None) -> list[Node]:
    """The variant's nodes as its placement lists them, with their values where these are known.

    Those of a plain model, which is placed nowhere, as they are stored.
    """
    if graph is not None and not variant.providers:
        return [
            Node(each.name, each.op, "", each.inputs, each.outputs, each.attributes)
            for each in graph.nodes
        ]
    stored = {node.name: node for node in graph.nodes} if graph is not None else {}
    found = []
    for node in variant.placement.nodes:
        known = stored.get(node.name)
        found.append(
            Node(node.name, node.op, node.provider, known.inputs, known.outputs, known.attributes)
            if known is not None
            else Node(node.name, node.op, node.provider)
        )
    return found


def _both(a: Node, b: Node) -> NodeChange:
    names = sorted({*a.attributes, *b.attributes}) if a.op == b.op else ()
    return NodeChange(
        a=a.name,
        b=b.name,
        op_a=a.op,
        op_b=b.op,
        provider_a=a.provider,
        provider_b=b.provider,
        attributes=tuple(n for n in names if a.attributes.get(n) != b.attributes.get(n)),
    )
