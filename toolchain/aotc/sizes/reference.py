"""The reference: the original model on the CPU provider, without optimizations, on one thread.

A run that crashes or hangs ends the process; the caller finds its sizes in `trials.TRYING`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph import values
from aotc.graph.symbols import Symbols, free_dims
from aotc.session.inference import create_original, open_original, out_of_memory, refuse_text
from aotc.session.parity import same_bits
from aotc.session.sessions import reference_options, run
from aotc.sizes.dim_hints import hints_on
from aotc.sizes.inputs.fixtures import (
    LESS,
    MAX_RETRIED_SIZES,
    SEARCHED,
    STATED,
    Alternative,
    FixtureInputs,
    Hints,
    alternatives,
    domain_of_fixtures,
    generate,
    padded_points,
    with_one_sign,
)
from aotc.sizes.inputs.hints import doubtful_inputs
from aotc.sizes.inputs.value_sets import ValueSets, values_to_try
from aotc.sizes.output_shapes import DeclaredShapes, ObservedRun
from aotc.sizes.runs import Estimator, answer_or_error, answers, input_bytes, runs_at_once
from aotc.sizes.search import Prober
from aotc.sizes.stated_relations import RelationCheck, refuse_contradictions
from aotc.sizes.trials import (
    Cost,
    FinishedRun,
    RunCost,
    Shapes,
    Trial,
    TrialLog,
    cpu_deadline,
    cpu_limit,
    read_profile,
    renew_cpu_limit,
    work_of,
)
from aotc.spec.buckets import bucket_combinations
from aotc.spec.codec import Json
from aotc.spec.conditions import Condition
from aotc.spec.payload import Finding, Value
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import DimRange, Domain, sizes_in_words

if TYPE_CHECKING:
    import onnxruntime as ort

_MAX_BYTES = 64 << 20
# Of inputs that were generated: most are asked for again.
_MAX_MADE: Final = 512 << 20
_CRASHES = "ONNX Runtime crashes or hangs"
_UNWRITTEN = "ONNX Runtime answers with memory that it never wrote"
# Key for the number of the input values, next to the sizes of a run: no dim has this name.
_VALUES_KEY = ""
# Numbers of the values of the user's fixtures, from here on.
_GIVEN: Final = 200
# How many runs are kept to infer output shapes: a few determine the simplest rule.
_MAX_RUNS = 256
# mallopt(3): the size from which memory is mapped, and then zero; and the byte with which memory
# is filled when it is freed, and inverted when it is allocated.
_M_MMAP_THRESHOLD: Final = -3
_M_PERTURB: Final = -6
# Its maximum, and its value unless changed.
_LARGEST, _DEFAULT = 32 << 20, 128 << 10
_FILLS: Final = (0x55, 0xAA, 0x33)
# glibc keeps up to 7 freed blocks of each size up to 1032 bytes per thread, and reuses them as they
# are.
_MAX_CACHED_BYTES, _BLOCKS = 1056, 8


class Reference:
    """The original model, ready to run at any sizes."""

    def __init__(
        self,
        *,
        model: Path,
        graph: Path,
        weights: Path,
        symbols: Symbols,
        outputs: tuple[Value, ...],
        hints: Hints,
        seed: int,
    ) -> None:
        """`graph` is the file `model` without its weights, with dims named as in `symbols`."""
        self.model = model
        self.graph = graph
        self.weights = weights
        self.inputs = symbols.inputs()
        self.symbols = symbols
        self.outputs = outputs
        self._value_sets = ValueSets(hints)
        self._keeping = Lock()
        self._given: Sequence[FixtureInputs] = ()
        self.seed = seed
        self.level, self._session = open_original(model, weights)
        self._unpooled_session: Any = None
        self._estimator: Estimator | None = None
        self._deadly: list[Json] = []
        self.ahead: dict[str, tuple[FixtureInputs, list[Any]]] = {}
        self._kept: dict[tuple[tuple[str, int], ...], list[Any]] = {}
        self._run_seconds = 0.0
        self._log = TrialLog(Path(), ())
        self._cpu_seconds = 0.0
        self._failed: list[Mapping[str, int]] = []
        self._alternatives = enumerate(alternatives(self.inputs, hints), 1)
        self.has_run = False
        self.rejected_findings: tuple[Finding, ...] = ()
        self.observed_runs: list[ObservedRun] = []
        self.dims = free_dims(self.inputs)
        self.findings: tuple[Finding, ...] = ()
        self.try_empty = self.try_further = True
        # Those of a framework's program: other sizes are not tried.
        self.conditions: Sequence[Condition] = ()

    @property
    def hints(self) -> Hints:
        """The hints by which values are generated at sizes that were not tried."""
        return self._value_sets.hints()

    @hints.setter
    def hints(self, hints: Hints) -> None:
        self._value_sets = ValueSets(hints)

    def _options(self) -> Any:
        return reference_options(level=self.level, weights=self.weights)

    def run(self, inputs: Mapping[str, Any], options: ort.RunOptions | None = None) -> list[Any]:
        """All outputs, in order; raises AOTC-R005 if ONNX Runtime fails."""
        return run(self._session, inputs, options=options)

    def inputs_at(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Generated inputs at `sizes`; raises AOTC-S001 if they cannot be created."""
        return self._inputs_at(sizes, self._value_sets.number(sizes))

    def _inputs_at(self, sizes: Mapping[str, int], number: int) -> dict[str, Any]:
        if number >= _GIVEN:
            return self._given[number - _GIVEN].inputs
        kept, key = self._value_sets.made, (*sorted(sizes.items()), number)
        if (made := kept.get(key)) is not None:
            return dict(made)
        try:
            made = generate(self.inputs, sizes, self._value_sets.hints(number), self.seed)
        except (ValueError, MemoryError, OverflowError) as error:
            raise AotcError(
                "AOTC-S001",
                "inputs of these sizes cannot be created",
                where=sizes_in_words(sizes),
                found=str(error),
            ) from None
        # Runs side by side ask for theirs at once.
        with self._keeping:
            kept[key] = made
            taken = (values.nbytes(value) for each in kept.values() for value in each.values())
            room = _MAX_MADE - sum(taken)
            while room < 0:
                room += sum(map(values.nbytes, kept.pop(next(iter(kept))).values()))
        return dict(made)

    def resume(
        self, deadly: list[Json], run_seconds: float, done: Sequence[Json], cpu_seconds: float
    ) -> None:
        """Continue after processes that died: skip sizes in `deadly`, and reuse earlier runs.

        A run that takes more than `run_seconds` of CPU time ends this process.  `done` are the runs
        of earlier processes, which used `cpu_seconds` of CPU time.
        """
        self._deadly = deadly
        self._run_seconds = run_seconds
        self._log = TrialLog(Path(), done)
        self._cpu_seconds = cpu_seconds

    @contextmanager
    def _journal(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Record what is about to run, as this process may not survive it."""
        self._log.begin(sizes, self._cpu_seconds + time.process_time())
        with cpu_limit(self._run_seconds):
            yield

    def trial(self, sizes: Mapping[str, int]) -> Trial:
        """One run at `sizes` with generated inputs; with other values, if it fails with the first.

        That is, once the model ran anywhere, and not at size 0.
        """
        if (refused := self._refused_by(sizes)) is not None:
            return Trial(ok=False, error=f"the framework's program takes only {refused.text}")
        number = self._value_sets.number(sizes)
        first = self._trial_with(sizes, number)
        if first.ok or 0 in sizes.values() or first.error == _CRASHES:
            # What ends a process costs one: no other values are tried there.
            return first
        others = self._value_sets.others(number, self._values_to_try) if self.has_run else ()
        own = [at for at, item in enumerate(self._given, _GIVEN) if item.sizes == dict(sizes)]
        for other in chain(others, own):
            if (outcome := self._trial_with(sizes, other)).ok:
                return outcome
        return first

    def _refused_by(self, sizes: Mapping[str, int]) -> Condition | None:
        return next((each for each in self.conditions if not each.holds(sizes)), None)

    def _values_to_try(self) -> Iterator[Alternative]:
        hints = self._value_sets.hints(self._value_sets.first)
        graph = onnx.load(self.graph, load_external_data=False)
        names = doubtful_inputs(graph, hints)
        doubtful = [v for v in self.inputs if v.name in names and v.allowed is None]
        return values_to_try(self.inputs, doubtful, hints, self._given)

    def _trial_with(self, sizes: Mapping[str, int], number: int) -> Trial:
        known = self._recall_with(sizes, number)
        if known is not None:
            return known
        try:
            with self._journal(_with_number(sizes, number)):
                outputs = self.run(self._inputs_at(sizes, number))
            return self._tried(sizes, outputs, number)
        except AotcError as error:
            return self._tried(sizes, error, number)

    def try_several(self, several: Sequence[Mapping[str, int]]) -> None:
        """Trials at these sizes side by side, as far as they were not done before.

        Raises TooManyAtOnceError.
        """
        wanted = [
            sizes
            for sizes in several
            if self._refused_by(sizes) is None
            and 0 not in sizes.values()
            and not self._recall(sizes)
            and _with_number(sizes, self._value_sets.number(sizes)) not in self._deadly
        ]
        at_once = runs_at_once(len(wanted))
        if at_once == 1:
            return

        def run(sizes: Mapping[str, int]) -> list[Any]:
            return self.run(self.inputs_at(sizes))

        with self.several(at_once) as finished:
            found = answers(wanted, run, at_once, finished)
            for sizes, outputs in zip(wanted, found, strict=True):
                self._tried(sizes, outputs, self._value_sets.number(sizes))

    def _tried(
        self, sizes: Mapping[str, int], outputs: list[Any] | AotcError, number: int
    ) -> Trial:
        """The outcome of a run that gave `outputs`, or failed; it is kept."""
        shapes: Shapes = ()
        if isinstance(outputs, AotcError):
            refuse_text(outputs, self.model.name)
            trial = Trial(ok=False, error=outputs.found)
        else:
            shapes = self._keep_outputs(sizes, outputs)
            empty = any(values.elements(value) == 0 for value in outputs)
            unwritten = 0 in sizes.values() and not empty and self._is_unwritten(sizes, number)
            trial = Trial(ok=False, error=_UNWRITTEN) if unwritten else Trial(ok=True, empty=empty)
        done = FinishedRun(trial, shapes)
        self._log.add(sizes, number, done)
        return self._remember(sizes, done, number)

    def _recall(self, sizes: Mapping[str, int]) -> Trial | None:
        """The run at `sizes`, if it was done before and did not fail, as other values may not."""
        known = self._recall_with(sizes, self._value_sets.number(sizes))
        return known if known is not None and known.ok else None

    def _recall_with(self, sizes: Mapping[str, int], number: int) -> Trial | None:
        """The run with the values of `number`, if it was done or is known to end the process."""
        if _with_number(sizes, number) in self._deadly:
            return Trial(ok=False, error=_CRASHES)
        done = self._log.done(sizes, number)
        return None if done is None else self._remember(sizes, done, number)

    def _remember(self, sizes: Mapping[str, int], done: FinishedRun, number: int) -> Trial:
        if done.trial.ok:
            self.has_run = True
            self._value_sets.accept(sizes, number)
            self.note_shapes(sizes, done.shapes)
        elif len(self._failed) < MAX_RETRIED_SIZES and dict(sizes) not in self._failed:
            self._failed.append(dict(sizes))
        return done.trial

    def try_other_values(self) -> bool:
        """If nothing ran so far: switch to other input values with which a run succeeds.

        They are tried at the first sizes that failed, and stay for the whole analysis.  Returns
        whether there are such values.
        """
        if self.has_run:
            return False
        first = self._value_sets
        for number, alternative in self._alternatives:
            self._value_sets = ValueSets(alternative.hints, number)
            for sizes in self._failed:
                if self._trial_with(sizes, number).ok:
                    self._failed = []
                    what = f"the first values were rejected; taken instead: {alternative.what}"
                    self.rejected_findings = (Finding(code="AOTC-S030", what=what, where="inputs"),)
                    return True
        self._value_sets = first
        return False

    def _is_unwritten(self, sizes: Mapping[str, int], number: int) -> bool:
        if self._unpooled_session is None:
            self._unpooled_session = create_original(self.model, unpooled_options(self._options()))
        with self._journal(sizes):
            return is_unwritten(self._unpooled_session, self._inputs_at(sizes, number))

    @contextmanager
    def trying(self, sizes: Mapping[str, int], number: int) -> Iterator[None]:
        """While values that were searched for run at `sizes`; the process may not survive it."""
        with self._journal(_with_number(sizes, number)):
            yield

    def died_with(self, numbers: Container[int]) -> bool:
        """Whether an earlier process died of values with one of these numbers."""
        return any(item.get(_VALUES_KEY) in numbers for item in self._deadly)

    def _declared_trial(self, sizes: Mapping[str, int]) -> Trial:
        """One run at sizes of the dims as the model declares them; its outcome is not kept."""
        if dict(sizes) in self._deadly:
            return Trial(ok=False, error=_CRASHES)
        try:
            with self._journal(sizes):
                self.run(generate(self.symbols.declared, sizes, self.hints, self.seed))
        except AotcError as error:
            return Trial(ok=False, error=error.found)
        except (ValueError, MemoryError, OverflowError) as error:
            return Trial(ok=False, error=str(error))
        return Trial(ok=True)

    def _keep_outputs(self, sizes: Mapping[str, int], outputs: list[Any]) -> Shapes:
        """Keep the outputs of the last trials: the corners are also fixtures."""
        self._kept[tuple(sizes.items())] = outputs
        while sum(values.nbytes(v) for kept in self._kept.values() for v in kept) > _MAX_BYTES:
            del self._kept[next(iter(self._kept))]
        return shapes_of(outputs)

    def note_shapes(self, sizes: Mapping[str, int], shapes: Shapes) -> None:
        """Keep the outputs' shapes of a run at `sizes`."""
        run = ObservedRun(dict(sizes), shapes)
        if len(self.observed_runs) < _MAX_RUNS and run not in self.observed_runs:
            self.observed_runs.append(run)

    def padded_fixtures(self, domain: Domain, *, side_by_side: bool = True) -> list[FixtureInputs]:
        """For each combination of buckets, a fixture of smaller sizes, if one runs.

        Also its copies with inputs of one sign, there and at sizes that are padded least.  Raises
        TooManyAtOnceError if `side_by_side`.
        """
        padded = _padded(domain)
        if side_by_side:
            self.try_several([points[0] for points in padded if points])
        found: list[FixtureInputs] = []
        for index, points in enumerate(padded):
            first = next((at for at in points if self.trial(at).ok), None)
            if first is not None:
                found += self._paddings(index, first, points)
        return found

    def planned_paddings(self, domain: Domain) -> list[FixtureInputs]:
        """The same, if the model runs at the first of the sizes for each combination."""
        return [
            fixture
            for index, points in enumerate(_padded(domain))
            if points
            for fixture in self._paddings(index, points[0], points)
        ]

    def _paddings(
        self, index: int, first: dict[str, int], points: Sequence[dict[str, int]]
    ) -> Iterator[FixtureInputs]:
        inputs = self.inputs_at(first)
        yield FixtureInputs(f"padded{index}", inputs, first)
        signed = with_one_sign(inputs, self.inputs, self.hints)
        for sign, given in signed.items():
            yield FixtureInputs(f"padded{index}-{sign}", given, first)
        last = points[min(2, len(points) - 1)]
        # A fixture that ends the process is known by its sizes alone, a trial by its values too.
        known = (dict(last), _with_number(last, self._value_sets.number(last)))
        if signed and last != first and not any(item in self._deadly for item in known):
            signed = with_one_sign(self.inputs_at(last), self.inputs, self.hints)
            for sign, given in signed.items():
                yield FixtureInputs(f"{LESS}{index}-{sign}", given, last)

    def tried_again(self, fixture: FixtureInputs) -> FixtureInputs | None:
        """A fixture of padded sizes that failed, with values that run; None if none do.

        Most models run at all sizes up to their buckets: these are not tried before, as the largest
        of them take as long as the largest bucket.
        """
        if not self.trial(fixture.sizes).ok:
            return None
        signed = with_one_sign(self.inputs_at(fixture.sizes), self.inputs, self.hints)
        sign = fixture.name.partition("-")[2]
        return FixtureInputs(fixture.name, signed[sign], fixture.sizes)

    def domain(
        self, stated: Mapping[str, DimRange], limits: ProbeLimits, given: Sequence[FixtureInputs]
    ) -> Domain:
        """The proven box of sizes.

        Raises AOTC-S001, S005, S011, S014 and S016; and I024 if a fixture contradicts the relations
        that the profile states.
        """
        if not self.dims:
            return Domain()
        self._given = given
        prober = Prober(
            dims=self.dims,
            hints=hints_on(self.inputs, self.outputs, self.graph),
            try_empty=self.try_empty,
            further=self.try_further,
            stated={d: s for d, s in stated.items() if d in self.dims},
            limits=limits,
            trial=self.trial,
            late=cpu_deadline(max(0.0, limits.seconds - self._cpu_seconds)),
            cost=self._cost,
            work=self.work_at,
            recall=self._recall,
            step=self._log.step,
            relations=self.symbols.relations,
            input_bytes=partial(input_bytes, self.inputs),
        )
        check = RelationCheck(self.symbols, self._declared_trial, limits, prober.late)
        refuse_contradictions(given, self.inputs, self.symbols.relations)
        seeds = [item.sizes for item in given]
        try:
            if self.symbols.statements and prober.base(seeds) is None:
                check.refuse_wrong(stated)
            domain = prober.search(seeds)
            check.refuse_stuck(stated, domain)
            self._refuse_always_empty(domain)
            self.findings = (
                *prober.findings,
                *check.unneeded_findings(domain),
                *self._value_findings(domain),
                *self._outside_findings(domain),
            )
            return domain
        except AotcError as error:
            # Generated values may be the cause; then the user's own sizes are what is proven.
            if out_of_memory(error.found):
                raise AotcError("AOTC-I015", error.what, found=error.found) from None
            if error.code != "AOTC-S001" or not given:
                raise
            derived = {relation.dim for relation in self.symbols.relations}
            free = [dim for dim in self.dims if dim not in derived]
            return replace(domain_of_fixtures(free, seeds), relations=self.symbols.relations)

    def _refuse_always_empty(self, domain: Domain) -> None:
        """Raise AOTC-S035 if a size of 0 that is stated leaves nothing to answer."""
        fixed = [name for name, dim in domain.dims.items() if dim.max == 0]
        outputs = self.run(self.inputs_at(domain.corner("opt"))) if fixed else []
        if outputs and not any(values.elements(value) for value in outputs):
            raise AotcError(
                "AOTC-S035",
                "every answer would be empty",
                where=f"dim {', '.join(fixed)}",
                expected="a size of at least 1, or a range such as 1..8",
                found="0",
            )

    def _value_findings(self, domain: Domain) -> list[Finding]:
        sets = self._value_sets
        taken = sets.told()
        failing = [n for n, dim in domain.dims.items() if dim.stopped_by in ("error", "combined")]
        if taken:
            what = "sizes that failed with the values as drawn, such as "
            what += f"{sizes_in_words(sets.first_rejected)}, run with others: {taken}"
        elif failing and sets.tried:
            what = f"where {', '.join(failing)} ends, the model fails with other values too: "
            what += "; ".join(sets.tried)
        else:
            return []
        return [Finding(code="AOTC-S030", what=what, where="inputs")]

    def _outside_findings(self, domain: Domain) -> list[Finding]:
        """AOTC-S036 for each of the user's fixtures with sizes that the domain does not have."""
        found = []
        for item in self._given:
            names = [
                n
                for n, d in domain.dims.items()
                if n in item.sizes and not d.accepts(item.sizes[n])
            ]
            if not names or domain.accepts(item.sizes):
                continue
            sizes = {name: item.sizes[name] for name in names}
            proven = ", ".join(f"{name} {domain.dims[name].text()}" for name in names)
            outcome = self._trial_with(item.sizes, self._value_sets.first)
            why = f"; generated values fail there: {outcome.error}" if not outcome.ok else ""
            what = f"{sizes_in_words(sizes)} is outside of what is proven, {proven}{why}"
            found.append(Finding(code="AOTC-S036", what=what, where=f"fixture {item.name}"))
        return found

    def _cost(self, points: Sequence[Mapping[str, int]]) -> Cost:
        found = Estimator(self.inputs, points, self.run_costs(points))
        self._estimator = self._estimator or found
        return found

    def run_costs(self, sizes: Sequence[Mapping[str, int]]) -> list[RunCost | None]:
        """The cost of a run at each of `sizes`, from a profiled session; None if the run fails."""
        options = self._options()
        options.enable_profiling = True
        options.profile_file_prefix = "cost"
        session = create_original(self.model, options)
        done: list[bool] = []
        enough = True
        for item in sizes:
            # Only sizes that ran before are safe to run in this session.
            ok = enough and self.trial(item).ok
            if ok:
                try:
                    run(session, self.inputs_at(item))
                except AotcError:
                    # There is no memory for a second session's run beside what the first one keeps.
                    ok = enough = False
            done.append(ok)
        path = Path(session.end_profiling())
        costs = iter(read_profile(path))
        path.unlink()
        return [next(costs, None) if ok else None for ok in done]

    def work_at(self, sizes: Mapping[str, int]) -> float:
        """What a run at `sizes` costs, counted in one that is profiled."""
        (cost,) = self.run_costs([sizes])
        return work_of(cost.activation_bytes, cost.flops) if cost is not None else 0.0

    def flops_at(self, sizes: Mapping[str, int]) -> float:
        """Estimated floating-point operations of a run at `sizes`, from one that is profiled."""
        if self._estimator is not None and sizes:
            return self._estimator(sizes)[2]
        (cost,) = self.run_costs([sizes])
        return cost.flops if cost is not None else 0.0

    def activation_bytes(self, domain: Domain) -> int | None:
        """Estimated bytes of all nodes' outputs at the largest shape; None without estimates."""
        if self._estimator is None:
            return None
        return self._estimator(domain.corner("max"))[1]

    def outputs_of(self, fixture: FixtureInputs) -> list[Any]:
        """All outputs of a fixture, in order; raises AOTC-R005."""
        kept = self._kept_outputs(fixture)
        if kept is not None:
            return kept
        with self._journal(fixture.sizes):
            return self.run(fixture.inputs)

    def outputs_beside(self, fixture: FixtureInputs) -> list[Any]:
        """The same, beside other such runs, in `several`."""
        kept = self._kept_outputs(fixture)
        return self.run(fixture.inputs) if kept is None else kept

    @contextmanager
    def several(self, at_once: int) -> Iterator[Callable[[], None]]:
        """While so many runs go on at once; what it yields is called when one of them has ended.

        If the process does not survive it, nobody knows which of them it was.
        """
        self._log.begin_several(self._cpu_seconds + time.process_time())
        limit = self._run_seconds * at_once
        with cpu_limit(limit):
            yield lambda: renew_cpu_limit(limit)

    def require_repeats(self, fixture: FixtureInputs) -> None:
        """Raise AOTC-N063 if an output differs between two runs that draw from equal seeds."""
        first, second = self.run(fixture.inputs), self.run(fixture.inputs)
        for value, one, other in zip(self.outputs, first, second, strict=True):
            if not same_bits(one, other):
                raise AotcError(
                    "AOTC-N063",
                    "two runs of the original on equal inputs have other bytes",
                    where=f"output {value.name}, fixture {fixture.name}",
                )

    def is_given(self, fixture: FixtureInputs) -> bool:
        """Whether its inputs are the user's own, or were made of them."""
        return fixture.name.startswith("user") or self._value_sets.is_given(fixture.sizes)

    def note_ahead(self, fixture: FixtureInputs, outputs: list[Any]) -> None:
        """Keep the outcome of a fixture that ran before it was asked for."""
        if "-" not in fixture.name:
            self._tried(fixture.sizes, outputs, self._value_sets.number(fixture.sizes))

    def _kept_outputs(self, fixture: FixtureInputs) -> list[Any] | None:
        planned, outputs = self.ahead.pop(fixture.name, (None, []))
        if planned is not None and planned.is_like(fixture):
            return outputs
        # Kept outputs belong to generated inputs, not to the user's, nor to those of one sign, nor
        # to those that were searched for, or stated.
        if fixture.name.startswith(("user", SEARCHED, STATED)) or "-" in fixture.name:
            return None
        kept = self._kept.get(tuple(fixture.sizes.items()))
        if kept is None and dict(fixture.sizes) in self._deadly:
            raise AotcError("AOTC-R005", "the model does not run", found=_CRASHES)
        return kept


def _padded(domain: Domain) -> list[list[dict[str, int]]]:
    return [padded_points(domain, buckets) for buckets in bucket_combinations(domain) or [{}]]


def _with_number(sizes: Mapping[str, int], number: int) -> dict[str, int]:
    """What stands for a run with the values of `number` where runs are looked up by their sizes."""
    return {**sizes, _VALUES_KEY: number} if number else dict(sizes)


def shapes_of(outputs: Sequence[Any]) -> Shapes:
    """The shape of each output (None: not a tensor)."""
    return tuple(value.shape if isinstance(value, np.ndarray) else None for value in outputs)


def write_golden_outputs(
    reference: Reference,
    fixtures: Sequence[FixtureInputs],
    folder: Path,
    *,
    side_by_side: bool = True,
    noted: Callable[[FixtureInputs, list[Any]], object] = lambda fixture, outputs: None,
    first: int = 0,
) -> tuple[list[Json], list[Finding]]:
    """Run every fixture and write its inputs and outputs below `folder`, from number `first` on.

    Returns the runs, with their files, and findings, which do not depend on whether runs go on
    `side_by_side`; `noted` is called with each fixture and its outputs.  Raises AOTC-S001, S005 or
    I015 if the model fails on a fixture, and TooManyAtOnceError.
    """
    runs: list[Json] = []
    findings: list[Finding] = []
    declared = DeclaredShapes(reference.outputs)
    found = _answers(reference, fixtures, side_by_side=side_by_side)
    for index, (planned, answered) in enumerate(zip(fixtures, found, strict=True), first):
        fixture, outputs = planned, answered
        if isinstance(outputs, AotcError) and planned.name.startswith(LESS):
            again = reference.tried_again(planned)
            if again is None:
                continue
            fixture, outputs = again, answer_or_error(reference.outputs_of, again)
        if isinstance(outputs, AotcError):
            findings.append(_failed_at_random_size(outputs, fixture, reference))
            continue
        reference.note_shapes(fixture.sizes, shapes_of(outputs))
        noted(fixture, outputs)
        finite = all(values.is_finite(value) for value in outputs)
        if not finite:
            what = "NaN or infinity"
            findings.append(Finding(code="AOTC-N005", what=what, where=fixture.name))
        place = folder / str(index)
        place.mkdir(parents=True)
        runs.append(
            {
                "name": fixture.name,
                "origin": "user" if reference.is_given(fixture) else "generated",
                "sizes": fixture.sizes,
                "inputs": {
                    name: str(values.save(value, place / f"input_{i}"))
                    for i, (name, value) in enumerate(fixture.inputs.items())
                },
                "outputs": {
                    value.name: str(values.save(output, place / f"output_{i}"))
                    for i, (value, output) in enumerate(
                        zip(reference.outputs, outputs, strict=True)
                    )
                },
                "finite": finite,
            }
        )
        declared.compare_run(fixture.sizes, outputs)
    return runs, [*findings, *declared.findings()]


def _answers(
    reference: Reference, fixtures: Sequence[FixtureInputs], *, side_by_side: bool
) -> Iterator[list[Any] | AotcError]:
    at_once = runs_at_once(len(fixtures)) if side_by_side else 1
    if at_once == 1:
        for fixture in fixtures:
            yield answer_or_error(reference.outputs_of, fixture)
        return
    with reference.several(at_once) as finished:
        yield from answers(fixtures, reference.outputs_beside, at_once, finished)


def _failed_at_random_size(
    error: AotcError, fixture: FixtureInputs, reference: Reference
) -> Finding:
    """The finding AOTC-S013 for a size that was drawn; raises for all others."""
    refuse_text(error, reference.model.name)
    if fixture.name.startswith("random"):
        text = f"a size within the range does not run: {error.found}"
        return Finding(code="AOTC-S013", what=text, where=sizes_in_words(fixture.sizes))
    code = "AOTC-S005" if fixture.sizes else "AOTC-S001"
    raise AotcError(
        "AOTC-I015" if out_of_memory(error.found) else code,
        "the original model fails on its fixture",
        where=f"fixture {fixture.name} {sizes_in_words(fixture.sizes)}".strip(),
        found=error.found,
    ) from None


# Detects outputs with uninitialized memory, which some kernels return at size 0.
#
# ONNX Runtime's quantized products over zero elements leave their output as it was allocated (seen
# with 1.31.1): such an output differs from session to session.


def unpooled_options(options: ort.SessionOptions) -> ort.SessionOptions:
    """`options` for a session that allocates every tensor separately."""
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def is_unwritten(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> bool:
    """Whether the outputs of a session with `unpooled_options` depend on earlier memory contents.

    If the C library cannot fill memory: whether outputs differ between runs.  Raises AOTC-R005.
    """
    answers = []
    for fill in _FILLS:
        with _memory_filled_with(fill):
            answers.append(run(session, inputs))
    first, *others = answers
    return not all(same_bits(first, other) for other in others)


@contextmanager
def _memory_filled_with(byte: int) -> Iterator[None]:
    """Let newly allocated memory of this thread hold `byte` or its inverse meanwhile."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    mallopt = getattr(library, "mallopt", None)
    if library is None or mallopt is None:
        yield
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    _fill_free_blocks(library, byte)
    mallopt(_M_PERTURB, byte)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
        mallopt(_M_MMAP_THRESHOLD, _DEFAULT)


def _fill_free_blocks(library: ctypes.CDLL, byte: int) -> None:
    """Allocate more small blocks than are kept of any size, fill them, and free them."""
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    sizes = range(16, _MAX_CACHED_BYTES, 16)
    blocks = [(library.malloc(size), size) for size in sizes for _ in range(_BLOCKS)]
    for block, size in blocks:
        if block:
            ctypes.memset(block, byte, size)
    for block, _ in blocks:
        library.free(block)
