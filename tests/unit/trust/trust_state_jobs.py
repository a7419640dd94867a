"""What several processes do to one trust state at once; run as a separate program."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aotc.base.errors import AotcError
from aotc.spec.reports import ArtifactRelease
from aotc.trust.policy.state import SeenPolicy, StateFile


def climb(state: StateFile, who: int, steps: int) -> None:
    """Remember policies and artifacts of this process, and ever higher ones of a shared name."""
    now = datetime.now(UTC)
    for step in range(1, steps + 1):
        seen = SeenPolicy(sequence=step, sha256=f"{step:064x}")
        try:
            state.note_policy("shared", seen, now, exact=True)
        except AotcError as error:
            if error.code != "AOTC-G022":
                raise
        state.note_policy(f"own-{who}", seen, now, exact=True)
        release = ArtifactRelease(kind="version", value=f"1.{step}")
        state.note_artifact(f"artifact-{who}", release, now, allowed=False)


def die(state: StateFile, steps: int) -> None:
    """Kill this process after `steps` complete writes, before the next draft is renamed."""
    replace, link = Path.replace, os.link
    written = 0

    def count() -> None:
        nonlocal written
        written += 1
        if written > steps:
            os.kill(os.getpid(), signal.SIGKILL)

    def replacing(self: Path, target: Path) -> Path:
        count()
        return replace(self, target)

    def linking(source: str, target: str, **how: Any) -> None:
        # If the state exists already, only the draft is linked, which is not the last step.
        if target == state.path.name and not state.path.exists():
            count()
        link(source, target, **how)

    Path.replace = replacing  # type: ignore[assignment,method-assign]
    os.link = linking  # type: ignore[assignment]
    climb(state, 0, steps)


if __name__ == "__main__":
    job, place, number, steps = sys.argv[1:]
    if job == "climb":
        climb(StateFile(Path(place)), int(number), int(steps))
    else:
        die(StateFile(Path(place)), int(steps))
