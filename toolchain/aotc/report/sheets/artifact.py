"""What an artifact or a model says of itself: identity, interface, attestations, tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from aotc.base.text import MAX_LISTED, duration, listed, size
from aotc.report.sheet import (
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Sheet,
    Table,
    count,
    findings_table,
    first,
    fixture_in_words,
    refusals_table,
    short,
    span,
    table,
    to_minute,
)
from aotc.report.sheets.capture import capture_sheet, captured_text
from aotc.report.sheets.memory import memory_sheet
from aotc.report.sheets.variants import (
    cost_table,
    exactness_sheet,
    node_errors_sheet,
    placement_sheet,
    requirements_table,
    tuning_table,
)
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, KINDS
from aotc.spec.attestations import AttestReport, Qualification
from aotc.spec.manifest import Capture, ControlPath, Randomness, RandomNode
from aotc.spec.payload import Value
from aotc.spec.reports import (
    ArtifactSummary,
    Claim,
    InspectReport,
    ProvenWhere,
    TrafficCoverage,
)
from aotc.spec.shapes import Dim, Domain, Relation

# Its words, and their mood.
UNVERIFIED = ("UNVERIFIED: nothing here was checked against a signature", NOTICED)


def inspect_view(report: InspectReport) -> Sheet:
    """What an artifact or a model says of itself."""
    claims = report.artifact.claims if report.artifact is not None else ()
    return [
        Heading(report.path, *UNVERIFIED),
        Facts(identity(report)),
        *tables(report),
        *chain(*(node_errors_sheet(*each) for each in report.node_errors.items())),
        claims_table(claims),
    ]


def tables(report: InspectReport) -> Sheet:
    """Inputs and outputs, shapes, variants or operators, findings and problems."""
    artifact = report.artifact
    exported = artifact.exported if artifact is not None else ()
    parts = [*capture_sheet(report.source.framework, exported), *shapes_sheet(report)]
    if artifact is None:
        parts.append(_operators(report.source))
    else:
        parts += [
            proven_table(artifact.merged),
            requirements_table(artifact.variants),
            *placement_sheet(artifact.variants),
            *exactness_sheet(artifact.variants),
            cost_table(artifact.variants),
            *memory_sheet(artifact.variants),
            tuning_table(artifact.tuning),
            branches_table(artifact.branches),
            random_table(artifact.random),
        ]
    return [*parts, findings_table(report.findings), refusals_table("problems", report.problems)]


def proven_table(merged: Sequence[ProvenWhere]) -> Table:
    """The hosts on which the variants of a merged artifact were proven."""
    return table(
        "merged from",
        merged,
        ("artifact", lambda each: short(each.artifact_id)),
        ("target", lambda each: each.target),
        ("host", host_in_words),
        ("ONNX Runtime", lambda each: each.onnxruntime),
        ("built, UTC", lambda each: to_minute(each.built_at)),
        ("variants", lambda each: ", ".join(each.variants)),
    )


def host_in_words(where: ProvenWhere) -> str:
    """The architecture and the CPU features of a host, the last ones first."""
    features = where.host.get("isa", "").split()
    return " ".join((where.host.get("architecture", ""), *reversed(features[-3:])))


def branches_table(branches: Sequence[ControlPath]) -> Table:
    """Each branch of an If and number of trips of a loop, and the fixtures that reached it."""
    return table(
        "branches and trips",
        branches,
        ("node", lambda each: f"{each.op_type} {each.node}"),
        ("", lambda each: each.path),
        ("#fixtures", lambda each: str(each.fixtures) if each.fixtures else "none"),
        ("reached by", _reached_by),
    )


def random_table(random: Randomness | None) -> Table:
    """Each node that draws random numbers, with what was settled of them."""
    return table(
        f"random: {random.policy}" if random is not None else "random",
        random.nodes if random is not None else (),
        ("node", lambda each: f"{each.op_type} {each.node}"),
        ("draws", lambda each: each.drawn()),
        ("", _drawn_from),
        ("reaches", lambda each: listed(each.outputs) or "no output"),
    )


def _drawn_from(node: RandomNode) -> str:
    if node.input:
        return f"input {node.input}"
    given = ", given by the build" if node.given else ""
    return f"seed {node.seed}{given}" if node.seed is not None else ""


def random_text(random: Randomness | None) -> str:
    """The policy, and which outputs depend on which nodes, in one line; empty without any."""
    if random is None:
        return ""
    outputs = list(dict.fromkeys(name for node in random.nodes for name in node.outputs))
    told = [
        f"{name} by {first([n.node for n in random.nodes if name in n.outputs], 2)}"
        for name in outputs
    ]
    return f"{random.policy}: {first(told, 2) or 'no output depends on it'}"


def _reached_by(path: ControlPath) -> str:
    if not path.fixtures:
        return "not run by the proof" if path.missing else ""
    more = path.fixtures - len(path.named)
    return first([*map(fixture_in_words, path.named), *[""] * more], len(path.named))


def identity(report: InspectReport, *, signer: str = "") -> list[tuple[str, str]]:
    """Labels and texts that say what it is; `signer` in place of the claimed signers."""
    artifact = report.artifact
    framework = report.source.framework
    rows = [("model", model_text(report.source)), ("source", _source(report.source))]
    if framework is not None:
        rows.append(("captured", f"from {captured_text(framework)}"))
    if artifact is None:
        return rows
    made = f"aotc {artifact.toolchain.aotc}, ONNX Runtime {artifact.toolchain.onnxruntime}"
    when = f", {artifact.built_at}" if artifact.built_at else ""
    roles = ", ".join(
        f"{role} {size(total)}" for role, total in sorted(artifact.bytes_by_role.items())
    )
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
    parts = (
        nodes,
        f"opset {opsets}",
        f"IR {source.ir_version}",
        "quantized" if source.quantized else "",
        "half precision" if source.half_precision else "",
        made and f"by {made}",
    )
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
        " (claimed)" if signed else "no one: the artifact holds no signature"
    )


def _signer(claim: Claim) -> str:
    name = short(claim.key_id) or "a key that is not named"
    return f"{name}, this user's development key" if claim.development_key else name


def operators_text(source: Capture) -> str:
    """The kinds of operators, the most frequent first."""
    ranked = sorted(source.op_types.items(), key=lambda item: (-item[1], item[0]))
    return first([f"{name} {number}" for name, number in ranked], MAX_LISTED)


def _operators(source: Capture) -> Facts:
    flow = [f"{node.op_type} {node.node}".strip() for node in source.control_flow]
    rows = [
        ("operators", operators_text(source)),
        ("control flow", listed(flow)),
        ("functions", listed(source.functions)),
        ("contrib operators", listed(source.contrib_ops)),
        ("custom operators", listed(source.custom_ops)),
        ("outer values read", listed(source.outer_scope_values)),
        ("external data", listed([file.location for file in source.external_data])),
    ]
    return Facts(rows)


# Shapes as text: what an artifact takes, what its outputs are, and what was seen of it.


_LISTED = 12


def shapes_sheet(report: InspectReport) -> Sheet:
    """Inputs and outputs, the sizes that callers may pass, coverage, and traffic."""
    domain, strict = report.domain, report.strict
    shapes = report.artifact.shapes if report.artifact is not None else None
    values = (("in", report.inputs), ("out", report.outputs))
    named = [(value.name, way, value_text(value)) for way, many in values for value in many]
    parts: Sheet = [Table("inputs and outputs", ("", ""), named)]
    if domain is None:
        return parts
    rows = [
        (dim_text(name), _range(dim), _origin(dim), _outside(dim, strict))
        for name, dim in domain.dims.items()
    ]
    rows += [
        (dim_text(relation.dim), str(relation), *_following(relation, strict))
        for relation in domain.relations
    ]
    rows += [("also", text, "probed", "") for text in further_texts(domain)]
    title = "proven shapes" + (", others are refused" if strict else "")
    parts.append(Table(title, ("", "", "other sizes"), rows))
    if shapes is None:
        return parts
    parts += [
        table(
            "outputs",
            shapes.outputs,
            ("output", lambda value: value.name),
            ("declared", lambda value: _shape(value.declared)),
            ("inferred", lambda value: _shape(value.inferred)),
            ("produced", lambda value: _shape(value.produced)),
        ),
        table(
            "coverage",
            shapes.dims if any(dim.gap or len(dim.compared) > 1 for dim in shapes.dims) else (),
            ("dim", lambda dim: dim_text(dim.dim)),
            ("sizes compared at build", lambda dim: first(list(map(str, dim.compared)), _LISTED)),
            ("of all", lambda dim: f"{dim.share:.1%}"),
            (
                "widest gap between",
                lambda dim: f"{dim.gap[0]}..{dim.gap[1]}" if dim.gap else "none",
            ),
        ),
    ]
    if (learned := shapes.learned) is not None:
        text = (
            f"{count(learned.requests, 'request')}, {learned.coverage:.1%} accepted, "
            f"{learned.padding:.1%} of elements added by padding"
        )
        parts.append(Table("learned from", ("",), [(short(learned.sha256), text)]))
    if shapes.traffic is not None:
        parts.append(_traffic(shapes.traffic))
    return parts


def value_text(value: Value) -> str:
    """The type and the shape of a value, and the values that are stated of it."""
    if value.form:
        return value.form
    kind = "" if value.kind == "tensor" else f"{value.kind} of "
    stated = f", {value.allowed.text()}" if value.allowed is not None else ""
    if value.shape is not None:
        return f"{kind}{value.dtype} {_shape(value.shape)}{stated}"
    return f"{kind}{value.dtype}" if kind else f"{value.dtype} of any rank{stated}"


def sizes_text(domain: Domain) -> dict[str, str]:
    """The sizes of each dim in words, and how the others follow."""
    named = {dim_text(name): dim.text() for name, dim in domain.dims.items()}
    named |= {
        dim_text(relation.dim): f"= {str(relation).partition(' = ')[2]}"
        for relation in domain.relations
    }
    return named | ({"also": "; ".join(further_texts(domain))} if domain.also else {})


def further_texts(domain: Domain) -> list[str]:
    """The further ranges of a domain: what reaches further, and where."""
    found = []
    for dims in domain.also:
        whole = domain.dims
        more = [f"{dim_text(n)} {d.text()}" for n, d in dims.items() if d.max > whole[n].max]
        less = [f"{dim_text(n)} {d.text()}" for n, d in dims.items() if d.max < whole[n].max]
        found.append(f"{', '.join(more)} with {', '.join(less)}")
    return found


def _following(relation: Relation, strict: bool) -> tuple[str, str]:
    if relation.enforced:
        return "follows", ""
    return "tried so", "refused" if strict else "counted"


def _range(dim: Dim) -> str:
    return dim.text() if dim.min == dim.max or dim.buckets else f"{dim.text()}, optimal {dim.opt}"


def _origin(dim: Dim) -> str:
    if dim.origin == "stated":
        return "stated"
    tried = f"probed at {count(len(dim.tested), 'size')}"
    if dim.stopped_by == "error":
        return f"{tried}; larger ones fail"
    if dim.stopped_by == "combined":
        return f"{tried}; larger ones fail with all others at their largest"
    return f"{tried}, up to the limit of {dim.stopped_by}" if dim.stopped_by else tried


def _outside(dim: Dim, strict: bool) -> str:
    if dim.outside:
        words = {"pad": "padded", "route": "routed"}
        return ", ".join(words[kind] for kind in dim.outside)
    return "refused" if strict or dim.origin == "stated" else "counted"


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "unknown" if shape is None else f"[{', '.join(map(_size, shape))}]"


def _size(size: int | str) -> str:
    return dim_text(size) if isinstance(size, str) else str(size)


def dim_text(name: str) -> str:
    """The name of a dim, in quotes where it reads as a size."""
    return f"'{name}'" if name.isdecimal() else name


def _traffic(traffic: TrafficCoverage) -> Table:
    rows = [
        ("requests", f"{traffic.requests}, {traffic.accepted:.1%} accepted"),
        (
            "of them",
            f"{traffic.exact:.1%} exact, {traffic.padded:.1%} padded, {traffic.routed:.1%} routed",
        ),
        ("padding", f"{traffic.padding:.1%} of elements added"),
        ("compared at build", f"{traffic.compared:.1%} at just these sizes"),
    ]
    rows += [(name, count(number, "request")) for name, number in traffic.variants.items()]
    rows += [
        (f"refused: {sizes}", count(number, "request")) for sizes, number in traffic.refused.items()
    ]
    return Table(f"traffic of {traffic.path}", ("",), rows)


# Attestations for the terminal: one that was added, and those of an artifact as they claim.


def attested_view(answer: AttestReport) -> Sheet:
    """What was added to an artifact, and what it says."""
    only = " (this user's development key)" if answer.development_key else ""
    rows = [
        ("artifact", answer.artifact_id),
        ("written", answer.path + (", over the one that was there" if answer.replaced else "")),
        ("type", answer.predicate_type),
        ("signed by", f"{short(answer.key_id)}{only}"),
        ("identity", answer.identity),
    ]
    if (approval := answer.approval) is not None:
        rows += [
            ("channel", approval.channel),
            ("expires", approval.expires),
            ("note", approval.note),
        ]
    status = "signed" if answer.predicate_type == KINDS["oms"].predicate_type else "attested"
    measured = answer.qualification
    return [
        Heading(answer.artifact, status, PASSED),
        Facts(rows),
        *(_qualification(measured) if measured is not None else ()),
        findings_table(answer.findings),
    ]


def claims_table(claims: Sequence[Claim]) -> Table:
    """What each attestation says, and whom it names as its signer."""
    return table(
        "attestations",
        claims,
        ("file", lambda claim: claim.path.rpartition("/")[2].removesuffix(BUNDLE_SUFFIX)),
        ("claimed key", lambda claim: _signer(claim) if claim.key_id else ""),
        ("says", lambda claim: claim.summary or f"unknown: {claim.predicate_type}"),
        note="None of these signatures was checked.",
    )


def _qualification(measured: Qualification) -> Sheet:
    return [
        Facts(
            [
                ("target", short(measured.target_sha256)),
                ("variants", ", ".join(measured.variants)),
                ("verdict", measured.verdict),
                ("load", duration(measured.load_seconds)),
                ("peak memory", size(measured.peak_memory_bytes)),
                ("fixtures", f"{measured.fixtures} matched"),
            ]
        ),
        table(
            "latency",
            measured.latency,
            ("fixture", lambda each: fixture_in_words(each.fixture)),
            ("variant", lambda each: each.variant),
            ("median", lambda each: duration(each.median_seconds)),
            ("quartiles", lambda each: span(each.lower_seconds, each.upper_seconds)),
        ),
        findings_table(measured.findings),
    ]
