"""`aotc config`: the defaults of commands, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import typer
from typer.core import TyperOption

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.configuration import config_path, read_settings
from aotc.cli.grammar import Command, Group, examples, new_app, option_named, value_text
from aotc.cli.options import Json
from aotc.spec.command_reports import ConfigReport, ConfiguredValue
from aotc.spec.config import OPTIONS

if TYPE_CHECKING:
    from aotc.cli.grammar import Parameter
    from aotc.report.sheet import Sheet


app = new_app()


@app.command(cls=Command)
@examples("aotc config", "aotc config --json")
def config(context: typer.Context, json: Json = False) -> int:
    """Show the defaults that aotc.yaml sets, and where each comes from.

    The file is aotc.yaml in the working directory, or the one that AOTC_CONFIG names. It sets
    defaults of build, check-models and bench; no other command reads it.
    """

    def parameters_of(command: str) -> list[Parameter]:
        group = context.find_root().command
        assert isinstance(group, Group)
        found = group.get_command(context, command)
        assert found is not None
        return found.params

    respond(config_report(parameters_of), config_view, json=json)
    return EXIT_YES


def config_report(parameters_of: Callable[[str], Sequence[Parameter]]) -> ConfigReport:
    """The values that calls without options would have, of commands with these parameters.

    Raises AOTC-I052 and I046.
    """
    settings = read_settings()
    path = config_path()
    rows = []
    for command, names in OPTIONS.items():
        parameters = parameters_of(command)
        for name in names:
            option = option_named(name, parameters)
            variable = _variable(option)
            setting = settings.get(command, {}).get(name)
            source: Literal["environment", "file", "default"]
            if variable:
                value, source, place = os.environ[variable], "environment", variable
            elif setting is not None:
                value, source, place = value_text(setting.value), "file", str(setting.place)
            else:
                value, source, place = _default(option), "default", ""
            rows.append(
                ConfiguredValue(
                    command=command, option=name, value=value, source=source, place=place
                )
            )
    return ConfigReport(file=str(path) if path is not None else "", values=tuple(rows))


def _variable(option: object) -> str:
    """The environment variable that sets an option here; empty where none does."""
    named = option.envvar if isinstance(option, TyperOption) else None
    return named if isinstance(named, str) and os.environ.get(named) else ""


def _default(option: object) -> str:
    """A command's own default, in words."""
    if not isinstance(option, TyperOption):
        return ""
    if isinstance(option.show_default, str):
        return option.show_default
    return value_text(option.default) if isinstance(option.default, bool | str) else ""


def config_view(answer: ConfigReport) -> Sheet:
    """A table for each command, with where each value comes from."""
    from aotc.report.sheet import Heading, Lines, Table

    parts: Sheet = [
        Heading(
            "aotc config",
            answer.file or "no aotc.yaml in the working directory, and AOTC_CONFIG is not set",
        )
    ]
    for command in dict.fromkeys(value.command for value in answer.values):
        rows = [
            (value.option, value.value or "-", value.place or "default")
            for value in answer.values
            if value.command == command
        ]
        parts.append(Table(command, ("", "from"), rows))
    parts.append(Lines(["Options of a call go before all of these."]))
    return parts
