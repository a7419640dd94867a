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

from bisect import insort
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aotc.base.records import field, record
from aotc.graph.arena import Arena, rounded
from aotc.graph.view import captured_by, op_of

if TYPE_CHECKING:
    import onnx

Shape = Sequence["int | str | None"]

VIEWS: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output is their first input, in other dims."""
_FIRST: Final = ((0, 0),)
IN_PLACE: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    **dict.fromkeys(
        ("Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu"), _FIRST
    ),
    **dict.fromkeys(
        ("ScatterElements", "Selu", "Shrink", "Sigmoid", "Softmax", "Softplus", "Softsign"), _FIRST
    ),
    **dict.fromkeys(("Tanh", "ThresholdedRelu", "Trilu"), _FIRST),
    "com.microsoft::FusedConv": ((3, 0),),
    "com.microsoft.nchwc::Conv": ((3, 0),),
    "com.microsoft::GroupQueryAttention": ((3, 1), (4, 2)),
}
"""By operator, the inputs that outputs may be written over, by index, as the kernels of the CPU
provider say (seen of each with ONNX Runtime 1.31 and 1.32; of elementwise sums and products, none
does)."""


_IN_PLACE_ON_GPU: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    **dict.fromkeys(("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid"), _FIRST),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Softplus", "Softsign", "Tanh"), _FIRST),
    **dict.fromkeys(("ThresholdedRelu", "Trilu", "com.microsoft::BiasGelu"), _FIRST),
    "com.microsoft::GroupQueryAttention": ((3, 1), (4, 2)),
}
"""The same as the kernels of CUDA are registered (read, not seen)."""
TO_DEVICE: Final = "MemcpyFromHost"
TO_HOST: Final = "MemcpyToHost"
"""What ONNX Runtime puts between nodes of the GPU and nodes of the CPU."""
_MADE_ON_HOST: Final = frozenset({TO_HOST, "Shape", "Size"})
"""Operators of the GPU whose values are in the host's memory."""
_READ_ON_HOST: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys((TO_DEVICE, "ConstantOfShape", "If"), (0,)),
    **dict.fromkeys(("CumSum", "Expand", "OneHot", "Reshape", "Split", "Squeeze", "Tile"), (1,)),
    **dict.fromkeys(("TopK", "Trilu", "Unsqueeze"), (1,)),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), (1,)),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), (1,)),
    **dict.fromkeys(("Clip", "Dropout"), (1, 2)),
    **dict.fromkeys(("Pad", "Resize"), (1, 2, 3)),
    "Loop": (0, 1),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "com.microsoft::GroupQueryAttention": (6,),
}
"""By operator of the GPU, the inputs that its kernel reads in the host's memory, by index."""


@record(kw_only=False)
class Node:
    """A node as the plan sees it: `reads` are its inputs (empty: absent), then what it captures."""

    name: str
    op: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    inputs: int
    on_gpu: bool = False

    @classmethod
    def of(cls, node: onnx.NodeProto, *, on_gpu: bool = False) -> Node:
        """The same of a proto."""
        return cls(
            name=node.name,
            op=op_of(node),
            reads=(*node.input, *captured_by(node)),
            makes=tuple(node.output),
            inputs=len(node.input),
            on_gpu=on_gpu,
        )

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """The inputs that its outputs may be written over, by index."""
        return (_IN_PLACE_ON_GPU if self.on_gpu else IN_PLACE).get(self.op, ())


def values_on_gpu(nodes: Sequence[Node], given: Collection[str]) -> frozenset[str]:
    """Of what nodes make and of what is `given`, the values that are in the GPU's memory.

    What is given is there if any kernel reads it there; weights may be in the host's as well.
    """
    found: set[str] = set()
    for node in nodes:
        if node.on_gpu:
            host = _READ_ON_HOST.get(node.op, ())
            found.update(
                name for at, name in enumerate(node.reads) if name in given and at not in host
            )
            if node.op not in _MADE_ON_HOST:
                found.update(name for name in node.makes if name)
    return frozenset(found)


@record(kw_only=False)
class Values:
    """What ONNX Runtime knows of the values of a graph when it loads it.

    `shapes` are those it infers (none of a value: not even the rank), `widths` bytes of an element
    (0: text, or no tensor), `given` what no node makes: inputs, weights, values of outer graphs.
    Those `on_gpu` are in its memory, all others in the host's.
    """

    shapes: Mapping[str, Shape]
    widths: Mapping[str, int]
    given: frozenset[str]
    outputs: frozenset[str]
    on_gpu: frozenset[str] = frozenset()

    def as_large(self, one: str, other: str) -> bool:
        """Whether both are in one memory, and known to have the same axes, of as wide elements."""
        if (one in self.on_gpu) != (other in self.on_gpu):
            return False
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
    for source, target in node.in_place:
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


@record(kw_only=False)
class Frame:
    """What runs at some sizes: a graph's buffers, and in bytes its values and what kernels ask for.

    `workspace` and `inner`, the graphs that control flow runs one after the other, are by the index
    of the node.  A value that is not in `bytes_of` takes nothing.  `inputs` are those that are
    copied into the arena before the nodes run, and stay there until the end.  `patterned`: later
    runs have a pattern; of an inner graph only if it captures no weight that its kernels packed.
    """

    buffers: Buffers
    bytes_of: Mapping[str, int]
    workspace: Mapping[int, Sequence[int]]
    inner: Mapping[int, Sequence[Frame]] = field(default_factory=dict)
    patterned: bool = True
    inputs: Mapping[str, int] = field(default_factory=dict)

    @property
    def asked(self) -> int:
        """The bytes of all values that nodes make, those of inner graphs too."""
        made = (name for node in self.buffers.nodes for name in node.makes if name)
        return sum(self.bytes_of.get(name, 0) for name in made) + sum(
            each.asked for inner in self.inner.values() for each in inner
        )


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


