"""The sections of a page, apart from graph and memory: sheets, and what only a page has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from aotc.base.text import printable
from aotc.report.html.figures import artifact_figures, variants_table
from aotc.report.html.latency_chart import bench_parts
from aotc.report.html.page import elements, section, shown_name, tag
from aotc.report.html.profile_lines import profile_lines
from aotc.report.sheet import (
    FAILED,
    Facts,
    Heading,
    Note,
    Part,
    Sheet,
    Table,
    findings_table,
    first,
    fixture_in_words,
    refusals_table,
    stated,
    table,
)
from aotc.report.sheets.artifact import (
    branches_table,
    claims_table,
    dim_text,
    identity,
    proven_table,
    random_table,
    shapes_sheet,
)
from aotc.report.sheets.capture import capture_sheet
from aotc.report.sheets.judged import run_sheet
from aotc.report.sheets.variants import (
    exactness_sheet,
    node_errors_sheet,
    nodes_table,
    slice_text,
)
from aotc.spec.codec import Json
from aotc.spec.evidence import Comparison, Evidence, NodeErrors, VariantEvidence
from aotc.spec.reports import ArtifactSummary, InspectReport
from aotc.spec.run_report import RunReport
from aotc.spec.variant import PassRecord


def overview_section(report: InspectReport, summary: ArtifactSummary) -> Element:
    """What people come for: verdict, size, latency, accuracy, where nodes run; then findings."""
    lacking = [each for each in summary.variants if each.parity.status != "passed"]
    sheet: Sheet = [
        *(Note(f"NOT PROVEN: {each.name}: {each.parity.reason}", FAILED) for each in lacking),
        variants_table(summary.variants),
        findings_table(report.findings),
        refusals_table("problems", report.problems),
    ]
    return section("overview", "Overview", artifact_figures(report, summary), *elements(sheet))


def claims_section(report: InspectReport, summary: ArtifactSummary) -> Element:
    """Where an artifact comes from and who signed it, as it claims."""
    proven = sum(each.parity.status == "passed" for each in summary.variants)
    said = (
        "This page repeats what the artifact says of itself. No signature and no digest was "
        "checked when it was written, and it proves nothing of the artifact that you have: "
        f"'aotc verify' does. It claims that {proven} of {len(summary.variants)} variants gave "
        "the model's answers when they were built."
    )
    toolchain = summary.toolchain
    more = [
        ("model's sha256", report.source.sha256),
        ("toolchain", f"onnx {toolchain.onnx}, Python {toolchain.python}"),
    ]
    sheet: Sheet = [
        Note(said),
        Facts([*identity(report), *more]),
        *capture_sheet(report.source.framework, summary.exported),
        proven_table(summary.merged),
        claims_table(summary.claims),
    ]
    return section("claims", "Origin and signatures", *elements(sheet))


def shapes_section(report: InspectReport) -> Element:
    """What callers may pass, what of it was compared, and the traffic on it."""
    shapes = report.artifact.shapes if report.artifact is not None else None
    sheet = shapes_sheet(report)
    if shapes is None or (shapes.learned is None and shapes.traffic is None):
        said = "No traffic is known: the profile was not learned, and none was given."
        sheet.append(Note(said, "quiet"))
    return section("shapes", "Shapes", *elements(sheet))


def exactness_section(
    summary: ArtifactSummary, evidence: Evidence | None, errors: Mapping[str, NodeErrors]
) -> Element:
    """The worst error of every output, each comparison, and `errors` of nodes, by variant."""
    parts = [*elements(exactness_sheet(summary.variants))]
    unproven = {each.name for each in summary.variants if each.parity.status != "passed"}
    for found in evidence.variants if evidence is not None else ():
        where = ", undivided on the CPU" if found.unpartitioned else ", on the build host"
        title = f"comparisons of {found.name}{where if found.name in unproven else ''}"
        parts += _folded(_comparisons(found), title)
    for variant, measured in errors.items():
        parts += elements(node_errors_sheet(variant, measured))
        parts += _folded(nodes_table("", measured.nodes), "compared values")
    if not errors:
        said = (
            "Errors of single nodes were not measured: a build compares outputs alone, and "
            "'aotc inspect --html --model MODEL' measures them."
        )
        parts += elements([Note(said, "quiet")])
    parts += elements([branches_table(summary.branches), random_table(summary.random)])
    if evidence is not None:
        parts += elements([_noise(evidence)])
    return section("exactness", "Exactness", *parts)


def _folded(rows: Table, what: str) -> Iterator[Element]:
    """A table that a click shows."""
    if rows.rows:
        title = f"All {len(rows.rows)} {shown_name(what)}"
        yield tag("details", tag("summary", title), *elements([rows]))


def _comparisons(found: VariantEvidence) -> Table:
    compared = (*found.comparisons, *found.unpartitioned)
    return table(
        "",
        [(each, error) for each in compared for error in each.outputs],
        ("fixture", lambda pair: fixture_in_words(pair[0].fixture)),
        ("sizes", lambda pair: _padded_sizes(pair[0])),
        ("output", lambda pair: pair[1].output),
        ("#max abs", lambda pair: f"{pair[1].max_abs:.2g}"),
        ("#max rel", lambda pair: f"{pair[1].max_rel:.2g}"),
        ("worst slice", lambda pair: slice_text(pair[1].worst_slice)),
    )


def _padded_sizes(compared: Comparison) -> str:
    padded = f", padded to {sizes_text(compared.padded_to)}" if compared.padded_to else ""
    return sizes_text(compared.sizes) + padded


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes of dims in one line; `fixed` where no dim is free."""
    return ", ".join(f"{dim_text(name)} {size}" for name, size in sizes.items()) or "fixed"


