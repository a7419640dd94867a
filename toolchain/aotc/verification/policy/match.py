"""Which rule of a policy is for an artifact: exactly one must be."""

from __future__ import annotations

from fnmatch import fnmatchcase

from aotc.contract.results.policy_decision import RuleMatch
from aotc.contract.trust.trust_policy import Rule, TrustPolicy
from aotc.errors import AotcError


def match_rules(policy: TrustPolicy, name: str, channel: str) -> tuple[RuleMatch, ...]:
    """Every rule, and whether it is for this name and channel."""
    return tuple(
        RuleMatch(
            rule=rule.name,
            name=rule.match.name,
            channel=rule.match.channel,
            matches=fnmatchcase(name, rule.match.name) and fnmatchcase(channel, rule.match.channel),
        )
        for rule in policy.rules
    )


def select_rule(
    policy: TrustPolicy, looked_at: tuple[RuleMatch, ...], name: str, channel: str
) -> Rule:
    """The one rule that matches; raises G023 for none and G024 for several."""
    chosen = [each.rule for each in looked_at if each.matches]
    found = f"name {name!r}, channel {channel!r}"
    if not chosen:
        raise AotcError(
            "AOTC-G023",
            "no rule of the policy matches the artifact, so it is denied",
            where=f"policy {policy.name}",
            expected="; ".join(f"{each.name} in {each.channel}" for each in looked_at),
            found=found,
        )
    if len(chosen) > 1:
        raise AotcError(
            "AOTC-G024",
            "several rules of the policy match the artifact",
            where=f"policy {policy.name}",
            expected="one rule",
            found=f"{', '.join(chosen)} for {found}",
        )
    return next(rule for rule in policy.rules if rule.name == chosen[0])
