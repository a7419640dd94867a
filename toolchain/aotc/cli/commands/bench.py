"""`aotc bench`: what an artifact costs, against the plain model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import (
    ArtifactArgument,
    JsonOption,
    KeyOption,
    TrustOption,
    new_app,
    pairs,
)
from aotc.errors import EXIT_YES, AotcError

app = new_app()


@app.command()
def bench(
    artifact: ArtifactArgument,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="MODEL", help="The model it was built from."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=1, help="Runs of each side.")
    ] = 50,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="Size of a dim; the fixture's without."),
    ] = None,
    variant: Annotated[
        str | None, typer.Option("--variant", metavar="NAME", help="Variant to load.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", min=1, help="Threads of one operator.")
    ] = None,
    trust: TrustOption = None,
    key: KeyOption = None,
    json: JsonOption = False,
) -> int:
    """Time an artifact's load and runs, against the plain model if one is given.

    Both run by turns in one process, so that their ratio holds on a noisy machine.
    """
    sizes = {}
    for name, text in pairs(dim or (), "--dim").items():
        if not text.isascii() or not text.isdigit():
            raise AotcError(
                "AOTC-I027", "--dim takes one size here", where=f"--dim {name}", found=text
            )
        sizes[name] = int(text)
    from aotc.cli.extras import needs

    with needs("bench", "cpu"):
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
            variant=variant,
            threads=threads,
            progress=progress,
        )
    if json:
        from aotc.cli.document import write_document

        write_document(answer)
    else:
        from aotc.cli.measurements import bench_view
        from aotc.cli.render import show

        show(bench_view(answer))
    return EXIT_YES
