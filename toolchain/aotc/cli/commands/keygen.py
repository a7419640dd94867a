"""`aotc keygen`: a new P-256 signing key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond_lines
from aotc.cli.grammar import Command, examples, exclusive, new_app
from aotc.cli.options import Json

app = new_app()


# A password itself is never an argument: those stand in process lists and shell histories.
@app.command(cls=Command)
@exclusive("--password", "--password-file", "--password-env")
@examples(
    "aotc keygen -o signing.pem",
    "aotc keygen -o signing.pem --password-file password.txt",
)
def keygen(
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.pem",
            parser=Path,
            help="private key to write; the public one is NAME.pub in the same folder",
        ),
    ],
    password: Annotated[
        bool,
        typer.Option(
            "--password", help="encrypt the private key with a password that is asked for twice"
        ),
    ] = False,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            parser=Path,
            help="encrypt the private key with the first line of a file",
        ),
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(
            "--password-env",
            metavar="NAME",
            help="encrypt the private key with the value of an environment variable",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Make a signing key.

    NAME.pem is the private key (mode 0600) and NAME.pub the public one; neither is ever
    overwritten. Without a password the private key is not encrypted. Where it is used, the
    password comes from the file that $AOTC_KEY_PASSWORD_FILE names, from $AOTC_KEY_PASSWORD, or
    from a prompt.
    """
    from aotc.spec.command_reports import KeygenReport
    from aotc.spec.trust_anchors import key_id
    from aotc.trust import key_files, key_loading

    secret = None
    if password:
        secret = key_loading.ask_new()
    elif password_file is not None:
        secret = key_loading.from_file(password_file)
    elif password_env is not None:
        secret = key_loading.from_variable(password_env)
    private, public = key_files.generate(output, password=secret)
    answer = KeygenReport(
        private_key=str(private),
        public_key=str(public),
        key_id=key_id(public.read_text("ascii")),
    )
    lines = (
        f"private key  {answer.private_key}",
        f"public key   {answer.public_key}",
        f"key id       {answer.key_id}",
    )
    respond_lines(answer, lines, json=json, brief=answer.key_id)
    return EXIT_YES
