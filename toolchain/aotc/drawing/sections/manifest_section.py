"""The manifest as it stands, with a search over its lines."""

from __future__ import annotations

import json
from xml.etree.ElementTree import Element

from aotc.drawing.markup import section, shown_name, tag
from aotc.escaping import printable


def manifest_section(content: bytes) -> Element:
    """Every part of aotc.json; lines that mislead are escaped, and very long ones cut."""
    data = json.loads(content)
    parts = []
    for name, value in data.items():
        text = json.dumps(value, indent=1, ensure_ascii=False)
        lines = "\n".join(printable(line) for line in text.split("\n"))
        block = tag("pre", tabindex=0)
        # The line breaks are ours, and each line is printable already.
        block.text = lines
        kept = len(lines.encode("utf-8", "replace"))
        shown = tag("summary", tag("code", shown_name(name)), f" {kept} bytes")
        parts.append(tag("details", shown, block))
    return section(
        "manifest",
        "Manifest",
        tag(
            "p",
            "payload/aotc.json as it stands; its sha256 is the artifact's id. "
            "Lines of more than 2000 characters are cut.",
        ),
        tag(
            "label",
            "show the lines with ",
            tag("input", type="search", id="lines", autocomplete="off"),
        ),
        tag("p", id="counted", role="status", class_="quiet"),
        *parts,
    )
