"""`aotc profile`: the built-in profiles, and checks of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

from aotc.cli.commands.base import Command, Group, Parser, add_json, positive, respond
from aotc.contract.builtin import builtin_profiles, load_profile
from aotc.contract.codec.strict_yaml import yaml_text
from aotc.contract.results.command_reports import CheckReport, ListReport
from aotc.errors import EXIT_YES


def list_profiles(*, json: bool) -> int:
    """List the built-in profiles."""
    items = {name: load_profile(name).description for name in builtin_profiles()}
    if json:
        from aotc.cli.json_document import write_document

        write_document(ListReport(kind="profile", items=items))
    else:
        from aotc.cli.render import write_lines

        width = max(len(name) for name in items)
        write_lines(f"{name:<{width}}  {text}" for name, text in items.items())
    return EXIT_YES


def _show_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME|FILE", help="a built-in profile or a file")
    add_json(parser)


def show(*, name: str, json: bool) -> int:
    """Show a profile with every default written out, as YAML that can be saved and changed."""
    profile = load_profile(name)
    if json:
        from aotc.cli.json_document import write_document

        write_document(profile)
    else:
        sys.stdout.write(yaml_text(profile))
    return EXIT_YES


def _check_arguments(parser: Parser) -> None:
    parser.add_argument("path", metavar="FILE", type=Path, help="a profile in YAML")
    add_json(parser)


def check(*, path: Path, json: bool) -> int:
    """Check a profile file; every problem is listed with its path."""
    from aotc.inspection.offered_providers import check_names

    profile = load_profile(path)
    check_names(profile)
    if json:
        from aotc.cli.json_document import write_document

        write_document(CheckReport(path=str(path), valid=True, profile=profile))
    else:
        from aotc.cli.render import write_lines

        write_lines([f"{path}: profile {profile.name!r} is valid"])
    return EXIT_YES


def _learn_arguments(parser: Parser) -> None:
    parser.add_argument(
        "shapes",
        metavar="SHAPES",
        type=Path,
        help="recorded requests: .jsonl of shapes by input, or .csv with a column for each dim",
    )
    parser.add_argument(
        "--model", metavar="MODEL", type=Path, help="ONNX file that the costs are measured on"
    )
    parser.add_argument(
        "--costs", metavar="FILE", type=Path, help="costs measured earlier, instead of measuring"
    )
    parser.add_argument(
        "--max-variants",
        metavar="K",
        type=positive,
        default=8,
        help="variants at most, the dynamic one included; 8",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        default="edge",
        help="profile to start from: edge (the default), another built-in profile or a file",
    )
    parser.add_argument(
        "--dim-names",
        metavar="DIM[,DIM]",
        default="",
        help="the one or two dims to choose buckets for, where more vary",
    )
    parser.add_argument(
        "--no-padding",
        dest="padding",
        action="store_false",
        help="plan for a model that padding would change: sizes run as they are",
    )
    parser.add_argument(
        "--seconds", metavar="N", type=positive, default=60, help="time for measuring; 60"
    )
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="threads of one operator; one for each core"
    )
    parser.add_argument("-o", "--output", metavar="FILE.yaml", type=Path, help="profile to write")
    parser.add_argument(
        "--save-costs", metavar="FILE", type=Path, help="keep the costs for --costs"
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="page to write: distribution and plans"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    add_json(parser)


def learn(
    *,
    shapes: Path,
    model: Path | None,
    costs: Path | None,
    max_variants: int,
    profile: str,
    dim_names: str,
    padding: bool,
    seconds: int,
    threads: int | None,
    output: Path | None,
    save_costs: Path | None,
    html: Path | None,
    force: bool,
    json: bool,
) -> int:
    """Choose the buckets that serve recorded shapes at the least expected cost.

    What a size costs is measured on the model itself. A line of SHAPES is one request:
    {"ids": [1, 40], "mask": [1, 40]} or {"batch": 1, "seq": 40}; or, in a .csv with the header
    'batch,seq', just 1,40. 'aotc run --record' and aotc.load(record=...) write such files.
    """
    from aotc.cli.extras import needs
    from aotc.cli.views.learned_views import learn_view
    from aotc.cli.written import refuse_existing, write_text

    files = [path for path in (output, save_costs, html) if path is not None]
    refuse_existing(files, force)
    with needs("profile learn", "cpu"):
        from aotc.learning.learn import learn as choose
    from aotc.cli.progress import stages

    with stages(quiet=json) as progress:
        answer, table = choose(
            shapes,
            model=model,
            costs=costs,
            max_variants=max_variants,
            profile=profile,
            dims=[name for name in dim_names.split(",") if name],
            padding=padding,
            seconds=seconds,
            threads=threads,
            progress=progress,
        )
    if html is not None:
        from aotc.cli.views.learned_page import learn_page

        write_text(html, learn_page(answer))
    if output is not None:
        write_text(output, yaml_text(answer.profile, full=False))
    if save_costs is not None:
        from aotc.contract.codec.canonical import canonical_json
        from aotc.contract.codec.parsing import encode

        write_text(save_costs, canonical_json(encode(table)).decode() + "\n")
    respond(answer, learn_view, json=json)
    return EXIT_YES


command = Group(
    "List, show, check and learn build profiles.",
    {
        "list": ("List the built-in profiles.", Command(list_profiles, add_json)),
        "show": ("Show a profile with every default.", Command(show, _show_arguments)),
        "check": ("Check a profile file.", Command(check, _check_arguments)),
        "learn": ("Learn a profile from recorded shapes.", Command(learn, _learn_arguments)),
    },
)
