"""What one run of a command judged and measured: every form of a report is made of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from aotc.base.errors import Place
from aotc.base.records import field, record, replace
from aotc.spec.codec import Json
from aotc.spec.evidence import Blamed, OutputError, TaskResult, standing_fixture
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal

GateStatus = Literal["passed", "failed", "not-judged"]
# The gate of each variant that is passed where its answers were compared as the target gives them.
PROOF: Final = "proof"


@record
class Gate:
    """One limit that something had to meet, and whether it does."""

    name: Annotated[str, "setting of the profile, step of the gate, or what is compared"]
    subject: Annotated[str, "what was judged, such as a variant"]
    status: Annotated[
        GateStatus, "not-judged: an earlier failure left nothing to judge, or nothing is shown"
    ]
    limit: str = ""
    measured: str = ""
    place: Annotated[Place | None, "where the limit is stated; None: in no file"] = None


@record
class Measurement:
    """One number that was measured."""

    name: str
    subject: str
    value: float
    unit: str


# What people ask for first, with the size: the time of a warm call, and how far answers are off.
SIZE: Final = "size"
LATENCY: Final = "latency"
ERROR: Final = "largest error"
_OF_ORIGINAL: Final = " of the original"


def headline_measurements(
    where: str, run_seconds: Mapping[str, float], errors: Iterable[OutputError]
) -> tuple[Measurement, ...]:
    """Latency of a variant, and the largest error of each output; `where` names the variant."""
    found = []
    if fixture := standing_fixture(run_seconds):
        seconds = run_seconds[fixture]
        found.append(Measurement(name=LATENCY, subject=where, value=seconds, unit="s"))
    largest: dict[str, float] = {}
    for error in errors:
        largest[error.output] = max(error.max_abs, largest.get(error.output, 0.0))
    found += [
        Measurement(name=ERROR, subject=f"{where}, output {output!r}", value=value, unit="")
        for output, value in largest.items()
        # The largest float stands for what cannot be measured.
        if value < sys.float_info.max
    ]
    return tuple(found)


def task_measurements(task: TaskResult, where: str) -> tuple[Measurement, ...]:
    """The metric of a variant on the labelled set, and the original's."""
    return (
        Measurement(name=task.metric, subject=where, value=task.variant, unit=""),
        Measurement(
            name=f"{task.metric}{_OF_ORIGINAL}", subject=where, value=task.original, unit=""
        ),
    )


def metrics_of(measurements: Iterable[Measurement]) -> set[str]:
    """The names of the metrics that were measured on a labelled set."""
    return {
        each.name.removesuffix(_OF_ORIGINAL)
        for each in measurements
        if each.name.endswith(_OF_ORIGINAL)
    }


@record
class Beside:
    """An earlier artifact, whose figures stand beside those of a run."""

    artifact: Annotated[str, "path, as it was given"]
    artifact_id: Annotated[str, "sha256 of aotc.json; empty: it cannot be read"] = ""
    refused: Annotated[str, "why it is not verified; empty: it is"] = ""
    measurements: Annotated[tuple[Measurement, ...], "what it says of itself"] = ()


@record
class NoticedFinding:
    """Something that was noticed and refuses nothing."""

    code: str
    title: str
    what: str
    where: str = ""
    place: Annotated[Place | None, "None: in no file"] = None


