"""Attestations with verified signatures, and what a policy reads in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.spec.attestation_kinds import AttestationKind, Usage, kind_of
from aotc.spec.codec import Json, ParseError, decode
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust import dsse, oms

if TYPE_CHECKING:
    from aotc.spec.attestations import Approval, Qualification
    from aotc.spec.reproduction import Reproduction


# What only a policy needs is imported when it is used: most artifacts are verified without one.
T = TypeVar("T")


@record(kw_only=False)
class SignedStatement:
    """A statement about the artifact that `key` signed, from the bundle at `path`."""

    path: str
    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    key: TrustedKey

    @property
    def kind(self) -> AttestationKind | None:
        """The kind of its signed type; None for a type that policies do not know."""
        return kind_of(self.predicate_type)

    @property
    def usage(self) -> Usage | None:
        """The usage that its key needs in a policy; None for a type that policies do not know."""
        return self.kind.usage if self.kind is not None else None

    @property
    def is_signature(self) -> bool:
        """Whether it is an OMS signature, whose subject is the payload."""
        return self.predicate_type == oms.PREDICATE_TYPE

    def approval(self) -> Approval:
        """The predicate of an approval; raises AOTC-G004 if it is malformed."""
        from aotc.spec.attestations import Approval

        return self._decode(Approval)

    def qualification(self) -> Qualification:
        """The predicate of a qualification; raises AOTC-G004 if it is malformed."""
        from aotc.spec.attestations import Qualification

        return self._decode(Qualification)

    def reproduction(self) -> Reproduction:
        """The predicate of a reproduction; raises AOTC-G004 if it is malformed."""
        from aotc.spec.reproduction import Reproduction

        return self._decode(Reproduction)

    def artifact_id(self) -> str:
        """The id of the artifact that its predicate names; empty if it names none."""
        return _text(self.predicate, *self.kind.artifact_id) if self.kind is not None else ""

    def builder(self) -> str:
        """The builder's id in provenance or a reproduction; empty if there is none."""
        path = ("builder",) if self.usage == "reproduction" else ("runDetails", "builder", "id")
        return _text(self.predicate, *path)

    def version(self) -> str:
        """The version of the artifact in provenance; empty if there is none."""
        return _text(self.predicate, "buildDefinition", "externalParameters", "version")

    def made_at(self) -> datetime | None:
        """When it was made, by its predicate; None if that states no time."""
        from aotc.spec.attestations import parse_instant

        text = _text(self.predicate, *self.kind.made_at) if self.kind is not None else ""
        try:
            return parse_instant(text)
        except ValueError:
            return None

    def _decode(self, record: type[T]) -> T:
        # A newer release may add fields, which are ignored.
        try:
            return decode(record, self.predicate, path="predicate", allow_unknown=True)
        except ParseError as error:
            malformed: AotcError = dsse.malformed(error)
            for refusal in (malformed, *malformed.also):
                refusal.where = self.path
            raise malformed from None


def _text(data: Json, *path: str) -> str:
    """The text at a path of keys; empty if there is none, or the path is empty."""
    if not path:
        return ""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""
