"""Policies made and changed: each change is a new sequence, and is read back before it is kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from aotc.contract.attestation_kinds import KINDS, Usage
from aotc.contract.codec.documents import yaml_text
from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.trust.attestations import instant
from aotc.contract.trust.trust_policy import (
    MAX_DAYS,
    Match,
    PolicyIdentity,
    PolicyKey,
    Requirement,
    Revoked,
    RootKeys,
    Rule,
    TrustPolicy,
)
from aotc.errors import AotcError
from aotc.files.failures import cannot_write
from aotc.files.locking import editing
from aotc.files.replacing import check_output
from aotc.files.writing import write_new, write_whole
from aotc.verification.policy.policy_document import (
    PolicyFile,
    parse_policy,
    read_bytes,
    read_policy,
)

_ID_DIGITS: Final = 64

T = TypeVar("T", PolicyKey, Rule)
H = TypeVar("H", PolicyKey, PolicyIdentity)

# What the key of a builder signs.
BUILDER_USAGE: Final[tuple[Usage, ...]] = tuple(
    kind.usage for kind in KINDS.values() if kind.by_build
)


# Which option says what stands at a place of the policy.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is added to a policy; a key or rule replaces one of the same name.

    `reasons` says by id why what the policy knows is revoked.  With another `name`, the policy
    states that it replaces the one of its old name.
    """

    keys: tuple[PolicyKey, ...] = ()
    authorities: tuple[PolicyKey, ...] = ()
    rules: tuple[Rule, ...] = ()
    revoked: Revoked = field(default_factory=Revoked)
    reasons: Mapping[str, str] = field(default_factory=dict)
    rollback: tuple[str, ...] = ()
    expires: str | None = None
    name: str | None = None


def new_policy(name: str, signers: Iterable[tuple[str, str]], days: int) -> TrustPolicy:
    """A policy by which any of `signers` (id and PEM) vouches for every artifact, for `days`.

    Raises I027 where those are too many.
    """
    if not 0 < days <= MAX_DAYS:
        raise AotcError(
            "AOTC-I027",
            "a policy cannot be made for so long",
            where="--days",
            expected=f"1 to {MAX_DAYS} days",
            found=f"{days}"[:40],
        )
    listed = tuple(signers)
    need = Requirement(predicate="oms", signers=tuple(name for name, _ in listed))
    return TrustPolicy(
        schema="aotc.trust/1",
        name=name,
        sequence=1,
        expires=instant(datetime.now(UTC) + timedelta(days=days)),
        keys=tuple(PolicyKey(id=name, pem=pem, usage=BUILDER_USAGE) for name, pem in listed),
        rules=(Rule(name="default", match=Match(name="*"), require=(need,)),),
    )


def changed(policy: TrustPolicy, change: Change) -> TrustPolicy:
    """The next sequence of a policy; raises I027 for a reason about what it does not know.

    I027 too for an artifact that is named by less than its whole id.
    """
    _whole_ids("--revoke-artifact", change.revoked.artifacts)
    _whole_ids("--allow-rollback", change.rollback)
    keys = _merged(policy.keys, change.keys, "id")
    authorities = _merged(policy.authorities, change.authorities, "id")
    known = {each.id for each in (*keys, *authorities)}
    known |= {each.id for each in policy.identities}
    for unknown in change.reasons.keys() - known:
        raise AotcError(
            "AOTC-I027",
            "a reason is given for what is no id of this policy",
            where="--revoke-key",
            expected=", ".join(sorted(known)),
            found=unknown,
        )
    name = change.name or policy.name
    before = _union(policy.replaces, () if name == policy.name else (policy.name,))
    return replace(
        policy,
        name=name,
        replaces=tuple(each for each in before if each != name),
        sequence=policy.sequence + 1,
        expires=change.expires or policy.expires,
        keys=_revoked(keys, change.reasons),
        authorities=_revoked(authorities, change.reasons),
        identities=_revoked(policy.identities, change.reasons),
        rules=_merged(policy.rules, change.rules, "name"),
        revoked=Revoked(
            artifacts=_union(policy.revoked.artifacts, change.revoked.artifacts),
            keys=_union(policy.revoked.keys, change.revoked.keys),
        ),
        rollback=_union(policy.rollback, change.rollback),
    )


def change_policy(path: Path, change: Change) -> PolicyFile:
    """Change the policy of a file, which nobody else of ours changes meanwhile: its next sequence.

    Raises I001 and G019 where it is none, I027 where it would be none, I018, I026, G041.
    """
    # What cannot be read gets no lock file beside it.
    read_policy(path)
    with editing(path):
        file = read_policy(path)
        return _written(path, changed(file.policy, change), before=file.data)


