"""What an artifact or a model says of itself, read without vouching for any of it.

Nothing here is checked against a signature: a report is UNVERIFIED, whatever it says.
Of an artifact only aotc.json and the attestations are read, never models or weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from aotc.contract.artifact_names import artifact_path, id_in
from aotc.contract.attestation_kinds import BUNDLE_SUFFIX, KINDS
from aotc.contract.codec.parsing import (
    MAX_JSON_BYTES,
    Json,
    ParseError,
    Problem,
    decode,
    strict_json,
)
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.build_evidence import Evidence, OutputError, VariantEvidence
from aotc.contract.results.reports import (
    ArtifactSummary,
    Claim,
    InspectReport,
    Refusal,
    ShapeReport,
    VariantSummary,
)
from aotc.contract.trust.anchors import key_id
from aotc.contract.versions import (
    KNOWN_FEATURES,
    MANIFEST_SCHEMA,
    manifest_version,
    unsupported_manifest,
)
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST
from aotc.inspection.attestation_claims import in_words
from aotc.inspection.coverage import shape_report, traffic_coverage
from aotc.records import replace
from aotc.signing import dsse
from aotc.signing import statements as attest
from aotc.signing.keys.development import default_trust
from aotc.verification.container.base import MAX_BUNDLES, MAX_BUNDLES_BYTES, Container
from aotc.verification.container.opening import open_container
from aotc.verification.container.rereading import reread


def inspect(path: str | Path, *, traffic: str | Path | None = None) -> InspectReport:
    """Read the artifact in a folder or packed, or the ONNX model in a file.

    `traffic` is a file of recorded shapes; what an artifact would do with them is told.
    Raises I001 where there is nothing; I027 for the traffic of a model; S020 to S023 on the
    traffic; of an artifact G006, G008,
    G009, G010, G012, G015 and G039 where aotc.json cannot be read, of a model what
    `inspection.model_capture` raises.
    """
    place = artifact_path(path)
    if id_in(place) is None and place.is_file() and not _is_packed(place):
        if traffic is not None:
            raise AotcError(
                "AOTC-I027",
                "recorded shapes are told of an artifact, and this is a model",
                where=str(place),
                fix="Build it first, or leave the traffic out.",
            )
        from aotc.inspection.model_capture import inspect_model

        return inspect_model(place)
    return reread(place, lambda: _opened(place, traffic), holds=lambda report: not report.problems)


def _is_packed(place: Path) -> bool:
    from aotc.verification.container.archive_container import is_packed

    return is_packed(place)


def _opened(place: Path, traffic: str | Path | None) -> InspectReport:
    with open_container(place) as container:
        return _inspect_artifact(place, container, traffic)


def _inspect_artifact(
    place: Path, container: Container, traffic: str | Path | None
) -> InspectReport:
    try:
        content = container.read(MANIFEST, MAX_JSON_BYTES)
    except AotcError as error:
        if error.code != "AOTC-G006":
            raise
        raise AotcError(
            "AOTC-G015", f"the artifact holds no {MANIFEST}", where=str(place)
        ) from None
    manifest = _manifest(content)
    problems: list[Refusal] = []
    artifact_id = hashlib.sha256(content).hexdigest()
    claims, evidence = _attestations(container, artifact_id, problems)
    measured = {each.name: each for each in evidence.variants} if evidence is not None else {}
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
            variants=tuple(_variant(each, measured) for each in manifest.variants),
            sizes=sizes,
            payload_bytes=sum(sizes.values()) + len(content),
            files=len(manifest.files) + 1,
            fixtures=len(manifest.fixtures),
            shapes=_shapes(manifest, traffic),
            built_at=evidence.built_at if evidence is not None else "",
            tuning=evidence.tuning if evidence is not None else (),
        ),
        findings=(*manifest.findings, *_newer(manifest)),
        problems=(*_unknown_features(manifest), *problems),
    )


def _manifest(content: bytes) -> Manifest:
    """aotc.json as a record; raises G009 with every problem, G010 on another major version."""
    try:
        data = strict_json(content)
        schema = data.get("schema") if isinstance(data, dict) else None
        version = manifest_version(schema) if isinstance(schema, str) else None
        ours = manifest_version(MANIFEST_SCHEMA) or (0, 0)
        if what := unsupported_manifest(schema):
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
            AotcError("AOTC-G009", each.what, where=f"{MANIFEST}: {each.path or '(top)'}")
            for each in error.problems
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


def _newer(manifest: Manifest) -> tuple[Finding, ...]:
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


def _attestations(
    container: Container, artifact_id: str, problems: list[Refusal]
) -> tuple[tuple[Claim, ...], Evidence | None]:
    """Every bundle's claim, and the evidence about this very aotc.json where there is one."""
    own = {key_id(each.pem) for each in default_trust()}
    claims: list[Claim] = []
    evidence: Evidence | None = None
    listed = container.listing(ATTESTATIONS).files
    bundles = [path for path in listed if path.endswith(BUNDLE_SUFFIX)]
    total = sum(listed[path] for path in bundles)
    if len(bundles) > MAX_BUNDLES or total > MAX_BUNDLES_BYTES:
        problems.append(
            Refusal(
                code="AOTC-G012",
                what="there are more attestations than any reader takes, and none was read",
                where=ATTESTATIONS,
                found=f"{len(bundles)} bundles of {total} bytes",
            )
        )
        bundles = []
    for path in bundles:
        try:
            said = attest.peek(container.read(path, dsse.MAX_BUNDLE_BYTES))
            claims.append(
                Claim(
                    path=path,
                    key_id=said.hint,
                    development_key=said.hint in own,
                    predicate_type=said.predicate_type,
                    says=in_words(said.predicate_type, said.predicate),
                )
            )
            if said.predicate_type == KINDS["evidence"].predicate_type:
                if artifact_id not in said.subjects.values():
                    raise AotcError(
                        "AOTC-G014", "the attestation is about another artifact", where=path
                    )
                evidence = decode(Evidence, said.predicate, allow_unknown=True)
        except ParseError as error:
            problems += [
                Refusal(code="AOTC-G004", what=each.what, where=f"{path}: {each.path or '(top)'}")
                for each in error.problems
            ]
        except AotcError as error:
            problems += [
                Refusal(code=each.code, what=each.what, where=each.where or path, found=each.found)
                for each in (error, *error.also)
            ]
    return tuple(claims), evidence


