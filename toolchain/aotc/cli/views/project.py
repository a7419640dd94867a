"""What `aotc config` and `aotc init` show."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aotc.cli.terminal import heading, listing, section, sections
from aotc.spec.command_reports import ConfigReport, InitReport

if TYPE_CHECKING:
    from rich.console import RenderableType


def config_view(answer: ConfigReport) -> list[RenderableType]:
    """A table for each command, with where each value comes from."""
    parts = [
        heading(
            "aotc config",
            answer.file or "no aotc.yaml in the working directory, and AOTC_CONFIG is not set",
        )
    ]
    for command in dict.fromkeys(value.command for value in answer.values):
        rows = [
            (value.option, value.value or "-", value.place or "default")
            for value in answer.values
            if value.command == command
        ]
        parts.append(section(command, ("", "from"), rows))
    parts.append(listing(["Options of a call go before all of these."]))
    return parts


def init_view(report: InitReport) -> list[RenderableType]:
    """The files, the dims that the model leaves free, and the next two commands."""
    parts: list[RenderableType] = [
        section("files", ("",), [(file.action, file.path) for file in report.files])
    ]
    dims = [(name, ", ".join(positions)) for name, positions in report.dims.items()]
    parts += sections("free dims", ("",), dims)
    for path, text in report.to_add.items():
        parts.append(listing([f"add to {path}", *(f"  {line}" for line in text.splitlines())]))
    model, profile = shlex.quote(report.model), shlex.quote(report.profile)
    steps = (f"aotc profile check {profile}", f"aotc build {model} --profile {profile}")
    lines = ["next", *(f"  {step}" for step in steps)]
    if report.ci != "none":
        lines.append(
            "  and set AOTC_PACKAGE in the CI's variables: a wheel of aotc, by path or URL"
        )
    parts.append(listing(lines))
    return parts
