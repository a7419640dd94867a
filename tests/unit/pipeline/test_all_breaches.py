"""The one refusal of a build that fails gates, and what is written down of them."""

from __future__ import annotations

from aotc.base.errors import AotcError, Place
from aotc.pipeline.build import all_breaches
from aotc.pipeline.gates import refused_gate
from aotc.spec.run_report import Gate, Journal


def breach(code: str, what: str, line: int | None, *, found: str = "") -> AotcError:
    place = Place(file="p.yaml", line=line) if line else None
    return AotcError(code, what, where="variant a", found=found, place=place)


def test_breaches_are_in_the_order_of_the_profile() -> None:
    first = breach("AOTC-N001", "differs", 9)
    first.also = (breach("AOTC-M002", "too much", 12), breach("AOTC-P002", "share", 7))
    made = all_breaches([first, breach("AOTC-M001", "too large", 8)])
    told = [(each.code, each.place.line) for each in (made, *made.also) if each.place]
    assert told == [("AOTC-P002", 7), ("AOTC-M001", 8), ("AOTC-N001", 9), ("AOTC-M002", 12)]
    assert all(not each.also for each in made.also)
    # What was given stays as it was: its first form may be tried again.
    assert len(first.also) == 2


def test_a_breach_is_told_once() -> None:
    """A variant's first form and its last one breach the same budget, by another measure."""
    first = breach("AOTC-M002", "too much", 3, found="5 bytes")
    first.also = (breach("AOTC-M002", "too much", 3, found="6 bytes"),)
    made = all_breaches([first])
    assert (made.found, made.also) == ("5 bytes", ())


def test_a_failed_gate_decides_the_exit_status() -> None:
    crash = AotcError("AOTC-I014", "no end", place=Place(file="p.yaml", line=1))
    made = all_breaches([crash, breach("AOTC-N001", "differs", None)])
    assert (made.code, made.exit_status) == ("AOTC-N001", 1)
    assert [each.code for each in made.also] == ["AOTC-I014"]


def gate(name: str, subject: str, status: str = "failed", line: int = 1) -> Gate:
    place = Place(file="p.yaml", line=line)
    return Gate(name=name, subject=subject, status=status, measured="2", place=place)  # type: ignore[arg-type]


def test_what_is_judged_again_replaces_what_was_said() -> None:
    journal = Journal()
    journal.judged([gate("b", "variant a", line=9), gate("a", "variant a, output 'y'", line=4)])
    journal.judged([gate("b", "variant a", "passed", line=9)])
    judged = [(each.name, each.status) for each in journal.gates]
    assert judged == [("a", "failed"), ("b", "passed")]
    journal.forget("variant a")
    assert journal.gates == ()


def test_what_a_variant_breaches_that_is_left_out_is_kept_and_refuses_nothing() -> None:
    journal = Journal()
    journal.judged([gate("a", "variant a"), gate("a", "variant ab")])
    journal.judged([gate("b", "variant a", "passed")])
    journal.left_out("variant a")
    assert [(each.subject, each.status) for each in journal.gates] == [
        ("variant a", "not-judged"),
        ("variant ab", "failed"),
        ("variant a", "passed"),
    ]
    assert journal.gates[0].measured == "2; the variant is left out"


def test_what_could_not_be_run_is_of_its_variant_wherever_the_error_was() -> None:
    """An error of the session names a file of this attempt; the next attempt judges anew."""
    journal = Journal()
    error = AotcError("AOTC-R008", "no session", where="/tmp/aotc-work/a.onnx", found="a kernel")
    journal.judged([refused_gate("a", error)])
    assert [(each.subject, each.measured) for each in journal.gates] == [("variant a", "a kernel")]
    journal.left_out("variant a")
    assert [each.status for each in journal.gates] == ["not-judged"]
    journal.forget("variant a")
    assert journal.gates == ()
