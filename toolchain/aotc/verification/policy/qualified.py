"""The variants that a rule allows on a target: those with enough qualifications for it."""

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
    """The sorted names of these variants; None if the rule does not require such a qualification.

    A qualification covers only the variants that were loaded for it.
    """
    requirements = [
        requirement
        for requirement in rule.require
        if requirement.predicate == "qualification" and requirement.target != "any"
    ]
    if not requirements:
        return None
    qualifications = [item for item in statements if item.usage == "qualification"]
    allowed: set[str] | None = None
    for requirement in requirements:
        signed: dict[str, list[tuple[str, str]]] = {}
        for statement in qualifications:
            if statement_rejection(applied, statement, subject, requirement) is None:
                signer = (statement.key.pem, applied.signer_name(statement.key))
                for name in statement.qualification().variants:
                    signed.setdefault(name, []).append(signer)
        found = {
            name
            for name, signers in signed.items()
            if distinct_signers(signers) >= requirement.threshold
        }
        allowed = found if allowed is None else allowed & found
    return tuple(sorted(allowed or ()))
