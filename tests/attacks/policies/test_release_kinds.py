"""Releases with a version, and those without: a host never takes one for the later of the other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from policy_host import loaded
from policy_setting import Setting, ago

from aotc.base.errors import AotcError
from aotc.spec.reports import ArtifactRelease
from aotc.trust.gate import verify
from aotc.trust.policy.state import user_state


@dataclass(frozen=True)
class Release:
    """What the attestations of one release say; days before now, None: nothing."""

    version: str = ""
    built: int | None = None
    approved: int | None = None


NOTHING = Release()
OLD, NEW = Release(built=9), Release(built=3)
APPROVED_OLD, APPROVED_NEW = Release(built=9, approved=8), Release(built=9, approved=2)
V1_OLD, V1_NEW = Release("1.0.0", built=9), Release("1.0.0", built=2)
V2_OLD, V2_NEW = Release("2.0.0", built=8), Release("2.0.0", built=1)
V1_UNDATED = Release("1.0.0")

LATER = "a later release of this artifact was accepted on this host"
UNKNOWN = "which is later cannot be known"


def say(host: Setting, release: Release) -> None:
    """Let the artifact be this release."""
    folder = host.artifact / "attestations"
    for path in (*folder.glob("approval*"), *folder.glob("provenance*")):
        path.unlink()
    if release.version or release.built is not None:
        finished = "no time" if release.built is None else ago(days=release.built)
        host.provenance(version=release.version, finished=finished)
    if release.approved is not None:
        host.approve("ops", issued_at=ago(days=release.approved))


def change(host: Setting, **fields: Any) -> None:
    """Change the policy, which gets its next sequence."""
    host.policy.update(fields, sequence=host.policy["sequence"] + 1)
    host.write()


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        # Versions among versions, whenever they were made.
        (V1_NEW, V2_OLD, ""),
        (V1_NEW, V1_OLD, ""),
        (V2_OLD, V1_NEW, LATER),
        (V1_UNDATED, V2_OLD, ""),
        # Times among times, of approvals or of builds.
        (OLD, NEW, ""),
        (NEW, OLD, LATER),
        (OLD, APPROVED_NEW, ""),
        (NEW, APPROVED_OLD, LATER),
        (APPROVED_NEW, NEW, LATER),
        (APPROVED_OLD, NEW, ""),
        (APPROVED_NEW, NOTHING, LATER),
        (OLD, NOTHING, LATER),
        # What says nothing has kept nothing out.
        (NOTHING, OLD, ""),
        (NOTHING, V1_OLD, ""),
        # From one kind to the other.
        (NEW, V1_OLD, LATER),
        (NEW, V2_NEW, UNKNOWN),
        (NEW, V1_UNDATED, UNKNOWN),
        (APPROVED_NEW, V1_OLD, LATER),
        (APPROVED_OLD, V1_NEW, UNKNOWN),
        (V1_NEW, OLD, LATER),
        (V1_NEW, APPROVED_OLD, LATER),
        (V1_OLD, NEW, UNKNOWN),
        (V1_OLD, APPROVED_NEW, UNKNOWN),
        (V1_UNDATED, NEW, UNKNOWN),
        (V1_OLD, NOTHING, UNKNOWN),
    ],
)
def test_each_transition(first: Release, second: Release, refused: str, host: Setting) -> None:
    host.write()
    say(host, first)
    assert host.codes("prod") == []
    before = user_state().read().artifacts["linear"]
    say(host, second)
    refusals = host.verify("prod").refusals
    assert [item.code for item in refusals] == (["AOTC-G030"] if refused else [])
    ended = loaded(host, channel="prod")
    assert (ended == "AOTC-G030") if refused else not ended.startswith("AOTC-")
    if refused:
        assert refusals[0].what.endswith(refused)
        assert ("min_version" in refusals[0].fix) == (refused == UNKNOWN)
        assert user_state().read().artifacts["linear"] == before
        say(host, first)
        assert host.codes("prod") == []


def test_a_policy_lists_the_first_release_of_the_other_kind(host: Setting) -> None:
    """From then on versions count, and what has none is the other kind."""
    host.write()
    say(host, NEW)
    assert host.codes("prod") == []
    say(host, V1_NEW)
    assert host.codes("prod") == ["AOTC-G030"]
    change(host, rollback=[host.id])
    assert host.codes("prod") == []
    assert user_state().read().artifacts["linear"].value == "1.0.0"
    change(host, rollback=[])
    say(host, V2_NEW)
    assert host.codes("prod") == []
    for older in (V1_NEW, NEW, OLD, APPROVED_NEW, NOTHING):
        say(host, older)
        assert host.codes("prod") == ["AOTC-G030"], older


def test_going_back_by_the_policy_forgets_nothing(host: Setting) -> None:
    """An older release of the other kind that the policy lists does not become the latest."""
    host.write()
    say(host, NEW)
    assert host.codes("prod") == []
    say(host, V1_OLD)
    change(host, rollback=[host.id])
    assert host.codes("prod") == []
    change(host, rollback=[])
    assert host.codes("prod") == ["AOTC-G030"]
    say(host, NEW)
    assert host.codes("prod") == []


@pytest.mark.parametrize("where", ["rule", "names"])
def test_a_minimum_says_from_where_on_the_other_kind_counts(where: str, host: Setting) -> None:
    host.write()
    say(host, NEW)
    assert host.codes("prod") == []

    def minimum(text: str) -> None:
        if where == "rule":
            host.rule["min_version"] = text
            change(host)
        else:
            change(host, min_versions={"linear": text})

    minimum("2.0.0")
    for refused in (V1_NEW, NEW, NOTHING):
        say(host, refused)
        assert "AOTC-G030" in host.codes("prod"), refused
    say(host, V2_OLD)
    assert host.codes("prod") == []
    assert user_state().read().artifacts["linear"].value == "2.0.0"
    # And back: a minimum that is a time, and times are still those that were seen.
    minimum(ago(days=5))
    for refused in (V2_NEW, OLD, Release(built=4)):
        say(host, refused)
        assert "AOTC-G030" in host.codes("prod"), refused
    say(host, NEW)
    assert host.codes("prod") == []
    assert user_state().read().artifacts["linear"].kind == "built"


def test_a_state_without_times_of_versions_is_read(host: Setting) -> None:
    """Earlier releases did not remember them."""
    host.write()
    say(host, V1_OLD)
    assert host.codes("prod") == []
    path = user_state().path
    known = user_state().read().artifacts["linear"]
    path.write_text(path.read_text().replace(f'"made_at":"{known.made_at}",', ""))
    assert user_state().read().artifacts["linear"].made_at == ""
    say(host, NEW)
    assert host.codes("prod") == ["AOTC-G030"]
    say(host, V1_OLD)
    assert host.codes("prod") == []
    assert user_state().read().artifacts["linear"].made_at >= known.made_at


def test_an_option_that_remembers_nothing_still_compares(host: Setting) -> None:
    host.write()
    say(host, NEW)
    assert host.codes("prod") == []
    say(host, V1_OLD)
    report = verify(host.artifact, trust=host.path, channel="prod", unsafe_no_trust_state=True)
    assert [item.code for item in report.refusals] == ["AOTC-G030"]


def test_another_process_that_accepted_the_other_kind_meanwhile(host: Setting) -> None:
    """The state is compared again under its lock, when a release is remembered."""
    host.write()
    say(host, V2_NEW)
    state, now = user_state(), datetime.now(UTC)
    built = ArtifactRelease(kind="built", value=ago(days=1))
    state.note_artifact("linear", built, now, allowed=False)
    version = ArtifactRelease(kind="version", value="9.0", made_at=ago(days=2))
    with pytest.raises(AotcError) as caught:
        state.note_artifact("linear", version, now, allowed=False)
    assert caught.value.code == "AOTC-G030"
