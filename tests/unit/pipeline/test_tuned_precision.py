"""A precision that is only tried is tried as it is: no other form of it counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.probe import probe
from aotc.pipeline import tune
from aotc.pipeline.options import BuildOptions
from aotc.pipeline.retry import Attempt, Settled
from aotc.pipeline.tune import try_candidates
from aotc.pipeline.tune_choices import candidates
from aotc.pipeline.types import AnalyzedModel, ProvenVariants, ReferenceRun, VariantPlan
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


def run_stages(
    analyzed: AnalyzedModel, plans: Sequence[VariantPlan], options: BuildOptions
) -> Settled:
    """Every first form is inexact, and another one passes."""
    (plan,) = plans
    proven: Any = Mock(name=plan.precision)
    variants = ProvenVariants(proven=(proven,), failed=(), left_out=(), findings=(), weights=())
    refusal = AotcError("AOTC-N001", f"{INEXACT}: {plan.precision}")
    return Settled(variants=variants, attempts={plan.name: Attempt(plan=plan, first=refusal)})


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(proven: dict[TuningCandidate, Any], *_: object) -> tuple[TuningCandidate, ...]:
        return tuple(replace(each, passed=True, median_seconds=1.0) for each in proven)

    monkeypatch.setattr(tune, "measure", measure)
    monkeypatch.setattr(tune, "accepts_run", lambda *_: True)


def reasons(asked: Profile, folder: Path) -> dict[str, str]:
    """Why each precision is excluded; empty where it is not."""
    host, workers = probe(gpus=False), Mock()
    options = BuildOptions(profile=asked, target=host, host=host, work=folder, workers=workers)
    reference: Any = Mock(spec=ReferenceRun)
    reference.name = "opt"
    analyzed: Any = Mock(spec=AnalyzedModel, references=(reference,), ranges={})
    table = try_candidates(analyzed, options, run_stages)
    assert all(row.passed != bool(row.reason) for row in table)
    return {row.precision: row.reason for row in table}


def test_another_form_of_an_inexact_precision_is_no_trial_of_it(tmp_path: Path) -> None:
    found = reasons(profile(), tmp_path)
    assert found["keep"] == ""
    assert found["bfloat16"].startswith("AOTC-N001")
    assert f"{INEXACT}: bfloat16" in found["bfloat16"]


def test_what_the_profile_itself_states_may_pass_in_another_form(tmp_path: Path) -> None:
    assert reasons(profile(precision="bfloat16"), tmp_path) == {"keep": "", "bfloat16": ""}


def test_a_bug_in_a_trial_is_no_reason_against_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(
        analyzed: AnalyzedModel, plans: Sequence[VariantPlan], options: BuildOptions
    ) -> Settled:
        raise AotcError("AOTC-R999", "KeyError: 'x'")

    monkeypatch.setitem(globals(), "run_stages", broken)
    with pytest.raises(AotcError) as caught:
        reasons(profile(), tmp_path)
    assert caught.value.code == "AOTC-R999"


def test_a_bug_in_timing_is_no_reason_against_a_candidate() -> None:
    row = candidates(profile())[0]
    with pytest.raises(AotcError, match="KeyError"):
        tune._row(row, AotcError("AOTC-R999", "KeyError: 'x'"), 3, "")
    refused = tune._row(row, AotcError("AOTC-N003", "too far"), 3, "")
    assert refused.reason == "AOTC-N003 too far"
