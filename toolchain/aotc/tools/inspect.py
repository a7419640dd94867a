"""What an artifact or a model says of itself; nothing of it is verified.

No signature is checked here: a report is UNVERIFIED, whatever it says.
Of an artifact only aotc.json and the attestations are read, never models or weights.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.base.files.reading import require_model_file
from aotc.base.records import record, replace
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, KINDS, Usage, kind_of
from aotc.spec.attestations import MERGE_TYPE, Approval, Qualification
from aotc.spec.buckets import routed_first, served_buckets
from aotc.spec.codec import Json, ParseError, decode
from aotc.spec.evidence import Comparison, Evidence, OutputError, VariantEvidence, worst_of
from aotc.spec.manifest import Manifest, unproven_findings
from aotc.spec.payload import Finding
from aotc.spec.precision import Traffic
from aotc.spec.reports import (
    ArtifactSummary,
    Claim,
    DimCoverage,
    InspectReport,
    LimitSummary,
    ProvenWhere,
    Refusal,
    ShapeReport,
    TrafficCoverage,
    VariantSummary,
)
from aotc.spec.shapes import Dim, Domain, sizes_in_words
from aotc.spec.trust_anchors import key_id
from aotc.spec.variant import Variant
from aotc.spec.versions import (
    KNOWN_FEATURES,
    MANIFEST_SCHEMA,
    artifact_name,
    artifact_path,
    stated_id,
    stated_reference,
)
from aotc.trust import dsse, statements
from aotc.trust.container import MAX_BUNDLES, MAX_BUNDLES_BYTES, Container, reread
from aotc.trust.development_key import default_trust
from aotc.trust.opening import identified, open_container, read_manifest

if TYPE_CHECKING:
    from aotc.spec.traffic import RecordedTraffic

_ZIP: Final = ".zip"


def inspect(
    path: str | Path, *, traffic: str | Path | None = None, trust_source: bool = False
) -> InspectReport:
    """Describe the artifact in a folder or a packed file, or a model: ONNX, or of a framework.

    `path` may also be `sha256-<id>` for an artifact in a store, or a reference `oci://…`.  Nothing
    is verified.  `traffic` is a file of recorded shapes: the report then says what the artifact
    would do with them.  Shapes are tuples of sizes and names of dims, dtypes have numpy's names,
    sizes are in bytes and times in seconds.  A framework's source is captured for that;
    `trust_source` allows code of it to run.

    Raises AOTC-I001 if there is nothing at `path`; I027 for the traffic of a model; S020 to S023
    for the traffic; G006, G008, G009, G010, G012, G015 and G039 if an artifact's aotc.json cannot
    be read; and for a model I001 to I007, I010, and I019 if onnx is not installed.
    """
    place = artifact_path(path)
    if stated_id(place) is None and stated_reference(place) is None and _is_model(place):
        if traffic is not None:
            raise AotcError(
                "AOTC-I027",
                "recorded shapes need an artifact, and this is a model",
                where=str(place),
                fix="Build it first, or leave the traffic out.",
            )
        return inspect_model(place, trust_source=trust_source)

    def read() -> InspectReport:
        with open_container(place) as container:
            return inspect_artifact(read_artifact(place, container), traffic)

    return reread(place, read, holds=lambda report: not report.problems)


@record
class ArtifactContents:
    """An open artifact: what it says of itself, and its container for what is read later."""

    path: Path
    container: Container
    manifest_json: Annotated[bytes, "aotc.json as it stands"]
    manifest: Manifest
    artifact_id: str
    claims: tuple[Claim, ...]
    evidence: Evidence | None
    problems: tuple[Refusal, ...]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payload, as the manifest lists them, with the manifest itself."""
        return sum(entry.size for entry in self.manifest.files) + len(self.manifest_json)

    def measured(self, variant: str) -> VariantEvidence | None:
        """What the build measured of a variant; None without evidence."""
        found = self.evidence.variants if self.evidence is not None else ()
        return next((each for each in found if each.name == variant), None)

    def predicates(self, usage: Usage) -> tuple[Json, ...]:
        """The predicates of attestations of one kind; those that cannot be read are left out."""
        found = []
        for claim in self.claims:
            if claim.predicate_type != KINDS[usage].predicate_type:
                continue
            try:
                content = self.container.read(claim.path, dsse.MAX_BUNDLE_BYTES)
                found.append(statements.read_unverified(content).predicate)
            except (AotcError, ParseError):
                # It is among the problems already.
                continue
        return tuple(found)


