"""What `aotc check-models` shows: counts by outcome, then the models that need a look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aotc.base.errors import expected_and_found
from aotc.base.text import duration
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Sheet,
    Table,
    count,
    first,
    fixture_in_words,
    refusals_table,
    verdict,
    with_fixtures_in_words,
    with_titles,
)
from aotc.spec.answers import AnswersCheck, ToolVersions
from aotc.spec.command_reports import CheckModelsReport, ModelCheck, OutcomeChange
from aotc.tools.check_outcomes import changed_in_words, in_words, is_good

# Up to so many models are all listed; of more, only those that are not as they should be.
_ALL: Final = 40
# Of one outcome, or of one list; `--json` has all.
_MAX_LISTED: Final = 12
_WIDEST: Final = 160


def check_models_view(answer: CheckModelsReport) -> Sheet:
    """What became of every model, and what changed since."""
    bad = [model for model in answer.models if not is_good(model)]
    status, style = (
        ("all as they should be", PASSED)
        if not bad
        else (f"{len(bad)} not as they should be", FAILED)
    )
    if answer.unchecked:
        status, style = f"INTERRUPTED, {count(len(answer.unchecked), 'model')} left", NOTICED
    elif answer.against is not None:
        worse = len(answer.against.worse)
        status, style = (f"{worse} WORSE", FAILED) if worse else ("none is worse", PASSED)
    changed = len({each.model for each in answer.answers.changed})
    if changed:
        status, style = f"{status}; THE ANSWERS OF {changed} CHANGED", FAILED
    elif answer.answers.refused:
        status, style = f"{status}; kept answers cannot be used", FAILED
    total = count(len(answer.models), "model")
    shown = answer.models if len(answer.models) <= _ALL else tuple(bad)
    skipped = [(each.path, each.reason) for each in answer.skipped]
    return [
        Heading(answer.folder, f"{total}, {status}", style),
        Facts(
            [
                ("profile", answer.profile),
                ("by", versions_text(answer.versions)),
                ("took", duration(answer.seconds)),
            ]
        ),
        Table(
            "outcome",
            ("models",),
            [(with_titles(name), str(n)) for name, n in answer.summary.items()],
        ),
        Table("models", ("outcome", ""), _rows(shown)),
        Table("skipped", ("",), skipped, limit=_MAX_LISTED),
        *_against(answer),
        *_answers(answer.answers),
    ]


def _answers(answers: AnswersCheck) -> Sheet:
    """What the original models answer, and what they answered before."""
    then = f" (ONNX Runtime {' and '.join(answers.onnxruntime)})" if answers.onnxruntime else ""
    of = f"of {count(answers.compared, 'model')} compared with {' and '.join(answers.before)}{then}"
    if not answers.onnxruntime:
        of = f"none of these models in {' and '.join(answers.before)}, so none was compared"
    kept = f"of {count(answers.kept, 'model')} added to {answers.folder}" if answers.kept else ""
    rows = [
        (
            each.model,
            f"output {each.error.output}, fixture of {fixture_in_words(each.call)}",
            f"{changed_in_words(each)}{'' if each.whole else ', by its sketch'}",
        )
        for each in answers.changed
    ]
    listed = (("not compared", answers.not_compared), ("not kept", answers.not_kept))
    return [
        Facts(
            [("answers", [of] if answers.before else []), ("kept", kept if answers.kept else "")]
        ),
        Table("answers changed, AOTC-N058", ("", ""), rows),
        refusals_table("kept answers", answers.refused),
        *(
            Table(
                f"answers {title}",
                ("",),
                [(e.model, with_fixtures_in_words(e.reason)) for e in rows],
                limit=_MAX_LISTED,
            )
            for title, rows in listed
        ),
    ]


def versions_text(versions: ToolVersions) -> str:
    """The versions that decide outcomes, in one line."""
    named = (
        ("aotc", versions.aotc),
        ("ONNX Runtime", versions.onnxruntime),
        ("onnx", versions.onnx),
        ("Python", versions.python),
    )
    return ", ".join(f"{name} {version}" for name, version in named if version)


def _rows(checks: Sequence[ModelCheck]) -> list[tuple[str, ...]]:
    """A row for each model, those that are not fit first; of one outcome not all."""
    groups: dict[str, list[ModelCheck]] = {}
    for check in sorted(checks, key=is_good):
        groups.setdefault(in_words(check), []).append(check)
    rows: list[tuple[str, ...]] = []
    for name, group in groups.items():
        listed = group if len(checks) <= _ALL else group[:_MAX_LISTED]
        rows += [(each.model, verdict(is_good(each), name, name), _why(each)) for each in listed]
        if len(group) > len(listed):
            rows.append((f"and {len(group) - len(listed)} more", name, ""))
    return rows


def _why(check: ModelCheck) -> str:
    text = check.what + (f" [{check.where}]" if check.where else "")
    text = " ".join((text + expected_and_found(check.expected, check.found)).split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _against(answer: CheckModelsReport) -> Sheet:
    against = answer.against
    if against is None:
        return []
    parts: Sheet = [
        Facts([("against", against.path), ("by then", versions_text(against.versions))])
    ]
    for title in ("worse", "better", "changed"):
        changes: Sequence[OutcomeChange] = getattr(against, title)
        rows = [(change.model, change.before, change.now) for change in changes]
        limit = 0 if title == "worse" else _MAX_LISTED
        parts.append(Table(title, ("before", "now"), rows, limit=limit))
    for title, names in (("new", against.added), ("gone", against.removed)):
        parts.append(Facts([(title, first(names, _MAX_LISTED))]))
    return parts
