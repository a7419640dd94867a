"""Making, changing, checking and signing trust policies and root keys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.locks import editing
from aotc.base.files.replacing import check_output
from aotc.base.files.writing import write_atomically, write_new
from aotc.base.records import field, record, replace
from aotc.spec.attestation_kinds import KINDS, Usage
from aotc.spec.attestations import format_instant, parse_date
from aotc.spec.codec import ParseError, decode
from aotc.spec.command_reports import TrustReport
from aotc.spec.payload import Finding
from aotc.spec.trust_policy import (
    MAX_DAYS,
    POLICY_PREDICATE,
    Match,
    PolicyIdentity,
    PolicyKey,
    Requirement,
    Revoked,
    RootKeys,
    Rule,
    Signer,
    TrustPolicy,
)
from aotc.spec.yaml import yaml_text
from aotc.trust import statements
from aotc.trust.key_loading import load_one_public
from aotc.trust.policy.document import PolicyFile, parse_policy, read_bytes, read_policy
from aotc.trust.policy.roots import (
    POLICY_NAME,
    bundle_path,
    host_roots,
    require_named_policy,
    root_signers,
)
from aotc.trust.signers import findings_of, load_signer

_ID_DIGITS: Final = 64

T = TypeVar("T", PolicyKey, Rule)
S = TypeVar("S", PolicyKey, PolicyIdentity)

# What a builder's key signs.
BUILDER_USAGE: Final[tuple[Usage, ...]] = tuple(
    kind.usage for kind in KINDS.values() if kind.by_build
)

# The option for each field of a policy.
_OPTIONS: Final = (
    ("name", "--name"),
    ("replaces", "--name"),
    ("expires", "--expires"),
    ("keys", "--key or --signer"),
    ("authorities", "--authority"),
    ("rules", "--rule"),
    ("revoked.artifacts", "--revoke-artifact"),
    ("revoked.keys", "--revoke-key"),
    ("rollback", "--allow-rollback"),
)

# Options that belong to --signer or --authority, and to --rule.
_KEY_OPTIONS = ("id", "usage", "valid_from", "valid_until")
_RULE_OPTIONS = ("match", "match_channel", "require", "min_version", "repository")


@record
class Change:
    """Additions to a policy, which raise its sequence; a key or rule replaces its namesake.

    `reasons` maps ids of the policy's keys, authorities or identities to the reason why they are
    revoked.  `name` is a new name for the policy, which then states that it replaces the old name.
    """

    keys: tuple[PolicyKey, ...] = ()
    authorities: tuple[PolicyKey, ...] = ()
    rules: tuple[Rule, ...] = ()
    revoked: Revoked = field(default_factory=Revoked)
    reasons: Mapping[str, str] = field(default_factory=dict)
    rollback: tuple[str, ...] = ()
    expires: str | None = None
    name: str | None = None


def new_policy(
    name: str, signers: Iterable[tuple[str, str]], days: int, expires: str | None = None
) -> TrustPolicy:
    """A policy that accepts every artifact signed by one of `signers`, valid for `days` days.

    `signers` are pairs of an id and a public key (PEM).  With `expires` it is valid until then.
    Raises AOTC-I027 if `days` is less than 1 or more than `MAX_DAYS`, or `expires` is no date.
    """
    if not 0 < days <= MAX_DAYS:
        raise AotcError(
            "AOTC-I027",
            "the validity period of a policy is out of range",
            where="--days",
            expected=f"1 to {MAX_DAYS} days",
            found=f"{days}"[:40],
        )
    listed = tuple(signers)
    requirement = Requirement(predicate="oms", signers=tuple(name for name, _ in listed))
    return TrustPolicy(
        schema="aotc.trust/1",
        name=name,
        sequence=1,
        expires=_parse_time({"expires": expires}, "expires")
        or format_instant(datetime.now(UTC) + timedelta(days=days)),
        keys=tuple(PolicyKey(id=name, pem=pem, usage=BUILDER_USAGE) for name, pem in listed),
        rules=(Rule(name="default", match=Match(name="*"), require=(requirement,)),),
    )


def apply_change(policy: TrustPolicy, change: Change) -> TrustPolicy:
    """The policy with a change, and the next sequence.

    Raises AOTC-I027 if a reason is for an id that the policy does not have, or if an artifact is
    not named by its full id.
    """
    _require_full_ids("--revoke-artifact", change.revoked.artifacts)
    _require_full_ids("--allow-rollback", change.rollback)
    keys = _merge_by(policy.keys, change.keys, "id")
    authorities = _merge_by(policy.authorities, change.authorities, "id")
    known = {key.id for key in (*keys, *authorities)}
    known |= {identity.id for identity in policy.identities}
    for unknown in change.reasons.keys() - known:
        raise AotcError(
            "AOTC-I027",
            "a reason is given for an id that this policy does not have",
            where="--revoke-key",
            expected=", ".join(sorted(known)),
            found=unknown,
        )
    name = change.name or policy.name
    former = _union(policy.replaces, () if name == policy.name else (policy.name,))
    return replace(
        policy,
        name=name,
        replaces=tuple(old for old in former if old != name),
        sequence=policy.sequence + 1,
        expires=change.expires or policy.expires,
        keys=_with_reasons(keys, change.reasons),
        authorities=_with_reasons(authorities, change.reasons),
        identities=_with_reasons(policy.identities, change.reasons),
        rules=_merge_by(policy.rules, change.rules, "name"),
        revoked=Revoked(
            artifacts=_union(policy.revoked.artifacts, change.revoked.artifacts),
            keys=_union(policy.revoked.keys, change.revoked.keys),
        ),
        rollback=_union(policy.rollback, change.rollback),
    )


def _merge_by(old: tuple[T, ...], new: tuple[T, ...], field_name: str) -> tuple[T, ...]:
    merged = {getattr(item, field_name): item for item in old}
    merged.update({getattr(item, field_name): item for item in new})
    return tuple(merged.values())


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))


def _with_reasons(signers: tuple[S, ...], reasons: Mapping[str, str]) -> tuple[S, ...]:
    return tuple(
        replace(signer, revoked=reasons.get(signer.id, signer.revoked)) for signer in signers
    )


def _require_full_ids(option: str, ids: Iterable[str]) -> None:
    for id_ in ids:
        if len(id_) != _ID_DIGITS or not set(id_) <= set("0123456789abcdef"):
            raise AotcError(
                "AOTC-I027",
                "an artifact must be named by its full id",
                where=option,
                expected=f"the {_ID_DIGITS} digits of the sha256 of its aotc.json",
                found=id_,
                fix="'aotc verify' and 'aotc inspect' show the id of an artifact.",
            )


def change_policy(path: Path, change: Change) -> PolicyFile:
    """Apply a change to the policy of a file, and write it; a lock excludes other changes by aotc.

    Raises AOTC-I001 and G019 if the file is not a valid policy, I027 if the change would make it
    invalid, I018 and I026 if it cannot be written, and G041 if another process holds the lock or
    changes the file.
    """
    # Read first, so that a file that is not a policy gets no lock file.
    read_policy(path)
    with editing(path):
        file = read_policy(path)
        return _write_checked(path, apply_change(file.policy, change), before=file.data)


def write_policy(path: Path, policy: TrustPolicy, *, new: bool) -> PolicyFile:
    """Write a policy after checking that it is valid.

    With `new`, the file must not exist.  Raises AOTC-I027 if the policy is not valid, I017 if the
    file exists, I018 and I026 if it cannot be written, and G041 if another process holds the lock.
    """
    with editing(path):
        return _write_checked(path, policy, new=new)


def _write_checked(
    path: Path, policy: TrustPolicy, *, new: bool = False, before: bytes | None = None
) -> PolicyFile:
    try:
        file = parse_policy(yaml_text(policy, full=False).encode("utf-8"), path)
    except AotcError as error:
        raise _as_usage_error(error, path) from None
    if before is not None and read_bytes(path, "trust policy") != before:
        # Editors do not use the lock.
        raise AotcError(
            "AOTC-G041",
            "another program has changed the policy file since it was read",
            where=str(path),
            fix="Nothing was written. Look at the file, and try again.",
        )
    _replace(path, file.data, new=new)
    return file


def write_roots(
    path: Path, keys: Sequence[str], threshold: int, *, policy: str, new: bool = True
) -> None:
    """Write the file of a host's root keys (PEM), their threshold, and the name of its policy.

    With `new`, the file must not exist.  Raises AOTC-I027 if the arguments are not valid, I017 if
    the file exists, I018 and I026 if it cannot be written, and G041 if another process holds the
    lock.
    """
    stated = {
        "schema": "aotc.root/1", "policy": policy, "threshold": threshold, "keys": list(keys),
    }  # fmt: skip
    try:
        roots = decode(RootKeys, stated)
    except ParseError as error:
        problem = error.problems[0]
        raise AotcError(
            "AOTC-I027",
            "these root keys cannot be written",
            where=f"--{problem.path}",
            found=problem.what,
            fix="See 'aotc trust root --help'.",
        ) from None
    write_file(path, yaml_text(roots, full=False).encode("utf-8"), new=new)


def write_file(path: Path, data: bytes, *, new: bool) -> None:
    """Write a file atomically; with `new` it must not exist.

    Raises AOTC-I017 if it is `new` and exists, I018 and I026 if it cannot be written, and G041 if
    another process holds the lock.
    """
    with editing(path):
        _replace(path, data, new=new)


def _replace(path: Path, data: bytes, *, new: bool) -> None:
    # If the path is a link to the policy, the link is kept.
    place = path if new else Path(os.path.realpath(path))
    if not new:
        check_output(place, force=True)
    try:
        if new:
            write_new(place, data, mode=0o644, durable=True)
        else:
            write_atomically(place, data, mode=0o644, durable=True)
    except FileExistsError:
        raise AotcError(
            "AOTC-I017",
            "the file already exists",
            where=str(path),
            fix="Choose another -o, or give --force.",
        ) from None
    except OSError as error:
        raise cannot_write(error, "cannot write the file", str(path)) from None


def _as_usage_error(error: AotcError, path: Path) -> AotcError:
    """An error of a policy as an error of the options that the policy was made from."""
    place = error.where.removeprefix(f"{path}: ")
    option = next((name for start, name in _OPTIONS if place.startswith(start)), "")
    return AotcError(
        "AOTC-I027",
        "the policy would not be valid",
        where=option or place,
        found=error.found if place.isalpha() else f"{place}: {error.found}",
        fix="Correct the option that is named; nothing was written.",
        also=tuple(_as_usage_error(other, path) for other in error.also),
    )


def policy_report(
    file: PolicyFile,
    *,
    signed_by: Sequence[str] = (),
    counting: Sequence[str] | None = None,
    threshold: int | None = None,
    findings: Sequence[Finding] = (),
    bundle: str = "",
    checked: bool = False,
) -> TrustReport:
    """The report about the policy of a file: its rules, its valid keys, and its revoked keys.

    The keyword arguments become the fields of the report with the same names.
    """
    policy = file.policy
    revoked = dict.fromkeys(policy.revoked.keys, "")
    revoked |= {signer.id: signer.revoked for signer in policy.signers() if signer.revoked}
    return TrustReport(
        file=str(file.path),
        name=policy.name,
        sequence=policy.sequence,
        sha256=file.sha256,
        expires=policy.expires,
        rules=tuple(rule.name for rule in policy.rules),
        keys=tuple(signer.id for signer in policy.signers() if signer.id not in revoked),
        revoked_keys=revoked,
        revoked_artifacts=policy.revoked.artifacts,
        signed_by=tuple(signed_by),
        counting=None if counting is None else tuple(counting),
        threshold=threshold,
        findings=tuple(findings),
        bundle=bundle,
        checked=checked,
    )


def sign_policy_file(
    policy: Path, key: str | Path | Signer, *, allow_expired: bool = False
) -> TrustReport:
    """Sign the policy of a file with a root key, and write the key's bundle next to it.

    The report has the findings of the key, and others if this host would not count it, or would
    not take the policy.
    Raises AOTC-I001 and G019 for the policy and the host's root keys, what `load_signer` does, I018
    and I026 if the bundle cannot be written, and G041 if another process holds the lock.
    """
    roots = host_roots()
    file = read_policy(policy)
    signer = load_signer(key, allow_expired=allow_expired)
    place = bundle_path(policy, signer.key_id)
    write_file(place, sign_policy(file, signer), new=False)
    findings = list(findings_of(signer))
    if roots is None:
        return policy_report(
            file, signed_by=(signer.key_id,), bundle=str(place), findings=tuple(findings)
        )
    counting = root_signers(file, roots.record)
    if signer.key_id not in counting:
        what = f"the key is not a root key of this host ({roots.path}), so it does not count here"
        findings.append(Finding(code="AOTC-G021", what=what, where=str(place)))
    try:
        require_named_policy(file, roots)
    except AotcError as error:
        names = f"{roots.path} names {roots.record.policy}"
        what = f"this host does not take the policy: {error.what}; {names}"
        findings.append(Finding(code=error.code, what=what, where=str(policy)))
    return policy_report(
        file,
        signed_by=(signer.key_id,),
        bundle=str(place),
        counting=counting,
        threshold=roots.record.threshold,
        findings=tuple(findings),
    )


def sign_policy(file: PolicyFile, key: Signer) -> bytes:
    """The bundle with which a root key signs a policy; equal arguments give equal bytes."""
    return statements.sign(
        POLICY_PREDICATE,
        {"name": file.policy.name, "sequence": file.policy.sequence},
        {POLICY_NAME: file.sha256},
        key,
    )


def change_from_options(**given: Any) -> Change:
    """The change that the options of `aotc trust add` ask for, given by their names.

    Raises AOTC-I001 and I023 if a key cannot be read, and I027 if options are wrong or missing.
    """
    key, authority = given["key"], given["authority"]
    if key is None and authority is None:
        _refuse_without(given, _KEY_OPTIONS, "--signer or --authority")
    elif given["id"] is None:
        option, form = ("--authority", "ID=CERT") if key is None else ("--signer", "ID=PUB")
        raise _usage_error(f"{option} takes {form}: a key has a name in the policy", option)
    if given["rule"] is None:
        _refuse_without(given, _RULE_OPTIONS, "--rule")
    pairs = [text.partition("=") for text in given["revoke_key"]]
    change = Change(
        keys=(_policy_key(given, load_one_public(key)),) if key else (),
        authorities=(_policy_key(given, _read_text(authority)),) if authority else (),
        rules=(_rule(given),) if given["rule"] is not None else (),
        revoked=Revoked(
            artifacts=tuple(given["revoke_artifact"]), keys=tuple(name for name, _, _ in pairs)
        ),
        reasons={name: reason for name, _, reason in pairs if reason},
        rollback=tuple(given["allow_rollback"]),
        expires=_parse_time(given, "expires"),
        name=given["name"],
    )
    if change == Change():
        raise _usage_error("there is nothing to add")
    return change


def parse_requirement(text: str) -> Requirement:
    """The requirement that `PREDICATE:ID[,ID][:THRESHOLD]` states; raises AOTC-I027."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise _unreadable(text, "PREDICATE:ID[,ID][:THRESHOLD]")
    stated: dict[str, object] = {"predicate": parts[0], "signers": parts[1].split(",")}
    if len(parts) == 3:
        if not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 6):
            raise _unreadable(text, "a threshold that is an integer")
        stated["threshold"] = int(parts[2])
    try:
        return decode(Requirement, stated)
    except ParseError as error:
        raise _unreadable(text, str(error.problems[0])) from None


