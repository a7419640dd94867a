"""The graphs and weights of all pairs of variants, compared where onnx and numpy can read them."""

from __future__ import annotations

import hashlib
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import FileIO
from typing import Any, Final, Literal

import numpy as np

from aotc.base.errors import AotcError, missing_package
from aotc.base.files.folders import PAYLOAD
from aotc.base.records import field, record, replace
from aotc.spec.diff_report import Change, NodeChange, NodesDiff, TensorChange, WeightsDiff
from aotc.spec.reports import Refusal
from aotc.spec.variant import Variant
from aotc.tools.diff.opened_artifact import ArtifactContents, Pair, changes_of
from aotc.tools.diff.stored_graph import StoredGraph, StoredTensor
from aotc.trust.container import ArtifactFile

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
        from aotc.tools.diff.stored_graph import GraphReader

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
            reader.compare(one, other, matched.weight_names(), pair.label)
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

    def weight_names(self) -> Mapping[str, str]:
        """Names in B of what the same nodes read in A at the same input."""
        return {
            one: other
            for index, same in self.found.items()
            for one, other in zip(self.a[index].inputs, self.b[same].inputs, strict=False)
            if one and other
        }

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
            moved=tuple(each for each in both if each.provider_a != each.provider_b),
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
    """The variant's nodes as its placement lists them, with their values where these are known."""
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


def is_moved(nodes: NodesDiff) -> bool:
    """Whether nodes run elsewhere, or are not the same; other names alone are no difference."""
    return bool(nodes.moved or nodes.added or nodes.removed or nodes.replaced or nodes.altered)


# How far apart the weights of two graphs are, read in blocks.


# Elements of a block, few enough for the processor's caches.
_BLOCK: Final = 1 << 18
_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_HALF: Final = ("float16", "bfloat16")
_Key = tuple[str, tuple[int, ...]]


class WeightReader:
    """Compares weights of two open artifacts; a context manager that closes their files."""

    def __init__(self, a: ArtifactContents, b: ArtifactContents) -> None:
        self._stack = ExitStack()
        self._sides = (_Weights(a, self._stack), _Weights(b, self._stack))
        self._known: dict[tuple[object, object], TensorChange | None] = {}

    def __enter__(self) -> WeightReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compare(
        self, a: StoredGraph, b: StoredGraph, names: Mapping[str, str], variant: str
    ) -> WeightsDiff:
        """The differences of all weights of two graphs.

        Weights are matched by name; of the others, those with equal types, shapes and bytes; then
        those that `names` gives, by names in A, and what the pass half-precision converted, which
        names it after the original and the type.  What the manifests list with one digest is equal
        without being read.  Raises AOTC-I062 if a file ends early, and what opening a file does.
        """
        removed = {name: each for name, each in a.tensors.items() if name not in b.tensors}
        added = {name: each for name, each in b.tensors.items() if name not in a.tensors}
        renamed = self._drop_renamed(removed, added)
        pairs = [(each, b.tensors[name]) for name, each in a.tensors.items() if name in b.tensors]
        for name in list(removed):
            candidates = (names.get(name, ""), *(f"{name}_{dtype}" for dtype in _HALF))
            known = next((each for each in candidates if each in added), None)
            if known is not None:
                pairs.append((removed.pop(name), added.pop(known)))
        found = [self._difference(one, other) for one, other in pairs]
        changed = tuple(each for each in found if each is not None)
        return WeightsDiff(
            variants=(variant,),
            equal=len(found) - len(changed),
            renamed=renamed,
            changed=changed,
            removed=tuple(
                TensorChange(a=each.name, dtype_a=each.dtype, shape_a=each.shape)
                for each in removed.values()
            ),
            added=tuple(
                TensorChange(b=each.name, dtype_b=each.dtype, shape_b=each.shape)
                for each in added.values()
            ),
        )

    def _difference(self, a: StoredTensor, b: StoredTensor) -> TensorChange | None:
        """How two weights of one name differ; None if they do not."""
        one, other = self._sides
        place_a, place_b = one.place(a), other.place(b)
        alike = a.dtype == b.dtype and a.shape == b.shape
        if alike and place_a == place_b:
            return None
        key = (a.name, place_a), (b.name, place_b)
        if key not in self._known:
            self._known[key] = self._measured(a, b, alike)
        return self._known[key]

    def _measured(self, a: StoredTensor, b: StoredTensor, alike: bool) -> TensorChange | None:
        one, other = self._sides
        max_abs = max_rel = None
        if a.shape == b.shape and a.dtype in _FLOATS and b.dtype in _FLOATS:
            is_equal, max_abs, max_rel = _float_difference(one.blocks(a), other.blocks(b), a, b)
            is_equal = is_equal and alike
        else:
            pairs = zip(one.blocks(a), other.blocks(b), strict=False)
            is_equal = alike and a.length == b.length and all(x == y for x, y in pairs)
        if is_equal:
            return None
        return TensorChange(
            a=a.name,
            b=b.name,
            dtype_a=a.dtype,
            dtype_b=b.dtype,
            shape_a=a.shape,
            shape_b=b.shape,
            max_abs=max_abs,
            max_rel=max_rel,
        )

    def _drop_renamed(
        self, removed: dict[str, StoredTensor], added: dict[str, StoredTensor]
    ) -> int:
        """Take out of both what has the same bytes under another name; returns how many."""
        one, other = self._sides
        waiting: dict[_Key, list[StoredTensor]] = defaultdict(list)
        for tensor in added.values():
            waiting[tensor.dtype, tensor.shape].append(tensor)
        digests: dict[str, bytes] = {}
        count = 0
        for name, tensor in list(removed.items()):
            candidates = waiting.get((tensor.dtype, tensor.shape), [])
            if not candidates:
                continue
            digest = one.digest(tensor)
            for candidate in candidates:
                if candidate.name not in digests:
                    digests[candidate.name] = other.digest(candidate)
                if digests[candidate.name] == digest:
                    candidates.remove(candidate)
                    del removed[name], added[candidate.name]
                    count += 1
                    break
        return count


