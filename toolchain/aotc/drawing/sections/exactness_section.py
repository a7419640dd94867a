"""How far the answers of each variant are from the model's, output by output."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from aotc.contract.results.build_evidence import Comparison, Evidence
from aotc.contract.results.reports import ArtifactSummary, VariantSummary
from aotc.drawing.artifact_contents import sizes_text
from aotc.drawing.markup import Content, section, shown_name, table, tag
from aotc.records import values_of


def exactness_section(summary: ArtifactSummary, evidence: Evidence | None) -> Element:
    """The worst error of every output, and each comparison."""
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
                    ("output", "", "#max abs", "#max rel", "#1 - cosine"),
                    (
                        (
                            shown_name(error.output),
                            _state("passed" if error.passed else error.reason, error.passed),
                            f"{error.max_abs:.2g}",
                            f"{error.max_rel:.2g}",
                            "" if error.cosine is None else f"{1 - error.cosine:.2g}",
                        )
                        for error in variant.worst
                    ),
                    caption="The worst over all compared sizes.",
                )
            )
        parts += [tag("p", said, class_=style) for said, style in _dependence(variant)]
        found = measured.get(variant.name)
        compared = (*found.comparisons, *found.undivided) if found is not None else ()
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
    said = "Errors of single nodes were not measured: outputs alone are compared at build."
    parts.append(tag("p", said, class_="quiet"))
    return section("exactness", "Exactness", *parts)


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
