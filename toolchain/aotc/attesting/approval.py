"""Approvals: statements that an artifact may be used in a channel until they expire."""

from __future__ import annotations

import datetime
import re

from aotc.contract.trust.attestations import (
    CHANNEL,
    Approval,
    ArtifactName,
    format_instant,
    parse_date,
)
from aotc.errors import AotcError


def make_approval(
    artifact: ArtifactName, *, channel: str, expires: str, note: str = "", now: datetime.datetime
) -> Approval:
    """The approval of an artifact, issued `now`.

    `expires` is a time such as 2027-01-31T12:00:00Z, or a date, which is its start in UTC.  Raises
    AOTC-I036 if the channel is not a valid name, the expiry is not a valid time or not after `now`,
    or the note has more than 2000 characters.
    """
    if not re.fullmatch(CHANNEL, channel):
        raise AotcError(
            "AOTC-I036",
            "this is not a valid name of a channel",
            where="--channel",
            expected="lowercase letters, digits, '.', '-' and '_', at most 64",
            found=channel,
        )
    until = _parse_expiry(expires)
    if until <= now:
        raise AotcError(
            "AOTC-I036",
            "the approval would have expired already",
            where="--expires",
            expected=f"after {format_instant(now)}",
            found=expires,
        )
    if len(note) > 2000:
        raise AotcError(
            "AOTC-I036",
            "the note is too long",
            where="--note",
            expected="at most 2000 characters",
            found=str(len(note)),
        )
    return Approval(
        channel=channel,
        expires=format_instant(until),
        issued_at=format_instant(now),
        artifact=artifact,
        note=note,
    )


def _parse_expiry(text: str) -> datetime.datetime:
    try:
        return parse_date(text)
    except ValueError:
        raise AotcError(
            "AOTC-I036",
            "this is not a valid date",
            where="--expires",
            expected="a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z",
            found=text,
        ) from None
