"""Ranges of dims as a profile states them: one size, bounds, buckets; and other sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Json, ParseError, Problem, decode
from aotc.records import record

Size = Annotated[int, Bounds(0, 2**53 - 1)]
Outside = Literal["pad", "route"]
CODE = "AOTC-S003"
_RANGE = re.compile(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*(?::\s*(\d{1,15})\s*)?)?", re.ASCII)
# `max` of a range that is probed: more than any probe tries.
UNBOUNDED = 2**31


@record
class DimRange:
    """Sizes of one dim that callers may pass, and the sizes that are compiled for.

    Without `buckets` one graph takes every size from `min` to `max` in steps of `multiple_of`.
    With `buckets` each of them gets a static variant.  `outside` says what happens to a size that
    is neither: it is padded to the next size that is compiled for, or routed to the dynamic
    variant, whichever stands first and can; where nothing can, it is refused.
    """

    min: Annotated[Size, "smallest size that callers may pass"]
    max: Annotated[Size, "largest size"]
    opt: Annotated[int | None, "size that is optimised for; the geometric mean where unset"] = None
    multiple_of: Annotated[int, Bounds(1), "every size compiled for is a multiple of this"] = 1
    buckets: Annotated[tuple[Size, ...], "sizes with a static variant each, rising"] = ()
    outside: Annotated[tuple[Outside, ...], "what is done with other sizes; none: refused"] = ()
    bounded: Annotated[bool, "false: only the grid is stated, and the range is probed"] = True

    @classmethod
    def json_schema(cls, plain_of: Callable[[type], dict[str, Json]]) -> dict[str, Json]:
        """The spellings that `from_json` reads; `plain_of` is the schema of a record's fields."""
        plain = plain_of(_StatedRange)
        plain["description"] = "every part by name"
        words = {"enum": ["reject", "pad", "route"]}
        several = {"type": "array", "items": {"enum": ["pad", "route"]}, "uniqueItems": True}
        plain["properties"]["outside"] = {
            "description": "what is done with other sizes; none: they are refused",
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

        `outside` may be one word.  With `buckets`, `min` and `max` default to 1 where sizes are
        padded (else to the smallest bucket) and to the largest bucket.
        """
        if isinstance(data, int) and not isinstance(data, bool):
            data = {"min": data, "max": data, "opt": data}
        elif isinstance(data, str):
            data = _read_range(data)
        made = decode(_StatedRange, data)
        found = cls(
            min=made.least(),
            max=made.most(),
            opt=made.opt,
            multiple_of=made.multiple_of,
            buckets=made.buckets,
            outside=made.actions(),
            bounded=made.is_bounded(),
        )
        low, high = found.compiled()
        if found.opt is not None and not low <= found.opt <= high:
            outside = f"{found.opt} is outside of {low}..{high}, which is compiled"
            raise ParseError([Problem("opt", outside, CODE)])
        return found

    @property
    def pads(self) -> bool:
        """Whether sizes are padded."""
        return "pad" in self.outside

    @property
    def routes(self) -> bool:
        """Whether sizes go to the dynamic variant."""
        return "route" in self.outside

    def compiled(self) -> tuple[int, int]:
        """Smallest and largest size that some graph takes as it is."""
        if self.buckets and not self.routes:
            return self.buckets[0], self.buckets[-1]
        step = self.multiple_of
        first = max(-(-self.min // step) * step, step if self.pads else 0)
        return first, self.max // step * step

    def allows(self, size: int) -> bool:
        """Whether callers may pass `size`."""
        low, high = self.compiled()
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
        """The sizes that callers may pass, in words."""
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"

    def fixed(self) -> bool:
        """Whether only one size is allowed."""
        return self.bounded and self.min == self.max

    def optimal(self) -> int:
        """`opt`, or the compiled size nearest the geometric mean of the bounds."""
        if self.opt is not None:
            return self.opt
        low, high = self.compiled()
        middle = round((max(low, 1) * max(high, 1)) ** 0.5)
        if self.buckets:
            return min(self.buckets, key=lambda size: (abs(size - middle), size))
        snapped = max(self.multiple_of, round(middle / self.multiple_of) * self.multiple_of)
        return snapped if low <= snapped <= high else low


def _read_range(text: str) -> Json:
    """`SIZE`, `MIN..MAX` or `MIN..MAX:STEP` as a mapping of the fields."""
    match = _RANGE.fullmatch(text)
    if match is None:
        forms = "is neither SIZE nor MIN..MAX nor MIN..MAX:STEP"
        raise ParseError([Problem("", f"{text!r} {forms}")])
    low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if step < 1:
        raise ParseError([Problem("multiple_of", f"the step of {text!r} is not 1 or more", CODE)])
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

    def least(self) -> int:
        if self.min is not None:
            return self.min
        if not self.buckets:
            return 1 if "pad" in self.actions() else self.multiple_of
        return 1 if self.actions() else self.buckets[0]

    def most(self) -> int:
        if self.max is not None:
            return self.max
        return self.buckets[-1] if self.buckets else self._unbounded()

    def _unbounded(self) -> int:
        return UNBOUNDED // self.multiple_of * self.multiple_of

    def problems(self) -> list[Problem]:
        words = (self.outside,) if isinstance(self.outside, str) else self.outside
        if not self.bounded and (self.buckets or self.max not in (None, self._unbounded())):
            return [Problem("bounded", "false goes without min, max and buckets")]
        unknown = [word for word in words if word not in ("reject", "pad", "route")]
        if unknown or len(set(words)) != len(words) or ("reject" in words and len(words) > 1):
            text = f"{', '.join(words)}: takes reject, pad, route, or [pad, route]"
            return [Problem("outside", text)]
        if list(self.buckets) != sorted(set(self.buckets)):
            return [Problem("buckets", "are not rising", CODE)]
        if not self.buckets and (self.min is None) != (self.max is None):
            missing = "max" if self.max is None else "min"
            return [Problem(missing, "missing: a range has both, or is probed", CODE)]
        return self._of_bounds() or self._of_grid() or self._of_routes()

    def _of_bounds(self) -> list[Problem]:
        low, high = self.least(), self.most()
        if low > high:
            return [Problem("min", f"{low} is more than max {high}", CODE)]
        if self.opt is not None and not low <= self.opt <= high:
            return [Problem("opt", f"{self.opt} is outside of {low}..{high}", CODE)]
        if self.buckets and not low <= self.buckets[0] <= self.buckets[-1] <= high:
            return [Problem("buckets", f"lie outside of {low}..{high}", CODE)]
        return []

    def _of_grid(self) -> list[Problem]:
        step, padded = self.multiple_of, "pad" in self.actions()
        if (
            self.is_bounded()
            and not self.buckets
            and (self.most() % step or (self.least() % step and not padded))
        ):
            found = f"{self.least()}..{self.most()}"
            return [Problem("multiple_of", f"the ends of {found} are no multiples of {step}", CODE)]
        if any(size % step for size in self.buckets):
            return [Problem("buckets", f"are no multiples of {step}", CODE)]
        if self.opt is not None and self.opt % step:
            return [Problem("opt", f"{self.opt} is no multiple of {step}")]
        if self.opt is not None and self.buckets and self.opt not in self.buckets:
            return [Problem("opt", f"{self.opt} is none of the buckets")]
        return []

    def _of_routes(self) -> list[Problem]:
        routed = "route" in self.actions()
        if routed and not self.buckets and self.least() == self.most():
            return [Problem("outside", "route needs buckets, or a range for the dynamic variant")]
        if self.buckets and not routed and self.most() != self.buckets[-1]:
            text = f"{self.most()} is above the largest bucket, and nothing is routed"
            return [Problem("max", text, CODE)]
        if self.buckets and not self.actions() and self.least() != self.buckets[0]:
            text = f"{self.least()} is below the smallest bucket, and nothing is padded or routed"
            return [Problem("min", text, CODE)]
        return []