def read_artifact(path: Path, container: Container) -> ArtifactContents:
    """What the artifact at `path` says of itself, from its open container."""
    content, artifact_id = identified(container, path)
    manifest = read_manifest(content)
    problems: list[Refusal] = []
    claims, evidence = read_attestations(container, artifact_id, problems)
    return ArtifactContents(
        path=path,
        container=container,
        manifest_json=content,
        manifest=manifest,
        artifact_id=artifact_id,
        claims=claims,
        evidence=evidence,
        problems=tuple(problems),
    )


def inspect_artifact(opened: ArtifactContents, traffic: str | Path | None = None) -> InspectReport:
    """Describe an open artifact, as `inspect` does."""
    manifest, evidence = opened.manifest, opened.evidence
    sizes: dict[str, int] = {}
    for entry in manifest.files:
        sizes[entry.role] = sizes.get(entry.role, 0) + entry.size
    return InspectReport(
        kind="artifact",
        path=artifact_name(opened.path),
        name=manifest.name,
        source=manifest.source,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        domain=manifest.domain,
        strict=manifest.strict,
        artifact=ArtifactSummary(
            artifact_id=opened.artifact_id,
            profile=_profile_name(manifest.profile),
            target=manifest.target,
            toolchain=manifest.toolchain,
            claims=opened.claims,
            variants=tuple(
                _variant_summary(each, opened.measured(each.name)) for each in manifest.variants
            ),
            bytes_by_role=sizes,
            payload_bytes=opened.payload_bytes,
            files=len(manifest.files) + 1,
            fixtures=len(manifest.fixtures),
            shapes=_shapes(manifest, traffic),
            built_at=evidence.built_at if evidence is not None else "",
            tuning=evidence.tuning if evidence is not None else (),
            branches=manifest.branches,
            random=manifest.random,
            exported=_worst_of_each(evidence.exported) if evidence is not None else (),
            merged=proven_where(evidence) if evidence is not None else (),
        ),
        findings=(
            *manifest.findings,
            *unproven_findings(manifest, stated_reference(opened.path) or opened.path.name),
            *_newer_schema(manifest),
        ),
        problems=(*_unknown_features(manifest), *opened.problems),
    )


def proven_where(evidence: Evidence) -> tuple[ProvenWhere, ...]:
    """Where the variants of a merged artifact were proven; empty for any other."""
    return tuple(
        ProvenWhere(
            artifact_id=each.artifact_id,
            host=each.host,
            target=each.target,
            onnxruntime=each.onnxruntime,
            built_at=each.built_at,
            variants=each.variants,
        )
        for each in evidence.merged
    )


def _is_model(place: Path) -> bool:
    """Whether there is a model or a framework's source, and no artifact."""
    if place.is_dir():
        return not (place / PAYLOAD).exists() and _is_source(place)
    if not place.exists():
        return _is_source(place)
    # A pipe or a device is neither a model nor an artifact.
    require_model_file(place)
    from aotc.trust.archive import is_packed

    suffix = place.suffix.lower()
    if not is_packed(place):
        return True
    if suffix == _ZIP:
        return False
    from aotc.graph.foreign_files import OTHER_SUFFIXES

    # Sources and files of PyTorch are ZIP archives, too, but under other names.
    return suffix in (*OTHER_SUFFIXES, ".onnx", ".bin") or _is_source(place)


def _is_source(path: Path) -> bool:
    from aotc.sources.registry import importer_of

    return importer_of(path) is not None


def _shapes(manifest: Manifest, traffic: str | Path | None) -> ShapeReport:
    report = shape_report(manifest)
    if traffic is None:
        return report
    from aotc.spec.traffic import read_traffic

    recorded = read_traffic(traffic, manifest.inputs)
    return replace(report, traffic=traffic_coverage(manifest, recorded))


def _newer_schema(manifest: Manifest) -> tuple[Finding, ...]:
    if manifest.schema == MANIFEST_SCHEMA:
        return ()
    return (Finding(code="AOTC-G017", what=f"the manifest is {manifest.schema}", where=MANIFEST),)


