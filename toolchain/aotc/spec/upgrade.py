"""What another ONNX Runtime makes of models: `aotc fleet upgrade --json`."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.base.records import record
from aotc.spec.answers import ChangedAnswer, ToolVersions
from aotc.spec.command_reports import Built, SkippedFile
from aotc.spec.payload import Finding
from aotc.spec.precision import Tolerance
from aotc.spec.reports import Refusal

UpgradeOutcome = Literal[
    "same", "faster", "slower", "different-answers", "fails", "fails-in-both", "builds-now"
]
LatencyVerdict = Literal["same", "faster", "slower", "not-judged"]
# By which a model is worse than with the ONNX Runtime before.
WORSE: tuple[UpgradeOutcome, ...] = ("fails", "different-answers", "slower")


@record
class InstalledPackage:
    """A package that was installed into an environment beside those of this one."""

    name: str
    version: str
    sha256: Annotated[str, "of the file that was installed; empty: unknown"] = ""


@record
class RuntimeEnvironment:
    """A Python with an ONNX Runtime, in which models are built and run."""

    stated: Annotated[str, "version, wheel, requirements or folder; empty: this environment"] = ""
    versions: ToolVersions = ToolVersions()
    installed: tuple[InstalledPackage, ...] = ()
    reused: Annotated[bool, "made by an earlier call"] = False


@record
class SideBuild:
    """A model's build in one environment."""

    outcome: Built
    refusal: Annotated[Refusal | None, "why it was not built, or does not answer"] = None
    verdict: Annotated[str, "on this host: optimal, degraded or incompatible"] = ""
    findings: Annotated[tuple[str, ...], "codes"] = ()
    artifact_id: str = ""
    payload_bytes: Annotated[int | None, "without fixtures"] = None
    seconds: float = 0.0


@record
class BlamedNode:
    """The first node of the original model that computes otherwise."""

    node: str
    op: str
    value: str
    max_abs: float
    exact: Annotated[bool, "what it reads is equal bit by bit in both"] = True


@record
class AnswersCompared:
    """What a model answers in both environments, to the same inputs."""

    calls: Annotated[int, "that were judged"] = 0
    identical: Annotated[bool, "the original's answers are equal bit by bit"] = False
    tolerance: Annotated[Tolerance | None, "of the original's own arithmetic"] = None
    original: Annotated[
        tuple[ChangedAnswer, ...], "outputs of the original out of tolerance, the worst call"
    ] = ()
    artifact: Annotated[
        tuple[ChangedAnswer, ...],
        "outputs of the new artifact, out of its tolerance of what the original answered before",
    ] = ()
    blamed: BlamedNode | None = None
    earlier_artifact: Annotated[
        str, "why the artifact built before does not run with the new version; empty: it does"
    ] = ""
    earlier_answers: Annotated[
        tuple[ChangedAnswer, ...], "its outputs there, out of tolerance of the same"
    ] = ()
    not_compared: tuple[str, ...] = ()


@record
class LatencyCompared:
    """The new artifact's latency by the earlier one's, each in its environment, by turns."""

    verdict: LatencyVerdict
    reason: str = ""
    ratio: Annotated[float | None, "of medians, new by earlier"] = None
    lower: Annotated[float | None, "end of the 95 % interval"] = None
    upper: float | None = None
    rounds: int = 0
    pairs: Annotated[int, "of processes: what looks slower or faster is measured again"] = 0


@record
class UpgradedModel:
    """One model, or cell of a fleet, with both versions."""

    model: str
    source: Annotated[str, "path, as it was stated"] = ""
    outcome: UpgradeOutcome
    before: SideBuild
    after: SideBuild
    answers: AnswersCompared = AnswersCompared()
    latency: LatencyCompared = LatencyCompared(verdict="not-judged")
    required: Annotated[bool, "of a fleet's file: false, where it does not decide"] = True
    seconds: float = 0.0


@record
class UpgradeReport:
    """`aotc fleet upgrade --json`: what becomes of each model with another ONNX Runtime."""

    schema: Literal["aotc.fleet-upgrade/1"] = "aotc.fleet-upgrade/1"
    fleet: Annotated[str, "file or folder"]
    before: RuntimeEnvironment
    after: RuntimeEnvironment
    allow: Annotated[float, "ratio of latencies up to which neither is called slower"]
    models: tuple[UpgradedModel, ...]
    resumed: Annotated[int, "models that an interrupted call had finished"] = 0
    unchecked: Annotated[tuple[str, ...], "models not done because of an interrupt"] = ()
    skipped: tuple[SkippedFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    def worse(self) -> tuple[UpgradedModel, ...]:
        """The models that are worse, and decide."""
        return tuple(each for each in self.models if each.required and each.outcome in WORSE)
