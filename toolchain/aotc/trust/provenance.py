"""SLSA provenance v1: the inputs, software and options that an artifact was built with.

Source: slsa.dev/spec/v1.0/provenance.  It has names of files, but not of folders, hosts or users.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import os
import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from aotc.base.errors import AotcError
from aotc.base.files.names import data_files
from aotc.base.files.reading import file_sha256
from aotc.base.records import field, record, replace
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import BUILD_TYPE, LOCAL_BUILDER, MERGE_TYPE, format_instant
from aotc.spec.codec import Json, encode
from aotc.spec.json import canonical_json
from aotc.spec.manifest import Manifest
from aotc.spec.providers import BY_ORT_NAME, RUNTIMES
from aotc.spec.target import Target
from aotc.spec.versions import RELEASE, VERSION

BUILDER_VARIABLE: Final = "AOTC_BUILDER_ID"
# Distributions that read, compile, encode or sign; their requirements are added.
_ROOTS: Final = (
    *("onnx", *RUNTIMES, "numpy", "ml_dtypes"),
    *("rfc8785", "PyYAML", "cryptography", "cyclonedx-python-lib"),
)
# What the command line and the build import besides.
_OF_COMMANDS: Final = ("typer", "rich", "PyYAML", "rfc8785", "cryptography", "onnx-ir")
# Files of a .dist-info folder that no wheel has.
OF_INSTALLERS: Final = frozenset(
    {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
)
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[!-~]+", re.ASCII)

TAG: Final = "tag"
"""What stands for the CI's tag in place of a version."""
# GitLab's, Buildkite's and CircleCI's own documentation of the variables of a job.
_TAG_VARIABLES: Final = ("CI_COMMIT_TAG", "BUILDKITE_TAG", "CIRCLE_TAG")


@record
class Library:
    """A Python distribution.

    `sha256` is the digest of what `digest_of` names: its RECORD, or its list of files without one.
    `contents` is that of its files alone, whatever installed them; empty where one has no digest.
    """

    name: str
    version: str
    sha256: str
    digest_of: str = "RECORD"
    licences: tuple[str, ...] = ()
    contents: str = ""

    @property
    def purl(self) -> str:
        """The package URL (purl specification, type pypi)."""
        return f"pkg:pypi/{_normalized(self.name)}@{self.version.replace('+', '%2B')}"


@record
class BuildLabel:
    """What the builder states about itself and the build; `invocation` and `release` may be empty.

    `builder` is a URI, `invocation` the id of the run, and `release` the version of the artifact.
    """

    builder: str
    invocation: str = ""
    release: str = ""


@record
class Materials:
    """The inputs and the environment of a build; times are in UTC.

    `model` is the name of its file.  `given` maps names of fixtures, and of other data that the
    manifest does not list, to their sha256.  `source_sha256` is the digest of the source of aotc.
    `target` describes what it was built for, without names.  `cached` says that the payload is that
    of an earlier build with equal inputs and tools.
    """

    model: str
    label: BuildLabel
    started: datetime.datetime
    finished: datetime.datetime
    given: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    target: Mapping[str, Json] = field(default_factory=dict)
    source_sha256: str
    cached: bool = False
    licence: str = ""


def build_label(builder_id: str | None, invocation: str = "", release: str = "") -> BuildLabel:
    """The label of a build; the builder defaults to $AOTC_BUILDER_ID or urn:aotc:builder:local.

    `release` is a version such as 1.4.0, or "tag" for that of the tag which the CI builds.
    Raises AOTC-I027 if the builder's id is not a URI, or `release` is not a version; and what
    `release_of_tag` does.
    """
    if release == TAG:
        release = release_of_tag()
    found, where = builder_id, "--builder-id"
    if found is None:
        found, where = os.environ.get(BUILDER_VARIABLE) or LOCAL_BUILDER, f"${BUILDER_VARIABLE}"
    if release and not re.fullmatch(RELEASE, release):
        raise AotcError(
            "AOTC-I027",
            "the release is not a version",
            where="--release",
            expected="one to four numbers, such as 1.4.0, or nothing for the CI's tag",
            found=release,
        )
    if not _URI.fullmatch(found):
        raise AotcError(
            "AOTC-I027",
            "the builder's id is not a URI",
            where=where,
            expected="such as https://ci.example.com/builders/1 or urn:example:builder",
            found=found,
        )
    return BuildLabel(builder=found, invocation=invocation, release=release)


