"""Attestations that somebody known signed, and what a policy reads in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.trust.anchors import TrustedKey
from aotc.contract.versions import is_newer
from aotc.errors import AotcError
from aotc.signing import dsse, oms

if TYPE_CHECKING:
    from aotc.contract.results.policy_decision import Usage
    from aotc.contract.trust.attestations import Approval, Qualification

# What only a policy reads is imported where it is read: most artifacts are verified without one.
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """What `key` said of the artifact; its type is the signed one, whatever the file is called."""

    path: str
    predicate_type: str
    predicate: Json
    subjects: Mapping[str, str]
    key: TrustedKey

    @property
    def usage(self) -> Usage | None:
        """What a key must be allowed to make it; None for what no policy knows."""
        return usage_of(self.predicate_type)

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
        """The artifact that an approval or a qualification names, or an empty string."""
        if self.usage not in ("approval", "qualification"):
            return ""
        return _text(self.predicate, "artifact", "id")

    def builder(self) -> str:
        """The builder's id in provenance, or an empty string."""
        return _text(self.predicate, "runDetails", "builder", "id")

    def version(self) -> str:
        """The version that provenance states of what was built, or an empty string."""
        return _text(self.predicate, "buildDefinition", "externalParameters", "version")

    def made_at(self) -> datetime | None:
        """When it was made, as it says itself; None where it does not."""
        from aotc.contract.trust.attestations import parse_instant

        texts = {
            "provenance": ("runDetails", "metadata", "finishedOn"),
            "approval": ("issued_at",),
            "qualification": ("issued_at",),
            "evidence": ("built_at",),
        }
        text = _text(self.predicate, *texts.get(self.usage or "", ("",)))
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


def usage_of(predicate_type: str) -> Usage | None:
    """What a key must be allowed to make such a statement; None for what no policy knows."""
    return _usages().get(predicate_type)


def older_kind(predicate_type: str) -> str:
    """The predicate type of ours that a later version of it replaces; empty: it is none of ours."""
    return next((each for each in _usages() if is_newer(predicate_type, each)), "")


def _usages() -> Mapping[str, Usage]:
    from aotc.contract.trust import attestations
    from aotc.contract.versions import EVIDENCE_PREDICATE

    return {
        oms.PREDICATE_TYPE: "oms",
        attestations.PROVENANCE_PREDICATE: "provenance",
        attestations.SBOM_PREDICATE: "sbom",
        EVIDENCE_PREDICATE: "evidence",
        attestations.APPROVAL_PREDICATE: "approval",
        attestations.QUALIFICATION_PREDICATE: "qualification",
    }


def _text(data: Json, *path: str) -> str:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""
