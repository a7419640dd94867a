"""The chart of live memory over the nodes, as inline SVG."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from aotc.drawing.figures import bytes_text
from aotc.drawing.live_memory import MemoryCurve
from aotc.drawing.markup import shown_name, tag

_WIDTH: Final = 900
_HEIGHT: Final = 200
_LEFT: Final = 74
_BOTTOM: Final = 34
_TOP: Final = 24


def memory_chart(curve: MemoryCurve, node: str, title: str) -> Element:
    """The curve with its peak, at which `node` runs."""
    assert curve.peak is not None
    top = curve.bytes[curve.peak]
    count = len(curve.bytes)

    def place(index: float, size: float) -> tuple[float, float]:
        across = _LEFT + index / count * (_WIDTH - _LEFT - 8)
        return across, _TOP + (1 - size / top) * (_HEIGHT - _TOP - _BOTTOM)

    path = f"M{_LEFT} {_HEIGHT - _BOTTOM}"
    for index, size in enumerate(curve.bytes):
        x, y = place(index, size)
        path += f"L{x:.1f} {y:.1f}H{place(index + 1, size)[0]:.1f}"
    path += f"L{place(count, 0)[0]:.1f} {_HEIGHT - _BOTTOM}Z"
    x, y = place(curve.peak + 0.5, top)
    on_left = curve.peak > count / 2
    lines = []
    for share in (0.0, 0.5, 1.0):
        _, height = place(0, top * share)
        lines.append(tag("line", x1=_LEFT, x2=_WIDTH - 8, y1=height, y2=height, class_="rule"))
        lines.append(
            tag("text", bytes_text(top * share), x=_LEFT - 6, y=height + 4, text_anchor="end")
        )
    said = f"{title}: the peak is {bytes_text(top)} at node {curve.peak + 1}, {shown_name(node)}"
    return tag(
        "svg",
        tag("title", said),
        *lines,
        tag("path", d=path, class_="area"),
        tag("circle", cx=x, cy=y, r=4, class_="peak"),
        tag(
            "text",
            f"{bytes_text(top)} at node {curve.peak + 1}, {shown_name(node, 48)}",
            class_="peak",
            x=x + (-8 if on_left else 8),
            y=y - 8,
            text_anchor="end" if on_left else "start",
        ),
        tag(
            "text",
            f"nodes in order of execution, 1 to {count}",
            x=(_LEFT + _WIDTH) / 2,
            y=_HEIGHT - 8,
            text_anchor="middle",
        ),
        class_="chart",
        role="img",
        aria_label=said,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH,
        height=_HEIGHT,
    )
