"""Which buffers ONNX Runtime gives to the values of a graph, and what they take at sizes.

A pure function of a graph, the order of its nodes and the shapes that ONNX Runtime infers at load:

1. A value is written where one of the node's inputs is, if the kernel always does so (a view, such
   as Reshape) or may do so, nothing else reads the input later, and both are known to be as large.
2. Else it takes a buffer that nothing reads any longer and that is known to be as large, the one
   that was freed last first.
3. Else, and for every output of the graph, it gets a buffer of its own.

*Known to be as large*: each axis has the same number, or the same name of a dim.  ONNX Runtime
infers a name for few values behind an operator that computes shapes, so dynamic graphs reuse less.

In the first run at a size each buffer is a request to the arena.  Of that run ONNX Runtime keeps a
pattern, and from the second run on asks for one block, in which each buffer has its place (the
smallest gap that fits), beside which stand the outputs and what kernels need for themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aotc.base.records import record
from aotc.graph.arena import Arena
from aotc.graph.view import captured_by, op_of

if TYPE_CHECKING:
    import onnx

Shape = Sequence["int | str | None"]

VIEWS: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output is their first input, in other dims."""
_PATTERN_ALIGNMENT: Final = 256
_FIRST: Final = ((0, 0),)
IN_PLACE: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    **dict.fromkeys(
        "Cast Celu Clip Elu HardSigmoid LeakyRelu LogSoftmax Relu ScatterElements Selu Shrink "
        "Sigmoid Softmax Softplus Softsign Tanh ThresholdedRelu Trilu".split(),
        _FIRST,
    ),
    "com.microsoft::FusedConv": ((3, 0),),
    "com.microsoft.nchwc::Conv": ((3, 0),),
    "com.microsoft::GroupQueryAttention": ((3, 1), (4, 2)),
}
"""By operator, the inputs that outputs may be written over, by index, as the kernels of the CPU
provider say (seen of each with ONNX Runtime 1.31 and 1.32; of elementwise sums and products, none
does)."""


@record(kw_only=False)
class Node:
    """A node as the plan sees it: `reads` are its inputs (empty: absent), then what it captures."""

    name: str
    op: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    inputs: int

    @classmethod
    def of(cls, node: onnx.NodeProto) -> Node:
        """The same of a proto."""
        return cls(
            name=node.name,
            op=op_of(node),
            reads=(*node.input, *captured_by(node)),
            makes=tuple(node.output),
            inputs=len(node.input),
        )


@record(kw_only=False)
class Values:
    """What ONNX Runtime knows of the values of a graph when it loads it.

    `shapes` are those it infers (none of a value: not even the rank), `widths` bytes of an element
    (0: text, or no tensor), `given` what no node makes: inputs, weights, values of outer graphs.
    """

    shapes: Mapping[str, Shape]
    widths: Mapping[str, int]
    given: frozenset[str]
    outputs: frozenset[str]

    def as_large(self, one: str, other: str) -> bool:
        """Whether both are known to have the same axes, of elements of the same width."""
        a, b = self.shapes.get(one), self.shapes.get(other)
        width = self.widths.get(one, 0)
        if a is None or b is None or len(a) != len(b) or not width:
            return False
        return width == self.widths.get(other, 0) and all(
            x == y and x is not None and x != "" for x, y in zip(a, b, strict=True)
        )


@record(kw_only=False)
class Buffers:
    """The buffers of a graph: `root` is the value that each value's buffer was made for.

    `ends` are, by such a value, the index of the last node that needs its buffer; outputs have
    none, and what no node makes is not among them.
    """

    nodes: tuple[Node, ...]
    root: Mapping[str, str]
    ends: Mapping[str, int]
    outputs: frozenset[str]

    def own(self, index: int) -> list[str]:
        """The buffers that are new at a node, in the order of its outputs."""
        made = self.nodes[index].makes
        return [name for name in made if name and self.root.get(name) == name]


def plan_buffers(nodes: Sequence[Node], values: Values) -> Buffers:
    """Give each value a buffer, as ONNX Runtime does; `nodes` are in the order they run in."""
    uses = Counter(name for node in nodes for name in node.reads if name)
    uses.update(values.given)
    uses.update(values.outputs)
    uses.update(name for node in nodes for name in node.makes if name)
    root = {name: name for name in values.given}
    unused: list[str] = []
    for node in nodes:
        for at, name in enumerate(node.makes):
            if not name:
                continue
            taken = None
            if name not in values.outputs:
                taken = _input_of(node, at, root, uses, values)
                if taken is None and values.shapes.get(name):
                    taken = next((free for free in unused if values.as_large(free, name)), None)
                    if taken is not None:
                        unused.remove(taken)
            root[name] = name
            if taken is not None:
                root[name] = root[taken]
                uses[root[name]] += uses[name]
        for name in (*node.reads, *node.makes):
            if name:
                owner = root.get(name, name)
                uses[owner] -= 1
                if uses[owner] == 0:
                    unused.insert(0, owner)
    return Buffers(
        nodes=tuple(nodes),
        root=root,
        ends=_ends(nodes, root, values),
        outputs=values.outputs,
    )


def _input_of(
    node: Node, at: int, root: Mapping[str, str], uses: Mapping[str, int], values: Values
) -> str | None:
    """The input over which the node's output `at` is written; None: none."""
    if node.op in VIEWS and at == 0:
        return node.reads[0] if node.reads and node.reads[0] in root else None
    for source, target in IN_PLACE.get(node.op, ()):
        if target != at or source >= node.inputs or not node.reads[source]:
            continue
        name = node.reads[source]
        if uses[root.get(name, name)] == 1 and values.as_large(name, node.makes[at]):
            return name
    return None


