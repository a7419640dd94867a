"""What this user has seen, so that nothing older is taken for new: sequences, releases, time.

One canonical JSON file, `aotc/trust-state.json` in $XDG_STATE_HOME or ~/.local/state.  It is
changed under a lock of its own and replaced in one step after it is on the disk, so that neither
a crash nor another process leaves half of it or takes anything back.  What is there and cannot be
read is refused (G035) and never begun anew.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from aotc.contract.codec.canonical import canonical_json
from aotc.contract.codec.parsing import Bounds, ParseError, Problem, decode, encode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.manifest.payload_files import Sha256
from aotc.contract.results.policy_decision import ArtifactRelease
from aotc.contract.trust.attestations import Instant, format_instant, parse_instant
from aotc.errors import AotcError
from aotc.files.folders import PRIVATE, belongs_to_others, make_folder
from aotc.files.locking import locked
from aotc.files.user_folders import state_folder
from aotc.files.writing import write_atomically
from aotc.records import field, record, replace
from aotc.verification.policy.release import is_older, release_order

SCHEMA: Final = "aotc.trust-state/1"
# Before the name of a policy that nobody signed: no name of a policy holds a colon.
UNSIGNED: Final = "unsigned:"
MAX_STATE_BYTES: Final = 16 << 20
CLOCK_SLACK: Final = timedelta(hours=1)
# The latest time is written at most this often where nothing else is new.
_TICK: Final = timedelta(minutes=1)
_NO_WAITING: Final = (
    getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)
_KEEP_ELSEWHERE: Final = (
    "Point XDG_STATE_HOME at a folder that this user may write and that is kept, such as a volume "
    "of the container; or verify without remembering, by --unsafe-no-trust-state: an older policy "
    "or release is then taken again."
)


@record
class SeenPolicy:
    """The policy of a name with the highest sequence."""

    sequence: Annotated[int, Bounds(1)]
    sha256: Sha256


@record
class TrustState:
    """The whole file."""

    # Without a default: a file that says nothing is no beginning.
    schema: Literal["aotc.trust-state/1"]
    latest: Annotated[
        Instant | None, "the latest time that the clock has shown when something was accepted"
    ] = None
    policies: Annotated[Mapping[str, SeenPolicy], "by name"] = field(default_factory=dict)
    artifacts: Annotated[Mapping[str, ArtifactRelease], "the latest release accepted, by name"] = (
        field(default_factory=dict)
    )

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        try:
            if self.latest is not None:
                parse_instant(self.latest)
            for each in self.artifacts.values():
                release_order(each)
        except ValueError as error:
            return [Problem("", str(error))]
        return []


@record(kw_only=False)
class StateFile:
    """The state of this user."""

    path: Path

    @property
    def place(self) -> Path:
        """Where the file is, whatever links lead there: a link is not replaced by a file."""
        return Path(os.path.realpath(self.path))

    def read(self) -> TrustState:
        """What was seen; nothing where the file is not there.  Raises G035, I046."""
        try:
            data = _bytes_of(self.path)
        except OSError as error:
            raise self._unusable("cannot be read", str(error.strerror)) from None
        if data is None:
            return TrustState(schema=SCHEMA)
        try:
            return decode(TrustState, strict_json(data, limit=MAX_STATE_BYTES))
        except ParseError as error:
            if error.problems[0].code:
                raise AotcError(
                    error.problems[0].code,
                    "the trust state cannot be read",
                    where=str(self.path),
                    found=error.problems[0].what,
                ) from None
            raise self._unusable("is damaged", str(error.problems[0])) from None

    def require_writable(self) -> None:
        """Raise G035 where something that is to be remembered could not be, and write nothing."""
        import tempfile

        self.read()
        folder = self.place.parent
        there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
        lock = self.place.with_name(f"{self.place.name}.lock")
        self._refuse_others()
        try:
            # Rights alone say little: some folders take no file whoever asks.
            tempfile.TemporaryFile(dir=there).close()
            with contextlib.suppress(FileNotFoundError):
                os.close(os.open(lock, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))
        except OSError as error:
            raise self._unkept(error) from None

    def note_policy(
        self,
        name: str,
        seen: SeenPolicy,
        now: datetime,
        *,
        exact: bool,
        replaces: Iterable[str] = (),
        first: bool = False,
    ) -> None:
        """Take a policy, and remember it, and not the time: nothing was accepted by it yet.

        It is remembered under the names that it `replaces` too, so that none of them goes back.
        Raises G036 where the clock went back, and what `check_policy` does.
        """
        with self._locked():
            state = self.read()
            check_clock(state, now)
            names = (name, *replaces)
            check_policy(state, names, seen, exact=exact, first=first)
            noted = {each: seen for each in names if state.policies.get(each) != seen}
            if noted:
                self._keep(replace(state, policies={**state.policies, **noted}))

    def note_artifact(
        self, name: str, release: ArtifactRelease, now: datetime, *, allowed: bool
    ) -> ArtifactRelease | None:
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
            latest = parse_instant(state.latest) if state.latest is not None else None
            if changed is not state or latest is None or now - latest >= _TICK:
                if latest is None or now > latest:
                    changed = replace(changed, latest=format_instant(now))
                self._keep(changed)
            return known

    def _keep(self, state: TrustState) -> None:
        data = canonical_json(encode(state, full=True))
        try:
            decode(TrustState, strict_json(data, limit=MAX_STATE_BYTES))
        except ParseError as error:
            # What cannot be read back would lock this user out of everything.
            raise self._unusable("would be damaged", str(error.problems[0])) from None
        self._write(data)

    def _write(self, data: bytes) -> None:
        try:
            write_atomically(self.place, data, mode=0o600, durable=True)
        except OSError as error:
            raise self._unkept(error) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """While no other process reads to change, or changes, the state; raises G035 and G041."""
        place = self.place
        what = "another process holds the lock of the trust state"
        with contextlib.ExitStack() as held:
            try:
                # Before a folder is made where a link leads nowhere.
                _refuse_lost(self.path)
            except OSError as error:
                raise self._unusable("cannot be read", str(error.strerror)) from None
            self._refuse_others()
            try:
                make_folder(place.parent, PRIVATE)
                held.enter_context(locked(place.with_name(f"{place.name}.lock"), what=what))
            except OSError as error:
                raise self._unkept(error) from None
            yield

    def _refuse_others(self) -> None:
        """Raise G035 where another user could have a link lead to where we make files."""
        try:
            found = belongs_to_others(self.path.parent)
        except OSError:
            return  # It is not there yet, or is told by what is written in it.
        if found:
            what = "lies in another user's folder"
            raise self._unusable(what, str(self.path.parent), _KEEP_ELSEWHERE)

    def _unkept(self, error: OSError) -> AotcError:
        """What cannot be written, in words for a container whose files may only be read."""
        return self._unusable("cannot be kept", str(error.strerror), _KEEP_ELSEWHERE)

    def _unusable(self, what: str, found: str, fix: str = "") -> AotcError:
        return AotcError(
            "AOTC-G035", f"the trust state {what}", where=str(self.path), found=found, fix=fix
        )


def user_state() -> StateFile:
    """The state of this user; raises G035 where there is no home to keep it in."""
    folder = state_folder()
    if folder is None:
        raise AotcError(
            "AOTC-G035",
            "this user has no home folder for a trust state",
            fix="Set XDG_STATE_HOME.",
        )
    return StateFile(folder / "aotc" / "trust-state.json")


def state_to_compare() -> StateFile | None:
    """The state of this user, to compare with alone; None where it cannot be looked at."""
    try:
        state = user_state()
        _bytes_of(state.path)
    except (AotcError, PermissionError):
        return None
    except OSError:
        pass  # What is there and damaged is refused where it is read.
    return state


def check_clock(state: TrustState, now: datetime) -> None:
    """Raises G036 where `now` is more than an hour before what was seen."""
    if state.latest is not None and now < parse_instant(state.latest) - CLOCK_SLACK:
        raise AotcError(
            "AOTC-G036",
            "the clock is behind what it has shown before",
            expected=f"{state.latest} or later",
            found=format_instant(now),
        )


def check_policy(
    state: TrustState, names: Sequence[str], seen: SeenPolicy, *, exact: bool, first: bool = False
) -> None:
    """Whether a policy may be taken: its own name comes first, then those that it replaces.

    Raises G022 where a higher sequence was seen under one of them, or with `exact` the same
    sequence with other content; with `first` G042 where the first signed policy that was seen had
    another name.
    """
    for name in names:
        _check_sequence(state.policies.get(name), name, seen, exact=exact)
    signed = [each for each in state.policies if not each.startswith(UNSIGNED)]
    if first and signed and not set(signed) & set(names):
        raise AotcError(
            "AOTC-G042",
            "this host has taken a policy of another name by root keys that name none",
            where=names[0],
            expected=", ".join(signed),
            found=names[0],
        )


def _check_sequence(known: SeenPolicy | None, name: str, seen: SeenPolicy, *, exact: bool) -> None:
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
    known: ArtifactRelease | None, name: str, release: ArtifactRelease, *, allowed: bool
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


def _bytes_of(path: Path) -> bytes | None:
    """The bytes of the state file, or None where there is none.

    A link that leads nowhere, and what is no file, are damage: raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    except FileNotFoundError:
        _refuse_lost(path)
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        return file.read(MAX_STATE_BYTES + 1)


def _refuse_lost(path: Path) -> None:
    """Raise OSError where a link on the way leads nowhere: what it led to is lost, not unseen."""
    for each in (path, *path.parents):
        if each.is_symlink() and not each.exists():
            raise OSError(errno.ENOENT, "a link that leads nowhere", str(each))
