"""What runs before a commit, by pre-commit itself: it passes, asks no network, and can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from repository import ROOT

CONFIG = ROOT / ".pre-commit-config.yaml"
REPOSITORIES = yaml.safe_load(CONFIG.read_text())["repos"]
HOOKS = {hook["id"]: hook for each in REPOSITORIES for hook in each["hooks"]}
# It takes longer than all the others together, and `make lint` runs it.
SLOW = "mypy"

needs_pre_commit = pytest.mark.skipif(
    find_spec("pre_commit") is None or not (ROOT / ".venv" / "bin" / "ruff").is_file(),
    reason="pre-commit is not installed, or there is no .venv: 'make setup' makes it",
)


def run(folder: Path, home: Path, *words: str, skipped: str = "") -> tuple[int, str]:
    path = (str(ROOT / "toolchain"), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--config", str(CONFIG), *words],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "PRE_COMMIT_HOME": str(home),
            "SKIP": skipped,
            "PYTHONPATH": os.pathsep.join(path),
            # Whoever would download something gets nowhere.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one bad file, with the tools of this one."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (folder / "bad.py").write_text("import os\nx = {  'a':1 }\n")
    for words in (("init", "--quiet"), ("add", "bad.py")):
        subprocess.run(("git", *words), cwd=folder, check=True, capture_output=True)
    return folder


def test_every_hook_is_of_this_repository() -> None:
    assert [each["repo"] for each in REPOSITORIES] == ["local"]
    for hook in HOOKS.values():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")
        for word in hook["entry"].split()[1:]:
            assert not word.startswith(("ci/", "examples/")) or (ROOT / word).exists(), word


@needs_pre_commit
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_all_that_is_tracked_passes(tmp_path: Path) -> None:
    status, said = run(ROOT, tmp_path, "--all-files", skipped=SLOW)
    assert status == 0, said
    assert said.count("Passed") == len(HOOKS) - 1


@needs_pre_commit
@pytest.mark.parametrize("hook", ["ruff-check", "ruff-format"])
def test_a_bad_file_does_not_pass(hook: str, checkout: Path, tmp_path: Path) -> None:
    status, said = run(checkout, tmp_path / "home", hook, "--all-files")
    assert status == 1, said
    assert "bad.py" in said
