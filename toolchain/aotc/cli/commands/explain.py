"""`aotc explain`: what a reason code means, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.commands.base import respond_lines
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, reason_codes

if TYPE_CHECKING:
    from aotc.tools.explanation import Explanation


app = new_app()


@app.command(cls=Command)
@examples("aotc explain AOTC-G005", "aotc explain --list")
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="reason code, such as AOTC-G005 or G005",
            autocompletion=reason_codes,
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="list every code")] = False,
    json: Json = False,
) -> int:
    """Explain a reason code.

    It says what the code means, whether it refuses, and how to fix it.
    """
    from aotc.tools import explanation

    if (code is None) != list_all:
        raise AotcError("AOTC-I027", "give a code, or --list", fix="See 'aotc explain --help'.")
    if code is None:
        reasons = explanation.explain_all()
        lines = [f"{reason.code}  {reason.title}" for reason in reasons]
    else:
        reasons = (explanation.explain(code),)
        lines = _lines(reasons[0])
    respond_lines(explanation.ExplainReport(reasons=reasons), lines, json=json)
    return EXIT_YES


def _lines(reason: Explanation) -> list[str]:
    import textwrap

    kind = (
        "a finding: it is reported, and refuses nothing"
        if reason.exit_status == 0
        else f"exit status {reason.exit_status}"
    )
    paragraphs = [f"{reason.code}: {reason.title}", f"({kind})", reason.explain]
    paragraphs += reason.detail.split("\n\n") if reason.detail else []
    paragraphs.append(f"Fix: {reason.fix}")
    return [
        line for text in paragraphs for line in ("", *textwrap.wrap(" ".join(text.split()), 96))
    ][1:]
