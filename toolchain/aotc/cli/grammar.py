"""Commands and groups of commands: typer's, with the reading, help and refusals of this project.

A command is a function whose parameters are annotated with typer's options and arguments. The first
line of its docstring says what it is for, wherever commands are listed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from aotc.base.codes import REASONS
from aotc.base.errors import EXIT_USAGE, EXIT_YES, AotcError
from aotc.base.records import record, replace
from aotc.cli.given import before_operands, refuse_other_bytes
from aotc.cli.terminal import listing, may_be_lost, prose, section, show, write_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

    # typer holds click within; these two types have no public name, and are named here alone.
    from typer._click.core import Context as Context
    from typer._click.core import Parameter as Parameter

    from aotc.cli.configuration import Setting
    from aotc.cli.output import CallLog


Every = Callable[[], Mapping[str, "Command"]]
Function = TypeVar("Function", bound=Callable[..., int])

# Attributes of a function that say more of its command than its parameters do.
_EXAMPLES: Final = "command_examples"
_EXCLUSIVE: Final = "command_exclusive"
_CHOICE: Final = "command_choice"
_BARE: Final = "command_bare"
_ALIASES: Final = "command_aliases"
# The words of a call, in its context, and what tells every command there is, if it is asked.
_WORDS: Final = "aotc.words"
EVERY: Final = "aotc.every"


def _none() -> Mapping[str, Command]:
    return {}


def examples(*calls: str) -> Callable[[Function], Function]:
    """Calls that the command's help ends with, as they would be typed in a shell."""
    return _with_attribute(_EXAMPLES, lambda _: calls)


def exclusive(*options: str) -> Callable[[Function], Function]:
    """Options of which at most one may be given; a command may have several such groups."""
    return _with_attribute(_EXCLUSIVE, lambda known: (options, *(known or ())))


def choice(*options: str) -> Callable[[Function], Function]:
    """Options of which exactly one must be given."""
    return _with_attribute(_CHOICE, lambda _: options)


def bare(option: str, value: str) -> Callable[[Function], Function]:
    """The value of an option that is given without one, as its last word or before an option."""
    return _with_attribute(_BARE, lambda known: {**(known or {}), option: value})


def formerly(**options: str) -> Callable[[Function], Function]:
    """Names that options had, without dashes, with those of today; they work, and are not shown."""
    named = {f"--{old.replace('_', '-')}": f"--{new}" for old, new in options.items()}
    return _with_attribute(_ALIASES, lambda known: {**(known or {}), **named})


