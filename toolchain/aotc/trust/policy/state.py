"""The trust state: sequences, releases and times that this user has seen, against rollback.

It is a canonical JSON file, `aotc/trust-state.json` in $XDG_STATE_HOME or ~/.local/state.  It is
changed under a lock and replaced atomically after it is on disk, so neither a crash nor another
process can damage it or undo a change.  If it exists but cannot be read, it is refused (AOTC-G035)
and not created again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.files.folders import PRIVATE, belongs_to_others, make_folder, state_folder
from aotc.base.files.locks import locked
from aotc.base.files.reading import read_at_most
from aotc.base.files.writing import write_atomically
from aotc.base.records import field, record, replace
from aotc.spec.attestations import Instant, format_instant, parse_instant
from aotc.spec.codec import Bounds, ParseError, Problem, decode, encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.payload import Sha256
from aotc.spec.reports import ArtifactRelease
from aotc.spec.versions import RELEASE

SCHEMA: Final = "aotc.trust-state/1"
# Prefix of the names of unsigned policies; a name of a policy has no colon.
UNSIGNED: Final = "unsigned:"
MAX_STATE_BYTES: Final = 16 << 20
CLOCK_SLACK: Final = timedelta(hours=1)
# If nothing else changed, the latest time is written only after this period.
_TIME_STEP: Final = timedelta(minutes=1)
_FIX_NOT_WRITABLE: Final = (
    "Set XDG_STATE_HOME to a persistent folder that this user may write to, such as a volume of "
    "the container. Or verify with --unsafe-no-trust-state, which remembers nothing, so an older "
    "policy or release may be accepted."
)

_FIX_OTHER_KIND: Final = (
    "If it is meant to follow, list its id in the policy ('aotc trust add POLICY --allow-rollback "
    "ID'), or state the minimum from which on such releases count (min_version)."
)


@record
class SeenPolicy:
    """The highest sequence of a policy that was seen."""

    sequence: Annotated[int, Bounds(1)]
    sha256: Sha256


@record
class TrustState:
    """The content of the file."""

    # Without a default, so that an empty document is not valid.
    schema: Literal["aotc.trust-state/1"]
    latest: Annotated[Instant | None, "latest time of the clock when an artifact was accepted"] = (
        None
    )
    policies: Annotated[Mapping[str, SeenPolicy], "policies by name"] = field(default_factory=dict)
    artifacts: Annotated[
        Mapping[str, ArtifactRelease], "latest accepted release of artifacts, by name"
    ] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        try:
            if self.latest is not None:
                parse_instant(self.latest)
            for release in self.artifacts.values():
                release_order(release)
        except ValueError as error:
            return [Problem("", str(error))]
        return []


@record(kw_only=False)
class StateFile:
    """The file of the trust state of this user."""

    path: Path

    @property
    def real_path(self) -> Path:
        """The path of the file without links, so that a link is not replaced by a file."""
        return Path(os.path.realpath(self.path))

    def read(self) -> TrustState:
        """The trust state, empty if the file does not exist; raises AOTC-G035 and I046."""
        try:
            data = _read_bytes(self.path)
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
        """Raise AOTC-G035 if the state could not be read or written; writes nothing."""
        import tempfile

        self.read()
        folder = self.real_path.parent
        existing = next(
            (path for path in (folder, *folder.parents) if os.path.lexists(path)), folder
        )
        lock = self.real_path.with_name(f"{self.real_path.name}.lock")
        self._refuse_foreign_folder()
        try:
            # Permissions are not enough: some folders take no files at all.
            tempfile.TemporaryFile(dir=existing).close()
            with contextlib.suppress(FileNotFoundError):
                os.close(os.open(lock, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))
        except OSError as error:
            raise self._not_writable(error) from None

    def note_policy(
        self,
        name: str,
        seen: SeenPolicy,
        now: datetime,
        *,
        exact: bool,
        replaces: Iterable[str] = (),
    ) -> None:
        """Check a policy and remember its sequence, also under the names that it `replaces`.

        The time is not remembered, as the policy has not accepted anything yet.
        Raises AOTC-G036 if the clock went back, G035, G041, and what `check_policy` does.
        """
        with self._locked():
            state = self.read()
            check_clock(state, now)
            names = (name, *replaces)
            check_policy(state, names, seen, exact=exact)
            changes = {known: seen for known in names if state.policies.get(known) != seen}
            if changes:
                self._save(replace(state, policies={**state.policies, **changes}))

    def note_artifact(
        self,
        name: str,
        release: ArtifactRelease,
        now: datetime,
        *,
        allowed: bool,
        has_minimum: bool = False,
    ) -> None:
        """Check a release of an artifact and remember it.

        Raises what `check_artifact` does, AOTC-G035, G036 and G041.
        """
        with self._locked():
            state = self.read()
            check_clock(state, now)
            known = state.artifacts.get(name)
            check_artifact(known, name, release, allowed=allowed, has_minimum=has_minimum)
            changed = state
            kept = _later(known, release, has_minimum=has_minimum)
            if kept != known:
                changed = replace(state, artifacts={**state.artifacts, name: kept})
            latest = parse_instant(state.latest) if state.latest is not None else None
            if changed is not state or latest is None or now - latest >= _TIME_STEP:
                if latest is None or now > latest:
                    changed = replace(changed, latest=format_instant(now))
                self._save(changed)

    def _save(self, state: TrustState) -> None:
        data = canonical_json(encode(state))
        try:
            decode(TrustState, strict_json(data, limit=MAX_STATE_BYTES))
        except ParseError as error:
            # An unreadable state would make every later verification fail.
            raise self._unusable("would be damaged", str(error.problems[0])) from None
        try:
            write_atomically(self.real_path, data, mode=0o600, durable=True)
        except OSError as error:
            raise self._not_writable(error) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the state; raises AOTC-G035 and G041."""
        place = self.real_path
        what = "another process holds the lock of the trust state"
        with contextlib.ExitStack() as held:
            try:
                # Checked before a folder is created at the target of a broken link.
                _refuse_broken_link(self.path)
            except OSError as error:
                raise self._unusable("cannot be read", str(error.strerror)) from None
            self._refuse_foreign_folder()
            try:
                make_folder(place.parent, PRIVATE)
                held.enter_context(locked(place.with_name(f"{place.name}.lock"), what=what))
            except OSError as error:
                raise self._not_writable(error) from None
            yield

    def _refuse_foreign_folder(self) -> None:
        """Raise AOTC-G035 if another user owns the folder, and could place links in it."""
        try:
            found = belongs_to_others(self.path.parent)
        except OSError:
            return  # It does not exist yet, or writing into it will fail.
        if found:
            what = "is in another user's folder"
            raise self._unusable(what, str(self.path.parent), _FIX_NOT_WRITABLE)

    def _not_writable(self, error: OSError) -> AotcError:
        """AOTC-G035 for a state that cannot be written, as in a read-only container."""
        return self._unusable("cannot be written", str(error.strerror), _FIX_NOT_WRITABLE)

    def _unusable(self, what: str, found: str, fix: str = "") -> AotcError:
        return AotcError(
            "AOTC-G035", f"the trust state {what}", where=str(self.path), found=found, fix=fix
        )


