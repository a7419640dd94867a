"""What artifacts must agree on to become one, and the profile that tells of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.evidence import Evidence
from aotc.spec.json import canonical_json
from aotc.spec.manifest import Manifest, MergedBuild
from aotc.spec.precision import QUANTIZED, QuantizationSpec
from aotc.spec.profile import Budgets, Profile, TuneSpec, profile_of
from aotc.spec.profile_files import stated_profile
from aotc.spec.providers import CAPTURING
from aotc.spec.variant import Toolchain
from aotc.spec.versions import MANIFEST_SCHEMA, release

# What a profile says of the model and its calls, and what it promises of the answers: the rest is
# of a build and its host.
_INTERFACE: Final = ("dims", "inputs", "outputs", "relations")
_PROMISES: Final = (
    *("parity", "gates", "repeatability", "strict", "random", "fallback"),
    *("custom_ops", "telemetry"),
)
# Of a profile, and of a variant where it states another.
_OF_VARIANTS: Final = (
    *("providers", "precision", "goal", "quantization", "keep_float32"),
    CAPTURING.name,
)
# What no profile may exceed.
_MAX_VARIANTS: Final = 256
# How much of two values a message shows.
_SHOWN: Final = 200


@record(kw_only=False)
class Input:
    """An artifact that is merged: verified, with its statements, and its payload in `folder`.

    `statements` are the sha256 of the bundles by usage, which were verified as well.
    """

    path: Path
    artifact_id: str
    manifest: Manifest
    evidence: Evidence
    provenance: Json
    sbom: Json
    statements: Mapping[str, str]
    folder: Path

    @property
    def profile(self) -> Json:
        """Its profile as manifests of this release state one."""
        return stated_profile(profile_of(self.manifest))

    @property
    def runtime(self) -> tuple[int, ...]:
        """The minor version of ONNX Runtime that built it."""
        return release(self.manifest.toolchain.onnxruntime)[:2]


def in_canonical_order(inputs: Iterable[Input]) -> list[Input]:
    """The same order however they are given: the newest ONNX Runtime first, then by their ids.

    The first is taken for what all agree on.
    """
    ordered = sorted(inputs, key=lambda each: (each.artifact_id, each.statements["evidence"]))
    return sorted(ordered, key=lambda each: each.runtime, reverse=True)


def require_agreement(inputs: Sequence[Input]) -> None:
    """Raise what keeps the inputs from becoming one artifact, by each two that contradict.

    AOTC-I181 (another schema), I182 (one is given twice), I176 (other models), I177 (other
    interfaces or ranges), I178 (other promises).
    """
    for each in inputs:
        if each.manifest.schema != MANIFEST_SCHEMA:
            raise AotcError(
                "AOTC-I181",
                "the artifact has a manifest of another version",
                where=str(each.path),
                expected=MANIFEST_SCHEMA,
                found=each.manifest.schema,
            )
    first = inputs[0]
    for index, other in enumerate(inputs):
        for before in inputs[:index]:
            same = before.artifact_id == other.artifact_id
            if same and before.statements["evidence"] == other.statements["evidence"]:
                raise AotcError(
                    "AOTC-I182",
                    "an artifact is given twice",
                    where=f"{before.path}, {other.path}",
                    found=other.artifact_id,
                )
    for other in inputs[1:]:
        _compare("AOTC-I176", "the artifacts are of different models", first, other, _source)
        _compare("AOTC-I177", "the artifacts take different calls", first, other, _interface)
        _compare("AOTC-I178", "the artifacts promise different things", first, other, _promises)


def require_one_name(inputs: Sequence[Input], names: Sequence[Mapping[str, str]]) -> None:
    """Raise AOTC-I182 if a build is in two of the inputs, and its variants would be here twice.

    `names` are those of each input's variants here.
    """
    found: dict[str, tuple[Input, Mapping[str, str]]] = {}
    for each, renamed in zip(inputs, names, strict=True):
        itself = {each.artifact_id: {name: name for name in renamed}}
        parts = {proof.artifact_id: proof.variants for proof in each.evidence.merged}
        for artifact_id, variants in (parts or itself).items():
            called = {old: renamed[name] for name, old in variants.items()}
            other, before = found.setdefault(artifact_id, (each, called))
            if before != called:
                raise AotcError(
                    "AOTC-I182",
                    "a build is in two of the artifacts, which call its variants differently",
                    where=f"{other.path}, {each.path}: sha256-{artifact_id}",
                    expected=_shown(before, called),
                    found=_shown(called, before),
                    fix="Merge each build once: leave out the artifact that is part of the other.",
                )


def _compare(
    code: str, what: str, one: Input, other: Input, told: Callable[[Manifest], Mapping[str, Json]]
) -> None:
    ours, theirs = told(one.manifest), told(other.manifest)
    for name, value in ours.items():
        if theirs[name] != value:
            raise AotcError(
                code,
                f"{what}: {name}",
                where=f"{one.path}, {other.path}",
                expected=_shown(value, theirs[name]),
                found=_shown(theirs[name], value),
            )


def _shown(value: Json, other: Json) -> str:
    """`value` in a line, without what `other` has as well."""
    if isinstance(value, dict) and isinstance(other, dict):
        differing = {key: item for key, item in value.items() if other.get(key) != item}
        value = differing or "(nothing)"
    if isinstance(value, dict) and len(value) == 1:
        (key, item), *_ = value.items()
        if isinstance(item, dict) and isinstance(other.get(key), dict):
            return f"{key}: {_shown(item, other[key])}"
    text = value if isinstance(value, str) else canonical_json(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _source(manifest: Manifest) -> Mapping[str, Json]:
    source = manifest.source
    framework = source.framework
    return {
        "name": manifest.name,
        "sha256 of the model": source.sha256,
        "external data": {file.location: file.sha256 for file in source.external_data},
        "source": {file.name: file.sha256 for file in framework.files} if framework else {},
    }


def _interface(manifest: Manifest) -> Mapping[str, Json]:
    stated = encode(profile_of(manifest), full=True)
    return {
        "inputs": [encode(value) for value in manifest.inputs],
        "outputs": [encode(value) for value in manifest.outputs],
        "ranges": encode(manifest.domain),
        "padding": encode(manifest.padding) if manifest.padding is not None else None,
        **{f"{name} of the profile": stated[name] for name in _INTERFACE},
    }


def _promises(manifest: Manifest) -> Mapping[str, Json]:
    stated = encode(profile_of(manifest), full=True)
    return {
        **{name: stated[name] for name in _PROMISES},
        "random numbers": encode(manifest.random) if manifest.random is not None else None,
    }


# How the inputs were built, which the manifest tells where they were not built alike.


def built_as(inputs: Sequence[Input], names: Sequence[Mapping[str, str]]) -> list[MergedBuild]:
    """How each was built, by id; `names` are those of variants here, by the name that it has."""
    found: dict[str, MergedBuild] = {}
    for each, renamed in zip(inputs, names, strict=True):
        manifest = each.manifest
        itself = MergedBuild(
            artifact_id=each.artifact_id,
            target=manifest.target,
            target_sha256=manifest.target_sha256,
            profile=each.profile,
            toolchain=manifest.toolchain,
            variants={variant.name: variant.name for variant in manifest.variants},
        )
        for one in manifest.merged or (itself,):
            found.setdefault(
                one.artifact_id,
                replace(one, variants={renamed[name]: own for name, own in one.variants.items()}),
            )
    return [found[artifact_id] for artifact_id in sorted(found)]


def built_alike(merged: Sequence[MergedBuild]) -> bool:
    """Whether one build on one of the hosts could have given all variants.

    That is so for one target, equal versions and one profile, but for the variants that it names.
    """

    def traits(each: MergedBuild) -> tuple[Json, ...]:
        bare = replace(each.toolchain, plugins=(), onnxscript="", onnx_ir="")
        profile = {name: value for name, value in each.profile.items() if name != "variants"}
        return each.target, each.target_sha256, bare, profile

    return all(traits(each) == traits(merged[0]) for each in merged)


def joined_toolchain(inputs: Sequence[Input]) -> Toolchain:
    """The versions of the first, with the plugins and libraries that any used."""
    tools = [each.manifest.toolchain for each in inputs]
    plugins = {plugin.name: plugin for tool in reversed(tools) for plugin in tool.plugins}
    return replace(
        tools[0],
        plugins=tuple(plugins[name] for name in sorted(plugins)),
        onnxscript=next((tool.onnxscript for tool in tools if tool.onnxscript), ""),
        onnx_ir=next((tool.onnx_ir for tool in tools if tool.onnx_ir), ""),
    )


def joined_target(merged: Sequence[MergedBuild]) -> str:
    """The names of all targets."""
    return ", ".join(sorted({each.target for each in merged}))


# One profile of all: what they agree on, and every variant of each.


def renamed_profile(profile: Json, specs: Mapping[str, str]) -> Json:
    """The profile of one input with the names that its variants have here."""
    changed = [
        {**each, "name": specs.get(each["name"], each["name"])} for each in profile["variants"]
    ]
    waivers = [
        {**each, "variant": specs.get(each.get("variant", ""), each.get("variant", ""))}
        for each in profile["waivers"]
    ]
    return {**profile, "variants": changed, "waivers": waivers}


def joined_profile(
    profiles: Sequence[Json], target: str, in_order: Callable[[Sequence[Sequence[str]]], list[str]]
) -> Json:
    """One profile with the variants of all `profiles`, which have their names here.

    What they state differently of all their variants stands at each variant.  `in_order` merges
    lists of names into one.  Raises AOTC-S017 for more variants than a profile can have.
    """
    first = profiles[0]
    joined = dict(first)
    apart = any(each[name] != first[name] for each in profiles for name in (*_OF_VARIANTS, "tune"))
    if apart:
        joined["quantization"] = encode(QuantizationSpec(), full=True)
    specs: dict[str, Json] = {}
    for profile in profiles:
        for spec in profile["variants"]:
            stated = dict(spec)
            for name in _OF_VARIANTS if apart else ():
                stated[name] = profile[name] if spec.get(name) is None else spec[name]
            if apart and stated["precision"] not in QUANTIZED:
                # It would have no effect, and a profile that says so is malformed.
                stated["quantization"] = None
            specs.setdefault(spec["name"], stated)
    chains = [[spec["name"] for spec in profile["variants"]] for profile in profiles]
    joined["variants"] = [specs[name] for name in in_order(chains)]
    joined["waivers"] = _distinct(waiver for profile in profiles for waiver in profile["waivers"])
    plugins: dict[str, Json] = {}
    for profile in reversed(profiles):
        plugins |= profile["plugins"]
    joined["plugins"] = plugins
    names = sorted({profile["name"] for profile in profiles})
    joined["name"] = re.sub(r"[^A-Za-z0-9._-]", "-", "_".join(names))[:64]
    if any(profile["description"] != first["description"] for profile in profiles):
        joined["description"] = ""
    for name, default in (("budgets", Budgets()), ("tune", TuneSpec())):
        if any(profile[name] != first[name] for profile in profiles):
            # Each variant is judged by the profile that it was built with.
            joined[name] = encode(default, full=True)
    joined["target"] = target
    joined["max_variants"] = max(profile["max_variants"] for profile in profiles)
    try:
        count = decode(Profile, {**joined, "max_variants": _MAX_VARIANTS}).variant_count()
    except ParseError as error:
        raise AotcError(
            "AOTC-S017",
            "the artifacts have more variants together than one can have",
            expected=f"at most {_MAX_VARIANTS}, by at most 64 of a profile",
            found=str(error.problems[0]),
            fix="Merge fewer of them.",
        ) from None
    joined["max_variants"] = max(joined["max_variants"], count)
    return joined


def _distinct(items: Iterable[Json]) -> list[Json]:
    found: dict[bytes, Json] = {}
    for item in items:
        found.setdefault(canonical_json(item), item)
    return list(found.values())