def requirement(text: str) -> Requirement:
    """A requirement as the command line states it: PREDICATE:ID[,ID][:THRESHOLD]; raises I027."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise _unreadable(text, "PREDICATE:ID[,ID][:THRESHOLD]")
    stated: dict[str, object] = {"predicate": parts[0], "signers": parts[1].split(",")}
    if len(parts) == 3:
        if not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 6):
            raise _unreadable(text, "a threshold that is a number")
        stated["threshold"] = int(parts[2])
    try:
        return decode(Requirement, stated)
    except ParseError as error:
        raise _unreadable(text, str(error.problems[0])) from None


def write_policy(path: Path, policy: TrustPolicy, *, new: bool) -> PolicyFile:
    """Write a policy, once it is found to be a good one.

    Raises I027 where it is none, I017 where it is `new` and there is a file, I018, I026, G041.
    """
    with editing(path):
        return _written(path, policy, new=new)


def _written(
    path: Path, policy: TrustPolicy, *, new: bool = False, before: bytes | None = None
) -> PolicyFile:
    try:
        file = parse_policy(yaml_text(policy, full=False).encode("utf-8"), path)
    except AotcError as error:
        raise _not_so(error, path) from None
    if before is not None and read_bytes(path, "trust policy") != before:
        # An editor asks nobody for a lock.
        raise AotcError(
            "AOTC-G041",
            "the policy was changed by another program meanwhile",
            where=str(path),
            mend="Nothing was written: look at the file, and try again.",
        )
    _replace(path, file.data, new=new)
    return file


def write_roots(
    path: Path, keys: Sequence[str], threshold: int, *, policy: str, new: bool = True
) -> None:
    """Write the root keys of a host, and the name of the policy that it takes.

    Raises I027 where they are none, I017 where it is `new` and there is a file, I018, I026, G041.
    """
    stated = {
        "schema": "aotc.root/2", "policy": policy, "threshold": threshold, "keys": list(keys),
    }  # fmt: skip
    try:
        roots = decode(RootKeys, stated)
    except ParseError as error:
        problem = error.problems[0]
        raise AotcError(
            "AOTC-I027",
            "root keys cannot be written so",
            where=f"--{problem.path}",
            found=problem.what,
            mend="See 'aotc trust root --help'.",
        ) from None
    write(path, yaml_text(roots, full=False).encode("utf-8"), new=new)


def write(path: Path, data: bytes, *, new: bool) -> None:
    """Write a file in one step; raises I017 where it is `new` and something is there.

    Raises I018, I026 and G041 too.
    """
    with editing(path):
        _replace(path, data, new=new)


def _replace(path: Path, data: bytes, *, new: bool) -> None:
    # A policy may be kept elsewhere, and a link lead to it: the link stays.
    place = path if new else Path(os.path.realpath(path))
    if not new:
        check_output(place, force=True)
    try:
        if new:
            write_new(place, data, mode=0o644, durable=True)
        else:
            write_whole(place, data, mode=0o644, durable=True)
    except FileExistsError:
        raise AotcError(
            "AOTC-I017",
            "the file is already there",
            where=str(path),
            mend="Choose another -o, or give --force.",
        ) from None
    except OSError as error:
        raise cannot_write(error, "cannot write the file", str(path)) from None


def _merged(old: tuple[T, ...], new: tuple[T, ...], by: str) -> tuple[T, ...]:
    found = {getattr(each, by): each for each in old}
    found.update({getattr(each, by): each for each in new})
    return tuple(found.values())


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))


def _revoked(holders: tuple[H, ...], reasons: Mapping[str, str]) -> tuple[H, ...]:
    return tuple(replace(each, revoked=reasons.get(each.id, each.revoked)) for each in holders)


def _whole_ids(option: str, ids: Iterable[str]) -> None:
    for each in ids:
        if len(each) != _ID_DIGITS or not set(each) <= set("0123456789abcdef"):
            raise AotcError(
                "AOTC-I027",
                "an artifact is named by its whole id",
                where=option,
                expected=f"the {_ID_DIGITS} digits of the sha256 of its aotc.json",
                found=each,
                mend="'aotc verify' and 'aotc inspect' show the id of an artifact.",
            )


def _unreadable(text: str, expected: str) -> AotcError:
    return AotcError(
        "AOTC-I027",
        "the requirement cannot be read",
        where="--require",
        expected=expected,
        found=text,
        mend="Such as approval:ops,security:2.",
    )


def _not_so(error: AotcError, path: Path) -> AotcError:
    """What is wrong with a policy, as an error of the arguments that it was made from."""
    place = error.where.removeprefix(f"{path}: ")
    option = next((each for start, each in _OPTIONS if place.startswith(start)), "")
    return AotcError(
        "AOTC-I027",
        "the policy cannot be made so",
        where=option or place,
        found=error.found if place.isalpha() else f"{place}: {error.found}",
        mend="Correct the option that is named; nothing was written.",
        also=tuple(_not_so(each, path) for each in error.also),
    )
