"""What a page begins with: the figures that people came for, in large, and where nodes run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

from aotc.base.records import record
from aotc.base.text import size
from aotc.report.html.page import Content, flowing, share_text, swatch, tag, time_text
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Table,
    count,
    fixture_in_words,
    provider,
    verdict,
)
from aotc.report.sheets.variants import (
    placement_text,
    requirements_in_words,
    run_text,
    task_text,
    usual_fixture,
    with_spread,
)
from aotc.spec.diff_report import DiffReport, MeasuredRow
from aotc.spec.evidence import OutputError
from aotc.spec.reports import ArtifactSummary, InspectReport, VariantSummary


@record(kw_only=False)
class Figure:
    """One figure: what it is of, the figure itself in its mood, and lines that explain it."""

    label: str
    text: str
    notes: Sequence[str | Element] = ()
    mood: str = ""


def figures(found: Iterable[Figure]) -> Element:
    """Figures beside each other, on a phone two in a row."""
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", each.label),
                tag("dd", *flowing(each.text), class_=f"figure {each.mood}".strip()),
                *(_note(note) for note in each.notes if note != ""),
            )
            for each in found
        ),
        class_="figures",
    )


def _note(note: str | Element) -> Element:
    content: Iterable[Content] = flowing(note) if isinstance(note, str) else (note,)
    return tag("dd", *content, class_="quiet")


# Of an artifact.


def artifact_figures(report: InspectReport, summary: ArtifactSummary) -> Element:
    """Verdict, size, latency, accuracy, and where nodes run, of the first variant."""
    first, *others = summary.variants
    more = f"of {first.name}, the first of {count(len(summary.variants), 'variant')}"
    return figures(
        (
            _verdict(summary.variants),
            _size(report, summary),
            _latency(report, first, more if others else ""),
            *_accuracy(first, more if others else ""),
            Figure(
                "Nodes run on",
                provider_text(first),
                (provider_bar(first), f"{count(first.nodes, 'node')}, {first.placement_origin}"),
            ),
        )
    )


def _verdict(variants: Sequence[VariantSummary]) -> Figure:
    lacking = [each.name for each in variants if each.parity.status != "passed"]
    if lacking:
        said = f"nothing compared the answers of {', '.join(lacking)} as the target gives them"
        return Figure("Verdict", "NOT PROVEN", (said,), FAILED)
    of = "its variant" if len(variants) == 1 else f"all {len(variants)} variants"
    said = f"it claims that {of} gave the model's answers at build"
    return Figure("Verdict", "proven", (said,), PASSED)


def _size(report: InspectReport, summary: ArtifactSummary) -> Figure:
    source = report.source
    of_model = source.size + sum(file.size for file in source.external_data)
    weights = summary.bytes_by_role.get("weights")
    notes = (
        f"{share_text(summary.payload_bytes / of_model)} of the model's {size(of_model)}"
        if of_model
        else "",
        "" if weights is None else f"weights {size(weights)}",
    )
    return Figure("Size", size(summary.payload_bytes), notes)


def _latency(report: InspectReport, variant: VariantSummary, of: str) -> Figure:
    name = usual_fixture(variant)
    load = "" if variant.load_seconds is None else f"load {time_text(variant.load_seconds)}"
    if not name:
        return Figure("Latency", "not measured", (of, load))
    domain = report.domain
    sizes = {dim: found.opt for dim, found in domain.dims.items()} if domain is not None else {}
    at = ", ".join(f"{dim} {opt}" for dim, opt in sizes.items()) if name.startswith("opt") else ""
    where = "" if variant.parity.status == "passed" else "on the build host, which is another"
    notes = (f"a call, warm, {at or fixture_in_words(name)}", where, of, load)
    return Figure("Latency", run_text(variant, name), notes)


def _accuracy(variant: VariantSummary, of: str) -> Iterable[Figure]:
    if (task := variant.task) is not None:
        mood = PASSED if task.passed else FAILED
        yield Figure("Accuracy", f"{task.variant:.4g}", (task_text(task), of), mood)
    worst = worst_error(variant.worst)
    if worst is not None:
        mood = PASSED if worst.passed else FAILED
        yield Figure("Answer error", *error_text(worst), mood)
    elif variant.task is None:
        yield Figure("Accuracy", "not measured", (of,), NOTICED)


def worst_error(errors: Sequence[OutputError]) -> OutputError | None:
    """The output that errs most beside what it may: one that did not pass first."""
    return max(errors, key=lambda each: (not each.passed, each.max_rel), default=None)


def error_text(error: OutputError) -> tuple[str, Sequence[str]]:
    """The largest error of an output in short, and what it is."""
    if error.rule:
        return f"{error.differing} differ", (f"of {error.output}: {error.rule}",)
    if not error.max_abs:
        return "none", (f"{error.output} is equal",)
    largest = f"at most, of {error.output}, relative to its largest value"
    return f"{error.max_rel:.1g}", (largest, f"{error.max_abs:.2g} absolute")


def variants_table(variants: Sequence[VariantSummary]) -> Table:
    """What is known of each variant, a row each."""
    rows = [
        (
            each.name,
            verdict(each.parity.status == "passed", "NOT PROVEN", "proven"),
            placement_text(each),
            run_text(each, name) if (name := usual_fixture(each)) else "",
            "" if each.load_seconds is None else time_text(each.load_seconds),
            "" if (worst := worst_error(each.worst)) is None else error_text(worst)[0],
            requirements_in_words(each.requirements),
        )
        for each in variants
    ]
    heads = ("", "nodes", "a call", "load", "answer error", "runs on")
    return Table("variants", heads, rows, name="variant")


# Where the nodes of a variant run.


def provider_shares(variant: VariantSummary) -> Mapping[str, float]:
    """The share of nodes by provider."""
    if variant.partitioning is None:
        return variant.share
    return {each.provider: each.node_share for each in variant.partitioning.providers}


def provider_text(variant: VariantSummary) -> str:
    """The provider of most nodes, with its share."""
    shares = provider_shares(variant)
    if not shares:
        return "not known"
    most = max(shares, key=lambda name: shares[name])
    return f"{provider(most)} {shares[most]:.0%}"


def provider_bar(variant: VariantSummary) -> Element:
    """The shares of providers as one bar, in the colours of the graph."""
    shares = provider_shares(variant)
    colours = {
        name: f"p{index % 6}"
        for index, name in enumerate(dict.fromkeys((*variant.providers, *shares)))
    }
    said = ", ".join(f"{provider(name)} {share:.0%}" for name, share in shares.items())
    bars, start = [], 0.0
    for name, share in shares.items():
        x, width = f"{start:.2%}", f"{share:.2%}"
        bars.append(tag("rect", x=x, width=width, height="100%", class_=colours[name]))
        start += share
    drawn = tag("svg", tag("title", said), *bars, class_="share", role="img", aria_label=said)
    keys = (
        swatch(colours[name], f"{provider(name)} {share:.0%}") for name, share in shares.items()
    )
    return tag("span", drawn, *(keys if len(shares) > 1 else ()), class_="placed")


# Of a comparison.


def diff_figures(report: DiffReport) -> Element:
    """Latency, size and answers of two artifacts, with how far they changed."""
    a, b = report.a.payload_bytes, report.b.payload_bytes
    return figures((_changed_latency(report), _changed_size(a, b), _changed_answers(report)))


def _changed_latency(report: DiffReport) -> Figure:
    runs = [row for row in report.measured if row.what.startswith("run ")]
    runs = [row for row in runs if row.variant == runs[0].variant]
    one, other = _usual([(row, row.a) for row in runs]), _usual([(row, row.b) for row in runs])
    if one is None or other is None or one.a is None or other.b is None:
        return Figure("Latency", "not measured", ("in both",), NOTICED)
    measured_on = "measured at both builds, each on its host"
    sides = [_timed("A", one, one.a, one.spread_a), _timed("B", other, other.b, other.spread_b)]
    is_usual = {one.what, other.what} <= {"run opt", "run opt-sampled"}
    if one is not other and not is_usual:
        return Figure("Latency", "not comparable", (*sides, "at other inputs"), NOTICED)
    ratio = f"B takes {other.b / one.a:.3g} times A's" if one.a else ""
    notes = (ratio, one.variant, *sides, measured_on)
    return Figure("Latency", f"{time_text(one.a)} \u2192 {time_text(other.b)}", notes)


def _usual(rows: Sequence[tuple[MeasuredRow, float | None]]) -> MeasuredRow | None:
    """The run that stands for a variant, as `usual_fixture` has it."""
    found = {row.what: row for row, seconds in rows if seconds is not None}
    known = (found.get(f"run {name}") for name in ("opt", "opt-sampled"))
    return next((row for row in known if row is not None), next(iter(found.values()), None))


def _timed(side: str, row: MeasuredRow, seconds: float, spread: float | None) -> str:
    return f"{side} {with_spread(seconds, spread)}, {fixture_in_words(row.what[4:])}"


def _changed_size(a: int, b: int) -> Figure:
    if a == b:
        return Figure("Size", size(a), ("equal",))
    share = f"{b / a - 1:+.1%}" if a else ""
    return Figure("Size", f"{size(a)} \u2192 {size(b)}", (share, f"{b - a:+,} bytes"))


def _changed_answers(report: DiffReport) -> Figure:
    area = report.area("answers")
    if area.status == "not-compared":
        return Figure("Answers", "not compared", (area.reason,), NOTICED)
    answers = report.answers
    notes = [f"{each.what}: {each.b}" for each in area.changes[:2]]
    worst = [error for _, error in answers.worst()] if answers is not None else []
    if not notes and (error := worst_error(worst)) is not None:
        large, explained = error_text(error)
        notes = [explained[0] if large == "none" else f"{large} {explained[0]}"]
    if answers is not None and answers.calls:
        notes.append(f"on {count(len(answers.calls), 'input')}")
    if area.status == "same":
        return Figure("Answers", "the same", notes, PASSED)
    return Figure("Answers", "differ", notes, FAILED)
