"""`aotc run`: load an artifact and run it, on files or on its own fixtures."""

from __future__ import annotations

import time
from pathlib import Path

from aotc.cli.commands.base import (
    Command,
    Parser,
    add_artifact,
    add_json,
    add_trust,
    add_variant,
)
from aotc.contract.answers import RunAnswer, RunCase
from aotc.errors import EXIT_YES, AotcError


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser)
    parser.add_argument(
        "--input",
        dest="inputs",
        metavar="NAME=FILE|FILE.npz",
        action="append",
        default=[],
        help="one input (.npy), or an archive of inputs by name; may be repeated",
    )
    parser.add_argument(
        "--output-dir", metavar="DIR", type=Path, help="folder to write each output to"
    )
    add_variant(parser)
    add_trust(parser)
    add_json(parser)


def run(
    *,
    artifact: Path,
    inputs: list[str],
    output_dir: Path | None,
    variant: str | None,
    trust: Path | None,
    key: Path | None,
    json: bool,
) -> int:
    """Verify and load an artifact, and run it once.

    Inputs are .npy files by name, or a .npz with inputs by name; without any, each fixture
    that the artifact holds is run.
    """
    from aotc.cli.extras import needs

    with needs("run", "cpu"):
        from aotc.runtime import arrays
        from aotc.runtime.bench import payload_of
        from aotc.runtime.model import load
    with load(artifact, trust=trust, key=key, variant=variant) as model:
        if inputs:
            cases = {"inputs": arrays.read_inputs(inputs, model.inputs)}
        else:
            cases = {
                fixture.name: arrays.read_fixture(payload_of(model), fixture)
                for fixture in model.manifest.fixtures
            }
        if not cases:
            raise AotcError(
                "AOTC-I027",
                "the artifact holds no fixture, and no input was given",
                mend="Give inputs with --input.",
            )
        runs = []
        for name, given in cases.items():
            started = time.perf_counter()
            found = model.run(given)
            seconds = time.perf_counter() - started
            written: dict[str, Path] = {}
            if output_dir is not None:
                place = output_dir if inputs else output_dir / name
                written = arrays.write_outputs(place, found)
            outputs = tuple(
                arrays.describe_output(each, value, written.get(each))
                for each, value in found.items()
            )
            runs.append(RunCase(name=name, outputs=outputs, seconds=seconds))
        answer = RunAnswer(
            artifact=str(artifact),
            load=model.report,
            runs=tuple(runs),
            findings=model.findings(),
        )
    if json:
        from aotc.cli.document import write_document

        write_document(answer)
    else:
        from aotc.cli.measurements import run_view
        from aotc.cli.render import show

        show(run_view(answer))
    return EXIT_YES


command = Command(run, arguments)
