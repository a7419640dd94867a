"""The frame of a page: style for light and dark, and a policy that admits nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from typing import Final

from aotc.escaping import printable

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #55636f; --line: #d5dbe1;
  --bar: #3f73ad; --mark: #b4481a; --best: #e9f4ec; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4eaf0; --soft: #a3b0bc; --line: #34404c;
  --bar: #6fa4dd; --mark: #f09a6b; --best: #17301f; --paper: #11161c; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 15px/1.45 system-ui, "Segoe UI", "Helvetica Neue", Arial,
  sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
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
