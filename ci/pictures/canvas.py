"""Boxes, arrows and text of a picture, as SVG for light and dark mode and for any font."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal
from xml.sax.saxutils import escape

Kind = Literal["thing", "step", "signed", "refused", "lane", "plain"]

# Average width of a letter, relative to the font size, in a wide sans-serif font.
_LETTER: Final = 0.56
_FIXED: Final = 0.62
_TITLE, _TEXT, _LINE = 15, 12, 17
_PAD: Final = 12

_STYLE: Final = """
text { font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  font-size: 12px; fill: #3c4a59; }
.title { font-size: 15px; font-weight: 600; fill: #16202b; }
.code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.paper { fill: #ffffff; }
.lane { fill: #f4f6f8; stroke: none; }
.thing { fill: #ffffff; stroke: #7d8b99; stroke-width: 1.4; }
.step { fill: #eef4fb; stroke: #5b83b0; stroke-width: 1.4; }
.signed { fill: #eaf6ee; stroke: #3f8f5f; stroke-width: 2; }
.refused { fill: #fdecea; stroke: #c0261c; stroke-width: 1.4; }
.plain { fill: none; stroke: none; }
.bad { fill: #c0261c; font-weight: 600; }
.good { fill: #2f7a4d; font-weight: 600; }
.arrow { fill: none; stroke: #7d8b99; stroke-width: 1.6; }
.tip { fill: #7d8b99; }
@media (prefers-color-scheme: dark) {
  text { fill: #b4c0cc; }
  .title { fill: #eef3f8; }
  .paper { fill: #0f141a; }
  .lane { fill: #161c24; }
  .thing { fill: #0f141a; stroke: #8796a5; }
  .step { fill: #172536; stroke: #5f8fc4; }
  .signed { fill: #13291c; stroke: #58b37c; }
  .refused { fill: #331714; stroke: #ff6b5f; }
  .bad { fill: #ff8a80; }
  .good { fill: #7fd4a0; }
  .arrow { stroke: #8796a5; }
  .tip { fill: #8796a5; }
}
"""


class TooWide(Exception):
    """Text may not fit into its box, depending on the reader's font."""


@dataclass(frozen=True)
class Box:
    """Position and size of a box; arrows begin and end at its sides."""

    x: int
    y: int
    width: int
    height: int

    @property
    def left(self) -> tuple[int, int]:
        """The middle of its left side."""
        return self.x, self.y + self.height // 2

    @property
    def right(self) -> tuple[int, int]:
        """The middle of its right side."""
        return self.x + self.width, self.y + self.height // 2

    @property
    def bottom(self) -> tuple[int, int]:
        """The middle of its lower side."""
        return self.x + self.width // 2, self.y + self.height

    @property
    def top(self) -> tuple[int, int]:
        """The middle of its upper side."""
        return self.x + self.width // 2, self.y


@dataclass
class Canvas:
    """A picture of a given size, its title, and a description for readers who do not see it."""

    width: int
    height: int
    title: str
    description: str
    _elements: list[str] = field(default_factory=list)

    def box(
        self,
        kind: Kind,
        place: tuple[int, int, int, int],
        title: str = "",
        lines: tuple[str, ...] = (),
        *,
        code: bool = False,
    ) -> Box:
        """A box with a title and lines below it; raises `TooWide`."""
        box = Box(*place)
        self._elements.append(
            f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{box.width}" '
            f'height="{box.height}" rx="7"/>'
        )
        y = box.y + _PAD + 10
        if title:
            self.text((box.x + _PAD, y), title, "title", box.width - 2 * _PAD)
            y += _LINE + 2
        for line in lines:
            style = "code" if code else ""
            self.text((box.x + _PAD, y), line, style, box.width - 2 * _PAD)
            y += _LINE
        if y - _LINE + 4 > box.y + box.height:
            raise TooWide(f"{title}: {len(lines)} lines are higher than {box.height}")
        return box

    def text(
        self, at: tuple[int, int], words: str, style: str = "", width: int = 0, anchor: str = ""
    ) -> None:
        """Text at a position; raises `TooWide` if it may be wider than `width` pixels."""
        size = _TITLE if style == "title" else _TEXT
        letter = _FIXED if style == "code" else _LETTER
        if width and len(words) * size * letter > width:
            raise TooWide(f"{words!r} may be wider than {width}")
        attributes = f' class="{style}"' if style else ""
        attributes += f' text-anchor="{anchor}"' if anchor else ""
        self._elements.append(f'<text{attributes} x="{at[0]}" y="{at[1]}">{escape(words)}</text>')

    def arrow(self, *points: tuple[int, int], label: str = "", style: str = "") -> None:
        """An arrow along points, its label above the middle of its first part."""
        *way, (x, y) = points
        last = way[-1]
        # The tip touches what it points at.
        end = (x - 8, y) if last[1] == y else (x, y - 8)
        path = " L ".join(f"{a} {b}" for a, b in (*way, end))
        self._elements.append(f'<path class="arrow" marker-end="url(#tip)" d="M {path}"/>')
        if label:
            (ax, ay), (bx, by) = points[0], points[1]
            at = ((ax + bx) // 2, ay - 8) if ay == by else (ax + 8, (ay + by) // 2 + 4)
            self.text(at, label, style, anchor="middle" if ay == by else "")

    def svg(self) -> str:
        """The picture; the same bytes for the same calls."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" '
                'aria-labelledby="title desc">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="desc">{escape(self.description)}</desc>',
                f"<style>{_STYLE}</style>",
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="0" refY="4" markerWidth="8" '
                'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
                '<path class="tip" d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>',
                f'<rect class="paper" width="{self.width}" height="{self.height}"/>',
                *self._elements,
                "</svg>",
                "",
            ]
        )
