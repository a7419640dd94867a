"""Reusing what was built before: keys of the build cache, complete payloads, compiled parts."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import onnx

from aotc.base.errors import AotcError
from aotc.base.files.names import data_files
from aotc.base.files.reading import file_sha256, open_plain
from aotc.base.records import record, replace
from aotc.graph.external_data import external_files, locations, path_with_data
from aotc.graph.model import model_bytes, parse_model, tensors
from aotc.pipeline.cache import ARTIFACT, PARTITION, BuildCache
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.request import BuildRequest
from aotc.pipeline.types import Artifact
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of
from aotc.sources.base import Importer
from aotc.sources.registry import importer_of
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.evidence import Evidence
from aotc.spec.json import canonical_json
from aotc.spec.payload import Finding
from aotc.spec.profile_files import without_folders
from aotc.spec.providers import RUNTIMES
from aotc.spec.run_report import PROOF, Gate, Journal, Measurement
from aotc.spec.variant import FUSING
from aotc.spec.versions import MANIFEST_SCHEMA, VERSION
from aotc.spec.yaml import DocumentPlaces

_PACKAGES = ("onnx", *RUNTIMES, *FUSING, "numpy", "ml_dtypes", "cryptography")
# Gates of variants that could not be made stand in no line of a profile.
_NO_SETTING: Final = frozenset({"variants"})
# The setting of gates that are not named by it.
_SETTINGS: Final = {PROOF: "unproven"}
_BLOCK_BYTES = 1 << 20


def artifact_key_parts(source: str, name: str, context: BuildContext) -> Json | None:
    """All that a payload depends on; None if data cannot be read, which the build reports.

    Nor is anything known of a metric that is a function of the user's, so None for that too.

    These are `source`, the digest of the model with its external data; the resolved profile and
    target; the toolchain with its passes; every provider's fingerprint; the CPU that computes the
    reference; the fixtures, the data that is calibrated and judged with, and libraries of custom
    operators.
    """
    task = context.profile.gates.task
    if task is not None and task.runs_code:
        return None
    try:
        data = data_digests(context)
        fixtures = fixtures_digest(context)
    except (OSError, ValueError, EOFError):
        return None
    profile = context.profile
    names = {name for variant in profile.variants for name in variant.providers or ()}
    names |= {*profile.providers, *(name for order in profile.tune.providers for name in order)}
    return {
        "model": source,
        "name": name,
        "profile": encode(without_folders(profile), full=True),
        "target": encode(context.target, full=True),
        "host": [context.host.os, context.host.architecture, *sorted(context.host.isa or ())],
        "fixtures": fixtures,
        "data": data,
        "custom_ops": [encode(library.described, full=True) for library in context.custom_ops],
        "tries_static": context.tries_static,
        "tries_half": context.tries_half,
        "embed_fixtures": context.embed_fixtures,
        "aotc": source_digest(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "providers": {
            name: _fingerprint(backend_of(name, profile.plugins)) for name in sorted(names)
        },
    }


def _fingerprint(backend: Backend) -> str:
    if not backend.probe().available:
        return "missing"
    return backend.fingerprint() + ("" if backend.probe().runs else "; cannot run here")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


@record(kw_only=False)
class CachedBuild:
    """The entry of one build in the cache, whether it exists or not."""

    cache: BuildCache
    key: str
    title: str


def cache_slot(source: str | None, name: str, state: BuildState) -> CachedBuild | None:
    """The cache entry for a model with the digest `source`; None without a cache or digest."""
    if state.cache is None or source is None:
        return None
    parts = artifact_key_parts(source, name, state.context)
    if parts is None:
        return None
    title = f"{name}, profile {state.context.profile.name}"
    return CachedBuild(state.cache, state.cache.key(ARTIFACT, parts), title)


def cached_artifact(
    slot: CachedBuild, folder: Path, state: BuildState
) -> tuple[Artifact, Evidence] | None:
    """The artifact, with a verified payload in `folder/payload`; None if it is not in the cache.

    What its first build judged and measured is written into the journal.
    """
    payload = folder / "payload"
    payload.mkdir(parents=True)
    document = slot.cache.get(slot.key, payload)
    if document is None:
        payload.rmdir()
        folder.rmdir()
        return None
    try:
        evidence = decode(Evidence, document["evidence"])
        findings = tuple(decode(Finding, finding) for finding in document["findings"])
        tell_judgements(document["judged"], state.journal, state.context.places)
    except (ParseError, KeyError, TypeError) as error:
        raise RuntimeError(f"a cached build cannot be read: {error}") from error
    state.journal.model_sha256 = evidence.model_sha256
    digests: Mapping[str, str] = document["digests"]
    artifact = Artifact(
        folder=folder,
        artifact_id=digests["aotc.json"],
        digests=digests,
        payload_bytes=document["payload_bytes"],
        proven=(),
        findings=findings,
    )
    return artifact, evidence


def store_build(
    slot: CachedBuild, artifact: Artifact, evidence: Evidence, journal: Journal
) -> None:
    """Store a finished build in the cache, with what was judged."""
    document: Json = {
        "title": slot.title,
        "evidence": encode(evidence),
        "findings": [encode(finding) for finding in artifact.findings],
        "judged": kept_judgements(journal),
        "digests": dict(artifact.digests),
        "payload_bytes": artifact.payload_bytes,
    }
    payload = artifact.folder / "payload"
    slot.cache.put(slot.key, payload, sorted(artifact.digests), document, digests=artifact.digests)


def kept_judgements(journal: Journal) -> Json:
    """Gates and measurements as data; without places, as another profile may be equal."""
    return {
        "gates": [encode(replace(gate, place=None)) for gate in journal.gates],
        "measurements": [encode(each) for each in journal.measurements],
    }


def tell_judgements(kept: Json, journal: Journal, places: DocumentPlaces) -> None:
    """Write down what was kept, with the places of this build's profile.

    Raises KeyError, TypeError or ParseError if it is not what `kept_judgements` made.
    """
    for item in kept["gates"]:
        gate = decode(Gate, item)
        setting = _SETTINGS.get(gate.name, gate.name)
        place = None if gate.name in _NO_SETTING else places.of(setting)
        journal.judged((replace(gate, place=place),))
    journal.measured(decode(Measurement, item) for item in kept["measurements"])


# Digests of the inputs of a build: models with their external data, folders, constants.


def model_digest(model: str | Path | bytes) -> str | None:
    """The digest of a model with its external data; None if the build will refuse them."""
    try:
        return _model_digest(model)
    except (AotcError, OSError, ValueError, LookupError, TypeError, EOFError):
        return None


def _model_digest(model: str | Path | bytes) -> str:
    importer = importer_of(model)
    if importer is not None:
        return _source_digest(importer, str(model))
    if isinstance(model, bytes):
        parse_model(model, Path("model"))
        return hashlib.sha256(model).hexdigest()
    # The name is part of the key.
    str(model).encode()
    path = Path(model)
    data = model_bytes(path)
    digest = hashlib.sha256(data)
    held = tuple(tensors(parse_model(data, path)))
    for file in external_files(held, path_with_data(locations(held), path)):
        digest.update(f"{file.location}\0{file.sha256}".encode())
    return digest.hexdigest()


def _source_digest(importer: Importer, source: str) -> str:
    """That of a framework's source: of its files, and of the versions of what captures it."""
    files = importer.files(source)
    if not files:
        raise ValueError(source)
    digest = hashlib.sha256(f"{importer.name} {sorted(importer.versions().items())}".encode())
    for file in files:
        digest.update(f"{file.name}\0{file_sha256(file)}".encode())
    return digest.hexdigest()