def build_predicate(manifest: Manifest, materials: Materials, libraries: Iterable[Library]) -> Json:
    """The provenance predicate of the artifact with this manifest, as JSON-like data."""
    metadata_: dict[str, Json] = {
        "startedOn": format_instant(materials.started),
        "finishedOn": format_instant(materials.finished),
    }
    if materials.label.invocation:
        metadata_["invocationId"] = materials.label.invocation
    parameters: dict[str, Json] = {
        "model": materials.model,
        "profile": manifest.profile,
        "target": {
            "name": manifest.target,
            "sha256": manifest.target_sha256,
            **({"described": dict(materials.target)} if materials.target else {}),
        },
        "options": dict(materials.options),
    }
    if materials.label.release:
        parameters["version"] = materials.label.release
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": parameters,
            "internalParameters": {
                "python": manifest.toolchain.python,
                "onnxruntime_build": manifest.toolchain.onnxruntime_build,
                "host": dict(materials.host),
                "from_cache": materials.cached,
                "environment": _environment(libraries),
            },
            "resolvedDependencies": _dependencies(manifest, materials, libraries),
        },
        "runDetails": {
            "builder": {"id": materials.label.builder, "version": {"aotc": VERSION}},
            "metadata": metadata_,
        },
    }


def merge_predicate(
    merged: Mapping[str, Mapping[str, str]],
    statements: Mapping[str, Json],
    label: BuildLabel,
    started: datetime.datetime,
) -> Json:
    """The provenance predicate of an artifact that was merged from others, as JSON-like data.

    `merged` has the sha256 of the bundles of each, by its id and their usage; `statements` are the
    predicates of their provenance, by that bundle's sha256.  They are kept whole, and the materials
    of all are its own as well.
    """
    times: dict[str, Json] = {
        "startedOn": format_instant(started),
        "finishedOn": format_instant(datetime.datetime.now(datetime.UTC)),
    }
    if label.invocation:
        times["invocationId"] = label.invocation
    parameters: dict[str, Json] = {"artifacts": sorted(merged)}
    if label.release:
        parameters["version"] = label.release
    materials = [
        _resource(f"sha256-{artifact_id}", artifact_id, role="artifact", of="aotc.json")
        for artifact_id in sorted(merged)
    ]
    for artifact_id, bundles in sorted(merged.items()):
        materials += [
            _resource(f"sha256-{artifact_id}: {usage}", digest, role="attestation")
            for usage, digest in sorted(bundles.items())
        ]
    known: dict[bytes, Json] = {}
    for _, predicate in sorted(statements.items()):
        for each in predicate["buildDefinition"]["resolvedDependencies"]:
            known.setdefault(canonical_json(each), each)
    return {
        "buildDefinition": {
            "buildType": MERGE_TYPE,
            "externalParameters": parameters,
            "internalParameters": {
                "python": platform.python_version(),
                "provenance": dict(sorted(statements.items())),
            },
            "resolvedDependencies": [*materials, *known.values()],
        },
        "runDetails": {
            "builder": {"id": label.builder, "version": {"aotc": VERSION}},
            "metadata": times,
        },
    }


def _normalized(name: str) -> str:
    """The normalized name of a distribution (packaging.python.org, name normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def libraries(manifest: Manifest) -> tuple[Library, ...]:
    """The installed distributions that decide the bytes of an artifact, with their requirements.

    They are sorted by name.  Those of an execution provider are included if a variant uses it, and
    those that rewrite graphs if they rewrote one; optional requirements are included only if they
    are listed here by name.
    """
    used = {name for variant in manifest.variants for name in variant.providers}
    known = [BY_ORT_NAME[name] for name in used if name in BY_ORT_NAME]
    wanted = [*_ROOTS, *(root for row in known for root in row.distributions)]
    for variant in manifest.variants:
        wanted += (name for change in variant.passes for name in change.libraries)
    found = with_requirements(wanted)
    return tuple(found[key] for key in sorted(found))


def with_requirements(names: Iterable[str], known: Iterable[Library] = ()) -> dict[str, Library]:
    """The distributions of these names that are installed, and what they require, by name.

    `known` are some of them with all that they require.
    """
    found = {_normalized(each.name): each for each in known}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        key = _normalized(name)
        if key in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[key] = _library(distribution)
        wanted += _required(distribution.requires or ())
    return found


class BuildInputs(Protocol):
    """The arguments of a build that its provenance states."""

    @property
    def source(self) -> str | Path | bytes:
        """The path of the model, or its bytes."""

    @property
    def dims(self) -> Mapping[str, str | int] | None:
        """Ranges and sizes of dims by name, as the user wrote them."""

    @property
    def fixtures(self) -> str | Path | None:
        """The user's fixtures: a file or a folder."""

    @property
    def tuned_from(self) -> str | Path | None:
        """The artifact or evidence whose tuning is used."""

    @property
    def licence(self) -> str:
        """The license of the model, as an SPDX expression."""


