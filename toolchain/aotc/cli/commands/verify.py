"""`aotc verify`: the gate, with every reason."""

from __future__ import annotations

from typing import Annotated

import typer

from aotc.cli.commands.base import ArtifactArgument, JsonOption, KeyOption, TrustOption, new_app
from aotc.errors import EXIT_NO, EXIT_YES

app = new_app()


@app.command()
def verify(
    artifact: ArtifactArgument,
    trust: TrustOption = None,
    key: KeyOption = None,
    target: Annotated[
        str, typer.Option("--target", metavar="NAME|FILE", help="Host to check for.")
    ] = "host",
    full: Annotated[
        bool, typer.Option("--full", help="Also hash whole files whose chunks were hashed.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Check an artifact's signature, its digests, and that it fits a host.

    Exit status 0 where it is authentic and a variant runs, 1 where not; every reason is listed.
    """
    from aotc.verification.gate import verify as run_gate

    report = run_gate(artifact, trust=trust, key=key, target=target, full=full)
    if json:
        from aotc.cli.document import write_document

        write_document(report)
    else:
        from aotc.cli.render import show
        from aotc.cli.views import verify_view

        show(verify_view(report))
    return EXIT_YES if report.authentic and report.verdict in ("optimal", "degraded") else EXIT_NO
