"""The passes that ran, and what each changed."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.results.reports import ArtifactSummary
from aotc.drawing.markup import Content, section, shown_name, table, tag

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