@record
class RunReport:
    """`--report FILE` of `build`, `verify`, `check-models`, `bench` and `fleet`, as JSON."""

    schema: Literal["aotc.report/1"] = "aotc.report/1"
    tool_version: str
    command: Annotated[str, "such as build"]
    outcome: Annotated[
        Literal["passed", "failed", "error"],
        "failed: a gate says no; error: nothing could be judged to the end",
    ]
    exit_status: int
    model: Annotated[str, "path of the model or folder; empty: none was given"] = ""
    model_sha256: Annotated[str, "of the model's file; empty: not known"] = ""
    profile: Annotated[str, "name or path, as it was given; empty: none"] = ""
    target: str = ""
    artifact: Annotated[str, "path; empty: there is none"] = ""
    artifact_id: Annotated[str, "sha256 of aotc.json; empty: there is none"] = ""
    gates: Annotated[tuple[Gate, ...], "all that were judged, in the order of the profile"] = ()
    refusals: Annotated[tuple[Refusal, ...], "every refusal, the main one first"] = ()
    findings: tuple[NoticedFinding, ...] = ()
    measurements: Annotated[tuple[Measurement, ...], "what was measured"] = ()
    beside: Annotated[Beside | None, "None: no earlier artifact was given"] = None
    blamed: Annotated[
        tuple[Blamed, ...], "of variants in a lower precision: the nodes to blame for their errors"
    ] = ()
    stages: Annotated[Mapping[str, float], "seconds by stage"] = field(default_factory=dict)
    seconds: float = 0.0
    answer: Annotated[Json, "of a fleet: what the command prints with --json"] = None


class Journal:
    """What a build judged and measured so far, which is kept even if nothing is built.

    Gates and measurements are by name and subject: what is judged again replaces the former.
    `model_sha256` and `target` are empty until they are known; `stages` are seconds by stage.
    """

    def __init__(self) -> None:
        """A journal in which nothing is written yet."""
        self.model_sha256 = ""
        self.target = ""
        self.stages: Mapping[str, float] = {}
        self._gates: dict[tuple[str, str], Gate] = {}
        self._measurements: dict[tuple[str, str], Measurement] = {}
        self._findings: dict[Finding, None] = {}
        self._blamed: dict[str, Blamed] = {}

    def judged(self, gates: Iterable[Gate]) -> None:
        """Write down gates, those that passed included."""
        self._gates.update({(gate.name, gate.subject): gate for gate in gates})

    def forget(self, subject: str) -> None:
        """Forget what was judged of `subject` and of its parts: it is judged anew."""
        self._gates = {key: gate for key, gate in self._gates.items() if not _of(gate, subject)}

    def left_out(self, subject: str) -> None:
        """`subject` is not in the artifact: what it breached was measured, and refuses nothing.

        Nor is it proven or not.
        """
        self._gates.pop((PROOF, subject), None)
        for key, gate in self._gates.items():
            if _of(gate, subject) and gate.status == "failed":
                text = f"{gate.measured}; the variant is left out".lstrip("; ")
                self._gates[key] = replace(gate, status="not-judged", measured=text)

    def measured(self, measurements: Iterable[Measurement]) -> None:
        """Write down what was measured."""
        self._measurements.update(
            {(measurement.name, measurement.subject): measurement for measurement in measurements}
        )

    def noticed(self, findings: Iterable[Finding]) -> None:
        """Write down findings; each stands there once."""
        self._findings.update(dict.fromkeys(findings))

    def withdrawn(self, findings: Iterable[Finding]) -> None:
        """Forget findings: what they are about is analyzed anew."""
        for finding in findings:
            self._findings.pop(finding, None)

    def blames(self, blamed: Blamed) -> None:
        """Write down which nodes of a variant are to blame; what was said of it before is void."""
        self._blamed[blamed.variant] = blamed

    @property
    def blamed(self) -> tuple[Blamed, ...]:
        """By variant, which nodes are to blame, as was found last."""
        return tuple(self._blamed.values())

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates, by the line of the profile that states them; others stay in their order."""
        gates = tuple(self._gates.values())
        return tuple(sorted(gates, key=lambda gate: gate.place.line if gate.place else sys.maxsize))

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What was measured, in that order."""
        return tuple(self._measurements.values())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was noticed, in that order."""
        return tuple(self._findings)


def _of(gate: Gate, subject: str) -> bool:
    return gate.subject == subject or gate.subject.startswith(f"{subject}, ")
