"""The words of a call, checked and put into the one form that typer's parser cannot misread.

By itself that parser takes whatever follows an option as its value, another option too, reads
`-o=FILE` as a file called `=FILE`, and stops at the first mistake with a text of its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from typer.core import TyperArgument, TyperOption

from aotc.contract.codec.spelling import nearest
from aotc.errors import AotcError

if TYPE_CHECKING:
    # The base of options and arguments has no public name.
    from typer._click.core import Parameter

HELP = ("-h", "--help")
NO_DEFAULTS: Final[Mapping[str, str]] = {}
_NEGATIVE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")


def refuse(what: str, prog: str) -> NoReturn:
    """Raise AOTC-I027 for a call of the command `prog`, such as `aotc build`."""
    raise AotcError("AOTC-I027", what, where=prog, fix=f"See '{prog} --help'.")


def options_by_name(parameters: Iterable[Parameter]) -> dict[str, TyperOption]:
    """Every spelling of every option, such as `-o` and `--output`."""
    return {
        name: parameter
        for parameter in parameters
        if isinstance(parameter, TyperOption)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def positionals(parameters: Iterable[Parameter]) -> list[TyperArgument]:
    """The parameters that are given by position, in their order."""
    return [parameter for parameter in parameters if isinstance(parameter, TyperArgument)]


def label(parameter: Parameter) -> str:
    """A parameter as a message names it: `-o/--output`, or `MODEL`."""
    if isinstance(parameter, TyperOption):
        return "/".join((*parameter.opts, *parameter.secondary_opts))
    return parameter.metavar or str(parameter.name)


def is_option(word: str, options: Mapping[str, TyperOption]) -> bool:
    """Whether a word is an option, known or not, rather than a value or an argument."""
    # `-.md` is a form of a report, on standard output.
    if len(word) < 2 or word[0] != "-" or word[1] == ".":
        return False
    attached = not word.startswith("--") and word[:2] in options
    if attached or word.partition("=")[0] in options:
        return True
    return " " not in word and not _NEGATIVE_NUMBER.match(word)


def read(
    words: Sequence[str],
    parameters: Sequence[Parameter],
    prog: str,
    exclusive: Sequence[Sequence[str]] = (),
    choice: Sequence[str] = (),
    bare: Mapping[str, str] = NO_DEFAULTS,
) -> list[str]:
    """The words in one form: `--option=value` and flags, then `--` and the arguments.

    An option in `bare` may be without a value, and has the one that is given there.
    Of the options that stand together in `exclusive` or `choice`, at most one may be given; of
    those in `choice`, one must be. Raises AOTC-I027, which names the nearest option to an unknown
    one.
    """
    options = options_by_name(parameters)
    given: list[TyperOption] = []
    found: list[str] = []
    arguments: list[str] = []
    unknown: list[str] = []
    queue = deque(words)
    while queue:
        word = queue.popleft()
        if word == "--":
            arguments += queue
            break
        if not is_option(word, options):
            arguments.append(word)
            continue
        name, value = _divided(word, options)
        if name is None:
            unknown.append(word)
            continue
        option = options[name]
        _refuse_excluded(option, given, (*exclusive, choice), prog)
        given.append(option)
        if option.is_flag:
            if value is not None:
                refuse(f"argument {label(option)}: ignored explicit argument {value!r}", prog)
            found.append(name)
            continue
        if value is None:
            if queue and not is_option(queue[0], options):
                value = queue.popleft()
            else:
                value = next((bare[each] for each in option.opts if each in bare), None)
            if value is None:
                refuse(f"argument {label(option)}: expected one argument", prog)
        found.append(f"{max(option.opts, key=len)}={value}")
    taken = positionals(parameters)
    _refuse_unknown([*unknown, *arguments[len(taken) :]], options, prog)
    missing = [
        *(argument for argument in taken[len(arguments) :] if argument.required),
        *(
            option
            for option in dict.fromkeys(options.values())
            if option.required and option not in given
        ),
    ]
    if missing:
        listed = ", ".join(label(parameter) for parameter in parameters if parameter in missing)
        refuse(f"the following arguments are required: {listed}", prog)
    if choice and not any(name in choice for option in given for name in option.opts):
        refuse(f"one of the arguments {' '.join(choice)} is required", prog)
    return [*found, "--", *arguments]


def _divided(word: str, options: Mapping[str, TyperOption]) -> tuple[str | None, str | None]:
    """The option that a word names, if there is one, and the value that stands in the same word."""
    if word in options:
        return word, None
    name, equals, value = word.partition("=")
    if name in options:
        return name, value if equals else None
    # `-oFILE`
    if word[:2] in options and not word.startswith("--"):
        return word[:2], word[2:]
    return None, None


def _refuse_excluded(
    option: TyperOption,
    given: Sequence[TyperOption],
    groups: Iterable[Sequence[str]],
    prog: str,
) -> None:
    for group in groups:
        if not set(option.opts) & set(group):
            continue
        for other in given:
            if other is not option and set(other.opts) & set(group):
                what = f"argument {label(option)}: not allowed with argument {label(other)}"
                refuse(what, prog)


def _refuse_unknown(words: Sequence[str], options: Mapping[str, TyperOption], prog: str) -> None:
    for word in words:
        close = nearest(word.partition("=")[0], (*options, *HELP)) if word[:1] == "-" else ""
        hint = f"; did you mean {close!r}?" if close else ""
        refuse(f"there is no argument {word!r}{hint}", prog)
