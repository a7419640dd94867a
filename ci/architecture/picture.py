"""The wings as a stack, as SVG for light and dark backgrounds: each imports only those below it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from xml.sax.saxutils import escape

from wings import Wing

WIDTH, MARGIN, GAP, LINE, PAD, NAME = 860, 16, 8, 17, 12, 130
WRAP = 96

STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.paper { fill: #ffffff; }
.wing { fill: #eef4fb; stroke: #5b83b0; }
.light { fill: #eff7ee; stroke: #6d9a68; }
.name { fill: #16202b; font-size: 15px; font-weight: 600; }
.text { fill: #3c4a59; font-size: 12.5px; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0f141a; }
  .wing { fill: #172536; stroke: #5f8fc4; }
  .light { fill: #18261a; stroke: #6d9a68; }
  .name { fill: #eef3f8; }
  .text { fill: #b4c0cc; }
}
"""


def draw(wings: Iterable[Wing], light: set[str], title: str) -> str:
    """The picture; the wings named in `light` have a colour of their own."""
    boxes, top = [], MARGIN
    for wing in wings:
        lines = textwrap.wrap(wing.purpose, WRAP)
        height = 2 * PAD + LINE * len(lines) - 4
        kind = "light" if wing.name in light else "wing"
        boxes.append(
            f'<rect class="{kind}" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" '
            f'height="{height}" rx="6"/>'
        )
        middle = top + height / 2 + 5
        boxes.append(f'<text class="name" x="{MARGIN + PAD}" y="{middle}">{wing.name}</text>')
        for number, line in enumerate(lines):
            at = top + PAD + LINE * number + 11
            boxes.append(f'<text class="text" x="{MARGIN + NAME}" y="{at}">{escape(line)}</text>')
        top += height + GAP
    height = top - GAP + MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            *boxes,
            "</svg>\n",
        )
    )
