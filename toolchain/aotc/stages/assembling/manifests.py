"""The two manifests of a payload: ONNX Runtime's, and ours."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata

from aotc.contract.codec.canonical import canonical_sha256
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import AcceptedWaiver, Manifest
from aotc.contract.manifest.ort_package import provider_options, session_options
from aotc.contract.manifest.payload_files import FileEntry, Fixture
from aotc.contract.manifest.toolchain import Toolchain
from aotc.contract.manifest.variant import DroppedVariant, Variant
from aotc.contract.profile_paths import without_folders
from aotc.contract.target import Plugin, Target
from aotc.contract.versions import MANIFEST_SCHEMA, VERSION
from aotc.stages.assembling.ort_wheel import ort_version
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import AnalyzedModel


def ort_manifest(analyzed: AnalyzedModel, variants: Sequence[Variant]) -> Json:
    """ORT's manifest: one component per variant of ours, so that only we route by ISA."""
    components: dict[str, Json] = {}
    for variant in variants:
        ort: dict[str, Json] = {
            "model_file": "model.onnx",
            "session_options": session_options(variant),
        }
        if options := provider_options(variant):
            ort["provider_options"] = options
        entry: dict[str, Json] = {
            "variant_directory": variant.model.rpartition("/")[0],
            "ep": variant.providers[0],
            "executor_info": {"ort": ort},
        }
        if text := variant.requirements.compatibility.get(variant.providers[0]):
            entry["compatibility_string"] = text
        component = components.setdefault(variant.component, {"variants": {}})
        component["variants"][variant.name] = entry
    return {
        "schema_version": "1.0",
        "package_name": analyzed.source.name,
        "layout": "portable",
        "components": components,
        "additional_metadata": {"aotc": {"manifest": "aotc.json", "schema": MANIFEST_SCHEMA}},
    }


def manifest_of(
    analyzed: AnalyzedModel,
    variants: Sequence[Variant],
    dropped: Sequence[DroppedVariant],
    fixtures: Sequence[Fixture],
    entries: Sequence[FileEntry],
    findings: Sequence[Finding],
    options: BuildOptions,
) -> Manifest:
    """Our manifest, `aotc.json`, of a payload with these variants and files."""
    profile = encode(without_folders(options.profile), full=True)
    routed = analyzed.padding is not None or any(variant.buckets for variant in variants)
    return Manifest(
        schema=MANIFEST_SCHEMA,
        required_features=(
            *(("captured-sizes",) if any(variant.graphs for variant in variants) else ()),
            *(("ep-context",) if any(e.role == "ep-context" for e in entries) else ()),
            *(("fixture-variants",) if any(each.without for each in fixtures) else ()),
            *(("output-gates",) if any(variant.parity.gates for variant in variants) else ()),
            *(("rejected-routes",) if any(variant.rejects for variant in dropped) else ()),
            "shape-domain",
            *(("shape-routing",) if routed else ()),
            "shared-weights",
        ),
        name=analyzed.source.name,
        source=analyzed.source.capture,
        profile=profile,
        profile_sha256=canonical_sha256(profile),
        target=options.target.name,
        target_sha256=canonical_sha256(_target_traits(options.target)),
        toolchain=Toolchain(
            aotc=VERSION,
            python=platform.python_version(),
            onnx=metadata.version("onnx"),
            onnxruntime=ort_version(),
            onnxruntime_build=_build_info(),
            numpy=metadata.version("numpy"),
            **_rewriting_libraries(variants),
            plugins=_plugins(variants),
        ),
        inputs=analyzed.source.inputs,
        outputs=analyzed.source.outputs,
        domain=analyzed.domain,
        shapes=analyzed.shapes,
        padding=analyzed.padding,
        strict=options.profile.strict,
        findings=tuple(findings),
        variants=tuple(variants),
        dropped=tuple(dropped),
        waivers=tuple(
            AcceptedWaiver(code=waiver.code, variant=waiver.variant, reason=waiver.reason)
            for waiver in options.profile.waivers
        ),
        fixtures=tuple(fixtures),
        files=tuple(entries),
    )


def _rewriting_libraries(variants: Sequence[Variant]) -> dict[str, str]:
    """The versions of what rewrote a graph, beside what every build uses."""
    used = {name for item in variants for change in item.passes for name in change.libraries}
    return {name.replace("-", "_"): metadata.version(name) for name in sorted(used)}


def _plugins(variants: Sequence[Variant]) -> tuple[Plugin, ...]:
    found = {plugin.name: plugin for variant in variants for plugin in variant.requirements.plugins}
    return tuple(found[name] for name in sorted(found))


def _target_traits(target: Target) -> Json:
    """What of the target decides the artifact, without the versions that a probed host has."""
    return encode(
        Target(
            schema=target.schema,
            name=target.name,
            os=target.os,
            architecture=target.architecture,
            libc=target.libc,
            isa=target.isa,
            compute_capabilities=target.compute_capabilities,
        )
    )


def _build_info() -> str:
    from aotc.engine.session import import_onnxruntime

    return str(import_onnxruntime().get_build_info())
