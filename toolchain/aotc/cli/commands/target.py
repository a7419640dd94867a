"""`aotc target`: the built-in targets, and this host as one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli import options as suggestions
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Force, Json

if TYPE_CHECKING:
    from aotc.spec.target import Target


app = new_app("List and show targets; describe this host.")


@app.command("list", cls=Command)
@examples("aotc target list", "aotc target list --json")
def list_targets(json: Json = False) -> int:
    """List the built-in targets."""
    from aotc.spec.profile_files import builtin_targets, load_target

    items = {"host": "this machine, probed"}
    items |= {name: load_target(name).description for name in builtin_targets()}
    if json:
        from aotc.cli.output import write_document
        from aotc.spec.command_reports import ListReport

        write_document(ListReport(kind="target", items=items))
    else:
        from aotc.cli.terminal import write_lines

        width = max(len(name) for name in items)
        write_lines(f"{name:<{width}}  {text}" for name, text in items.items())
    return EXIT_YES


@app.command(cls=Command)
@examples("aotc target show linux-x86-64", "aotc target show host --json")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="host (this machine), a built-in target, or a file",
            autocompletion=suggestions.targets,
        ),
    ],
    json: Json = False,
) -> int:
    """Show a target as YAML."""
    from aotc.spec.profile_files import load_target

    return _write(_host() if name == "host" else load_target(name), json)


@app.command(cls=Command)
@examples("aotc target probe", "aotc target probe edge-box.yaml")
def probe(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", parser=Path, help="file to write; - is standard output"),
    ] = Path("-"),
    force: Force = False,
    json: Json = False,
) -> int:
    """Describe this host as YAML.

    Saved to a file, it is a target for --target. With --json it is printed as JSON, whether or not
    a file is written.
    """
    if str(file) == "-":
        return _write(_host(), json)
    from aotc.cli.output import refuse_existing, write_text
    from aotc.spec.yaml import yaml_text

    refuse_existing([file], force)
    target = _host()
    write_text(file, yaml_text(target))
    return _write(target, json) if json else EXIT_YES


def _host() -> Target:
    from aotc.host.probe import probe as probe_host

    return probe_host()


def _write(target: Target, json: bool) -> int:
    if json:
        from aotc.cli.output import write_document

        write_document(target)
    else:
        from aotc.spec.yaml import yaml_text

        sys.stdout.write(yaml_text(target))
    return EXIT_YES