def _rule(given: dict[str, Any]) -> Rule:
    if not given["require"]:
        raise _usage_error("--rule requires --require: attestations and their signers", "--require")
    patterns = {"name": given["match"], "channel": given["match_channel"]}
    match = Match(**{name: "*" if text is None else text for name, text in patterns.items()})
    require = tuple(parse_requirement(text) for text in given["require"])
    return Rule(
        name=given["rule"],
        match=match,
        require=require,
        min_version=given["min_version"],
        repositories=tuple(given["repository"]),
    )


def _policy_key(given: dict[str, Any], pem: str) -> PolicyKey:
    if given["usage"] is None:
        raise _usage_error("a key requires --usage: what it may sign, such as approval", "--usage")
    usage = [name for name in given["usage"].split(",") if name]
    stated: dict[str, object] = {"id": given["id"], "pem": pem, "usage": usage}
    times = {name: _parse_time(given, name) for name in ("valid_from", "valid_until")}
    stated.update({name: time for name, time in times.items() if time is not None})
    try:
        return decode(PolicyKey, stated)
    except ParseError as error:
        problem = error.problems[0]
        option = f"--{problem.path.partition('[')[0].replace('_', '-')}"
        raise _usage_error(f"the key cannot be added: {problem.what}", option) from None


def _parse_time(given: dict[str, Any], name: str) -> str | None:
    text = given[name]
    try:
        return None if text is None else format_instant(parse_date(text))
    except ValueError:
        raise AotcError(
            "AOTC-I027",
            "this is not a valid date",
            where=_option(name),
            expected="a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z",
            found=text,
            fix="Give a date.",
        ) from None


def _unreadable(text: str, expected: str) -> AotcError:
    return AotcError(
        "AOTC-I027",
        "the requirement is not valid",
        where="--require",
        expected=expected,
        found=text,
        fix="For example: approval:ops,security:2.",
    )


def _read_text(path: Path) -> str:
    return read_bytes(path, "certificate").decode("utf-8", "replace")


def _refuse_without(given: dict[str, Any], names: tuple[str, ...], option: str) -> None:
    """Refuse options that need another `option`, which is not given; raises AOTC-I027."""
    for name in names:
        if given[name] not in (None, []):
            raise _usage_error(f"{_option(name)} requires {option}", _option(name))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _usage_error(what: str, where: str = "aotc trust add") -> AotcError:
    return AotcError("AOTC-I027", what, where=where, fix="See 'aotc trust add --help'.")
