"""The latencies of a benchmark: a chart of all sides, and their figures beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from aotc.report.html.figures import Figure, figures
from aotc.report.html.page import elements, tag, time_text
from aotc.report.sheet import FAILED, NOTICED, PASSED, Table
from aotc.spec.run_report import Measurement, RunReport

# Seconds by what was measured, by side.
Sides = Mapping[str, Mapping[str, float]]

_ROWS: Final = (
    ("load", "load"),
    ("first run", "first run"),
    ("median", "median"),
    ("lower quartile", "first quartile"),
    ("upper quartile", "third quartile"),
    ("p90", "p90"),
    ("p99", "p99"),
)
_CALLS: Final = ("median", "lower quartile", "upper quartile", "p90", "p99")
# From this ratio of the longest to the shortest on, the axis is logarithmic.
_WIDE: Final = 12.0
_HIGH: Final = 58
_FIRST: Final = 6
_AXIS: Final = 26
_MAX_TICKS: Final = 5
_VERDICTS: Final = {"passed": PASSED, "failed": FAILED, "not-judged": NOTICED}


def bench_parts(run: RunReport) -> Iterator[Element]:
    """The figures of a benchmark, its chart, and a table with a column for each side."""
    sides = _sides(run.measurements)
    if not sides:
        return
    yield figures(_figures(run, sides))
    yield tag("h3", "Latency of a call")
    axis = _Axis(sides)
    yield latency_chart(sides, axis)
    said = (
        "A box reaches from the first quartile to the third, with the median in it; the short line "
        "is p90, the circle p99, where there were enough calls for them. The axis "
        f"{axis.in_words()}."
    )
    yield tag("p", said, class_="quiet")
    rate = {each.subject: each.value for each in run.measurements if each.name == "throughput"}
    yield from elements([_table(sides, rate)])


def _sides(measured: Sequence[Measurement]) -> Sides:
    found: dict[str, dict[str, float]] = {}
    for each in measured:
        if each.unit == "s":
            found.setdefault(each.subject, {})[each.name] = each.value
    return {name: times for name, times in found.items() if times.get("median", 0.0) > 0.0}


def _calls(times: Mapping[str, float]) -> Mapping[str, float]:
    """What is charted of a side; a clock that is too coarse says 0, which nothing takes."""
    return {name: times[name] for name in _CALLS if times.get(name, 0.0) > 0}


def _figures(run: RunReport, sides: Sides) -> Iterator[Figure]:
    (name, times), *others = sides.items()
    quartiles = [times[each] for each in ("lower quartile", "upper quartile") if each in times]
    notes = (
        f"a call of the {name}, the median",
        f"half of all from {' to '.join(map(time_text, quartiles))}" if quartiles else "",
        f"p99 {time_text(times['p99'])}" if "p99" in times else "",
    )
    yield Figure("Latency", time_text(times["median"]), notes)
    gates = {gate.name: gate for gate in run.gates}
    for other, its in others:
        ratio = times["median"] / its["median"]
        gate = gates.get(other)
        mood = _VERDICTS[gate.status] if gate is not None else ""
        judged = gate.measured if gate is not None else ""
        of = f"the {other}'s {time_text(its['median'])}"
        yield Figure(f"Beside the {other}", f"{ratio:.2f} times", (of, judged), mood)
    for name_of, gate in gates.items():
        # A baseline of another day has no side of its own.
        if name_of not in sides:
            text = gate.status.replace("-", " ")
            yield Figure(f"Beside the {name_of}", text, (gate.measured,), _VERDICTS[gate.status])
    if "load" in times:
        yield Figure("Load", time_text(times["load"]), (f"session of the {name}",))


def _table(sides: Sides, rate: Mapping[str, float]) -> Table:
    first, *others = sides
    rows = [
        (
            title,
            *(time_text(times[name]) if name in times else "" for times in sides.values()),
            *(_ratio(sides[first].get(name), sides[other].get(name)) for other in others),
        )
        for name, title in _ROWS
        if any(name in times for times in sides.values())
    ]
    if rate:
        told = (f"{rate[side]:,.0f}" if side in rate else "" for side in sides)
        rows.append(
            ("calls a second", *told, *(_ratio(rate.get(first), rate.get(o)) for o in others))
        )
    ratios = (f"#{first} / {other}" for other in others)
    return Table("", (*(f"#{side}" for side in sides), *ratios), rows)


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f}" if one is not None and other else ""


# The chart is as wide as its page: places across are shares of it, so that texts keep their size.


class _Axis:
    """Where a time stands across the chart, in percent of it."""

    def __init__(self, sides: Sides) -> None:
        times = [each for side in sides.values() for each in _calls(side).values()]
        self.low, self.high = min(times), max(times)
        self.is_logarithmic = self.high > _WIDE * self.low
        if self.is_logarithmic:
            self.low, self.high = self.low / 1.3, self.high * 1.3
        else:
            self.low, self.high = 0.0, self.high * 1.08

    def place(self, seconds: float) -> float:
        if self.is_logarithmic:
            share = math.log(seconds / self.low) / math.log(self.high / self.low)
        else:
            share = seconds / self.high
        return 100 * min(max(share, 0.0), 1.0)

    def in_words(self) -> str:
        return "is logarithmic" if self.is_logarithmic else "begins at 0"

    def ticks(self) -> list[float]:
        """Round times, few enough for a phone."""
        if not self.is_logarithmic:
            step = _round_up(self.high / _MAX_TICKS)
            return [step * n for n in range(int(self.high / step) + 1)]
        tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            found = [digit * 10.0**ten for ten in tens for digit in digits]
            found = [each for each in found if self.low <= each <= self.high]
            if len(found) <= _MAX_TICKS:
                return found
        return found[:: math.ceil(len(found) / _MAX_TICKS)]


def _round_up(number: float) -> float:
    ten = 10.0 ** math.floor(math.log10(number))
    return next(digit * ten for digit in (1, 2, 5, 10) if digit * ten >= number)


def latency_chart(sides: Sides, axis: _Axis) -> Element:
    """A row for each side: quartiles, median, p90 and p99."""
    height = _FIRST + _HIGH * len(sides) + _AXIS
    said = "; ".join(
        f"{side}: "
        + ", ".join(f"{name} {time_text(seconds)}" for name, seconds in _calls(times).items())
        for side, times in sides.items()
    )
    parts: list[Element] = []
    bottom = _FIRST + _HIGH * len(sides)
    for tick in axis.ticks():
        x = _x(axis.place(tick))
        parts.append(tag("line", x1=x, x2=x, y1=_FIRST, y2=bottom, class_="rule"))
        parts.append(_text(_short(tick), axis.place(tick), bottom + 17, "tick"))
    for index, (side, times) in enumerate(sides.items()):
        parts += _row(axis, f"p{index % 6}", side, times, _FIRST + _HIGH * index)
    label = f"latency by side, {said}"
    return tag(
        "svg",
        tag("title", label),
        *parts,
        class_="chart latency",
        role="img",
        aria_label=label,
        width="100%",
        height=height,
    )


def _row(
    axis: _Axis, colour: str, side: str, times: Mapping[str, float], top: float
) -> Iterator[Element]:
    places = {name: axis.place(seconds) for name, seconds in _calls(times).items()}
    median = places["median"]
    low, high = (places.get(name, median) for name in ("lower quartile", "upper quartile"))
    middle = top + 38
    longest = max(places.values())
    yield tag("line", x1=_x(low), x2=_x(longest), y1=middle, y2=middle, class_="reach")
    box = max(high - low, 0.6)
    yield tag("rect", x=_x(low), width=_x(box), y=middle - 10, height=20, class_=f"box {colour}")
    yield tag("line", x1=_x(median), x2=_x(median), y1=middle - 14, y2=middle + 14, class_="median")
    if "p90" in places:
        x = _x(places["p90"])
        yield tag("line", x1=x, x2=x, y1=middle - 7, y2=middle + 7, class_="reach")
    if "p99" in places:
        yield tag("circle", cx=_x(places["p99"]), cy=middle, r=4, class_="peak")
    said = f"{side}, median {time_text(times['median'])}"
    yield tag("text", said, x=0, y=top + 15, class_="side")


def _text(text: str, place: float, y: float, kind: str) -> Element:
    anchor = "start" if place < 4 else "end" if place > 92 else "middle"
    return tag("text", text, x=_x(place), y=y, text_anchor=anchor, class_=kind)


def _x(place: float) -> str:
    return f"{place:.2f}%"


def _short(seconds: float) -> str:
    """`10 µs`, where a time is told as `10.0 µs`."""
    number, _, unit = time_text(seconds).partition(" ")
    return f"{float(number):g} {unit}" if seconds else "0"
