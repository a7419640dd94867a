"""What the gate has found of one artifact so far; its steps only add to it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping

from aotc.contract.codec.parsing import Json, Problem
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.results.policy_decision import PolicyDecision
from aotc.contract.trust.anchors import TrustedKey
from aotc.errors import AotcError
from aotc.records import field, record
from aotc.signing.dsse import Bundle
from aotc.verification.container.base import Container, Listing
from aotc.verification.policy.host_trust import Trust
from aotc.verification.policy.signed_attestations import SignedStatement

# Nobody reads more, and an unauthenticated bundle may claim any number of files.
MAX_REFUSALS = 1000


@record(frozen=False, kw_only=False)
class Examination:
    """The state of one run of the gate.

    Only `digests`, `signers`, `statements` and `manifest` were vouched for by a trusted key;
    of `statements` a policy may take some only.  `claimed` is what some bundle lists, where no
    trusted key vouches for anything.  `envelopes` are the parsed `bundles`.  `hashed` are the files
    whose bytes were checked, where not all of them were; `unread` says why some were not read at
    all.  `documents` are read once into memory, checked and parsed there, so that what is checked
    is what is read.
    """

    container: Container
    trust: Trust
    files_to_read: Callable[[Manifest], Collection[str]] | None = None
    listing: Listing = field(default_factory=lambda: Listing({}, frozenset(), ()))
    bundles: dict[str, bytes] = field(default_factory=dict)
    envelopes: dict[str, Bundle] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    document_digests: dict[str, str] = field(default_factory=dict)
    parsed_documents: dict[str, Json] = field(default_factory=dict)
    signers: list[TrustedKey] = field(default_factory=list)
    statements: list[SignedStatement] = field(default_factory=list)
    digests: Mapping[str, str] | None = None
    claimed_digests: Mapping[str, str] | None = None
    hashed_files: frozenset[str] | None = None
    unread_reason: str = ""
    manifest: Manifest | None = None
    manifest_problems: list[AotcError] = field(default_factory=list)
    refusals: list[AotcError] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    bytes_hashed: int = 0
    decision: PolicyDecision | None = None

    def refuse(self, error: AotcError, where: str = "") -> None:
        """Keep an error and those beside it, once each."""
        for each in (error, *error.also):
            each.where = each.where or where
            known = (each.code, each.where, each.found)
            if known not in self.seen and len(self.refusals) < MAX_REFUSALS:
                self.seen.add(known)
                each.also = ()
                self.refusals.append(each)

    @property
    def artifact_id(self) -> str:
        """sha256 (hex) of aotc.json, or an empty string where it was not read."""
        return self.digest_of("aotc.json")

    def digest_of(self, document: str) -> str:
        """sha256 (hex) of a document, or an empty string where it was not read."""
        text = self.documents.get(document)
        if text is None:
            return ""
        if document not in self.document_digests:
            self.document_digests[document] = hashlib.sha256(text).hexdigest()
        return self.document_digests[document]


def malformed(problem: Problem, where: str) -> AotcError:
    """A G009 refusal."""
    return AotcError("AOTC-G009", "the manifest is malformed", where=where, found=str(problem))
