"""What `aotc config` shows: a table for each command, with where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.render import heading, listing, section
from aotc.contract.results.command_reports import ConfigReport

if TYPE_CHECKING:
    from rich.console import RenderableType


def config_view(answer: ConfigReport) -> list[RenderableType]:
    """Values by command."""
    parts = [heading("aotc config", answer.file or "no aotc.yaml here, and no AOTC_CONFIG")]
    for command in dict.fromkeys(value.command for value in answer.values):
        rows = [
            (value.option, value.value or "-", value.place or "default")
            for value in answer.values
            if value.command == command
        ]
        parts.append(section(command, ("", "from"), rows))
    parts.append(listing(["Options of a call go before all of these."]))
    return parts
