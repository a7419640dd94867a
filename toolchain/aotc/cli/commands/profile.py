"""`aotc profile`: the built-in profiles, and checks of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.commands.base import respond, respond_lines, respond_list, respond_yaml
from aotc.cli.grammar import Command, examples, formerly, new_app
from aotc.cli.options import Json, Threads, comma_separated, positive, profile_names

app = new_app("List, show, check and learn build profiles.")


@app.command("list", cls=Command)
@examples("aotc profile list", "aotc profile list --json")
def list_profiles(json: Json = False) -> int:
    """List the built-in profiles."""
    from aotc.spec.profile_files import builtin_profiles, load_profile

    items = {name: load_profile(name).description for name in builtin_profiles()}
    respond_list("profile", items, json=json)
    return EXIT_YES


@app.command(cls=Command)
@examples("aotc profile show edge", "aotc profile show server-cpu > mine.yaml")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="a built-in profile, or a file",
            autocompletion=profile_names,
        ),
    ],
    json: Json = False,
) -> int:
    """Show a profile with every default.

    It is YAML that can be saved and changed.
    """
    from aotc.spec.profile_files import load_profile

    respond_yaml(load_profile(name), json=json)
    return EXIT_YES


@app.command(cls=Command)
@examples("aotc profile check mine.yaml", "aotc profile check mine.yaml --json")
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", parser=Path, help="profile in YAML")],
    json: Json = False,
) -> int:
    """Check a profile file.

    Every problem is listed, with its place in the file.
    """
    from aotc.spec.command_reports import CheckReport
    from aotc.spec.profile_files import load_profile
    from aotc.tools.doctor import check_names

    profile = load_profile(path)
    check_names(profile)
    answer = CheckReport(path=str(path), valid=True, profile=profile)
    respond_lines(answer, [f"{path}: profile {profile.name!r} is valid"], json=json)
    return EXIT_YES


@app.command(cls=Command)
@examples(
    "aotc profile learn traffic.jsonl --model model.onnx --seconds 5 -o learned.yaml",
    "aotc profile learn traffic.jsonl --model model.onnx --costs costs.json --html plans.html",
)
@formerly(dim_names="dim", dims="dim")
def learn(
    shapes: Annotated[
        Path,
        typer.Argument(
            metavar="SHAPES",
            parser=Path,
            help="recorded requests: .jsonl of shapes by input, or .csv with a column for each dim",
        ),
    ],
    *,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="MODEL", parser=Path, help="ONNX file that the costs are measured on"
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            metavar="FILE",
            parser=Path,
            help="costs that were measured earlier, instead of measuring",
        ),
    ] = None,
    max_variants: Annotated[
        int | None,
        typer.Option(
            "--max-variants",
            metavar="K",
            parser=positive,
            help="maximum number of variants, the dynamic one included (8), or of captured sizes",
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME|FILE",
            help="profile to start from: a built-in profile, or a file",
            autocompletion=profile_names,
        ),
    ] = "edge",
    dims: Annotated[
        list[str],
        typer.Option(
            "--dim",
            metavar="NAME[,NAME]",
            default_factory=list,
            help="the one or two dims to choose buckets for, if more vary",
        ),
    ],
    padding: Annotated[
        bool,
        typer.Option(
            " /--no-padding",
            help="plan without padding, for a model whose answers padding would change",
        ),
    ] = True,
    seconds: Annotated[
        int,
        typer.Option("--seconds", metavar="N", parser=positive, help="time for measuring"),
    ] = 60,
    threads: Threads = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.yaml", parser=Path, help="profile to write"),
    ] = None,
    save_costs: Annotated[
        Path | None,
        typer.Option(
            "--save-costs",
            metavar="FILE",
            parser=Path,
            help="file to write the costs to, for --costs",
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="page (HTML) to write, with distribution and plans; '-' is standard output",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace files that exist")] = False,
    json: Json = False,
) -> int:
    """Learn a profile from recorded shapes.

    The buckets are chosen that serve the recorded requests at the minimum expected cost. What a
    size costs is measured on the model itself. A line of SHAPES is one request:
    {"ids": [1, 40], "mask": [1, 40]} or {"batch": 1, "seq": 40}; or, in a .csv with the header
    'batch,seq', just 1,40. 'aotc run --record' and aotc.load(record=...) write such files.
    """
    if html == "-" and json:
        raise AotcError("AOTC-I027", "--html - and --json both write to standard output")
    from aotc.cli.output import needs, refuse_existing, refuse_overwriting, write_page
    from aotc.report.sheets.learned import learn_view

    page = Path(html) if html is not None and html != "-" else None
    options = (("-o", output), ("--save-costs", save_costs), ("--html", page))
    files = [(option, path) for option, path in options if path is not None]
    refuse_overwriting(files)
    if page is not None:
        # A profile, and costs, may be replaced by what was learned from them.
        refuse_overwriting([("--html", page)], (shapes, model, costs, Path(profile)))
    refuse_existing([path for _, path in files], force)
    with needs("profile learn", "cpu"):
        from aotc.tools.learn import profile_learn
    from aotc.cli.progress import stages

    with stages(quiet=json) as progress:
        answer = profile_learn(
            shapes,
            model=model,
            costs=costs,
            max_variants=max_variants,
            profile=profile,
            dims=comma_separated(dims) or [],
            padding=padding,
            seconds=seconds,
            threads=threads,
            output=output,
            save_costs=save_costs,
            progress=progress,
        )
    if html is not None:
        from aotc.report.html.learned_page import learn_page

        write_page(learn_page(answer), html)
    if html != "-":
        respond(answer, learn_view, json=json)
    return EXIT_YES
