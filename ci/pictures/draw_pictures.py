"""Draw the pictures of the README and the guides, in docs/pictures.

`python ci/pictures/draw_pictures.py` checks that they are current, `--write` writes them.
Codes and kinds of attestations are read from the toolchain.
"""

from __future__ import annotations

import sys
from pathlib import Path

import artifact_picture
import line_picture

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
PICTURES = {
    "pipeline": line_picture.draw,
    "artifact": artifact_picture.draw,
}


def main(arguments: list[str]) -> int:
    """Compare every picture, or write it with `--write`; exit status 1 if one is not current."""
    stale = 0
    for name, draw in PICTURES.items():
        path, text = FOLDER / f"{name}.svg", draw()
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        if "--write" in arguments:
            path.write_text(text, "utf-8")
        else:
            stale = 1
        print(f"{'wrote' if '--write' in arguments else 'not current:'} {path}")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
