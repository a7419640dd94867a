"""Equal calls of a variant: whether they have the same bytes, and which setting makes them so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.results.build_evidence import DifferingOutput, Evidence, Repeats
from aotc.engine.named_backends import backend_of
from aotc.engine.repeated_answers import RepeatedAnswers
from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel

# A call that takes longer is not repeated if a fixture has quicker ones.
_LONG_SECONDS: Final = 1.0
# To find the setting: a rare difference must not be taken for none.
_MIN_TRIALS: Final = 10
_MAX_NAMED: Final = 3

Call = Callable[[], list[Data]]


def repeat_request(lowered: LoweredModel, options: BuildOptions) -> Json:
    """What the worker needs to repeat calls of a variant, as JSON; None: it shall not."""
    runs = options.profile.repeatability.runs
    if not runs:
        return None
    settings: dict[str, SessionSpec] = {}
    for name in lowered.plan.providers:
        settings.update(backend_of(name, options.profile.plugins).steadier(lowered.session))
    return {
        "runs": runs,
        # The CPU's kernels take no choice when a session is created.
        "reloads": list(lowered.providers) != [CPU],
        "settings": {setting: encode(session) for setting, session in settings.items()},
    }


def repeated_fixture(run_seconds: Mapping[str, float]) -> str:
    """The fixture that is repeated: the slowest that is quick enough, else the quickest."""
    quick = {name: took for name, took in run_seconds.items() if took <= _LONG_SECONDS}
    if quick:
        return max(quick, key=lambda name: quick[name])
    return min(run_seconds, key=lambda name: run_seconds[name])


def repeat_calls(
    request: Json, fixture: str, names: Sequence[str], call: Call, reopened: Callable[[Json], Call]
) -> Repeats:
    """In the worker: repeat one call, and find the setting with which its bytes are equal.

    `call` runs the variant; `reopened` runs it in a new session, with other settings if some are
    given, and ends the earlier session.  A setting with which the variant does not run makes
    nothing equal; raises AOTC-N001 and R008 where the variant itself does not run.
    """
    runs: int = request["runs"]
    answers = RepeatedAnswers(names, call())
    answers.repeat(call, runs)
    if request["reloads"]:
        answers.repeat(reopened(None), 1)
    setting, tried = "", []
    for name, session in request["settings"].items() if answers.differing_runs else ():
        tried.append(name)
        if _agrees(names, partial(reopened, session), max(runs, _MIN_TRIALS)):
            setting = name
            break
    return Repeats(
        fixture=fixture,
        runs=answers.runs,
        reloaded=request["reloads"],
        differing_runs=answers.differing_runs,
        outputs=answers.outputs,
        setting=setting,
        tried=tuple(tried),
    )


def _agrees(names: Sequence[str], opened: Callable[[], Call], runs: int) -> bool:
    try:
        call = opened()
        answers = RepeatedAnswers(names, call())
        answers.repeat(call, runs)
    except AotcError:
        # The variant is proven as it is: that another setting does not run says nothing of it.
        return False
    return not answers.differing_runs


def decoded_repeats(value: Json) -> Repeats | None:
    """What the worker answered."""
    return decode(Repeats, value) if value is not None else None


def repeat_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-N040 for each variant whose equal calls had different bytes."""
    return tuple(
        Finding(code="AOTC-N040", what=_in_words(repeats)[:500], where=f"variant {variant.name}")
        for variant in evidence.variants
        if (repeats := variant.repeats) is not None and repeats.differing_runs
    )


def _in_words(repeats: Repeats) -> str:
    outputs = ", ".join(map(_output_in_words, repeats.outputs[:_MAX_NAMED]))
    more = ", ..." if len(repeats.outputs) > _MAX_NAMED else ""
    if repeats.setting:
        remedy = f"with '{repeats.setting}' in the profile, all calls had the same bytes"
    elif repeats.tried:
        remedy = f"no setting that was tried makes them equal: {', '.join(repeats.tried)}"
    else:
        remedy = "no setting is known that could make them equal"
    return (
        f"{repeats.differing_runs} of {repeats.runs} equal calls had other bytes than the first: "
        f"{outputs}{more}; {remedy}"
    )


def _output_in_words(output: DifferingOutput) -> str:
    by = f" by up to {output.max_abs:.2g}" if output.max_abs is not None else ""
    return f"{output.values} of {output.of} values of {output.output!r}{by}"
