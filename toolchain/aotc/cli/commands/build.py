"""`aotc build`: from a model to a signed, proven artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotc.cli.commands.base import Command, Parser, add_json, add_signing_key, pairs
from aotc.errors import EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        default="edge",
        help="what to build: edge (the default), another built-in profile or a file",
    )
    parser.add_argument(
        "--target", metavar="NAME|FILE", help="host to build for, over the profile's"
    )
    parser.add_argument(
        "-o", "--output", metavar="NAME.aotc", type=Path, help="artifact to write; MODEL.aotc here"
    )
    add_signing_key(parser)
    parser.add_argument("--force", action="store_true", help="replace an output that exists")
    parser.add_argument(
        "--dim",
        dest="dims",
        metavar="NAME=SPEC",
        action="append",
        default=[],
        help="fix (seq=128) or bound (batch=1..8, or 32..640:32 in steps) a dim; may be repeated",
    )
    parser.add_argument(
        "--fixtures",
        metavar="PATH",
        type=Path,
        help="inputs to prove with: a .npz, a folder of input_N.pb, or a folder of either",
    )
    parser.add_argument(
        "--embed-fixtures", action="store_true", help="put your fixtures into the artifact"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--tune",
        action="store_true",
        help="measure the profile's candidates (providers, threads, precision) and take the best",
    )
    chosen.add_argument(
        "--tuned-from",
        metavar="EVIDENCE",
        type=Path,
        help="take what was best in an earlier build: its artifact, or its evidence file",
    )
    parser.add_argument(
        "--no-cache",
        dest="cache",
        action="store_false",
        help="build anew what was built before, and keep nothing",
    )
    said = parser.add_argument_group("what the attestations say")
    said.add_argument(
        "--builder-id",
        metavar="URI",
        help="builder in the provenance; else $AOTC_BUILDER_ID, else urn:aotc:builder:local",
    )
    said.add_argument(
        "--invocation-id", metavar="ID", default="", help="this run of the builder, provenance"
    )
    said.add_argument(
        "--release", metavar="VERSION", default="", help="of what is built, such as 1.4.0"
    )
    said.add_argument(
        "--licence",
        metavar="SPDX",
        default="",
        help="licence of the model, in the bill of materials",
    )
    add_json(parser)


def build(*, json: bool, dims: list[str], **asked: Any) -> int:
    """Build a signed artifact from an ONNX model, and prove it against the model.

    Exit status 1 where a gate of the profile fails, 3 where the input must be mended;
    nothing is left at the output then.
    """
    ranges = pairs(dims, "--dim")
    from aotc.cli.extras import needs

    with needs("build", "cpu"):
        from aotc.pipeline import build as run_pipeline
    from aotc.cli.progress import stages

    with stages(quiet=json) as progress:
        report = run_pipeline(dims=ranges, progress=progress, **asked)
    if json:
        from aotc.cli.json_document import write_document

        write_document(report)
    else:
        from aotc.cli.render import show
        from aotc.cli.views.build_view import build_view
        from aotc.inspection.summary import inspect

        show(build_view(report, inspect(report.artifact)))
    return EXIT_YES


command = Command(build, arguments)
