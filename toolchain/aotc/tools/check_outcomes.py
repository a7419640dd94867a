"""Outcomes of checked models: in words, in order, as gates, and the changes between reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError, Place
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import read_at_most
from aotc.base.records import replace
from aotc.spec.answers import AnswersCheck, ChangedAnswer
from aotc.spec.codec import ParseError, decode
from aotc.spec.command_reports import (
    Built,
    CheckModelsReport,
    EarlierChecks,
    ModelCheck,
    OutcomeChange,
)
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Gate, GateStatus

# Outcomes in words, their order, and the changes between two reports.
#
# A change is worse if the outcome's rank is higher than before, and better if it is lower; `RANKS`
# is the order, best first. An artifact with wrong answers is worse than no artifact, whose absence
# is noticed.


# Pairs of outcome and answers; one row has one rank.
RANKS: Final[tuple[frozenset[tuple[str, str]], ...]] = (
    frozenset({("built", "as-expected")}),
    frozenset({("built", "as-onnxruntime")}),
    frozenset({("built", "")}),
    frozenset({("built", "refused")}),
    frozenset({("refused", "")}),
    frozenset({("timeout", ""), ("out-of-memory", "")}),
    frozenset({("crashed", "")}),
    frozenset({("built", "differ")}),
    frozenset({("bug", "")}),
)
# Up to this rank a model can be used.
_WORST_GOOD_RANK: Final = 2
_OUTCOMES: Final[dict[str, Built]] = {
    "AOTC-I013": "crashed",
    "AOTC-I014": "timeout",
    "AOTC-I015": "out-of-memory",
    "AOTC-R999": "bug",
}


def outcome_of(code: str) -> Built:
    """The outcome of a build that ended with a reason code."""
    return _OUTCOMES.get(code, "refused")


def rank(check: ModelCheck) -> int:
    """The index of an outcome in `RANKS`; 0 is the best."""
    answers = check.answers if check.outcome == "built" else ""
    return next(i for i, row in enumerate(RANKS) if (check.outcome, answers) in row)


def is_good(check: ModelCheck) -> bool:
    """Whether the model is built, and nothing was found against its artifact."""
    return rank(check) <= _WORST_GOOD_RANK


def in_words(check: ModelCheck) -> str:
    """An outcome as shown in tables, such as `built, as expected` or `refused AOTC-S001`."""
    if check.outcome != "built":
        return f"{check.outcome} {check.code}"
    text = {"": "nothing compared", "refused": f"data refused {check.code}"}
    return f"built, {text.get(check.answers, check.answers.replace('-', ' '))}"


def summary_of(checks: Iterable[ModelCheck]) -> dict[str, int]:
    """The number of models by outcome in words, most frequent first."""
    counted = Counter(in_words(check) for check in checks)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def read_report(path: Path) -> CheckModelsReport:
    """Read a report of `--json`, complete or with the outcomes only.

    Raises AOTC-I001, I027 and I046.
    """
    try:
        data = read_at_most(path, MAX_JSON_BYTES)
    except OSError as error:
        raise cannot_read(error, "the document to compare with cannot be read", str(path)) from None
    try:
        return decode(CheckModelsReport, strict_json(data))
    except ParseError as error:
        first = error.problems[0]
        raise AotcError(
            first.code or "AOTC-I027",
            "this is not a document of 'aotc check-models --json'",
            where=f"--against {path}",
            expected="aotc.check-models/1",
            found=str(first),
            fix=""
            if first.code
            else "Give a file that 'aotc check-models DIR --output FILE' wrote.",
        ) from None


def changes(
    before: CheckModelsReport,
    path: str,
    now: Iterable[ModelCheck],
    unchecked: Iterable[str] = (),
) -> EarlierChecks:
    """The changes since the report `before` in the file `path`; `unchecked` models are left out."""
    old = {check.model: check for check in before.models}
    new = {check.model: check for check in now}
    lists: dict[str, list[OutcomeChange]] = {"worse": [], "better": [], "changed": []}
    for name in sorted(old.keys() & new.keys()):
        before_check, now_check = old[name], new[name]
        if in_words(before_check) == in_words(now_check):
            continue
        step = rank(now_check) - rank(before_check)
        kind = "worse" if step > 0 else "better" if step < 0 else "changed"
        lists[kind].append(
            OutcomeChange(model=name, before=in_words(before_check), now=in_words(now_check))
        )
    unchecked_names = set(unchecked)
    return EarlierChecks(
        path=path,
        versions=before.versions,
        worse=tuple(lists["worse"]),
        better=tuple(lists["better"]),
        changed=tuple(lists["changed"]),
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys() - unchecked_names)),
    )


def judged_models(
    report: CheckModelsReport, folder: Path
) -> tuple[tuple[Gate, ...], tuple[Refusal, ...]]:
    """A gate for each model and for its answers, and for each that fails every breach.

    Compared with an earlier document, a model fails if its outcome is worse than then; else if it
    is not built, or its artifact answers otherwise.  The place of a breach is the model's file in
    `folder`.
    """
    worse = (
        {change.model: change.before for change in report.against.worse}
        if report.against is not None
        else None
    )
    gates, breaches = [], []
    for check in report.models:
        good = is_good(check) if worse is None else check.model not in worse
        limit = "built, and answers as the model" if worse is None else "not worse than before"
        gates.append(
            Gate(
                name="model",
                subject=check.model,
                status="passed" if good else "failed",
                limit=limit,
                measured=in_words(check),
            )
        )
        if not good:
            breaches.append(_breach(check, folder, (worse or {}).get(check.model, limit)))
            place = Place(file=str(folder / check.model))
            breaches += [
                replace(each, where=f"{check.model}: {each.where}".removesuffix(": "), place=place)
                for each in check.other_refusals
            ]
    gates += [
        Gate(name="model", subject=name, status="not-judged", measured="interrupted")
        for name in report.unchecked
    ]
    judged, others = _judged_answers(report.answers, folder)
    return (*gates, *judged), (*breaches, *others)


def answers_hold(answers: AnswersCheck) -> bool:
    """Whether no original model was found to answer otherwise than before."""
    return not answers.changed and not answers.refused


def changed_in_words(changed: ChangedAnswer) -> str:
    """How far an answer is from what it was."""
    error = changed.error
    return error.reason if error.reason else f"max abs {error.max_abs:.3g}"


def _judged_answers(
    answers: AnswersCheck, folder: Path
) -> tuple[tuple[Gate, ...], tuple[Refusal, ...]]:
    """Gates of answers that changed or were not compared; AOTC-N058 for each that changed."""
    gates: dict[str, Gate] = {}

    def judged(model: str, status: GateStatus, measured: str) -> None:
        limit = f"as in {' and '.join(answers.before)}"
        gates[model] = Gate(
            name="answers", subject=model, status=status, limit=limit, measured=measured
        )

    if answers.compared:
        count = f"{answers.compared} compared"
        judged("all models", "failed" if answers.changed else "passed", count)
    for each in answers.not_compared:
        judged(each.model, "not-judged", each.reason)
    breaches = []
    for refusal in answers.refused:
        model = refusal.where.rpartition(": ")[2]
        judged(model, "failed", refusal.what)
        breaches.append(replace(refusal, place=Place(file=str(folder / model))))
    for changed in answers.changed:
        words = changed_in_words(changed)
        judged(changed.model, "failed", words)
        breaches.append(
            Refusal(
                code="AOTC-N058",
                what=f"output {changed.error.output!r} of the original model changed",
                where=f"{changed.model}, fixture {changed.call}",
                expected=f"what ONNX Runtime {' and '.join(answers.onnxruntime)} answered",
                found=words,
                fix=REASONS["AOTC-N058"].fix,
                place=Place(file=str(folder / changed.model)),
            )
        )
    return tuple(gates.values()), tuple(breaches)


def _breach(check: ModelCheck, folder: Path, expected: str) -> Refusal:
    code = check.code if check.code in REASONS else "AOTC-I050"
    return Refusal(
        code=code,
        what=check.what or in_words(check),
        where=f"{check.model}: {check.where}".removesuffix(": "),
        expected=check.expected or expected,
        found=check.found or in_words(check),
        fix=REASONS[code].fix,
        place=Place(file=str(folder / check.model)),
    )
