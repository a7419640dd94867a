"""Every command of the command line, including those of groups, as typed."""

from __future__ import annotations

from aotc.cli.commands import COMMANDS
from aotc.cli.grammar.command import Command, Group, built


def every_command() -> dict[str, Command]:
    """Commands by what is typed, such as `trust add`."""
    found: dict[str, Command] = {}
    for name in COMMANDS:
        command = built(COMMANDS.load(name))
        below = command.commands if isinstance(command, Group) else {"": command}
        for word, item in below.items():
            assert isinstance(item, Command)
            found[f"{name} {word}".strip()] = item
    return found