def folder_digest(folder: Path) -> str:
    """The digest of all test data in a folder with its names, or of one file; raises `OSError`.

    What no build reads is no part of it, and what it reads behind links is.
    """
    digest = hashlib.sha256()
    for path in data_files(folder):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        digest.update(bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()


def data_digests(context: BuildContext) -> dict[str, str]:
    """The sha256 of the data that a profile or its command names, by purpose and file name.

    That of a folder is `folder_digest`, and its name is no part of it.  Raises `OSError`.
    """
    task = context.profile.gates.task
    found: dict[str, str] = {}
    for purpose, path in (
        ("calibration", context.calibration),
        ("task", Path(task.data) if task is not None else None),
    ):
        if path is None:
            continue
        if path.is_file():
            found[f"{purpose}/{path.name}"] = file_sha256(path)
        else:
            found[purpose] = folder_digest(path)
    return found


def fixtures_digest(context: BuildContext) -> str:
    """The digest of the user's fixtures; empty without any.  Raises `OSError`."""
    return folder_digest(context.fixtures) if context.fixtures is not None else ""


def inputs_digests(request: BuildRequest, context: BuildContext) -> dict[str, str] | None:
    """Digests of all that a build reads of the user's; None if something cannot be read.

    So it is where code of a source may run, as nobody knows what that reads.
    """
    if request.trust_source and importer_of(request.source) is not None:
        return None
    digest = model_digest(request.source)
    if digest is None:
        return None
    try:
        data = data_digests(context)
        if request.source_options:
            data["options"] = hashlib.sha256(canonical_json(request.source_options)).hexdigest()
            digest = hashlib.sha256(f"{digest} {data['options']}".encode()).hexdigest()
        return {"model": digest, "fixtures": fixtures_digest(context), **data}
    except (OSError, ValueError, EOFError):
        return None


def constants_digest(model: onnx.ModelProto, weights: Path) -> str:
    """The digest of all external constants of a graph, in order; they are in `weights`."""
    digest = hashlib.sha256()
    for tensor in tensors(model):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        if "location" not in entry:
            continue
        left = int(entry.get("length", "0"))
        with open_plain(weights / entry["location"]) as file:
            file.seek(int(entry.get("offset", "0")))
            while left and (block := file.read(min(left, _BLOCK_BYTES))):
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()


@cache
def source_digest() -> str:
    """The digest of all source files: passes decide the bytes too, beyond the version."""
    return sources_digest(Path(__file__).parents[1], VERSION, MANIFEST_SCHEMA)


def sources_digest(package: Path, version: str, manifest: str) -> str:
    """That of the aotc in the folder `package`, of this version, which writes that manifest."""
    digest = hashlib.sha256(f"{version} {manifest}".encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


# Compiled parts in the build cache.


def part_key(
    request: Mapping[str, Json],
    part: onnx.ModelProto,
    text: bytes,
    weights: Path,
    backend: Backend,
    state: BuildState,
) -> str:
    """The key of what `compile_job` makes from `request`; empty without a cache.

    `text` is `part` serialized; its external data is in the folder `weights`.
    """
    if state.cache is None:
        return ""
    parts = {
        **request,
        "graph": hashlib.sha256(text).hexdigest(),
        "constants": constants_digest(part, weights),
        "fingerprint": backend.fingerprint(),
        "aotc": source_digest(),
        "host": sorted(state.context.host.isa or ()),
    }
    return state.cache.key(PARTITION, parts)


def cached_or_compiled(
    request: Mapping[str, Json],
    key: str,
    weights: Path,
    folder: Path,
    where: str,
    state: BuildState,
) -> Json:
    """Read a compiled part from the cache into `folder`, or compile and store it.

    A stored part remains if another part or variant fails.
    """
    cache = state.cache
    if cache is not None and (found := cache.get(key, folder)) is not None:
        return found
    value = state.workers.run(
        "aotc.pipeline.lower:compile_job",
        {**request, "weights": str(weights)},
        folder=folder,
        where=where,
    ).value
    if cache is not None:
        cache.put(key, folder, value["files"], {**value, "title": request["stem"]})
    return value
