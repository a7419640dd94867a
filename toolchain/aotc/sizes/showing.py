"""What the fixtures show and run, and the search for inputs that show and run the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.graph import values
from aotc.graph.model import inlined
from aotc.graph.values import Data
from aotc.session.sessions import ended_after, run
from aotc.sizes.branches import Branches, Observer, Reached
from aotc.sizes.dependence import Dependence
from aotc.sizes.inputs.fixtures import SEARCHED, FixtureInputs
from aotc.sizes.inputs.searched import MAX_TRIED, Searched, searched_values
from aotc.sizes.reference import Reference
from aotc.sizes.shown import Answer, Lack, OutputTraits, answer_of, digest_of, lack_of
from aotc.sizes.trials import cpu_deadline
from aotc.spec.parted import PartedAxis
from aotc.spec.payload import Finding
from aotc.spec.shapes import Domain, sizes_in_words
from aotc.spec.variant import Optimization

_Item = TypeVar("_Item")
# Raised for nodes with attributes or constants that are not as their operators say.
_MALFORMED: Final = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
# The first number of values that were searched for, in the log of runs.
_FIRST_NUMBER: Final = 1000
# Fixtures that a search adds for outputs, and for branches; each is one more run of every variant.
_MAX_ADDED: Final = 4
# Of values from which others are made: those of the fixtures, then what ran another branch.
_MAX_ROUNDS: Final = 3
_MAX_SECONDS: Final = 60.0
# Work decides how much is tried, so that two builds try the same: seconds are for what hangs.
_MAX_FLOPS: Final = 1e11
_MIN_TRIED: Final = 4
_RUN_SECONDS: Final = 5.0
_MAX_ENDED: Final = 2
_MAX_AT_LARGEST: Final = 12
_MAX_AT_OTHERS: Final = 24
# Findings of branches that were not run, each by itself.
_MAX_TOLD: Final = 6
_MAX_BASES: Final = 4
# Of the inputs from which others are made, and of all that are made for branches at a time.
_MAX_BYTES: Final = 4 << 20
_SMALL_BYTES: Final = 64 << 10
_MAX_HELD: Final = 256 << 20


@record(frozen=False)
class Showing:
    """The answers of the reference to all fixtures, and what is added to them."""

    reference: Reference
    graph: Path
    weights: Path
    traced: Dependence
    traits: Mapping[str, OutputTraits]
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    fixtures: list[FixtureInputs] = field(default_factory=list)
    added: list[FixtureInputs] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    tried: dict[str, list[Answer]] = field(default_factory=dict)
    runs: int = 0
    ended: int = 0

    @classmethod
    def of(
        cls,
        reference: Reference,
        graph: Path,
        weights: Path,
        parted: Mapping[str, Sequence[PartedAxis]],
    ) -> Showing:
        """Nothing is shown yet; `graph` has its external data in the folder `weights`."""
        import onnx

        model = inlined(onnx.load(graph, load_external_data=False))
        names = [value.name for value in reference.outputs]
        try:
            traced = Dependence.of(model)
            traits = {name: traced.traits(name) for name in names}
            for name, axes in parted.items():
                traits |= {each.name: each for each in traced.part_traits(name, axes)}
        except _MALFORMED:
            # ONNX Runtime runs it all the same; then nothing is known of its outputs.
            traced = Dependence()
            traits = {name: OutputTraits(name=name, reads=(), computes=True) for name in names}
        return cls(reference=reference, graph=graph, weights=weights, traced=traced, traits=traits)

    def note(self, fixture: FixtureInputs, outputs: Sequence[Data]) -> None:
        """Keep what a fixture's answer shows."""
        self.fixtures.append(fixture)
        # Nothing is expected of a call without elements.
        if 0 in fixture.sizes.values():
            return
        for answer_name, answer in self._answers(fixture, outputs):
            self.answers.setdefault(answer_name, []).append(answer)

    def _answers(
        self, fixture: FixtureInputs, outputs: Sequence[Data]
    ) -> Iterator[tuple[str, Answer]]:
        # An input is read by many outputs.
        digests = {name: digest_of({name: each}) for name, each in fixture.inputs.items()}
        for value, output in zip(self.reference.outputs, outputs, strict=True):
            for name, traits in self.traits.items():
                # What no input's values decide is the same in every call of these sizes.
                if traits.output == value.name and traits.reads:
                    read = {each: fixture.inputs[each] for each in traits.reads}
                    given = "".join(digests[each] for each in sorted(read))
                    yield name, answer_of(traits.of(output), traits.ends, read, given)

    def lacks(self) -> dict[str, Lack]:
        """The outputs of which the fixtures show nothing, as far as that is certain."""
        found = {}
        for name, answers in self.answers.items():
            lack = self._lack(name, answers)
            if lack is not None and lack.unsure:
                more = [*answers, *self.tried.get(name, ())]
                lack = lack_of(more, self.traits[name].ends, each="call")
            if lack is not None and not lack.unsure:
                found[name] = lack
        # Of an output that shows nothing, no part does.
        outputs = {name: self.traits[name].output for name in found}
        return {
            name: lack
            for name, lack in found.items()
            if outputs[name] == name or outputs[name] not in found
        }

    def _lack(self, name: str, answers: Sequence[Answer]) -> Lack | None:
        return lack_of(answers, self.traits[name].ends)

    def _base(self) -> FixtureInputs | None:
        """The fixture from which other values are made: that of the optimal sizes, if small."""
        usable = [each for each in self.fixtures if 0 not in each.sizes.values()]
        usable.sort(key=lambda each: (each.name != "opt", _bytes(each)))
        quick = [each for each in usable if _bytes(each) <= _MAX_BYTES]
        return next(iter((*quick, *sorted(usable, key=_bytes))), None)

    def _bases(self) -> list[FixtureInputs]:
        """The same, and a few of other sizes: a branch may run at none but some of these."""
        base = self._base()
        if base is None:
            return []
        found = [base]
        for fixture in self.fixtures:
            known = any(fixture.sizes == each.sizes for each in found)
            limit = max(_SMALL_BYTES, 4 * _bytes(found[0]))
            if not known and 0 not in fixture.sizes.values() and _bytes(fixture) <= limit:
                found.append(fixture)
        return found[:_MAX_BASES]

    def search_answers(self) -> None:
        """Look for inputs whose answers show something of every output."""
        left = {
            name: lack
            for name, answers in self.answers.items()
            if (lack := self._lack(name, answers)) is not None
        }
        if not left:
            return
        names = {read for name in left for read in self.traits[name].reads}
        parts = {name: self.traits[name].part for name in left}
        made = [part.value if part is not None else name for name, part in parts.items()]
        numbers = list(dict.fromkeys(n for value in made for n in self.traced.compared(value)))
        for base, (number, searched) in self._all_candidates(names, numbers):
            fixture = FixtureInputs(f"{SEARCHED}{len(self.added)}", searched.inputs, base.sizes)
            outputs = self._run(fixture, number, self.reference.run)
            if outputs is None:
                continue
            taken = False
            for name, answer in self._answers(fixture, outputs):
                lack = left.get(name)
                if lack is None:
                    continue
                before = [*self.answers[name], *(self.tried.get(name, ()) if lack.unsure else ())]
                if self._lack(name, [*before, answer]) is not None:
                    self.tried.setdefault(name, []).append(answer)
                    continue
                del left[name]
                # Whether the answer depends on the input at all was all that was asked.
                if lack.unsure:
                    self.tried.setdefault(name, []).append(answer)
                    continue
                taken = True
                traits = self.traits[name]
                where = f"output {traits.output}"
                self._say_found(f"{traits.words} {lack.what}", where, searched)
            if taken:
                self.added.append(fixture)
                self.note(fixture, outputs)
            if not left or len(self.added) == _MAX_ADDED:
                break

    def _say_found(self, what: str, where: str, searched: Searched) -> None:
        text = f"{what} before other inputs were searched for; compared on them: {searched.what}"
        self.findings.append(Finding(code="AOTC-N047", what=text, where=where))

    def _all_candidates(
        self, names: set[str], numbers: Sequence[float]
    ) -> Iterator[tuple[FixtureInputs, tuple[int, Searched]]]:
        """Values to try at usual sizes, and then the likeliest of them at the largest."""
        base = self._base()
        if base is None:
            return
        yield from ((base, each) for each in self._candidates(base, names, numbers))
        usable = [each for each in self.fixtures if _bytes(each) <= _MAX_BYTES]
        largest = max(usable, key=_bytes, default=base)
        if _bytes(largest) > _bytes(base):
            found = self._candidates(largest, names, numbers, _MAX_AT_LARGEST)
            yield from ((largest, each) for each in found)

    def _candidates(
        self, base: FixtureInputs, names: set[str], numbers: Sequence[float], most: int = MAX_TRIED
    ) -> Iterator[tuple[int, Searched]]:
        """Up to `most` values to try and their numbers, fewer if a run takes long.

        They end as well when time is up, or if a process has died of them.
        """
        reference = self.reference
        late = cpu_deadline(_MAX_SECONDS)
        found = searched_values(
            reference.inputs,
            base.inputs,
            base.sizes,
            reference.hints,
            reference.seed,
            names,
            numbers,
        )
        for number, searched in enumerate(_possible(found)):
            if number == _MIN_TRIED:
                # Only now, as it may take a run of its own, and the first may be enough.
                flops = reference.flops_at(base.sizes)
                most = min(most, max(_MIN_TRIED, int(_MAX_FLOPS / max(flops, 1.0))))
            over = number >= most or late() or self.ended == _MAX_ENDED
            if over or reference.died_with(range(_FIRST_NUMBER + 1, 10 * _FIRST_NUMBER)):
                return
            self.runs += 1
            yield _FIRST_NUMBER + self.runs, searched

    def _run(
        self, fixture: FixtureInputs, number: int, call: Callable[..., list[Data]]
    ) -> list[Data] | None:
        """The answers to values that were searched for; None if they are rejected or take long."""
        try:
            with (
                self.reference.trying(fixture.sizes, number),
                ended_after(_RUN_SECONDS) as options,
            ):
                return call(fixture.inputs, options=options)
        except AotcError:
            # Nor is a loop without end tried with other values for long.
            self.ended += options.terminate
            return None

    # Branches: the same for the paths of control flow, in a copy of the model that tells them.

    def search_branches(self, domain: Domain, level: Optimization) -> Branches | None:
        """What the fixtures run of the model's control flow; None: it has none, or cannot be seen.

        Inputs that run the rest are looked for, and added to the fixtures.
        """
        if self.reference.died_with((_FIRST_NUMBER,)):
            what = "ONNX Runtime does not survive a run in which the control flow is observed"
            self.findings.append(Finding(code="AOTC-N051", what=what))
            return None
        fixed = all(dim.min == dim.max for dim in domain.dims.values())
        try:
            observer = Observer(self.graph, self.weights, level, fixed_sizes=fixed)
            branches = Branches(controls=observer.controls)
            self._observe(observer, branches, self.fixtures)
        except (AotcError, *_MALFORMED) as error:
            why = error.found if isinstance(error, AotcError) else str(error)
            what = f"what the fixtures run of the model's control flow is not known: {why}"
            self.findings.append(Finding(code="AOTC-N051", what=what[:500]))
            return None
        if not branches.complete:
            what = "a run was too long to be listed: what it alone reaches counts as not run"
            self.findings.append(Finding(code="AOTC-N051", what=what))
        bases = self._bases()
        added = 0
        for _ in range(_MAX_ROUNDS):
            missing = branches.missing()
            if not missing or not bases:
                break
            found = self._search_paths(observer, branches, bases, domain, missing)
            taken: list[FixtureInputs] = []
            for place in missing:
                if branches.count(place) or added + len(taken) == _MAX_ADDED:
                    continue
                better = sorted(
                    (each for each in found if place in each.reached and each.shows),
                    key=lambda each: not each.finite,
                )
                if not better:
                    continue
                name = f"{SEARCHED}{len(self.added)}"
                fixture = FixtureInputs(name, better[0].searched.inputs, better[0].sizes)
                self.added.append(fixture)
                self.fixtures.append(fixture)
                taken.append(fixture)
                branches.note(name, better[0].reached)
                control = branches.controls[place[0]]
                self._say_found(
                    f"{branches.in_words(place)} was not run",
                    f"{control.op_type} {control.node}",
                    better[0].searched,
                )
            added += len(taken)
            bases = taken
        self.findings += self._not_run(branches)
        return branches

    def _observe(
        self, observer: Observer, branches: Branches, fixtures: Sequence[FixtureInputs]
    ) -> None:
        def observed(fixture: FixtureInputs, session: Any) -> bool:
            try:
                with self.reference.trying(fixture.sizes, _FIRST_NUMBER):
                    run(session, fixture.inputs)
            except AotcError:
                return False
            return True

        found = observer.observe([partial(observed, fixture) for fixture in fixtures])
        for fixture, reached in zip(fixtures, found, strict=True):
            branches.note(fixture.name, reached)

    def _search_paths(
        self,
        observer: Observer,
        branches: Branches,
        bases: Sequence[FixtureInputs],
        domain: Domain,
        missing: Sequence[tuple[int, str]],
    ) -> list[_Found]:
        """What other values, and other sizes, reach."""
        controls = [branches.controls[number] for number, _ in missing]
        names = {name for control in controls for name in control.inputs}
        numbers = list(dict.fromkeys(n for control in controls for n in control.numbers))
        asked: list[tuple[int, Searched, Mapping[str, int]]] = []
        for index, base in enumerate(bases if names else ()):
            held = max(1, _MAX_HELD // max(_bytes(base), 1))
            most = min(held, _MAX_AT_OTHERS if index else MAX_TRIED)
            found_values = self._candidates(base, names, numbers, most)
            asked += [(*each, base.sizes) for each in found_values]
        for sizes in _sizes_near(numbers, domain):
            if self.reference.trial(sizes).ok:
                self.runs += 1
                text = sizes_in_words(sizes)
                searched = Searched(text, self.reference.inputs_at(sizes))
                asked.append((_FIRST_NUMBER + self.runs, searched, sizes))
        outcomes: dict[int, tuple[bool, bool]] = {}
        late = cpu_deadline(_MAX_SECONDS)

        def observed(number: int, searched: Searched, sizes: Mapping[str, int], on: Any) -> bool:
            fixture = FixtureInputs(SEARCHED, searched.inputs, dict(sizes))
            call = partial(run, on)
            over = late() or self.ended == _MAX_ENDED
            outputs = None if over else self._run(fixture, number, call)
            outcomes[number] = _finiteness(outputs or [])
            return outputs is not None

        found = observer.observe([partial(observed, *each) for each in asked])
        return [
            _Found(searched, dict(sizes), reached, *outcomes[number])
            for (number, searched, sizes), reached in zip(asked, found, strict=True)
            if reached is not None
        ]

    def _not_run(self, branches: Branches) -> Iterator[Finding]:
        """AOTC-N048 for each path that stays without a run."""
        searched = f", nor was an input found that does ({self.runs} tried)" if self.runs else ""
        missing = branches.missing()
        for place in missing[:_MAX_TOLD]:
            control = branches.controls[place[0]]
            yield Finding(
                code="AOTC-N048",
                what=f"{branches.in_words(place)} was not run by the proof: none of "
                f"{len(self.fixtures)} fixtures reaches it{searched}",
                where=f"{control.op_type} {control.node}",
            )
        if more := missing[_MAX_TOLD:]:
            what = f"{len(more)} more were not run by the proof: 'aotc inspect' lists them"
            yield Finding(code="AOTC-N048", what=what, where="branches")


@record(kw_only=False)
class _Found:
    """What a run with other values reached, and whether all or any of its answers are numbers."""

    searched: Searched
    sizes: dict[str, int]
    reached: Reached
    finite: bool
    shows: bool


def _bytes(fixture: FixtureInputs) -> int:
    return sum(values.nbytes(value) for value in fixture.inputs.values())


def _finiteness(outputs: Sequence[Data]) -> tuple[bool, bool]:
    """Whether all answers are finite, and whether any has a finite element."""
    answers = [answer_of(output) for output in outputs]
    finite = all(values.is_finite(output) for output in outputs)
    return finite, any(answer.finite for answer in answers)


def _sizes_near(numbers: Sequence[float], domain: Domain) -> Iterator[dict[str, int]]:
    """Sizes at and beside the numbers that conditions compare with, one dim at a time."""
    best = domain.corner("opt")
    for name, dim in domain.dims.items():
        wanted = [int(n) + step for n in numbers if n.is_integer() for step in (0, 1, -1)]
        for size in dict.fromkeys(wanted):
            if dim.min < dim.max and dim.min <= size <= dim.max and dim.allows(size):
                yield domain.complete({**{d: best[d] for d in domain.dims}, name: size})


def _possible(items: Iterator[_Item]) -> Iterator[_Item]:
    """`items` until one cannot be made, for example for lack of memory."""
    try:
        yield from items
    except (ValueError, MemoryError, OverflowError, AotcError):
        return
