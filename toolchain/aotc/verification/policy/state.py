"""What this user has seen, so that nothing older is taken for new: sequences, releases, time.

One canonical JSON file, `aotc/trust-state.json` in $XDG_STATE_HOME or ~/.local/state.  It is
changed under a lock of its own and replaced in one step after it is on the disk, so that neither
a crash nor another process leaves half of it or takes anything back.  What cannot be read is
refused (G035) and never begun anew.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from aotc.contract.attestations import Instant, instant, parse_instant
from aotc.contract.canonical import canonical_json
from aotc.contract.parsing import Bounds, ParseError, Problem, decode, encode, record, strict_json
from aotc.contract.policy_decision import ReleaseOf
from aotc.contract.trust_policy import Sha256
from aotc.errors import AotcError
from aotc.verification.policy.release import is_older, rank

MAX_STATE_BYTES: Final = 16 << 20
CLOCK_SLACK: Final = timedelta(hours=1)
# The latest time is written at most this often where nothing else is new.
_TICK: Final = timedelta(minutes=1)


@record
class SeenPolicy:
    """The policy of a name with the highest sequence."""

    sequence: Annotated[int, Bounds(1)]
    sha256: Sha256


@record
class SeenState:
    """The whole file."""

    schema: Literal["aotc.trust-state/1"] = "aotc.trust-state/1"
    latest: Annotated[Instant | None, "the latest time that the clock has shown"] = None
    policies: Annotated[Mapping[str, SeenPolicy], "by name"] = field(default_factory=dict)
    artifacts: Annotated[Mapping[str, ReleaseOf], "the latest release accepted, by name"] = field(
        default_factory=dict
    )

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        try:
            if self.latest is not None:
                parse_instant(self.latest)
            for each in self.artifacts.values():
                rank(each)
        except ValueError as error:
            return [Problem("", str(error))]
        return []


@dataclass(frozen=True, slots=True)
class StateFile:
    """The state of this user."""

    path: Path

    def read(self) -> SeenState:
        """What was seen; nothing where the file is not there.  Raises G035, I046."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_STATE_BYTES + 1)
        except FileNotFoundError:
            return SeenState()
        except OSError as error:
            raise self._unusable("cannot be read", str(error.strerror)) from None
        try:
            return decode(SeenState, strict_json(data, limit=MAX_STATE_BYTES))
        except ParseError as error:
            if error.problems[0].code:
                raise AotcError(
                    error.problems[0].code,
                    "the trust state cannot be read",
                    where=str(self.path),
                    found=error.problems[0].what,
                ) from None
            raise self._unusable("is damaged", str(error.problems[0])) from None

    def note_policy(self, name: str, seen: SeenPolicy, now: datetime, *, exact: bool) -> None:
        """Take a policy, and remember it and the time.

        Raises G036 where the clock went back, and G022 where a higher sequence was seen, or with
        `exact` the same sequence with other content.
        """
        with self._locked():
            state = self.read()
            check_clock(state, now)
            known = state.policies.get(name)
            check_policy(known, name, seen, exact=exact)
            changed = state
            if known is None or known != seen:
                changed = replace(state, policies={**state.policies, name: seen})
            self._keep(state, changed, now)

    def note_artifact(
        self, name: str, release: ReleaseOf, now: datetime, *, allowed: bool
    ) -> ReleaseOf | None:
        """Take a release of an artifact, and remember it: the latest one before.

        Raises G030 where a later one was seen and this one is not `allowed`, and G036.
        """
        with self._locked():
            state = self.read()
            check_clock(state, now)
            known = state.artifacts.get(name)
            check_artifact(known, name, release, allowed=allowed)
            changed = state
            if known is None or is_older(known, release):
                changed = replace(state, artifacts={**state.artifacts, name: release})
            self._keep(state, changed, now)
            return known

    def _keep(self, before: SeenState, after: SeenState, now: datetime) -> None:
        latest = parse_instant(before.latest) if before.latest is not None else None
        if after is before and latest is not None and now - latest < _TICK:
            return
        if latest is None or now > latest:
            after = replace(after, latest=instant(now))
        data = canonical_json(encode(after, full=True))
        try:
            decode(SeenState, strict_json(data, limit=MAX_STATE_BYTES))
        except ParseError as error:
            # What cannot be read back would lock this user out of everything.
            raise self._unusable("would be damaged", str(error.problems[0])) from None
        self._write(data)

    def _write(self, data: bytes) -> None:
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise self._unusable("cannot be written", str(error.strerror)) from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """While no other process reads to change, or changes, the state."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self.path.with_name(f"{self.path.name}.lock")
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise self._unusable("cannot be locked", str(error.strerror)) from None
        try:
            try:
                _lock(descriptor)
            except OSError as error:
                raise self._unusable("cannot be locked", str(error.strerror)) from None
            yield
        finally:
            os.close(descriptor)

    def _unusable(self, what: str, found: str) -> AotcError:
        return AotcError("AOTC-G035", f"the trust state {what}", where=str(self.path), found=found)


def user_state() -> StateFile:
    """The state of this user; raises G035 where there is no home to keep it in."""
    stated = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification has relative paths ignored.
    if stated and Path(stated).is_absolute():
        return StateFile(Path(stated) / "aotc" / "trust-state.json")
    try:
        return StateFile(Path.home() / ".local" / "state" / "aotc" / "trust-state.json")
    except RuntimeError:
        raise AotcError(
            "AOTC-G035",
            "this user has no home folder for a trust state",
            mend="Set XDG_STATE_HOME.",
        ) from None


def check_clock(state: SeenState, now: datetime) -> None:
    """Raises G036 where `now` is more than an hour before what was seen."""
    if state.latest is not None and now < parse_instant(state.latest) - CLOCK_SLACK:
        raise AotcError(
            "AOTC-G036",
            "the clock is behind what it has shown before",
            expected=f"{state.latest} or later",
            found=instant(now),
        )


def check_policy(known: SeenPolicy | None, name: str, seen: SeenPolicy, *, exact: bool) -> None:
    """Raises G022 where `seen` is older than `known`, or not the same of one sequence."""
    if known is None or seen.sequence > known.sequence:
        return
    if seen.sequence < known.sequence:
        found = f"sequence {seen.sequence}"
        expected = f"sequence {known.sequence} or higher"
    elif exact and seen.sha256 != known.sha256:
        found = f"other content of sequence {seen.sequence}: sha256 {seen.sha256}"
        expected = f"sha256 {known.sha256}, or a higher sequence"
    else:
        return
    raise AotcError(
        "AOTC-G022",
        "a later policy of this name was used on this host",
        where=name,
        expected=expected,
        found=found,
    )


def check_artifact(
    known: ReleaseOf | None, name: str, release: ReleaseOf, *, allowed: bool
) -> None:
    """Raises G030 where `release` is older than `known` and not `allowed`."""
    if known is None or allowed or not is_older(release, known):
        return
    raise AotcError(
        "AOTC-G030",
        "a later release of this artifact was accepted on this host",
        where=name,
        expected=f"{known.kind} {known.value} or later",
        found=f"{release.kind} {release.value}" if release.value else "no version",
    )


def _lock(descriptor: int) -> None:
    """Wait until the file is this process's alone; closing it gives it back."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
