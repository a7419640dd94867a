"""The frame of a page: style for light and dark, a policy that admits nothing else, and tables."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from typing import Final

from aotc.escaping import printable

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #55636f; --line: #d5dbe1;
  --bar: #3f73ad; --mark: #b4481a; --best: #e9f4ec; --paper: #ffffff; --new: #e5f3e8;
  --gone: #fbe9e7; --moved: #fdf3dc; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4eaf0; --soft: #a3b0bc; --line: #34404c;
  --bar: #6fa4dd; --mark: #f09a6b; --best: #17301f; --paper: #11161c; --new: #16301f;
  --gone: #3a1c19; --moved: #362c14; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 15px/1.45 system-ui, "Segoe UI", "Helvetica Neue", Arial,
  sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
summary { cursor: pointer; color: var(--soft); }
@media print { body { max-width: none; } }
"""


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """A whole page: `body` is HTML, `title` text, and `style` what CSS the page adds."""
    css = _STYLE + style
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{shown(title)}</title><style>{css}</style></head><body><main>",
            *body,
            "</main></body></html>\n",
        )
    )


def shown(text: str) -> str:
    """Text of others as text of a page: printable, and without tags."""
    return html.escape(printable(text))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0, *, kind: str = "plain"
) -> str:
    """A table of texts of class `kind`; the last `numbers` columns are set to the right."""
    first_number = len(columns) - numbers

    def line(tag: str, cells: Sequence[str]) -> str:
        inner = "".join(
            f"<{tag}{' class=number' if index >= first_number else ''}>{shown(cell)}</{tag}>"
            for index, cell in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f'<table class="{kind}"><thead>{line("th", columns)}</thead><tbody>{body}</tbody></table>'
    )
