"""Steps 1 to 3 of the gate: what is there, whether it can be parsed, and who vouches for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.contract.attestation_kinds import BUNDLE_SUFFIX, KINDS, older_kind
from aotc.contract.codec.parsing import ParseError
from aotc.contract.codec.strict_json import MAX_JSON_BYTES, strict_json
from aotc.contract.finding import Finding
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.signing import dsse, oms, statements
from aotc.signing.bundle_verification import VerifiedBundle, verify_bundle
from aotc.verification.container.base import MAX_BUNDLES, MAX_BUNDLES_BYTES, Container
from aotc.verification.examination import Examination, malformed
from aotc.verification.policy.signed_attestations import SignedStatement

# What an unknown signer lists is read only to tell which files do not even match that.
_MOST_CLAIMED_BYTES = 4 << 20
_OMS: Final = KINDS["oms"]
DOCUMENTS = ("aotc.json", "manifest.json")
# Refusals of one signer, which another may make good: unknown, not allowed this, not valid now.
_UNKNOWN = frozenset({"AOTC-G002", "AOTC-G038"})
_OF_SIGNER = _UNKNOWN | {"AOTC-G027", "AOTC-G028", "AOTC-G037"}


def list_files(state: Examination, attestations: Container) -> bool:
    """Step 1.  False where there is nothing that could be examined further."""
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
                    where=str(state.container.root),
                    expected=f"a folder with {MANIFEST}",
                )
            )
        return False
    if not _within_limits(state, payload, {name: outside.files[name] for name in names}):
        return False
    for name in names:
        _read(state, attestations, name, dsse.MAX_BUNDLE_BYTES, state.bundles)
    for name in DOCUMENTS:
        if name in payload:
            _read(
                state, state.container, f"{PAYLOAD}/{name}", MAX_JSON_BYTES, state.documents, name
            )
    return all(refusal.code != "AOTC-G012" for refusal in state.refusals)


def _within_limits(
    state: Examination, payload: Mapping[str, int], bundles: Mapping[str, int]
) -> bool:
    """Whether sizes by path are ones that a reader, and a policy, take; what is not is refused."""
    if len(bundles) > MAX_BUNDLES:
        state.refuse(
            AotcError(
                "AOTC-G012",
                "the artifact exceeds the limits",
                where=ATTESTATIONS,
                expected=f"at most {MAX_BUNDLES} bundles",
                found=str(len(bundles)),
            )
        )
        return False
    if state.trust.policy is not None:
        from aotc.verification.policy.limits import exceeded_limits

        excesses = exceeded_limits(state.trust.policy.policy.limits, payload, len(bundles))
        for excess in excesses:
            state.refuse(excess)
        if excesses:
            return False
    total = sum(bundles.values())
    if total > MAX_BUNDLES_BYTES:
        state.refuse(
            AotcError(
                "AOTC-G012",
                "the artifact exceeds the limits",
                where=ATTESTATIONS,
                expected=f"at most {MAX_BUNDLES_BYTES} bytes of bundles",
                found=str(total),
            )
        )
        return False
    return True


def parse_bundles(state: Examination) -> None:
    """Step 2, of bundles: they are well-formed, or they are refused and looked at no more."""
    for path, bundle in list(state.bundles.items()):
        try:
            state.envelopes[path] = dsse.parse(bundle)
        except AotcError as error:
            state.refuse(error, path)
            del state.bundles[path]


def parse_documents(state: Examination) -> None:
    """Step 2, of the manifests: those that have the bytes which a trusted key vouches for.

    What anybody else wrote is not worth the time.
    """
    for name, text in state.documents.items():
        if state.digests is None or state.digests.get(name) != state.digest_of(name):
            continue
        try:
            state.parsed_documents[name] = strict_json(text)
        except ParseError as error:
            for problem in error.problems:
                state.refuse(malformed(problem, f"{PAYLOAD}/{name}"))


def is_oms(path: str) -> bool:
    """Whether a bundle's name is one of an OMS signature."""
    return _OMS.matches_name(path)


