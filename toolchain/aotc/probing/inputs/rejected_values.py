"""Alternative values for the inputs of a model that rejects the generated ones.

ONNX Runtime's messages name the node that failed, not the input, and change between releases.
So a few alternatives are tried in a fixed order, and their runs are counted: first what other
rules requested of an input, then plain values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.probing.inputs.generated_fixtures import Hints

# How many alternatives are tried, each at all retried sizes.
MAX_ALTERNATIVES: Final = 24
# How many sizes that failed with the first values are retried.
MAX_RETRIED_SIZES: Final = 2
# Integers that are valid most often: nothing or the first, one, a pair.
_PLAIN_NUMBERS: Final = (0, 1, 2)
_NUMERIC_TEXTS: Final = ("1", "7", "12")


class Alternative(NamedTuple):
    """Hints to use instead, and a description of what they change."""

    what: str
    hints: Hints


def alternatives(values: Sequence[Value], hints: Hints) -> Iterator[Alternative]:
    """Alternative hints, likeliest first, at most `MAX_ALTERNATIVES`; each changes `hints` itself.

    In order: what other rules requested of one input; one plain number in all integer inputs, then
    in all boolean inputs; floats between 0 and 1; numeric text; a plain number in one integer
    input; the size of another input in it.
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
    # Inputs whose first axis is the same dim would give the same number.
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