def _unknown_features(manifest: Manifest) -> tuple[Refusal, ...]:
    unknown = [name for name in manifest.required_features if name not in KNOWN_FEATURES]
    return tuple(
        Refusal(
            code="AOTC-G011",
            what=f"feature {name!r} is not known to this release; what is shown may be misread",
            where=MANIFEST,
        )
        for name in unknown
    )


def _profile_name(profile: Json) -> str:
    return str((profile.get("name") if isinstance(profile, dict) else None) or "")


def read_attestations(
    container: Container, artifact_id: str, problems: list[Refusal]
) -> tuple[tuple[Claim, ...], Evidence | None]:
    """The claim of every bundle, and the evidence about this aotc.json if there is one."""
    development_keys = {key_id(key.pem) for key in default_trust()}
    claims: list[Claim] = []
    evidence: Evidence | None = None
    listed = container.listing(ATTESTATIONS).files
    bundles = [path for path in listed if path.endswith(BUNDLE_SUFFIX)]
    total = sum(listed[path] for path in bundles)
    if len(bundles) > MAX_BUNDLES or total > MAX_BUNDLES_BYTES:
        problems.append(
            Refusal(
                code="AOTC-G012",
                what="there are more attestations than a reader accepts, and none was read",
                where=ATTESTATIONS,
                found=f"{len(bundles)} bundles of {total} bytes",
            )
        )
        bundles = []
    for path in bundles:
        try:
            claimed = statements.read_unverified(container.read(path, dsse.MAX_BUNDLE_BYTES))
            claims.append(
                Claim(
                    path=path,
                    key_id=claimed.hint,
                    development_key=claimed.hint in development_keys,
                    predicate_type=claimed.predicate_type,
                    summary=claim_text(claimed.predicate_type, claimed.predicate),
                )
            )
            if claimed.predicate_type == KINDS["evidence"].predicate_type:
                if artifact_id not in claimed.subjects.values():
                    raise AotcError(
                        "AOTC-G014", "the attestation is about another artifact", where=path
                    )
                evidence = decode(Evidence, claimed.predicate, allow_unknown=True)
        except ParseError as error:
            problems += [
                Refusal(
                    code="AOTC-G004", what=problem.what, where=f"{path}: {problem.path or '(top)'}"
                )
                for problem in error.problems
            ]
        except AotcError as error:
            problems += [
                Refusal(
                    code=refusal.code,
                    what=refusal.what,
                    where=refusal.where or path,
                    found=refusal.found,
                )
                for refusal in (error, *error.also)
            ]
    return tuple(claims), evidence


def _variant_summary(variant: Variant, evidence: VariantEvidence | None) -> VariantSummary:
    worst = worst_errors(evidence) if evidence is not None else ()
    return VariantSummary(
        name=variant.name,
        component=variant.component,
        buckets=variant.buckets,
        cuda_graphs=variant.cuda_graphs,
        integer_products=variant.integer_products,
        computed_products=variant.computed_products,
        shape_nodes=variant.shape_nodes,
        shape_nodes_dropped=variant.shape_nodes_dropped,
        providers=variant.providers,
        device=variant.device,
        precision=variant.precision,
        optimization=variant.session.optimization,
        provider_options=variant.session.provider_options,
        requirements=variant.requirements,
        placement_origin=variant.placement.origin,
        nodes=len(variant.placement.nodes),
        partitions=variant.placement.partitions,
        share=variant.placement.share,
        partitioning=variant.partitioning,
        transfers=variant.transfers,
        parity=variant.parity,
        worst=worst,
        limits=_limits(variant, worst),
        task=evidence.task if evidence is not None else None,
        memory=variant.memory,
        passes=variant.passes,
        load_seconds=evidence.load_seconds if evidence is not None else None,
        run_seconds=evidence.run_seconds if evidence is not None else {},
        run_spread=evidence.run_spread if evidence is not None else {},
        peak_memory_bytes=evidence.peak_memory_bytes if evidence is not None else None,
        device_bytes=evidence.device_bytes if evidence is not None else None,
        plain_device_bytes=evidence.plain_device_bytes if evidence is not None else None,
        observed=evidence.memory if evidence is not None else None,
        planned=evidence.planned if evidence is not None else None,
        timed_against=evidence.timed_against if evidence is not None else None,
        against_keep=evidence.against_keep if evidence is not None else None,
        repeats=evidence.repeats if evidence is not None else None,
    )


