"""Step 7 of the gate: applying a policy to an artifact whose signatures and digests are valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.errors import AotcError
from aotc.records import replace

if TYPE_CHECKING:
    from aotc.contract.results.policy_decision import PolicyDecision
    from aotc.verification.examination import Examination
    from aotc.verification.policy.host_trust import Trust


def check_policy(state: Examination) -> str:
    """Apply the policy; returns the detail of the step, such as `rule default`.

    Without a signed manifest nothing is decided.  Nothing is remembered yet.
    """
    if state.trust.policy is None:
        return "no policy"
    if not state.trust.rules:
        return "the keys of the policy, without its rules"
    if state.manifest is None or state.digests is None:
        return ""
    from aotc.verification.policy.evaluate import judge

    try:
        result = judge(state.trust, state.artifact_id, state.manifest.name, state.statements)
    except AotcError as error:
        state.refuse(error)
        return ""
    for refusal in result.refusals:
        state.refuse(refusal)
    state.decision = replace(result.decision, accepted=not state.refusals)
    return f"rule {result.decision.rule}" if result.decision.rule else ""


def allowed_variants(decision: PolicyDecision | None) -> tuple[str, ...] | None:
    """The names of the variants that a policy allows; None: all."""
    return decision.qualified if decision is not None else None


def note_release(trust: Trust, decision: PolicyDecision, artifact_id: str) -> None:
    """Remember the release of an accepted artifact; raises AOTC-G030, G035 and G036."""
    from aotc.verification.policy import evaluate

    evaluate.note_release(trust, decision, artifact_id)
