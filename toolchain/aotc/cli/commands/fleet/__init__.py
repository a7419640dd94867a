"""`aotc fleet`: many models for many targets, one command a file and one row here."""

from __future__ import annotations

from typing import Final

from aotc.cli.commands.fleet.build_fleet import build
from aotc.cli.commands.fleet.emit_fleet import emit
from aotc.cli.commands.fleet.merge_fleet_reports import merge_reports
from aotc.cli.commands.fleet.verify_fleet import verify
from aotc.cli.grammar import Command, new_app

_COMMANDS: Final = (build, merge_reports, verify, emit)

app = new_app("Build many models for many targets.")


@app.callback()
def _group() -> None:
    """A group, however few commands it has."""


for _function in _COMMANDS:
    app.command(cls=Command)(_function)
