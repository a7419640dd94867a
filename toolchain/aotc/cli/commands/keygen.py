"""`aotc keygen`: a new P-256 signing key."""

from __future__ import annotations

import sys
from pathlib import Path

from aotc.cli.commands.base import Command, Parser, add_json
from aotc.contract.answers import KeygenAnswer
from aotc.errors import EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME.pem",
        type=Path,
        required=True,
        help="private key to write; the public one is NAME.pub beside it",
    )
    add_json(parser)


def keygen(*, output: Path, json: bool) -> int:
    """Write NAME.pem (private, mode 0600) and NAME.pub (public); neither is ever overwritten."""
    from aotc.signing import keys

    private, public = keys.generate(output)
    answer = KeygenAnswer(
        private_key=str(private),
        public_key=str(public),
        key_id=keys.key_id(public.read_text("ascii")),
    )
    if json:
        from aotc.cli.document import write_document

        write_document(answer)
    else:
        sys.stdout.write(
            f"private key  {answer.private_key}\npublic key   {answer.public_key}\n"
            f"key id       {answer.key_id}\n"
        )
    return EXIT_YES


command = Command(keygen, arguments)
