"""Step 7 of the gate: the policy about an artifact that is what its signers say it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aotc.errors import AotcError

if TYPE_CHECKING:
    from aotc.verification.examination import Examination


def check_policy(state: Examination) -> str:
    """Judge, and remember the release where nothing is refused; what decided, in words.

    Where the ground is missing (no manifest that somebody vouched for) nothing is decided.
    """
    if state.trust.policy is None:
        return "no policy"
    if state.manifest is None or state.digests is None:
        return ""
    from aotc.verification.policy.evaluate import judge, remember

    try:
        judged = judge(state.trust, state.artifact_id, state.manifest.name, state.statements)
    except AotcError as error:
        state.refuse(error)
        return ""
    for refusal in judged.refusals:
        state.refuse(refusal)
    if not state.refusals:
        try:
            remember(state.trust, judged.decision, state.artifact_id)
        except AotcError as error:
            state.refuse(error)
    state.decision = replace(judged.decision, accepted=not state.refusals)
    return f"rule {judged.decision.rule}" if judged.decision.rule else ""
