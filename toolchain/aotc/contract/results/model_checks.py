"""What `aotc check-models` reports: the outcome of each model, and changes since a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.results.reports import Refusal
from aotc.records import field, record

Built = Literal["built", "refused", "crashed", "timeout", "out-of-memory", "bug"]
Answers = Literal["", "as expected", "as onnxruntime", "refused", "differ"]


@record
class ToolVersions:
    """Versions of the software that built the models; empty if unknown."""

    aotc: str = ""
    python: str = ""
    onnx: str = ""
    onnxruntime: str = ""
    numpy: str = ""
    providers: Annotated[
        Mapping[str, str], "version of each available execution provider, by its name"
    ] = field(default_factory=dict)


@record
class ModelCheck:
    """The outcome of one model."""

    model: Annotated[str, "path in the folder; NAME for NAME/model.onnx"]
    outcome: Annotated[
        Built,
        "crashed, timeout, out-of-memory: a step in the sandbox; bug: an error of aotc itself",
    ]
    code: Annotated[
        str, "reason why it was not built, or why the artifact refused the test data"
    ] = ""
    answers: Annotated[
        Answers,
        "for the model's test data: as in the data; or else as ONNX Runtime computes them without "
        "optimization; refused by the artifact; neither; empty: not compared",
    ] = ""
    verdict: Annotated[
        Literal["", "optimal", "degraded", "incompatible"], "on this host; empty: not built"
    ] = ""
    what: Annotated[str, "the refusal, or the answer that differs, in words"] = ""
    where: str = ""
    expected: str = ""
    found: str = ""
    also: Annotated[tuple[Refusal, ...], "further gates that the build failed"] = ()
    findings: Annotated[tuple[str, ...], "codes of findings, without repetition"] = ()
    compared: Annotated[int, "number of test data sets that were run"] = 0
    seconds: Annotated[float, "of the build and the comparison"] = 0.0


@record
class SkippedFile:
    """A file that looks like a model but is not one."""

    path: str
    why: str


@record
class OutcomeChange:
    """The outcomes of one model, before and now, such as `refused AOTC-S001`."""

    model: str
    before: str
    now: str


@record
class EarlierChecks:
    """What changed since an earlier report.

    Outcomes from best to worst: built, as expected; built, as onnxruntime; built, not compared;
    built, but the artifact refuses the data; refused; timeout or out-of-memory; crashed; built, but
    the answers differ; bug.
    """

    path: str
    versions: ToolVersions = ToolVersions()
    worse: tuple[OutcomeChange, ...] = ()
    better: tuple[OutcomeChange, ...] = ()
    changed: Annotated[tuple[OutcomeChange, ...], "neither worse nor better: another code"] = ()
    new: Annotated[tuple[str, ...], "models that the earlier report does not have"] = ()
    gone: Annotated[tuple[str, ...], "models that only the earlier report has"] = ()


@record
class CheckModelsReport:
    """`aotc check-models --json`: the outcome of every model in a folder."""

    schema: Literal["aotc.check-models/1"] = "aotc.check-models/1"
    folder: str
    profile: str = "edge"
    fixtures: Annotated[bool, "whether the builds got the test data"] = False
    versions: ToolVersions = ToolVersions()
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"] = field(
        default_factory=dict
    )
    summary: Annotated[Mapping[str, int], "number of models by outcome, largest first"] = field(
        default_factory=dict
    )
    models: tuple[ModelCheck, ...]
    skipped: tuple[SkippedFile, ...] = ()
    unchecked: Annotated[tuple[str, ...], "models not checked because of an interrupt"] = ()
    against: Annotated[EarlierChecks | None, "None: not compared"] = None
    seconds: float = 0.0
