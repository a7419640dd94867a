"""Every default that a configuration may set, with where it comes from in this environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from typer.core import TyperOption

from aotc.cli.configuration import config_path, read_settings
from aotc.cli.grammar.configured import option_named, value_text
from aotc.contract.config import OPTIONS
from aotc.contract.results.command_reports import ConfigReport, ConfiguredValue

if TYPE_CHECKING:
    from typer._click.core import Parameter


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
