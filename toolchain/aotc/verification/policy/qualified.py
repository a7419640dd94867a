"""Which variants a rule lets load on a target: those that enough signers saw accepted there."""

from __future__ import annotations

from collections.abc import Iterable

from aotc.contract.trust.trust_policy import Rule
from aotc.verification.policy.distinct_signers import distinct_signers
from aotc.verification.policy.fitness import Subject, statement_rejection
from aotc.verification.policy.host_trust import AppliedPolicy
from aotc.verification.policy.signed_attestations import SignedStatement


def qualified_variants(
    applied: AppliedPolicy, rule: Rule, subject: Subject, statements: Iterable[SignedStatement]
) -> tuple[str, ...] | None:
    """Names, sorted; None where the rule asks for no qualification for the target.

    A qualification says nothing of variants that were not loaded for it.
    """
    needs = [each for each in rule.require if each.predicate == "qualification"]
    asked = [each for each in needs if each.target != "any"]
    if not asked:
        return None
    listed = [each for each in statements if each.usage == "qualification"]
    allowed: set[str] | None = None
    for need in asked:
        signed: dict[str, list[tuple[str, str]]] = {}
        for each in listed:
            if statement_rejection(applied, each, subject, need) is None:
                for name in each.qualification().variants:
                    who = (each.key.pem, applied.signer_name(each.key))
                    signed.setdefault(name, []).append(who)
        found = {name for name, who in signed.items() if distinct_signers(who) >= need.threshold}
        allowed = found if allowed is None else allowed & found
    return tuple(sorted(allowed or ()))
