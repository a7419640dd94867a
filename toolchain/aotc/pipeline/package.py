"""Package: the payload as an ORT model package, with our manifest."""

from __future__ import annotations

import hashlib
import itertools
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Final

from aotc.base.errors import EXIT_NO, AotcError
from aotc.base.files.names import file_name
from aotc.base.files.reading import file_sha256
from aotc.base.progress import BYTES, Tally
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.graph.allowed_arrays import seen_values
from aotc.graph.partition.division import total_transfers
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.view import IN_PLACE, shared_buffers
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.integer_products import products_of
from aotc.pipeline.types import (
    AnalyzedModel,
    Artifact,
    LoweredModel,
    ProvenModel,
    ReferenceRun,
)
from aotc.precision.half_conversion import HALF_TYPES
from aotc.session.decisions import needs_margins
from aotc.spec.allowed_values import AllowedValues
from aotc.spec.codec import Json, encode
from aotc.spec.json import canonical_json, canonical_sha256
from aotc.spec.manifest import AcceptedWaiver, Manifest, provider_options, session_options
from aotc.spec.payload import CHUNK_BYTES, FileEntry, Finding, Fixture, FixtureTensor, Role
from aotc.spec.profile import Profile
from aotc.spec.profile_files import stated_profile
from aotc.spec.providers import CAPTURING, CPU, RUNTIMES, runtime_range
from aotc.spec.run_report import Gate, Measurement
from aotc.spec.shapes import EMPTY
from aotc.spec.target import Libc, Plugin, Target
from aotc.spec.variant import (
    DroppedVariant,
    PartitionReport,
    Requirements,
    Toolchain,
    TransferTotals,
    Variant,
)
from aotc.spec.versions import MANIFEST_SCHEMA, VERSION, release

# What generated fixtures may take of an artifact whose model is smaller.
_GENERATED_BYTES: Final = 256_000


def package(
    proven: Sequence[ProvenModel],
    dropped: Sequence[DroppedVariant],
    findings: Sequence[Finding],
    weights: Sequence[FileEntry],
    folder: Path,
    state: BuildState,
) -> Artifact:
    """Write the payload of all variants to `folder/payload`; raises AOTC-M001.

    `weights` are the entries of the shared asset's files, hashed while the variants were proven.
    """
    context = state.context
    payload = folder / "payload"
    payload.mkdir(parents=True)
    analyzed = proven[0].lowered.analyzed
    asset, entries = move_weights(proven[0].lowered.weights, weights, payload)
    for old_weights in {item.lowered.partitioned.claimed.weights for item in proven}:
        # Unchanged files have a hard link there, which no artifact may contain.
        shutil.rmtree(old_weights, ignore_errors=True)
    entries += _ship_libraries(payload, context)
    variants = []
    for item in proven:
        variant = variant_entry(item, asset, context)
        place = payload / variant.model
        place.parent.mkdir(parents=True)
        shutil.move(item.lowered.model, place)
        entries.append(file_entry(place, payload, "model"))
        for compiled in item.lowered.contexts:
            shutil.move(compiled, place.with_name(compiled.name))
            entries.append(file_entry(place.with_name(compiled.name), payload, "ep-context"))
        variants.append(variant)
    fixtures = ship_fixtures(analyzed, proven, payload, context)
    findings = (*findings, *_without_fixture(fixtures, proven, context))
    for fixture in fixtures:
        for tensor in (*fixture.inputs, *fixture.outputs):
            entries.append(file_entry(payload / tensor.path, payload, "fixture"))
    (payload / "manifest.json").write_bytes(
        canonical_json(ort_manifest(analyzed.source.name, variants))
    )
    entries.append(file_entry(payload / "manifest.json", payload, "package"))
    entries.sort(key=lambda entry: entry.path)
    ranges = {} if fixtures else input_ranges(analyzed, proven)
    document = encode(
        manifest_of(analyzed, variants, dropped, fixtures, ranges, entries, findings, context)
    )
    text = canonical_json(document)
    (payload / "aotc.json").write_bytes(text)
    digests = {entry.path: entry.sha256 for entry in entries}
    digests["aotc.json"] = hashlib.sha256(text).hexdigest()
    total = sum(entry.size for entry in entries) + len(text)
    _judge_size(total, state)
    return Artifact(
        folder=folder,
        artifact_id=digests["aotc.json"],
        digests=digests,
        payload_bytes=total,
        proven=tuple(proven),
        findings=tuple(findings),
    )


