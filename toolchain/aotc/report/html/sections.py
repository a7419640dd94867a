"""The sections of a page, apart from graph and memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from aotc.base.errors import Place
from aotc.base.records import values_of
from aotc.base.text import duration, printable
from aotc.report.html.artifact_contents import sizes_text
from aotc.report.html.page import (
    Content,
    bytes_text,
    section,
    share_text,
    short_provider,
    shown_name,
    table,
    tag,
)
from aotc.spec.codec import Json, encode
from aotc.spec.evidence import Comparison, Evidence, NodeError, NodeErrors, OutputNoise
from aotc.spec.payload import Finding, Value
from aotc.spec.reports import (
    ArtifactSummary,
    InspectReport,
    Refusal,
    ShapeReport,
    TrafficCoverage,
    VariantSummary,
)
from aotc.spec.run_report import RunReport
from aotc.spec.variant import PassRecord

# How far the answers of each variant are from the model's, output by output.


# Of nodes that add to the error; all are in a table of their own.
_WORST: Final = 10


def exactness_section(
    summary: ArtifactSummary, evidence: Evidence | None, errors: Mapping[str, NodeErrors]
) -> Element:
    """The worst error of every output, each comparison, and `errors` of nodes, by variant."""
    measured = {found.name: found for found in (evidence.variants if evidence is not None else ())}
    parts: list[Element] = []
    for variant in summary.variants:
        parity = variant.parity
        state = "passed" if parity.status == "passed" else f"NOT PROVEN: {parity.reason}"
        parts.append(tag("h3", f"{variant.name}: ", _state(state, parity.status == "passed")))
        if parity.tolerance is not None:
            limits = ", ".join(f"{k} {v}" for k, v in values_of(parity.tolerance).items())
            said = f"{parity.arithmetic}, within {limits}"
            parts.append(tag("p", said, class_="quiet"))
        if variant.worst:
            parts.append(
                table(
                    ("output", "", "#max abs", "#max rel", "#1 - cosine", "#SQNR", "#agreement"),
                    (
                        (
                            shown_name(error.output),
                            _state("passed" if error.passed else error.reason, error.passed),
                            f"{error.max_abs:.2g}",
                            f"{error.max_rel:.2g}",
                            "" if error.cosine is None else f"{1 - error.cosine:.2g}",
                            "" if error.sqnr_db is None else f"{error.sqnr_db:.1f} dB",
                            "" if error.agreement is None else f"{error.agreement:.4g}",
                        )
                        for error in variant.worst
                    ),
                    caption="The worst over all compared sizes.",
                )
            )
        if variant.limits:
            parts.append(
                table(
                    ("output", "", "limit", "measured"),
                    (
                        (
                            shown_name(each.output),
                            _state("passed" if each.passed else "FAILED", each.passed),
                            each.limit,
                            each.measured,
                        )
                        for each in variant.limits
                    ),
                    caption="The limits that the profile states.",
                )
            )
        if (task := variant.task) is not None:
            said = (
                f"{task.metric} of {task.samples} samples: {task.variant:.6g}, the original "
                f"{task.original:.6g}; it may drop by {task.max_drop:g}"
            )
            parts.append(tag("p", "task: ", _state(said, task.passed)))
        parts += [tag("p", said, class_=style) for said, style in _dependence(variant)]
        found = measured.get(variant.name)
        compared = (*found.comparisons, *found.unpartitioned) if found is not None else ()
        if compared:
            parts.append(
                tag(
                    "details",
                    tag("summary", f"All {len(compared)} comparisons"),
                    table(
                        ("fixture", "sizes", "output", "#max abs", "#max rel"),
                        (row for comparison in compared for row in _rows(comparison)),
                    ),
                )
            )
        if variant.name in errors:
            parts += _nodes(errors[variant.name])
    if evidence is not None and evidence.noise:
        parts.append(_noise(evidence.noise))
    if not errors:
        said = (
            "Errors of single nodes were not measured: a build compares outputs alone, and "
            "'aotc inspect --html --model MODEL' measures them."
        )
        parts.append(tag("p", said, class_="quiet"))
    return section("exactness", "Exactness", *parts)


def _nodes(errors: NodeErrors) -> list[Element]:
    """The first and the worst node, those that add most, and all."""
    ranked = sorted(errors.nodes, key=_added, reverse=True)
    worst = [error for error in ranked[:_WORST] if _added(error) > 0]
    found = [
        tag("h4", "Errors by node"),
        tag(
            "dl",
            tag("dt", "inputs"),
            tag("dd", errors.fixture),
            tag("dt", "compared"),
            tag(
                "dd",
                f"{len(errors.nodes)} values inside; {errors.uncompared} are fused away or not "
                "seen",
            ),
            tag("dt", "first node out of tolerance"),
            tag("dd", shown_name(errors.first) if errors.first else "none"),
            tag("dt", "node that adds most"),
            tag("dd", shown_name(errors.worst) if errors.worst else "none"),
        ),
    ]
    if errors.outputs_changed:
        said = "While inner values were read, the variant gave other bits: take these as a hint."
        found.append(tag("p", said, class_="warn"))
    if worst:
        caption = "Those that add most to the error of what they read."
        found.append(table(_COLUMNS, map(_error_row, worst), caption=caption))
    return [
        *found,
        tag(
            "details",
            tag("summary", f"All {len(errors.nodes)} compared values"),
            table(_COLUMNS, map(_error_row, errors.nodes)),
        ),
    ]


_COLUMNS: Final = ("node", "operator", "stands for", "", "#max rel", "#signal to error", "#adds")


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else float("inf")
    return error.added


def _error_row(error: NodeError) -> tuple[Content, ...]:
    others = [name for name in error.covers if name != error.node]
    return (
        shown_name(error.node),
        shown_name(error.op, 60),
        ", ".join(shown_name(name, 60) for name in others[:6])
        + (f" and {len(others) - 6} more" if len(others) > 6 else ""),
        _state("within" if error.passed else error.reason, error.passed),
        "" if error.max_rel > 1e300 else f"{error.max_rel:.2g}",
        "" if error.sqnr_db is None else f"{error.sqnr_db:.1f} dB",
        "" if error.added is None else f"{error.added:.2g}",
    )


def _noise(noise: Sequence[OutputNoise]) -> Element:
    """What float32 itself loses, as the original in float64 shows."""
    return table(
        ("output", "#max abs", "#max rel", "#SQNR", "below it"),
        (
            (
                shown_name(item.output),
                f"{item.max_abs:.2g}",
                f"{item.max_rel:.2g}",
                "" if item.sqnr_db is None else f"{item.sqnr_db:.1f} dB",
                "; ".join(item.breached),
            )
            for item in noise
        ),
        caption="The original's own noise: its answers in float32 against those in float64.",
    )


def _dependence(variant: VariantSummary) -> list[tuple[str, str]]:
    """Whether answers depend on the CPU, and whether equal calls had equal bytes; with a style."""
    said: list[tuple[str, str]] = []
    if variant.integer_products is not None:
        text = ": ".join(variant.integer_products.in_words())
        if (timed := variant.timed_against) is not None:
            text += f"; a call takes {timed.ratio:.2f} of the time of {timed.other}"
        said.append((f"8-bit integers: {text}.", "quiet"))
    if (repeats := variant.repeats) is not None:
        if not repeats.differing_runs:
            said.append((f"{repeats.runs} equal calls had the same bytes as the first.", "quiet"))
        else:
            names = ", ".join(output.output for output in repeats.outputs)
            text = f"{repeats.differing_runs} of {repeats.runs} equal calls had other bytes"
            remedy = f"; not with {repeats.setting!r}" if repeats.setting else ""
            said.append((f"{text}, in {names}{remedy}.", "bad"))
    return said


def _rows(comparison: Comparison) -> list[tuple[Content, ...]]:
    sizes = sizes_text(comparison.sizes)
    if comparison.padded_to:
        sizes += f", padded to {sizes_text(comparison.padded_to)}"
    return [
        (
            comparison.fixture,
            sizes,
            shown_name(error.output),
            f"{error.max_abs:.2g}",
            f"{error.max_rel:.2g}",
        )
        for error in comparison.outputs
    ]


def _state(text: str, good: bool) -> Element:
    return tag("span", text, class_="good" if good else "bad")


# The manifest as it stands, with a search over its lines.


def manifest_section(content: bytes) -> Element:
    """Every part of aotc.json; lines that mislead are escaped, and very long ones cut."""
    data = json.loads(content)
    parts = []
    for name, value in data.items():
        text = json.dumps(value, indent=1, ensure_ascii=False)
        lines = "\n".join(printable(line) for line in text.split("\n"))
        block = tag("pre", tabindex=0)
        # The line breaks are ours, and each line is printable already.
        block.text = lines
        kept = len(lines.encode("utf-8", "replace"))
        shown = tag("summary", tag("code", shown_name(name)), f" {kept} bytes")
        parts.append(tag("details", shown, block))
    return section(
        "manifest",
        "Manifest",
        tag(
            "p",
            "payload/aotc.json as it stands; its sha256 is the artifact's id. "
            "Lines of more than 2000 characters are cut.",
        ),
        tag(
            "label",
            "show the lines with ",
            tag("input", type="search", id="lines", autocomplete="off"),
        ),
        tag("p", id="counted", role="status", class_="quiet"),
        *parts,
    )


# What an artifact claims of itself: what it is, who signed it, and what a reader must know.


def overview_section(report: InspectReport, summary: ArtifactSummary) -> Element:
    """Facts, signatures and findings, all as claims."""
    passed = [v.name for v in summary.variants if v.parity.status == "passed"]
    verdict = (
        f"It claims that {len(passed)} of {len(summary.variants)} variants gave the model's "
        "answers when they were built"
    )
    not_run = [v for v in summary.variants if v.parity.status != "passed"]
    toolchain = summary.toolchain
    facts: list[tuple[str, Content]] = [
        ("artifact id", tag("code", summary.artifact_id)),
        (
            "model",
            f"{shown_name(report.name)}, {report.source.nodes_total} nodes, "
            f"{bytes_text(report.source.size)}",
        ),
        ("model's sha256", tag("code", report.source.sha256)),
        ("profile", summary.profile),
        ("target", summary.target),
        ("built", summary.built_at or "not stated: there is no evidence"),
        (
            "toolchain",
            f"aotc {toolchain.aotc}, ONNX Runtime {toolchain.onnxruntime}, onnx "
            f"{toolchain.onnx}, Python {toolchain.python}",
        ),
        (
            "payload",
            f"{bytes_text(summary.payload_bytes)} in {summary.files} files, "
            f"{summary.fixtures} fixtures",
        ),
    ]
    return section(
        "overview",
        "Claims",
        tag("p", f"{verdict}.", class_="verdict"),
        *(
            tag("p", f"NOT PROVEN: {v.name} was not run: {v.parity.reason}", class_="bad")
            for v in not_run
        ),
        tag("dl", *(e for name, value in facts for e in (tag("dt", name), tag("dd", value)))),
        tag("h3", "Signatures, as claimed"),
        _signatures(summary),
        tag("h3", "Variants"),
        _variants(summary),
        *_remarks(report),
    )


def _signatures(summary: ArtifactSummary) -> Element:
    if not summary.claims:
        return tag("p", "There is none.", class_="bad")
    return table(
        ("file", "says", "names the key"),
        (
            (
                tag("code", claim.path),
                claim.summary or f"unknown: {claim.predicate_type}",
                tag(
                    "span",
                    tag("code", claim.key_id[:16] or "none"),
                    " development key" if claim.development_key else "",
                ),
            )
            for claim in summary.claims
        ),
        caption="None of these signatures was checked.",
    )


def _variants(summary: ArtifactSummary) -> Element:
    return table(
        ("variant", "providers", "precision", "placement", "#nodes", "run time", "requires"),
        (
            (
                tag("b", variant.name),
                ", ".join(short_provider(name) for name in variant.providers),
                variant.precision,
                variant.placement_origin,
                str(variant.nodes),
                ", ".join(
                    f"{name} {duration(seconds)}"
                    for name, seconds in list(variant.run_seconds.items())[:4]
                )
                or "not measured",
                _requirements(encode(variant.requirements)),
            )
            for variant in summary.variants
        ),
    )


def _requirements(data: Json) -> str:
    assert isinstance(data, dict)
    return "; ".join(
        f"{name.replace('_', ' ')} {_flat(value)}"
        for name, value in data.items()
        if value not in (None, "", [], {}, False)
    )


def _flat(value: Json) -> str:
    if isinstance(value, list):
        return ", ".join(_flat(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(item)}" for name, item in value.items())
    return str(value)


def _remarks(report: InspectReport) -> list[Element]:
    found = []
    remarks: tuple[tuple[str, str, Sequence[Refusal | Finding]], ...] = (
        ("Could not be read", "bad", report.problems),
        ("Findings", "warn", report.findings),
    )
    for title, kind, each in remarks:
        if each:
            rows = ((tag("b", one.code, class_=kind), one.what, one.where) for one in each)
            found += [tag("h3", title), table(("code", "what", "where"), rows)]
    return found


# The passes that ran, and what each changed.


_MAX_KEPT = 20


def passes_section(summary: ArtifactSummary) -> Element:
    """A table for each variant; equal ones are shown once."""
    grouped: dict[str, tuple[list[str], tuple[PassRecord, ...]]] = {}
    for variant in summary.variants:
        grouped.setdefault(repr(variant.passes), ([], variant.passes))[0].append(variant.name)
    parts: list[Element] = []
    for names, passes in grouped.values():
        parts.append(tag("h3", ", ".join(names)))
        if not passes:
            parts.append(tag("p", "No pass ran."))
            continue
        parts.append(
            table(
                ("pass", "options", "#nodes before", "#after", "#change", "what it found"),
                (_row(ran) for ran in passes),
            )
        )
    return section("passes", "Passes", *parts)


def _row(ran: PassRecord) -> tuple[Content, ...]:
    matched = ", ".join(f"{shown_name(name, 80)} {count}" for name, count in ran.matched.items())
    kept = ", ".join(shown_name(name, 60) for name in ran.kept[:_MAX_KEPT])
    if len(ran.kept) > _MAX_KEPT:
        kept += f", and {len(ran.kept) - _MAX_KEPT} more"
    change = ran.nodes_after - ran.nodes_before
    return (
        tag("b", ran.name),
        ", ".join(f"{name} {_plain(value)}" for name, value in ran.options.items()),
        str(ran.nodes_before),
        str(ran.nodes_after),
        f"{change:+d}" if change else "0",
        matched + (f"; kept as they were: {kept}" if kept else ""),
    )


def _plain(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# The outcome of a run: its gates and what was breached. All there is where nothing was built.


_RUN_FACTS: Final = (
    *("model", "model_sha256", "profile", "target", "artifact", "artifact_id", "tool_version"),
)


def run_section(run: RunReport) -> Element:
    """Outcome, gates, breaches and findings of `run`."""
    good = run.outcome == "passed"
    parts: list[Element] = [
        tag("p", f"aotc {run.command}: ", tag("b", run.outcome, class_="good" if good else "bad")),
        _facts(run, _RUN_FACTS),
    ]
    if run.refusals:
        parts += [tag("h3", "Breaches"), *map(_breach, run.refusals)]
    titled: tuple[tuple[str, tuple[str, ...], list[tuple[Content, ...]]], ...] = (
        (
            "Gates",
            ("gate", "of", "limit", "measured", "status", "stated at"),
            [
                (
                    tag("b", gate.name),
                    shown_name(gate.subject),
                    gate.limit,
                    gate.measured,
                    _status(gate.status),
                    _place(gate.place),
                )
                for gate in run.gates
            ],
        ),
        (
            "Findings of the run",
            ("code", "what", "where"),
            [(found.code, found.what, found.where) for found in run.findings],
        ),
        (
            "Measured",
            ("measurement", "of", "#value", "unit"),
            [
                (figure.name, shown_name(figure.subject), f"{figure.value:.6g}", figure.unit)
                for figure in run.measurements
            ],
        ),
        (
            "Time",
            ("stage", "#time"),
            [(name, duration(float(seconds))) for name, seconds in run.stages.items()],
        ),
    )
    for title, columns, rows in titled:
        if rows:
            parts += [tag("h3", title), table(columns, rows)]
    return section("run", "Run", *parts)


def _facts(thing: RunReport | Refusal, fields: Sequence[str]) -> Element:
    """What is stated of `fields`, by their names."""
    stated = [(field, str(getattr(thing, field))) for field in fields]
    return tag(
        "dl",
        *(
            element
            for field, text in stated
            if text
            for element in (tag("dt", field.replace("_", " ")), tag("dd", text))
        ),
    )


def _breach(breach: Refusal) -> Element:
    facts = _facts(breach, ("where", "expected", "found", "fix"))
    if place := _place(breach.place):
        facts.extend((tag("dt", "stated at"), tag("dd", place)))
    return tag(
        "div",
        tag("p", tag("b", breach.code, class_="bad"), f" {breach.what}"),
        facts,
    )


def _status(status: str) -> Element:
    kind = {"passed": "good", "failed": "bad"}.get(status, "warn")
    return tag("span", status, class_=kind)


def _place(place: Place | None) -> str:
    return "" if place is None else str(place).removeprefix(":")


# Inputs, outputs, sizes of dims, buckets, and the traffic on them.


def shapes_section(report: InspectReport, shapes: ShapeReport | None) -> Element:
    """What callers may pass, and what of it was compared."""
    domain = report.domain
    compared = {dim.dim: dim for dim in (shapes.dims if shapes is not None else ())}
    values = (("in", report.inputs), ("out", report.outputs))
    parts = [
        table(
            ("name", "", "type", "shape"),
            (
                (shown_name(value.name), way, value.dtype, _shape(value))
                for way, named in values
                for value in named
            ),
        )
    ]
    if domain is not None and domain.dims:
        parts.append(tag("h3", "Sizes"))
        parts.append(
            table(
                ("dim", "sizes", "#optimal", "buckets", "compared at build", "#share compared"),
                (
                    (
                        shown_name(name),
                        dim.text(),
                        str(dim.opt),
                        ", ".join(map(str, dim.buckets)) or "none",
                        ", ".join(map(str, compared[name].compared)) if name in compared else "",
                        share_text(compared[name].share) if name in compared else "",
                    )
                    for name, dim in domain.dims.items()
                ),
            )
        )
        parts += [tag("p", tag("code", str(relation))) for relation in domain.relations]
    parts.append(tag("h3", "Traffic"))
    if shapes is not None and shapes.learned is not None:
        learned = shapes.learned
        said = (
            f"The profile was learned from {learned.requests} requests: "
            f"{share_text(learned.coverage)} of them are accepted, with {learned.padding:.2f} "
            "elements added for each. "
        )
        parts.append(tag("p", said, learned.plan))
    if shapes is not None and shapes.traffic is not None:
        parts += _traffic(shapes.traffic)
    elif shapes is None or shapes.learned is None:
        said = "No traffic is known: the profile was not learned, and none was given."
        parts.append(tag("p", said, class_="quiet"))
    return section("shapes", "Shapes", *parts)


def _traffic(traffic: TrafficCoverage) -> list[Element]:
    asked = max(traffic.requests, 1)
    served = [
        (shown_name(name), str(count), _bar(count / asked))
        for name, count in traffic.variants.items()
    ]
    refused = [
        (f"refused: {shown_name(sizes)}", str(count), _bar(count / asked))
        for sizes, count in traffic.refused.items()
    ]
    said = (
        f"Of {traffic.requests} recorded requests {share_text(traffic.accepted)} are accepted: "
        f"{share_text(traffic.exact)} run exactly, {share_text(traffic.padded)} padded, "
        f"{share_text(traffic.routed)} on the dynamic variant."
    )
    return [tag("p", said), table(("variant", "#requests", "share"), [*served, *refused])]


def _bar(share: float) -> Element:
    return tag(
        "svg",
        tag("title", share_text(share)),
        tag("rect", x=0, y=0, width=max(share * 160, 1.0), height=10, class_="bar"),
        width=160,
        height=10,
        role="img",
        aria_label=share_text(share),
    )


def _shape(value: Value) -> str:
    return "unknown rank" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
