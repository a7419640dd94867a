"""Homes that cannot be used, as under ProtectHome of systemd: it works, or a variable is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from policy_setting import Setting
from repository import ROOT

Run = Callable[..., subprocess.CompletedProcess[str]]


def without_privileges() -> list[str]:
    """The prefix of a command for which the modes of files hold, also where root runs it."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("root needs setpriv, to start a process for which modes hold")
    return words


@pytest.fixture(params=["closed", "no folder", "a file", "unset", "read-only"])
def run(request: pytest.FixtureRequest, host: Setting) -> Run:
    """A function that runs a command with such a home."""
    home: Path | None = host.folder / "home"
    assert home is not None
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "AOTC_"))
    }
    if request.param in ("closed", "read-only"):
        home.mkdir()
        mode = 0 if request.param == "closed" else 0o500
        home.chmod(mode)
        request.addfinalizer(lambda: home.chmod(0o700))
    elif request.param == "a file":
        home.write_text("")
    elif request.param == "no folder":
        home = Path("/proc/none/home")
    environment.pop("HOME")
    if request.param != "unset":
        environment["HOME"] = str(home)
    else:
        # The real home of who runs the tests, by the system's list of users.
        environment |= variables(str(host.folder / "state"))
    prefix = without_privileges()

    def run_command(*words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, sys.executable, "-m", "aotc.cli.main", *map(str, words)],
            env={**environment, "PYTHONPATH": str(ROOT / "toolchain"), **more},
            cwd=host.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run_command


def variables(home: str) -> dict[str, str]:
    """What a service sets that has no home."""
    return {"XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "AOTC_STORE": f"{home}/store"}


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "linear.aotc", "--key", "release.pub"),
        ("verify", "linear.aotc", "--trust", "release.pub"),
        ("verify", "linear.aotc", "--trust", "trust.yaml"),
        ("run", "linear.aotc", "--key", "release.pub"),
        ("trust", "check", "trust.yaml"),
        ("inspect", "linear.aotc"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_home_that_cannot_be_used(words: tuple[str, ...], run: Run, host: Setting) -> None:
    (host.folder / "release.pub").write_text(host.keys["release"].public_pem)
    host.write()
    done = run(*words)
    shown = done.stdout + done.stderr
    if done.returncode:
        assert any(name in shown for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "AOTC_STORE"))
        assert "AOTC-R999" not in shown
    if "inspect" in words:
        assert done.returncode == 0
    # With what the messages name, it works.
    volume = host.folder / "volume"
    volume.mkdir()
    done = run(*words, **variables(str(volume)))
    if words != ("doctor",):  # It also asks for a cache of builds.
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("run", ["closed"], indirect=True)
def test_root_keys_that_nobody_can_look_for_are_not_taken_for_none(run: Run, host: Setting) -> None:
    """A given key vouches only where it is known that no root keys are asked for."""
    key = host.folder / "release.pub"
    key.write_text(host.keys["release"].public_pem)
    done = run("verify", "linear.aotc", "--key", key)
    assert done.returncode == 3
    assert "AOTC-I001" in done.stderr
    for name in ("XDG_CONFIG_HOME", "AOTC_TRUST_ROOT"):
        assert name in done.stderr
    roots = host.write_roots(1, "root-a")
    done = run("verify", "linear.aotc", "--key", key, AOTC_TRUST_ROOT=str(roots))
    assert "AOTC-G021" in done.stderr
