"""Steps 4 to 6 of the gate: digests of the signed files, no other files, and consistency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aotc.contract.attestation_kinds import BUNDLE_SUFFIX
from aotc.contract.codec.parsing import ParseError, Problem, decode
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.versions import (
    KNOWN_FEATURES,
    MANIFEST_SCHEMA,
    manifest_version,
    unsupported_reason,
)
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.verification import consistency
from aotc.verification.digests import ExpectedFile, Sink, check_files
from aotc.verification.examination import Examination, malformed_manifest
from aotc.verification.references.model_references import require_inside


def check_digests(state: Examination, *, sink: Sink | None, full: bool) -> None:
    """Step 4: every signed file exists and has the signed digest.

    Without a trusted signature, the files that an untrusted bundle lists are only checked for
    existence.  A file whose size no signed manifest states is not read either: whoever replaced it
    could make that take arbitrarily long.
    """
    digests = state.digests if state.digests is not None else state.claimed_digests
    if digests is None:
        state.unread_reason = "no file was hashed: there is no trusted signature"
        return
    payload = state.listing.under(PAYLOAD)
    wanted = []
    reported = {refusal.where for refusal in state.refusals}
    for path in sorted(digests):
        where = f"{PAYLOAD}/{path}"
        if path not in payload:
            if where not in reported:
                state.refuse(AotcError("AOTC-G006", "a signed file is missing", where=where))
        elif path not in state.documents:
            wanted.append(path)
    if state.digests is None:
        state.unread_reason = "no file was hashed: there is no trusted signature"
        return
    _check_documents(state, digests, sink)
    # A signature over aotc.json covers the sizes and chunk digests in it.
    if digests.get("aotc.json") == state.artifact_id != "":
        _decode_manifest(state)
    if state.manifest is None:
        state.unread_reason = (
            "no other file was hashed: their sizes are not known without aotc.json"
        )
        return
    if state.files_to_read is not None:
        read = state.files_to_read(state.manifest)
        wanted = [path for path in wanted if path in read]
        state.hashed_files = frozenset(wanted)
    files = _expected_files(state, state.manifest, wanted, digests)
    checked = check_files(state.container, files, sink=sink, full=full)
    state.bytes_hashed += checked.bytes_hashed
    for problem in checked.problems:
        state.refuse(problem)


def _expected_files(
    state: Examination, manifest: Manifest, paths: Iterable[str], digests: Mapping[str, str]
) -> list[ExpectedFile]:
    """The files of `paths` that the manifest lists with their signed digests."""
    entries = {entry.path: entry for entry in manifest.files}
    files = []
    for path in paths:
        entry = entries.get(path)
        if entry is None or entry.sha256 != digests[path]:
            # Step 6 refuses it.
            state.unread_reason = "some files were not hashed, as aotc.json lists them differently"
            continue
        files.append(
            ExpectedFile(
                path=f"{PAYLOAD}/{path}",
                sha256=entry.sha256,
                size=entry.size,
                chunks=entry.chunks,
            )
        )
    return files


def _check_documents(state: Examination, digests: Mapping[str, str], sink: Sink | None) -> None:
    """Check the digests of the documents, which are in memory."""
    for path in sorted(digests.keys() & state.documents.keys()):
        text, where = state.documents[path], f"{PAYLOAD}/{path}"
        state.bytes_hashed += len(text)
        if state.digest_of(path) != digests[path]:
            state.refuse(_digest_mismatch(where, digests[path], state.digest_of(path)))
        elif sink is not None:
            _write(sink, where, text)


def check_unlisted(state: Examination, sink: Sink | None) -> None:
    """Step 5: the artifact has nothing that was not signed, not even an empty folder."""
    digests = state.digests if state.digests is not None else state.claimed_digests
    if digests is None:
        return
    expected = {f"{PAYLOAD}/{path}" for path in digests}
    folders = {PAYLOAD, ATTESTATIONS}
    for path in expected:
        while "/" in path:
            path = path.rpartition("/")[0]
            folders.add(path)
    for path in state.listing.files:
        is_bundle = path.count("/") == 1 and path.startswith(f"{ATTESTATIONS}/")
        if path not in expected and not (is_bundle and path.endswith(BUNDLE_SUFFIX)):
            state.refuse(AotcError("AOTC-G007", "a file was not signed", where=path))
    for folder in sorted(state.listing.folders - folders):
        state.refuse(AotcError("AOTC-G007", "a folder has no signed file", where=folder))
    if sink is not None and not state.refusals:
        for path, bundle in state.bundles.items():
            _write(sink, path, bundle)


def check_schema(state: Examination) -> None:
    """Step 6: aotc.json matches its schema, and agrees with manifest.json and the signed files."""
    for problem in state.manifest_problems:
        state.refuse(problem)
    if state.manifest is None or state.digests is None:
        return
    package = state.parsed_documents.get("manifest.json", consistency.UNREAD)
    for contradiction in consistency.contradictions(state.manifest, package, state.digests):
        state.refuse(
            AotcError(
                "AOTC-G014",
                "the manifest contradicts itself",
                where=contradiction.path,
                found=contradiction.what,
            )
        )
    _check_references(state)
    for statement in state.statements:
        named = statement.artifact_id()
        if not statement.is_signature and state.artifact_id not in statement.subjects.values():
            what, found = (
                "the attestation is about another artifact",
                [*statement.subjects.values()],
            )
        elif named and named != state.artifact_id:
            # Its subject is this artifact, but its content was written for another one.
            what, found = f"the {statement.usage} names another artifact than its subject", [named]
        else:
            continue
        state.refuse(
            AotcError(
                "AOTC-G014",
                what,
                where=statement.path,
                expected=state.artifact_id,
                found=", ".join(found),
            )
        )


def _check_references(state: Examination) -> None:
    """Check what the models refer to, if nothing else was refused."""
    if state.manifest is None or state.refusals:
        return
    read = state.files_to_read(state.manifest) if state.files_to_read is not None else None
    try:
        require_inside(state.container, state.manifest, read)
    except AotcError as error:
        state.refuse(error)


def _decode_manifest(state: Examination) -> None:
    """Read aotc.json as a record, and keep its problems for step 6."""
    problems = state.manifest_problems
    if "aotc.json" not in state.parsed_documents:
        return
    data = state.parsed_documents["aotc.json"]
    where = MANIFEST
    schema = data.get("schema") if isinstance(data, dict) else None
    if what := unsupported_reason(schema):
        problems.append(
            AotcError(
                "AOTC-G010",
                what,
                where=where,
                expected=f"{MANIFEST_SCHEMA.rpartition('.')[0]}.x",
                found=str(schema)[:100],
            )
        )
        return
    version = manifest_version(schema) if isinstance(schema, str) else None
    known = manifest_version(MANIFEST_SCHEMA) or (0, 0)
    if version is None or not isinstance(data, dict):
        problems.append(
            malformed_manifest(Problem("schema", f"is not like {MANIFEST_SCHEMA}"), where)
        )
        return
    features = data.get("required_features", [])
    unknown = [
        str(name)
        for name in (features if isinstance(features, list) else [features])
        if not isinstance(name, str) or name not in KNOWN_FEATURES
    ]
    if unknown:
        problems.append(
            AotcError(
                "AOTC-G011",
                "the artifact requires a feature that this release does not know",
                where=where,
                expected=", ".join(sorted(KNOWN_FEATURES)),
                found=", ".join(unknown),
            )
        )
        return
    newer = version[1] > known[1]
    if newer:
        state.findings.append(
            Finding(code="AOTC-G017", what=f"the manifest is {schema}", where=where)
        )
    try:
        state.manifest = decode(Manifest, data, allow_unknown=newer)
    except ParseError as error:
        problems.extend(malformed_manifest(problem, where) for problem in error.problems)


def _write(sink: Sink, path: str, data: bytes) -> None:
    writer = sink.open(path)
    try:
        writer.write(0, memoryview(data))
    finally:
        writer.close()


def _digest_mismatch(where: str, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-G005",
        "the file's bytes are not the ones that were signed",
        where=where,
        expected=f"sha256 {expected}",
        found=f"sha256 {found}",
    )
