"""Ranges of dims as a profile states them: a size, bounds, buckets, and what to do outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Json, ParseError, Problem, decode
from aotc.records import record

Size = Annotated[int, Bounds(0, 2**53 - 1)]
Outside = Literal["pad", "route"]
CODE = "AOTC-S003"
_RANGE = r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*(?::\s*(\d{1,15})\s*)?)?"
# `max` of a range that is probed; no probe tries as many.
UNBOUNDED = 2**31


@record
class DimRange:
    """The sizes of one dim that callers may pass, and those that variants are compiled for.

    Without `buckets`, one graph takes every size from `min` to `max` in steps of `multiple_of`.
    With `buckets`, each of them gets a static variant, or is captured as a CUDA graph.  `outside`
    says what happens to other sizes: they are padded to the next compiled size, or routed to the
    dynamic variant, by the first of these that is possible; if none is, they are refused.
    """

    min: Annotated[Size, "smallest size that callers may pass"]
    max: Annotated[Size, "largest size"]
    opt: Annotated[int | None, "size to optimize for; unset: the geometric mean"] = None
    multiple_of: Annotated[int, Bounds(1), "every compiled size is a multiple of this"] = 1
    buckets: Annotated[
        tuple[Size, ...], "sizes with a static variant or a CUDA graph each, rising"
    ] = ()
    outside: Annotated[tuple[Outside, ...], "what happens to other sizes; empty: refused"] = ()
    bounded: Annotated[bool, "false: only multiple_of is stated, and the range is probed"] = True

    @classmethod
    def json_schema(cls, plain_of: Callable[[type], dict[str, Json]]) -> dict[str, Json]:
        """The JSON Schema of what `from_json` reads; `plain_of` gives the schema of a record."""
        plain = plain_of(_StatedRange)
        plain["description"] = "a mapping of the fields"
        words = {"enum": ["reject", "pad", "route"]}
        several = {"type": "array", "items": {"enum": ["pad", "route"]}, "uniqueItems": True}
        plain["properties"]["outside"] = {
            "description": "what happens to other sizes; empty: they are refused",
            "anyOf": [words, several],
        }
        plain["anyOf"] = [
            {"required": ["min", "max"]},
            {"required": ["buckets"]},
            {"not": {"anyOf": [{"required": ["min"]}, {"required": ["max"]}]}},
        ]
        return {
            "description": " ".join((cls.__doc__ or "").split()),
            "anyOf": [
                {"type": "integer", "minimum": 0, "description": "one size"},
                {
                    "type": "string",
                    "pattern": r"^\s*\d{1,15}\s*(\.\.\s*\d{1,15}\s*(:\s*\d{1,15}\s*)?)?$",
                    "description": "SIZE, MIN..MAX or MIN..MAX:STEP",
                },
                plain,
            ],
        }

    @classmethod
    def from_json(cls, data: Json) -> DimRange:
        """Read `8`, `"1..8"`, `"32..640:32"`, or a mapping of the fields; raises `ParseError`.

        `outside` may be a single word.  With `buckets`, `min` defaults to 1 if sizes are padded or
        routed and else to the smallest bucket, and `max` to the largest bucket.
        """
        if isinstance(data, int) and not isinstance(data, bool):
            data = {"min": data, "max": data, "opt": data}
        elif isinstance(data, str):
            data = _read_range(data)
        stated = decode(_StatedRange, data)
        found = cls(
            min=stated.minimum(),
            max=stated.maximum(),
            opt=stated.opt,
            multiple_of=stated.multiple_of,
            buckets=stated.buckets,
            outside=stated.actions(),
            bounded=stated.is_bounded(),
        )
        low, high = found.compiled_bounds()
        if found.opt is not None and not low <= found.opt <= high:
            outside = f"{found.opt} is outside {low}..{high}, the sizes that are compiled"
            raise ParseError([Problem("opt", outside, CODE)])
        return found

    @property
    def pads(self) -> bool:
        """Whether sizes outside are padded."""
        return "pad" in self.outside

    @property
    def routes(self) -> bool:
        """Whether sizes outside are routed to the dynamic variant."""
        return "route" in self.outside

    def compiled_bounds(self) -> tuple[int, int]:
        """The smallest and the largest size that a graph takes without padding."""
        if self.buckets and not self.routes:
            return self.buckets[0], self.buckets[-1]
        step = self.multiple_of
        first = max(-(-self.min // step) * step, step if self.pads else 0)
        return first, self.max // step * step

    def allows(self, size: int) -> bool:
        """Whether callers may pass `size`."""
        low, high = self.compiled_bounds()
        if not self.min <= size <= self.max:
            return False
        if size in self.buckets:
            return True
        step = self.multiple_of
        if (not self.buckets or self.routes) and low <= size <= high and size % step == 0:
            return True
        last = self.buckets[-1] if self.buckets else high
        return self.pads and 0 < size <= last

    def text(self) -> str:
        """The sizes that callers may pass, such as `1..8`."""
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"

    def is_fixed(self) -> bool:
        """Whether exactly one size is allowed."""
        return self.bounded and self.min == self.max

    def optimal(self) -> int:
        """`opt`, or the compiled size that is nearest to the geometric mean of the bounds."""
        if self.opt is not None:
            return self.opt
        low, high = self.compiled_bounds()
        middle = round((max(low, 1) * max(high, 1)) ** 0.5)
        if self.buckets:
            return min(self.buckets, key=lambda size: (abs(size - middle), size))
        snapped = max(self.multiple_of, round(middle / self.multiple_of) * self.multiple_of)
        return snapped if low <= snapped <= high else low


def _read_range(text: str) -> Json:
    """The fields that `SIZE`, `MIN..MAX` or `MIN..MAX:STEP` states."""
    match = re.fullmatch(_RANGE, text, re.ASCII)
    if match is None:
        forms = "is not SIZE, MIN..MAX or MIN..MAX:STEP"
        raise ParseError([Problem("", f"{text!r} {forms}")])
    low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if step < 1:
        raise ParseError([Problem("multiple_of", f"the step of {text!r} is less than 1", CODE)])
    return {"min": low, "max": high, "multiple_of": step}


@record
class _StatedRange:
    min: Size | None = None
    max: Size | None = None
    opt: int | None = None
    multiple_of: Annotated[int, Bounds(1)] = 1
    buckets: Annotated[tuple[Annotated[int, Bounds(1, 2**53 - 1)], ...], Bounds(None, 256)] = ()
    outside: str | tuple[str, ...] = ()
    bounded: bool = True

    def actions(self) -> tuple[Outside, ...]:
        words = (self.outside,) if isinstance(self.outside, str) else self.outside
        return tuple(word for word in words if word in ("pad", "route"))  # type: ignore[misc]

    def is_bounded(self) -> bool:
        return self.bounded and not (self.min is None and self.max is None and not self.buckets)

    def minimum(self) -> int:
        if self.min is not None:
            return self.min
        if not self.buckets:
            return 1 if "pad" in self.actions() else self.multiple_of
        return 1 if self.actions() else self.buckets[0]

    def maximum(self) -> int:
        if self.max is not None:
            return self.max
        return self.buckets[-1] if self.buckets else self._unbounded()

    def _unbounded(self) -> int:
        return UNBOUNDED // self.multiple_of * self.multiple_of

    def problems(self) -> list[Problem]:
        words = (self.outside,) if isinstance(self.outside, str) else self.outside
        if not self.bounded and (self.buckets or self.max not in (None, self._unbounded())):
            return [Problem("bounded", "false excludes min, max and buckets")]
        unknown = [word for word in words if word not in ("reject", "pad", "route")]
        if unknown or len(set(words)) != len(words) or ("reject" in words and len(words) > 1):
            text = f"{', '.join(words)}: expected reject, pad, route, or [pad, route]"
            return [Problem("outside", text)]
        if list(self.buckets) != sorted(set(self.buckets)):
            return [Problem("buckets", "are not increasing", CODE)]
        if not self.buckets and (self.min is None) != (self.max is None):
            missing = "max" if self.max is None else "min"
            return [
                Problem(
                    missing, "is missing: a range has min and max, or neither and is probed", CODE
                )
            ]
        return self._bounds_problems() or self._step_problems() or self._outside_problems()

    def _bounds_problems(self) -> list[Problem]:
        low, high = self.minimum(), self.maximum()
        if low > high:
            return [Problem("min", f"{low} is more than max {high}", CODE)]
        if self.opt is not None and not low <= self.opt <= high:
            return [Problem("opt", f"{self.opt} is outside {low}..{high}", CODE)]
        if self.buckets and not low <= self.buckets[0] <= self.buckets[-1] <= high:
            return [Problem("buckets", f"are outside {low}..{high}", CODE)]
        return []

    def _step_problems(self) -> list[Problem]:
        step, padded = self.multiple_of, "pad" in self.actions()
        if (
            self.is_bounded()
            and not self.buckets
            and (self.maximum() % step or (self.minimum() % step and not padded))
        ):
            found = f"{self.minimum()}..{self.maximum()}"
            return [
                Problem("multiple_of", f"the ends of {found} are not multiples of {step}", CODE)
            ]
        if any(size % step for size in self.buckets):
            return [Problem("buckets", f"are not multiples of {step}", CODE)]
        if self.opt is not None and self.opt % step:
            return [Problem("opt", f"{self.opt} is not a multiple of {step}")]
        if self.opt is not None and self.buckets and self.opt not in self.buckets:
            return [Problem("opt", f"{self.opt} is not one of the buckets")]
        return []

    def _outside_problems(self) -> list[Problem]:
        routed = "route" in self.actions()
        if routed and not self.buckets and self.minimum() == self.maximum():
            return [
                Problem("outside", "route requires buckets, or a range for the dynamic variant")
            ]
        if self.buckets and not routed and self.maximum() != self.buckets[-1]:
            text = f"{self.maximum()} is above the largest bucket, and sizes are not routed"
            return [Problem("max", text, CODE)]
        if self.buckets and not self.actions() and self.minimum() != self.buckets[0]:
            what = "is below the smallest bucket, and sizes are neither padded nor routed"
            text = f"{self.minimum()} {what}"
            return [Problem("min", text, CODE)]
        return []
