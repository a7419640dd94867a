"""What a profile may state of how calls are measured."""

from __future__ import annotations

from typing import Any

import pytest

from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.profile import Profile, TelemetrySpec
from aotc.spec.profile_files import load_profile


def with_buckets(buckets: Any) -> Profile:
    stated = {**encode(load_profile("edge")), "telemetry": {"latency_buckets": buckets}}
    made: Profile = decode(Profile, stated)
    return made


def test_buckets_ascend() -> None:
    assert with_buckets([0.001, 1]).telemetry == TelemetrySpec(latency_buckets=(0.001, 1.0))
    assert load_profile("edge").telemetry == TelemetrySpec()


@pytest.mark.parametrize(
    ("buckets", "path", "what"),
    [
        ([0.1, 0.05], "telemetry.latency_buckets", "is not a list of ascending seconds above 0"),
        ([0.1, 0.1], "telemetry.latency_buckets", "is not a list of ascending seconds above 0"),
        ([0, 0.1], "telemetry.latency_buckets", "is not a list of ascending seconds above 0"),
        ([-1], "telemetry.latency_buckets[0]", "-1.0 is less than 0"),
        (["1ms"], "telemetry.latency_buckets[0]", "expected a number, found '1ms'"),
    ],
)
def test_others_are_refused(buckets: Any, path: str, what: str) -> None:
    with pytest.raises(ParseError) as caught:
        with_buckets(buckets)
    assert [(problem.path, problem.what) for problem in caught.value.problems] == [(path, what)]
