"""Counters of the calls of a loaded model, as `aotc run --metrics FILE.json` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.records import record


@record
class GuardCount:
    """Calls that were refused or failed for one reason at one place."""

    code: str
    where: Annotated[str, "dim or input; empty if the refusal names none"]
    calls: int


@record
class VariantTelemetry:
    """Calls that ran on one variant."""

    calls: int
    routes: Annotated[Mapping[str, int], "calls, by the reason why this variant ran them"]
    elements_given: Annotated[int, "elements of inputs, as callers passed them"]
    elements_added: Annotated[int, "elements that padding added"]
    padding_share: Annotated[float, "padding's share of the elements that ran"]
    first_request_seconds: Annotated[float | None, "None before the first request"]
    first_request_delta_seconds: Annotated[
        float | None, "first request minus the median of the latest"
    ]
    seconds: Annotated[float, "total of all calls"]
    latency_seconds: Annotated[
        Mapping[str, float], "p50, p90, p99 and max of the latest calls; empty before the first"
    ]


@record
class TelemetryReport:
    """What `ReadyModel.telemetry` returns: every counter since the model was loaded."""

    schema: Literal["aotc.telemetry/1"] = "aotc.telemetry/1"
    calls: Annotated[int, "calls that returned outputs"]
    out_of_domain: Annotated[int, "calls with a dim outside the proven range"]
    out_of_domain_by_dim: Mapping[str, int]
    rejects: Annotated[Mapping[str, int], "calls that were refused or failed, by reason code"]
    guards: Annotated[
        tuple[GuardCount, ...], "calls that were refused or failed, by code and place"
    ]
    routes: Annotated[Mapping[str, int], "calls, by the reason why a variant ran them"]
    elements_given: int
    elements_added: int
    padding_share: float
    first_request_seconds: float | None
    latency_seconds: Mapping[str, float]
    variants: Annotated[Mapping[str, VariantTelemetry], "loaded variants by name"]
