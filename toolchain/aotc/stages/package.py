"""Package and sign: the payload as an ORT model package, its manifest, its attestations."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from aotc.contract.codec.canonical import canonical_json, canonical_sha256
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import AcceptedWaiver, Manifest
from aotc.contract.manifest.ort_package import provider_options, session_options
from aotc.contract.manifest.payload_files import FileEntry, Fixture, FixtureTensor
from aotc.contract.manifest.toolchain import Toolchain
from aotc.contract.manifest.variant import DroppedVariant, Variant
from aotc.contract.profile import Profile
from aotc.contract.target import Plugin, Target
from aotc.contract.versions import MANIFEST_SCHEMA, VERSION
from aotc.errors import AotcError
from aotc.files.names import file_name
from aotc.stages.assembling.file_entries import file_entry
from aotc.stages.assembling.variant_entry import ort_version, variant_entry
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import AnalyzedModel, Artifact, ProvenModel, ReferenceRun


def package(
    proven: Sequence[ProvenModel],
    dropped: Sequence[DroppedVariant],
    findings: Sequence[Finding],
    weights: Sequence[FileEntry],
    folder: Path,
    options: BuildOptions,
) -> Artifact:
    """Write the payload of all variants into `folder/payload`; raises AOTC-M001.

    `weights` are the entries of the shared asset's files, digested while the variants were proven.
    """
    payload = folder / "payload"
    payload.mkdir(parents=True)
    analyzed = proven[0].lowered.partitioned.optimized.specialized.analyzed
    asset, entries = _weights(proven[0].lowered.weights, weights, payload)
    for before in {one.lowered.partitioned.weights for one in proven}:
        # Files that were kept as they are have a second name there, and no artifact may.
        shutil.rmtree(before, ignore_errors=True)
    variants = []
    for one in proven:
        variant = variant_entry(one, asset, options)
        place = payload / variant.model
        place.parent.mkdir(parents=True)
        shutil.move(one.lowered.model, place)
        entries.append(file_entry(place, payload, "model"))
        for context in one.lowered.contexts:
            shutil.move(context, place.with_name(context.name))
            entries.append(file_entry(place.with_name(context.name), payload, "ep-context"))
        variants.append(variant)
    fixtures = _fixtures(analyzed, payload, options)
    if not fixtures and options.profile.fixtures.max_count:
        limit = options.profile.fixtures.max_bytes
        why = f"none fits fixtures.max_bytes ({limit} bytes): loads are not accepted by example"
        findings = (*findings, Finding(code="AOTC-N006", what=why))
    for fixture in fixtures:
        for tensor in (*fixture.inputs, *fixture.outputs):
            entries.append(file_entry(payload / tensor.path, payload, "fixture"))
    (payload / "manifest.json").write_bytes(canonical_json(_ort_manifest(analyzed, variants)))
    entries.append(file_entry(payload / "manifest.json", payload, "package"))
    entries.sort(key=lambda entry: entry.path)
    document = encode(_manifest(analyzed, variants, dropped, fixtures, entries, findings, options))
    text = canonical_json(document)
    (payload / "aotc.json").write_bytes(text)
    digests = {entry.path: entry.sha256 for entry in entries}
    digests["aotc.json"] = hashlib.sha256(text).hexdigest()
    total = sum(entry.size for entry in entries) + len(text)
    budget = options.profile.budgets.artifact_bytes
    if budget is not None and total > budget:
        raise AotcError(
            "AOTC-M001",
            "the payload is larger than its budget",
            where="budgets.artifact_bytes",
            expected=f"<= {budget} bytes",
            found=f"{total} bytes",
        )
    return Artifact(
        folder=folder,
        artifact_id=digests["aotc.json"],
        digests=digests,
        payload_bytes=total,
        proven=tuple(proven),
        findings=tuple(findings),
    )


def digest_weights(folder: Path) -> tuple[FileEntry, ...]:
    """Entries of the shared asset's files, by name, relative to `folder`."""
    return tuple(file_entry(file, folder, "weights") for file in sorted(folder.iterdir()))


def _weights(
    source: Path, entries: Sequence[FileEntry], payload: Path
) -> tuple[str | None, list[FileEntry]]:
    """Move the shared asset in, under the URI that ORT's package library computes for it."""
    if not entries:
        return None, []
    lines = "".join(f"{entry.sha256}  {entry.path}\n" for entry in entries)
    name = f"shared_assets/sha256-{hashlib.sha256(lines.encode()).hexdigest()}"
    (payload / name).parent.mkdir()
    shutil.move(source, payload / name)
    return name, [replace(entry, path=f"{name}/{entry.path}") for entry in entries]