def simulate(frame: Frame, arena: Arena | None = None) -> Run:
    """The first run of a plan and a later one, in `arena` (default: a new one)."""
    arena = arena or Arena()
    before = arena.in_use
    arena.start_peak()
    first = _FirstRun(arena)
    kept = first.run(frame)
    first_peak = arena.peak - before
    for place in kept:
        arena.release(place)
    arena.start_peak()
    for place in _run_later(frame, first.patterns, arena):
        arena.release(place)
    at = first.at
    return Run(
        asked=frame.asked,
        buffers=first.total,
        live=at.bytes,
        node=at.node.name if at.node is not None else "",
        op=at.node.op if at.node is not None else "",
        workspace=at.workspace,
        alive=tuple(sorted(at.alive, key=lambda item: -item.bytes)),
        outputs=sum(frame.bytes_of.get(name, 0) for name in frame.buffers.outputs),
        block=first.patterns[id(frame)],
        first=first_peak,
        later=arena.peak - before,
        held=arena.held,
        extensions=arena.extensions,
    )


class _Moment(NamedTuple):
    """The node at the peak, and what is alive there."""

    bytes: int = 0
    node: Node | None = None
    workspace: int = 0
    alive: tuple[Alive, ...] = ()


class _FirstRun:
    """A run without a pattern: each buffer is a request to the arena, and makes the pattern."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.total = 0
        self.at = _Moment()
        # The block of each graph, by its frame.
        self.patterns: dict[int, int] = {}
        self._alive: dict[tuple[int, str], int] = {}

    def run(self, frame: Frame) -> list[int | None]:
        """The places of what is still in use then: inputs in the arena, and outputs."""
        buffers, sizes, arena = frame.buffers, frame.bytes_of, self.arena
        ending: dict[int, list[str]] = {}
        for name, index in buffers.ends.items():
            ending.setdefault(index, []).append(name)
        places: dict[str, int | None] = {}
        for name, size in frame.inputs.items():
            places[name] = arena.allocate(size)
            self._alive[id(frame), name] = size
        pattern = _Pattern()
        for index, node in enumerate(buffers.nodes):
            self._run_inner(frame.inner.get(index, ()))
            for name in buffers.own(index):
                size = sizes.get(name, 0)
                places[name] = arena.allocate(size)
                self._alive[id(frame), name] = size
                self.total += size
                if name not in buffers.outputs:
                    pattern.take(name, size)
            self._work(node, [size for size in frame.workspace.get(index, ()) if size])
            for name in ending.get(index, ()):
                del self._alive[id(frame), name]
                arena.release(places.pop(name))
                pattern.give_back(name)
        self.patterns[id(frame)] = pattern.size
        return list(places.values())

    def _run_inner(self, inner: Sequence[Frame]) -> None:
        """Graphs of control flow, whose outputs become those of the node."""
        for each in inner:
            for place in self.run(each):
                self.arena.release(place)
            for name in each.buffers.outputs:
                self._alive.pop((id(each), name), None)

    def _work(self, node: Node, pieces: Sequence[int]) -> None:
        total = sum(self._alive.values()) + sum(pieces)
        if total > self.at.bytes or self.at.node is None:
            held = tuple(Alive(name, size) for (_, name), size in self._alive.items() if size)
            self.at = _Moment(total, node, sum(pieces), held)
        for place in [self.arena.allocate(size) for size in pieces][::-1]:
            self.arena.release(place)


def _run_later(frame: Frame, patterns: Mapping[int, int], arena: Arena) -> list[int | None]:
    """A run with a pattern: one block, beside it outputs and workspace.

    It gives the places of what is still in use then.
    """
    if not frame.patterned:
        return _FirstRun(arena).run(frame)
    buffers = frame.buffers
    places: list[int | None] = [arena.allocate(size) for size in frame.inputs.values()]
    block = arena.allocate(patterns[id(frame)])
    for index in range(len(buffers.nodes)):
        for inner in frame.inner.get(index, ()):
            for place in _run_later(inner, patterns, arena):
                arena.release(place)
        places += [
            arena.allocate(frame.bytes_of.get(name, 0))
            for name in buffers.own(index)
            if name in buffers.outputs
        ]
        for place in [arena.allocate(size) for size in frame.workspace.get(index, ())][::-1]:
            arena.release(place)
    arena.release(block)
    return places


class _Pattern:
    """Places of buffers in one block: each in the smallest gap that fits, else at its end.

    What is free behind the last buffer, as far as the block reaches by then, is a gap as well.
    """

    def __init__(self) -> None:
        self.size = 0
        self._taken: list[tuple[int, int, str]] = []

    def take(self, name: str, size: int) -> None:
        if not size:
            return
        size = rounded(size)
        end = 0
        gaps: list[tuple[int, int]] = []
        for start, length, _ in self._taken:
            gaps.append((start - end, end))
            end = start + length
        fitting = [gap for gap in (*gaps, (self.size - end, end)) if gap[0] >= size]
        place = min(fitting, key=lambda gap: gap[0])[1] if fitting else end
        self.size = max(self.size, place + size)
        insort(self._taken, (place, size, name))

    def give_back(self, name: str) -> None:
        self._taken = [item for item in self._taken if item[2] != name]