def user_state() -> StateFile:
    """The trust state of this user; raises AOTC-G035 if the user does not have a home folder."""
    folder = state_folder()
    if folder is None:
        raise AotcError(
            "AOTC-G035",
            "this user does not have a home folder for a trust state",
            fix="Set XDG_STATE_HOME.",
        )
    return StateFile(folder / "aotc" / "trust-state.json")


def state_to_compare() -> StateFile | None:
    """The trust state of this user for comparison only; None if it cannot be accessed."""
    try:
        state = user_state()
        _read_bytes(state.path)
    except (AotcError, PermissionError):
        return None
    except OSError:
        pass  # A damaged file is refused when it is read.
    return state


def check_clock(state: TrustState, now: datetime) -> None:
    """Raise AOTC-G036 if `now` is more than an hour before the latest time that was seen."""
    if state.latest is not None and now < parse_instant(state.latest) - CLOCK_SLACK:
        raise AotcError(
            "AOTC-G036",
            "the clock is behind a time that it has shown before",
            expected=f"{state.latest} or later",
            found=format_instant(now),
        )


def check_policy(state: TrustState, names: Sequence[str], seen: SeenPolicy, *, exact: bool) -> None:
    """Check that a policy is not older than one that was seen.

    `names` are its own name and those that it replaces.  Raises AOTC-G022 if a higher sequence was
    seen under one of them or, with `exact`, the same sequence with other content.
    """
    for name in names:
        known = state.policies.get(name)
        if known is None or seen.sequence > known.sequence:
            continue
        if seen.sequence < known.sequence:
            found = f"sequence {seen.sequence}"
            expected = f"sequence {known.sequence} or higher"
        elif exact and seen.sha256 != known.sha256:
            found = f"other content of sequence {seen.sequence}: sha256 {seen.sha256}"
            expected = f"sha256 {known.sha256}, or a higher sequence"
        else:
            continue
        raise AotcError(
            "AOTC-G022",
            "a later policy of this name was used on this host",
            where=name,
            expected=expected,
            found=found,
        )


