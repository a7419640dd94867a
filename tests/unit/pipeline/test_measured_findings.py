"""What measurements say to the user: the times of both forms, and calls with other bytes."""

from __future__ import annotations

import pytest

from aotc.pipeline.build import measured_findings
from aotc.pipeline.gates import repeated_fixture
from aotc.spec.evidence import (
    DifferingOutput,
    Evidence,
    FormTiming,
    MixedCalls,
    ObservedMemory,
    Repeats,
    VariantEvidence,
)
from aotc.spec.payload import Finding
from aotc.spec.profile_files import load_profile


def findings_of(measured: Evidence) -> tuple[Finding, ...]:
    return measured_findings(measured, load_profile("edge"))


def evidence(variant: VariantEvidence) -> Evidence:
    return Evidence(built_at="", stages={}, variants=(variant,), host={})


def timed(seconds: float, *, same_bytes: bool = True) -> Evidence:
    timing = FormTiming(
        other="portable", fixture="opt", seconds=seconds, other_seconds=1.0, same_bytes=same_bytes
    )
    return evidence(VariantEvidence(name="portable-vnni", timed_against=timing))


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(0.35, "AOTC-O017"), (0.96, "AOTC-O017"), (0.98, "AOTC-O018"), (1.4, "AOTC-O018")],
)
def test_a_form_that_gains_nothing_is_told(seconds: float, code: str) -> None:
    (found,) = findings_of(timed(seconds))
    assert (found.code, found.where) == (code, "variant portable-vnni")
    assert f"takes {seconds:.2f} of the time of portable" in found.what
    assert found.what.endswith("with the same bytes")


def test_other_bytes_of_the_second_form_are_told() -> None:
    (found,) = findings_of(timed(0.5, same_bytes=False))
    assert found.what.endswith("with other bytes, within the tolerance")


def repeats(*names: str, setting: str = "", differing: int = 1) -> Repeats:
    outputs = tuple(
        DifferingOutput(output=name, differing_values=3, total_values=8, max_abs=2e-6)
        for name in names
    )
    return Repeats(
        fixture="opt", runs=4, differing_runs=differing, outputs=outputs, setting=setting
    )


def test_equal_calls_are_no_finding() -> None:
    same = VariantEvidence(name="portable", repeats=repeats(differing=0))
    assert findings_of(evidence(same)) == ()
    assert findings_of(evidence(VariantEvidence(name="portable"))) == ()


def test_calls_without_a_remedy_say_so() -> None:
    variant = VariantEvidence(name="portable", repeats=repeats("a", "b", "c", "d"))
    (found,) = findings_of(evidence(variant))
    assert found.code == "AOTC-N040"
    assert found.what.startswith("1 of 4 equal calls had other bytes than the first: 3 of 8 values")
    assert "'d'" not in found.what
    assert found.what.endswith("...; no setting is known that could make them equal")


def test_the_slowest_fixture_that_is_quick_enough_is_repeated() -> None:
    assert repeated_fixture({"min": 0.1, "opt": 0.8, "max": 4.0}) == "opt"
    assert repeated_fixture({"min": 2.0, "max": 4.0}) == "min"


def mixed(first: int, last: int, private: tuple[int, int] = (10 << 20, 10 << 20)) -> ObservedMemory:
    return ObservedMemory(
        mixed=MixedCalls(
            calls=1000,
            planned_calls=1000,
            sizes=3,
            first_allocated=first,
            last_allocated=last,
            last_growth=37 if last > first else None,
            first_in_use=0,
            last_in_use=0,
            first_private=private[0],
            last_private=private[1],
        )
    )


def observed(memory: ObservedMemory) -> tuple[Finding, ...]:
    return findings_of(evidence(VariantEvidence(name="portable", memory=memory)))


def test_an_arena_that_grows_is_told() -> None:
    (found,) = observed(mixed(2_000_000, 3_000_000))
    assert (found.code, found.where) == ("AOTC-M016", "variant portable")
    assert found.what == (
        "arenas by 1.0 MB to 3.0 MB, last at call 37 in 1000 calls of 3 sizes, after the first "
        "round"
    )


def test_a_process_that_grows_beside_its_arenas_is_told() -> None:
    (found,) = observed(mixed(2_000_000, 2_000_000, (100_000_000, 150_000_000)))
    assert found.what.startswith("the process by 50.0 MB beside them in 1000 calls")


def test_what_arenas_and_noise_explain_is_no_growth_of_the_process() -> None:
    assert observed(mixed(2_000_000, 2_000_000, (100_000_000, 101_000_000))) == ()
    (found,) = observed(mixed(2_000_000, 52_000_000, (100_000_000, 151_000_000)))
    assert "process" not in found.what


def test_statistics_that_are_not_given_are_told() -> None:
    (found,) = observed(ObservedMemory(why_not="input 'x' is no tensor"))
    assert (found.code, found.what) == ("AOTC-M015", "input 'x' is no tensor")
    # Of another provider there is nothing to be known.
    assert observed(ObservedMemory(why_not="Nimbus has its own", elsewhere=True)) == ()