def gather_materials(
    inputs: BuildInputs,
    *,
    label: BuildLabel,
    started: datetime.datetime,
    options: Mapping[str, Json],
    host: Target,
    target: Target,
    source_sha256: str,
    cached: bool,
    data: Mapping[str, str],
) -> Materials:
    """The materials of a build that ends now, with digests of the files that it was given.

    `data` maps names of data that the options state to their sha256.
    """
    given = (
        Path(path) if path is not None else None for path in (inputs.fixtures, inputs.tuned_from)
    )
    return Materials(
        model="model" if isinstance(inputs.source, bytes) else Path(inputs.source).name,
        label=label,
        started=started,
        finished=datetime.datetime.now(datetime.UTC),
        given={**given_digests(*given), **data},
        options={
            "dims": {name: str(text) for name, text in (inputs.dims or {}).items()},
            **options,
        },
        host=describe_host(host),
        target=encode(replace(target, description="", extra={}, custom_ops={}), full=True),
        source_sha256=source_sha256,
        cached=cached,
        licence=inputs.licence,
    )


def describe_host(host: Target) -> dict[str, str]:
    """The properties of a build host that can decide bytes, without names."""
    return {"os": host.os, "architecture": host.architecture, "isa": " ".join(host.isa or ())}


def given_digests(fixtures: Path | None, tuned_from: Path | None) -> dict[str, str]:
    """The sha256 of the files that a build read besides the model, by purpose and name."""
    found: dict[str, str] = {}
    if fixtures is not None and fixtures.is_file():
        found[f"fixtures/{fixtures.name}"] = file_sha256(fixtures)
    elif fixtures is not None:
        for path in data_files(fixtures):
            found[f"fixtures/{path.relative_to(fixtures).as_posix()}"] = file_sha256(path)
    if tuned_from is not None:
        evidence = tuned_from / KINDS["evidence"].path
        place = evidence if tuned_from.is_dir() else tuned_from
        found[f"tuning/{place.name}"] = file_sha256(place)
    return found


def _dependencies(
    manifest: Manifest, materials: Materials, libraries: Iterable[Library]
) -> list[Json]:
    source = manifest.source
    found: list[Json] = []
    name, role = materials.model, "model"
    if (framework := source.framework) is not None:
        stated = {"revision": framework.revision} if framework.revision else {}
        found = [
            _resource(file.name, file.sha256, role="model", size=str(file.size), **stated)
            for file in framework.files
        ]
        name, role = f"{manifest.name}.onnx", "exported model"
    found.append(_resource(name, source.sha256, role=role, size=str(source.size)))
    found += [
        _resource(file.location, file.sha256, role="external data", size=str(file.size))
        for file in source.external_data
    ]
    found += [
        _resource(name, digest, role="given") for name, digest in sorted(materials.given.items())
    ]
    found.append(
        _resource("aotc", materials.source_sha256, role="toolchain", version=VERSION, of="sources")
    )
    found += [
        {
            **_resource(
                library.name,
                library.sha256,
                role="library",
                version=library.version,
                of=library.digest_of,
            ),
            "uri": library.purl,
        }
        for library in libraries
    ]
    found += [
        _resource(plugin.name, plugin.sha256, role="plugin", version=plugin.version, of="libraries")
        for plugin in manifest.toolchain.plugins
        if plugin.sha256 is not None
    ]
    found += [
        _resource(library.name, library.sha256, role="custom operators", size=str(library.size))
        for library in manifest.custom_ops
    ]
    return found


def _environment(libraries: Iterable[Library]) -> Json:
    """What an environment needs to build this again: aotc's own form, and every distribution.

    Those are `libraries`, which decide bytes, and what the command line requires.
    """
    found = with_requirements(_OF_COMMANDS, libraries)
    return {
        "aotc": installed_form(),
        "implementation": platform.python_implementation().lower(),
        "packages": [
            {"name": each.name, "version": each.version, "contents": each.contents}
            for _, each in sorted(found.items())
        ],
    }


