"""`aotc unpack`: a packed artifact as a folder again."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import Command, Parser, add_json
from aotc.errors import EXIT_YES, AotcError


def arguments(parser: Parser) -> None:
    """Declare them."""
    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="the NAME.aotc.zip file")
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME.aotc",
        type=Path,
        help="folder to write; ARCHIVE without .zip, here, if not given",
    )
    parser.add_argument("--force", action="store_true", help="replace an artifact that is there")
    add_json(parser)


def unpack(*, archive: Path, output: Path | None, force: bool, json: bool) -> int:
    """Unpack an artifact into a new folder.

    The file must be as 'aotc pack' writes it, to the byte. Signatures are not verified here.
    """
    from aotc.packing.unpack import unpack as write

    answer = write(archive, output or _folder(archive), force=force)
    if json:
        from aotc.cli.json_document import write_document

        write_document(answer)
    else:
        from aotc.cli.render import count, facts, heading, show, size

        rows = [("artifact", answer.artifact_id), ("size", size(answer.bytes))]
        show([heading(answer.artifact, f"{count(answer.files, 'file')} unpacked"), facts(rows)])
    return EXIT_YES


def _folder(archive: Path) -> Path:
    from aotc.contract.packed_form import SUFFIX

    if archive.suffix != SUFFIX or not archive.stem:
        raise AotcError(
            "AOTC-I027",
            f"the archive's name does not end in {SUFFIX}, so that the folder needs a name",
            where=str(archive),
            fix="Give one with -o.",
        )
    return Path(archive.stem)


command = Command(unpack, arguments)
