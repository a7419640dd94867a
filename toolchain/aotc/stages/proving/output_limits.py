"""The gates that a profile states for outputs: a limit passes if it holds in every comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotc.contract.document_places import DocumentPlaces
from aotc.contract.finding import Finding
from aotc.contract.precision.quality_gates import GateSpec, OutputGate
from aotc.contract.results.build_evidence import Comparison, OutputError
from aotc.contract.results.run_report import Figure, Gate
from aotc.engine import values
from aotc.engine.output_gates import FORM, JudgedLimit, judged_limits
from aotc.errors import AotcError
from aotc.partitioning.budgets import Judged
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import ReferenceRun, SourceModel

_UNITS = {"min_sqnr_db": ("SQNR", "dB"), "min_agreement": ("agreement", "")}


def output_gates(source: SourceModel, options: BuildOptions) -> dict[str, OutputGate]:
    """The gates of outputs, by output."""
    stated = options.profile.gates
    found = ((value.name, stated.of_output(value.name)) for value in source.outputs)
    return {name: gate for name, gate in found if gate is not None}


def judge_outputs(
    comparisons: Sequence[Comparison], where: str, stated: GateSpec, places: DocumentPlaces
) -> Judged:
    """A gate for each limit of each output; AOTC-N020 for a limit that is breached, with the worst.

    AOTC-N021 for a limit of which nothing can be said: where no comparison measures it, or the
    original answers with NaN and infinity alone.  What cannot be compared breaches parity.
    """
    gates, breaches = [], []
    for name, found in _by_output(comparisons):
        gate = stated.of_output(name)
        if gate is None:
            continue
        for limit, _ in [(key, value) for key, value in gate.limits() if value is not None]:
            judged = [(fixture, _limit(error, gate, limit)) for fixture, error in found]
            compared = [
                (fixture, each)
                for (fixture, each), (_, error) in zip(judged, found, strict=True)
                if FORM not in error.breached
            ]
            if not compared:
                continue
            setting = f"gates.outputs.{stated.key_of(name)}.{limit}"
            place = places.of(setting)
            fixture, worst, code = _worst(compared)
            failed = sum(not each.passed for _, each in compared)
            gates.append(
                Gate(
                    name=setting,
                    subject=f"{where}, output {name!r}",
                    status="failed" if code else "passed",
                    limit=worst.limit,
                    measured=worst.found,
                    place=place,
                )
            )
            if code:
                some = f", in {failed} of {len(compared)} fixtures" if failed > 1 else ""
                breaches.append(
                    AotcError(
                        code,
                        f"output {name!r} {_WORDS[code]}{some}",
                        where=f"{where}, fixture {fixture}",
                        expected=worst.limit,
                        found=worst.found,
                        place=place,
                    )
                )
    return Judged(gates=tuple(gates), breaches=tuple(breaches))


def unjudged_findings(
    source: SourceModel, references: Sequence[ReferenceRun], options: BuildOptions
) -> tuple[Finding, ...]:
    """AOTC-N022 for each answer of the original with NaN or infinity, of an output with a gate."""
    gates = output_gates(source, options)
    return tuple(
        Finding(
            code="AOTC-N022",
            what=f"output {name!r} has NaN or infinity, and its gate judges the other values",
            where=reference.name,
        )
        for reference in references
        if not reference.finite
        for name, path in reference.outputs.items()
        if name in gates and not values.is_finite(values.load(path))
    )


def output_figures(
    comparisons: Sequence[Comparison], where: str, stated: GateSpec
) -> tuple[Figure, ...]:
    """The lowest SQNR and agreement of each output with a gate, as far as they were measured."""
    figures = []
    for name, found in _by_output(comparisons):
        if stated.of_output(name) is None:
            continue
        measured = {
            "min_sqnr_db": [error.sqnr_db for _, error in found if error.sqnr_db is not None],
            "min_agreement": [error.agreement for _, error in found if error.agreement is not None],
        }
        figures += [
            Figure(
                name=_UNITS[limit][0],
                subject=f"{where}, output {name!r}",
                value=min(numbers),
                unit=_UNITS[limit][1],
            )
            for limit, numbers in measured.items()
            if numbers
        ]
    return tuple(figures)


_WORDS = {"AOTC-N020": "breaches a limit of its gate", "AOTC-N021": "cannot be judged by its gate"}


def _by_output(
    comparisons: Sequence[Comparison],
) -> Iterator[tuple[str, list[tuple[str, OutputError]]]]:
    found: dict[str, list[tuple[str, OutputError]]] = {}
    for comparison in comparisons:
        for error in comparison.outputs:
            found.setdefault(error.output, []).append((comparison.fixture, error))
    yield from found.items()


def _limit(error: OutputError, gate: OutputGate, name: str) -> JudgedLimit:
    return next(limit for limit in judged_limits(error, gate) if limit.name == name)


def _worst(compared: Sequence[tuple[str, JudgedLimit]]) -> tuple[str, JudgedLimit, str]:
    """The comparison that says the worst of a limit, and the code of the breach; empty: none."""
    measured = [item for item in compared if item[1].measured is not None]
    undecided = [item for item in compared if item[1].undecided and not item[1].passed]
    failed = [item for item in measured if not item[1].passed]
    if (measured and not undecided) or failed:
        lowest = measured[0][1].name.startswith("min")
        sign = 1 if lowest else -1
        worst = min(measured, key=lambda item: sign * (item[1].measured or 0.0))
        return (*worst, "AOTC-N020" if failed else "")
    if undecided:
        return (*undecided[0], "AOTC-N021")
    # Without an error there is nothing to measure; of rows that cannot disagree nothing is known.
    unknown = [item for item in compared if item[1].undecided]
    return (*unknown[0], "AOTC-N021") if len(unknown) == len(compared) else (*compared[0], "")
