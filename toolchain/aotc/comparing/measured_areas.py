"""Areas with a number: exactness, memory and size; and measurements, which are only shown."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from aotc.comparing.field_changes import change, changes_of, ratio
from aotc.comparing.opened_artifact import ArtifactContents
from aotc.comparing.variant_pairs import Pair
from aotc.contract.manifest.variant import MemoryPlan
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.diff_report import Change, MeasuredRow
from aotc.inspection.summary import worst_errors
from aotc.records import record

# Errors of two runs of one graph differ by the order of sums on more than one thread.
_SAME_ERROR: Final = 1.1
_SAME_SQNR_DB: Final = 20 * math.log10(_SAME_ERROR)


@record
class Measured:
    """What differs in an area with a number, that number, and what the number does not tell."""

    changes: tuple[Change, ...]
    ratio: float | None
    reason: str = ""


def exactness(a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]) -> Measured:
    """Verdicts, tolerances and compared shapes, and the worst error of each output.

    Errors count as different from a factor of 1.1 on.  The ratio is that of the output whose error
    grew most, the largest float if an error appeared; None if no output was measured in both.  The
    reason names verdicts that differ, and outputs that were measured in A alone or in neither.
    """
    found: list[Change] = []
    ratios: list[float] = []
    reasons: list[str] = []
    for pair in pairs:
        found += changes_of(
            pair.a.parity, pair.b.parity, "parity", subject=pair.label, without=("arithmetic",)
        )
        one, other = _errors(a, pair.a.name), _errors(b, pair.b.name)
        if pair.a.parity.status != pair.b.parity.status:
            words = f"{pair.a.parity.status} in A and {pair.b.parity.status} in B"
            reasons.append(f"{pair.label}: parity {words}")
        # Of one payload, errors are the same whether somebody wrote them down or not.
        if not one and not other and a.artifact_id != b.artifact_id:
            reasons.append(f"{pair.label}: neither artifact has measured errors")
        reasons += [
            f"{pair.label}: output {output} is not measured in B"
            for output in one
            if output not in other
        ]
        reasons += [
            f"{pair.label}: output {output} passed in {'A' if one[output].passed else 'B'} alone"
            for output in one
            if output in other and one[output].passed != other[output].passed
        ]
        for output in dict.fromkeys((*one, *other)):
            before, after = one.get(output), other.get(output)
            if before is not None and after is not None:
                ratios.append(_error_ratio(before.max_abs, after.max_abs))
            found += _error_changes(before, after, output, pair.label)
        found += _task_changes(a, b, pair)
    worst = max(ratios, default=None)
    return Measured(changes=tuple(found), ratio=worst, reason="; ".join(reasons))


def _task_changes(a: ArtifactContents, b: ArtifactContents, pair: Pair) -> list[Change]:
    """The metric on a labelled set, where both builds judged by the same one."""
    one, other = (
        measured.task if (measured := artifact.measured(variant)) is not None else None
        for artifact, variant in ((a, pair.a.name), (b, pair.b.name))
    )
    if one is None or other is None or one.metric != other.metric or one.variant == other.variant:
        return []
    return [change(f"task.{one.metric}", one.variant, other.variant, pair.label)]


def _errors(artifact: ArtifactContents, variant: str) -> Mapping[str, OutputError]:
    measured = artifact.measured(variant)
    found = worst_errors(measured) if measured is not None else ()
    return {error.output: error for error in found}


def _error_changes(
    a: OutputError | None, b: OutputError | None, output: str, subject: str
) -> list[Change]:
    found = []
    for name in ("max_abs", "max_rel"):
        one, other = getattr(a, name, None), getattr(b, name, None)
        if one is None or other is None:
            is_same = one == other
        else:
            is_same = 1 / _SAME_ERROR <= _error_ratio(one, other) <= _SAME_ERROR
        if not is_same:
            found.append(change(f"{output}.{name}", one, other, subject))
    if a is not None and b is not None:
        one, other = a.sqnr_db, b.sqnr_db
        # Earlier releases measured neither.
        if one is not None and other is not None and abs(one - other) > _SAME_SQNR_DB:
            found.append(change(f"{output}.sqnr_db", one, other, subject))
        one, other = a.agreement, b.agreement
        if one is not None and other is not None and one != other:
            found.append(change(f"{output}.agreement", one, other, subject))
    if a is not None and b is not None and a.passed != b.passed:
        found.append(change(f"{output}.passed", a.passed, b.passed, subject))
    return found


def _error_ratio(a: float, b: float) -> float:
    if a == b:
        return 1.0
    return b / a if a > 0 else sys.float_info.max


def memory(pairs: Sequence[Pair]) -> Measured:
    """Planned memory by purpose; the ratio of the variant whose total grew most.

    Activations that neither plan counts are left out of the total.  None if one plan alone counts
    them, or there is no pair.
    """
    found: list[Change] = []
    ratios: list[float | None] = []
    for pair in pairs:
        one, other = pair.a.memory, pair.b.memory
        found += changes_of(one, other, subject=pair.label)
        is_known = (one.activation_bytes_max is None) == (other.activation_bytes_max is None)
        ratios.append(ratio(_total(one), _total(other)) if is_known else None)
    known = [each for each in ratios if each is not None]
    is_complete = bool(known) and len(known) == len(ratios)
    return Measured(changes=tuple(found), ratio=max(known) if is_complete else None)


def _total(plan: MemoryPlan) -> int:
    return plan.weights_bytes + plan.input_bytes_max + (plan.activation_bytes_max or 0)


def size(a: ArtifactContents, b: ArtifactContents) -> Measured:
    """The payload's size, by role and by file, and its ratio."""
    found = [
        *changes_of(a.payload_bytes, b.payload_bytes, "payload"),
        *changes_of(_by_role(a), _by_role(b)),
    ]
    files_a = {entry.path: entry.size for entry in a.manifest.files}
    files_b = {entry.path: entry.size for entry in b.manifest.files}
    for path in sorted({*files_a, *files_b}):
        if files_a.get(path) != files_b.get(path):
            found.append(change("size", files_a.get(path), files_b.get(path), path))
    return Measured(changes=tuple(found), ratio=ratio(a.payload_bytes, b.payload_bytes))


def _by_role(artifact: ArtifactContents) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for entry in artifact.manifest.files:
        sizes[entry.role] = sizes.get(entry.role, 0) + entry.size
    return sizes


def measured_rows(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]
) -> tuple[MeasuredRow, ...]:
    """Times and peaks of memory of both builds, which say as much of their hosts as of them."""
    rows = []
    for pair in pairs:
        one, other = _measurements(a, pair.a.name), _measurements(b, pair.b.name)
        for what in dict.fromkeys((*one, *other)):
            unit: Literal["seconds", "bytes"] = "bytes" if what == "peak memory" else "seconds"
            before, after = one.get(what), other.get(what)
            rows.append(
                MeasuredRow(
                    variant=pair.label,
                    what=what,
                    unit=unit,
                    a=before,
                    b=after,
                    ratio=ratio(before, after),
                )
            )
    return tuple(rows)


def _measurements(artifact: ArtifactContents, variant: str) -> dict[str, float]:
    measured = artifact.measured(variant)
    if measured is None:
        return {}
    found = {
        "load": measured.load_seconds,
        "first run": measured.first_run_seconds,
        **{f"run {name}": seconds for name, seconds in measured.run_seconds.items()},
        "peak memory": measured.peak_memory_bytes,
    }
    return {what: float(value) for what, value in found.items() if value is not None}
