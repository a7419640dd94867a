"""What the gate has found about an artifact so far; its steps only add to it."""

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

# An untrusted bundle may list any number of files.
MAX_REFUSALS = 1000


@record(frozen=False, kw_only=False)
class Examination:
    """The state of one run of the gate.

    Only `digests`, `signers`, `statements` and `manifest` are signed by a trusted key, and a policy
    may accept only some of the `statements`.  If there is no trusted signature, `claimed_digests`
    is what some bundle lists.  `envelopes` are the parsed `bundles`.  `files_to_read` selects the
    payload files that are hashed, and `hashed_files` are those that were; None: all.
    `unread_reason` says why files were not hashed.  `documents` are read once into memory, and
    checked and parsed there, so that the checked bytes are the parsed ones.
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
    known_refusals: set[tuple[str, str, str]] = field(default_factory=set)
    bytes_hashed: int = 0
    decision: PolicyDecision | None = None

    def refuse(self, error: AotcError, where: str = "") -> None:
        """Add an error and those in its `also`, without repetition; `where` is a default."""
        for refusal in (error, *error.also):
            refusal.where = refusal.where or where
            identity = (refusal.code, refusal.where, refusal.found)
            if identity not in self.known_refusals and len(self.refusals) < MAX_REFUSALS:
                self.known_refusals.add(identity)
                refusal.also = ()
                self.refusals.append(refusal)

    @property
    def artifact_id(self) -> str:
        """The sha256 (hex) of aotc.json; empty if it was not read."""
        return self.digest_of("aotc.json")

    def digest_of(self, document: str) -> str:
        """The sha256 (hex) of a document; empty if it was not read."""
        text = self.documents.get(document)
        if text is None:
            return ""
        if document not in self.document_digests:
            self.document_digests[document] = hashlib.sha256(text).hexdigest()
        return self.document_digests[document]


def malformed_manifest(problem: Problem, where: str) -> AotcError:
    """AOTC-G009 for a problem of a manifest."""
    return AotcError(
        "AOTC-G009", "the manifest is malformed_manifest", where=where, found=str(problem)
    )
