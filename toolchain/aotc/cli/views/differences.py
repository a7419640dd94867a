"""What `aotc diff` shows: what changed first, and what did not in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.base.text import duration, listed, size
from aotc.cli.terminal import (
    Cell,
    facts,
    fixture_in_words,
    heading,
    provider,
    section,
    sections,
    short,
)
from aotc.cli.views.verification import refusals_view
from aotc.report.wording import both_values, only_pair, what_changed
from aotc.spec.diff_report import (
    AREAS,
    AreaDiff,
    ComparedArtifact,
    DiffReport,
    MeasuredRow,
    NodeChange,
    NodesDiff,
    TensorChange,
    WeightsDiff,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


# Of one area, of one kind of nodes, and of weights; `--json` has all.
_MAX_CHANGES = 6
_MAX_TENSORS = 10
_WIDEST_VALUE = 44


def diff_view(report: DiffReport) -> list[RenderableType]:
    """Two artifacts and what changed from one to the other."""
    changed = [area for area in report.areas if area.status == "changed"]
    skipped = [area for area in report.areas if area.status == "not-compared"]
    status = f"{len(changed)} of {len(AREAS)} areas differ"
    if not changed:
        status = "nothing differs" if not skipped else "nothing that was compared differs"
    parts = [
        heading(f"{report.a.path} -> {report.b.path}", f"{status}; nothing here was verified"),
        facts([("A", _artifact(report.a)), ("B", _artifact(report.b))]),
    ]
    if report.same_id:
        parts.append(
            facts([("same", "both have one id: their manifests are equal, byte for byte")])
        )
    parts += refusals_view("failed", report.failed)
    rows = [row for area in changed for row in _area_rows(area, only_pair(report))]
    parts += sections("changed", ("", "A", "B", "B / A"), rows)
    parts += _nodes(report.nodes)
    parts += _weights(report.weights)
    same = ", ".join(area.area for area in report.areas if area.status == "same")
    parts.append(
        facts(
            [
                ("unchanged", same),
                ("not compared", _by_reason(skipped)),
                ("compared in part", _by_reason([area for area in changed if area.reason])),
            ]
        )
    )
    return [*parts, *_measured(report.measured), *refusals_view("problems", report.problems)]


def _by_reason(areas: Sequence[AreaDiff]) -> list[str]:
    """A line for each reason, with all areas that have it."""
    reasons = dict.fromkeys(area.reason for area in areas)
    return [
        f"{', '.join(area.area for area in areas if area.reason == reason)}: {reason}"
        for reason in reasons
    ]


def _artifact(artifact: ComparedArtifact) -> str:
    built = f", built {artifact.built_at}" if artifact.built_at else ""
    return (
        f"{artifact.name}, {size(artifact.payload_bytes)}{built}, id {short(artifact.artifact_id)}"
    )


def _area_rows(area: AreaDiff, only: str) -> list[Sequence[Cell]]:
    rows: list[Sequence[Cell]] = [
        (
            "" if index else area.area,
            what_changed(area, change, only),
            *both_values(area, change, _WIDEST_VALUE),
            f"{change.ratio:.4g}" if change.ratio is not None else "",
        )
        for index, change in enumerate(area.changes[:_MAX_CHANGES])
    ]
    if len(area.changes) > _MAX_CHANGES:
        rows.append(("", f"and {len(area.changes) - _MAX_CHANGES} more", "", "", ""))
    return rows


def _nodes(nodes: Sequence[NodesDiff]) -> list[RenderableType]:
    rows: list[Sequence[Cell]] = []
    for each in nodes:
        details = [
            *_moved(each.moved),
            *_counted("added", each.added, "op_b"),
            *_counted("removed", each.removed, "op_a"),
            *_named("replaced", [f"{n.a}: {n.op_a} -> {n.op_b}" for n in each.replaced]),
            *_named("altered", [f"{n.a}: {', '.join(n.attributes)}" for n in each.altered]),
            *_named("renamed", [f"{n.a} -> {n.b}" for n in each.renamed]),
        ]
        if details:
            how = "" if each.by_structure else ", by name alone"
            known = f"{each.nodes_a} -> {each.nodes_b}, {each.matched} in both{how}"
            rows.append((each.variant, known, details))
    return sections("nodes", ("", ""), rows)


def _moved(moved: Sequence[NodeChange]) -> list[str]:
    ways = Counter((provider(node.provider_a), provider(node.provider_b)) for node in moved)
    return [
        f"{number} moved {one} -> {other}: "
        + _operators(
            [n for n in moved if (provider(n.provider_a), provider(n.provider_b)) == (one, other)],
            "op_b",
        )
        for (one, other), number in ways.most_common()
    ]


def _counted(what: str, nodes: Sequence[NodeChange], op: str) -> list[str]:
    return [f"{len(nodes)} {what}: {_operators(nodes, op)}"] if nodes else []


def _operators(nodes: Sequence[NodeChange], op: str) -> str:
    kinds = Counter(str(getattr(node, op)) for node in nodes)
    return listed([f"{number} {name}" for name, number in kinds.most_common()])


def _named(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    rest = len(names) - _MAX_CHANGES
    more = f" and {rest} more" if rest > 0 else ""
    return [f"{len(names)} {what}: {', '.join(names[:_MAX_CHANGES])}{more}"]


def _weights(weights: Sequence[WeightsDiff]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for each in weights:
        if not (each.changed or each.added or each.removed or each.renamed):
            continue
        words = (
            f"{each.equal} equal",
            f"{each.renamed} equal under another name" if each.renamed else "",
            f"{len(each.changed)} changed" if each.changed else "",
            f"{len(each.added)} added" if each.added else "",
            f"{len(each.removed)} removed" if each.removed else "",
        )
        text = f"{', '.join(each.variants)}: {', '.join(filter(None, words))}"
        parts.append(facts([("weights", text)]))
        ranked = sorted(each.changed, key=lambda tensor: -(tensor.max_rel or 0.0))
        rows = [_tensor(tensor) for tensor in ranked[:_MAX_TENSORS]]
        if len(ranked) > _MAX_TENSORS:
            rows.append((f"and {len(ranked) - _MAX_TENSORS} more", "", "", ""))
        parts += sections("most changed weights", ("", "max abs", "max rel"), rows)
    return parts


def _tensor(tensor: TensorChange) -> Sequence[Cell]:
    # The new name of a converted weight is long, and says no more than its new type.
    name = tensor.a if tensor.b.startswith(tensor.a) else f"{tensor.a} -> {tensor.b}"
    one, other = (_type(tensor.dtype_a, tensor.shape_a), _type(tensor.dtype_b, tensor.shape_b))
    return (
        name,
        one if one == other else f"{one} -> {other}",
        f"{tensor.max_abs:.3g}" if tensor.max_abs is not None else "",
        f"{tensor.max_rel:.3g}" if tensor.max_rel is not None else "",
    )


def _type(dtype: str, shape: tuple[int, ...] | None) -> str:
    return f"{dtype} [{', '.join(map(str, shape or ()))}]"


def _measured(rows: Sequence[MeasuredRow]) -> list[RenderableType]:
    if all(row.a == row.b for row in rows):
        return []
    shown = [
        (
            row.variant,
            _timed(row.what),
            _measure(row, row.a),
            _measure(row, row.b),
            f"{row.ratio:.3g}" if row.ratio is not None else "",
        )
        for row in rows
    ]
    columns = ("", "A", "B", "B / A")
    return [section("measured, not compared", columns, shown)]


def _timed(what: str) -> str:
    word, _, fixture = what.partition(" ")
    return f"run, {fixture_in_words(fixture)}" if word == "run" else what


def _measure(row: MeasuredRow, value: float | None) -> str:
    if value is None:
        return "-"
    return duration(value) if row.unit == "seconds" else size(int(value))
