"""`aotc target`: the built-in targets, and this host as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond_list, respond_yaml
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Force, Json, target_names

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
    respond_list("target", items, json=json)
    return EXIT_YES


@app.command(cls=Command)
@examples("aotc target show linux-x86-64", "aotc target show host --json")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="host (this machine), a built-in target, or a file",
            autocompletion=target_names,
        ),
    ],
    json: Json = False,
) -> int:
    """Show a target as YAML."""
    from aotc.spec.profile_files import load_target

    respond_yaml(_host() if name == "host" else load_target(name), json=json)
    return EXIT_YES


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
    from aotc.base.files.writing import write_text
    from aotc.cli.output import refuse_existing
    from aotc.spec.yaml import yaml_text

    to_file = str(file) != "-"
    if to_file:
        refuse_existing([file], force)
    target = _host()
    if to_file:
        write_text(file, yaml_text(target))
    if json or not to_file:
        respond_yaml(target, json=json)
    return EXIT_YES


def _host() -> Target:
    from aotc.host.probe import probe as probe_host

    return probe_host()
