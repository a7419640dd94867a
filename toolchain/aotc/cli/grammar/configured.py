"""Defaults of a command's options that a configuration file sets.

They stand between the command's own defaults and the environment; a word of the call goes before
all of them.  What they set in a call is told on standard error: whoever may write into a folder
could otherwise choose unseen what a command there builds, and with whose key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter

    from aotc.cli.configuration import Setting

CONFIGURED: Final = frozenset({"aotc build", "aotc check-models", "aotc bench"})
# Words of a call that say otherwise what an option would say.
_INSTEAD: Final = {"key": ("--keyless", "--trust")}
_SOURCE: Final = "DEFAULT_MAP"


def set_defaults(ctx: Context, words: Iterable[str], parameters: Iterable[Parameter]) -> None:
    """Set what the configuration sets for the command; raises AOTC-I052 and I046."""
    if ctx.command_path not in CONFIGURED:
        return
    from aotc.cli.configuration import read_settings
    from aotc.records import replace
    from aotc.reporting.report_forms import is_standard_output

    settings = read_settings().get(ctx.command_path.partition(" ")[2], {})
    given = {word.partition("=")[0] for word in words}
    ctx.default_map = {}
    taken = ctx.meta[_SOURCE] = {}
    for name, setting in settings.items():
        option = option_named(name, parameters)
        if option is None or option.name is None or given.intersection(_INSTEAD.get(name, ())):
            continue
        value = _several(setting.value) if option.multiple else setting.value
        if name == "report" and "--json" in given:
            # Standard output is for the answer that the call asks for.
            value = tuple(each for each in value if not is_standard_output(str(each)))
            if not value:
                continue
            setting = replace(setting, value=value)
        ctx.default_map[option.name] = value
        taken[name] = (option.name, setting)


def tell_defaults(ctx: Context) -> None:
    """Tell which values the call took from the configuration."""
    found: dict[str, tuple[str, Setting]] = ctx.meta.get(_SOURCE, {})
    taken = {name: each for name, (option, each) in found.items() if _is_taken(ctx, option)}
    if not taken:
        return
    from aotc.cli import streams
    from aotc.cli.render import write_lines

    (file,) = {setting.place.file for setting in taken.values()}
    values = ", ".join(f"{name} {value_text(each.value)}" for name, each in taken.items())
    with streams.may_be_lost(sys.stderr):
        write_lines([f"{file} sets {values}"], file=sys.stderr)


def option_named(name: str, parameters: Iterable[Parameter]) -> Parameter | None:
    """The option `--name` of a command; None where it has none."""
    return next((each for each in parameters if f"--{name}" in each.opts), None)


def value_text(value: object) -> str:
    """A value in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _is_taken(ctx: Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is not None and source.name == _SOURCE


def _several(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
