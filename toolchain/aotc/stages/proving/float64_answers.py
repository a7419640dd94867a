"""Expected answers in float64, where the profile asks, and how far float32 is from them itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.contract.codec.parsing import decode, encode
from aotc.contract.finding import Finding
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import OutputNoise
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.proving.output_limits import output_gates
from aotc.stages.types import ReferenceRun, SourceModel


@record
class ExactAnswers:
    """Reference runs with the answers to compare with, the noise by output, and findings."""

    references: tuple[ReferenceRun, ...]
    noise: tuple[OutputNoise, ...] = ()
    findings: tuple[Finding, ...] = ()


def exact_answers(
    source: SourceModel,
    references: Sequence[ReferenceRun],
    options: BuildOptions,
    kind: str = "references",
) -> ExactAnswers:
    """The references as they are, or with the answers of the model in float64.

    `kind` names the references among those of one build.
    The answers have the types of the model's outputs.  The journal gets what is below the noise.
    """
    stated = options.profile.gates
    if not (references and stated.measures_noise):
        return ExactAnswers(references=tuple(references))
    model, weights = source.answering
    folder = options.work / f"float64-{kind}"
    gates = output_gates(source, options)
    value = options.workers.run(
        "aotc.probing.float64_reference:float64_job",
        {
            "model": str(model),
            "weights": str(weights),
            "tolerances": {
                setting: encode(tolerance) for setting, tolerance in _tolerances(source, options)
            },
            "gates": {name: encode(gate) for name, gate in gates.items()},
            "keys": {name: stated.key_of(name) for name in gates},
            "references": [
                {
                    "inputs": {name: str(path) for name, path in reference.inputs.items()},
                    "outputs": {name: str(path) for name, path in reference.outputs.items()},
                }
                for reference in references
            ],
        },
        folder=folder,
        where=f"{source.path.name} in float64",
    ).value
    noise = tuple(decode(OutputNoise, item) for item in value["noise"])
    options.journal.noticed(noise_findings(noise))
    answered = references
    if stated.against == "float64" and value["outputs"]:
        answered = [
            replace(reference, outputs={name: folder / path for name, path in files.items()})
            for reference, files in zip(references, value["outputs"], strict=True)
        ]
    return ExactAnswers(
        references=tuple(answered),
        noise=noise,
        findings=tuple(decode(Finding, item) for item in value["findings"]),
    )


def noise_findings(noise: Sequence[OutputNoise]) -> tuple[Finding, ...]:
    """AOTC-N023 for each output whose tolerance or limit is below the original's own noise.

    Its numbers differ between hosts, so that no payload contains it.
    """
    return tuple(
        Finding(
            code="AOTC-N023",
            what=f"the original's own noise in float32 is {_text(item)}; "
            f"below it: {'; '.join(item.below)}"[:1000],
            where=f"output {item.output}",
        )
        for item in noise
        if item.below
    )


def _text(noise: OutputNoise) -> str:
    ratio = f", SQNR {noise.sqnr_db:.2f} dB" if noise.sqnr_db is not None else ""
    return f"max absolute {noise.max_abs:.3g}{ratio}"


def _tolerances(source: SourceModel, options: BuildOptions) -> list[tuple[str, Tolerance]]:
    """The tolerances that variants will be judged by, by the precisions that the profile states."""
    profile = options.profile
    own = "quantized" if source.capture.quantized else "float32"
    if source.capture.half:
        own = "float16"
    stated = (spec.precision or profile.precision for spec in profile.variants)
    names = dict.fromkeys(own if name in ("keep", "auto") else name for name in stated)
    known: Mapping[str, Tolerance] = {
        name: getattr(profile.parity, name) for name in names if hasattr(profile.parity, name)
    }
    return [(f"parity.{name}", tolerance) for name, tolerance in known.items()]
