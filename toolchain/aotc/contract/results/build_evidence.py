"""What a build measured: the predicate of the evidence attestation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from aotc.contract.results.tuning import TuningCandidate
from aotc.records import field, record


@record
class OutputError:
    """How far one output is from the reference's, over one comparison."""

    output: str
    max_abs: Annotated[
        float, "max |actual - reference|; the largest float where no error can be measured"
    ]
    max_rel: Annotated[float, "max |actual - reference| / max |reference|"]
    cosine: Annotated[float | None, "of the flattened tensors; None where a norm is zero"] = None
    passed: bool = True
    reason: Annotated[str, "what failed, in words; empty where it passed"] = ""


@record
class Comparison:
    """One fixture through reference and variant."""

    fixture: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    padded_to: Annotated[
        Mapping[str, int], "sizes that the variant got, of all dims; none: as they were"
    ] = field(default_factory=dict)
    outputs: tuple[OutputError, ...]


@record
class WrongForm:
    """A form of a variant that was built, and refused for its answers; another took its place."""

    form: Annotated[str, "level of optimization, or nodes"]
    provider: Annotated[str, "that ran the nodes; empty: the CPU at that level"] = ""
    reason: str
    slowdown: Annotated[
        float | None, "time of the form that was taken, by this one's; None: not measured"
    ] = None


@record
class VariantEvidence:
    """What was measured of one variant on the build host; seconds and bytes."""

    name: str
    comparisons: tuple[Comparison, ...] = ()
    undivided: Annotated[
        tuple[Comparison, ...],
        "of the graph on the CPU before it was divided, where this host cannot run the variant",
    ] = ()
    load_seconds: float | None = None
    first_run_seconds: float | None = None
    run_seconds: Annotated[Mapping[str, float], "median, by fixture"] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    instead_of: Annotated[tuple[WrongForm, ...], "forms that computed wrongly"] = ()


@record
class Evidence:
    """Predicate `urn:aotc:evidence:v1`: true of this build, not reproducible."""

    built_at: Annotated[str, "UTC, ISO 8601"]
    stages: Annotated[Mapping[str, float], "seconds by stage"]
    variants: tuple[VariantEvidence, ...]
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"]
    notes: tuple[str, ...] = ()
    tuning: Annotated[tuple[TuningCandidate, ...], "what --tune tried"] = ()
    model: Annotated[str, "sha256 of the model file"] = ""
    tuned_on: Annotated[str, "the same of the model that tuning measured"] = ""
