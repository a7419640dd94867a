"""Other values for the inputs of a model that rejects those that its hints gave.

ONNX Runtime names the node that failed and not the input, and words its messages anew with every
release.  So a few other readings are tried, in an order that is always the same, and their runs
are counted: first what other rules asked of an input, then plain values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.probing.inputs.generated_fixtures import Hints

# Readings that are tried at most, each at every one of the sizes.
MAX_ALTERNATIVES: Final = 24
# Sizes that failed with the first values, and are tried with others.
MAX_RETRIED_SIZES: Final = 2
# Whole numbers that fit most: nothing, the first, all of a thing; a pair.
_PLAIN_NUMBERS: Final = (0, 1, 2)
_NUMERIC_TEXTS: Final = ("1", "7", "12")


class Alternative(NamedTuple):
    """Hints to take instead, and in words what they change."""

    what: str
    hints: Hints


def alternatives(values: Sequence[Value], hints: Hints) -> Iterator[Alternative]:
    """Other hints, likeliest first, at most `MAX_ALTERNATIVES`; each changes `hints` itself.

    In order: what other rules asked of one input; one plain number in all inputs of whole numbers;
    the same in one of them, or the size of another input; floats between 0 and 1; text that reads
    as numbers.
    """
    return itertools.islice(_all_alternatives(values, hints), MAX_ALTERNATIVES)


def _all_alternatives(values: Sequence[Value], hints: Hints) -> Iterator[Alternative]:
    for value in values:
        for other in hints.get(value.name, {}).get("or", ()):
            yield _changed(hints, [value], other)
    integers = [value for value in values if "int" in value.dtype]
    plain: list[Mapping[str, Json]] = [
        {"kind": "full", "value": number} for number in _PLAIN_NUMBERS
    ]
    for hint in plain if integers else ():
        yield _changed(hints, integers, hint)
    booleans = [value for value in values if value.dtype == "bool"]
    for hint in plain[:2] if booleans else ():
        yield _changed(hints, booleans, hint)
    floats = [value for value in values if "float" in value.dtype]
    if floats:
        yield _changed(hints, floats, {"kind": "uniform", "low": 0.0, "high": 1.0})
    texts = [value for value in values if value.dtype == "string"]
    if texts:
        yield _changed(hints, texts, {"kind": "choice", "values": list(_NUMERIC_TEXTS)})
    for value in integers if len(integers) > 1 else ():
        for hint in plain:
            yield _changed(hints, [value], hint)
    # Inputs that share a dim ask for the same number.
    sized = {other.shape[0]: other for other in reversed(values) if other.shape}
    for value, other in itertools.product(integers, reversed(sized.values())):
        if other is not value:
            yield _changed(hints, [value], {"kind": "full", "value": [other.name, 0]})


def _changed(hints: Hints, values: Sequence[Value], hint: Mapping[str, Json]) -> Alternative:
    changed = dict(hints)
    for value in values:
        kept = {"list": True} if hints.get(value.name, {}).get("list") else {}
        changed[value.name] = {**hint, **kept}
    names = ", ".join(value.name for value in values)
    return Alternative(f"{names}: {_description(hint)}", changed)


def _description(hint: Mapping[str, Json]) -> str:
    kind = str(hint["kind"])
    if kind == "full":
        value = hint["value"]
        return f"the size of {value[0]}" if isinstance(value, list) else str(value)
    return {"uniform": "from 0 to 1", "choice": "any of a few"}.get(kind, f"as {kind}")
