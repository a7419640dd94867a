"""What an artifact claims of itself: what it is, who signed it, and what a reader must know."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.results.reports import ArtifactSummary, InspectReport
from aotc.drawing.figures import bytes_text, short_provider
from aotc.drawing.markup import Content, section, shown_name, table, tag
from aotc.reporting.plain_values import duration


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
                claim.says or f"unknown: {claim.predicate_type}",
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
                variant.placement,
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
    if report.problems:
        found += [
            tag("h3", "Could not be read"),
            table(
                ("code", "what", "where"),
                ((tag("b", p.code, class_="bad"), p.what, p.where) for p in report.problems),
            ),
        ]
    if report.findings:
        found += [
            tag("h3", "Findings"),
            table(
                ("code", "what", "where"),
                ((tag("b", f.code, class_="warn"), f.what, f.where) for f in report.findings),
            ),
        ]
    return found
