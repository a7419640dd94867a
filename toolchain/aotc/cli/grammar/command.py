"""Commands and groups of commands: typer's, with the reading, help and refusals of this project.

A command is a function whose parameters are annotated with typer's options and arguments. The first
line of its docstring says what it is for, wherever commands are listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from aotc.cli.grammar import configured, verbosity, words
from aotc.contract.codec.spelling import nearest
from aotc.errors import EXIT_USAGE, EXIT_YES

if TYPE_CHECKING:
    # What a parser is given has no public name.
    from typer._click.core import Context

Function = TypeVar("Function", bound=Callable[..., int])

# Attributes of a function that say more of its command than its parameters do.
_EXAMPLES: Final = "command_examples"
_EXCLUSIVE: Final = "command_exclusive"
_CHOICE: Final = "command_choice"
# The words of a call, in its context.
_WORDS: Final = "aotc.words"
_BARE: Final = "command_bare"


def examples(*calls: str) -> Callable[[Function], Function]:
    """Calls that the command's help ends with, as they would be typed in a shell."""
    return _stating(_EXAMPLES, calls)


def exclusive(*options: str) -> Callable[[Function], Function]:
    """Options of which at most one may be given; a command may have several such groups."""

    def decorate(function: Function) -> Function:
        known: tuple[tuple[str, ...], ...] = getattr(function, _EXCLUSIVE, ())
        setattr(function, _EXCLUSIVE, (options, *known))
        return function

    return decorate


def choice(*options: str) -> Callable[[Function], Function]:
    """Options of which exactly one must be given."""
    return _stating(_CHOICE, options)


def bare(option: str, value: str) -> Callable[[Function], Function]:
    """The value of an option that is given without one, as its last word or before an option."""

    def decorate(function: Function) -> Function:
        known: dict[str, str] = getattr(function, _BARE, {})
        setattr(function, _BARE, {**known, option: value})
        return function

    return decorate


def _stating(name: str, value: tuple[str, ...]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        setattr(function, name, value)
        return function

    return decorate


class Command(TyperCommand):
    """A command; what is wrong with its words is an AOTC-I027."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params += verbosity.options()

    def invoke(self, ctx: Context) -> Any:
        """Call the function, with what it says on standard error as the call asks for it."""
        with verbosity.taken(ctx.params, ctx.command_path, ctx.meta[_WORDS]) as outcome:
            outcome.status = super().invoke(ctx)
            return outcome.status

    def _stated(self, name: str) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self.callback, name, ())
        return found

    @property
    def examples(self) -> tuple[str, ...]:
        """The calls that its help ends with."""
        return self._stated(_EXAMPLES)

    def get_help_option(self, ctx: Context) -> None:
        """None: `parse_args` reads it, wherever it stands."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words; raises AOTC-I027, or `typer.Exit` after help was shown."""
        prog = ctx.command_path
        ctx.meta[_WORDS] = tuple(args)
        if any(word in words.HELP for word in args):
            from aotc.cli.grammar.help_page import show_command

            show_command(prog, self.help or "", self.params, self.examples)
            raise typer.Exit(EXIT_YES)
        stated = words.read(
            args,
            self.params,
            prog,
            exclusive=(*getattr(self.callback, _EXCLUSIVE, ()), verbosity.QUIET_OR_VERBOSE),
            choice=self._stated(_CHOICE),
            bare=getattr(self.callback, _BARE, words.NO_DEFAULTS),
        )
        configured.set_defaults(ctx, stated, self.params)
        try:
            left = super().parse_args(ctx, stated)
        except typer.BadParameter as error:
            name = words.label(error.param) if error.param is not None else ""
            words.refuse(f"argument {name}: {error.message}", prog)
        configured.tell_defaults(ctx)
        return left


class Group(TyperGroup):
    """Commands below a word; without one, its help is shown."""

    def get_help_option(self, ctx: Context) -> None:
        """None: `parse_args` reads it."""

    def summaries(self, ctx: Context) -> dict[str, str]:
        """Every command by name, with what it is for."""
        return {name: first_line(command.help or "") for name, command in self.commands.items()}

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the first word; raises AOTC-I027, or `typer.Exit` after help was shown."""
        rows = self.summaries(ctx)
        options = words.options_by_name(self.params)
        if not args or args[0] in words.HELP:
            from aotc.cli.grammar.help_page import show_group

            show_group(ctx.command_path, self.help or "", rows, self.params)
            raise typer.Exit(EXIT_YES if args else EXIT_USAGE)
        if args[0] not in rows and args[0] not in options:
            _refuse_name(args[0], tuple(rows), ctx.command_path)
        # An option of the group ends the call: what follows it is not read.
        return super().parse_args(ctx, args[:1] if args[0] in options else args)


def _refuse_name(word: str, known: tuple[str, ...], prog: str) -> NoReturn:
    kind = "option" if word.startswith("-") else "command"
    close = nearest(word, known)
    hint = f"; did you mean {close!r}?" if close else ""
    words.refuse(f"there is no {kind} {word!r}{hint}", prog)


def new_app(about: str | None = None, cls: type[Group] = Group) -> typer.Typer:
    """A typer application for one command, or, with what it is `about`, for a group of them."""
    return typer.Typer(cls=cls, help=about, add_completion=False, rich_markup_mode=None)


def first_line(text: str) -> str:
    """What a help text says in its first line."""
    return text.partition("\n")[0]


def built(app: typer.Typer) -> Command | Group:
    """The command, or the group of commands, that an application declares."""
    found = get_command(app)
    assert isinstance(found, Command | Group)
    return found
