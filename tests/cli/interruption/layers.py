"""A real overlay, as every container has one: what is in its lower layer, and what is done to it.

    layers.py rename LOWER MERGED           what a rename of a folder of the lower layer gives
    layers.py kill LOWER MERGED some|every  kills `aotc unpack --force` over an artifact there

Run in a mount namespace of its own; exit status 99 where no overlay can be mounted.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kill_sweep import Home, sweep

FAILED = 99


def mount(lower: Path, merged: Path) -> None:
    """Mount an overlay of `lower` at `merged`, with a new and empty upper layer."""
    if os.path.ismount(merged):
        subprocess.run(["umount", str(merged)], check=True)
    scratch = merged.with_name(f"{merged.name}.upper")
    if not os.path.ismount(scratch):
        # The upper layer may be on no overlay, which the tests themselves may run on.
        scratch.mkdir(exist_ok=True)
        merged.mkdir(exist_ok=True)
        _mount("tmpfs", "tmpfs", scratch)
    for name in ("upper", "work"):
        shutil.rmtree(scratch / name, ignore_errors=True)
        (scratch / name).mkdir()
    # Without this a kernel may be set to move folders of lower layers all the same.
    options = f"redirect_dir=off,lowerdir={lower},upperdir={scratch}/upper,workdir={scratch}/work"
    _mount("overlay", "overlay", merged, "-o", options)


def _mount(kind: str, source: str, place: Path, *options: str) -> None:
    words = ["mount", "-t", kind, *options, source, str(place)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(f"{kind} cannot be mounted: {done.stderr}")
        sys.exit(FAILED)


def rename(merged: Path) -> str:
    """The name of the error that a rename of a folder of the lower layer gives."""
    try:
        (merged / "old.aotc").rename(merged / "moved")
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "none"


def kill(lower: Path, merged: Path, *, every: bool) -> int:
    """Kill an unpacking over an artifact of the lower layer at its steps; how often."""
    from aotc.trust.gate import verify

    def fresh(template: Path, folder: Path) -> Home:
        mount(template, folder)
        return Home(folder)

    words = ("unpack", "new.zip", "-o", "old.aotc", "--force")
    kills = 0
    for number, home in sweep(lower, merged, words, every=every, samples=8, fresh=fresh):
        kills += 1
        # What was emptied half is made whole by any command that writes in that folder.
        assert home.run("pack", "other.aotc", "-o", "tidy.zip").status == 0
        report = verify(merged / "old.aotc", key=merged / "release.pub")
        assert report.authentic, (number, report)
        again = home.run(*words)
        assert again.status == 0, (number, again)
        assert home.leftovers() == [], number
    return kills


if __name__ == "__main__":
    job, below, place = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if job == "run":
        mount(below, place)
        os.chdir(place)
        done = subprocess.run(sys.argv[5:], check=False)
        shutil.copytree(place, sys.argv[4], symlinks=True)
        sys.exit(done.returncode)
    if job == "rename":
        mount(below, place)
        print(rename(place))
    else:
        print(kill(below, place, every=sys.argv[4] == "every"))
