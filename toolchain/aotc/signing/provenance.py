"""SLSA provenance v1: from what, by what and how an artifact was built.

Source: slsa.dev/spec/v1.0/provenance.  Names are those of files, never of folders, hosts or users.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final, Protocol

from aotc.contract.attestation_kinds import KINDS
from aotc.contract.codec.parsing import Json
from aotc.contract.known_providers import BY_ORT_NAME, RUNTIMES
from aotc.contract.manifest.document import Manifest
from aotc.contract.target import Target
from aotc.contract.trust.attestations import BUILD_TYPE, LOCAL_BUILDER, format_instant
from aotc.contract.versions import RELEASE, VERSION
from aotc.errors import AotcError
from aotc.records import field, record

BUILDER_VARIABLE: Final = "AOTC_BUILDER_ID"
# Distributions that read, compile, encode or sign; what they require belongs to them.
_ROOTS: Final = (
    *("onnx", *RUNTIMES, "numpy", "ml_dtypes"),
    *("rfc8785", "PyYAML", "cryptography", "cyclonedx-python-lib"),
)
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[!-~]+", re.ASCII)


@record
class Library:
    """A Python distribution.  `sha256` is `of` its RECORD, or of its list of files without one."""

    name: str
    version: str
    sha256: str
    of: str = "RECORD"
    licences: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """Its package URL (purl specification, type pypi)."""
        return f"pkg:pypi/{_normalized(self.name)}@{self.version.replace('+', '%2B')}"


@record
class Label:
    """What the builder says of itself and of what it builds; empty: nothing."""

    builder: str
    invocation: str = ""
    release: str = ""


@record
class Materials:
    """What a build was given and ran with; moments in UTC.

    `model` is the file's name; `given` holds sha256 by name of fixtures and of other files that
    the manifest does not list; `source_sha256` is of this toolchain's own source; `cached` says
    that the payload is that of an earlier build, of equal inputs and tools.
    """

    model: str
    label: Label
    started: datetime.datetime
    finished: datetime.datetime
    given: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    source_sha256: str
    cached: bool = False
    licence: str = ""


def label(builder_id: str | None, invocation: str = "", release: str = "") -> Label:
    """The builder is `builder_id`, $AOTC_BUILDER_ID, or urn:aotc:builder:local.

    Raises I027 where that is no URI, and where `release` is no version such as 1.4.0.
    """
    where = "--builder-id" if builder_id is not None else f"${BUILDER_VARIABLE}"
    found = builder_id
    if found is None:
        found = os.environ.get(BUILDER_VARIABLE) or LOCAL_BUILDER
    if release and not re.fullmatch(RELEASE, release):
        raise AotcError(
            "AOTC-I027",
            "the release is no version",
            where="--release",
            expected="one to four numbers, such as 1.4.0",
            found=release,
        )
    if not _URI.fullmatch(found):
        raise AotcError(
            "AOTC-I027",
            "the builder's id is no URI",
            where=where,
            expected="such as https://ci.example.com/builders/1 or urn:example:builder",
            found=found,
        )
    return Label(builder=found, invocation=invocation, release=release)


def predicate(manifest: Manifest, materials: Materials, libraries: Iterable[Library]) -> Json:
    """The predicate, of an artifact with this manifest."""
    about: dict[str, Json] = {
        "startedOn": format_instant(materials.started),
        "finishedOn": format_instant(materials.finished),
    }
    if materials.label.invocation:
        about["invocationId"] = materials.label.invocation
    asked: dict[str, Json] = {
        "model": materials.model,
        "profile": manifest.profile,
        "target": {"name": manifest.target, "sha256": manifest.target_sha256},
        "options": dict(materials.options),
    }
    if materials.label.release:
        asked["version"] = materials.label.release
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": asked,
            "internalParameters": {
                "python": manifest.toolchain.python,
                "onnxruntime_build": manifest.toolchain.onnxruntime_build,
                "host": dict(materials.host),
                "from_cache": materials.cached,
            },
            "resolvedDependencies": _dependencies(manifest, materials, libraries),
        },
        "runDetails": {
            "builder": {"id": materials.label.builder, "version": {"aotc": VERSION}},
            "metadata": about,
        },
    }


def _normalized(name: str) -> str:
    """The one spelling of a distribution's name (packaging.python.org, name normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def libraries(manifest: Manifest) -> tuple[Library, ...]:
    """Installed distributions that decided the bytes of an artifact, with all that they require.

    Sorted by name.  Those of an execution provider count where a variant uses it, and an optional
    requirement where it is named here itself.
    """
    found: dict[str, Library] = {}
    used = {name for variant in manifest.variants for name in variant.providers}
    known = [BY_ORT_NAME[name] for name in used if name in BY_ORT_NAME]
    wanted = [*_ROOTS, *(root for row in known for root in row.distributions)]
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
    return tuple(found[key] for key in sorted(found))


