"""`aotc config`: the defaults of commands, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from aotc.cli.commands.base import respond
from aotc.cli.grammar.command import Command, Group, examples, new_app
from aotc.cli.grammar.options import Json
from aotc.errors import EXIT_YES

if TYPE_CHECKING:
    from typer._click.core import Parameter

app = new_app()


@app.command(cls=Command)
@examples("aotc config", "aotc config --json")
def config(context: typer.Context, json: Json = False) -> int:
    """Show the defaults that aotc.yaml sets, and where each comes from.

    The file is aotc.yaml in the working directory, or the one that AOTC_CONFIG names. It sets
    defaults of build, check-models and bench; no other command reads it.
    """
    from aotc.cli.configured_values import config_report
    from aotc.cli.views.config_view import config_view

    def parameters_of(command: str) -> list[Parameter]:
        group = context.find_root().command
        assert isinstance(group, Group)
        found = group.get_command(context, command)
        assert found is not None
        return found.params

    respond(config_report(parameters_of), config_view, json=json)
    return EXIT_YES
