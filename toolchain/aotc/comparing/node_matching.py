"""Which node of one graph is which of another: by name, then by operator and neighbours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from aotc.records import field, record

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


class _Graph:
    """Nodes by what they read and write."""

    def __init__(self, nodes: Sequence[Node], outputs: Iterable[str]) -> None:
        self.nodes = nodes
        self.outputs = frozenset(outputs)
        self.writer: dict[str, tuple[int, int]] = {}
        self.readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, node in enumerate(nodes):
            for position, value in enumerate(node.outputs):
                if value:
                    self.writer[value] = (index, position)
            for position, value in enumerate(node.inputs):
                if value:
                    self.readers[value].append((index, position))

    def few_readers(self, value: str) -> Sequence[tuple[int, int]]:
        """Who reads a value, at which input; nobody if too many do."""
        found = self.readers.get(value, ())
        return found if len(found) <= _MAX_READERS else ()


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
            if value in b.readers and value not in a.writer and value not in b.writer
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
        writer, at = self.b.writer.get(value, (-1, -1))
        if at == position:
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