def _ship_libraries(payload: Path, context: BuildContext) -> list[FileEntry]:
    """Copy the libraries of custom operators that the artifact ships."""
    entries = []
    for library in context.custom_ops:
        if library.described.path is not None:
            place = payload / library.described.path
            place.parent.mkdir(parents=True)
            shutil.copyfile(library.file, place)
            entries.append(file_entry(place, payload, "custom-ops"))
    return entries


def _judge_size(total: int, state: BuildState) -> None:
    """Compare the payload's bytes with their budget; raises AOTC-M001."""
    subject = "payload"
    state.journal.measured((Measurement(name="size", subject=subject, value=total, unit="B"),))
    budget = state.context.profile.budgets.artifact_bytes
    if budget is None:
        return
    place = state.context.places.of("budgets.artifact_bytes")
    gate = Gate(
        name="budgets.artifact_bytes",
        subject=subject,
        status="failed" if total > budget else "passed",
        limit=f"<= {budget} bytes",
        measured=f"{total} bytes",
        place=place,
    )
    state.journal.judged((gate,))
    if total > budget:
        raise AotcError(
            "AOTC-M001",
            "the payload is larger than its budget",
            where="budgets.artifact_bytes",
            expected=gate.limit,
            found=gate.measured,
            place=place,
        )


def size_breach(
    variants: Sequence[ProvenModel],
    weights: Sequence[FileEntry],
    folder: Path,
    state: BuildState,
) -> AotcError | None:
    """The AOTC-M001 of a build that other gates refuse, if the profile limits its size.

    Its payload is made to be measured, in `folder`, and never published.
    """
    if state.context.profile.budgets.artifact_bytes is None or not variants:
        return None
    try:
        package(variants, (), (), weights, folder, state)
    except AotcError as error:
        if error.exit_status != EXIT_NO:
            raise
        return error
    return None


def weight_bytes(folder: Path) -> Tally:
    """Counts the bytes that `digest_weights` goes through."""
    return Tally(sum(file.stat().st_size for file in folder.iterdir()), BYTES)


def digest_weights(folder: Path, tally: Tally) -> tuple[FileEntry, ...]:
    """Entries of the shared asset's files, by name, relative to `folder`."""
    return tuple(
        file_entry(file, folder, "weights", tally.add) for file in sorted(folder.iterdir())
    )


def move_weights(
    source: Path, entries: Sequence[FileEntry], payload: Path
) -> tuple[str | None, list[FileEntry]]:
    """Move the shared asset to the URI that ORT's package library computes for it."""
    if not entries:
        return None, []
    lines = "".join(f"{entry.sha256}  {entry.path}\n" for entry in entries)
    name = f"shared_assets/sha256-{hashlib.sha256(lines.encode()).hexdigest()}"
    (payload / name).parent.mkdir()
    shutil.move(source, payload / name)
    return name, [replace(entry, path=f"{name}/{entry.path}") for entry in entries]


