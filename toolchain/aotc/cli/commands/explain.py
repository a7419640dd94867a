"""`aotc explain`: what a reason code means, and how to fix it."""

from __future__ import annotations

from aotc.cli.commands.base import Command, Parser, add_json
from aotc.cli.render import write_lines
from aotc.contract.results.command_reports import ExplainReport, Explanation
from aotc.errors import EXIT_YES, AotcError


def arguments(parser: Parser) -> None:
    """Declare them."""
    parser.add_argument("code", metavar="CODE", nargs="?", help="such as AOTC-G005, or G005")
    parser.add_argument("--list", dest="list_all", action="store_true", help="list every code")
    add_json(parser)


def explain(*, code: str | None, list_all: bool, json: bool) -> int:
    """Explain a reason code: what it means, and how to fix it."""
    from aotc.inspection import explanation

    if (code is None) != list_all:
        raise AotcError("AOTC-I027", "give a code, or --list", fix="See 'aotc explain --help'.")
    reasons = explanation.explain_all() if code is None else (explanation.explain(code),)
    if json:
        from aotc.cli.json_document import write_document

        write_document(ExplainReport(reasons=reasons))
    elif list_all:
        write_lines(f"{each.code}  {each.title}" for each in reasons)
    else:
        write_lines(_lines(reasons[0]))
    return EXIT_YES


def _lines(each: Explanation) -> list[str]:
    import textwrap

    kind = (
        "a finding: it is reported, and refuses nothing"
        if each.exit_status == 0
        else f"exit status {each.exit_status}"
    )
    paragraphs = [f"{each.code}: {each.title}", f"({kind})", each.explain]
    paragraphs += each.detail.split("\n\n") if each.detail else []
    paragraphs.append(f"Fix: {each.fix}")
    return [
        line for text in paragraphs for line in ("", *textwrap.wrap(" ".join(text.split()), 96))
    ][1:]


command = Command(explain, arguments)
