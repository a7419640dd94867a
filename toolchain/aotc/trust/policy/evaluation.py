"""Applying a policy to an artifact whose digests and signatures are valid.

1. The artifact is not revoked.
2. Exactly one rule matches its name and channel.
3. Every requirement of the rule is met, by distinct public keys.
4. Its release is not older than the policy requires, or than one that this host has accepted.
5. If it comes from a registry, the rule takes artifacts from that repository.

Keys are compared themselves, not their names, hints or signatures; the kind of an attestation is
its signed type, not the name of its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

from aotc.base.errors import AotcError, expected_and_found
from aotc.base.files.folders import ATTESTATIONS
from aotc.base.records import record, replace
from aotc.spec.attestation_kinds import Usage, older_kind
from aotc.spec.attestations import format_instant, parse_instant, target_digest
from aotc.spec.reports import (
    ArtifactRelease,
    ChannelSource,
    ConsideredAttestation,
    PolicyDecision,
    RequirementResult,
    RuleMatch,
)
from aotc.spec.target import Target
from aotc.spec.trust_anchors import TrustedKey, key_id
from aotc.spec.trust_policy import Limits, PolicySigner, Requirement, Rule, TrustPolicy
from aotc.trust.policy.host_trust import AppliedPolicy, Trust
from aotc.trust.policy.signed_attestations import SignedStatement
from aotc.trust.policy.state import (
    check_artifact,
    is_below,
    is_version,
    release_order,
    release_text,
)

# How far the clocks of signers may be ahead.
FUTURE_SLACK = timedelta(hours=1)


def judge(
    trust: Trust,
    artifact_id: str,
    name: str,
    statements: Sequence[SignedStatement],
    *,
    repository: str = "",
) -> tuple[PolicyDecision, list[AotcError]]:
    """The decision of the policy of `trust` about an artifact, and every reason for a refusal.

    `repository` is the HOST/REPOSITORY of an artifact in a registry.  Nothing is remembered.
    The digests of the artifact and the signatures of the statements must have been verified.
    """
    applied = trust.policy
    if applied is None:
        raise AotcError("AOTC-R999", "there is no policy to apply")
    refusals: list[AotcError] = []
    if artifact_id in applied.policy.revoked.artifacts:
        refusals.append(
            AotcError(
                "AOTC-G029", "the policy revokes this artifact", where=name, found=artifact_id
            )
        )
    channel: str = ""
    source: ChannelSource = ""
    rule: Rule | None = None
    try:
        channel, source = _channel(trust.channel, statements, applied)
        rule = _select_rule(applied.policy, name, channel)
    except AotcError as error:
        refusals.append(error)
    results: list[RequirementResult] = []
    subject = Subject(name, channel, trust.target, _makers(applied, statements))
    for requirement in rule.require if rule else ():
        result, refused = _check_requirement(applied, requirement, subject, statements)
        results.append(result)
        refusals += refused
    highest = applied.state.read().artifacts.get(name) if applied.state else None
    release: ArtifactRelease | None = None
    qualified: tuple[str, ...] | None = None
    if rule is not None:
        release = _find_release(applied, subject, rule, statements)
        qualified = _qualified_variants(applied, rule, subject, statements)
        refusals += _release_refusals(applied, rule, name, artifact_id, release, highest)
        refusals += _repository_refusals(rule, repository)
    decision = PolicyDecision(
        policy=applied.policy.name,
        sequence=applied.policy.sequence,
        sha256=applied.sha256,
        expires=applied.policy.expires,
        roots=applied.roots,
        artifact=name,
        channel=channel,
        channel_source=source,
        accepted=not refusals,
        rule=rule.name if rule else "",
        rules=_match_rules(applied.policy, name, channel),
        requirements=tuple(results),
        repository=repository,
        repositories=rule.repositories if rule else (),
        qualified=qualified,
        release=release,
        highest_release=highest,
    )
    return decision, refusals


def note_release(trust: Trust, decision: PolicyDecision, artifact_id: str) -> None:
    """Remember the release of an accepted artifact.

    Raises AOTC-G030 if another process has meanwhile remembered a later one, G035 and G036.
    """
    applied = trust.policy
    if applied is None or applied.state is None or not applied.remembers:
        return
    if decision.release is None:
        return
    rule = next(rule for rule in applied.policy.rules if rule.name == decision.rule)
    minimums = _minimums(applied.policy, rule, decision.artifact)
    applied.state.note_artifact(
        decision.artifact,
        decision.release,
        applied.now,
        allowed=artifact_id in applied.policy.rollback,
        has_minimum=_has_minimum(minimums, decision.release),
    )


def _minimums(policy: TrustPolicy, rule: Rule, name: str) -> tuple[str, ...]:
    """The minimum releases, versions or times, that apply to an artifact."""
    stated = (rule.min_version, policy.min_versions.get(name))
    return tuple(minimum for minimum in stated if minimum is not None)


def _has_minimum(minimums: Iterable[str], release: ArtifactRelease) -> bool:
    """Whether a minimum is of the kind of a release: a version, or a time."""
    return any(is_version(minimum) == (release.kind == "version") for minimum in minimums)


def _channel(
    requested: str | None, statements: Iterable[SignedStatement], applied: AppliedPolicy
) -> tuple[str, ChannelSource]:
    """The channel `requested`, or that of the approvals that count, and its source.

    Both are empty if there is none.
    Raises AOTC-G024 if none is requested and the approvals are for several channels.
    """
    if requested is not None:
        return requested, "argument"
    names: dict[str, None] = {}
    for statement in statements:
        if statement.usage != "approval":
            continue
        try:
            name = statement.approval().channel
        except AotcError:
            continue  # The requirement of approvals reports it.
        if statement_rejection(applied, statement, Subject("", name, None), None) is None:
            names[name] = None
    if len(names) > 1:
        raise AotcError(
            "AOTC-G024",
            "the artifact is approved for several channels",
            where=ATTESTATIONS,
            expected="--channel with one of them",
            found=", ".join(names),
        )
    return next(iter(names), ""), "approval" if names else ""


def distinct_signers(signed: Iterable[tuple[str, str]]) -> int:
    """The maximum number of signers that have both a key and a name of their own, in any order.

    `signed` are pairs of the key and the name of each signature, of which there are few: an
    artifact has at most 64 bundles.  A name may have several keys, and a key may be certified for
    several names, so this is the size of a maximum matching of keys and names (by Berge's theorem,
    a matching without an augmenting path is a maximum).
    """
    names: dict[str, set[str]] = {}
    for key, name in signed:
        names.setdefault(key, set()).add(name)
    keys: dict[str, str] = {}

    def assign(key: str, tried: set[str]) -> bool:
        """Assign a name to a key, moving other keys to other names if necessary."""
        for name in sorted(names[key] - tried):
            if name in tried:
                continue
            tried.add(name)
            if name not in keys or assign(keys[name], tried):
                keys[name] = key
                return True
        return False

    return sum(assign(key, set()) for key in names)


def _check_requirement(
    applied: AppliedPolicy,
    requirement: Requirement,
    subject: Subject,
    statements: Iterable[SignedStatement],
) -> tuple[RequirementResult, list[AotcError]]:
    considered: list[ConsideredAttestation] = []
    newer: list[str] = []
    rejected: list[AotcError] = []
    by_others: list[AotcError] = []
    counted: list[tuple[str, str]] = []
    for statement in statements:
        if statement.usage != requirement.predicate:
            known = older_kind(statement.predicate_type)
            if known is not None and known.usage == requirement.predicate:
                newer.append(statement.path)
            continue
        reason = statement_rejection(applied, statement, subject, requirement)
        signer = applied.signer_of(statement.key)
        if reason is None:
            # A person with two keys is one signer, and so is a key with two names.
            counted.append((statement.key.pem, applied.signer_name(statement.key)))
        # Statements by other signers, or for another channel, do not make the requirement fail.
        elif signer is not None and signer.id in requirement.signers and reason.code != "AOTC-G025":
            rejected.append(reason)
        elif reason.code != "AOTC-G025":
            by_others.append(reason)
        considered.append(
            ConsideredAttestation(
                path=statement.path,
                key_id=key_id(statement.key.pem),
                id=signer.id if signer else "",
                counts=reason is None,
                code=reason.code if reason else "",
                reason=reason.what + expected_and_found(reason.expected, reason.found)
                if reason
                else "",
            )
        )
    distinct = distinct_signers(counted)
    met = distinct >= requirement.threshold
    result = RequirementResult(
        predicate=requirement.predicate,
        signers=requirement.signers,
        threshold=requirement.threshold,
        distinct=distinct,
        met=met,
        considered=tuple(considered),
    )
    if met:
        return result, []
    return result, _unmet(requirement, subject, result, rejected, by_others, newer)


def _unmet(
    requirement: Requirement,
    subject: Subject,
    result: RequirementResult,
    rejected: list[AotcError],
    by_others: list[AotcError],
    newer: list[str],
) -> list[AotcError]:
    """Why a requirement is not met: rejected attestations of its signers, or missing signers."""
    if rejected and result.distinct + len(rejected) >= requirement.threshold:
        return rejected
    signers = ", ".join(requirement.signers)
    expected = f"{requirement.predicate} by {requirement.threshold} of: {signers}"
    counts = {attestation.id for attestation in result.considered if attestation.counts}
    missing = ", ".join(signer for signer in requirement.signers if signer not in counts)
    if not counts and not rejected:
        where = ATTESTATIONS
        if requirement.predicate == "approval":
            where = f"channel {subject.channel!r}"
        others = f"; {len(result.considered)} others do not count" if result.considered else ""
        others += f"; made by a newer aotc: {', '.join(newer)}" if newer else ""
        return [
            AotcError(
                "AOTC-G025",
                f"the required {requirement.predicate} is missing",
                where=where,
                expected=expected,
                found=f"none by them{others}",
            ),
            *by_others,
        ]
    return [
        AotcError(
            "AOTC-G026",
            f"too few distinct keys made the required {requirement.predicate}",
            where=ATTESTATIONS,
            expected=expected,
            found=f"{result.distinct} that count" + (f"; none by {missing}" if missing else ""),
        ),
        *rejected,
    ]


def _find_release(
    applied: AppliedPolicy,
    subject: Subject,
    rule: Rule,
    statements: Iterable[SignedStatement],
) -> ArtifactRelease:
    """The release of an artifact, by statements that the policy accepts.

    It is the latest release that as many signers as the rule requires agree on: an equal payload
    may be released again, which must not need fewer signers than the rule requires.  Without a
    version it is the time of an approval, or else of a build.
    """
    stated: dict[str, list[tuple[ArtifactRelease, str, str]]]
    stated = {"version": [], "approved": [], "built": []}
    for statement in statements:
        requirements: list[Requirement | None] = []
        requirements += [need for need in rule.require if need.predicate == statement.usage]
        if all(
            statement_rejection(applied, statement, subject, need) is not None
            for need in requirements or [None]
        ):
            continue
        signer = (statement.key.pem, applied.signer_name(statement.key))
        made = statement.made_at()
        if made is not None and made > applied.now + FUTURE_SLACK:
            # Once remembered, a future time would make every later release too old.
            made = None
        if statement.usage == "provenance":
            if is_version(statement.version()):
                release = ArtifactRelease(kind="version", value=statement.version())
                stated["version"].append((release, *signer))
            if made is not None:
                release = ArtifactRelease(kind="built", value=format_instant(made))
                stated["built"].append((release, *signer))
        elif statement.usage == "approval" and made is not None:
            release = ArtifactRelease(kind="approved", value=format_instant(made))
            stated["approved"].append((release, *signer))
    found: dict[str, ArtifactRelease] = {}
    for kind, usage in (
        ("version", "provenance"),
        ("approved", "approval"),
        ("built", "provenance"),
    ):
        thresholds = (need.threshold for need in rule.require if need.predicate == usage)
        threshold = max(thresholds, default=1)
        signed: list[tuple[str, str]] = []
        latest_first = sorted(stated[kind], key=lambda item: release_order(item[0]), reverse=True)
        for release, key, name in latest_first:
            signed.append((key, name))
            if distinct_signers(signed) >= threshold:
                found[kind] = release
                break
    nothing = ArtifactRelease(kind="built", value="")
    timed = found.get("approved") or found.get("built") or nothing
    version = found.get("version")
    return timed if version is None else replace(version, made_at=timed.value)


def _release_refusals(
    applied: AppliedPolicy,
    rule: Rule,
    name: str,
    artifact_id: str,
    release: ArtifactRelease,
    highest: ArtifactRelease | None,
) -> list[AotcError]:
    found: list[AotcError] = []
    allowed = artifact_id in applied.policy.rollback
    minimums = _minimums(applied.policy, rule, name)
    for minimum in minimums:
        if is_below(release, minimum):
            found.append(
                AotcError(
                    "AOTC-G030",
                    "the artifact is older than the policy requires",
                    where=name,
                    expected=f"{minimum} or later",
                    found=release_text(release),
                )
            )
    try:
        check_artifact(
            highest, name, release, allowed=allowed, has_minimum=_has_minimum(minimums, release)
        )
    except AotcError as error:
        found.append(error)
    return found


def _repository_refusals(rule: Rule, repository: str) -> list[AotcError]:
    """AOTC-G049 for an artifact from a repository that the rule does not name."""
    patterns = rule.repositories
    if not repository or not patterns or any(_is_like(repository, each) for each in patterns):
        return []
    return [
        AotcError(
            "AOTC-G049",
            "the rule does not take artifacts from this repository",
            where=f"rule {rule.name}",
            expected=", ".join(patterns),
            found=repository,
        )
    ]


def _is_like(repository: str, pattern: str) -> bool:
    """Whether a repository matches; what stands for a host stands for no part of a repository."""
    host, _, name = repository.partition("/")
    hosts, _, names = pattern.partition("/")
    return fnmatchcase(host, hosts) and fnmatchcase(name, names)


# Whether an attestation counts for a policy: its key, its age and its content.


@record(kw_only=False)
class Subject:
    """The name, channel and target host (None: this one) for which a policy is applied.

    `makers` are the keys (PEM), and the names of them in the policy, that signed the artifact.
    """

    name: str
    channel: str
    target: Target | None
    makers: frozenset[str] = frozenset()


def _makers(applied: AppliedPolicy, statements: Iterable[SignedStatement]) -> frozenset[str]:
    """Who signed the artifact or its provenance, whether the policy allows it or not."""
    keys = [each.key for each in statements if each.usage in ("oms", "provenance")]
    return frozenset((*(key.pem for key in keys), *(applied.signer_name(key) for key in keys)))


def statement_rejection(
    applied: AppliedPolicy,
    statement: SignedStatement,
    subject: Subject,
    requirement: Requirement | None,
) -> AotcError | None:
    """Why a statement does not count for a requirement; None if it counts.

    Without a requirement, only its key and its own content are checked.
    """
    if statement.usage is None:
        what = "the policy does not know this kind of attestation"
        return _refusal("AOTC-G025", statement, what)
    reason = key_rejection(applied, statement.key, statement.usage)
    if reason is not None:
        reason.where = statement.path
        return reason
    signer = applied.signer_of(statement.key)
    if requirement is not None and (signer is None or signer.id not in requirement.signers):
        return _refusal(
            "AOTC-G026",
            statement,
            "the rule does not name this key",
            ", ".join(requirement.signers),
            signer.id if signer else key_id(statement.key.pem),
        )
    try:
        if statement.usage == "approval":
            reason = _approval_rejection(applied, statement, subject, requirement)
        elif statement.usage == "qualification":
            here = requirement is not None and requirement.target != "any"
            reason = _qualification_rejection(statement, subject, here=here)
        elif statement.usage == "reproduction":
            reason = _reproduction_rejection(applied, statement, subject, requirement)
    except AotcError as error:
        return error
    if reason is not None:
        return reason
    allowed = requirement.builders if requirement is not None else ()
    if allowed and statement.builder() not in allowed:
        return _refusal(
            "AOTC-G031",
            statement,
            "the rule does not list the builder",
            ", ".join(allowed),
            statement.builder() or "no builder",
        )
    return _age_rejection(applied, statement, requirement)


def key_rejection(applied: AppliedPolicy, key: TrustedKey, usage: Usage) -> AotcError | None:
    """Why a key's signature of a kind does not count now; None if it counts.

    The reason is AOTC-G002 (unknown key), G027 (not allowed) or G028 (revoked, or not valid now).
    """
    signer = applied.signer_of(key)
    identity = key_id(key.pem)
    if signer is None:
        return AotcError("AOTC-G002", "the policy does not know the key", found=identity)
    if usage not in signer.usage:
        return AotcError(
            "AOTC-G027",
            "the policy does not allow the key to sign this kind of attestation",
            expected=f"{signer.id}: {', '.join(signer.usage)}",
            found=usage,
        )
    reason = _revocation(applied.policy, signer, (identity, *key.issuers))
    if reason:
        return AotcError("AOTC-G028", "the key is revoked", expected=signer.id, found=reason)
    now = applied.now
    if signer.valid_from is not None and now < parse_instant(signer.valid_from):
        expected = f"from {signer.valid_from}"
    elif signer.valid_until is not None and now >= parse_instant(signer.valid_until):
        expected = f"before {signer.valid_until}"
    else:
        return None
    return AotcError(
        "AOTC-G028",
        "the key is outside its validity period",
        expected=f"{signer.id}: {expected}",
        found=format_instant(now),
    )


def _revocation(policy: TrustPolicy, signer: PolicySigner, keys: tuple[str, ...]) -> str:
    """Why the signer, the key or a CA on its path is revoked; empty if none is."""
    if signer.revoked is not None:
        return signer.revoked
    for id_ in (signer.id, *keys):
        if id_ in policy.revoked.keys:
            return f"{id_} is listed under revoked.keys"
    return ""


def _approval_rejection(
    applied: AppliedPolicy,
    statement: SignedStatement,
    subject: Subject,
    requirement: Requirement | None,
) -> AotcError | None:
    approval = statement.approval()
    wanted = (
        requirement.channel
        if requirement is not None and requirement.channel is not None
        else subject.channel
    )
    if approval.channel != wanted:
        return _refusal(
            "AOTC-G025",
            statement,
            "the approval is for another channel",
            f"channel {wanted!r}",
            f"channel {approval.channel!r}",
        )
    if applied.now >= parse_instant(approval.expires):
        return _refusal(
            "AOTC-G032",
            statement,
            "the approval has expired",
            f"before {approval.expires}",
            format_instant(applied.now),
        )
    return None


def _qualification_rejection(
    statement: SignedStatement, subject: Subject, *, here: bool
) -> AotcError | None:
    """Why a qualification does not count, with `here` for a host like that of `subject`."""
    found = statement.qualification()
    # The digest identifies the host, so it must be that of the target.
    if found.target_sha256 != target_digest(found.target) or found.verdict == "incompatible":
        what = "the qualification failed, or contradicts itself"
        return _refusal("AOTC-G033", statement, what)
    if not here:
        return None
    wanted = target_digest(_host(subject, found.target))
    if found.target_sha256 != wanted:
        return _refusal(
            "AOTC-G033",
            statement,
            "the qualification is for another kind of host",
            f"target {wanted}",
            f"target {found.target_sha256}",
        )
    return None


def _reproduction_rejection(
    applied: AppliedPolicy,
    statement: SignedStatement,
    subject: Subject,
    requirement: Requirement | None,
) -> AotcError | None:
    """Why a reproduction does not count: it is the signer's own, or came out otherwise."""
    if not subject.makers.isdisjoint((statement.key.pem, applied.signer_name(statement.key))):
        return _refusal(
            "AOTC-G051",
            statement,
            "who signed the artifact signed its reproduction, too",
            "another signer",
            applied.signer_name(statement.key),
        )
    from aotc.spec.reproduction import OUTCOMES

    found = statement.reproduction()
    same = found.rebuilt_id == found.artifact.id
    if same != (found.outcome == "identical"):
        return _refusal("AOTC-G050", statement, "the reproduction contradicts itself")
    least = requirement.outcome if requirement is not None else None
    wanted = least or "identical"
    if OUTCOMES.index(found.outcome) > OUTCOMES.index(wanted):
        return _refusal(
            "AOTC-G050", statement, "the reproduction does not suffice", wanted, found.outcome
        )
    return None


