"""Which branches of every If, and how many trips of every loop, runs of the original model reach.

They are observed in a copy of the model with a node more in each subgraph, whose events ONNX
Runtime's profile of a run lists.  The added nodes draw a random number, which no optimizer removes
and nothing reads.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.base.records import field, record
from aotc.graph.model import inlined
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.view import every_node, named_subgraphs
from aotc.session.inference import create_original
from aotc.session.sessions import reference_options
from aotc.sizes.dependence import ControlSite, Dependence
from aotc.spec.manifest import ControlPath
from aotc.spec.variant import Optimization

if TYPE_CHECKING:
    import onnx

_MARK: Final = "aotc:"
_EVENT: Final = "_kernel_time"
_LOOPS: Final = ("Loop", "Scan")
_CONTROL: Final = ("If", *_LOOPS)
_GRAPH: Final = "observed.onnx"
# In the manifest, of the fixtures that reach a path.
_MAX_NAMED: Final = 4
# What a run may reach: for each control-flow node, by its number, its branches or kinds of trips.
Reached = frozenset[tuple[int, str]]


@record
class Control:
    """One If, Loop or Scan: its name in the model, and the path that it is in (None: all run it).

    `inputs` are those by whose values it is decided, `numbers` what is compared with on the way;
    `constant`: it is decided alike in every call.
    """

    node: str
    op_type: str
    inside: tuple[int, str] | None
    inputs: tuple[str, ...]
    numbers: tuple[float, ...]
    constant: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """All that a run may reach."""
        if self.op_type == "If":
            return ("then_branch", "else_branch")
        return ("0 trips", "1 trip", "many trips")


@record(frozen=False)
class Branches:
    """The control flow of a model, and what of it the fixtures reached so far."""

    controls: tuple[Control, ...]
    reached: dict[str, Reached] = field(default_factory=dict)
    complete: bool = True

    def note(self, fixture: str, found: Reached | None) -> None:
        """Keep what a fixture reached; None: the profile has no end, so nothing is known of it."""
        if found is None:
            self.complete = False
        else:
            self.reached[fixture] = found

    def count(self, path: tuple[int, str]) -> int:
        """How many fixtures reached a path."""
        return sum(path in found for found in self.reached.values())

    def missing(self) -> list[tuple[int, str]]:
        """What a call could run, and no fixture did: branches, bodies, and second trips.

        Not what is inside of it, nor what a constant condition excludes, nor a node that ONNX
        Runtime has made part of the graph around it.
        """
        found: list[tuple[int, str]] = []
        for number, control in enumerate(self.controls):
            if control.constant or self._is_in_missing(control):
                continue
            if not any(self.count((number, path)) for path in control.paths):
                continue
            if control.op_type == "If":
                found += [(number, p) for p in control.paths if not self.count((number, p))]
            elif not self.count((number, "many trips")):
                # What is scanned is as long as it is; a loop decides itself.
                if not self.count((number, "1 trip")):
                    found.append((number, "1 trip"))
                elif control.op_type == "Loop":
                    found.append((number, "many trips"))
        return found

    def _is_in_missing(self, control: Control) -> bool:
        place = control.inside
        while place is not None:
            number, path = place
            outer = self.controls[number]
            ran = (path,) if outer.op_type == "If" else ("1 trip", "many trips")
            if not any(self.count((number, each)) for each in ran):
                return True
            place = outer.inside
        return False

    def table(self) -> tuple[ControlPath, ...]:
        """Every path with the fixtures that reached it."""
        missing = set(self.missing())
        rows = []
        for number, control in enumerate(self.controls):
            for path in control.paths:
                names = [n for n, found in self.reached.items() if (number, path) in found]
                rows.append(
                    ControlPath(
                        node=control.node,
                        op_type=control.op_type,
                        path=path,
                        fixtures=len(names),
                        named=tuple(names[:_MAX_NAMED]),
                        missing=(number, path) in missing,
                    )
                )
        return tuple(rows)

    def in_words(self, place: tuple[int, str]) -> str:
        """A path in words, such as `then_branch of If 'If_3'`."""
        number, path = place
        control = self.controls[number]
        what = path if control.op_type == "If" else "the body"
        more = " for more than one trip" if path == "many trips" else ""
        return f"{what} of {control.op_type} {control.node!r}{more}"


class Observer:
    """A copy of the model in which each run tells what it reaches."""

    def __init__(
        self, graph: Path, weights: Path, level: Optimization, *, fixed_sizes: bool
    ) -> None:
        """`graph` has its external data in the folder `weights`, and every node has a name.

        `level` is that of the reference; `fixed_sizes`: every size is the same in all calls.
        """
        import onnx

        model = inlined(onnx.load(graph, load_external_data=False))
        NameNodes().apply(model)
        self.controls = controls_of(model, fixed_sizes=fixed_sizes)
        for number, node in enumerate(_control_nodes(model)):
            node.name = f"{_MARK}{number}"
            for attribute, subgraph in named_subgraphs(node):
                mark = onnx.helper.make_node(
                    "RandomUniform",
                    [],
                    [f"{_MARK}{number}/{attribute}/drawn"],
                    name=f"{_MARK}{number}/{attribute}",
                    shape=[1],
                )
                # Without it, a branch that only passes on a constant would run no node.
                subgraph.node.append(mark)
        self._model = Path(_GRAPH)
        self._model.write_bytes(model.SerializeToString(deterministic=True))
        self._weights = weights
        self._level = level

    def observe(self, runs: Sequence[Callable[[Any], bool]]) -> list[Reached | None]:
        """What each of `runs` reaches, each called with the session; None: it failed.

        A run tells whether it succeeded, and may be called twice.  One that the profile does not
        hold to its end, as there was too much to list, counts as failed.
        """
        ran, found = self._profiled(runs)
        if not all(ran) and len(found) != len(runs):
            # Of those that fail, some have no event.
            _, found = self._profiled([each for each, ok in zip(runs, ran, strict=True) if ok])
            rest = iter(found)
            return [next(rest, None) if ok else None for ok in ran]
        return [each if ok else None for each, ok in itertools.zip_longest(found[: len(ran)], ran)]

    def _profiled(self, runs: Sequence[Callable[[Any], bool]]) -> tuple[list[bool], list[Reached]]:
        """Whether each run succeeded, and what each reached that the profile lists to its end."""
        options = reference_options(level=self._level, weights=self._weights)
        options.enable_profiling = True
        options.profile_file_prefix = "branches"
        session = create_original(self._model, options)
        ran = [run(session) for run in runs]
        path = Path(session.end_profiling())
        try:
            with path.open(errors="replace") as lines:
                return ran, list(reached_by_run(lines, self.controls))
        finally:
            path.unlink()


def _control_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in every_node(model) if node.op_type in _CONTROL]


def controls_of(model: onnx.ModelProto, *, fixed_sizes: bool = False) -> tuple[Control, ...]:
    """The control flow of a model without functions, in the order of `every_node`."""
    traced = Dependence.of(model, with_sizes=True)
    decided = {}
    for site in traced.control:
        if site.node.op_type in _CONTROL:
            decided[site.node.name] = _decided(traced, site, fixed_sizes=fixed_sizes)
    nodes = _control_nodes(model)
    numbers = {node.name: number for number, node in enumerate(nodes)}
    inside: dict[str, tuple[int, str] | None] = {}
    for node in nodes:
        for attribute, subgraph in named_subgraphs(node):
            for inner in _control_in(subgraph):
                inside[inner.name] = (numbers[node.name], attribute)
    return tuple(
        Control(
            node=node.name,
            op_type=node.op_type,
            inside=inside.get(node.name),
            **decided[node.name],
        )
        for node in nodes
    )


def _control_in(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The control-flow nodes of a graph itself; of other nodes with subgraphs, those inside."""
    for node in graph.node:
        if node.op_type in _CONTROL:
            yield node
        else:
            for _, subgraph in named_subgraphs(node):
                yield from _control_in(subgraph)