def _without_fixture(
    fixtures: Sequence[Fixture], proven: Sequence[ProvenModel], context: BuildContext
) -> Iterator[Finding]:
    """AOTC-N006 for each variant that no shipped fixture speaks of; one if none is shipped."""
    spec = context.profile.fixtures
    if not spec.max_count:
        return
    unfit = []
    for item in proven:
        name = item.plan.name
        if any(name not in fixture.excluded_variants for fixture in fixtures):
            continue
        runs = item.lowered.analyzed.references_of(item.plan)
        if not context.embed_fixtures and all(run.origin == "user" for run in runs):
            yield Finding(
                code="AOTC-N006",
                what="it was only compared on the user's data, which is not in the artifact "
                "without --embed-fixtures, so loads cannot compare outputs",
                where=f"variant {name}",
            )
        else:
            unfit.append(f"variant {name}")
    limits = f"fixtures.max_bytes ({spec.max_bytes} bytes)"
    if fixtures:
        limits = f"fixtures.max_count ({spec.max_count}) and {limits}"
    elif len(unfit) == len(proven):
        unfit = [""]
    for where in unfit:
        yield Finding(
            code="AOTC-N006",
            what=f"no fixture fits {limits}, so loads cannot compare outputs",
            where=where,
        )


def file_entry(
    path: Path, root: Path, role: Role, count: Callable[[int], None] = lambda size: None
) -> FileEntry:
    """Size and digests of a file; the chunks of a large one are hashed in parallel.

    `count` is called with the size of each block of it, once.
    """
    size = path.stat().st_size
    chunks: tuple[str, ...] = ()
    if size > CHUNK_BYTES:
        with ThreadPoolExecutor(2) as pool:
            complete = pool.submit(file_sha256, path, told=count)
            starts = range(0, size, CHUNK_BYTES)
            chunks = tuple(pool.map(lambda start: file_sha256(path, start, CHUNK_BYTES), starts))
            digest = complete.result()
    else:
        digest = file_sha256(path, told=count)
    return FileEntry(
        path=path.relative_to(root).as_posix(),
        size=size,
        sha256=digest,
        role=role,
        chunks=chunks,
    )


def ort_manifest(name: str, variants: Sequence[Variant]) -> Json:
    """ORT's manifest of the package `name`.

    It has one component per variant of ours, so that only we route by ISA.
    """
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
        "package_name": name,
        "layout": "portable",
        "components": components,
        "additional_metadata": {"aotc": {"manifest": "aotc.json", "schema": MANIFEST_SCHEMA}},
    }


def _captures_apart(variants: Sequence[Variant]) -> bool:
    graphs = (variant.cuda_graphs for variant in variants)
    return any(each is not None and each.sessions == "each" for each in graphs)


def _states_half_activations(profile: Profile) -> bool:
    stated = (profile.quantization, *(spec.quantization for spec in profile.variants))
    return any(each is not None and each.activations in HALF_TYPES for each in stated)


def manifest_of(
    analyzed: AnalyzedModel,
    variants: Sequence[Variant],
    dropped: Sequence[DroppedVariant],
    fixtures: Sequence[Fixture],
    ranges: Mapping[str, AllowedValues],
    entries: Sequence[FileEntry],
    findings: Sequence[Finding],
    context: BuildContext,
) -> Manifest:
    """Our manifest, `aotc.json`, of a payload with these variants and files."""
    profile = stated_profile(context.profile)
    routed = analyzed.padding is not None or any(variant.buckets for variant in variants)
    random = analyzed.source.random
    return Manifest(
        schema=MANIFEST_SCHEMA,
        required_features=(
            *(("captured-apart",) if _captures_apart(variants) else ()),
            *(("captured-sizes",) if any(variant.cuda_graphs for variant in variants) else ()),
            *(("custom-ops",) if context.custom_ops else ()),
            *(("ep-context",) if any(e.role == "ep-context" for e in entries) else ()),
            *(("fixture-variants",) if any(each.excluded_variants for each in fixtures) else ()),
            *(("half-activations",) if _states_half_activations(context.profile) else ()),
            *(("output-gates",) if any(variant.parity.gates for variant in variants) else ()),
            *(("random-seeds",) if random is not None and random.draws else ()),
            *(("rejected-routes",) if any(variant.rejects for variant in dropped) else ()),
            *(("shape-routing",) if routed else ()),
            *(("stated-values",) if any(each.allowed for each in analyzed.source.inputs) else ()),
        ),
        name=analyzed.source.name,
        source=analyzed.source.capture,
        profile=profile,
        profile_sha256=canonical_sha256(profile),
        target=context.target.name,
        target_sha256=traits_sha256(context.target),
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
        strict=context.profile.strict,
        findings=tuple(findings),
        variants=tuple(variants),
        dropped=tuple(dropped),
        waivers=tuple(
            AcceptedWaiver(code=waiver.code, variant=waiver.variant, reason=waiver.reason)
            for waiver in context.profile.waivers
        ),
        fixtures=tuple(fixtures),
        input_ranges=ranges,
        branches=analyzed.branches or (),
        random=random,
        files=tuple(entries),
    )


