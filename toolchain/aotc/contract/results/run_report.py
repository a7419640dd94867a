"""What one run of a command judged and measured: every form of a report is made of this record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.results.nodes.blamed import Blamed
from aotc.contract.results.reports import Refusal
from aotc.errors import Place
from aotc.records import field, record

GateStatus = Literal["passed", "failed", "not-judged"]


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
class Figure:
    """One number that was measured."""

    name: str
    subject: str
    value: float
    unit: str


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
    """`--report FILE` of `build`, `verify`, `check-models` and `bench`, as JSON."""

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
    breaches: Annotated[tuple[Refusal, ...], "every refusal, the main one first"] = ()
    findings: tuple[NoticedFinding, ...] = ()
    figures: Annotated[tuple[Figure, ...], "what was measured"] = ()
    blamed: Annotated[
        tuple[Blamed, ...], "of variants in a lower precision: the nodes to blame for their errors"
    ] = ()
    stages: Annotated[Mapping[str, float], "seconds by stage"] = field(default_factory=dict)
    seconds: float = 0.0
