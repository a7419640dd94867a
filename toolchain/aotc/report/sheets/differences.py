"""What `aotc diff` shows: what changed first, and what did not in one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from aotc.base.text import listed, size
from aotc.report.sheet import (
    Cell,
    Facts,
    Heading,
    Sheet,
    Table,
    count,
    first,
    fixture_in_words,
    provider,
    refusals_table,
    short,
    stated,
    with_fixtures_in_words,
)
from aotc.report.sheets.variants import with_spread
from aotc.spec.answers import SameCalls
from aotc.spec.codec import Json
from aotc.spec.diff_report import (
    AREAS,
    AreaDiff,
    Change,
    ComparedArtifact,
    DiffReport,
    MeasuredRow,
    NodeChange,
    NodesDiff,
    TensorChange,
    WeightsDiff,
)

# Of one area, of one kind of nodes, and of weights, on a terminal; `--json` has all.
_MAX_CHANGES: Final = 6
_MAX_TENSORS: Final = 10
# Characters of a value, on a terminal.
_WIDEST_VALUE: Final = 44
# As in other lines; --json has all of its digits.
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def diff_view(report: DiffReport) -> Sheet:
    """Two artifacts and what changed from one to the other."""
    equal = "both have one id: their manifests are equal, byte for byte" if report.same_id else ""
    if report.same_id and report.a.kind == "model":
        equal = "both files are equal, byte for byte"
    return [
        Heading(
            f"{report.a.path} -> {report.b.path}", f"{outcome(report)}; nothing here was verified"
        ),
        Facts(
            [
                ("A", side_text(report.a)),
                ("B", side_text(report.b)),
                ("same", equal),
                ("built from it", _built_from(report)),
            ]
        ),
        refusals_table("failed", report.failed),
        changes_table(report, _WIDEST_VALUE),
        Table(
            "nodes",
            ("", ""),
            [
                (nodes.variant, matched_text(nodes), lines)
                for nodes in report.nodes
                if (lines := nodes_text(nodes))
            ],
        ),
        *weights_sheet(report.weights),
        unchanged_facts(report),
        answers_facts(report.answers),
        measured_table(report.measured),
        refusals_table("problems", report.problems),
    ]


def _built_from(report: DiffReport) -> str:
    if report.built_from is None:
        return ""
    return (
        "yes: the artifact names this very model, by its digest"
        if report.built_from
        else "no: the artifact names a model of another digest"
    )


def outcome(report: DiffReport) -> str:
    """How many areas differ."""
    status = {area.status for area in report.areas}
    if "changed" in status:
        changed = sum(area.status == "changed" for area in report.areas)
        return f"{changed} of {len(AREAS)} areas differ"
    return "nothing that was compared differs" if "not-compared" in status else "nothing differs"


def unchanged_facts(report: DiffReport) -> Facts:
    """The areas that did not change, and those that were not compared, with the reason."""
    skipped = [area for area in report.areas if area.status == "not-compared"]
    partly = [area for area in report.areas if area.status == "changed" and area.reason]
    return Facts(
        [
            ("unchanged", ", ".join(area.area for area in report.areas if area.status == "same")),
            ("not compared", _by_reason(skipped)),
            ("compared in part", _by_reason(partly)),
        ]
    )


def _by_reason(areas: Sequence[AreaDiff]) -> list[str]:
    """A line for each reason, with all areas that have it."""
    reasons = dict.fromkeys(area.reason for area in areas)
    return [
        f"{', '.join(area.area for area in areas if area.reason == reason)}: {reason}"
        for reason in reasons
    ]


_HOW: Final = {
    "ran": "both were run",
    "ran-b": "B was run, and compared with the golden outputs of A",
    "golden": "their golden outputs were compared",
}


def answers_facts(answers: SameCalls | None) -> Facts:
    """How the answers of both were compared, and on how many inputs."""
    if answers is None or answers.how not in _HOW:
        return Facts([])
    text = f"{_HOW[answers.how]} on {count(len(answers.calls), 'input')}"
    why = f"{answers.reason}" if answers.reason else ""
    return Facts([("answers", [text, *filter(None, (why, *answers.left_out))])])


def side_text(artifact: ComparedArtifact) -> str:
    """One of the two artifacts or models in a line."""
    if artifact.kind == "model":
        bytes_ = size(artifact.payload_bytes)
        return f"{artifact.name}, a model, {bytes_}, sha256 {short(artifact.sha256)}"
    built = f", built {artifact.built_at}" if artifact.built_at else ""
    return (
        f"{artifact.name}, {size(artifact.payload_bytes)}{built}, id {short(artifact.artifact_id)}"
    )


def changes_table(report: DiffReport, widest: int) -> Table:
    """What differs, by area; values of at most `widest` characters."""
    # One pair of variants need not be named.
    only = report.variants[0].label if len(report.variants) == 1 else ""
    rows = [
        (
            area.area,
            _what_changed(area, change, only),
            *_both_values(area, change, widest),
            "" if change.ratio is None else f"{change.ratio:.4g}",
        )
        for area in report.areas
        for change in area.changes
    ]
    return Table("changed", ("", "A", "B", "#B / A"), rows, limit=_MAX_CHANGES, grouped=True)


def _what_changed(area: AreaDiff, change: Change, only: str) -> str:
    what = change.what.removeprefix(f"{area.area}.")
    named = f"{change.subject}: {what}" if change.subject not in ("", only) else what
    return with_fixtures_in_words(named)


def _both_values(area: AreaDiff, change: Change, widest: int) -> tuple[str, str]:
    """Both values, each of at most `widest` characters; of lists, what the other lacks."""
    one, other = change.a, change.b
    if isinstance(one, list) and isinstance(other, list):
        left = [item for item in one if item not in other]
        right = [item for item in other if item not in one]
        if not left and not right:
            return "in this order", "in another order"
        return _cut(_items(left, one), widest), _cut(_items(right, other), widest)
    is_bytes = area.area in ("memory", "size") or change.what.endswith(("bytes", "bytes_max"))
    first, second = (_value(value, is_bytes=is_bytes) for value in (one, other))
    return _cut(first, widest), _cut(second, widest)


def _items(items: Sequence[Json], of: Sequence[Json]) -> str:
    if not items:
        return "nothing else" if of else "none"
    return listed([_value(item) for item in items])


def _value(value: Json, *, is_bytes: bool = False) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_bytes and isinstance(value, int):
        return size(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return listed([_value(item) for item in value]) or "none"
    text = str(value)
    return short(text) if _DIGEST.fullmatch(text) else text or "none"


def _cut(text: str, widest: int) -> str:
    return text if len(text) <= widest else f"{text[: widest - 3]}..."


def matched_text(nodes: NodesDiff) -> str:
    """How many nodes there are on both sides, and how many are the same."""
    how = "" if nodes.by_structure else ", by name alone"
    return f"{nodes.nodes_a} -> {nodes.nodes_b}, {nodes.matched} in both{how}"


def nodes_text(nodes: NodesDiff) -> list[str]:
    """What became of the nodes that differ, a line for each way."""
    return [
        *_moved(nodes.moved),
        *_counted("added", nodes.added, "op_b"),
        *_counted("removed", nodes.removed, "op_a"),
        *_named("replaced", [f"{n.a}: {n.op_a} -> {n.op_b}" for n in nodes.replaced]),
        *_named("altered", [f"{n.a}: {', '.join(n.attributes)}" for n in nodes.altered]),
        *_named("renamed", [f"{n.a} -> {n.b}" for n in nodes.renamed]),
    ]


def _moved(moved: Sequence[NodeChange]) -> list[str]:
    ways: dict[str, list[NodeChange]] = {}
    for node in moved:
        way = f"{provider(node.provider_a)} -> {provider(node.provider_b)}"
        ways.setdefault(way, []).append(node)
    ranked = sorted(ways.items(), key=lambda each: -len(each[1]))
    return [f"{len(nodes)} moved {way}: {_operators(nodes, 'op_b')}" for way, nodes in ranked]


def _counted(what: str, nodes: Sequence[NodeChange], op: str) -> list[str]:
    return [f"{len(nodes)} {what}: {_operators(nodes, op)}"] if nodes else []


def _operators(nodes: Sequence[NodeChange], op: str) -> str:
    kinds = Counter(str(getattr(node, op)) for node in nodes)
    return listed([f"{number} {name}" for name, number in kinds.most_common()])


def _named(what: str, names: Sequence[str]) -> list[str]:
    return [f"{len(names)} {what}: {first(names, _MAX_CHANGES)}"] if names else []


def weights_sheet(weights: Sequence[WeightsDiff]) -> Sheet:
    """How many weights are equal, and those that are not, the most changed first."""
    parts: Sheet = []
    for each in weights:
        if not (each.changed or each.added or each.removed or each.renamed):
            continue
        numbers = {
            "equal under another name": each.renamed,
            "changed": len(each.changed),
            "added": len(each.added),
            "removed": len(each.removed),
        }
        words = [f"{each.equal} equal", *(f"{n} {what}" for what, n in numbers.items() if n)]
        text = f"{', '.join(each.variants)}: {', '.join(words)}"
        ranked = sorted(each.changed, key=lambda tensor: -(tensor.max_rel or 0.0))
        rows = [_tensor(tensor) for tensor in (*ranked, *each.added, *each.removed)]
        columns = ("", "#max abs", "#max rel")
        parts += [Facts([("weights", text)])]
        parts += [Table("weights that differ", columns, rows, limit=_MAX_TENSORS)]
    return parts


def _tensor(tensor: TensorChange) -> Sequence[Cell]:
    # The new name of a converted weight is long, and says no more than its new type.
    is_kept = not tensor.b or (tensor.a and tensor.b.startswith(tensor.a))
    types = (_type(tensor.dtype_a, tensor.shape_a), _type(tensor.dtype_b, tensor.shape_b))
    alone = "only in A: " if not tensor.b else "only in B: " if not tensor.a else ""
    return (
        tensor.a if is_kept else f"{tensor.a} -> {tensor.b}".removeprefix(" -> "),
        f"{alone}{' -> '.join(dict.fromkeys(filter(None, types)))}",
        "" if tensor.max_abs is None else f"{tensor.max_abs:.3g}",
        "" if tensor.max_rel is None else f"{tensor.max_rel:.3g}",
    )


def _type(dtype: str, shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else f"{dtype} [{', '.join(map(str, shape))}]"


def measured_table(measured: Sequence[MeasuredRow]) -> Table:
    """What was measured at both builds, unless all of it is the same."""
    rows = [
        (
            row.variant,
            _timed(row.what),
            *(
                _measured(row.unit, *side)
                for side in ((row.a, row.spread_a), (row.b, row.spread_b))
            ),
            "" if row.ratio is None else f"{row.ratio:.3g}",
        )
        for row in measured
        if any(other.a != other.b for other in measured)
    ]
    columns = ("", "#A", "#B", "#B / A")
    note = (
        "Times and peaks say as much of the two hosts, and are no difference. A run is the median "
        "of warm calls, with half the distance of their quartiles."
    )
    return Table("measured, not compared", columns, rows, grouped=True, note=note)


def _measured(unit: str, value: float | None, spread: float | None) -> str:
    if unit == "bytes":
        return stated(value, lambda number: size(round(number)))
    return stated(value, lambda seconds: with_spread(seconds, spread))


def _timed(what: str) -> str:
    word, _, fixture = what.partition(" ")
    return f"run, {fixture_in_words(fixture)}" if word == "run" else what
