"""What `aotc init` shows: every file, the free dims, and what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aotc.cli.render import listing, section
from aotc.contract.results.init_report import InitReport

if TYPE_CHECKING:
    from rich.console import RenderableType


def init_view(report: InitReport) -> list[RenderableType]:
    """The files, the dims that the model leaves free, and the next two commands."""
    parts: list[RenderableType] = [
        section("files", ("",), [(file.action, file.path) for file in report.files])
    ]
    if report.dims:
        rows = [(name, ", ".join(positions)) for name, positions in report.dims.items()]
        parts.append(section("free dims", ("",), rows))
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