class _Weights:
    """The weights of one artifact, each of whose files is opened once."""

    def __init__(self, artifact: ArtifactContents, stack: ExitStack) -> None:
        self._artifact = artifact
        self._stack = stack
        self._files: dict[str, ArtifactFile | FileIO] = {}
        self._digests = {entry.path: entry.sha256 for entry in artifact.manifest.files}

    def place(self, tensor: StoredTensor) -> object:
        """Equal for equal bytes: of a file with one digest, or in the model itself."""
        if tensor.held is not None:
            return tensor.digest
        return self._digests[tensor.path], tensor.offset, tensor.length

    def digest(self, tensor: StoredTensor) -> bytes:
        """A digest of its bytes."""
        digest = hashlib.blake2b()
        for block in self.blocks(tensor):
            digest.update(block)
        return digest.digest()

    def blocks(self, tensor: StoredTensor) -> Iterator[bytes | bytearray]:
        """Its bytes, `_BLOCK` elements at a time; raises AOTC-I062 if its file ends early.

        A block may be overwritten by the next one.
        """
        elements = math.prod(tensor.shape)
        size = _BLOCK * max(tensor.length // elements, 1) if elements else _BLOCK
        file = self._file(tensor)
        buffer = bytearray(min(size, tensor.length))
        done = 0
        while done < tensor.length:
            view = memoryview(buffer)[: min(size, tensor.length - done)]
            _fill(file, tensor, tensor.offset + done, view)
            yield buffer if len(view) == len(buffer) else bytes(view)
            done += len(view)

    def _file(self, tensor: StoredTensor) -> ArtifactFile | FileIO:
        key = str(tensor.held or tensor.path)
        if key not in self._files:
            opened: ArtifactFile | FileIO
            if tensor.held is not None:
                opened = FileIO(tensor.held)
            else:
                opened = self._artifact.container.open(f"{PAYLOAD}/{tensor.path}")
            self._stack.callback(opened.close)
            self._files[key] = opened
        return self._files[key]


def _fill(file: ArtifactFile | FileIO, tensor: StoredTensor, offset: int, view: memoryview) -> None:
    file.seek(offset)
    filled = 0
    while filled < len(view):
        count = file.readinto(view[filled:])
        if not count:
            raise AotcError(
                "AOTC-I062",
                "a file of weights is truncated",
                where=f"{PAYLOAD}/{tensor.path}",
                found=f"weight {tensor.name}",
            )
        filled += count


def _float_difference(
    blocks_a: Iterator[bytes | bytearray],
    blocks_b: Iterator[bytes | bytearray],
    a: StoredTensor,
    b: StoredTensor,
) -> tuple[bool, float, float | None]:
    """Whether all numbers have equal bytes or values; max |b - a|, and that to max |a|.

    The measure of `OutputError`: the largest float for a number that is finite on one side only.
    """
    read_a, read_b = _READERS[a.dtype], _READERS[b.dtype]
    largest = difference = 0.0
    is_equal = True
    for one, other in zip(blocks_a, blocks_b, strict=False):
        if a.dtype == b.dtype and one == other:
            largest = max(largest, _largest(read_a(one)))
            continue
        x, y = read_a(one), read_b(other)
        largest = max(largest, _largest(x))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = float(np.max(np.abs(y - x), initial=0.0))
        if not np.isfinite(apart):
            apart = _finite_difference(x, y)
        difference = max(difference, apart)
        is_equal = False
    return is_equal, difference, difference / largest if largest else None


def _largest(numbers: Any) -> float:
    found = float(np.max(np.abs(numbers), initial=0.0))
    return found if np.isfinite(found) else _largest(numbers[np.isfinite(numbers)])


def _finite_difference(a: Any, b: Any) -> float:
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    left_a, left_b = a[~same].astype(np.float64), b[~same].astype(np.float64)
    if not (np.isfinite(left_a).all() and np.isfinite(left_b).all()):
        return sys.float_info.max
    return float(np.max(np.abs(left_b - left_a), initial=0.0))


def _bfloat16(data: bytes | bytearray) -> Any:
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


_READERS: Final[Mapping[str, Callable[[bytes | bytearray], Any]]] = {
    "float16": lambda data: np.frombuffer(data, "<f2").astype(np.float32),
    "bfloat16": _bfloat16,
    "float32": lambda data: np.frombuffer(data, "<f4"),
    "float64": lambda data: np.frombuffer(data, "<f8"),
}
