"""`aotc explain`: what a reason code means, and how to fix it."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.grammar import Command, current, examples, new_app
from aotc.cli.options import Json, reason_codes

if TYPE_CHECKING:
    from aotc.tools.explanation import Explanation


app = new_app()

# Of a file or a pipe.
_WIDTH: Final = 96


@app.command(cls=Command)
@examples("aotc explain g016 AOTC-N040", "aotc explain --list")
def explain(
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CODE...",
            help="reason codes, such as AOTC-G005 or g005",
            autocompletion=reason_codes,
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="list every code")] = False,
    json: Json = False,
) -> int:
    """Explain reason codes.

    It says what each code means, whether it refuses, and how to fix it.
    """
    from aotc.cli.terminal import show_names, terminal_width, write_lines
    from aotc.tools import explanation

    # As they are copied from a line of findings: `G016, N040`.
    named = [name for word in codes or () for name in word.split(",") if name]
    if bool(named) == list_all:
        raise AotcError("AOTC-I027", "give a code, or --list", fix="See 'aotc explain --help'.")
    if list_all:
        reasons = explanation.explain_all()
    else:
        found = [explanation.explain(name) for name in named]
        reasons = tuple({reason.code: reason for reason in found}.values())
    if json:
        from aotc.cli.output import write_document

        write_document(explanation.ExplainReport(reasons=reasons))
    elif list_all or current().quiet:
        show_names({reason.code: reason.title for reason in reasons})
    else:
        # Nothing that lays out is imported: a code is asked for where a command just ended.
        width = terminal_width(sys.stdout) or _WIDTH
        texts = [text for reason in reasons for text in _paragraphs(reason)]
        write_lines([line for text in texts for line in ("", *textwrap.wrap(text, width))][1:])
    return EXIT_YES


def _paragraphs(reason: Explanation) -> list[str]:
    kind = (
        "a finding: it is reported, and refuses nothing"
        if reason.exit_status == 0
        else f"exit status {reason.exit_status}"
    )
    paragraphs = [f"{reason.code}: {reason.title}", f"({kind})", reason.explain]
    paragraphs += reason.detail.split("\n\n") if reason.detail else []
    paragraphs.append(f"Fix: {reason.fix}")
    return [" ".join(text.split()) for text in paragraphs]
