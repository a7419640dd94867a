"""What a proof left open: values that differ, few enough, judged by how narrowly each was decided.

That takes a run of the original, in a process of its own: it is no part of what a variant costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from aotc.base.records import replace
from aotc.graph import values
from aotc.graph.values import Data
from aotc.session.margins import OriginalMargins
from aotc.session.parity import compare
from aotc.session.worker_pool import Workers
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Comparison, Evidence, OutputError
from aotc.spec.payload import Finding
from aotc.spec.precision import Arithmetic, DecidedOutput, OutputGate, Tolerance, allowed_share


def decided_outputs(
    decided: Mapping[str, DecidedOutput], arithmetic: Arithmetic, tolerance: Tolerance
) -> dict[str, DecidedOutput]:
    """Outputs that floats decide, each with the share of values that may differ."""
    share = allowed_share(arithmetic, tolerance)
    return {name: replace(each, max_differing=share) for name, each in decided.items()}


def original_request(
    answering: tuple[Path, Path], decided: Mapping[str, DecidedOutput]
) -> dict[str, Json]:
    """What a worker is told of the model whose answers are the expected ones."""
    model, weights = answering
    return {
        "model": str(model),
        "weights": str(weights),
        "decided": {name: encode(each) for name, each in decided.items()},
    }


def original_margins(request: Json) -> OriginalMargins:
    """In the worker: the margins of that model."""
    return OriginalMargins(
        Path(request["model"]),
        Path(request["weights"]),
        {name: decode(DecidedOutput, each) for name, each in request["decided"].items()},
    )


def with_margins(
    comparisons: Sequence[Comparison], open_: Json, request: Json, folder: Path, workers: Workers
) -> tuple[Comparison, ...]:
    """`comparisons` with what is `open_` in them judged; `request` is that of the proof.

    `open_` are the number of the comparison, the output, and the file of the variant's answer,
    below the `folder` of the proof.
    """
    if not open_:
        return tuple(comparisons)
    judged = workers.run(
        "aotc.pipeline.margins:margins_job",
        {
            "original": request["original"],
            "tolerance": request["tolerance"],
            "gates": request["gates"],
            "open": [
                {
                    "reference": request["references"][number],
                    "output": name,
                    "answer": str(folder / path),
                }
                for number, name, path in open_
            ],
        },
        folder=folder.with_name(f"{folder.name}-margins"),
        where="margins of the original",
    ).value
    found = {
        (number, name): decode(OutputError, error)
        for (number, name, _), error in zip(open_, judged, strict=True)
    }
    return tuple(
        replace(
            comparison,
            outputs=tuple(found.get((at, error.output), error) for error in comparison.outputs),
        )
        for at, comparison in enumerate(comparisons)
    )


def margins_job(request: Json) -> Json:
    """In the worker: the errors of what is open, judged with the original's margins."""
    margins = original_margins(request["original"])
    tolerance = decode(Tolerance, request["tolerance"])
    gates = {name: decode(OutputGate, gate) for name, gate in request["gates"].items()}
    errors = []
    for item in request["open"]:
        name, reference = item["output"], item["reference"]
        inputs = partial(loaded, reference["inputs"])
        golden = values.load(Path(reference["outputs"][name]))
        answer = values.load(Path(item["answer"]))
        judge = margins.judge(name, reference["name"], inputs, tolerance)
        errors.append(
            encode(compare(golden, answer, tolerance, name, gates.get(name), decided=judge))
        )
    return errors


def loaded(files: Mapping[str, str]) -> dict[str, Data]:
    """Values by name, from their files."""
    return {name: values.load(Path(path)) for name, path in files.items()}


def narrow_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-N053 for each output with values that differ and may: measured, so in no payload."""
    found = []
    for variant in evidence.variants:
        worst: dict[str, tuple[OutputError, str]] = {}
        for comparison in (*variant.comparisons, *variant.unpartitioned):
            for error in comparison.outputs:
                known = worst.get(error.output)
                most = 0 if known is None else known[0].differing
                if error.passed and error.differing > most:
                    worst[error.output] = error, comparison.fixture
        found += [
            Finding(
                code="AOTC-N053",
                what=f"output {name!r}: {differing_text(error)}"[:500],
                where=f"variant {variant.name}, fixture {fixture}",
            )
            for name, (error, fixture) in worst.items()
        ]
    return tuple(found)


def differing_text(error: OutputError) -> str:
    """How many values of an output differ, in words."""
    count = error.differing
    if not count:
        return "all values are equal"
    share = "" if error.agreement is None else f" ({100 * (1 - error.agreement):.2g} %)"
    narrow = f"{error.within_margin} of them decided narrowly"
    if error.within_margin is None:
        narrow = "judged by their number alone"
    elif error.within_margin == count:
        narrow = "decided narrowly"
    return f"{count} value{'s differ' if count > 1 else ' differs'}{share}, {narrow}"