def _noise(evidence: Evidence) -> Table:
    """What float32 itself loses, as the original in float64 shows."""
    return table(
        "noise",
        evidence.noise,
        ("output", lambda item: item.output),
        ("#max abs", lambda item: f"{item.max_abs:.2g}"),
        ("#max rel", lambda item: f"{item.max_rel:.2g}"),
        ("#SQNR", lambda item: stated(item.sqnr_db, "{:.1f} dB".format)),
        ("below it", lambda item: "; ".join(item.breached)),
        note="The original's own noise: its answers in float32 against those in float64.",
    )


_MAX_KEPT: Final = 20


def passes_section(summary: ArtifactSummary) -> Element:
    """The passes that ran, and what each changed; of equal variants once."""
    grouped: dict[str, tuple[list[str], tuple[PassRecord, ...]]] = {}
    for variant in summary.variants:
        grouped.setdefault(repr(variant.passes), ([], variant.passes))[0].append(variant.name)
    sheet = [_passes(", ".join(names), passes) for names, passes in grouped.values()]
    return section("passes", "Passes", *elements(sheet))


def _passes(names: str, passes: Sequence[PassRecord]) -> Table | Heading:
    if not passes:
        return Heading(names, "no pass ran")
    return table(
        names,
        passes,
        ("pass", lambda ran: ran.name),
        ("options", lambda ran: ", ".join(f"{k} {_plain(v)}" for k, v in ran.options.items())),
        ("#nodes before", lambda ran: str(ran.nodes_before)),
        ("#after", lambda ran: str(ran.nodes_after)),
        ("#change", lambda ran: f"{ran.nodes_after - ran.nodes_before:+d}".replace("+0", "0")),
        ("what it found", _found),
    )


def _found(ran: PassRecord) -> str:
    found = ", ".join(f"{shown_name(name, 80)} {number}" for name, number in ran.matched.items())
    kept = first([shown_name(name, 60) for name in ran.kept], _MAX_KEPT)
    return found + (f"; kept as they were: {kept}" if kept else "")


def _plain(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


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


def run_section(run: RunReport) -> Element:
    """The outcome of a run: what failed where it is stated, figures, breaches, gates, and of what.

    What a benchmark measured is charted, and not listed as well.
    """
    timed = list(bench_parts(run)) if run.command == "bench" else []
    outcome, *others = run_sheet(run)
    judged = [part for part in others if isinstance(part, Note) and part.mood]
    rest = [part for part in others if part not in judged and not (timed and _is_measured(part))]
    return section(
        "run",
        "Run",
        *elements([outcome, *judged]),
        *profile_lines(run),
        *timed,
        *elements(rest),
    )


def _is_measured(part: Part) -> bool:
    return isinstance(part, Table) and part.title == "Measured"
