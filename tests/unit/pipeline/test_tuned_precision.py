"""A precision that is only tried is tried as it is: no other form of it counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from answered import answered

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.probe import probe
from aotc.pipeline import attempts, tune
from aotc.pipeline.attempts import Attempt
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.tune import candidates, try_candidates
from aotc.pipeline.types import AnalyzedModel, ProvenVariants, ReferenceRun
from aotc.providers.base import SessionUse
from aotc.spec.evidence import TuningCandidate
from aotc.spec.profile import Profile, TuneSpec, VariantSpec
from aotc.spec.profile_files import load_profile

INEXACT = "the answers are off by more than the tolerance"


def profile(**fields: Any) -> Profile:
    """OpenVINO before the CPU, with a precision to try."""
    return replace(
        load_profile("edge-openvino"),
        variants=(VariantSpec(name="only", **fields),),
        tune=TuneSpec(providers=(("openvino", "cpu"),), precision=("keep", "bfloat16")),
    )


def stages(attempt: Attempt) -> ProvenVariants:
    """Every first form is inexact, and another one passes."""
    (form,) = attempt.forms
    plan = form.plan
    refusal = AotcError("AOTC-N001", f"{INEXACT}: {plan.precision}")
    lowered: Any = Mock(plan=plan, contexts=(), use=SessionUse())
    passed = form.first is not None
    return ProvenVariants(
        proven=(Mock(name=plan.precision, plan=plan),) if passed else (),
        failed=() if passed else ((lowered, refusal),),
        left_out=(),
        findings=(),
        weights=(),
    )


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(proven: dict[TuningCandidate, Any], *_: object) -> tuple[TuningCandidate, ...]:
        return tuple(replace(each, passed=True, median_seconds=1.0) for each in proven)

    monkeypatch.setattr(tune, "measure", measure)
    monkeypatch.setattr(tune, "accepts_run", lambda *_: True)
    monkeypatch.setattr(attempts, "precision_is_to_blame", lambda *_: False)


def reasons(
    asked: Profile, folder: Path, answering: Callable[[Attempt], ProvenVariants] = stages
) -> dict[str, str]:
    """Why each precision is excluded; empty where it is not."""
    host, workers = probe(gpus=False), Mock()
    context = BuildContext(profile=asked, target=host, host=host)
    state = BuildState(context=context, work=folder, workers=workers)
    reference: Any = Mock(spec=ReferenceRun)
    reference.name = "opt"
    analyzed: Any = Mock(spec=AnalyzedModel, references=(reference,), ranges={}, traits=())
    analyzed.lacks_of.return_value = {}
    table = answered(try_candidates(analyzed, state), answering)
    assert all(row.passed != bool(row.reason) for row in table)
    return {row.precision: row.reason for row in table}


def test_another_form_of_an_inexact_precision_is_no_trial_of_it(tmp_path: Path) -> None:
    found = reasons(profile(), tmp_path)
    assert found["keep"] == ""
    assert found["bfloat16"].startswith("AOTC-N001")
    assert f"{INEXACT}: bfloat16" in found["bfloat16"]


def test_what_the_profile_itself_states_may_pass_in_another_form(tmp_path: Path) -> None:
    assert reasons(profile(precision="bfloat16"), tmp_path) == {"keep": "", "bfloat16": ""}


def test_a_bug_in_a_trial_is_no_reason_against_a_candidate(tmp_path: Path) -> None:
    def broken(attempt: Attempt) -> ProvenVariants:
        raise AotcError("AOTC-R999", "KeyError: 'x'")

    with pytest.raises(AotcError) as caught:
        reasons(profile(), tmp_path, broken)
    assert caught.value.code == "AOTC-R999"


def test_a_bug_in_timing_is_no_reason_against_a_candidate() -> None:
    row = candidates(profile())[0]
    with pytest.raises(AotcError, match="KeyError"):
        tune._row(row, AotcError("AOTC-R999", "KeyError: 'x'"), 3, "")
    refused = tune._row(row, AotcError("AOTC-N003", "too far"), 3, "")
    assert refused.reason == "AOTC-N003 too far"
