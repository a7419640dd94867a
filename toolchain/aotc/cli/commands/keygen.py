"""`aotc keygen`: a new P-256 signing key."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import Command, Parser, add_json
from aotc.contract.results.command_reports import KeygenReport
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
    # A password itself is never an argument: those stand in process lists and shell histories.
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--password",
        action="store_true",
        help="encrypt the private key with a password that is asked for twice",
    )
    source.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="encrypt the private key with the first line of a file",
    )
    source.add_argument(
        "--password-env",
        metavar="NAME",
        help="encrypt the private key with the value of an environment variable",
    )
    add_json(parser)


def keygen(
    *,
    output: Path,
    password: bool,
    password_file: Path | None,
    password_env: str | None,
    json: bool,
) -> int:
    """Write NAME.pem (private, mode 0600) and NAME.pub (public); neither is ever overwritten.

    Without a password the private key is not encrypted. Where it is used, the password comes from
    the file that $AOTC_KEY_PASSWORD_FILE names, from $AOTC_KEY_PASSWORD, or from a prompt.
    """
    from aotc.contract.trust.anchors import key_id
    from aotc.signing.keys import key_files, passwords

    secret = None
    if password:
        secret = passwords.ask_new()
    elif password_file is not None:
        secret = passwords.from_file(password_file)
    elif password_env is not None:
        secret = passwords.from_variable(password_env)
    private, public = key_files.generate(output, password=secret)
    answer = KeygenReport(
        private_key=str(private),
        public_key=str(public),
        key_id=key_id(public.read_text("ascii")),
    )
    if json:
        from aotc.cli.json_document import write_document

        write_document(answer)
    else:
        from aotc.cli.render import write_lines

        write_lines(
            (
                f"private key  {answer.private_key}",
                f"public key   {answer.public_key}",
                f"key id       {answer.key_id}",
            )
        )
    return EXIT_YES


command = Command(keygen, arguments)
