"""Draw the rooms of the package, and list them in docs/architecture.md.

`python ci/architecture` checks whether both are current, `--write` writes them; `--revision REV -o
FILE` draws the rooms of a revision, `--lines` lists rooms with their current numbers of lines.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from cycles import PACKAGE, TOOLCHAIN
from picture import draw
from rooms import Room, read_rooms

ROOT = TOOLCHAIN.parent
PICTURE = ROOT / "docs" / "architecture.svg"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- The rooms, by `make docs`: do not edit. -->"
END = "<!-- The end of the rooms. -->"


def table(rooms: tuple[Room, ...]) -> str:
    """The rooms and their parts; without numbers that every commit changes."""
    rows = ["| room | files | what it holds | imports |", "|---|---|---|---|"]
    for room in rooms:
        rows.append(_row(f"`{room.name}`", room))
        rows += [_row(f"`{room.name}/{part.name}`", part) for part in room.parts]
    return "\n".join(rows) + "\n"


def _row(name: str, room: Room) -> str:
    purpose = room.purpose.replace("|", "\\|")
    return f"| {name} | {room.files or 1} | {purpose} | {', '.join(room.imports) or 'nothing'} |"


def generated_files(rooms: tuple[Room, ...]) -> dict[Path, str]:
    """The generated files with their texts."""
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE}: the marks of the generated part are missing: {BEGIN} … {END}")
    return {
        PICTURE: draw(rooms, f"The rooms of {PACKAGE}"),
        PAGE: f"{before}{BEGIN}\n\n{table(rooms)}\n{END}{after}",
    }


def draw_revision(revision: str, output: Path) -> None:
    """Draw the rooms of a revision."""
    archive = subprocess.run(
        ["git", "archive", revision, f"{TOOLCHAIN.name}/{PACKAGE}"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        rooms = read_rooms(Path(folder) / TOOLCHAIN.name)
    output.write_text(draw(rooms, f"The rooms of {PACKAGE} at {revision}"), "utf-8")


def main(arguments: list[str]) -> int:
    """Compare, write or draw; 1 if a file is not current."""
    parser = argparse.ArgumentParser(prog="ci/architecture", description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--revision")
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args(arguments)
    if (options.revision is None) != (options.output is None):
        parser.error("--revision and -o go together")
    if options.revision:
        draw_revision(options.revision, options.output)
        return 0
    rooms = read_rooms(TOOLCHAIN)
    if options.lines:
        for room in rooms:
            print(f"{room.name:16}{room.files or 1:5} files{room.lines:7} lines")
        return 0
    stale = {
        path: text
        for path, text in generated_files(rooms).items()
        if not path.is_file() or path.read_text("utf-8") != text
    }
    for path, text in stale.items():
        if options.write:
            path.write_text(text, "utf-8")
        print(f"{'wrote' if options.write else 'not current:'} {path}")
    return 1 if stale and not options.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
