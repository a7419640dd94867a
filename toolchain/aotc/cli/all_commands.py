"""The command `aotc` itself: a group whose commands are imported when they are called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aotc.cli.commands import COMMANDS, HELP
from aotc.cli.grammar.command import Command, Group, built, new_app
from aotc.contract.versions import VERSION
from aotc.errors import EXIT_YES

if TYPE_CHECKING:
    from typer._click.core import Context


HELP_WORD: Final = "help"
# Whether the group's own answer is to be a document; in its context.
_AS_JSON: Final = "aotc.json"


class _Root(Group):
    """Every command by name."""

    def summaries(self, ctx: Context) -> dict[str, str]:
        """Every command with what it is for, without importing one."""
        return {**HELP, HELP_WORD: "Show the help of a command, as --help after it does."}

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the first words; `help COMMAND` is `COMMAND --help`."""
        if args[:1] == [HELP_WORD]:
            args = [*(word for word in args[1:] if word != HELP_WORD), "--help"]
        ctx.meta[_AS_JSON] = "--json" in args[1:]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | Group | None:
        """The command of that name; None where there is none."""
        return built(COMMANDS.load(cmd_name)) if cmd_name in COMMANDS else None


_app = new_app("Build, verify and run signed artifacts of ONNX models.", _Root)


def _show_version(ctx: typer.Context, asked: bool) -> None:
    if not asked:
        return
    if ctx.meta[_AS_JSON]:
        from aotc.cli.installed_versions import version_report
        from aotc.cli.json_document import write_document

        write_document(version_report())
    else:
        sys.stdout.write(f"aotc {VERSION}\n")
    raise typer.Exit(EXIT_YES)


@_app.callback()
def _aotc(
    version: Annotated[
        bool,
        typer.Option(
            "-V",
            "--version",
            is_eager=True,
            callback=_show_version,
            help="print the version; with --json that of the toolchain, too",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="print tracebacks of errors, wherever it stands")
    ] = False,
) -> None:
    """Options that stand before a command."""


def all_commands() -> Group:
    """The group of all commands."""
    found = built(_app)
    assert isinstance(found, Group)
    return found


def every_command() -> dict[str, Command]:
    """Every command by the words that call it, such as `trust add`; imports all of them."""
    found: dict[str, Command] = {}
    for name in COMMANDS:
        command = built(COMMANDS.load(name))
        below = command.commands if isinstance(command, Group) else {"": command}
        for word, leaf in below.items():
            assert isinstance(leaf, Command)
            found[f"{name} {word}".strip()] = leaf
    return found