def installed_form() -> Literal["release", "checkout"]:
    """Whether this aotc is installed from a wheel, or is a checkout, which is no release."""
    try:
        distribution = metadata.distribution("aotc")
    except metadata.PackageNotFoundError:
        return "checkout"
    own = Path(__file__).resolve().parents[1]
    installed = Path(str(distribution.locate_file("aotc"))).resolve()
    return "release" if installed == own else "checkout"


def _resource(name: str, sha256: str, **notes: str) -> dict[str, Json]:
    """A ResourceDescriptor of the in-toto attestation framework v1."""
    return {
        "name": name,
        "digest": {"sha256": sha256},
        "annotations": {key: value for key, value in notes.items() if value},
    }


def _library(distribution: metadata.Distribution) -> Library:
    # RECORD lists itself without a digest; reading it as text would change its line ends.
    text = distribution.read_text("RECORD") or ""
    own = re.search(r"^(.+\.dist-info/RECORD),,$", text, re.MULTILINE)
    if own is not None:
        listed = Path(str(distribution.locate_file(own[1]))).read_bytes()
    else:
        listed = "".join(
            f"{file}\n" for file in sorted(map(str, distribution.files or ()))
        ).encode()
    # Each look at a distribution's metadata reads the whole of it.
    about = distribution.metadata
    return Library(
        name=about["Name"],
        version=about["Version"],
        sha256=hashlib.sha256(listed).hexdigest(),
        digest_of="RECORD" if own is not None else "names of files",
        licences=_licences(about.json),
        contents=contents_digest(text),
    )


def contents_digest(record_text: str) -> str:
    """The sha256 (hex) of the files that the text of a RECORD lists, by path and digest.

    It is the same for a wheel and for whatever installed it: what an installer writes is left out,
    such as scripts, compiled files and its own notes.  Empty where a file has no sha256.
    Source: packaging.python.org, recording installed projects, and binary distribution format.
    """
    rows = []
    for path, digest, *_ in csv.reader(record_text.splitlines()):
        folder, _, name = path.rpartition("/")
        if path.startswith(("../", "/")) or name.endswith(".pyc"):
            continue
        if folder.endswith(".dist-info") and name in OF_INSTALLERS:
            continue
        if not digest.startswith("sha256="):
            return ""
        rows.append(f"{path} {digest}")
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest() if rows else ""


def _licences(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The licenses in metadata as JSON: an SPDX expression (PEP 639), classifiers, or a name."""
    if expression := about.get("license_expression"):
        return (str(expression),)
    prefix = "License :: "
    named = tuple(
        classifier.rpartition(" :: ")[2]
        for classifier in about.get("classifier", ())
        if classifier.startswith(prefix) and classifier != f"{prefix}OSI Approved"
    )
    text = str(about.get("license", "")).strip()
    # Some distributions put the complete license text there.
    return (text,) if text and "\n" not in text and len(text) <= 100 else named


def _required(lines: Iterable[str]) -> list[str]:
    """The names of unconditional requirements (PEP 508), whether installed or not."""
    names = []
    for line in lines:
        needed, _, marker = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", needed)
        if match and "extra" not in marker:
            names.append(match[1])
    return names


def release_of_tag() -> str:
    """The version in the tag of this CI job: `1.4.0` of the tag `1.4.0` or `v1.4.0`.

    The tag is $GITHUB_REF_NAME where $GITHUB_REF_TYPE is "tag", else the first of $CI_COMMIT_TAG,
    $BUILDKITE_TAG and $CIRCLE_TAG that is set.  Raises AOTC-I068 without a tag, and I069 if the tag
    is not a version.
    """
    variable, tag = _tag()
    version = tag.removeprefix("v")
    if not re.fullmatch(RELEASE, version):
        raise AotcError(
            "AOTC-I069",
            "the tag of this CI job is not a version",
            where=f"${variable}",
            expected="one to four numbers, such as 1.4.0 or v1.4.0",
            found=tag,
        )
    return version


def _tag() -> tuple[str, str]:
    """The variable with the tag, and the tag."""
    if os.environ.get("GITHUB_REF_TYPE") == "tag" and os.environ.get("GITHUB_REF_NAME"):
        return "GITHUB_REF_NAME", os.environ["GITHUB_REF_NAME"]
    for name in _TAG_VARIABLES:
        if os.environ.get(name):
            return name, os.environ[name]
    branch = os.environ.get("GITHUB_REF_NAME") or os.environ.get("CI_COMMIT_BRANCH") or ""
    raise AotcError(
        "AOTC-I068",
        "there is no tag to take the release from",
        where="--release",
        expected="a CI job that a tag started, or a version",
        found=f"a job for {branch}" if branch else "",
    )
