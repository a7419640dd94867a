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

    settings = read_settings().get(ctx.command_path.partition(" ")[2], {})
    given = {word.partition("=")[0] for word in words}
    several = {each.name for each in parameters if each.multiple}
    ctx.default_map = {
        name: _several(setting.value) if name in several else setting.value
        for name, setting in settings.items()
        if not given.intersection(_INSTEAD.get(name, ()))
    }
    ctx.meta[_SOURCE] = settings


def tell_defaults(ctx: Context) -> None:
    """Tell which values the call took from the configuration."""
    settings: dict[str, Setting] = ctx.meta.get(_SOURCE, {})
    taken = {name: each for name, each in settings.items() if _is_taken(ctx, name)}
    if not taken:
        return
    from aotc.cli import streams
    from aotc.cli.render import write_lines

    (file,) = {setting.file for setting in taken.values()}
    values = ", ".join(f"{name} {value_text(each.value)}" for name, each in taken.items())
    with streams.may_be_lost(sys.stderr):
        write_lines([f"{file} sets {values}"], file=sys.stderr)


def value_text(value: object) -> str:
    """A value in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _is_taken(ctx: Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == _SOURCE


def _several(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
