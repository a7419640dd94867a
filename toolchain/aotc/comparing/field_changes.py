"""Differences of two values as they stand in a manifest: by path, down to single fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.results.diff_report import Change


def changes_of(
    a: Any, b: Any, what: str = "", *, subject: str = "", without: Iterable[str] = ()
) -> tuple[Change, ...]:
    """The differences of two records, or of two JSON values; mappings are entered, lists are not.

    `what` is the path of the values themselves, and `without` names fields to leave out.  A list of
    mappings that all have a `name` is entered by that name.
    """
    left_out = frozenset(without)
    return tuple(
        change(path, one, other, subject)
        for path, one, other in _walk(encode(a, full=True), encode(b, full=True), what)
        if path.rpartition(".")[2] not in left_out
    )


def change(what: str, a: Json, b: Json, subject: str = "") -> Change:
    """One difference, with its ratio where both values are positive numbers."""
    return Change(subject=subject, what=what, a=a, b=b, ratio=ratio(a, b))


def ratio(a: Json, b: Json) -> float | None:
    """b / a, to 6 digits; None unless both are positive numbers."""
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        for value in (a, b)
    )
    return float(f"{b / a:.6g}") if numbers else None


def _walk(a: Json, b: Json, path: str) -> Iterator[tuple[str, Json, Json]]:
    if a == b:
        return
    one, other = _by_name(a), _by_name(b)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            yield from _walk(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    else:
        yield path, a, b


def _by_name(value: Json) -> Json:
    """A list of mappings with different names as a mapping by name; anything else as it is."""
    if not isinstance(value, list):
        return value
    names = [item.get("name") if isinstance(item, Mapping) else None for item in value]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return value
    return dict(zip(names, value, strict=True))
