"""What the gate finds, and its steps 1 to 3: listing files, parsing bundles, signatures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.base.records import field, record
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, KINDS, older_kind
from aotc.spec.codec import Json, ParseError, Problem
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding
from aotc.spec.reports import PolicyDecision
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust import dsse, oms, statements
from aotc.trust.bundles import VerifiedBundle, verify_bundle
from aotc.trust.container import MAX_BUNDLES, MAX_BUNDLES_BYTES, Container, Listing
from aotc.trust.dsse import Bundle
from aotc.trust.policy.host_trust import Trust
from aotc.trust.policy.signed_attestations import SignedStatement

# What an untrusted signer lists is read only to report missing and unlisted files.
_MAX_CLAIMED_BYTES = 4 << 20
_OMS: Final = KINDS["oms"]
DOCUMENTS = ("aotc.json", "manifest.json")
# Refusals of one signer, which do not matter if another signer counts.
_UNKNOWN_SIGNER = frozenset({"AOTC-G002", "AOTC-G038"})
_SIGNER_CODES = _UNKNOWN_SIGNER | {"AOTC-G027", "AOTC-G028", "AOTC-G037"}

# An untrusted bundle may list any number of files.
MAX_REFUSALS = 1000


@record(frozen=False, kw_only=False)
class Examination:
    """What one run of the gate has found about an artifact so far; its steps only add to it.

    Only `digests`, `signers`, `statements` and `manifest` are signed by a trusted key, and a policy
    may accept only some of the `statements`.  If there is no trusted signature, `claimed_digests`
    is what some bundle lists.  `origin` is the reference of an artifact in a registry, whose policy
    may name repositories.  `present` is the folder that the bytes are copied into.  `envelopes` are
    the parsed `bundles`.  `files_to_read` selects the payload files that are hashed, and
    `hashed_files` are those that were; None: all.  `unread_reason` says why files were not hashed.
    `documents` are read once into memory, and checked and parsed there, so that the checked bytes
    are the parsed ones.
    """

    container: Container
    trust: Trust
    origin: str = ""
    present: Container | None = None
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
    bytes_present: int = 0
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


def list_files(state: Examination, attestations: Container) -> bool:
    """Step 1: list the files and read bundles and manifests.  False if no further step can run."""
    state.listing = state.container.listing()
    for problem in state.listing.problems:
        state.refuse(problem)
    payload = state.listing.under(PAYLOAD)
    outside = attestations.listing(ATTESTATIONS)
    names = [path for path in outside.files if path.endswith(BUNDLE_SUFFIX)]
    if attestations is not state.container:
        for problem in outside.problems:
            if problem.code != "AOTC-G006":
                state.refuse(problem)
    if "aotc.json" not in payload and not (payload and names):
        if not any(refusal.where == MANIFEST for refusal in state.refusals):
            state.refuse(
                AotcError(
                    "AOTC-G015",
                    "the folder is not an aotc artifact",
                    where=state.container.place,
                    expected=f"a folder with {MANIFEST}",
                )
            )
        return False
    if not _within_limits(state, payload, {name: outside.files[name] for name in names}):
        return False
    for name in names:
        _read_file(state, attestations, name, dsse.MAX_BUNDLE_BYTES, state.bundles, name)
    for name in DOCUMENTS:
        if name in payload:
            path = f"{PAYLOAD}/{name}"
            _read_file(state, state.container, path, MAX_JSON_BYTES, state.documents, name)
    return all(refusal.code != "AOTC-G012" for refusal in state.refusals)


def _within_limits(
    state: Examination, payload: Mapping[str, int], bundles: Mapping[str, int]
) -> bool:
    """Whether sizes (in bytes by path) are within the limits of the format and of a policy.

    What exceeds a limit is refused.
    """
    if len(bundles) > MAX_BUNDLES:
        state.refuse(_limit_exceeded(f"{MAX_BUNDLES} bundles", len(bundles)))
        return False
    if state.trust.policy is not None:
        from aotc.trust.policy.evaluation import exceeded_limits

        excesses = exceeded_limits(state.trust.policy.policy.limits, payload, len(bundles))
        for excess in excesses:
            state.refuse(excess)
        if excesses:
            return False
    total = sum(bundles.values())
    if total > MAX_BUNDLES_BYTES:
        state.refuse(_limit_exceeded(f"{MAX_BUNDLES_BYTES} bytes of bundles", total))
        return False
    return True


def _limit_exceeded(maximum: str, found: int) -> AotcError:
    return AotcError(
        "AOTC-G012",
        "the artifact exceeds the limits",
        where=ATTESTATIONS,
        expected=f"at most {maximum}",
        found=str(found),
    )


def parse_bundles(state: Examination) -> None:
    """Step 2 for bundles: parse them; a malformed one is refused and not used further."""
    for path, bundle in list(state.bundles.items()):
        try:
            state.envelopes[path] = dsse.parse(bundle)
        except AotcError as error:
            state.refuse(error, path)
            del state.bundles[path]


def parse_documents(state: Examination) -> None:
    """Step 2 for the manifests: parse those whose bytes a trusted key signed.

    Others are not parsed, as anyone may have written them.
    """
    for name, text in state.documents.items():
        if state.digests is None or state.digests.get(name) != state.digest_of(name):
            continue
        try:
            state.parsed_documents[name] = strict_json(text)
        except ParseError as error:
            for problem in error.problems:
                state.refuse(malformed_manifest(problem, f"{PAYLOAD}/{name}"))


def is_oms(path: str) -> bool:
    """Whether a bundle has the name of an OMS signature."""
    return _OMS.matches_name(path)


def check_signatures(state: Examination) -> None:
    """Step 3: at least one OMS bundle is signed by a trusted key, and no signature is invalid.

    The kind of a bundle is its signed type; if its name is of another kind, it is refused.
    """
    before = len(state.refusals)
    oms_errors: list[AotcError] = []
    anchors, policy = state.trust.anchors(), state.trust.policy
    at = policy.now if policy is not None else None
    for path, envelope in state.envelopes.items():
        try:
            verified = verify_bundle(envelope, anchors, at=at)
            attestation = statements.read_verified(verified)
            if attestation.predicate_type == oms.PREDICATE_TYPE:
                _use_signature(state, path, verified)
            elif is_oms(path):
                raise AotcError(
                    "AOTC-G004",
                    "the content of the bundle does not match its name",
                    expected=f"predicateType {oms.PREDICATE_TYPE}",
                    found=attestation.predicate_type[:200],
                )
            else:
                if known := older_kind(attestation.predicate_type):
                    found, read = attestation.predicate_type[:100], known.predicate_type
                    what = f"made by a newer aotc: {found}, and this release reads {read}"
                    state.findings.append(Finding(code="AOTC-G047", what=what, where=path))
                state.statements.append(SignedStatement(path, *attestation))
        except AotcError as error:
            error.where = error.where or path
            if error.code not in _SIGNER_CODES:
                state.refuse(error)
            elif is_oms(path):
                oms_errors.append(error)
            else:
                state.findings.append(_ignored_signature(error))
    for refusal in oms_errors:
        if state.digests is None:
            state.refuse(refusal)
        else:
            state.findings.append(_ignored_signature(refusal))
    if state.digests is None:
        state.claimed_digests = _claimed_digests(state)
    # Neither this step nor an earlier one has refused an OMS bundle.
    refused = len(state.refusals) > before or any(is_oms(each.where) for each in state.refusals)
    if state.digests is None and not refused:
        state.refuse(
            AotcError(
                "AOTC-G001",
                "the artifact has no signature bundle",
                where=ATTESTATIONS,
                expected=_OMS.path,
                found=f"{len(state.bundles)} other attestations",
            )
        )
    if state.signers and all(key.development for key in state.signers):
        state.findings.append(
            Finding(code="AOTC-G016", what="the only trusted signature is by a development key")
        )


def _use_signature(state: Examination, path: str, verified: VerifiedBundle) -> None:
    """Take the digests that a trusted key signed; all signatures must list the same."""
    digests = oms.read_digests(verified.payload)
    state.statements.append(SignedStatement(path, oms.PREDICATE_TYPE, None, {}, verified.key))
    if state.trust.policy is not None:
        from aotc.trust.policy.evaluation import key_rejection

        # The key may sign other kinds of attestations only.
        reason = key_rejection(state.trust.policy, verified.key, "oms")
        if reason is not None:
            raise reason
    if state.digests is None:
        state.digests = digests
    elif state.digests != digests:
        raise AotcError("AOTC-G014", "two signatures list different files or digests", where=path)
    if verified.key not in state.signers:
        state.signers.append(verified.key)


def _claimed_digests(state: Examination) -> Mapping[str, str] | None:
    """What the first bundle with the name of an OMS signature lists, unverified."""
    for path, envelope in state.envelopes.items():
        if is_oms(path) and len(envelope.payload) <= _MAX_CLAIMED_BYTES:
            try:
                return oms.read_digests(envelope.payload)
            except AotcError as error:
                state.refuse(error, path)
                return None
    return None


def _ignored_signature(error: AotcError) -> Finding:
    """A finding for a signature that does not count, although another one does."""
    code = "AOTC-G018" if error.code in _UNKNOWN_SIGNER else error.code
    return Finding(code=code, what=f"{error.what}: {error.found}", where=error.where)


def _read_file(
    state: Examination,
    container: Container,
    path: str,
    limit: int,
    into: dict[str, bytes],
    name: str,
) -> None:
    try:
        into[name] = container.read(path, limit)
    except AotcError as error:
        # A bundle that was removed since it was listed is ignored.
        if error.code != "AOTC-G006" or not path.startswith(f"{ATTESTATIONS}/"):
            state.refuse(error, path)


def malformed_manifest(problem: Problem, where: str) -> AotcError:
    """AOTC-G009 for a problem of a manifest."""
    return AotcError("AOTC-G009", "the manifest is malformed", where=where, found=str(problem))
