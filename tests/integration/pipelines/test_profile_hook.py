"""The hook for other repositories, by pre-commit itself: what passes, and what does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

pytest.importorskip("pre_commit")

GOOD = "schema: aotc.profile/1\nname: good\ndims: {batch: 1..8}\n"
BAD = "schema: aotc.profile/1\nname: bad\ndimz: {batch: 1..8}\n"


def git(folder: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ("git", *who, *words), cwd=folder, env=own, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, str]:
    """A repository with this tree as its only commit, and the commit."""
    folder = tmp_path / "aotc"
    folder.mkdir()
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    needed = ("toolchain/", "profiles/", "manifests/", "ci/templates/")
    for name in listed.split("\0"):
        if (name.startswith(needed) or (name and "/" not in name)) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--force", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder, git(folder, "rev-parse", "HEAD").strip()


def commit(folder: Path, home: Path, environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files"],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            **environment,
            "PRE_COMMIT_HOME": str(home),
            # The hook's own environment, and no sources beside it.
            "PYTHONPATH": "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_pre_commit_installs_and_runs_it(
    published: tuple[Path, str], tmp_path: Path, offline: dict[str, str]
) -> None:
    place, revision = published
    user = tmp_path / "user"
    user.mkdir()
    git(user, "init", "--quiet")
    (user / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {place.as_uri()}\n  rev: {revision}\n  hooks:\n  - id: aotc-profile\n"
    )
    (user / "good name.profile.yaml").write_text(GOOD)
    # Not a profile by its name, and not looked at.
    (user / "other.yaml").write_text(BAD)
    git(user, "add", ".")
    home = tmp_path / "home"
    status, shown = commit(user, home, offline)
    assert (status, "Passed" in shown) == (0, True), shown
    # Every bad one is told, in one run.
    for name in ("bad.profile.yaml", "worse.profile.yml", "--help.profile.yaml"):
        (user / name).write_text(BAD)
    git(user, "add", ".")
    status, shown = commit(user, home, offline)
    assert status == 1
    assert shown.count("AOTC-I022") == 3, shown
    assert "dimz" in shown


def test_pre_commit_reads_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
