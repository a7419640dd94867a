"""What an artifact or a model says of itself; nothing of it is verified.

No signature is checked here: a report is UNVERIFIED, whatever it says.
Of an artifact only aotc.json and the attestations are read, never models or weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from aotc.contract.artifact_names import artifact_path, stated_id
from aotc.contract.attestation_kinds import BUNDLE_SUFFIX, KINDS
from aotc.contract.codec.parsing import Json, ParseError, Problem, decode
from aotc.contract.codec.strict_json import MAX_JSON_BYTES, strict_json
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.build_evidence import Evidence, OutputError, VariantEvidence
from aotc.contract.results.reports import (
    ArtifactSummary,
    Claim,
    InspectReport,
    LimitSummary,
    Refusal,
    ShapeReport,
    VariantSummary,
)
from aotc.contract.trust.anchors import key_id
from aotc.contract.versions import (
    KNOWN_FEATURES,
    MANIFEST_SCHEMA,
    manifest_version,
    unsupported_reason,
)
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST
from aotc.inspection.attestation_claims import claim_text
from aotc.inspection.coverage import shape_report, traffic_coverage
from aotc.records import replace
from aotc.signing import dsse, statements
from aotc.signing.keys.development import default_trust
from aotc.verification.container.base import MAX_BUNDLES, MAX_BUNDLES_BYTES, Container
from aotc.verification.container.opening import open_container
from aotc.verification.container.rereading import reread


def inspect(path: str | Path, *, traffic: str | Path | None = None) -> InspectReport:
    """Describe the artifact in a folder or a packed file, or the ONNX model in a file.

    `traffic` is a file of recorded shapes: the report then says what the artifact would do with
    them.  Raises I001 if there is nothing at `path`; I027 for the traffic of a model; S020 to S023
    for the traffic.  Raises G006, G008, G009, G010, G012, G015 and G039 if an artifact's aotc.json
    cannot be read, and for a model what `inspection.model_capture` raises.
    """
    place = artifact_path(path)
    if stated_id(place) is None and place.is_file() and not _is_packed(place):
        if traffic is not None:
            raise AotcError(
                "AOTC-I027",
                "recorded shapes need an artifact, and this is a model",
                where=str(place),
                fix="Build it first, or leave the traffic out.",
            )
        from aotc.inspection.model_capture import inspect_model

        return inspect_model(place)
    return reread(
        place, lambda: _inspect_opened(place, traffic), holds=lambda report: not report.problems
    )


def _is_packed(place: Path) -> bool:
    from aotc.verification.container.archive_container import is_packed

    return is_packed(place)


def _inspect_opened(place: Path, traffic: str | Path | None) -> InspectReport:
    with open_container(place) as container:
        return _inspect_artifact(place, container, traffic)


def _inspect_artifact(
    place: Path, container: Container, traffic: str | Path | None
) -> InspectReport:
    content = read_manifest_bytes(container, place)
    manifest = read_manifest(content)
    problems: list[Refusal] = []
    artifact_id = hashlib.sha256(content).hexdigest()
    claims, evidence = read_attestations(container, artifact_id, problems)
    measured = (
        {variant.name: variant for variant in evidence.variants} if evidence is not None else {}
    )
    sizes: dict[str, int] = {}
    for entry in manifest.files:
        sizes[entry.role] = sizes.get(entry.role, 0) + entry.size
    return InspectReport(
        kind="artifact",
        path=str(place),
        name=manifest.name,
        source=manifest.source,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        domain=manifest.domain,
        strict=manifest.strict,
        artifact=ArtifactSummary(
            artifact_id=artifact_id,
            profile=_profile_name(manifest.profile),
            target=manifest.target,
            toolchain=manifest.toolchain,
            claims=claims,
            variants=tuple(_variant_summary(variant, measured) for variant in manifest.variants),
            sizes=sizes,
            payload_bytes=sum(sizes.values()) + len(content),
            files=len(manifest.files) + 1,
            fixtures=len(manifest.fixtures),
            shapes=_shapes(manifest, traffic),
            built_at=evidence.built_at if evidence is not None else "",
            tuning=evidence.tuning if evidence is not None else (),
        ),
        findings=(*manifest.findings, *_newer_schema(manifest)),
        problems=(*_unknown_features(manifest), *problems),
    )


def read_manifest_bytes(container: Container, place: Path) -> bytes:
    """The content of aotc.json; raises G015 where the artifact at `place` has none."""
    try:
        return container.read(MANIFEST, MAX_JSON_BYTES)
    except AotcError as error:
        if error.code != "AOTC-G006":
            raise
        raise AotcError(
            "AOTC-G015", f"the artifact does not contain {MANIFEST}", where=str(place)
        ) from None


def read_manifest(content: bytes) -> Manifest:
    """aotc.json as a record; raises G009 with all problems, G010 for another major version."""
    try:
        data = strict_json(content)
        schema = data.get("schema") if isinstance(data, dict) else None
        version = manifest_version(schema) if isinstance(schema, str) else None
        ours = manifest_version(MANIFEST_SCHEMA) or (0, 0)
        if what := unsupported_reason(schema):
            raise AotcError(
                "AOTC-G010",
                what,
                where=MANIFEST,
                expected=f"{MANIFEST_SCHEMA.rpartition('.')[0]}.x",
                found=str(schema)[:100],
            )
        if version is None:
            raise ParseError([Problem("schema", f"is not like {MANIFEST_SCHEMA}")])
        return decode(Manifest, data, allow_unknown=version[1] > ours[1])
    except ParseError as error:
        first, *others = [
            AotcError("AOTC-G009", problem.what, where=f"{MANIFEST}: {problem.path or '(top)'}")
            for problem in error.problems
        ]
        first.also = tuple(others)
        raise first from None


def _shapes(manifest: Manifest, traffic: str | Path | None) -> ShapeReport:
    report = shape_report(manifest)
    if traffic is None:
        return report
    from aotc.contract.traffic import read_traffic

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
    name = profile.get("name") if isinstance(profile, dict) else None
    return str(name or "")


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
                    says=claim_text(claimed.predicate_type, claimed.predicate),
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


def _variant_summary(variant: Variant, measured: Mapping[str, VariantEvidence]) -> VariantSummary:
    evidence = measured.get(variant.name)
    worst = worst_errors(evidence) if evidence is not None else ()
    return VariantSummary(
        name=variant.name,
        component=variant.component,
        buckets=variant.buckets,
        graphs=variant.graphs,
        integer_products=variant.integer_products,
        shape_nodes=variant.shape_nodes,
        shape_nodes_dropped=variant.shape_nodes_dropped,
        providers=variant.providers,
        device=variant.device,
        precision=variant.precision,
        optimization=variant.session.optimization,
        provider_options=variant.session.provider_options,
        requirements=variant.requirements,
        placement=variant.placement.how,
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
        peak_memory_bytes=evidence.peak_memory_bytes if evidence is not None else None,
        timed_against=evidence.timed_against if evidence is not None else None,
        repeats=evidence.repeats if evidence is not None else None,
    )


def _limits(variant: Variant, worst: Sequence[OutputError]) -> tuple[LimitSummary, ...]:
    """The limits of a variant's outputs, with the worst of all comparisons."""
    if not variant.parity.gates:
        return ()
    from aotc.engine.output_gates import judged_limits, stated_limits

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
    """For each output, the worst value of every measure over all comparisons."""
    worst: dict[str, OutputError] = {}
    for comparison in evidence.comparisons:
        for error in comparison.outputs:
            known = worst.get(error.output)
            worst[error.output] = error if known is None else _worse(known, error)
    return tuple(worst.values())


def _worse(one: OutputError, other: OutputError) -> OutputError:
    cosines = [error.cosine for error in (one, other) if error.cosine is not None]
    noises = [error.sqnr_db for error in (one, other) if error.sqnr_db is not None]
    shares = [error.agreement for error in (one, other) if error.agreement is not None]
    return OutputError(
        output=one.output,
        max_abs=max(one.max_abs, other.max_abs),
        max_rel=max(one.max_rel, other.max_rel),
        cosine=min(cosines, default=None),
        sqnr_db=min(noises, default=None),
        agreement=min(shares, default=None),
        not_finite=max(one.not_finite, other.not_finite),
        passed=one.passed and other.passed,
        reason=one.reason or other.reason,
        breached=tuple(dict.fromkeys((*one.breached, *other.breached))),
    )
