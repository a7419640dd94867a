"""Steps 4 to 6 of the gate: digests of the signed files, no other files, and consistency."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX
from aotc.spec.codec import Json, ParseError, Problem, decode
from aotc.spec.manifest import Manifest, provider_options, session_options
from aotc.spec.payload import Finding
from aotc.spec.providers import MANIFEST_KEYS, MAX_THREADS, MAX_VALUE_BYTES, option_problem
from aotc.spec.variant import Variant
from aotc.spec.versions import KNOWN_FEATURES, MANIFEST_SCHEMA, manifest_version, unsupported_reason
from aotc.trust.authenticity import Examination, malformed_manifest
from aotc.trust.digests import ExpectedFile, Sink, check_files
from aotc.trust.references import require_inside

# A document that was refused or does not exist.
UNREAD: Final = object()
_PACKAGE_KEYS = {
    "schema_version",
    "package_name",
    "package_version",
    "description",
    "layout",
    "components",
    "shared_assets",
    "additional_metadata",
}
_COMPONENT_KEYS = {"component_name", "variants", "additional_metadata"}
_VARIANT_KEYS = {
    "variant_directory",
    "ep",
    "device",
    "compatibility_string",
    "executor_info",
    "additional_metadata",
}
_ORT_KEYS = {"model_file", "session_options", "provider_options"}


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
    checked = check_files(state.container, files, sink=sink, present=state.present, full=full)
    state.bytes_hashed += checked.bytes_hashed
    state.bytes_present += checked.bytes_present
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
            state.refuse(
                AotcError(
                    "AOTC-G005",
                    "the file's bytes are not the ones that were signed",
                    where=where,
                    expected=f"sha256 {digests[path]}",
                    found=f"sha256 {state.digest_of(path)}",
                )
            )
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
    package = state.parsed_documents.get("manifest.json", UNREAD)
    for contradiction in contradictions(state.manifest, package, state.digests):
        state.refuse(
            AotcError(
                "AOTC-G014",
                "the manifest contradicts itself",
                where=contradiction.path,
                found=contradiction.what,
            )
        )
    if not state.refusals:
        read = state.files_to_read(state.manifest) if state.files_to_read is not None else None
        try:
            require_inside(state.present or state.container, state.manifest, read)
        except AotcError as error:
            state.refuse(error)
    for statement in state.statements:
        named = statement.artifact_id()
        if not statement.is_signature and state.artifact_id not in statement.subjects.values():
            what = "the attestation is about another artifact"
            found = ", ".join(statement.subjects.values())
        elif named and named != state.artifact_id:
            # Its subject is this artifact, but its content was written for another one.
            what = f"the {statement.usage} names another artifact than its subject"
            found = named
        else:
            continue
        state.refuse(
            AotcError(
                "AOTC-G014",
                what,
                where=statement.path,
                expected=state.artifact_id,
                found=found,
            )
        )


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


# Whether aotc.json, ORT's manifest.json and the list of signed files agree.
#
# ORT reads manifest.json only, so it must state exactly what aotc.json promises: applications of
# ORT would load an additional component, or use a session option that was not proven.


def contradictions(manifest: Manifest, package: Json, digests: Mapping[str, str]) -> list[Problem]:
    """Every contradiction of the manifest with manifest.json and the signed files.

    `package` is the content of manifest.json, or `UNREAD` if it was refused or does not exist,
    which is reported elsewhere.  `digests` maps paths of signed files to their sha256 (hex).
    """
    return [
        *_file_problems(manifest, digests),
        *_weights_problems(manifest),
        *_session_problems(manifest),
        *(_package_problems(manifest, package) if package is not UNREAD else ()),
    ]


def _file_problems(manifest: Manifest, digests: Mapping[str, str]) -> Iterator[Problem]:
    listed = {entry.path: entry.sha256 for entry in manifest.files}
    for path in sorted(listed.keys() | digests.keys()):
        if path == "aotc.json":
            if path in listed:
                yield Problem(path, "lists itself")
        elif path not in listed:
            yield Problem(path, "is signed, but not listed in aotc.json")
        elif path not in digests:
            yield Problem(path, "is listed in aotc.json, but not signed")
        elif listed[path] != digests[path]:
            yield Problem(path, "has different digests in aotc.json and in the signature")
    if "manifest.json" not in listed:
        yield Problem("manifest.json", "is not listed in aotc.json")


def _weights_problems(manifest: Manifest) -> Iterator[Problem]:
    """The name of a shared asset is the sha256 of its sorted lines `digest, two spaces, path`."""
    for index, variant in enumerate(manifest.variants):
        if variant.weights is None:
            continue
        start = variant.weights + "/"
        lines = "".join(
            f"{entry.sha256}  {entry.path[len(start) :]}\n"
            for entry in manifest.files
            if entry.path.startswith(start)
        )
        name = f"shared_assets/sha256-{hashlib.sha256(lines.encode('utf-8')).hexdigest()}"
        if variant.weights != name:
            yield Problem(
                f"variants[{index}].weights", f"does not match its files, whose name is {name}"
            )


def _session_problems(manifest: Manifest) -> Iterator[Problem]:
    for index, variant in enumerate(manifest.variants):
        for key, value in variant.session.config.items():
            if len(value.encode()) > MAX_VALUE_BYTES or "\0" in value:
                place = f"variants[{index}].session.config.{key}"
                yield Problem(place, f"is longer than {MAX_VALUE_BYTES} bytes, or holds a NUL")
        for key in sorted(set(variant.session.config) - MANIFEST_KEYS):
            yield Problem(
                f"variants[{index}].session.config.{key}",
                "is an option that an artifact must not have",
            )
        threads = variant.session.threads
        if threads is not None and not 0 < threads <= MAX_THREADS:
            yield Problem(f"variants[{index}].session.threads", f"is not 1 to {MAX_THREADS}")
        plugins = {plugin.provider for plugin in variant.requirements.plugins}
        for provider, options in variant.session.provider_options.items():
            for key, value in options.items():
                why = option_problem(provider, key, value, plugin=provider in plugins)
                if why:
                    place = f"variants[{index}].session.provider_options.{provider}.{key}"
                    yield Problem(place, why)


def _package_problems(manifest: Manifest, package: Json) -> Iterator[Problem]:
    if not isinstance(package, dict):
        yield Problem("manifest.json", "is not a mapping")
        return
    yield from _unknown_keys(package, _PACKAGE_KEYS, "manifest.json")
    if not str(package.get("schema_version")).startswith("1."):
        yield Problem("manifest.json: schema_version", "is not 1.x")
    if package.get("layout", "portable") != "portable":
        yield Problem("manifest.json: layout", "is not portable")
    if package.get("shared_assets"):
        yield Problem("manifest.json: shared_assets", "moves assets to other folders")
    wanted = {(variant.component, variant.name): variant for variant in manifest.variants}
    if len(wanted) != len(manifest.variants):
        yield Problem("variants", "two variants have the same component and name")
    found: set[tuple[str, str]] = set()
    for component, described_component in _mapping(package.get("components")).items():
        where = f"manifest.json: components.{component}"
        if not isinstance(described_component, dict):
            yield Problem(where, "is not inline")
            continue
        yield from _unknown_keys(described_component, _COMPONENT_KEYS, where)
        for name, described in _mapping(described_component.get("variants")).items():
            found.add((component, name))
            promised = wanted.get((component, name))
            if promised is None:
                yield Problem(f"{where}.variants.{name}", "is not in aotc.json")
            elif not isinstance(described, dict):
                yield Problem(f"{where}.variants.{name}", "is not a mapping")
            else:
                yield from _variant_problems(promised, described, name, f"{where}.variants.{name}")
    for component, name in sorted(wanted.keys() - found):
        yield Problem(f"manifest.json: components.{component}", f"has no variant {name}")


def _variant_problems(
    promised: Variant, described: Mapping[str, Json], name: str, where: str
) -> Iterator[Problem]:
    yield from _unknown_keys(described, _VARIANT_KEYS, where)
    provider = promised.providers[0] if promised.providers else None
    if described.get("ep") != provider:
        yield Problem(f"{where}.ep", f"is not {provider}")
    if str(described.get("device", promised.device)).lower() != promised.device.lower():
        yield Problem(f"{where}.device", f"is not {promised.device}")
    text = promised.requirements.compatibility.get(provider or "")
    if described.get("compatibility_string", text) != text:
        yield Problem(f"{where}.compatibility_string", "is not promised")
    executors = _mapping(described.get("executor_info"))
    ort = executors.get("ort")
    if set(executors) != {"ort"} or not isinstance(ort, dict):
        yield Problem(f"{where}.executor_info", "must hold only ort, inline")
        return
    yield from _unknown_keys(ort, _ORT_KEYS, f"{where}.executor_info.ort")
    folder = described.get("variant_directory", name)
    model = posixpath.join(str(folder), str(ort.get("model_file")))
    if model != promised.model:
        yield Problem(f"{where}.executor_info.ort.model_file", f"{model} is not {promised.model}")
    options = session_options(promised)
    stated = _mapping(ort.get("session_options"))
    for key in sorted(options.keys() | stated.keys()):
        if options.get(key) != stated.get(key):
            place = f"{where}.executor_info.ort.session_options.{key}"
            yield Problem(place, f"is not {options.get(key, 'promised')}")
    wanted = provider_options(promised)
    given = _mapping(ort.get("provider_options"))
    for key in sorted(wanted.keys() | given.keys()):
        if wanted.get(key) != given.get(key):
            yield Problem(f"{where}.executor_info.ort.provider_options.{key}", "is not promised")


def _unknown_keys(data: Mapping[str, Json], known: set[str], where: str) -> Iterator[Problem]:
    for key in data:
        if key not in known:
            yield Problem(f"{where}.{key}", "is unknown")


def _mapping(data: Json) -> Mapping[str, Json]:
    return data if isinstance(data, dict) else {}
