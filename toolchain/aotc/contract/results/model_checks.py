"""What `aotc check-models` tells: the outcome of each model, and how it differs from before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.records import field, record

Built = Literal["built", "refused", "crashed", "timeout", "out-of-memory", "bug"]
Answers = Literal["", "as expected", "as onnxruntime", "refused", "differ"]


@record
class ToolVersions:
    """What built the models; empty where it is not known."""

    aotc: str = ""
    python: str = ""
    onnx: str = ""
    onnxruntime: str = ""
    numpy: str = ""
    providers: Annotated[
        Mapping[str, str], "version of each execution provider that is to be had, by its name"
    ] = field(default_factory=dict)


@record
class ModelCheck:
    """What became of one model."""

    model: Annotated[str, "path below the folder; of NAME/model.onnx, NAME"]
    outcome: Annotated[
        Built,
        "crashed, timeout, out-of-memory: of a step in the sandbox; bug: one of aotc's own",
    ]
    code: Annotated[str, "why it is not built, or why the artifact refused the test data"] = ""
    answers: Annotated[
        Answers,
        "to test data beside the model: as the data has them; else as ONNX Runtime gives them for "
        "the model, not optimized; refused by the artifact; neither; empty: none was compared",
    ] = ""
    verdict: Annotated[
        Literal["", "optimal", "degraded", "incompatible"], "on this host; empty: it is not built"
    ] = ""
    what: Annotated[str, "the refusal, or the answer that differs, in words"] = ""
    where: str = ""
    expected: str = ""
    found: str = ""
    findings: Annotated[tuple[str, ...], "codes of what was noticed, each once"] = ()
    compared: Annotated[int, "sets of test data that were run"] = 0
    seconds: Annotated[float, "of the build, and of the comparison"] = 0.0


@record
class SkippedFile:
    """What looked like a model and is none."""

    path: str
    why: str


@record
class OutcomeChange:
    """One model, before and now, in words such as `refused AOTC-S001`."""

    model: str
    before: str
    now: str


@record
class EarlierChecks:
    """What changed since an earlier document.

    The order, best first: built, as expected; built, as onnxruntime; built, nothing compared;
    built, and the artifact refuses the data; refused; timeout or out-of-memory; crashed; built,
    and the answers differ; bug.
    """

    path: str
    versions: ToolVersions = ToolVersions()
    worse: tuple[OutcomeChange, ...] = ()
    better: tuple[OutcomeChange, ...] = ()
    changed: Annotated[tuple[OutcomeChange, ...], "neither worse nor better: another code"] = ()
    new: Annotated[tuple[str, ...], "models that were not there"] = ()
    gone: Annotated[tuple[str, ...], "models that are there no more"] = ()


@record
class CheckModelsReport:
    """`aotc check-models --json`: what became of every model below a folder."""

    schema: Literal["aotc.check-models/1"] = "aotc.check-models/1"
    folder: str
    profile: str = "edge"
    fixtures: Annotated[bool, "test data was given to the builds"] = False
    versions: ToolVersions = ToolVersions()
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"] = field(
        default_factory=dict
    )
    summary: Annotated[Mapping[str, int], "models by outcome in words, most first"] = field(
        default_factory=dict
    )
    models: tuple[ModelCheck, ...]
    skipped: tuple[SkippedFile, ...] = ()
    unchecked: Annotated[tuple[str, ...], "models that an interrupt left unchecked"] = ()
    against: Annotated[EarlierChecks | None, "None: compared with nothing"] = None
    seconds: float = 0.0
