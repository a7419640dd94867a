"""Whether aotc.json, ORT's manifest.json and the list of signed files agree.

ORT reads manifest.json only, so it must state exactly what aotc.json promises: applications of ORT
would load an additional component, or use a session option that was not proven.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from typing import Final

from aotc.contract.codec.parsing import Json, Problem
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.ort_package import provider_options, session_options
from aotc.contract.manifest.variant import Variant
from aotc.contract.provider_keys import option_problem
from aotc.contract.session_keys import MANIFEST_KEYS, MAX_THREADS, MAX_VALUE_BYTES

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
