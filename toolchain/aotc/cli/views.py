"""What inspect, verify and build show: the answer at a glance, then the tables behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.attestation_views import claims_view
from aotc.cli.partition_views import partitions_view, tuning_view
from aotc.cli.render import (
    MOST_LISTED,
    Cell,
    count,
    duration,
    facts,
    findings_view,
    heading,
    listed,
    provider,
    section,
    short,
    size,
)
from aotc.cli.requirement_words import requirements_in_words
from aotc.cli.shape_views import shapes_view
from aotc.contract.attestation_kinds import KINDS
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.source import Capture
from aotc.contract.manifest.variant import Parity
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.reports import (
    ArtifactSummary,
    BuildReport,
    Claim,
    InspectReport,
    Refusal,
    VariantSummary,
    VerifyReport,
)
from aotc.errors import expected_and_found

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNVERIFIED = "UNVERIFIED: nothing here was checked against a signature"


def inspect_view(report: InspectReport) -> list[RenderableType]:
    """What an artifact or a model says of itself."""
    return [
        heading(report.path, _UNVERIFIED, "yellow"),
        facts(_identity(report)),
        *_tables(report),
        *claims_view(report.artifact.claims if report.artifact is not None else ()),
    ]


def build_view(report: BuildReport, inspected: InspectReport) -> list[RenderableType]:
    """What was built, from its report and from the artifact itself."""
    only = " (development key, which only this user trusts)" if report.development_key else ""
    slowest = sorted(report.stages.items(), key=lambda item: -item[1])[:3]
    rows = _identity(inspected, signer=f"{short(report.key_id)}{only}")
    rows.append(
        (
            "took",
            f"{duration(report.seconds)}: "
            + ", ".join(f"{name} {duration(seconds)}" for name, seconds in slowest),
        )
    )
    unproven = [each.name for each in _variants_of(inspected) if each.parity.status != "passed"]
    status, style = "built, proven and signed", "green"
    if unproven:
        status, style = f"built and signed; NOT PROVEN: {', '.join(unproven)}", "yellow"
    if report.cached:
        status = f"from the build cache; {status}"
    said = {(each.code, each.what) for each in inspected.findings}
    more = [each for each in report.findings if (each.code, each.what) not in said]
    return [
        heading(report.artifact, status, style),
        facts(rows),
        *_tables(inspected),
        *findings_view(more),
    ]


def _variants_of(report: InspectReport) -> tuple[VariantSummary, ...]:
    return report.artifact.variants if report.artifact is not None else ()


def verify_view(report: VerifyReport) -> list[RenderableType]:
    """The verdict of the gate, its steps, and every reason."""
    status, style = _verdict(report)
    names = report.signer_names or ("",) * len(report.signers)
    signers = ", ".join(map(_signed, report.signers, names))
    if signers and report.development_key:
        signers += " (this user's development key)"
    parts = [
        heading(report.artifact, status, style),
        facts(
            [
                ("artifact", report.artifact_id),
                ("signed by", signers or "no trusted key"),
                ("target", report.target),
                ("took", f"{duration(report.seconds)}, {size(report.bytes_hashed)} hashed"),
            ]
        ),
        section(
            "steps", ("", ""), [(each.step, each.status, each.detail) for each in report.steps]
        ),
    ]
    if report.variants:
        rows = [
            (
                each.name,
                "runs" if each.runs else "does not run",
                ", ".join(reason.code for reason in each.reasons),
            )
            for each in report.variants
        ]
        parts.append(section("variants", ("", ""), rows))
    if report.refusals:
        parts.append(_refusals("reasons", report.refusals))
    parts += findings_view(report.findings)
    return parts


def _signed(key_id: str, name: str) -> str:
    return f"{name} (key {short(key_id)})" if name else short(key_id)


def _verdict(report: VerifyReport) -> tuple[str, str]:
    if not report.authentic:
        return "REFUSED: not vouched for", "red"
    if report.verdict == "incompatible":
        return "INCOMPATIBLE: authentic, but no variant runs on this target", "red"
    if report.verdict == "degraded":
        return "VERIFIED, degraded: runs, and a rebuild would run better", "yellow"
    return f"VERIFIED, {report.verdict}", "green"


def _reason(refusal: Refusal) -> str:
    return refusal.what + expected_and_found(refusal.expected, refusal.found)


def _identity(report: InspectReport, *, signer: str = "") -> list[tuple[str, str]]:
    artifact = report.artifact
    rows = [("model", _model(report.source)), ("source", _source(report.source))]
    if artifact is None:
        return rows
    made = f"aotc {artifact.toolchain.aotc}, ONNX Runtime {artifact.toolchain.onnxruntime}"
    when = f", {artifact.built_at}" if artifact.built_at else ""
    roles = ", ".join(f"{role} {size(each)}" for role, each in sorted(artifact.sizes.items()))
    return [
        *rows,
        ("artifact", artifact.artifact_id),
        ("built", f"by {made}{when}"),
        ("profile", f"{artifact.profile}, for target {artifact.target}"),
        ("signed by", signer or _signers(artifact)),
        ("size", f"{size(artifact.payload_bytes)} in {count(artifact.files, 'file')}: {roles}"),
    ]


def _model(source: Capture) -> str:
    opsets = ", ".join(f"{domain} {version}" for domain, version in source.opsets.items())
    made = " ".join(part for part in (source.producer_name, source.producer_version) if part)
    inner = source.nodes_total - source.nodes
    nodes = count(source.nodes, "node") + (f" and {inner} in bodies and functions" if inner else "")
    types = ", ".join(
        word
        for word, holds in (("quantized", source.quantized), ("half precision", source.half))
        if holds
    )
    parts = (nodes, f"opset {opsets}", f"IR {source.ir_version}", types, made and f"by {made}")
    return ", ".join(part for part in parts if part)


def _source(source: Capture) -> str:
    text = f"sha256 {short(source.sha256)}, {size(source.size)}"
    if source.external_data:
        more = sum(each.size for each in source.external_data)
        text += f" and {size(more)} in {count(len(source.external_data), 'external file')}"
    weights = count(source.initializers, "initializer")
    return f"{text}, {weights} of {size(source.initializer_bytes)}"


def _signers(artifact: ArtifactSummary) -> str:
    kind = KINDS["oms"].predicate_type
    signed = [claim for claim in artifact.claims if claim.predicate_type == kind]
    return ", ".join(_signer(claim) for claim in signed) + (
        " (claimed)" if signed else "nobody: the artifact holds no signature"
    )


def _signer(claim: Claim) -> str:
    name = short(claim.key_id) or "a key that is not named"
    return f"{name}, this user's development key" if claim.development_key else name


def _tables(report: InspectReport) -> list[RenderableType]:
    parts = [
        section(
            "inputs and outputs",
            ("", ""),
            [
                (value.name, way, _value(value))
                for way, values in (("in", report.inputs), ("out", report.outputs))
                for value in values
            ],
        )
    ]
    if report.domain is not None:
        shapes = report.artifact.shapes if report.artifact is not None else None
        parts += shapes_view(report.domain, report.strict, shapes)
    if report.artifact is not None:
        parts += _variants(report.artifact)
        parts += tuning_view(report.artifact.tuning)
    else:
        parts += _operators(report.source)
    parts += findings_view(report.findings)
    if report.problems:
        parts.append(_refusals("problems", report.problems))
    return parts


def _value(value: Value) -> str:
    kind = "" if value.kind == "tensor" else f"{value.kind} of "
    if value.shape is not None:
        return f"{kind}{value.dtype} [{', '.join(map(str, value.shape))}]"
    return f"{kind}{value.dtype}" if kind else f"{value.dtype} of any rank"


def _variants(artifact: ArtifactSummary) -> list[RenderableType]:
    return [
        section(
            "variants",
            ("runs on",),
            [(each.name, requirements_in_words(each.requirements)) for each in artifact.variants],
        ),
        section(
            "placement",
            ("nodes", "", "passes", "that compute shapes"),
            [
                (each.name, _placement(each), each.placement, _passes(each), _shape_nodes(each))
                for each in artifact.variants
            ],
        ),
        *partitions_view(artifact.variants),
        section(
            "exactness",
            ("", "max abs", "max rel", "1 - cosine", "shapes"),
            [row for each in artifact.variants for row in _exactness(each)],
        ),
        section(
            "cost",
            ("weights", "peak memory", "load", "run"),
            [
                (
                    each.name,
                    size(each.memory.weights_bytes),
                    size(each.peak_memory_bytes) if each.peak_memory_bytes is not None else "-",
                    duration(each.load_seconds) if each.load_seconds is not None else "-",
                    ", ".join(f"{k} {duration(v)}" for k, v in each.run_seconds.items()) or "-",
                )
                for each in artifact.variants
            ],
        ),
    ]


def _placement(variant: VariantSummary) -> str:
    if variant.partitioning is not None:
        divided = variant.partitioning.providers
        nodes = sum(each.nodes for each in divided)
        return f"{nodes}: " + ", ".join(
            f"{provider(each.provider)} {each.node_share:.0%}" for each in divided
        )
    shares = ", ".join(f"{provider(name)} {share:.0%}" for name, share in variant.share.items())
    return f"{variant.nodes}: {shares}" if shares else str(variant.nodes)


def _passes(variant: VariantSummary) -> str:
    if not variant.passes:
        return "-"
    before, after = variant.passes[0].nodes_before, variant.passes[-1].nodes_after
    return f"{len(variant.passes)}, from {before} to {count(after, 'node')}"


def _shape_nodes(variant: VariantSummary) -> str:
    if not variant.shape_nodes and not variant.shape_nodes_dropped:
        return "none"
    return f"{variant.shape_nodes} left, {variant.shape_nodes_dropped} dropped"


def _exactness(variant: VariantSummary) -> list[tuple[str, ...]]:
    parity: Parity = variant.parity
    if parity.status != "passed":
        return [(variant.name, f"NOT PROVEN: {parity.reason}", "", "", "", "")]
    if not variant.worst:
        return [
            (variant.name, "passed; no evidence says how far", "", "", "", _shapes_tried(parity))
        ]
    return [
        (
            variant.name if index == 0 else "",
            f"{error.output} {'passed' if error.passed else 'FAILED'}",
            f"{error.max_abs:.2g}",
            f"{error.max_rel:.2g}",
            _cosine(error),
            _shapes_tried(parity) if index == 0 else "",
        )
        for index, error in enumerate(variant.worst)
    ]


def _shapes_tried(parity: Parity) -> str:
    padded = f", {parity.padded} padded" if parity.padded else ""
    return f"{len(parity.shapes)}{padded}"


def _cosine(error: OutputError) -> str:
    # What is missing to 1, as a rounded cosine would say that nothing is.
    return "-" if error.cosine is None else f"{max(0.0, 1 - error.cosine):.2g}"


def _operators(source: Capture) -> list[RenderableType]:
    ranked = sorted(source.op_types.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{name} {number}" for name, number in ranked[:MOST_LISTED])
    rest = len(ranked) - MOST_LISTED
    flow = [f"{each.op_type} {each.node}".strip() for each in source.control_flow]
    rows = [
        ("operators", named + (f" and {rest} more kinds" if rest > 0 else "")),
        ("control flow", listed(flow)),
        ("functions", listed(source.functions)),
        ("contrib operators", listed(source.contrib_ops)),
        ("custom operators", listed(source.custom_ops)),
        ("outer values read", listed(source.side_inputs)),
        ("external data", listed([each.location for each in source.external_data])),
    ]
    return [facts(rows)]


def _refusals(title: str, refusals: tuple[Refusal, ...]) -> RenderableType:
    rows: list[tuple[str, Cell]] = []
    for each in refusals:
        where = f"{each.where}: " if each.where else ""
        fix = (each.fix,) if each.fix else ()
        rows.append((each.code, (f"{where}{_reason(each)}", *fix)))
    return section(title, ("",), rows)