def check_artifact(
    known: ArtifactRelease | None,
    name: str,
    release: ArtifactRelease,
    *,
    allowed: bool,
    has_minimum: bool = False,
) -> None:
    """Check that a release is not older than `known`, the latest that was accepted.

    `has_minimum` says whether the policy states a minimum of the release's kind, a version or a
    time: then such releases count from there on, whatever kind was accepted before.
    Raises AOTC-G030 if the release is not `allowed`, and is older or cannot be compared.
    """
    if known is None or allowed:
        return
    older, incomparable = is_older(release, known), _changes_kind(known, release)
    if incomparable and has_minimum:
        incomparable = False
        # A minimum version speaks for all above it; times are still compared.
        older = older and not _states_version(release)
    fix = ""
    if older:
        what = "a later release of this artifact was accepted on this host"
    elif incomparable:
        stated, before = ("a", "none") if _states_version(release) else ("no", "one")
        what = (
            f"the artifact states {stated} version, and the release that this host has accepted "
            f"states {before}: which is later cannot be known"
        )
        fix = _FIX_OTHER_KIND
    else:
        return
    raise AotcError(
        "AOTC-G030",
        what,
        where=name,
        expected=f"{release_text(known)} or later",
        found=release_text(release),
        fix=fix,
    )


def _read_bytes(path: Path) -> bytes | None:
    """The bytes of the state file, or None if it does not exist.

    Raises OSError, also for a broken link and for anything that is not a regular file.
    """
    try:
        return read_at_most(path, MAX_STATE_BYTES)
    except FileNotFoundError:
        _refuse_broken_link(path)
        return None


def _refuse_broken_link(path: Path) -> None:
    """Raise OSError if a link on the path is broken: then the state was lost, and is not new."""
    for link in (path, *path.parents):
        if link.is_symlink() and not link.exists():
            raise OSError(errno.ENOENT, "a broken link", str(link))


# The order of the releases of an artifact.
#
# Versions, which provenance states, are ordered among each other; and so are the times of releases
# without one: of the latest approval, or else of the build. Without versions, those who approve
# decide what runs: approving an old artifact again makes it the current one. Between a release
# with a version and one without, only the times can tell which is older, and neither is ever taken
# as the later one.


def release_order(release: ArtifactRelease) -> tuple[float, ...]:
    """The sort key of releases with a version, or of those without.

    Raises ValueError if a value is not valid for its kind.
    """
    if release.made_at:
        parse_instant(release.made_at)
    if release.kind == "version":
        return _version(release.value)
    return (parse_instant(release.value).timestamp(),) if release.value else ()


def is_older(one: ArtifactRelease, other: ArtifactRelease) -> bool:
    """Whether `one` is an older release than `other`.

    If only one of them states a version, their times decide; False if one of these is not known.
    """
    if _states_version(one) == _states_version(other):
        return release_order(one) < release_order(other)
    times = _time(one), _time(other)
    return all(times) and parse_instant(times[0]) < parse_instant(times[1])


def release_text(release: ArtifactRelease) -> str:
    """A release in words, for messages."""
    if _states_nothing(release):
        return "no version"
    made = f", of {release.made_at}" if release.made_at else ""
    return f"{release.kind} {release.value}{made}"


def _later(
    known: ArtifactRelease | None, release: ArtifactRelease, *, has_minimum: bool
) -> ArtifactRelease:
    """What to remember after `release` was accepted: the later one, and the latest time."""
    if known is None or _states_nothing(known):
        return release
    kept = release if is_older(known, release) else known
    if has_minimum and _changes_kind(known, release):
        later = _states_version(release) or not is_older(release, known)
        kept = release if later else known
    if kept.kind != "version":
        return kept
    return replace(kept, made_at=max(_time(known), _time(release)))


def _states_version(release: ArtifactRelease) -> bool:
    return release.kind == "version"


def _changes_kind(known: ArtifactRelease, release: ArtifactRelease) -> bool:
    """Whether one of them states a version and the other none, which may have a time."""
    return _states_version(known) != _states_version(release) and not _states_nothing(known)


def _states_nothing(release: ArtifactRelease) -> bool:
    """Whether it has neither a version nor a time, so that it never kept anything out."""
    return release.kind != "version" and not release.value


def _time(release: ArtifactRelease) -> str:
    """When it was approved or built; empty if that is not known.  Such texts sort by time."""
    return release.made_at if release.kind == "version" else release.value


def is_below(release: ArtifactRelease, minimum: str) -> bool:
    """Whether a release is older than a policy's minimum, which is a version or a time.

    A release that cannot be compared with it counts as older.
    """
    if "T" in minimum:
        if release.kind == "version" or not release.value:
            return True
        return parse_instant(release.value) < parse_instant(minimum)
    return release.kind != "version" or _version(release.value) < _version(minimum)


def is_version(text: str) -> bool:
    """Whether a text is a version such as 1.4.0."""
    return re.fullmatch(RELEASE, text) is not None


def _version(text: str) -> tuple[float, ...]:
    if not is_version(text):
        raise ValueError(f"{text[:40]!r} is not a version")
    parts = [int(part) for part in text.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