def _decided(traced: Dependence, site: ControlSite, *, fixed_sizes: bool) -> Mapping[str, Any]:
    """By what it is decided which path a node takes."""
    values = traced.deciding(site)
    by_values: dict[str, None] = {}
    by_sizes: dict[str, None] = {}
    numbers: dict[float, None] = {}
    for value in values:
        by_values.update(dict.fromkeys(traced.read_by(value)))
        by_sizes.update(dict.fromkeys(traced.read_by(value, through_sizes=True)))
        numbers.update(dict.fromkeys(traced.compared(value)))
    constant = fixed_sizes
    if site.node.op_type != "Scan":
        decides = by_values if fixed_sizes else by_sizes
        constant = not decides and not any(map(traced.in_loop, values))
    return {"inputs": tuple(by_values), "numbers": tuple(numbers), "constant": constant}


def reached_by_run(lines: Iterable[str], controls: Sequence[Control]) -> Iterator[Reached]:
    """What each run reached that a profile has to its end, in order.

    A node's event comes after those of what ran inside of it.
    """
    found: set[tuple[int, str]] = set()
    trips: dict[int, int] = {}
    for line in lines:
        if _MARK not in line:
            if '"model_run"' in line:
                yield frozenset(found)
                found, trips = set(), {}
            continue
        name = json.loads(line.strip().strip("[],"))["name"]
        if not name.startswith(_MARK) or not name.endswith(_EVENT):
            continue
        number_text, _, attribute = name[len(_MARK) : -len(_EVENT)].partition("/")
        number = int(number_text)
        if controls[number].op_type == "If":
            if attribute:
                found.add((number, attribute))
        elif attribute:
            trips[number] = trips.get(number, 0) + 1
        else:
            count = trips.pop(number, 0)
            found.add((number, ("0 trips", "1 trip", "many trips")[min(count, 2)]))
