"""One difference in words: what it is of, and both values."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.codec.parsing import Json
from aotc.contract.results.diff_report import AreaDiff, Change, DiffReport
from aotc.reporting.plain_values import listed, size


def only_pair(report: DiffReport) -> str:
    """The variants' label if there is one pair, which then need not be told apart."""
    return report.variants[0].label if len(report.variants) == 1 else ""


def what_changed(area: AreaDiff, change: Change, only: str) -> str:
    """The path of a value, with what it is of unless that is the `only` pair of variants."""
    what = change.what.removeprefix(f"{area.area}.")
    return f"{change.subject}: {what}" if change.subject not in ("", only) else what


def both_values(area: AreaDiff, change: Change, widest: int) -> tuple[str, str]:
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
    return str(value) or "none"


def _cut(text: str, widest: int) -> str:
    return text if len(text) <= widest else f"{text[: widest - 3]}..."
