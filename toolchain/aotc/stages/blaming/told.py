"""What a refusal and the evidence say of the nodes to blame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.contract.results.nodes.blamed import Blamed
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.blaming.blame import blame, inexact_answers
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel, ProvenModel

# A fix that is longer names the table instead.
_LONGEST_LINE: Final = 2000
# Errors as large as can be told are not measured.
_UNMEASURED: Final = 1e300


def with_nodes_to_blame(
    error: AotcError, lowered: LoweredModel, options: BuildOptions
) -> AotcError:
    """The refusal of a variant, with the nodes to blame if precision makes its error.

    Its fix is then the line for the profile, where a set of nodes was found, and AOTC-N031 or N034
    among the further ones says what was tried.
    """
    breaches = inexact_answers(error)
    blamed = blame(lowered, error, options) if breaches else None
    if blamed is None or not blamed.all_pass:
        return error
    options.journal.blames(blamed)
    further = _found(blamed) if _is_useful(blamed) else _not_found(blamed)
    rows = _changes(blamed)
    for each in breaches:
        each.fix = further.fix
        each.rows = each.rows or rows
    error.also = (*error.also, further)
    return error


def with_evidence_of_blame(proven: ProvenModel, options: BuildOptions) -> ProvenModel:
    """A variant that passes as nodes to blame were kept, with what was found in its evidence."""
    for blamed in reversed(options.blames.values()):
        if (
            blamed is not None
            and blamed.variant == proven.plan.name
            and blamed.precision == proven.plan.precision
            and blamed.kept
            and set(blamed.kept) <= set(proven.plan.keep_float32)
        ):
            options.journal.blames(blamed)
            return replace(proven, evidence=replace(proven.evidence, blamed=blamed))
    return proven


def _is_useful(blamed: Blamed) -> bool:
    return bool(blamed.kept) and len(blamed.kept) < blamed.candidates


def _found(blamed: Blamed) -> AotcError:
    count = len(blamed.kept)
    line = blamed.profile
    if len(line) > _LONGEST_LINE:
        line = f"keep_float32, with the {count} nodes that the report lists under `blamed`"
    least = "none of them can be left out" if blamed.minimal else "perhaps not the fewest"
    told = "" if count == 1 else f", {least}"
    return AotcError(
        "AOTC-N031",
        f"{blamed.precision} is too inexact in {count} of {_nodes(blamed.candidates)}",
        where=f"variant {blamed.variant}",
        expected="errors within their limits",
        found=f"{_times(blamed.badness_before)} the limit, and {_times(blamed.badness_after)} with "
        f"{'it' if count == 1 else 'them'} in float32 ({_trials(blamed)}"
        f"{told}{_ended(blamed)})",
        fix=f"Write in the profile, or in its variant {blamed.variant}: {line}",
        rows=_nodes_table(blamed),
    )


def _not_found(blamed: Blamed) -> AotcError:
    return AotcError(
        "AOTC-N034",
        f"{blamed.precision} is too inexact, and no few nodes were found that make it so",
        where=f"variant {blamed.variant}",
        expected=f"fewer than {blamed.candidates} nodes to keep in float32",
        found=f"{_times(blamed.badness_before)} the limit, and within it with all of them in "
        f"float32 ({_trials(blamed)}{_ended(blamed)})",
        rows=_nodes_table(blamed),
    )


def _nodes_table(blamed: Blamed) -> list[Mapping[str, str]]:
    """One row for each node that is named, and what it is."""
    roles: dict[str, list[str]] = {}
    if _is_useful(blamed):
        for name in blamed.kept:
            roles.setdefault(name, []).append("to keep in float32")
    if blamed.first:
        roles.setdefault(blamed.first, []).append("first out of tolerance")
    if blamed.worst:
        roles.setdefault(blamed.worst, []).append("adds most error")
    return [{"node": name, "is": ", ".join(words)} for name, words in roles.items()]


def _changes(blamed: Blamed) -> tuple[Mapping[str, str], ...]:
    """One row for each output: its largest errors before and after."""
    return tuple(
        {
            "output": each.output,
            "largest error": _figure(each.max_abs_before),
            "relative": _figure(each.max_rel_before),
            **(
                {
                    "with nodes in float32": _figure(each.max_abs_after),
                    "relative then": _figure(each.max_rel_after),
                }
                if _is_useful(blamed)
                else {}
            ),
        }
        for each in blamed.outputs
    )


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _trials(blamed: Blamed) -> str:
    return f"{blamed.trials} trial{'s' if blamed.trials != 1 else ''}"


def _ended(blamed: Blamed) -> str:
    """Why the search found no better; empty where it tried all that it tries."""
    ends = {"complete": "", "trials": ", then blame.trials were spent"}
    return ends.get(blamed.ended, ", then its time was over, so a quicker host may find fewer")


def _times(badness: float | None) -> str:
    if badness is None or badness > _UNMEASURED:
        return "beyond measure"
    return f"{badness:.3g} times"


def _figure(value: float | None) -> str:
    if value is None or value > _UNMEASURED:
        return "-"
    return f"{value:.3g}"
