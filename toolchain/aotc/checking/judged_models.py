"""The gates and breaches of a check of many models, as a report tells them."""

from __future__ import annotations

from pathlib import Path

from aotc.checking.outcomes import in_words, is_good
from aotc.contract.results.model_checks import CheckModelsReport, ModelCheck
from aotc.contract.results.reports import Refusal
from aotc.contract.results.run_report import Gate
from aotc.errors import Place
from aotc.reasons import REASONS
from aotc.records import replace


def judged_models(
    report: CheckModelsReport, folder: Path
) -> tuple[tuple[Gate, ...], tuple[Refusal, ...]]:
    """A gate for each model, and for each that fails it every breach.

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
                for each in check.also
            ]
    gates += [
        Gate(name="model", subject=name, status="not-judged", measured="interrupted")
        for name in report.unchecked
    ]
    return tuple(gates), tuple(breaches)


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
