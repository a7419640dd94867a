"""Draw the wings of the package, and list them in docs/architecture.md.

`python ci/architecture` checks whether both are current, `--write` writes them; `--lines` lists the
wings with their current numbers of modules and lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cycles import TOOLCHAIN
from picture import draw
from wings import Wing, read_wings

ROOT = TOOLCHAIN.parent
PICTURE = ROOT / "docs" / "architecture.svg"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- The wings, by `make docs`: do not edit. -->"
END = "<!-- The end of the wings. -->"
# What a host that only verifies runs.
LIGHT = {"base", "spec", "host", "trust"}


def table(wings: tuple[Wing, ...]) -> str:
    """The wings and their folders; without numbers that every commit changes."""
    rows = ["| wing | what it holds | imports |", "|---|---|---|"]
    for wing in wings:
        rows.append(f"| `{wing.name}` | {wing.purpose} | {', '.join(wing.imports) or 'nothing'} |")
        rows += [f"| `{folder.name}` | {folder.purpose} | |" for folder in wing.folders]
    return "\n".join(rows) + "\n"


def generated_files(wings: tuple[Wing, ...]) -> dict[Path, str]:
    """The generated files with their texts."""
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE}: the marks of the generated part are missing: {BEGIN} … {END}")
    title = "The wings of aotc, each of which imports only those below it"
    return {
        PICTURE: draw(wings, LIGHT, title),
        PAGE: f"{before}{BEGIN}\n\n{table(wings)}\n{END}{after}",
    }


def main(arguments: list[str]) -> int:
    """Compare or write; 1 if a file is not current."""
    wings = read_wings(TOOLCHAIN)
    if "--lines" in arguments:
        for wing in wings:
            print(f"{wing.name:12}{wing.modules:5} modules{wing.lines:7} lines")
        return 0
    stale = {
        path: text
        for path, text in generated_files(wings).items()
        if not path.is_file() or path.read_text("utf-8") != text
    }
    write = "--write" in arguments
    for path, text in stale.items():
        if write:
            path.write_text(text, "utf-8")
        print(f"{'wrote' if write else 'not current:'} {path}")
    return 1 if stale and not write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
