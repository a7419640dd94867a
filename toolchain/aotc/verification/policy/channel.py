"""The channel that an artifact is judged for: the one asked for, else that of its approvals."""

from __future__ import annotations

from collections.abc import Iterable

from aotc.contract.results.policy_decision import ChannelSource
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS
from aotc.records import record
from aotc.verification.policy.fitness import Subject, statement_rejection
from aotc.verification.policy.host_trust import AppliedPolicy
from aotc.verification.policy.signed_attestations import SignedStatement


@record(kw_only=False)
class Channel:
    """Its name, and who said so; an empty name where nobody did."""

    name: str
    source: ChannelSource


def channel_of(
    asked: str | None, statements: Iterable[SignedStatement], applied: AppliedPolicy
) -> Channel:
    """The channel; raises G024 where none is asked for and approvals are for several."""
    if asked is not None:
        return Channel(asked, "argument")
    names: dict[str, None] = {}
    for each in statements:
        if each.usage != "approval":
            continue
        try:
            name = each.approval().channel
        except AotcError:
            continue  # The requirement that looks at it says what is wrong.
        if statement_rejection(applied, each, Subject("", name, None), None) is None:
            names[name] = None
    if len(names) > 1:
        raise AotcError(
            "AOTC-G024",
            "the artifact is approved for several channels",
            where=ATTESTATIONS,
            expected="--channel with one of them",
            found=", ".join(names),
        )
    return Channel(next(iter(names), ""), "approval" if names else "")
