"""Outcomes in words, their order, and what changed between two documents: the one place for both.

A change between two documents is worse where the outcome has a higher rank than before, and
better where it has a lower one; `RANKS` is the order, best first.  An artifact that answers wrongly
is worse than none: whoever has none knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.codec.strict_json import MAX_JSON_BYTES, strict_json
from aotc.contract.results.model_checks import (
    Built,
    CheckModelsReport,
    EarlierChecks,
    ModelCheck,
    OutcomeChange,
)
from aotc.errors import AotcError
from aotc.files.failures import cannot_read
from aotc.files.reading import read_at_most

# Outcome and answers, of equal rank in one row.
RANKS: Final[tuple[frozenset[tuple[str, str]], ...]] = (
    frozenset({("built", "as expected")}),
    frozenset({("built", "as onnxruntime")}),
    frozenset({("built", "")}),
    frozenset({("built", "refused")}),
    frozenset({("refused", "")}),
    frozenset({("timeout", ""), ("out-of-memory", "")}),
    frozenset({("crashed", "")}),
    frozenset({("built", "differ")}),
    frozenset({("bug", "")}),
)
# Up to here a model is fit for use.
_WORST_GOOD: Final = 2
_OUTCOMES: Final[dict[str, Built]] = {
    "AOTC-I013": "crashed",
    "AOTC-I014": "timeout",
    "AOTC-I015": "out-of-memory",
    "AOTC-R999": "bug",
}


def outcome_of(code: str) -> Built:
    """What a build that ended with a reason code is called."""
    return _OUTCOMES.get(code, "refused")


def rank(check: ModelCheck) -> int:
    """Place of an outcome in `RANKS`; 0 is the best."""
    answers = check.answers if check.outcome == "built" else ""
    return next(i for i, row in enumerate(RANKS) if (check.outcome, answers) in row)


def is_good(check: ModelCheck) -> bool:
    """Whether the model is built, and nothing was found against its artifact."""
    return rank(check) <= _WORST_GOOD


def in_words(check: ModelCheck) -> str:
    """An outcome as tables have it, such as `built, as expected` or `refused AOTC-S001`."""
    if check.outcome != "built":
        return f"{check.outcome} {check.code}"
    text = {"": "nothing compared", "refused": f"data refused {check.code}"}
    return f"built, {text.get(check.answers, check.answers)}"


def summary_of(checks: Iterable[ModelCheck]) -> dict[str, int]:
    """Models by outcome in words, most first."""
    counted = Counter(in_words(check) for check in checks)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def read_answer(path: Path) -> CheckModelsReport:
    """A document of `--json`, whole or with the outcomes alone; raises AOTC-I001, I027, I046."""
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
            "this is no document of 'aotc check-models --json'",
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
    """What changed since `before`, which `path` names; models that are `unchecked` are left out."""
    old = {check.model: check for check in before.models}
    new = {check.model: check for check in now}
    lists: dict[str, list[OutcomeChange]] = {"worse": [], "better": [], "changed": []}
    for name in sorted(old.keys() & new.keys()):
        one, other = old[name], new[name]
        if in_words(one) == in_words(other):
            continue
        step = rank(other) - rank(one)
        kind = "worse" if step > 0 else "better" if step < 0 else "changed"
        lists[kind].append(OutcomeChange(model=name, before=in_words(one), now=in_words(other)))
    left = set(unchecked)
    return EarlierChecks(
        path=path,
        versions=before.versions,
        worse=tuple(lists["worse"]),
        better=tuple(lists["better"]),
        changed=tuple(lists["changed"]),
        new=tuple(sorted(new.keys() - old.keys())),
        gone=tuple(sorted(old.keys() - new.keys() - left)),
    )