def _ends(nodes: Sequence[Node], root: Mapping[str, str], values: Values) -> dict[str, int]:
    made = {root[name] for node in nodes for name in node.makes if name} - values.given
    ends = {}
    for index, node in enumerate(nodes):
        for name in (*node.reads, *node.makes):
            if root.get(name, name) in made:
                ends[root[name]] = index
    for name in values.outputs:
        ends.pop(root.get(name, name), None)
    return ends


class Alive(NamedTuple):
    """A buffer that is in use: the value that it was made for, and its bytes."""

    value: str
    bytes: int


@record
class Run:
    """What runs at some sizes take, in bytes.

    `asked` is the sum over all values that nodes make, `buffers` the sum over their buffers, and
    `live` the most that was asked for at once: at `node`, its own `workspace` included.  `block` is
    the pattern that later runs ask for at once.  The arena's bytes in use at most are `first` in
    the first run and `later` in those after it, and `held` what the arena has taken by then.
    """

    asked: int
    buffers: int
    live: int
    node: str
    op: str
    workspace: int
    alive: tuple[Alive, ...]
    outputs: int
    block: int
    first: int
    later: int
    held: int
    extensions: int

    @property
    def peak(self) -> int:
        """The most bytes of the arena that are in use at once, in the first run or a later one."""
        return max(self.first, self.later)


def simulate(
    buffers: Buffers,
    bytes_of: Mapping[str, int],
    workspace: Mapping[int, Sequence[int]],
    arena: Arena | None = None,
) -> Run:
    """Run a plan at sizes: `bytes_of` each value, and what kernels ask for, by index of the node.

    A value that is not in `bytes_of` takes nothing.  `arena` is the one that serves (default: a new
    one).
    """
    arena = arena or Arena()
    arena.start_peak()
    before = arena.in_use
    ending: dict[int, list[str]] = {}
    for name, index in buffers.ends.items():
        ending.setdefault(index, []).append(name)
    places: dict[str, int | None] = {}
    pattern = _Pattern()
    alive: dict[str, int] = {}
    live = total = asked = distinct = 0
    most: tuple[int, int, tuple[Alive, ...]] = (-1, 0, ())
    for index, node in enumerate(buffers.nodes):
        asked += sum(bytes_of.get(name, 0) for name in node.makes if name)
        for name in buffers.own(index):
            size = bytes_of.get(name, 0)
            places[name] = arena.allocate(size)
            alive[name] = size
            total += size
            distinct += size
            if name not in buffers.outputs:
                pattern.take(name, size)
        needed = [size for size in workspace.get(index, ()) if size]
        if total + sum(needed) > live:
            live = total + sum(needed)
            most = (index, sum(needed), tuple(Alive(*item) for item in alive.items() if item[1]))
        for place in [arena.allocate(size) for size in needed]:
            arena.release(place)
        for name in ending.get(index, ()):
            total -= alive.pop(name)
            arena.release(places.pop(name))
            pattern.give_back(name)
    first = arena.peak - before
    for place in places.values():
        arena.release(place)
    arena.start_peak()
    later = _later_run(buffers, bytes_of, workspace, arena, pattern.size) - before
    at, space, held = most
    return Run(
        asked=asked,
        buffers=distinct,
        live=live,
        node=buffers.nodes[at].name if at >= 0 else "",
        op=buffers.nodes[at].op if at >= 0 else "",
        workspace=space,
        alive=tuple(sorted(held, key=lambda item: -item.bytes)),
        outputs=sum(bytes_of.get(name, 0) for name in buffers.outputs),
        block=pattern.size,
        first=first,
        later=later,
        held=arena.held,
        extensions=arena.extensions,
    )


def _later_run(
    buffers: Buffers,
    bytes_of: Mapping[str, int],
    workspace: Mapping[int, Sequence[int]],
    arena: Arena,
    block: int,
) -> int:
    """The arena's peak in a run that has a pattern."""
    places = [arena.allocate(block)]
    for index in range(len(buffers.nodes)):
        places += [
            arena.allocate(bytes_of.get(name, 0))
            for name in buffers.own(index)
            if name in buffers.outputs
        ]
        for place in [arena.allocate(size) for size in workspace.get(index, ())]:
            arena.release(place)
    for place in places:
        arena.release(place)
    return arena.peak


class _Pattern:
    """Places of buffers in one block: each in the smallest gap that fits, else at the end."""

    def __init__(self) -> None:
        self.size = 0
        self._taken: list[tuple[int, int, str]] = []

    def take(self, name: str, size: int) -> None:
        if not size:
            return
        # What a pattern aligns to.
        size = -(-size // _PATTERN_ALIGNMENT) * _PATTERN_ALIGNMENT
        end = best = 0
        waste: int | None = None
        for start, length, _ in self._taken:
            gap = start - end
            if gap >= size and (waste is None or gap - size < waste):
                waste, best = gap - size, end
            end = start + length
        place = best if waste is not None else end
        self.size = max(self.size, place + size)
        self._taken.append((place, size, name))
        self._taken.sort()

    def give_back(self, name: str) -> None:
        self._taken = [item for item in self._taken if item[2] != name]
