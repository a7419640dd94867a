"""Counters of a loaded model's calls, as `aotc run --metrics FILE.json` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.records import record


@record
class GuardCount:
    """Calls that were refused or failed for one reason at one place."""

    code: str
    where: Annotated[str, "dim or input; empty where the refusal names none"]
    calls: int


@record
class VariantTelemetry:
    """Calls that one variant took."""

    calls: int
    routes: Annotated[Mapping[str, int], "calls by why it took them"]
    elements_given: Annotated[int, "of inputs, as callers passed them"]
    elements_added: Annotated[int, "by padding"]
    padding_share: Annotated[float, "of the elements that were run, those that padding added"]
    first_request_seconds: Annotated[float | None, "None before the first"]
    first_request_delta_seconds: Annotated[
        float | None, "first request less the median of the latest"
    ]
    seconds: Annotated[float, "of all calls together"]
    latency_seconds: Annotated[
        Mapping[str, float], "p50, p90, p99 and max of the latest; empty before the first"
    ]


@record
class TelemetryReport:
    """`ReadyModel.telemetry` at one moment: every counter since the load."""

    schema: Literal["aotc.telemetry/1"] = "aotc.telemetry/1"
    calls: Annotated[int, "that answered"]
    out_of_domain: Annotated[int, "calls in which some dim left what was proven"]
    out_of_domain_by_dim: Mapping[str, int]
    rejects: Annotated[Mapping[str, int], "calls that were refused or failed, by code"]
    guards: Annotated[tuple[GuardCount, ...], "the same, by code and place"]
    routes: Annotated[Mapping[str, int], "calls by why a variant took them"]
    elements_given: int
    elements_added: int
    padding_share: float
    first_request_seconds: float | None
    latency_seconds: Mapping[str, float]
    variants: Annotated[Mapping[str, VariantTelemetry], "by name, all that are loaded"]
