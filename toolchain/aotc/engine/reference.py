"""The reference: the original model on the CPU execution provider, optimizations off, one thread.

A run that crashes or hangs ends the process; the caller finds its sizes in `TRYING`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from aotc.contract.manifest import Finding, Value
from aotc.contract.parsing import Json
from aotc.contract.profile import ProbeLimits
from aotc.contract.shapes import DimRange, Domain
from aotc.contract.symbols import Symbols
from aotc.engine import values
from aotc.engine.cost import RunCost, read_profile
from aotc.engine.cpu_time import cpu_deadline, cpu_limit
from aotc.engine.estimator import Estimator
from aotc.engine.fixture_plan import (
    Given,
    combinations_of,
    domain_of,
    leading_dims,
    padded_points,
)
from aotc.engine.fixtures import Hints, generate, one_sided
from aotc.engine.original import create_original, open_original
from aotc.engine.probing import Prober
from aotc.engine.produced import (
    Produced,
    declared_findings,
)
from aotc.engine.rejection import out_of_memory, refuse_text
from aotc.engine.session import import_onnxruntime, reference_options, run
from aotc.engine.stated_relations import RelationCheck, refuse_unrelated
from aotc.engine.trials import Cost, Trial
from aotc.engine.unwritten import bare_options, is_unwritten
from aotc.errors import AotcError

# Sizes of the run that is going on, for whoever finds the process dead.
TRYING = "trying.json"
_KEPT_BYTES = 64 << 20
# Runs whose shapes are fitted: the simplest rule for all of them is told from few.
_NOTED_RUNS = 256


class Reference:
    """The original model, ready to be run at any sizes."""

    def __init__(
        self,
        *,
        model: Path,
        weights: Path,
        symbols: Symbols,
        outputs: tuple[Value, ...],
        hints: Hints,
        seed: int,
    ) -> None:
        self.model = model
        self.weights = weights
        self.inputs = symbols.inputs()
        self.symbols = symbols
        self.outputs = outputs
        self.hints = hints
        self.seed = seed
        self._ort = import_onnxruntime()
        self.level, self._session = open_original(model, weights)
        self._bare: Any = None
        self._estimator: Estimator | None = None
        self._deadly: list[Json] = []
        self._answers: dict[tuple[tuple[str, int], ...], list[Any]] = {}
        self._run_seconds = 0.0
        self.produced: list[Produced] = []
        self.dims = _free_dims(self.inputs)
        self.findings: tuple[Finding, ...] = ()

    def _options(self) -> Any:
        return reference_options(level=self.level, weights=self.weights)

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """All outputs; raises AOTC-R005 where ONNX Runtime fails."""
        return run(self._session, inputs)

    def inputs_at(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Generated inputs at `sizes`."""
        try:
            return generate(self.inputs, sizes, self.hints, self.seed)
        except (ValueError, MemoryError, OverflowError) as error:
            raise AotcError(
                "AOTC-S001",
                "inputs of these sizes cannot be made",
                where=_sizes_text(sizes),
                found=str(error),
            ) from None

    def beware(self, deadly: list[Json], run_seconds: float) -> None:
        """Never run at the sizes in `deadly`; end the process where a run takes more CPU time."""
        self._deadly = deadly
        self._run_seconds = run_seconds

    @contextmanager
    def _journal(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Leave word of what is tried, as the process may not live to tell."""
        Path(TRYING).write_text(json.dumps(dict(sizes)))
        with cpu_limit(self._run_seconds):
            yield

    def trial(self, sizes: Mapping[str, int]) -> Trial:
        """One run at `sizes` with generated inputs."""
        if dict(sizes) in self._deadly:
            return Trial(ok=False, error="ONNX Runtime crashes or hangs")
        try:
            with self._journal(sizes):
                outputs = self.run(self.inputs_at(sizes))
            empty = any(values.elements(value) == 0 for value in outputs)
            if 0 in sizes.values() and not empty and self._is_unwritten(sizes):
                return Trial(ok=False, error="ONNX Runtime answers with memory that it never wrote")
        except AotcError as error:
            refuse_text(error, self.model.name)
            return Trial(ok=False, error=error.found)
        self._keep(sizes, outputs)
        return Trial(ok=True, empty=empty)

    def _is_unwritten(self, sizes: Mapping[str, int]) -> bool:
        if self._bare is None:
            self._bare = create_original(self.model, bare_options(self._options()))
        with self._journal(sizes):
            return is_unwritten(self._bare, self.inputs_at(sizes))

    def _declared_trial(self, sizes: Mapping[str, int]) -> Trial:
        """One run at sizes of the dims as the model declares them, remembered nowhere."""
        if dict(sizes) in self._deadly:
            return Trial(ok=False, error="ONNX Runtime crashes or hangs")
        try:
            with self._journal(sizes):
                self.run(generate(self.symbols.declared, sizes, self.hints, self.seed))
        except AotcError as error:
            return Trial(ok=False, error=error.found)
        except (ValueError, MemoryError, OverflowError) as error:
            return Trial(ok=False, error=str(error))
        return Trial(ok=True)

    def _keep(self, sizes: Mapping[str, int], outputs: list[Any]) -> None:
        """Remember the answers of the last trials: the corners are fixtures as well."""
        self._note(sizes, outputs)
        self._answers[tuple(sizes.items())] = outputs
        while sum(values.nbytes(v) for kept in self._answers.values() for v in kept) > _KEPT_BYTES:
            del self._answers[next(iter(self._answers))]

    def _note(self, sizes: Mapping[str, int], outputs: Sequence[Any]) -> None:
        shapes = tuple(value.shape if isinstance(value, np.ndarray) else None for value in outputs)
        if len(self.produced) < _NOTED_RUNS:
            self.produced.append(Produced(dict(sizes), shapes))

    def padded(self, domain: Domain) -> list[Given]:
        """For each combination of buckets a fixture of smaller sizes, where one runs.

        With it come the same of one sign, there and where least is padded.
        """
        found = []
        for index, buckets in enumerate(combinations_of(domain) or [{}]):
            points = padded_points(domain, buckets)
            first = next((at for at in points if self.trial(at).ok), None)
            if first is None:
                continue
            inputs = self.inputs_at(first)
            found.append(Given(f"padded{index}", inputs, first))
            sided = one_sided(inputs, self.inputs, self.hints)
            found += [Given(f"padded{index}-{side}", x, first) for side, x in sided.items()]
            last = points[min(2, len(points) - 1)]
            if sided and last != first and self.trial(last).ok:
                sided = one_sided(self.inputs_at(last), self.inputs, self.hints)
                found += [Given(f"less{index}-{side}", x, last) for side, x in sided.items()]
        return found

    def domain(
        self, stated: Mapping[str, DimRange], limits: ProbeLimits, given: Sequence[Given]
    ) -> Domain:
        """The box of sizes that was proven.

        Raises AOTC-S001, S005, S011, S014 and S016; and I024 where a fixture contradicts the
        profile's relations.
        """
        if not self.dims:
            return Domain()
        prober = Prober(
            dims=self.dims,
            leading=leading_dims(self.inputs),
            stated={d: s for d, s in stated.items() if d in self.dims},
            limits=limits,
            trial=self.trial,
            late=cpu_deadline(limits.seconds),
            cost=self._cost,
            relations=self.symbols.relations,
        )
        check = RelationCheck(self.symbols, self._declared_trial, limits, prober.late)
        refuse_unrelated(given, self.inputs, self.symbols.relations)
        seeds = [item.sizes for item in given]
        try:
            if self.symbols.statements and prober.base(seeds) is None:
                check.refuse_wrong(stated)
            domain = prober.search(seeds)
            check.refuse_stuck(stated, domain)
            self.findings = (*prober.findings, *check.unneeded(domain))
            return domain
        except AotcError as error:
            # Generated values may be what fails; then the user's own sizes are what is proven.
            if out_of_memory(error.found):
                raise AotcError("AOTC-I015", error.what, found=error.found) from None
            if error.code != "AOTC-S001" or not given:
                raise
            derived = {relation.dim for relation in self.symbols.relations}
            free = [dim for dim in self.dims if dim not in derived]
            return replace(domain_of(free, seeds), relations=self.symbols.relations)

    def _cost(self, points: Sequence[Mapping[str, int]]) -> Cost:
        self._estimator = Estimator(self.inputs, points, self.counted(points))
        return self._estimator

    def counted(self, sizes: Sequence[Mapping[str, int]]) -> list[RunCost | None]:
        """Costs at each of `sizes`, from a profiled session; None where the run fails."""
        options = self._options()
        options.enable_profiling = True
        options.profile_file_prefix = "cost"
        session = create_original(self.model, options)
        done: list[bool] = []
        for item in sizes:
            # Only what ran before is safe to run again.
            ok = self.trial(item).ok
            done.append(ok)
            if ok:
                run(session, self.inputs_at(item))
        path = Path(session.end_profiling())
        costs = iter(read_profile(path))
        path.unlink()
        return [next(costs, None) if ok else None for ok in done]

    def activation_bytes(self, domain: Domain) -> int | None:
        """Estimated sum of all nodes' outputs at the largest shape, where it was counted."""
        if self._estimator is None:
            return None
        return self._estimator(domain.corner("max"))[1]

    def golden(self, fixtures: Sequence[Given], folder: Path) -> tuple[list[Json], list[Finding]]:
        """Run every fixture and write inputs and outputs below `folder`."""
        runs: list[Json] = []
        findings: list[Finding] = []
        for index, fixture in enumerate(fixtures):
            try:
                outputs = self._answer(fixture)
            except AotcError as error:
                refuse_text(error, self.model.name)
                if fixture.name.startswith("random"):
                    text = f"a size within the range does not run: {error.found}"
                    findings.append(
                        Finding(code="AOTC-S013", what=text, where=_sizes_text(fixture.sizes))
                    )
                    continue
                code = "AOTC-S005" if fixture.sizes else "AOTC-S001"
                raise AotcError(
                    "AOTC-I015" if out_of_memory(error.found) else code,
                    "the original model fails on its fixture",
                    where=f"{fixture.name} {_sizes_text(fixture.sizes)}".strip(),
                    found=error.found,
                ) from None
            self._note(fixture.sizes, outputs)
            finite = all(values.is_finite(value) for value in outputs)
            if not finite:
                findings.append(
                    Finding(code="AOTC-N005", what="NaN or infinity", where=fixture.name)
                )
            place = folder / str(index)
            place.mkdir(parents=True)
            runs.append(
                {
                    "name": fixture.name,
                    "origin": "user" if fixture.name.startswith("user") else "generated",
                    "sizes": fixture.sizes,
                    "inputs": {
                        name: str(values.save(value, place / f"input_{i}"))
                        for i, (name, value) in enumerate(fixture.inputs.items())
                    },
                    "outputs": {
                        value.name: str(values.save(output, place / f"output_{i}"))
                        for i, (value, output) in enumerate(zip(self.outputs, outputs, strict=True))
                    },
                    "finite": finite,
                }
            )
            if index == 0:
                findings += declared_findings(self.outputs, outputs, fixture.sizes)
        return runs, findings

    def _answer(self, fixture: Given) -> list[Any]:
        kept = self._answers.get(tuple(fixture.sizes.items()))
        # Others of these sizes were kept than the user's, and than those of one sign.
        if kept is not None and not fixture.name.startswith("user") and "-" not in fixture.name:
            return kept
        with self._journal(fixture.sizes):
            return self.run(fixture.inputs)


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _free_dims(inputs: Sequence[Value]) -> tuple[str, ...]:
    names: list[str] = []
    for value in inputs:
        if value.kind == "tensor" and value.shape is not None:
            names += [d for d in value.shape if isinstance(d, str) and d not in names]
        elif value.kind == "tensor":
            names.append(f"{value.name}.0")
    return tuple(names)