def _limits(variant: Variant, worst: Sequence[OutputError]) -> tuple[LimitSummary, ...]:
    """The limits of a variant's outputs, with the worst of all comparisons."""
    if not variant.parity.gates:
        return ()
    from aotc.session.limits import judged_limits, stated_limits

    measured = {error.output: error for error in worst}
    found: list[LimitSummary] = []
    for name, gate in variant.parity.gates.items():
        error = measured.get(name)
        if error is None:
            found += [LimitSummary(output=name, limit=text) for text in stated_limits(gate)]
            continue
        found += [
            LimitSummary(output=name, limit=each.limit, measured=each.found, passed=each.passed)
            for each in judged_limits(error, gate)
        ]
    return tuple(found)


def worst_errors(evidence: VariantEvidence) -> tuple[OutputError, ...]:
    """For each output, the worst value of every measure over all comparisons, and all together."""
    return tuple(
        replace(error, worst_slice=worst_of(error.worst_slice, evidence.together.get(error.output)))
        for error in _worst_of_each(evidence.comparisons)
    )


def _worst_of_each(comparisons: Sequence[Comparison]) -> tuple[OutputError, ...]:
    worst: dict[str, OutputError] = {}
    for comparison in comparisons:
        for error in comparison.outputs:
            known = worst.get(error.output)
            worst[error.output] = error if known is None else _worse(known, error)
    return tuple(worst.values())


def _worse(one: OutputError, other: OutputError) -> OutputError:
    cosines = [error.cosine for error in (one, other) if error.cosine is not None]
    noises = [error.sqnr_db for error in (one, other) if error.sqnr_db is not None]
    shares = [error.agreement for error in (one, other) if error.agreement is not None]
    most = max(one, other, key=lambda error: error.differing)
    return OutputError(
        output=one.output,
        max_abs=max(one.max_abs, other.max_abs),
        max_rel=max(one.max_rel, other.max_rel),
        cosine=min(cosines, default=None),
        sqnr_db=min(noises, default=None),
        agreement=min(shares, default=None),
        non_finite_share=max(one.non_finite_share, other.non_finite_share),
        worst_slice=worst_of(one.worst_slice, other.worst_slice),
        passed=one.passed and other.passed,
        reason=one.reason or other.reason,
        breached=tuple(dict.fromkeys((*one.breached, *other.breached))),
        rule=one.rule or other.rule,
        differing=most.differing,
        allowed=most.allowed,
        within_margin=most.within_margin,
    )


# Which sizes were compared with the original model, and what recorded traffic would meet.


# At most this many refused sizes are listed, the most frequent first.
_MAX_LISTED = 10


def shape_report(manifest: Manifest) -> ShapeReport:
    """Shapes of the outputs, and for each free dim which sizes the build compared."""
    compared: dict[str, set[int]] = {name: set() for name in manifest.domain.dims}
    for variant in manifest.variants:
        for sizes in variant.parity.shapes:
            for name in compared.keys() & sizes.keys():
                compared[name].add(sizes[name])
    return ShapeReport(
        outputs=manifest.shapes,
        dims=tuple(
            _coverage(name, dim, sorted(compared[name]))
            for name, dim in manifest.domain.dims.items()
        ),
        learned=_learned_traffic(manifest.profile),
    )


