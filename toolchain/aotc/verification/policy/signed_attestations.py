"""Attestations that somebody known signed, and what a policy reads in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from aotc.contract.attestation_kinds import AttestationKind, Usage, kind_of
from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.trust.anchors import TrustedKey
from aotc.errors import AotcError
from aotc.records import record
from aotc.signing import dsse, oms

if TYPE_CHECKING:
    from aotc.contract.trust.attestations import Approval, Qualification

# What only a policy reads is imported where it is read: most artifacts are verified without one.
T = TypeVar("T")


@record(kw_only=False)
class SignedStatement:
    """What `key` said of the artifact; its type is the signed one, whatever the file is called."""

    path: str
    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    key: TrustedKey

    @property
    def kind(self) -> AttestationKind | None:
        """Of its signed type; None for what no policy knows."""
        return kind_of(self.predicate_type)

    @property
    def usage(self) -> Usage | None:
        """What a key must be allowed to make it; None for what no policy knows."""
        return self.kind.usage if self.kind is not None else None

    @property
    def is_signature(self) -> bool:
        """Whether it is an OMS signature, which has the payload for its subject."""
        return self.predicate_type == oms.PREDICATE_TYPE

    def approval(self) -> Approval:
        """The predicate of an approval; raises G004."""
        from aotc.contract.trust.attestations import Approval

        return self._decoded(Approval)

    def qualification(self) -> Qualification:
        """The predicate of a qualification; raises G004."""
        from aotc.contract.trust.attestations import Qualification

        return self._decoded(Qualification)

    def artifact_id(self) -> str:
        """The artifact that it names, as approvals and qualifications do, or an empty string."""
        return _text(self.predicate, *self.kind.artifact_id) if self.kind is not None else ""

    def builder(self) -> str:
        """The builder's id in provenance, or an empty string."""
        return _text(self.predicate, "runDetails", "builder", "id")

    def version(self) -> str:
        """The version that provenance states of what was built, or an empty string."""
        return _text(self.predicate, "buildDefinition", "externalParameters", "version")

    def made_at(self) -> datetime | None:
        """When it was made, as it says itself; None where it does not."""
        from aotc.contract.trust.attestations import parse_instant

        text = _text(self.predicate, *self.kind.made_at) if self.kind is not None else ""
        try:
            return parse_instant(text)
        except ValueError:
            return None

    def _decoded(self, record: type[T]) -> T:
        # A newer release may add fields; those that are read here must be right.
        try:
            return decode(record, self.predicate, path="predicate", allow_unknown=True)
        except ParseError as error:
            refused: AotcError = dsse.malformed(error)
            for each in (refused, *refused.also):
                each.where = self.path
            raise refused from None


def _text(data: Json, *path: str) -> str:
    """The text at a path; empty where there is none, or no path."""
    if not path:
        return ""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""