class Asked(Protocol):
    """What a build was asked for, as far as its provenance tells it."""

    @property
    def model(self) -> str | Path | bytes:
        """A path, or the bytes of the model."""

    @property
    def dims(self) -> Mapping[str, str | int] | None:
        """Ranges and sizes by name, as they were written."""

    @property
    def fixtures(self) -> str | Path | None:
        """The user's own inputs: a file or a folder."""

    @property
    def tuned_from(self) -> str | Path | None:
        """The artifact or evidence whose choice is repeated."""

    @property
    def licence(self) -> str:
        """Of the model, in SPDX."""


def gather(
    asked: Asked,
    *,
    label: Label,
    started: datetime.datetime,
    options: Mapping[str, Json],
    host: Target,
    source_sha256: str,
    cached: bool,
) -> Materials:
    """The materials of a build that ends now, with the files it was given."""
    given = (
        Path(each) if each is not None else None for each in (asked.fixtures, asked.tuned_from)
    )
    return Materials(
        model="model" if isinstance(asked.model, bytes) else Path(asked.model).name,
        label=label,
        started=started,
        finished=datetime.datetime.now(datetime.UTC),
        given=_given(*given),
        options={
            "dims": {name: str(text) for name, text in (asked.dims or {}).items()},
            **options,
        },
        host=describe(host),
        source_sha256=source_sha256,
        cached=cached,
        licence=asked.licence,
    )


def describe(host: Target) -> dict[str, str]:
    """What of a build host may decide bytes; no names."""
    return {"os": host.os, "architecture": host.architecture, "isa": " ".join(host.isa or ())}


def _given(fixtures: Path | None, tuned_from: Path | None) -> dict[str, str]:
    """sha256 of what a build read besides the model, by what it is for and its name there."""
    found: dict[str, str] = {}
    if fixtures is not None and fixtures.is_file():
        found[f"fixtures/{fixtures.name}"] = _sha256(fixtures)
    elif fixtures is not None:
        for each in sorted(fixtures.rglob("*")):
            if each.is_file():
                found[f"fixtures/{each.relative_to(fixtures).as_posix()}"] = _sha256(each)
    if tuned_from is not None:
        evidence = tuned_from / KINDS["evidence"].path
        place = evidence if tuned_from.is_dir() else tuned_from
        found[f"tuning/{place.name}"] = _sha256(place)
    return found


def _dependencies(
    manifest: Manifest, materials: Materials, libraries: Iterable[Library]
) -> list[Json]:
    source = manifest.source
    found: list[Json] = [
        _resource(materials.model, source.sha256, role="model", size=str(source.size))
    ]
    found += [
        _resource(each.location, each.sha256, role="external data", size=str(each.size))
        for each in source.external_data
    ]
    found += [
        _resource(name, digest, role="given") for name, digest in sorted(materials.given.items())
    ]
    found.append(
        _resource("aotc", materials.source_sha256, role="toolchain", version=VERSION, of="sources")
    )
    found += [
        {
            **_resource(each.name, each.sha256, role="library", version=each.version, of=each.of),
            "uri": each.purl,
        }
        for each in libraries
    ]
    found += [
        _resource(each.name, each.sha256, role="plugin", version=each.version, of="libraries")
        for each in manifest.toolchain.plugins
        if each.sha256 is not None
    ]
    return found


def _resource(name: str, sha256: str, **notes: str) -> dict[str, Json]:
    """A ResourceDescriptor of the in-toto attestation framework v1."""
    return {
        "name": name,
        "digest": {"sha256": sha256},
        "annotations": {key: value for key, value in notes.items() if value},
    }


def _library(distribution: metadata.Distribution) -> Library:
    # RECORD lists itself, without a digest; read as text it would have other ends of lines.
    text = distribution.read_text("RECORD") or ""
    own = re.search(r"^(.+\.dist-info/RECORD),,$", text, re.MULTILINE)
    if own is not None:
        listed = Path(str(distribution.locate_file(own[1]))).read_bytes()
    else:
        listed = "".join(
            f"{file}\n" for file in sorted(map(str, distribution.files or ()))
        ).encode()
    return Library(
        name=distribution.metadata["Name"],
        version=distribution.version,
        sha256=hashlib.sha256(listed).hexdigest(),
        of="RECORD" if own is not None else "names of files",
        licences=_licences(distribution),
    )


def _licences(distribution: metadata.Distribution) -> tuple[str, ...]:
    """As the metadata states them: an SPDX expression (PEP 639), else classifiers, else a name."""
    about = distribution.metadata.json
    if expression := about.get("license_expression"):
        return (str(expression),)
    prefix = "License :: "
    named = tuple(
        each.rpartition(" :: ")[2]
        for each in about.get("classifier", ())
        if each.startswith(prefix) and each != f"{prefix}OSI Approved"
    )
    text = str(about.get("license", "")).strip()
    # Some put the whole text there.
    return (text,) if text and "\n" not in text and len(text) <= 100 else named


def _required(lines: Iterable[str]) -> list[str]:
    """Names of unconditional requirements (PEP 508); what is not installed is left out later."""
    names = []
    for line in lines:
        needed, _, marker = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", needed)
        if match and "extra" not in marker:
            names.append(match[1])
    return names


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
