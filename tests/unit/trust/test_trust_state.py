"""What is remembered survives other processes and crashes, and is never lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trust_state_jobs
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.spec.attestations import format_instant, parse_instant
from aotc.spec.reports import ArtifactRelease
from aotc.trust.policy.state import (
    MAX_STATE_BYTES,
    SeenPolicy,
    StateFile,
    is_below,
    is_older,
    is_version,
)

TOOLCHAIN = ROOT / "toolchain"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def start(job: str, place: Path, number: int, steps: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, trust_state_jobs.__file__, job, str(place), str(number), str(steps)]
    return subprocess.Popen(words, env={"PYTHONPATH": str(TOOLCHAIN)}, stderr=subprocess.PIPE)


def test_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    place = tmp_path / "aotc" / "state.json"
    jobs = [start("climb", place, number, 12) for number in range(4)]
    for job in jobs:
        _, said = job.communicate(timeout=600)
        assert job.returncode == 0, said
    state = StateFile(place).read()
    assert {name: each.sequence for name, each in state.policies.items()} == {
        "shared": 12, "own-0": 12, "own-1": 12, "own-2": 12, "own-3": 12,
    }  # fmt: skip
    assert {name: each.value for name, each in state.artifacts.items()} == {
        f"artifact-{number}": "1.12" for number in range(4)
    }
    assert sorted(path.name for path in place.parent.iterdir()) == ["state.json", "state.json.lock"]


def test_a_killed_process_leaves_the_last_complete_state(tmp_path: Path) -> None:
    place = tmp_path / "state.json"
    # The very first file may get its name without replacing anything.
    first = SeenPolicy(sequence=1, sha256="0" * 64)
    StateFile(place).note_policy("first", first, datetime.now(UTC), exact=True)
    job = start("die", place, 0, 4)
    job.communicate(timeout=600)
    assert job.returncode == -signal.SIGKILL
    state = StateFile(place).read()
    # Three notes a step: the fourth write is the second step's first.
    assert state.policies["shared"].sequence == 2
    assert state.policies["own-0"].sequence == 1
    assert state.artifacts["artifact-0"].value == "1.1"
    # Its lock ended with the process.
    StateFile(place).note_policy(
        "own-0", SeenPolicy(sequence=2, sha256="0" * 64), datetime.now(UTC), exact=True
    )
    assert StateFile(place).read().policies["own-0"].sequence == 2


def test_the_latest_time_only_increases(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json")
    seen = ArtifactRelease(kind="version", value="1")

    def note(name: str, now: datetime) -> None:
        state.note_artifact(name, seen, now, allowed=False)

    note("a", NOW)
    note("b", NOW - timedelta(minutes=59))
    assert state.read().latest == "2027-01-01T00:00:00Z"
    with pytest.raises(AotcError) as caught:
        note("c", NOW - timedelta(minutes=61))
    assert caught.value.code == "AOTC-G036"
    with pytest.raises(AotcError) as caught:
        state.note_policy(
            "c", SeenPolicy(sequence=1, sha256="0" * 64), NOW - timedelta(minutes=61), exact=True
        )
    assert caught.value.code == "AOTC-G036"
    note("a", NOW + timedelta(hours=3))
    assert state.read().latest == "2027-01-01T03:00:00Z"
    assert set(state.read().artifacts) == {"a", "b"}


def test_a_policy_alone_does_not_change_the_latest_time(tmp_path: Path) -> None:
    """Nothing was accepted under it yet, and the clock may be wrong."""
    state = StateFile(tmp_path / "state.json")
    state.note_policy("a", SeenPolicy(sequence=1, sha256="0" * 64), NOW, exact=True)
    assert state.read().latest is None
    assert set(state.read().policies) == {"a"}


def test_a_state_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    seen = SeenPolicy(sequence=1, sha256="0" * 64)
    for place in (tmp_path / "file" / "state.json", tmp_path):
        with pytest.raises(AotcError) as caught:
            StateFile(place).note_policy("a", seen, NOW, exact=True)
        assert caught.value.code == "AOTC-G035"


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("a", ArtifactRelease(kind="built", value="999-01-01T00:00:00Z")),
        ("a", ArtifactRelease(kind="approved", value="2027-13-01T00:00:00Z")),
        ("a", ArtifactRelease(kind="version", value="\u00b2")),
        ("a", ArtifactRelease(kind="version", value="1" * 5000)),
        ("a" * MAX_STATE_BYTES, ArtifactRelease(kind="version", value="1")),
    ],
    ids=["year", "month", "letter", "digits", "name"],
)
def test_a_state_that_would_not_read_back_is_not_written(
    tmp_path: Path, name: str, release: ArtifactRelease
) -> None:
    state = StateFile(tmp_path / "state.json")
    state.note_artifact("good", ArtifactRelease(kind="version", value="1"), NOW, allowed=False)
    before = state.path.read_bytes()
    with pytest.raises(AotcError) as caught:
        state.note_artifact(name, release, NOW, allowed=False)
    assert caught.value.code == "AOTC-G035"
    assert len(str(caught.value)) < 1000
    assert state.path.read_bytes() == before
    state.note_artifact("good", ArtifactRelease(kind="version", value="2"), NOW, allowed=False)
    assert state.read().artifacts["good"].value == "2"


@pytest.mark.parametrize("year", [1, 999, 1000, 9999])
def test_a_time_in_any_year_is_read_as_it_was_written(year: int) -> None:
    time = datetime(year, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    text = format_instant(time)
    assert text == f"{year:04}-12-31T23:59:59Z"
    assert parse_instant(text) == time.replace(microsecond=0)


def test_times_and_versions_have_only_ascii_digits() -> None:
    with pytest.raises(ValueError, match="is not like"):
        parse_instant("202\u0667-01-31T00:00:00Z")
    assert [text for text in ("0", "1.4.0", "999999999.0.0.1") if not is_version(text)] == []
    bad = ("", "\u00b2", "1.\u0663", "1" * 10, "1.2.3.4.5", "1.", "1.x", "v1", "1\n", "1.4.0-rc1")
    assert [text for text in bad if is_version(text)] == []


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        (("version", "1.9.9"), ("version", "1.10")),
        (("version", "1"), ("version", "1.0.1")),
        (("built", ""), ("built", "2026-01-01T00:00:00Z")),
        (("built", "2026-01-01T00:00:00Z"), ("approved", "2027-01-01T00:00:00Z")),
        (("approved", "2026-01-01T00:00:00Z"), ("built", "2027-01-01T00:00:00Z")),
        (("approved", "2026-12-31T23:59:59Z"), ("approved", "2027-01-01T00:00:00Z")),
    ],
)
def test_releases_are_ordered(lower: tuple[str, str], higher: tuple[str, str]) -> None:
    one = ArtifactRelease(kind=lower[0], value=lower[1])  # type: ignore[arg-type]
    other = ArtifactRelease(kind=higher[0], value=higher[1])  # type: ignore[arg-type]
    assert is_older(one, other)
    assert not is_older(other, one)
    assert not is_older(one, one)


def test_between_a_version_and_none_only_times_tell_which_is_older() -> None:
    built = ArtifactRelease(kind="built", value="2026-06-01T00:00:00Z")
    unknown = ArtifactRelease(kind="version", value="9")
    before = ArtifactRelease(kind="version", value="9", made_at="2026-01-01T00:00:00Z")
    after = ArtifactRelease(kind="version", value="0", made_at="2027-01-01T00:00:00Z")
    older = [(before, built), (built, after)]
    releases = (built, unknown, before, after)
    found = [(one, two) for one in releases for two in (built,) if is_older(one, two)]
    found += [(built, two) for two in releases if is_older(built, two)]
    assert found == older


def test_what_cannot_be_compared_with_the_minimum_is_below_it() -> None:
    version = ArtifactRelease(kind="version", value="1.4.0")
    approved = ArtifactRelease(kind="approved", value="2027-01-01T00:00:00Z")
    assert not is_below(version, "1.4")
    assert is_below(version, "1.4.1")
    assert is_below(version, "2020-01-01T00:00:00Z")
    assert not is_below(approved, "2027-01-01T00:00:00Z")
    assert is_below(approved, "2027-01-01T00:00:01Z")
    assert is_below(approved, "0")
    assert is_below(ArtifactRelease(kind="built", value=""), "2020-01-01T00:00:00Z")
