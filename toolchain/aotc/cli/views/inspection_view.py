"""What an artifact or a model says of itself: identity, interface, and the tables behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.fixture_words import fixture_in_words
from aotc.cli.render import (
    MAX_LISTED,
    count,
    facts,
    findings_view,
    heading,
    listed,
    section,
    short,
    size,
)
from aotc.cli.result_styles import NOTICED
from aotc.cli.views.attestation_views import claims_view
from aotc.cli.views.exactness.parity_view import node_facts, worst_nodes
from aotc.cli.views.partition_views import tuning_view
from aotc.cli.views.refusals_section import refusals_section
from aotc.cli.views.shape_views import shapes_view
from aotc.cli.views.variant_views import variants_view
from aotc.contract.attestation_kinds import KINDS
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.source import Capture
from aotc.contract.results.reports import ArtifactSummary, Claim, InspectReport

if TYPE_CHECKING:
    from rich.console import RenderableType

# Its words, and their colour.
UNVERIFIED = ("UNVERIFIED: nothing here was checked against a signature", NOTICED)


def inspect_view(report: InspectReport) -> list[RenderableType]:
    """What an artifact or a model says of itself."""
    return [
        heading(report.path, *UNVERIFIED),
        facts(identity(report)),
        *tables(report),
        *_node_errors(report),
        *claims_view(report.artifact.claims if report.artifact is not None else ()),
    ]


def _node_errors(report: InspectReport) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for variant, errors in report.node_errors.items():
        parts.append(
            facts([("errors by node", f"{variant}, on {fixture_in_words(errors.fixture)}")])
        )
        parts.append(node_facts(errors))
        parts += worst_nodes(errors)
    return parts


def identity(report: InspectReport, *, signer: str = "") -> list[tuple[str, str]]:
    """Labels and texts that say what it is; `signer` in place of the claimed signers."""
    artifact = report.artifact
    rows = [("model", model_text(report.source)), ("source", _source(report.source))]
    if artifact is None:
        return rows
    made = f"aotc {artifact.toolchain.aotc}, ONNX Runtime {artifact.toolchain.onnxruntime}"
    when = f", {artifact.built_at}" if artifact.built_at else ""
    roles = ", ".join(f"{role} {size(total)}" for role, total in sorted(artifact.sizes.items()))
    return [
        *rows,
        ("artifact", artifact.artifact_id),
        ("built", f"by {made}{when}"),
        ("profile", f"{artifact.profile}, for target {artifact.target}"),
        ("signed by", signer or signers(artifact)),
        ("size", f"{size(artifact.payload_bytes)} in {count(artifact.files, 'file')}: {roles}"),
    ]


def model_text(source: Capture) -> str:
    """Nodes, operator sets, types and producer of a model."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in source.opsets.items())
    made = " ".join(part for part in (source.producer_name, source.producer_version) if part)
    inner = source.nodes_total - source.nodes
    nodes = count(source.nodes, "node") + (
        f" and {inner} in subgraphs and functions" if inner else ""
    )
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
        more = sum(file.size for file in source.external_data)
        text += f" and {size(more)} in {count(len(source.external_data), 'external file')}"
    weights = count(source.initializers, "initializer")
    return f"{text}, {weights} of {size(source.initializer_bytes)}"


def signers(artifact: ArtifactSummary) -> str:
    """Who claims to have signed it."""
    kind = KINDS["oms"].predicate_type
    signed = [claim for claim in artifact.claims if claim.predicate_type == kind]
    return ", ".join(_signer(claim) for claim in signed) + (
        " (claimed)" if signed else "nobody: the artifact holds no signature"
    )


def _signer(claim: Claim) -> str:
    name = short(claim.key_id) or "a key that is not named"
    return f"{name}, this user's development key" if claim.development_key else name


def tables(report: InspectReport) -> list[RenderableType]:
    """Inputs and outputs, shapes, variants or operators, findings and problems."""
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
        parts += variants_view(report.artifact)
        parts += tuning_view(report.artifact.tuning)
    else:
        parts += _operators(report.source)
    parts += findings_view(report.findings)
    if report.problems:
        parts.append(refusals_section("problems", report.problems))
    return parts


def _value(value: Value) -> str:
    kind = "" if value.kind == "tensor" else f"{value.kind} of "
    if value.shape is not None:
        return f"{kind}{value.dtype} [{', '.join(map(str, value.shape))}]"
    return f"{kind}{value.dtype}" if kind else f"{value.dtype} of any rank"


def operators_text(source: Capture) -> str:
    """The kinds of operators, the most frequent first."""
    ranked = sorted(source.op_types.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{name} {number}" for name, number in ranked[:MAX_LISTED])
    rest = len(ranked) - MAX_LISTED
    return named + (f" and {rest} more kinds" if rest > 0 else "")


def _operators(source: Capture) -> list[RenderableType]:
    flow = [f"{node.op_type} {node.node}".strip() for node in source.control_flow]
    rows = [
        ("operators", operators_text(source)),
        ("control flow", listed(flow)),
        ("functions", listed(source.functions)),
        ("contrib operators", listed(source.contrib_ops)),
        ("custom operators", listed(source.custom_ops)),
        ("outer values read", listed(source.side_inputs)),
        ("external data", listed([file.location for file in source.external_data])),
    ]
    return [facts(rows)]
