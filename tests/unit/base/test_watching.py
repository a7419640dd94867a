"""What is told of stages and counts: to a function of one text, and to who wants to know more."""

from __future__ import annotations

import threading

import pytest

from aotc.base.progress import BYTES, Count, Reporter, Tally
from aotc.cli.progress import Stage, StageStack, counted, share
from aotc.pipeline.context import Clock


class Shown(StageStack):
    """Keeps what it is to show."""

    every = 0.005

    def __init__(self) -> None:
        super().__init__(None)
        self.lines: list[str] = []
        self.ticked = threading.Event()

    def began(self, stage: Stage) -> None:
        self.lines.append(f"began {stage.title}")

    def ended(self, stage: Stage, text: str) -> None:
        failed = ", not finished" if "not finished" in text else ""
        self.lines.append(f"ended {stage.title} in {len(self.under_way)} others{failed}")

    def noted(self, text: str) -> None:
        self.lines.append(f"noted {text}")

    def show_line(self, text: str) -> None:
        self.lines.append(f"told {text}")

    def tick(self) -> None:
        self.ticked.set()


def test_a_function_of_one_text_is_told_what_begins() -> None:
    told: list[str] = []
    clock = Clock(told.append)
    with clock.stage("prove", "native"):
        clock.announce("a step")
        clock.reporter.count(1, 2, "variants")
        clock.reporter.finished("an item", 1.0)
    with clock.reporter.counting("pack", "x", Tally(3, BYTES)):
        pass
    clock.reporter.begin_items("check", 2, "models")
    assert told == ["prove native", "a step", "pack x"]


def test_nobody_is_told_anything() -> None:
    reporter = Reporter(None)
    reporter.begin("prove")
    reporter.note("a step")
    reporter.end()


def test_a_watcher_is_told_what_ends_and_within_what() -> None:
    shown = Shown()
    clock = Clock(shown)
    with pytest.raises(ValueError), clock.stage("tune", "cpu"):
        with clock.stage("prove"):
            clock.announce("a step")
        raise ValueError
    shown.close(failed=False)
    assert shown.lines == [
        "began tune (cpu)",
        "began prove",
        "noted a step",
        "ended prove in 1 others",
        "ended tune (cpu) in 0 others, not finished",
    ]
    # A report tells how long also what failed took.
    assert list(clock.seconds) == ["prove", "tune"]


def test_a_watcher_that_is_called_ends_what_it_was_called_with_before() -> None:
    shown = Shown()
    shown("load")
    shown("run \x1b[2J")
    shown.close(failed=True)
    assert shown.lines == [
        "began load",
        "ended load in 0 others",
        "began run \\x1b[2J",
        "ended run \\x1b[2J in 0 others, not finished",
    ]


def test_time_passes_for_a_stage_that_is_under_way_only() -> None:
    shown = Shown()
    assert threading.active_count() == threading.active_count()
    shown.begin("prove", "")
    assert shown.ticked.wait(60)
    shown.end(failed=False)
    shown.close(failed=False)
    before = [each.name for each in threading.enumerate()]
    assert not [name for name in before if "_pass_time" in name]


def test_counts_are_within_one_another() -> None:
    shown = Shown()
    reporter = Reporter(shown)
    reporter.begin("tune")
    reporter.count(1, 4, "candidates")
    reporter.begin("prove")
    reporter.count(0, 2, "variants")
    reporter.count(1, 2, "variants")
    reporter.follow("fixtures", lambda: Count(5, 10, "fixtures"))
    reporter.follow("unknown", lambda: None)
    counts = shown.counts()
    assert [counted(each) for each in counts] == [
        "1 of 4 candidates",
        "1 of 2 variants",
        "5 of 10 fixtures",
    ]
    # (1 + (1 + 5/10) / 2) / 4
    assert share(counts) == 0.4375
    reporter.end()
    assert [counted(each) for each in shown.counts()] == ["1 of 4 candidates"]
    shown.close(failed=False)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], None),
        ([Count(3, None, "probes")], None),
        ([Count(1, 4, "candidates"), Count(3, None, "probes")], None),
        ([Count(0, 0, "models")], None),
        ([Count(4, 4, "models")], 1.0),
        # A job may tell its last step after the next thing has begun.
        ([Count(3, 4, "variants"), Count(9, 8, "fixtures")], 1.0),
    ],
)
def test_the_share_is_told_where_it_is_known(counts: list[Count], expected: float | None) -> None:
    assert share(counts) == expected


def test_bytes_have_units_of_their_own() -> None:
    tally = Tally(1_200_000_000, BYTES)
    tally.add(120_000_000)
    assert counted(tally.poll()) == "120.0 MB of 1.2 GB"
    assert counted(Count(17, None, "probes")) == "17 probes"
