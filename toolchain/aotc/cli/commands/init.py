"""`aotc init`: the first files of a project."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, TrustSource

if TYPE_CHECKING:
    from aotc.report.sheet import Sheet
    from aotc.spec.command_reports import InitReport

app = new_app()


@app.command(cls=Command)
@examples("aotc init model.onnx", "aotc init model.onnx --ci gitlab --force")
def init(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            parser=Path,
            help="model in this folder; asked for if left out on a terminal",
        ),
    ] = None,
    *,
    ci: Annotated[
        Literal["github", "gitlab", "none"],
        typer.Option(
            "--ci", metavar="SYSTEM", help="system to write a CI job for: github, gitlab or none"
        ),
    ] = "github",
    force: Annotated[
        bool, typer.Option("--force", help="replace what aotc wrote for the CI")
    ] = False,
    trust_source: TrustSource = False,
    json: Json = False,
) -> int:
    """Write a profile, CI jobs and a .gitignore for a model.

    The profile states the model's inputs, and lists its free dims to bound. The files are written
    into the working directory, those of the CI at the top of its git repository; one that exists is
    kept, and a .gitignore only gets further lines. With --force, what aotc wrote for the CI is
    brought up to date.
    """
    from aotc.cli.output import needs

    with needs("init", "cpu"):
        from aotc.tools.inspect import inspect_model
    from aotc.cli.output import chosen_model
    from aotc.tools.init import start_project

    path = chosen_model(Path()) if model is None else model
    report = inspect_model(path, trust_source=trust_source)
    answer = start_project(path, report.inputs, folder=Path(), ci=ci, force=force)
    respond(answer, init_view, json=json)
    return EXIT_YES


def init_view(report: InitReport) -> Sheet:
    """The files, the dims that the model leaves free, and the next two commands."""
    from aotc.report.sheet import Lines, Table

    parts: Sheet = [
        Table("files", ("",), [(file.action, file.path) for file in report.files]),
        Table("free dims", ("",), [(name, ", ".join(at)) for name, at in report.dims.items()]),
    ]
    if report.repository:
        where = f"The CI reads its files at the top of the git repository: {report.repository}"
        parts.append(Lines([where]))
    for path, text in report.to_add.items():
        parts.append(Lines([f"add to {path}", *(f"  {line}" for line in text.splitlines())]))
    if report.of_others:
        said = "kept, and not about this model, which they do not build"
        fix = "add it to them, or rename them and repeat 'aotc init'"
        parts.append(Lines([said, *(f"  {line}" for line in (*report.of_others, fix))]))
    model, profile = shlex.quote(report.model), shlex.quote(report.profile)
    steps = (f"aotc profile check {profile}", f"aotc build {model} --profile {profile}")
    lines = ["next", *(f"  {step}" for step in steps)]
    if report.ci != "none":
        lines.append(
            "  and set AOTC_PACKAGE in the CI's variables: a wheel of aotc, by path or URL"
        )
    parts.append(Lines(lines))
    return parts
