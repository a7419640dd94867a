"""`aotc pack`: an artifact as one file."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import Command, Parser, add_artifact, add_json
from aotc.errors import EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser, packed=False)
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME.aotc.zip",
        type=Path,
        help="file to write; ARTIFACT.zip here if not given",
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")
    add_json(parser)


def pack(*, artifact: Path, output: Path | None, force: bool, json: bool) -> int:
    """Pack an artifact into one file, uncompressed, the same bytes each time.

    'aotc verify', 'inspect' and 'run' take the file as they take the folder, and any unzip opens
    it. Nothing is verified here.
    """
    from aotc.packing.pack import pack as write

    answer = write(artifact, output or Path(f"{artifact.resolve().name}.zip"), force=force)
    if json:
        from aotc.cli.json_document import write_document

        write_document(answer)
    else:
        from aotc.cli.render import count, facts, heading, show, size

        rows = [("artifact", answer.artifact_id), ("size", size(answer.bytes))]
        show([heading(answer.archive, f"{count(answer.files, 'file')} packed"), facts(rows)])
    return EXIT_YES


command = Command(pack, arguments)
