"""`aotc check-models`: what becomes of every model below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import (
    Force,
    Format,
    Json,
    Profile,
    Reports,
    executor_names,
    positive,
)

app = new_app()


@app.command(cls=Command)
@examples(
    "aotc check-models models --output checked.json --keep-answers answers",
    "aotc check-models models --against known.json",
)
def check_models(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", parser=Path, help="folder of *.onnx files, at any depth"),
    ],
    *,
    profile: Profile = "edge",
    pattern: Annotated[
        str,
        typer.Option(
            "--pattern", metavar="GLOB", help="models whose name matches, such as 'vision/*'"
        ),
    ] = "*",
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            parser=Path,
            help="earlier document, or folder of kept answers; exit status 1 where a model is "
            "worse than then, or the original model answers otherwise",
        ),
    ] = None,
    keep_answers: Annotated[
        Path | None,
        typer.Option(
            "--keep-answers",
            metavar="FOLDER",
            parser=Path,
            help="folder for inputs and answers of the original models: compared where it has "
            "them, else added",
        ),
    ] = None,
    renew_answers: Annotated[
        bool,
        typer.Option(
            "--renew-answers",
            help="keep the answers of these models anew, and do not compare with --keep-answers",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", parser=Path, help="file to write the JSON document to"
        ),
    ] = None,
    force: Force = False,
    fixtures: Annotated[
        bool,
        typer.Option(
            "--fixtures",
            help="prove the build with the test data in a model's folder; else answers are only "
            "compared with it",
        ),
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache", help="reuse builds from the user's cache, and add new ones to it"
        ),
    ] = False,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="NAME[://ADDRESS]",
            help="executor that builds: local (processes of this machine), or ray",
            autocompletion=executor_names,
        ),
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            parser=positive,
            help="models at the same time",
            show_default="1; with --on ray, as many as there is room for",
        ),
    ] = None,
    timeout: Annotated[
        int,
        typer.Option(
            "--timeout",
            metavar="S",
            parser=positive,
            help="seconds, by the clock, for a model's build, and for its comparison",
        ),
    ] = 1800,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Build every model of a folder, and report each outcome.

    Models are built in a sandbox, and the artifacts are not kept. If a model's folder contains
    test_data_set_N, the artifact's answers are compared with those of the data, and with ONNX
    Runtime's. The document that --output writes has a sketch of what the original models answer;
    with --against it is compared, so that a new ONNX Runtime that computes otherwise is told. The
    exit status is 0 if every model is built and its answers agree, or with --against if no model is
    worse than before and no answer changed; else 1.
    """
    from aotc.base.files.writing import write_text
    from aotc.cli.output import document_text, needs, refuse_existing
    from aotc.cli.progress import stages
    from aotc.cli.run_reporting import Run, reported
    from aotc.report.sheets.model_checks import check_models_view

    stated = {"model": str(folder), "profile": profile}
    others = (output, against, keep_answers)
    with (
        reported(Run("check-models", reports, form, json=json, others=others, **stated)) as run,
        stages(quiet=json) as progress,
    ):
        refuse_existing([output] if output is not None else [], force)
        with needs("check-models", "cpu"):
            from aotc.fleet.check_models import check_models as check
        from aotc.tools.check_outcomes import answers_hold, is_good

        answer = check(
            folder,
            profile=profile,
            on=on,
            jobs=jobs or (1 if on == "local" else None),
            seconds=float(timeout),
            pattern=pattern,
            fixtures=fixtures,
            cache=cache,
            against=against,
            keep_answers=keep_answers,
            renew_answers=renew_answers,
            progress=progress,
        )
        if answer.unchecked:
            status = EXIT_INTERRUPTED
        elif answer.against is not None:
            status = EXIT_NO if answer.against.worse else EXIT_YES
        else:
            status = EXIT_YES if all(map(is_good, answer.models)) else EXIT_NO
        if status == EXIT_YES and not answers_hold(answer.answers):
            status = EXIT_NO
        if output is not None:
            write_text(output, document_text(answer))
        if run.is_wanted:
            from aotc.tools.check_outcomes import judged_models

            gates, breaches = judged_models(answer, folder)
            run.ended(status, gates=gates, breaches=breaches)
    if not run.on_standard_output:
        respond(answer, check_models_view, json=json, status=status)
    return status