def traffic_coverage(manifest: Manifest, recorded: RecordedTraffic) -> TrafficCoverage:
    """What the artifact does with each recorded request, by the same rules as `load`.

    Requests are matched with the buckets of the profile's first variant.
    Raises S020 if the traffic does not record a dim that varies.
    """
    domain = manifest.domain
    first = manifest.variants[0].spec or manifest.variants[0].name
    variants = [variant for variant in manifest.variants if (variant.spec or variant.name) == first]
    order = sorted(
        (
            (variant, buckets)
            for variant in variants
            for buckets in served_buckets(manifest, variant)
        ),
        key=lambda entry: (not entry[1], math.prod(entry[1].values())),
    )
    compared = {
        tuple(sorted(sizes.items())) for variant in variants for sizes in variant.parity.shapes
    }
    varying = [name for name, dim in domain.dims.items() if dim.buckets or dim.min < dim.max]
    missing = [name for name in varying if name not in recorded.dims]
    if missing:
        raise AotcError(
            "AOTC-S020",
            f"the recorded requests do not state the size of {missing[0]!r}",
            where=recorded.path,
            expected=", ".join(varying),
            found=", ".join(recorded.dims),
        )
    accepted, shares, compared_requests = 0, Counter[str](), 0
    taken_by, refused = Counter[str](), Counter[str]()
    given_elements = run_elements = 0
    for sizes, count in recorded.sizes():
        completed = _completed(domain, sizes)
        fit = _variant_for(domain, order, completed)
        if fit is None:
            refused[sizes_in_words(sizes)] += count
            continue
        variant, buckets, wanted = fit
        accepted += count
        taken_by[variant.name] += count
        given_elements += _elements(manifest, completed) * count
        run_elements += _elements(manifest, wanted) * count
        padded, routed = wanted != completed, len(order) > 1 and not buckets
        shares["padded" if padded else "routed" if routed else "exact"] += count
        compared_requests += count if tuple(sorted(completed.items())) in compared else 0
    total = recorded.requests
    return TrafficCoverage(
        path=recorded.path,
        sha256=recorded.sha256,
        requests=total,
        accepted=accepted / total,
        exact=shares["exact"] / total,
        padded=shares["padded"] / total,
        routed=shares["routed"] / total,
        compared=compared_requests / total,
        padding=(run_elements - given_elements) / max(given_elements, 1),
        variants={variant.name: taken_by[variant.name] for variant in variants},
        refused=dict(refused.most_common(_MAX_LISTED)),
    )