def _with_attribute(name: str, value: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """A decorator that sets an attribute of a function to `value` of what it was (None: unset)."""

    def decorate(function: Function) -> Function:
        setattr(function, name, value(getattr(function, name, None)))
        return function

    return decorate


class Command(TyperCommand):
    """A command; what is wrong with its words is an AOTC-I027."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params += options()

    def invoke(self, ctx: Context) -> Any:
        """Call the function, with what it says on standard error as the call asks for it."""
        with taken(ctx.params, ctx.command_path, ctx.meta[_WORDS]) as outcome:
            try:
                outcome.status = super().invoke(ctx)
            except AotcError as error:
                raise with_usage(error, ctx.command_path, self.params) from None
            return outcome.status

    @property
    def examples(self) -> tuple[str, ...]:
        """The calls that its help ends with."""
        found: tuple[str, ...] = getattr(self.callback, _EXAMPLES, ())
        return found

    def get_help_option(self, ctx: Context) -> None:
        """None: `parse_args` reads it, wherever it stands."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words; raises AOTC-I027, or `typer.Exit` after help was shown."""
        prog = ctx.command_path
        ctx.meta[_WORDS] = tuple(args)
        if any(word in HELP for word in before_operands(args)):
            show_command(prog, self.help or "", self.params, self.examples)
            raise typer.Exit(EXIT_YES)
        try:
            return self._parsed(ctx, args)
        except AotcError as error:
            raise with_usage(error, prog, self.params) from None

    def _parsed(self, ctx: Context, args: list[str]) -> list[str]:
        prog = ctx.command_path
        aliases = getattr(self.callback, _ALIASES, NO_DEFAULTS)
        stated = read(
            [_of_today(word, aliases) for word in before_operands(args)]
            + list(args[len(before_operands(args)) :]),
            self.params,
            prog,
            exclusive=(*getattr(self.callback, _EXCLUSIVE, ()), QUIET_OR_VERBOSE),
            choice=getattr(self.callback, _CHOICE, ()),
            bare=getattr(self.callback, _BARE, NO_DEFAULTS),
            every=ctx.meta.get(EVERY, _none),
        )
        labels = list(map(label, positionals(self.params)))
        refuse_other_bytes(stated, [*labels, *labels[-1:] * len(args)], os.environ, prog)
        set_defaults(ctx, stated, self.params)
        try:
            left = super().parse_args(ctx, stated)
        except typer.BadParameter as error:
            from aotc.cli.suggestions import value_meant

            name = label(error.param) if error.param is not None else ""
            said = value_meant(error.message, options_by_name(self.params))
            refuse(f"argument {name}: {said}", prog)
        show_defaults(ctx)
        return left


class Group(TyperGroup):
    """Commands below a word; without one, its help is shown."""

    def get_help_option(self, ctx: Context) -> None:
        """None: `parse_args` reads it."""

    def summaries(self, ctx: Context) -> dict[str, str]:
        """Every command by name, with what it is for."""
        return {
            name: (command.help or "").partition("\n")[0] for name, command in self.commands.items()
        }

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the first word; raises AOTC-I027, or `typer.Exit` after help was shown."""
        rows = self.summaries(ctx)
        options = options_by_name(self.params)
        if not args or args[0] in HELP:
            show_group(ctx.command_path, self.help or "", rows, self.params)
            raise typer.Exit(EXIT_YES if args else EXIT_USAGE)
        if args[0] not in rows and args[0] not in options:
            every = ctx.meta.get(EVERY, _none)
            _refuse_word(args[0], rows, self.params, ctx.command_path, every)
        # An option of the group ends the call: what follows it is not read.
        return super().parse_args(ctx, args[:1] if args[0] in options else args)


def new_app(about: str | None = None, cls: type[Group] = Group) -> typer.Typer:
    """A typer application for one command, or, with what it is `about`, for a group of them."""
    return typer.Typer(cls=cls, help=about, add_completion=False, rich_markup_mode=None)


def built(app: typer.Typer) -> Command | Group:
    """The command, or the group of commands, that an application declares."""
    found = get_command(app)
    assert isinstance(found, Command | Group)
    return found


# Defaults of a command's options that a configuration file sets.
#
# They stand between the command's own defaults and the environment; a word of the call goes before
# all of them. What they set in a call is told on standard error: whoever may write into a folder
# could otherwise choose unseen what a command there builds, and with whose key.


CONFIGURED: Final = frozenset({"aotc build", "aotc check-models", "aotc bench"})
# Words of a call that say otherwise what an option would say.
_INSTEAD: Final = {"key": ("--keyless", "--trust")}
_SOURCE: Final = "DEFAULT_MAP"


def set_defaults(ctx: Context, words: Sequence[str], parameters: Iterable[Parameter]) -> None:
    """Set what the configuration sets for the command; raises AOTC-I052 and I046."""
    if ctx.command_path not in CONFIGURED:
        return
    from aotc.cli.configuration import read_settings
    from aotc.report.report_forms import is_standard_output

    settings = read_settings().get(ctx.command_path.partition(" ")[2], {})
    given = {word.partition("=")[0] for word in before_operands(words)}
    ctx.default_map = {}
    taken = ctx.meta[_SOURCE] = {}
    for name, setting in settings.items():
        option = option_named(name, parameters)
        if option is None or option.name is None or given.intersection(_INSTEAD.get(name, ())):
            continue
        value = setting.value
        if option.multiple and not isinstance(value, tuple):
            value = (value,)
        if name == "report" and "--json" in given:
            # Standard output is for the answer that the call asks for.
            value = tuple(each for each in value if not is_standard_output(str(each)))
            if not value:
                continue
            setting = replace(setting, value=value)
        ctx.default_map[option.name] = value
        taken[name] = (option.name, setting)


def show_defaults(ctx: Context) -> None:
    """Tell which values the call took from the configuration."""
    found: dict[str, tuple[str, Setting]] = ctx.meta.get(_SOURCE, {})
    taken = {name: each for name, (option, each) in found.items() if _is_taken(ctx, option)}
    if not taken:
        return
    (file,) = {setting.place.file for setting in taken.values()}
    values = ", ".join(f"{name} {value_text(each.value)}" for name, each in taken.items())
    with may_be_lost(sys.stderr):
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


# `-q`, `-v` and `--log-file`, which every command takes, and what they say of the call under way.
#
# They stand here once: `Command` adds them to the parameters of each command, and takes them out
# again before its function is called.


QUIET_OR_VERBOSE: Final = ("--quiet", "--verbose")
_PANEL: Final = "messages"


@record
class Verbosity:
    """How much a call tells on standard error, and the log that has all of it."""

    quiet: bool = False
    verbose: bool = False
    log: CallLog | None = None


class Outcome:
    """The exit status of a call, once it has one."""

    status: int | None = None


_current = Verbosity()


def current() -> Verbosity:
    """What the call under way asked for."""
    return _current


def options() -> list[TyperOption]:
    """The options, new for each command."""
    return [
        TyperOption(
            param_decls=["-q", "--quiet"],
            is_flag=True,
            default=False,
            help="show errors and the one answer, such as the artifact's id; no progress",
            rich_help_panel=_PANEL,
        ),
        TyperOption(
            param_decls=["-v", "--verbose"],
            is_flag=True,
            default=False,
            help="show every step on standard error, also with --json",
            rich_help_panel=_PANEL,
        ),
        TyperOption(
            param_decls=["--log-file"],
            metavar="FILE",
            help="file to append every step and error to, with the time",
            rich_help_panel=_PANEL,
        ),
    ]


@contextmanager
def taken(
    parameters: MutableMapping[str, Any], called: str, words: Sequence[str]
) -> Iterator[Outcome]:
    """Take the options out of `parameters`, and have them hold for the call of `called`.

    `words` are those of the call, which the log begins with; it ends with the outcome.

    Raises AOTC-I018, I026 and I055 where the log cannot be written.
    """
    global _current
    quiet, verbose = bool(parameters.pop("quiet", False)), bool(parameters.pop("verbose", False))
    path = parameters.pop("log_file", None)
    log = None
    if path is not None:
        from aotc.cli.output import CallLog

        log = CallLog(Path(path))
    before, _current = _current, Verbosity(quiet=quiet, verbose=verbose, log=log)
    outcome = Outcome()
    try:
        with _timed(called, verbose), _logged(log, called, words, outcome):
            yield outcome
    finally:
        _current = before


@contextmanager
def _timed(called: str, verbose: bool) -> Iterator[None]:
    started = time.monotonic()
    yield
    if verbose:
        with may_be_lost(sys.stderr):
            write_lines((f"{called}  {time.monotonic() - started:.1f} s",), file=sys.stderr)


@contextmanager
def _logged(
    log: CallLog | None, called: str, words: Sequence[str], outcome: Outcome
) -> Iterator[None]:
    if log is None:
        yield
        return
    import shlex

    from aotc.cli.output import error_lines
    from aotc.spec.versions import VERSION

    started = time.monotonic()
    log.write(f"aotc {VERSION}: {shlex.join([*called.split(), *words])}")
    ended = ""
    try:
        yield
    except AotcError as error:
        ended = f"exit status {error.exit_status}"
        for line in error_lines(error):
            log.write(line)
        raise
    except BaseException as error:
        ended = f"ended by {type(error).__name__}"
        raise
    finally:
        ended = ended or f"exit status {outcome.status}"
        log.write(f"{ended}  {time.monotonic() - started:.1f} s")
        log.close()


# The words of a call, checked and put into the one form that typer's parser cannot misread.
#
# By itself that parser takes whatever follows an option as its value, another option too, reads
# `-o=FILE` as a file called `=FILE`, and stops at the first mistake with a text of its own.


HELP = ("-h", "--help")
# Begins the usage line, on a page of help and in a refusal.
USAGE: Final = "usage: "
NO_DEFAULTS: Final[Mapping[str, str]] = {}
_NEGATIVE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")


def refuse(what: str, prog: str) -> NoReturn:
    """Raise AOTC-I027 for a call of the command `prog`, such as `aotc build`."""
    raise AotcError("AOTC-I027", what, where=prog, fix=_see(prog))


def _see(prog: str) -> str:
    return f"See '{prog} --help'."


def usage(prog: str, parameters: Sequence[Parameter]) -> str:
    """The usage line of a command: `aotc build [OPTIONS] MODEL`."""
    options = dict.fromkeys(options_by_name(parameters).values())
    needed = [_spelling(option, option.opts[0]) for option in options if option.required]
    words = [
        label(argument) if argument.required else f"[{label(argument)}]"
        for argument in positionals(parameters)
    ]
    return " ".join((prog, "[OPTIONS]", *needed, *words))


def with_usage(error: AotcError, prog: str, parameters: Sequence[Parameter]) -> AotcError:
    """The error of a call, with the usage line of its command where its words are wrong."""
    if error.code != "AOTC-I027":
        return error
    if not error.expected:
        error.expected = f"{USAGE}{usage(prog, parameters)}"
    if error.fix == REASONS[error.code].fix:
        error.fix = _see(prog)
    return error


def _of_today(word: str, aliases: Mapping[str, str]) -> str:
    name, equals, value = word.partition("=")
    return f"{aliases[name]}{equals}{value}" if name in aliases else word


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
    every: Every = _none,
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
    most = len(arguments) if any(each.nargs == -1 for each in taken) else len(taken)
    if further := [*unknown, *arguments[most:]]:
        hint = _option_hint(further[0], options, prog, every, list(map(label, taken)))
        refuse(f"there is no argument {further[0]!r}{hint}", prog)
    stated = [*given, *taken[: len(arguments)]]
    missing = [label(each) for each in parameters if each.required and each not in stated]
    if missing:
        refuse(f"the following arguments are required: {', '.join(missing)}", prog)
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
    # `-oFILE`, but `-output` and `-out` are slips of the hand.
    if word[:2] in options and not word.startswith("--"):
        begun = len(name) > 3 and any(option.startswith(f"-{name}") for option in options)
        return (None, None) if begun or f"-{name}" in options else (word[:2], word[2:])
    return None, None


def _refuse_excluded(
    option: TyperOption,
    given: Sequence[TyperOption],
    groups: Iterable[Sequence[str]],
    prog: str,
) -> None:
    for group in map(set, groups):
        others = [each for each in given if each is not option and group & set(each.opts)]
        if others and group & set(option.opts):
            refuse(f"argument {label(option)}: not allowed with argument {label(others[0])}", prog)


def _refuse_word(
    word: str, rows: Iterable[str], parameters: Sequence[Parameter], prog: str, every: Every
) -> NoReturn:
    """Refuse the first word after a group, which is neither a command nor an option of it."""
    if word.startswith("-"):
        hint = _option_hint(word, options_by_name(parameters), prog, every)
        what = f"there is no option {word!r}{hint}"
    else:
        from aotc.cli.suggestions import command_meant

        hint = command_meant(word, rows, every if prog == "aotc" else None)
        what = f"there is no command {word!r}{hint}"
    raise AotcError(
        "AOTC-I027", what, where=prog, expected=f"{USAGE}{prog} COMMAND ...", fix=_see(prog)
    )


def _option_hint(
    word: str,
    options: Mapping[str, TyperOption],
    prog: str,
    every: Every,
    operands: Sequence[str] = (),
) -> str:
    from aotc.cli.suggestions import option_meant

    spellings = {
        name: _spelling(option, max(option.opts, key=len) if name in option.opts else name)
        for name, option in options.items()
        if not option.hidden
    }
    spellings |= dict.fromkeys(HELP, HELP[-1])
    return option_meant(
        word.partition("=")[0],
        spellings,
        prog,
        lambda: {name: list(options_by_name(command.params)) for name, command in every().items()},
        operands,
    )


# The page that `--help` shows: usage, purpose, parameters with their defaults, and examples.


_HELP_ROW = (", ".join(HELP), "show this help")


def show_command(
    prog: str, about: str, parameters: Sequence[Parameter], examples: Sequence[str]
) -> None:
    """Write the page of a command, such as `aotc build`."""
    named = dict.fromkeys(options_by_name(parameters).values())
    options = [option for option in named if not option.hidden]
    parts = [listing([f"{USAGE}{usage(prog, parameters)}"]), *_paragraphs(about)]
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
    parts = [listing([f"{USAGE}{prog} COMMAND ..."]), *_paragraphs(about)]
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