def _rewriting_libraries(variants: Sequence[Variant]) -> dict[str, str]:
    """The versions of what rewrote a graph, beside what every build uses."""
    used = {name for item in variants for change in item.passes for name in change.libraries}
    return {name.replace("-", "_"): metadata.version(name) for name in sorted(used)}


def _plugins(variants: Sequence[Variant]) -> tuple[Plugin, ...]:
    found = {plugin.name: plugin for variant in variants for plugin in variant.requirements.plugins}
    return tuple(found[name] for name in sorted(found))


def traits_sha256(target: Target) -> str:
    """Of what of the target decides the artifact, without the versions that a probed host has."""
    return canonical_sha256(
        encode(
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
    )


def _build_info() -> str:
    from aotc.session.sessions import import_onnxruntime

    return str(import_onnxruntime().get_build_info())


def wheel_libc() -> str | None:
    """The minimum glibc of the ONNX Runtime wheel, from its manylinux tag."""
    for name in RUNTIMES:
        try:
            text = metadata.distribution(name).read_text("WHEEL") or ""
        except metadata.PackageNotFoundError:
            continue
        found = sorted((int(m[1]), int(m[2])) for m in re.finditer(r"manylinux_(\d+)_(\d+)", text))
        if found:
            return f"{found[0][0]}.{found[0][1]}"
    return None


def ort_version() -> str:
    """The version of the installed ONNX Runtime distribution."""
    for name in RUNTIMES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "0"


def ship_fixtures(
    analyzed: AnalyzedModel, proven: Sequence[ProvenModel], payload: Path, context: BuildContext
) -> tuple[Fixture, ...]:
    """Copy small golden fixtures into the payload; the user's own data only if requested.

    That is their fixtures and, for statically quantized variants, samples of the calibration data.
    A run that no variant was compared with is left out, and one that a variant only passes by how
    narrowly the original decided: a load does not know that.  Generated ones are together no larger
    than the model, or 256 kB; where none is so small, the smallest ships alone.
    """
    spec = context.profile.fixtures
    possible = []
    for reference in _in_order(analyzed):
        if reference.origin == "user" and not context.embed_fixtures:
            continue
        without = tuple(
            item.plan.name
            for item in proven
            if reference not in analyzed.references_of(item.plan)
            or _passes_narrowly(item, reference.name)
        )
        if len(without) < len(proven):
            files = (*reference.inputs.values(), *reference.outputs.values())
            size = sum(path.stat().st_size for path in files)
            possible.append(_Shippable(reference, without, size))
    capture = analyzed.source.capture
    model_bytes = capture.size + sum(file.size for file in capture.external_data)
    left, generated = spec.max_bytes, max(_GENERATED_BYTES, model_bytes)
    kept: list[_Shippable] = []
    for one in possible:
        user = one.reference.origin == "user"
        if len(kept) < spec.max_count and one.size <= (left if user else min(left, generated)):
            kept.append(one)
            left -= one.size
            generated -= 0 if user else one.size
    # Without any, a load of a variant compares no answers: the smallest then, whatever the model.
    for name in (item.plan.name for item in proven):
        speaking = [one for one in possible if name not in one.without]
        smallest = min(speaking, key=lambda one: one.size, default=None)
        if smallest is None or any(one in kept for one in speaking):
            continue
        if len(kept) < spec.max_count and smallest.size <= left:
            kept.append(smallest)
            left -= smallest.size
    return tuple(
        Fixture(
            name=one.reference.name,
            origin="user" if one.reference.origin == "user" else "generated",
            sizes=one.reference.sizes,
            excluded_variants=one.without,
            inputs=_copied(one.reference.inputs, one.reference.name, payload),
            outputs=_copied(one.reference.outputs, one.reference.name, payload),
        )
        for one in kept
    )


def input_ranges(
    analyzed: AnalyzedModel, proven: Sequence[ProvenModel]
) -> dict[str, AllowedValues]:
    """By input, what values it had in the runs that variants were compared with.

    At the optimal sizes, as bounds of an index may depend on them; else at any.  Nothing is said of
    text that is the user's.
    """
    compared = {run.first_output: run for one in proven for run in analyzed.references_of(one.plan)}
    optimal = {name: dim.opt for name, dim in analyzed.domain.dims.items()}
    runs = [run for run in compared.values() if optimal.items() <= run.sizes.items()]
    runs = runs or list(compared.values())
    private = any(run.origin == "user" for run in runs)
    found: dict[str, AllowedValues] = {}
    for value in analyzed.source.inputs:
        if value.kind == "tensor" and not (value.allowed and value.allowed.values):
            arrays = [values.load(run.inputs[value.name]) for run in runs]
            seen = seen_values(arrays, private=private)
            found |= {value.name: seen} if seen is not None else {}
    return found


@record(kw_only=False)
class _Shippable:
    """A run that may ship: the variants that it says nothing of, and its bytes."""

    reference: ReferenceRun
    without: tuple[str, ...]
    size: int


def _passes_narrowly(proven: ProvenModel, fixture: str) -> bool:
    return any(
        needs_margins(error)
        for comparison in proven.evidence.comparisons
        if comparison.fixture == fixture
        for error in comparison.outputs
    )


def _in_order(analyzed: AnalyzedModel) -> Iterator[ReferenceRun]:
    """The user's fixtures first, which speak of all variants; samples are last then.

    Without them a sample and a generated one in turn, as no variant is compared with both.  The
    optimal shape is the first of the generated ones, the others are by size: every load runs
    embedded fixtures.
    """
    ordered = sorted(
        _with_elements(analyzed.references), key=lambda run: (run.name != "opt", _input_bytes(run))
    )
    given = [run for run in ordered if run.origin == "user"]
    generated = [run for run in ordered if run.origin != "user"]
    samples = sorted(_with_elements(analyzed.sampled), key=_input_bytes)
    if given:
        yield from (*given, *generated, *samples)
        return
    for pair in itertools.zip_longest(samples, generated):
        yield from (run for run in pair if run is not None)


def _with_elements(runs: Iterable[ReferenceRun]) -> Iterator[ReferenceRun]:
    """Those that show something at a load."""
    return (run for run in runs if not run.name.startswith(EMPTY))


def _input_bytes(reference: ReferenceRun) -> int:
    return sum(path.stat().st_size for path in reference.inputs.values())


def _copied(files: Mapping[str, Path], name: str, payload: Path) -> tuple[FixtureTensor, ...]:
    result = []
    for value, source in files.items():
        path = f"fixtures/{file_name(name)}/{source.name}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, payload / path)
        result.append(FixtureTensor(name=value, path=path))
    return tuple(result)


def variant_entry(proven: ProvenModel, asset: str | None, context: BuildContext) -> Variant:
    """The entry of one variant; `asset` is the folder of the shared weights in the payload."""
    lowered = proven.lowered
    optimized = lowered.optimized
    specialized = optimized.specialized
    plan = specialized.plan
    target = context.target
    feature = exact_feature(target.isa)
    # Without a feature that makes them exact, integer products are proven for CPUs like this one.
    like_this_host = bool(optimized.saturating) and not feature and target.isa == context.host.isa
    exact = plan.isa == "host" or like_this_host
    folder = f"{specialized.component}/{plan.name}"
    model = f"{folder}/model.onnx"
    operators = lowered.analyzed.source.operators
    custom_ops = tuple(
        replace(library.described, operators=operators.get(library.described.sha256, ()))
        for library in context.custom_ops
    )
    major, minor = (*release(ort_version()), 0)[:2]
    first, last = runtime_range(lowered.providers, (major, minor))
    return Variant(
        name=plan.name,
        spec=plan.spec,
        buckets=plan.buckets,
        component=specialized.component,
        providers=lowered.providers,
        device=lowered.device,
        precision=plan.precision,
        model=model,
        weights=asset,
        files=(
            model,
            *(f"{asset}/{name}" for name in lowered.files),
            *(f"{folder}/{context.name}" for context in lowered.contexts),
            *(library.path for library in custom_ops if library.path is not None),
        ),
        session=lowered.session,
        domain=specialized.domain,
        shape_nodes=optimized.shape_nodes[1],
        shape_nodes_dropped=max(0, optimized.shape_nodes[0] - optimized.shape_nodes[1]),
        passes=optimized.passes,
        placement=proven.placement,
        transfers=total_transfers(lowered.report.transfers) if lowered.report else TransferTotals(),
        partitioning=_with_payload_paths(lowered.report, folder) if lowered.report else None,
        memory=lowered.memory,
        cuda_graphs=lowered.cuda_graphs,
        in_place=_in_place(lowered),
        integer_products=products_of(optimized, context),
        computed_products=optimized.computed,
        parity=proven.parity,
        requirements=Requirements(
            os=target.os,
            architecture=target.architecture,
            libc=_libc(target, [library.glibc for library in context.custom_ops]),
            isa=tuple(
                sorted(
                    {
                        *(target.isa or () if exact else ()),
                        *([feature] if plan.isa == "vnni" or optimized.saturating else ()),
                    }
                    - {""}
                )
            ),
            isa_exact=exact,
            onnxruntime_min=f"{first[0]}.{first[1]}.0",
            onnxruntime_below=f"{last[0]}.{last[1] + 1}",
            providers=lowered.providers,
            custom_ops=custom_ops,
            compatibility=lowered.compatibility,
        ).merged(lowered.needs),
    )


def _in_place(lowered: LoweredModel) -> dict[str, str]:
    """Outputs that may have the buffer of an input, where ONNX Runtime's own kernels run them."""
    import onnx

    operators = {op for _, op in lowered.optimized.nodes}
    own = {CPU, CAPTURING.ort_name}.issuperset(lowered.providers)
    if not own or not operators & IN_PLACE:
        return {}
    return shared_buffers(onnx.load(lowered.model, load_external_data=False))


def _with_payload_paths(report: PartitionReport, folder: str) -> PartitionReport:
    """The report with the files of compiled partitions as paths inside the payload."""
    return replace(
        report,
        partitions=tuple(
            replace(partition, file=f"{folder}/{partition.file}") if partition.file else partition
            for partition in report.partitions
        ),
    )


def _libc(target: Target, libraries: Iterable[str]) -> Libc | None:
    """The target's C library; glibc in the version of ONNX Runtime's wheel, or a later one that one
    of the `libraries` needs."""
    if target.libc is None or target.libc.name != "glibc":
        return target.libc
    needed = [version for version in (wheel_libc(), *libraries) if version]
    return Libc(name="glibc", version=max(needed, key=release, default=None))
