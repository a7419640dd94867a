"""Approvals: that an artifact may be used in a channel, until a moment."""

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


def approval(
    artifact: ArtifactName, *, channel: str, expires: str, note: str = "", now: datetime.datetime
) -> Approval:
    """The approval of an artifact, issued `now`.

    `expires` is a date, from whose beginning in UTC it is not valid, or a moment such as
    2027-01-31T12:00:00Z.  Raises I036 where the channel or the expiry cannot be.
    """
    if not re.fullmatch(CHANNEL, channel):
        raise AotcError(
            "AOTC-I036",
            "this is no name of a channel",
            where="--channel",
            expected="small letters, digits, '.', '-' and '_', at most 64",
            found=channel,
        )
    until = _moment(expires)
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


def _moment(text: str) -> datetime.datetime:
    try:
        return parse_date(text)
    except ValueError:
        raise AotcError(
            "AOTC-I036",
            "this is no date",
            where="--expires",
            expected="a date such as 2027-01-31, or a moment such as 2027-01-31T12:00:00Z",
            found=text,
        ) from None
