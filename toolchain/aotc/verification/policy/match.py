"""The rule of a policy for an artifact: exactly one must match."""

from __future__ import annotations

from fnmatch import fnmatchcase

from aotc.contract.results.policy_decision import RuleMatch
from aotc.contract.trust.trust_policy import Rule, TrustPolicy
from aotc.errors import AotcError


def match_rules(policy: TrustPolicy, name: str, channel: str) -> tuple[RuleMatch, ...]:
    """For every rule of the policy, whether it matches this name and channel."""
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
    policy: TrustPolicy, rule_matches: tuple[RuleMatch, ...], name: str, channel: str
) -> Rule:
    """The rule that matches; raises AOTC-G023 if none does, and G024 if several do."""
    chosen = [match.rule for match in rule_matches if match.matches]
    found = f"name {name!r}, channel {channel!r}"
    if not chosen:
        raise AotcError(
            "AOTC-G023",
            "no rule of the policy matches the artifact, so it is refused",
            where=f"policy {policy.name}",
            expected="; ".join(f"{match.name} in {match.channel}" for match in rule_matches),
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