def check_signatures(state: Examination) -> None:
    """Step 3: at least one OMS bundle is by a trusted key, and no bundle is a broken one.

    What a bundle is, its signed type says; a name that says something else is refused.
    """
    before = len(state.refusals)
    oms_errors: list[AotcError] = []
    anchors, policy = state.trust.anchors(), state.trust.policy
    at = policy.now if policy is not None else None
    for path, envelope in state.envelopes.items():
        try:
            verified = verify_bundle(envelope, anchors, at=at)
            said = statements.read_verified(verified)
            if said.predicate_type == oms.PREDICATE_TYPE:
                _take_signature(state, path, verified)
            elif is_oms(path):
                raise _relabelled(said.predicate_type)
            else:
                if known := older_kind(said.predicate_type):
                    newer = _from_the_future(path, said.predicate_type, known.predicate_type)
                    state.findings.append(newer)
                state.statements.append(
                    SignedStatement(
                        path, said.predicate_type, said.predicate, said.subjects, said.key
                    )
                )
        except AotcError as error:
            error.where = error.where or path
            if error.code not in _OF_SIGNER:
                state.refuse(error)
            elif is_oms(path):
                oms_errors.append(error)
            else:
                state.findings.append(_counts_for_nothing(error))
    for each in oms_errors:
        if state.digests is None:
            state.refuse(each)
        else:
            state.findings.append(_counts_for_nothing(each))
    if state.digests is None:
        state.claimed_digests = _claimed(state)
    if state.digests is None and len(state.refusals) == before and not _broken_oms(state):
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


def _take_signature(state: Examination, path: str, verified: VerifiedBundle) -> None:
    """An OMS signature by a trusted key: of this payload, or the artifact is refused."""
    digests = oms.read_digests(verified.payload)
    state.statements.append(SignedStatement(path, oms.PREDICATE_TYPE, None, {}, verified.key))
    if state.trust.policy is not None:
        from aotc.verification.policy.fitness import key_rejection

        # What the policy does not let the key sign cannot say which bytes are right.
        reason = key_rejection(state.trust.policy, verified.key, "oms")
        if reason is not None:
            raise reason
    if state.digests is None:
        state.digests = digests
    elif state.digests != digests:
        raise AotcError("AOTC-G014", "two signatures list other files or digests", where=path)
    if verified.key not in state.signers:
        state.signers.append(verified.key)


def _claimed(state: Examination) -> Mapping[str, str] | None:
    """What the first OMS bundle lists, by its name and with nobody to vouch for it."""
    for path, envelope in state.envelopes.items():
        if is_oms(path) and len(envelope.payload) <= _MOST_CLAIMED_BYTES:
            try:
                return oms.read_digests(envelope.payload)
            except AotcError as error:
                state.refuse(error, path)
                return None
    return None


def _from_the_future(path: str, found: str, known: str) -> Finding:
    """An attestation that a later release made and this one cannot read."""
    what = f"made by a newer aotc: {found[:100]}, and this release reads {known}"
    return Finding(code="AOTC-G047", what=what, where=path)


def _relabelled(found: str) -> AotcError:
    return AotcError(
        "AOTC-G004",
        "the bundle is none of what its name says",
        expected=f"predicateType {oms.PREDICATE_TYPE}",
        found=found[:200],
    )


def _broken_oms(state: Examination) -> bool:
    """Whether an OMS bundle is there that an earlier step refused."""
    return any(is_oms(refusal.where) for refusal in state.refusals)


def _counts_for_nothing(error: AotcError) -> Finding:
    """A signature that is left out of account, with another one to rely on."""
    code = "AOTC-G018" if error.code in _UNKNOWN else error.code
    return Finding(code=code, what=f"{error.what}: {error.found}", where=error.where)


def _read(
    state: Examination,
    container: Container,
    path: str,
    limit: int,
    into: dict[str, bytes],
    name: str = "",
) -> None:
    try:
        into[name or path] = container.read(path, limit)
    except AotcError as error:
        # A bundle that was replaced since it was listed counts as one that was never there.
        if error.code != "AOTC-G006" or not path.startswith(f"{ATTESTATIONS}/"):
            state.refuse(error, path)
