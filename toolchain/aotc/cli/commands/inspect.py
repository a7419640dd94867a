"""`aotc inspect`: what an artifact or a model says of itself, UNVERIFIED."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import Command, Parser, add_json, respond
from aotc.contract.artifact_names import artifact_path
from aotc.errors import EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    parser.add_argument(
        "path",
        metavar="ARTIFACT|MODEL",
        type=artifact_path,
        help="a NAME.aotc folder, a packed artifact, sha256-ID of one in a store, or a .onnx file",
    )
    parser.add_argument(
        "--traffic",
        metavar="SHAPES",
        type=Path,
        help="recorded shapes (.jsonl or .csv): what the artifact would do with them",
    )
    add_json(parser)


def inspect(*, path: Path, traffic: Path | None, json: bool) -> int:
    """Show what an artifact or a model says of itself, unverified.

    Signers are shown as claimed; 'aotc verify' checks them.
    """
    from aotc.cli.views.inspection_view import inspect_view
    from aotc.inspection.summary import inspect as inspect_path

    report = inspect_path(path, traffic=traffic)
    respond(report, inspect_view, json=json)
    return EXIT_YES


command = Command(inspect, arguments)
