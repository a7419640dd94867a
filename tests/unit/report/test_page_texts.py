"""Texts of a page: units that people read, and places where a long word may be broken."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

import pytest

from aotc.report.html.latency_chart import bench_parts
from aotc.report.html.page import flowing, in_units, tag
from aotc.spec.run_report import Measurement, RunReport


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("161 us", "161 µs"),
        ("0.000161 s", "161 µs"),
        ("<= 1e-05 s", "≤ 10.0 µs"),
        ("1.24 ms", "1.24 ms"),
        ("71800000 bytes", "71.8 MB"),
        ("106,110,976 B", "106.1 MB"),
        (">= 30000000 bytes", "≥ 30.0 MB"),
        ("0 s", "0 s"),
        ("16.3 us +-20%", "16.3 µs ±20%"),
        ("opt 8.24 us +-7%, max 30.4 ms", "opt 8.24 µs ±7%, max 30.4 ms"),
        ("bonus", "bonus"),
        ("layer 3 used", "layer 3 used"),
        ("block 0.5 s of 2", "block 0.5 s of 2"),
        ("9" * 400 + " bytes", "9" * 400 + " bytes"),
    ],
)
def test_units(text: str, shown: str) -> None:
    assert in_units(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("peak_memory_bytes passed", "peak_memory_bytes passed"),
        ("budgets.peak_memory_bytes.of.all", "budgets.|peak_|memory_|bytes.|of.|all"),
        ("/home/user/networks/model.onnx", "/|home/|user/|networks/|model.|onnx"),
        ("sha256 " + "0123456789abcdef" * 2, "sha256 0123456789abcdef|0123456789abcdef"),
        ("DynamicQuantizeMatMul_22", "DynamicQuantizeMatMul_22"),
        ("a  b", "a  b"),
        ("half took 161 us, at most 2.5 MB.", "half took <161 µs,> at most <2.5 MB.>"),
        ("see AOTC-N055 of it", "see <AOTC-N055> of it"),
    ],
)
def test_where_a_line_may_be_broken(text: str, shown: str) -> None:
    """`|` is a `wbr`, and `<>` what stays in one line."""
    parts = "".join(
        "|"
        if isinstance(part, Element) and part.tag == "wbr"
        else f"<{part.text}>"
        if isinstance(part, Element)
        else part or ""
        for part in flowing(text)
    )
    assert parts == shown


def bench(**sides: dict[str, float]) -> Element:
    """The parts of the page of a benchmark with these times."""
    run = RunReport(
        tool_version="0",
        exit_status=0,
        command="bench",
        outcome="passed",
        measurements=tuple(
            Measurement(name=name.replace("_", " "), subject=side, value=seconds, unit="s")
            for side, times in sides.items()
            for name, seconds in times.items()
        ),
    )
    return tag("div", *bench_parts(run))


@pytest.mark.parametrize(
    ("sides", "axis"),
    [
        ({"artifact": {"median": 1e-5}}, "begins at 0"),
        ({"artifact": {"median": 1e-5, "p99": 1.1e-4}}, "begins at 0"),
        ({"artifact": {"median": 1e-5, "p99": 1.3e-4}}, "is logarithmic"),
        ({"a": {"median": 2e-5, "p99": 0.0}, "b": {"median": 30.0}}, "is logarithmic"),
        ({"a": {"median": 1e-9, "lower_quartile": 0.0}, "b": {"median": 1e5}}, "is logarithmic"),
    ],
)
def test_a_chart_holds_all_times(sides: dict[str, dict[str, float]], axis: str) -> None:
    page = bench(**sides)
    (chart,) = page.iter("svg")
    places = [
        float(value.rstrip("%"))
        for each in chart.iter()
        for name, value in each.attrib.items()
        if name in ("x", "x1", "x2", "cx") and value.endswith("%")
    ]
    assert 0.0 <= min(places) <= max(places) <= 100.0
    ticks = [each.text or "" for each in chart.iter("text") if each.get("class") == "tick"]
    assert 2 <= len(ticks) <= 7
    assert all(re.fullmatch(r"0|\d+(\.\d+)? (µs|ms|s)", each) for each in ticks)
    assert len(list(chart.iter("rect"))) == len(sides)
    assert f"The axis {axis}." in "".join(page.itertext())


def test_without_times_there_is_no_chart() -> None:
    assert list(bench(artifact={"median": 0.0})) == []
