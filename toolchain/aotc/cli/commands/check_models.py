"""`aotc check-models`: what becomes of every model below a folder."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import Command, Parser, add_json, positive, respond
from aotc.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="folder of *.onnx files, at any depth"
    )
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        default="edge",
        help="what to build: edge (the default), another built-in profile or a file",
    )
    parser.add_argument(
        "--pattern",
        metavar="GLOB",
        default="*",
        help="check models whose name matches, such as 'vision/*'",
    )
    parser.add_argument(
        "--against",
        metavar="FILE",
        type=Path,
        help="compare with an earlier document; exit status 1 where a model is worse than then",
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the JSON document, too")
    parser.add_argument("--force", action="store_true", help="replace an output that exists")
    parser.add_argument(
        "--fixtures",
        action="store_true",
        help="give the test data beside a model to its build; else it is only compared with",
    )
    parser.add_argument(
        "--cache",
        action="store_true",
        help="take builds from the user's cache, and keep them there",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=positive, default=1, help="models side by side (1)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        default=1800,
        help="seconds, by the clock, for a model's build, and for its comparison (1800)",
    )
    add_json(parser)


def check_models(
    *,
    folder: Path,
    profile: str,
    pattern: str,
    against: Path | None,
    output: Path | None,
    force: bool,
    fixtures: bool,
    cache: bool,
    jobs: int,
    timeout: int,
    json: bool,
) -> int:
    """Build every ONNX model below a folder in a sandbox, and tell what became of each.

    Nothing that is built is kept. Where test_data_set_N lies beside a model, its artifact's answers
    are compared with those of the data, and with ONNX Runtime's. Exit status 0 where every model is
    built and answers so, or with --against where none is worse than before; else 1.
    """
    from aotc.cli.extras import needs
    from aotc.cli.views.check_views import check_models_view
    from aotc.cli.written import refuse_existing, write_text

    refuse_existing([output] if output is not None else [], force)
    with needs("check-models", "cpu"):
        from aotc.checking.check import check_models as check
    from aotc.checking.outcomes import is_good
    from aotc.cli.json_document import document_text
    from aotc.cli.progress import stages

    with stages(quiet=json) as progress:
        answer = check(
            folder,
            profile=profile,
            jobs=jobs,
            seconds=float(timeout),
            pattern=pattern,
            fixtures=fixtures,
            cache=cache,
            against=against,
            progress=progress,
        )
    if output is not None:
        write_text(output, document_text(answer))
    respond(answer, check_models_view, json=json)
    if answer.unchecked:
        return EXIT_INTERRUPTED
    if answer.against is not None:
        return EXIT_NO if answer.against.worse else EXIT_YES
    return EXIT_YES if all(map(is_good, answer.models)) else EXIT_NO


command = Command(check_models, arguments)