def _host(subject: Subject, like: Target) -> Target:
    """The target host; for this host, its GPUs are probed only if `like` has some."""
    if subject.target is not None:
        return subject.target
    from aotc.host.probe import probe

    return probe(gpus=bool(like.gpus or like.nvidia_driver or like.cuda_major is not None))


def _age_rejection(
    applied: AppliedPolicy, statement: SignedStatement, requirement: Requirement | None
) -> AotcError | None:
    if requirement is None or requirement.max_age is None:
        return None
    made = statement.made_at()
    oldest = applied.now - timedelta(days=requirement.max_age)
    if made is not None and oldest <= made <= applied.now + FUTURE_SLACK:
        return None
    return _refusal(
        "AOTC-G032",
        statement,
        "the attestation is too old, or does not say when it was made",
        f"{format_instant(oldest)} or later, and not in the future",
        format_instant(made) if made is not None else "no time",
    )


def _refusal(
    code: str, statement: SignedStatement, what: str, expected: str = "", found: str = ""
) -> AotcError:
    return AotcError(code, what, where=statement.path, expected=expected, found=found)


def _qualified_variants(
    applied: AppliedPolicy, rule: Rule, subject: Subject, statements: Iterable[SignedStatement]
) -> tuple[str, ...] | None:
    """The sorted names of the variants with enough qualifications for the target.

    None if the rule does not require such a qualification.
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


def accepted_variants(
    trust: Trust, name: str, statements: Iterable[SignedStatement]
) -> frozenset[str]:
    """The variants that a trusted qualification accepted on a host like the target of `trust`.

    Of a policy, the key must be one that may sign qualifications; no rule need ask for them.
    """
    subject, found = Subject(name, trust.channel or "", trust.target), set[str]()
    for statement in statements:
        if statement.usage != "qualification":
            continue
        try:
            refused = _qualification_rejection(statement, subject, here=True)
        except AotcError as error:
            refused = error
        if refused is None and trust.policy is not None:
            refused = statement_rejection(trust.policy, statement, subject, None)
        if refused is None:
            found.update(statement.qualification().variants)
    return frozenset(found)


def _match_rules(policy: TrustPolicy, name: str, channel: str) -> tuple[RuleMatch, ...]:
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


def _select_rule(policy: TrustPolicy, name: str, channel: str) -> Rule:
    """The rule that matches; raises AOTC-G023 if none does, and G024 if several do."""
    rule_matches = _match_rules(policy, name, channel)
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


def exceeded_limits(limits: Limits, payload: Mapping[str, int], bundles: int) -> list[AotcError]:
    """AOTC-G034 for each limit that is exceeded, before anything is hashed.

    `payload` maps paths to sizes in bytes, and `bundles` is the number of bundles.
    """
    found = []
    for name, maximum, count in (
        ("payload_bytes", limits.payload_bytes, sum(payload.values())),
        ("files", limits.files, len(payload)),
        ("bundles", limits.bundles, bundles),
    ):
        if maximum is not None and count > maximum:
            found.append(
                AotcError(
                    "AOTC-G034",
                    "the artifact exceeds a limit of the policy",
                    where=f"limits.{name}",
                    expected=f"at most {maximum}",
                    found=str(count),
                )
            )
    return found