def _completed(domain: Domain, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with the dims that follow from them, and dims of one size if they are missing."""
    completed = {name: dim.min for name, dim in domain.dims.items() if dim.min == dim.max}
    completed |= sizes
    for relation in domain.relations:
        if relation.dim not in completed and all(term in completed for term in relation.terms):
            completed[relation.dim] = relation.value(completed)
    return completed


def _variant_for(
    domain: Domain,
    ordered: Sequence[tuple[Variant, Mapping[str, int]]],
    sizes: Mapping[str, int],
) -> tuple[Variant, Mapping[str, int], dict[str, int]] | None:
    stated = {
        name: size
        for name, size in sizes.items()
        if name in domain.dims and domain.dims[name].origin == "stated"
    }
    if not domain.accepts(stated):
        return None
    for variant, buckets in reversed(ordered) if routed_first(domain, sizes) else ordered:
        wanted = domain.padded_sizes(buckets, sizes)
        if wanted is not None:
            return variant, buckets, wanted
    # A probed dim beyond its range: a call counts it and runs it anyway.
    dynamic = next((variant for variant, buckets in ordered if not buckets), None)
    return (dynamic, {}, dict(sizes)) if dynamic is not None else None


def _elements(manifest: Manifest, sizes: Mapping[str, int]) -> int:
    return sum(
        math.prod(size if isinstance(size, int) else sizes.get(size, 1) for size in value.shape)
        for value in manifest.inputs
        if value.shape is not None
    )


def _coverage(name: str, dim: Dim, compared: Sequence[int]) -> DimCoverage:
    accepted = [size for size in compared if dim.accepts(size)]
    smallest = dim.min if dim.pad_from is None else min(dim.pad_from, dim.min)
    points = sorted({smallest, *compared, dim.max})
    spans = [(low, high) for low, high in itertools.pairwise(points) if high - low > 1]
    return DimCoverage(
        dim=name,
        sizes=dim.text(),
        compared=tuple(compared),
        share=min(1.0, len(accepted) / max(_accepted_sizes(dim), 1)),
        gap=max(spans, key=lambda span: span[1] - span[0], default=None),
    )


def _accepted_sizes(dim: Dim) -> int:
    """The number of sizes that callers may pass."""
    if dim.pad_from is not None:
        return dim.max - max(dim.pad_from, 1) + 1
    if dim.buckets and "route" not in dim.outside:
        return len(dim.buckets)
    on_grid = (dim.max - dim.min) // dim.multiple_of + 1 - len(dim.gaps)
    return on_grid + sum(not dim.spans(size) for size in dim.buckets)


def _learned_traffic(profile: Json) -> Traffic | None:
    stated = profile.get("traffic") if isinstance(profile, dict) else None
    try:
        return decode(Traffic, stated) if stated else None
    except ParseError:
        return None


# What an attestation says, in a few words; nothing here is verified.


_MAX_LENGTH = 200


def claim_text(predicate_type: str, predicate: Json) -> str:
    """What a predicate says; empty if its type is unknown, or it does not match its type."""
    kind = kind_of(predicate_type)
    try:
        return kind.load_summary()(predicate)[:_MAX_LENGTH] if kind is not None else ""
    except ParseError:
        return ""


def oms(predicate: Json) -> str:
    """The words for an OMS signature."""
    return f"{_counted(_count(predicate, 'resources'), 'file')} of the payload"


def evidence(predicate: Json) -> str:
    """The words for the evidence of a build."""
    number = _count(predicate, "merged")
    which = f"the last of {_counted(number, 'build')}, of" if number else "the build of"
    return f"measured at {which} {_text(predicate, 'built_at')}"


def provenance(predicate: Json) -> str:
    """The words for SLSA provenance."""
    builder = _text(predicate, "runDetails", "builder", "id")
    when = _text(predicate, "runDetails", "metadata", "finishedOn")
    release = _text(predicate, "buildDefinition", "externalParameters", "version")
    definition = predicate.get("buildDefinition") if isinstance(predicate, dict) else None
    number = _count(definition, "resolvedDependencies")
    what = "" if release in ("", "?") else f"release {release}, "
    merged = isinstance(definition, dict) and definition.get("buildType") == MERGE_TYPE
    made = f"{what}{'merged' if merged else 'built'} by {builder} at {when}"
    return f"{made} from {_counted(number, 'dependency', 'dependencies')}"


def sbom(predicate: Json) -> str:
    """The words for a CycloneDX bill of materials."""
    version = _text(predicate, "specVersion")
    return f"CycloneDX {version}, {_counted(_count(predicate, 'components'), 'component')}"


def approval(predicate: Json) -> str:
    """The words for an approval; raises ParseError."""
    found = decode(Approval, predicate, allow_unknown=True)
    note = f": {found.note}" if found.note else ""
    return f"approved for {found.channel} until {found.expires}{note}"


def qualification(predicate: Json) -> str:
    """The words for a qualification; raises ParseError."""
    found = decode(Qualification, predicate, allow_unknown=True)
    target = found.target
    return (
        f"{found.variant} accepted on {target.os} {target.architecture}, ONNX Runtime "
        f"{target.onnxruntime}, target {found.target_sha256[:12]}, at {found.issued_at}: "
        f"{found.verdict}"
    )


def _count(data: Json, name: str) -> int:
    found = data.get(name) if isinstance(data, dict) else None
    return len(found) if isinstance(found, list) else 0


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def _text(data: Json, *path: str) -> str:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else "?"


# Describing a plain ONNX model: the only part of inspection that imports onnx.


def inspect_model(path: Path, *, trust_source: bool = False) -> InspectReport:
    """Describe a model file without running it.

    A framework's source is captured for that, in the sandbox, and what it became is described.
    Raises I001 to I007, I010, I019 if onnx is not installed, and what capturing raises.
    """
    try:
        from aotc.session.capture import read_capture
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("onnx", "google")):
            raise
        raise AotcError(
            "AOTC-I019",
            "inspecting a model needs onnx",
            where=str(path),
            fix=install_extra("cpu"),
        ) from None
    from aotc.sources.capturing import SourceTrust, captured

    with captured(path, SourceTrust(trusted=trust_source)) as taken:
        source, inputs, outputs = read_capture(taken.model if taken is not None else path)
        if taken is not None:
            found = taken.captured
            source = replace(
                source, framework=found.framework, findings=(*found.findings, *source.findings)
            )
    return InspectReport(
        kind="model",
        path=str(path),
        name=path.stem,
        source=source,
        inputs=inputs,
        outputs=outputs,
        findings=source.findings,
    )
