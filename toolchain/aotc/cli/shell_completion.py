"""What may stand where the cursor is: commands, options, and values that are known.

Where nothing is known, the answer is empty, and the shell completes paths. A shell asks through
`_AOTC_COMPLETE` with the words up to the cursor, and reads one candidate from each line; the
scripts are those of `aotc completion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from aotc.cli.grammar import Command, Group, is_option, options_by_name, positionals

if TYPE_CHECKING:
    from aotc.cli.grammar import Parameter


Candidate = tuple[str, str]

_HELP: Final = ("--help", "show this help")


def answer(group: Group, words: Sequence[str], shell: str) -> str:
    """Lines for a shell: a value, and for zsh and fish what it is."""
    found = candidates(group, _joined(words) if shell == "bash" else words)
    return "".join(f"{_line(value, text, shell)}\n" for value, text in found)


def _line(value: str, text: str, shell: str) -> str:
    if shell == "bash":
        # It replaces what stands after the last `=`.
        return value.rpartition("=")[2]
    if shell == "zsh":
        # `_describe` divides at the first colon that is not escaped.
        value = value.replace(":", r"\:")
    return f"{value}{':' if shell == 'zsh' else chr(9)}{text}" if text else value


def _joined(words: Sequence[str]) -> list[str]:
    """Words as they were typed: bash takes `--option=value` for three."""
    found: list[str] = []
    for word in words:
        if found and (word == "=" or found[-1].endswith("=")) and found[-1].startswith("--"):
            found[-1] += word
        else:
            found.append(word)
    return found


def candidates(group: Group, words: Sequence[str]) -> list[Candidate]:
    """What the last of `words` may become, with what each is."""
    before, current = list(words[:-1]), words[-1] if words else ""
    context = typer.Context(group)
    command: Command | Group = group
    while isinstance(command, Group) and before:
        name = before.pop(0)
        # `aotc help COMMAND` is completed as `aotc COMMAND`.
        if name.startswith("-") or (name == "help" and command is group):
            continue
        found = command.get_command(context, name)
        if not isinstance(found, Command | Group):
            return []
        command = found
    if isinstance(command, Group):
        rows = list(command.summaries(context).items())
        if current.startswith("-"):
            rows = _options(command.params, ())
        return [row for row in rows if row[0].startswith(current)]
    return _in_command(command.params, context, before, current)


def _in_command(
    parameters: Sequence[Parameter], context: typer.Context, before: Sequence[str], current: str
) -> list[Candidate]:
    options = options_by_name(parameters)
    taking: Parameter | None = None
    given: list[str] = []
    arguments = 0
    for word in before:
        if taking is not None:
            taking = None
        elif is_option(word, options):
            given.append(word.partition("=")[0])
            option = options.get(word)
            taking = option if option is not None and not option.is_flag else None
        else:
            arguments += 1
    if taking is not None:
        return _values(taking, context, current)
    name, equals, value = current.partition("=")
    if equals and name in options:
        return [(f"{name}={word}", text) for word, text in _values(options[name], context, value)]
    if current.startswith("-"):
        offered = _options(parameters, given)
        return [row for row in offered if row[0].startswith(current)]
    places = positionals(parameters)
    if places and places[-1].nargs == -1:
        arguments = min(arguments, len(places) - 1)
    return _values(places[arguments], context, current) if arguments < len(places) else []


def _options(parameters: Sequence[Parameter], given: Sequence[str]) -> list[Candidate]:
    """Options that may still be given, in their long spelling."""
    spelled = dict.fromkeys(options_by_name(parameters).values())
    names = (
        (max(spellings, key=len), str(option.help))
        for option in spelled
        if not option.hidden
        and (option.multiple or not {*option.opts, *option.secondary_opts} & set(given))
        for spellings in (option.opts, option.secondary_opts)
        if spellings
    )
    return [*names, _HELP]


def _values(parameter: Parameter, context: typer.Context, current: str) -> list[Candidate]:
    found = parameter.shell_complete(context, current)
    return [(str(item.value), item.help or "") for item in found]
