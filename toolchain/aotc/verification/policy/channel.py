"""The channel for which a policy is applied: the requested one, or that of the approvals."""

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
    """The name of a channel and its source; the name is empty if there is none."""

    name: str
    source: ChannelSource


def channel_of(
    requested: str | None, statements: Iterable[SignedStatement], applied: AppliedPolicy
) -> Channel:
    """The channel `requested`, or that of the approvals that count.

    Raises AOTC-G024 if none is requested and the approvals are for several channels.
    """
    if requested is not None:
        return Channel(requested, "argument")
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
    return Channel(next(iter(names), ""), "approval" if names else "")
