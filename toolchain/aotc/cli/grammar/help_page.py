"""The page that `--help` shows: usage, purpose, parameters with their defaults, and examples."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperOption

from aotc.cli.grammar.words import HELP, label, options_by_name, positionals
from aotc.cli.render import listing, prose, section, show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from typer._click.core import Parameter

_HELP_ROW = (", ".join(HELP), "show this help")


def show_command(
    prog: str, about: str, parameters: Sequence[Parameter], examples: Sequence[str]
) -> None:
    """Write the page of a command, such as `aotc build`."""
    options = list(dict.fromkeys(options_by_name(parameters).values()))
    needed = [_spelling(option, option.opts[0]) for option in options if option.required]
    words = [
        label(argument) if argument.required else f"[{label(argument)}]"
        for argument in positionals(parameters)
    ]
    parts = [
        listing([" ".join(("usage:", prog, "[OPTIONS]", *needed, *words))]),
        *_paragraphs(about),
    ]
    arguments = [(label(argument), _phrase(argument)) for argument in positionals(parameters)]
    if arguments:
        parts.append(section("arguments", ("",), arguments))
    by_subject: dict[str, list[tuple[str, str]]] = {}
    for option in options:
        spelled = _spelling(option, ", ".join((*option.opts, *option.secondary_opts)))
        by_subject.setdefault(option.rich_help_panel or "options", []).append(
            (spelled, _phrase(option))
        )
    by_subject.setdefault("options", []).append(_HELP_ROW)
    parts += [section(subject, ("",), rows) for subject, rows in by_subject.items()]
    parts.append(listing(["examples", *(f"  {example}" for example in examples)]))
    show(parts)


def show_group(
    prog: str, about: str, commands: Mapping[str, str], parameters: Sequence[Parameter]
) -> None:
    """Write the page of a group: every command in it, with its purpose in one line."""
    options = dict.fromkeys(options_by_name(parameters).values())
    rows = [(", ".join(option.opts), _phrase(option)) for option in options]
    parts = [listing([f"usage: {prog} COMMAND ..."]), *_paragraphs(about)]
    parts.append(section("commands", ("",), list(commands.items())))
    parts.append(section("options", ("",), [*rows, _HELP_ROW]))
    parts.append(listing([f"'{prog} COMMAND --help' says more."]))
    show(parts)


def _paragraphs(text: str) -> list[RenderableType]:
    import inspect

    return [
        prose(" ".join(paragraph.split())) for paragraph in inspect.cleandoc(text).split("\n\n")
    ]


def _spelling(option: TyperOption, names: str) -> str:
    return names if option.is_flag else f"{names} {option.metavar}"


def _phrase(parameter: TyperArgument | TyperOption) -> str:
    """What a parameter is for, with its default."""
    notes = []
    default = parameter.default
    if isinstance(parameter.show_default, str):
        notes.append(f"default: {parameter.show_default}")
    elif (
        parameter.show_default
        and isinstance(default, int | str | os.PathLike)
        and not isinstance(default, bool)
        and default != ""
    ):
        notes.append(f"default: {default}")
    if isinstance(parameter, TyperOption) and parameter.required:
        notes.append("required")
    if parameter.multiple:
        notes.append("may be repeated")
    return f"{parameter.help} ({'; '.join(notes)})" if notes else str(parameter.help)
