"""What became of models with another ONNX Runtime: in words, and as gates of a report."""

from __future__ import annotations

from typing import Final

from aotc.base.codes import REASONS
from aotc.base.errors import Place
from aotc.base.records import replace
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Gate, GateStatus, Measurement
from aotc.spec.upgrade import (
    WORSE,
    AnswersCompared,
    LatencyCompared,
    UpgradedModel,
    UpgradeReport,
)
from aotc.tools.check_outcomes import changed_in_words

# Of the machine, as it was during one of the builds.
_OF_THE_MOMENT: Final = frozenset({"AOTC-N055"})


def why(found: UpgradedModel, before: str) -> str:
    """What is behind an outcome, in one line; `before` is a version of ONNX Runtime."""
    if found.outcome == "fails":
        assert found.after.refusal is not None
        return f"{found.after.refusal.code} {found.after.refusal.what}"
    if found.outcome == "builds-now":
        assert found.before.refusal is not None
        return f"with {before}: {found.before.refusal.code} {found.before.refusal.what}"
    if found.outcome == "fails-in-both":
        assert found.before.refusal is not None
        assert found.after.refusal is not None
        codes = dict.fromkeys((found.before.refusal.code, found.after.refusal.code))
        return f"{', then '.join(codes)} {found.after.refusal.what}"
    if found.outcome == "different-answers":
        return different_in_words(found.answers, before)
    return findings_in_words(found)


def findings_in_words(found: UpgradedModel) -> str:
    """What one of the builds says of the model and the other does not, such as a lower level."""
    before = set(found.before.findings) - _OF_THE_MOMENT
    after = set(found.after.findings) - _OF_THE_MOMENT
    kinds = (("no more", before - after), ("new", after - before))
    return "; ".join(
        f"{kind}: {code} {REASONS[code].title}" for kind, codes in kinds for code in sorted(codes)
    )


def different_in_words(answers: AnswersCompared, before: str) -> str:
    """Which output, by how much, against which tolerance, and where that begins."""
    kinds = (
        ("", answers.original),
        ("the artifact's ", answers.artifact),
        ("of the artifact built before, ", answers.earlier_answers),
    )
    kind, changed = next((kind, each[0]) for kind, each in kinds if each)
    bound = ""
    if not kind and answers.tolerance is not None:
        bound = f", allowed {answers.tolerance.atol:g} + {answers.tolerance.rtol:g} * max"
    text = f"{kind}output {changed.error.output}: {changed_in_words(changed)}{bound}"
    blamed = answers.blamed
    if blamed is not None:
        text += f"; first at {blamed.op} {blamed.node} ({blamed.max_abs:.3g})"
    return text


def latency_in_words(latency: LatencyCompared) -> str:
    """The ratio with its interval, or why there is none."""
    if latency.ratio is None:
        return latency.reason
    text = f"{latency.ratio:.2f} ({latency.lower:.2f} to {latency.upper:.2f})"
    return text if latency.verdict != "not-judged" else f"{text}, not judged"


def judged_upgrade(
    report: UpgradeReport,
) -> tuple[tuple[Gate, ...], tuple[Refusal, ...], tuple[Measurement, ...]]:
    """A gate for each model, every breach, and what was measured of each."""
    before = report.before.versions.onnxruntime
    gates: list[Gate] = []
    breaches: list[Refusal] = []
    measured: list[Measurement] = []
    for each in report.models:
        worse = each.outcome in WORSE and each.required
        unknown = each.outcome == "fails-in-both" or each.answers.not_compared
        status: GateStatus = "failed" if worse else "not-judged" if unknown else "passed"
        limit = f"not worse than with ONNX Runtime {before}"
        words = f"{each.outcome.replace('-', ' ')} {_measured(each, before)}".strip()
        gates.append(
            Gate(name="upgrade", subject=each.model, status=status, limit=limit, measured=words)
        )
        if worse:
            breaches.append(_breach(each, report))
        ratio = each.latency.ratio
        if ratio is not None:
            measured.append(
                Measurement(
                    name="latency, new by earlier", subject=each.model, value=ratio, unit=""
                )
            )
    gates += [
        Gate(name="upgrade", subject=name, status="not-judged", measured="interrupted")
        for name in report.unchecked
    ]
    return tuple(gates), tuple(breaches), tuple(measured)


def _measured(each: UpgradedModel, before: str) -> str:
    ratio = latency_in_words(each.latency) if each.outcome in ("slower", "faster") else ""
    return f"{ratio} {why(each, before)}".strip()


def _breach(each: UpgradedModel, report: UpgradeReport) -> Refusal:
    before, after = report.before.versions.onnxruntime, report.after.versions.onnxruntime
    place = Place(file=each.source)
    if each.outcome == "fails":
        assert each.after.refusal is not None
        refusal = each.after.refusal
        where = f"{each.model}: {refusal.where}".removesuffix(": ")
        return replace(refusal, where=where, place=place)
    code = "AOTC-I195" if each.outcome == "slower" else "AOTC-N058"
    what = (
        f"the artifact is slower with ONNX Runtime {after}"
        if each.outcome == "slower"
        else f"answers are different with ONNX Runtime {after}"
    )
    return Refusal(
        code=code,
        what=what,
        where=each.model,
        expected=f"as with ONNX Runtime {before}",
        found=_measured(each, before),
        fix=REASONS[code].fix,
        place=place,
    )
