"""The gates of one variant, all judged: how exact it is, and what it costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from aotc.contract.document_places import DocumentPlaces
from aotc.contract.profile import Budgets
from aotc.contract.profile_terms import Arithmetic, Tolerance
from aotc.contract.results.build_evidence import Comparison, OutputError, VariantEvidence
from aotc.contract.results.journal import Journal
from aotc.contract.results.run_report import Figure, Gate
from aotc.engine.output_gates import FORM, TOLERANCE
from aotc.errors import AotcError
from aotc.partitioning.budgets import Judged

# Bounds of an error, in the words of a breach.
_LIMIT: Final = "error <= {atol:g} + {rtol:g} * max|reference|, cosine >= {cosine:g}"


def judge_together(judged: Iterable[Judged], journal: Journal) -> AotcError | None:
    """Write all gates down; the first breach with the further ones in `also`, None without any.

    What comes first decides what is tried next: a variant that computes wrongly is made in another
    form, whatever else it breaches.
    """
    found: list[AotcError] = []
    for each in judged:
        journal.judged(each.gates)
        found += each.breaches
    if not found:
        return None
    found[0].also = tuple(found[1:])
    return found[0]


def refused_gate(variant: str, error: AotcError) -> Gate:
    """The gate of a variant that could not be made or run, so that nothing else of it is judged.

    `variant` is its name; where the error was is in its breach, and differs between attempts.
    """
    return Gate(
        name="variants",
        subject=f"variant {variant}",
        status="failed",
        limit=error.expected,
        measured=error.found or error.what,
        place=error.place,
    )


def judge_parity(
    comparisons: Sequence[Comparison],
    where: str,
    arithmetic: Arithmetic,
    tolerance: Tolerance,
    places: DocumentPlaces,
    replaced: Collection[str] = (),
) -> Judged:
    """A gate for each output over all fixtures; AOTC-N001 or N007 for each fixture that differs.

    Of outputs in `replaced`, whose own gates are judged instead, only what cannot be compared.
    """
    place = places.of(f"parity.{arithmetic}")
    limit = _LIMIT.format(atol=tolerance.atol, rtol=tolerance.rtol, cosine=tolerance.min_cosine)
    breaches = []
    by_output: dict[str, list[OutputError]] = {}
    for comparison in comparisons:
        sizes = ", ".join(f"{k}={v}" for k, v in comparison.sizes.items()) or "static shapes"
        for error in comparison.outputs:
            by_output.setdefault(error.output, []).append(error)
            if _differs(error):
                breaches.append(
                    AotcError(
                        "AOTC-N007" if comparison.padded_to else "AOTC-N001",
                        f"output {error.output!r} differs at {sizes}{_padding_text(comparison)}",
                        where=f"{where}, fixture {comparison.fixture}",
                        expected=limit,
                        found=_measured(error),
                        place=place,
                    )
                )
    gates = []
    for name, errors in by_output.items():
        failed = [error for error in errors if _differs(error)]
        if name in replaced and not failed:
            continue
        worst = max(failed or errors, key=lambda error: error.max_abs)
        gates.append(
            Gate(
                name=f"parity.{arithmetic}",
                subject=f"{where}, output {name!r}",
                status="failed" if failed else "passed",
                limit=limit,
                measured=_measured(worst),
                place=place,
            )
        )
    return Judged(gates=tuple(gates), breaches=tuple(breaches))


def _differs(error: OutputError) -> bool:
    """Whether an error breaches parity, and not only the limits of its output's own gate."""
    return not error.passed and bool({FORM, TOLERANCE}.intersection(error.breached))


def _measured(error: OutputError) -> str:
    cosine = "-" if error.cosine is None else format(error.cosine, ".6f")
    # Of a limit of the output's own gate, its own row tells.
    wrong = error.reason if _differs(error) else ""
    return wrong or (
        f"max absolute {error.max_abs:.3g}, max relative {error.max_rel:.3g}, cosine {cosine}"
    )


def _padding_text(comparison: Comparison) -> str:
    sizes = ", ".join(
        f"{name}={size}"
        for name, size in comparison.padded_to.items()
        if comparison.sizes.get(name) != size
    )
    return f", padded to {sizes}" if sizes else ""


def judge_costs(
    evidence: VariantEvidence, budgets: Budgets, where: str, places: DocumentPlaces
) -> Judged:
    """Peak memory (AOTC-M002) and load time (M003), where the profile limits them."""
    gates, breaches = [], []
    peak, load = evidence.peak_memory_bytes or 0, evidence.load_seconds or 0.0
    stated = (
        (
            "AOTC-M002",
            "peak_memory_bytes",
            "peak memory exceeds its budget",
            budgets.peak_memory_bytes,
            peak,
            (f"<= {budgets.peak_memory_bytes} bytes", f"{peak} bytes"),
        ),
        (
            "AOTC-M003",
            "load_seconds",
            "load time exceeds its budget",
            budgets.load_seconds,
            load,
            (f"<= {budgets.load_seconds or 0:g} s", f"{load:.3f} s"),
        ),
    )
    for code, field, what, limit, value, (expected, found) in stated:
        if limit is None:
            continue
        place = places.of(f"budgets.{field}")
        gates.append(
            Gate(
                name=f"budgets.{field}",
                subject=where,
                status="failed" if value > limit else "passed",
                limit=expected,
                measured=found,
                place=place,
            )
        )
        if value > limit:
            breaches.append(
                AotcError(code, what, where=where, expected=expected, found=found, place=place)
            )
    return Judged(gates=tuple(gates), breaches=tuple(breaches))


def variant_figures(evidence: VariantEvidence, where: str) -> tuple[Figure, ...]:
    """What was measured of one variant, whether a budget limits it or not."""
    stated = (
        ("load", evidence.load_seconds, "s"),
        ("first run", evidence.first_run_seconds, "s"),
        ("peak memory", evidence.peak_memory_bytes, "B"),
    )
    return tuple(
        Figure(name=name, subject=where, value=float(value), unit=unit)
        for name, value, unit in stated
        if value is not None
    )
