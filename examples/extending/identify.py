"""`aotc identify`: the name and id of an artifact."""

from __future__ import annotations

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Artifact, Json

app = new_app()


@app.command(cls=Command)
@examples("aotc identify model.aotc", "aotc identify model.aotc --json")
def identify(artifact: Artifact, json: Json = False) -> int:
    """Print the name and id of an artifact.

    The id is the sha256 of its aotc.json. Nothing is verified here.
    """
    from aotc.spec.command_reports import IdentifyReport
    from aotc.tools.inspect import inspect

    found = inspect(artifact)
    if found.artifact is None:
        raise AotcError("AOTC-G015", "this is a model", where=str(artifact))
    report = IdentifyReport(name=found.name, artifact_id=found.artifact.artifact_id)
    if json:
        from aotc.cli.output import write_document

        write_document(report)
    else:
        from aotc.cli.terminal import write_lines

        write_lines((f"{report.name}  {report.artifact_id}",))
    return EXIT_YES
