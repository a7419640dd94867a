"""Commands, one a file and one row here, and `aotc` itself, the group of them all.

A command is imported when it is called; its row's help is shown without importing it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aotc.base.errors import EXIT_YES
from aotc.base.registry import Registry
from aotc.cli.given import before_operands
from aotc.cli.grammar import EVERY, Command, Group, built, new_app
from aotc.spec.versions import VERSION

if TYPE_CHECKING:
    from aotc.cli.grammar import Context

_ROWS: Final = (
    ("init", "init", "Write a profile, CI jobs and a .gitignore for a model."),
    ("build", "build", "Build a signed artifact from an ONNX model, and prove it."),
    ("verify", "verify", "Check an artifact's signature, digests and fit to a host."),
    ("inspect", "inspect", "Show what an artifact or a model contains, unverified."),
    ("diff", "diff", "Show what changed from one artifact or model to another."),
    ("run", "run", "Load an artifact and run it on files, or on its fixtures."),
    ("bench", "bench", "Measure an artifact, alone or against the plain model or a baseline."),
    ("debug", "debug", "Find where an artifact differs from the model that it was built from."),
    (
        "check-models",
        "check_models",
        "Build every model of a folder, and report each outcome.",
    ),
    ("fleet", "fleet", "Build many models for many targets."),
    ("profile", "profile", "List, show, check and learn build profiles."),
    ("target", "target", "List and show targets; describe this host."),
    ("cache", "cache", "List, prune and clear the build cache."),
    ("install", "install", "Verify an artifact into a store, for later loads."),
    ("pull", "pull", "Fetch an artifact from a registry, verified while it comes."),
    ("store", "store", "List, prune and remove what is in a store."),
    ("pack", "pack", "Pack an artifact into one file."),
    ("unpack", "unpack", "Unpack an artifact into a folder."),
    ("push", "push", "Push an artifact into an OCI registry."),
    ("reproduce", "reproduce", "Build an artifact again from what it records, and compare."),
    ("merge", "merge", "Merge artifacts of one model, built on different hosts, into one."),
    ("export", "export", "Write a variant for software that opens it without aotc."),
    ("sign", "sign", "Add a further signature to an artifact."),
    ("attest", "attest", "Approve an artifact for a channel, or qualify it on this host."),
    ("trust", "trust", "Make, sign, check and explain trust policies."),
    ("keygen", "keygen", "Make a signing key."),
    ("explain", "explain", "Explain reason codes."),
    ("config", "config", "Show the defaults that aotc.yaml sets, and where each comes from."),
    ("completion", "completion", "Print the script that completes aotc in a shell."),
    ("doctor", "doctor", "Check this installation and this host."),
)

COMMANDS: Final = Registry(
    "command", tuple((name, f"aotc.cli.commands.{module}:app") for name, module, _ in _ROWS)
)
HELP: Final = {name: text for name, _, text in _ROWS}
HELP_WORD: Final = "help"
# Whether the group's own answer is to be a document; in its context.
_AS_JSON: Final = "aotc.json"


class _Root(Group):
    """Every command by name."""

    def summaries(self, ctx: Context) -> dict[str, str]:
        """Every command with what it is for, without importing one."""
        return {**HELP, HELP_WORD: "Show the help of a command, as --help after it does."}

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the first words; `help COMMAND` is `COMMAND --help`."""
        if args[:1] == [HELP_WORD]:
            args = [*(word for word in args[1:] if word not in (HELP_WORD, "--")), "--help"]
        ctx.meta[EVERY] = every_command
        ctx.meta[_AS_JSON] = "--json" in before_operands(args[1:])
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | Group | None:
        """The command of that name; None where there is none."""
        return built(COMMANDS.load(cmd_name)) if cmd_name in COMMANDS else None


_app = new_app("Build, verify and run signed artifacts of ONNX models.", _Root)


def _show_version(ctx: typer.Context, asked: bool) -> None:
    if not asked:
        return
    if ctx.meta[_AS_JSON]:
        from aotc.cli.output import version_report, write_document

        write_document(version_report())
    else:
        sys.stdout.write(f"aotc {VERSION}\n")
    raise typer.Exit(EXIT_YES)


@_app.callback()
def _aotc(
    version: Annotated[
        bool,
        typer.Option(
            "-V",
            "--version",
            is_eager=True,
            callback=_show_version,
            help="print the version; with --json that of the toolchain, too",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="print tracebacks of errors, wherever it stands")
    ] = False,
) -> None:
    """Options that stand before a command."""


def all_commands() -> Group:
    """The group of all commands."""
    found = built(_app)
    assert isinstance(found, Group)
    return found


def every_command() -> dict[str, Command]:
    """Every command by the words that call it, such as `trust add`; imports all of them."""
    found: dict[str, Command] = {}
    for name in COMMANDS:
        command = built(COMMANDS.load(name))
        below = command.commands if isinstance(command, Group) else {"": command}
        for word, leaf in below.items():
            assert isinstance(leaf, Command)
            found[f"{name} {word}".strip()] = leaf
    return found
