"""Workers of another interpreter: nothing of this one comes before its packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.session.worker_pool import Workers


def test_variables_of_this_interpreter_do_not_reach_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of this user's would else come before those of an environment that is no venv."""
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("KEPT", "here")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nenv > {tmp_path}/variables\nexit 3\n")
    python.chmod(0o755)
    with Workers(python=str(python)) as workers, pytest.raises(AotcError, match="exit status 3"):
        workers.run("json:loads", "{}", folder=tmp_path / "job")
    lines = (tmp_path / "variables").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert not found.keys() & {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    assert (found["PYTHONNOUSERSITE"], found["KEPT"]) == ("1", "here")
