"""`aotc bench`: what an artifact costs, against the plain model."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import (
    Command,
    Parser,
    add_artifact,
    add_channel,
    add_json,
    add_loading,
    add_trust,
    add_variant,
    pairs,
    positive,
    respond,
    split_names,
)
from aotc.errors import EXIT_YES, AotcError


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser)
    parser.add_argument("--against", metavar="MODEL", type=Path, help="the model it was built from")
    parser.add_argument(
        "--runs", metavar="N", type=positive, default=50, help="runs of each side; 50"
    )
    parser.add_argument(
        "--dim",
        dest="dims",
        metavar="NAME=SIZE",
        action="append",
        default=[],
        help="size of a dim, not the fixture's; may be repeated",
    )
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="threads of one operator; one for each core"
    )
    add_variant(parser)
    add_trust(parser)
    add_channel(parser)
    add_loading(parser)
    add_json(parser)


def bench(
    *,
    artifact: Path,
    against: Path | None,
    runs: int,
    dims: list[str],
    threads: int | None,
    variant: list[str],
    trust: Path | None,
    key: Path | None,
    channel: str | None,
    unsafe_no_trust_state: bool,
    store: Path | None,
    trust_store: bool,
    json: bool,
) -> int:
    """Time an artifact's load and runs, against the plain model if one is given.

    Both run by turns in one process, so that their ratio holds on a noisy machine.
    """
    sizes = {}
    for name, text in pairs(dims, "--dim").items():
        if not text.isascii() or not text.isdigit():
            raise AotcError(
                "AOTC-I027", "--dim takes one size here", where=f"--dim {name}", found=text
            )
        sizes[name] = int(text)
    from aotc.cli.extras import needs
    from aotc.cli.views.measurement_views import bench_view

    with needs("bench", loads=True):
        from aotc.runtime.bench import bench as measure
    from aotc.cli.progress import stages

    with stages(quiet=json) as progress:
        answer = measure(
            artifact,
            against=against,
            runs=runs,
            sizes=sizes,
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            variant=split_names(variant),
            store=store,
            trust_store=trust_store,
            threads=threads,
            progress=progress,
        )
    respond(answer, bench_view, json=json)
    return EXIT_YES


command = Command(bench, arguments)