def _variant(variant: Variant, measured: Mapping[str, VariantEvidence]) -> VariantSummary:
    seen = measured.get(variant.name)
    return VariantSummary(
        name=variant.name,
        component=variant.component,
        buckets=variant.buckets,
        shape_nodes=variant.shape_nodes,
        shape_nodes_dropped=variant.shape_nodes_dropped,
        providers=variant.providers,
        device=variant.device,
        precision=variant.precision,
        optimization=variant.session.optimization,
        requirements=variant.requirements,
        placement=variant.placement.how,
        nodes=len(variant.placement.nodes),
        partitions=variant.placement.partitions,
        share=variant.placement.share,
        partitioning=variant.partitioning,
        transfers=variant.transfers,
        parity=variant.parity,
        worst=worst_errors(seen) if seen is not None else (),
        memory=variant.memory,
        passes=variant.passes,
        load_seconds=seen.load_seconds if seen is not None else None,
        run_seconds=seen.run_seconds if seen is not None else {},
        peak_memory_bytes=seen.peak_memory_bytes if seen is not None else None,
    )


def worst_errors(evidence: VariantEvidence) -> tuple[OutputError, ...]:
    """Of each output, the worst of every measure over all comparisons."""
    worst: dict[str, OutputError] = {}
    for comparison in evidence.comparisons:
        for error in comparison.outputs:
            known = worst.get(error.output)
            worst[error.output] = error if known is None else _worse(known, error)
    return tuple(worst.values())


def _worse(one: OutputError, other: OutputError) -> OutputError:
    cosines = [each.cosine for each in (one, other) if each.cosine is not None]
    return OutputError(
        output=one.output,
        max_abs=max(one.max_abs, other.max_abs),
        max_rel=max(one.max_rel, other.max_rel),
        cosine=min(cosines, default=None),
        passed=one.passed and other.passed,
        reason=one.reason or other.reason,
    )
