"""Reference runs on the calibration data, which a statically quantized variant is judged by.

Its ranges are those of the user's data.  What a generated input computes outside of them is cut off
by intention, and says nothing of how exact the variant is.
"""

from __future__ import annotations

from typing import Final

from aotc.contract.codec.parsing import encode
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.calibrating.calibration_data import calibration_samples
from aotc.stages.quantizing.forms import is_observing
from aotc.stages.types import AnalyzedModel, ReferenceRun

# How many samples are compared as they are; each is one more run of every such variant.
_MAX_SAMPLES: Final = 8


def with_sampled_references(analyzed: AnalyzedModel, options: BuildOptions) -> AnalyzedModel:
    """`analyzed` with runs on the user's data, if a variant may be quantized statically.

    They are some samples as they are, and at the sizes of each generated fixture the samples tiled.
    Raises what `calibration_samples` raises, and AOTC-I075.
    """
    if not is_observing(options):
        return analyzed
    samples = calibration_samples(analyzed, options)
    if not samples:
        return analyzed
    source = analyzed.source
    model, weights = source.answering
    step = max(1, len(samples) // _MAX_SAMPLES)
    folder = options.work / "sampled"
    runs = options.workers.run(
        "aotc.probing.sampled_runs:sampled_job",
        {
            "model": str(model),
            "weights": str(weights),
            "inputs": [encode(value) for value in source.inputs],
            "outputs": [value.name for value in source.outputs],
            "samples": list(samples[::step][:_MAX_SAMPLES]),
            "points": [
                [f"{run.name}-sampled", dict(run.sizes)]
                for run in analyzed.references
                # Those with inputs of one sign have the sizes of another one.
                if run.origin == "generated" and "-" not in run.name
            ],
        },
        folder=folder,
        where="calibration data",
    ).value
    sampled = tuple(
        ReferenceRun(
            name=item["name"],
            origin="user",
            sizes=item["sizes"],
            inputs={name: folder / path for name, path in item["inputs"].items()},
            outputs={name: folder / path for name, path in item["outputs"].items()},
            finite=item["finite"],
        )
        for item in runs
    )
    return replace(analyzed, sampled=sampled)
