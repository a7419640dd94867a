"""How far the answers of each variant are from the model's, output by output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from aotc.contract.results.build_evidence import Comparison, Evidence, OutputNoise
from aotc.contract.results.nodes.node_errors import NodeError, NodeErrors
from aotc.contract.results.reports import ArtifactSummary, VariantSummary
from aotc.drawing.artifact_contents import sizes_text
from aotc.drawing.markup import Content, section, shown_name, table, tag
from aotc.records import values_of

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
                "; ".join(item.below),
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