def _fixtures(analyzed: AnalyzedModel, payload: Path, options: BuildOptions) -> tuple[Fixture, ...]:
    """Small golden fixtures; the user's own data only where asked for."""
    spec = options.profile.fixtures
    kept: list[Fixture] = []
    total = 0
    for reference in sorted(analyzed.references, key=_embedding_order):
        if reference.origin == "user" and not options.embed_fixtures:
            continue
        files = (*reference.inputs.values(), *reference.outputs.values())
        size = sum(path.stat().st_size for path in files)
        if len(kept) == spec.max_count or total + size > spec.max_bytes:
            continue
        total += size
        kept.append(
            Fixture(
                name=reference.name,
                origin="user" if reference.origin == "user" else "generated",
                sizes=reference.sizes,
                inputs=_copied(reference.inputs, reference.name, payload),
                outputs=_copied(reference.outputs, reference.name, payload),
            )
        )
    return tuple(kept)


def _embedding_order(reference: ReferenceRun) -> tuple[bool, bool, int]:
    """The user's, then the optimal shape, then the smallest: every load runs what is embedded."""
    size = sum(path.stat().st_size for path in reference.inputs.values())
    return reference.origin != "user", reference.name != "opt", size


def _copied(files: Mapping[str, Path], name: str, payload: Path) -> tuple[FixtureTensor, ...]:
    result = []
    for value, source in files.items():
        path = f"fixtures/{file_name(name)}/{source.name}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, payload / path)
        result.append(FixtureTensor(name=value, path=path))
    return tuple(result)


def _ort_manifest(analyzed: AnalyzedModel, variants: Sequence[Variant]) -> Json:
    """ORT's own manifest: a component for each of our variants, so that only we route by ISA."""
    components: dict[str, Json] = {}
    for variant in variants:
        ort: dict[str, Json] = {
            "model_file": "model.onnx",
            "session_options": session_options(variant),
        }
        if options := provider_options(variant):
            ort["provider_options"] = options
        described: dict[str, Json] = {
            "variant_directory": variant.model.rpartition("/")[0],
            "ep": variant.providers[0],
            "executor_info": {"ort": ort},
        }
        if text := variant.requirements.compatibility.get(variant.providers[0]):
            described["compatibility_string"] = text
        held = components.setdefault(variant.component, {"variants": {}})
        held["variants"][variant.name] = described
    return {
        "schema_version": "1.0",
        "package_name": analyzed.source.name,
        "layout": "portable",
        "components": components,
        "additional_metadata": {"aotc": {"manifest": "aotc.json", "schema": MANIFEST_SCHEMA}},
    }


def _manifest(
    analyzed: AnalyzedModel,
    variants: Sequence[Variant],
    dropped: Sequence[DroppedVariant],
    fixtures: Sequence[Fixture],
    entries: Sequence[FileEntry],
    findings: Sequence[Finding],
    options: BuildOptions,
) -> Manifest:
    profile = encode(_without_folders(options.profile), full=True)
    routed = analyzed.padding is not None or any(variant.buckets for variant in variants)
    return Manifest(
        schema=MANIFEST_SCHEMA,
        required_features=(
            *(("ep-context",) if any(e.role == "ep-context" for e in entries) else ()),
            *(("rejected-routes",) if any(each.rejects for each in dropped) else ()),
            "shape-domain",
            *(("shape-routing",) if routed else ()),
            "shared-weights",
        ),
        name=analyzed.source.name,
        source=analyzed.source.capture,
        profile=profile,
        profile_sha256=canonical_sha256(profile),
        target=options.target.name,
        target_sha256=canonical_sha256(_kind(options.target)),
        toolchain=Toolchain(
            aotc=VERSION,
            python=platform.python_version(),
            onnx=metadata.version("onnx"),
            onnxruntime=ort_version(),
            onnxruntime_build=_build_info(),
            numpy=metadata.version("numpy"),
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
            AcceptedWaiver(code=each.code, variant=each.variant, reason=each.reason)
            for each in options.profile.waivers
        ),
        fixtures=tuple(fixtures),
        files=tuple(entries),
    )


def _without_folders(profile: Profile) -> Profile:
    """Libraries of plugins by their names: where they are is told by each host."""
    plugins = {
        name: replace(spec, library=Path(spec.library).name)
        for name, spec in profile.plugins.items()
    }
    return replace(profile, plugins=plugins)


def _plugins(variants: Sequence[Variant]) -> tuple[Plugin, ...]:
    found = {each.name: each for one in variants for each in one.requirements.plugins}
    return tuple(found[name] for name in sorted(found))


def _kind(target: Target) -> Json:
    """What decides the artifact: not the versions that a probed host happens to have."""
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
