"""The unit of the guide "serve": by systemd's own checks, and its commands as it would start them.

No systemd is started: its file system, user, system calls and memory are made here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confined_host import Host, why_not
from file_bytes import flip_bit
from repository import ROOT
from running_server import EXAMPLE, HEALTHY

UNIT = ROOT / "ci" / "templates" / "systemd" / "model-server.service"
PROGRAMS = "/opt/model-server/bin"
# Among those that systemd gives to units with DynamicUser=.
USER = 61234
# systemd's own judgement, from 0 to 100: 12 is "OK", and 96 is a unit that states nothing.
EXPOSURE = 12


def settings() -> dict[str, list[str]]:
    """All that the unit states, by name; what is stated again is added."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def analyze() -> Callable[..., subprocess.CompletedProcess[str]]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["systemd-analyze", "--no-pager", *words], capture_output=True, text=True, check=False
        )

    return run


def unit_with_programs(folder: Path) -> Path:
    """The unit in `folder`, where its programs are as well."""
    for name in ("aotc", "uvicorn"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    unit = folder / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace(PROGRAMS, str(folder)))
    return unit


def test_systemd_takes_it(tmp_path: Path, analyze) -> None:
    unit = unit_with_programs(tmp_path)
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # It does find what is wrong.
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))
    assert "'ProtectHomes'" in analyze("verify", str(unit)).stderr


def test_systemd_finds_little_exposed(tmp_path: Path, analyze) -> None:
    unit = unit_with_programs(tmp_path)
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))
    assert done.returncode == 0, done.stdout
    unit.write_text(unit.read_text().replace("DynamicUser=yes", "User=root"))
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))
    assert done.returncode != 0


class UnitHost(Host):
    """A host with the unit's programs and folders, on which its commands run."""

    def __init__(self, folder: Path, calls: list[str]) -> None:
        stated = settings()
        self.stated = stated
        state = f"/var/lib/private/{stated['StateDirectory'][0]}"
        runtime = f"/run/{stated['RuntimeDirectory'][0]}"
        super().__init__(
            folder,
            user=USER,
            directory=stated["WorkingDirectory"][0],
            writable=("/tmp", state, runtime),
            umask=int(stated["UMask"][0], 8),
            no_writable_code=stated["MemoryDenyWriteExecute"] == ["yes"],
            system_calls=tuple(calls),
        )
        self.environment |= {"HOME": "/", "USER": "model-server"}
        for each in stated["Environment"]:
            name, _, value = each.partition("=")
            self.environment[name] = value.replace("%S", "/var/lib").replace("%t", "/run")
        self.state = self.inside(state)
        for place in (self.state, self.inside(runtime)):
            os.chown(place, USER, USER)
        self.state.chmod(0o700)
        self.inside("/var/lib/model-server").symlink_to("private/model-server")
        self.add_programs(PROGRAMS)
        shutil.copy2(EXAMPLE / "app.py", self.inside("/opt/model-server/app.py"))

    def run_line(self, line: str) -> subprocess.CompletedProcess[str]:
        """The end of a command of the unit."""
        return self.run(*self.words(line))

    def words(self, line: str) -> list[str]:
        """The words of a command of the unit."""
        return [
            re.sub(r"\$\{(\w+)\}", lambda found: self.environment[found[1]], word)
            for word in shlex.split(line.removeprefix("-"))
        ]


def allowed_calls(analyze) -> list[str]:
    """The system calls that the unit's filters leave."""

    def members(group: str) -> set[str]:
        lines = analyze("syscall-filter", group).stdout.splitlines()[1:]
        names = {line.strip() for line in lines if line.strip() and "#" not in line}
        nested = {name for name in names if name.startswith("@")}
        return (names - nested).union(*(members(name) for name in nested))

    found: set[str] = set()
    for each in settings()["SystemCallFilter"]:
        if each.startswith("~"):
            found -= members(each[1:])
        else:
            found |= members(each)
    return sorted(found)


@pytest.fixture
def host(artifacts, tmp_path: Path, analyze) -> UnitHost:
    if reason := why_not():
        pytest.skip(reason)
    if ROOT.is_relative_to("/tmp"):
        pytest.skip("this checkout is in /tmp, and the unit has a folder of its own there")
    found = UnitHost(tmp_path / "root", allowed_calls(analyze))
    shutil.copytree(artifacts.first, found.inside("/srv/models/digits.aotc"))
    shutil.copy2(artifacts.public_key, found.inside("/etc/aotc/release.pub"))
    return found


def test_it_serves_as_a_user_that_can_write_its_store_alone(
    artifacts, inputs, host: UnitHost, tmp_path: Path
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    assert "mmap" in host.system_calls
    assert "mount" not in host.system_calls
    for line in host.stated["ExecStartPre"]:
        done = host.run_line(line)
        assert done.returncode == 0, done.stdout + done.stderr
    manifest = (artifacts.first / "payload" / "aotc.json").read_bytes()
    artifact_id = hashlib.sha256(manifest).hexdigest()
    assert (host.state / "store" / f"sha256-{artifact_id}").is_dir()
    (start,) = host.stated["ExecStart"]
    assert "--port 8080" in start
    words = host.words(start.replace("--port 8080", "--port {port}"))
    with host.serving(tmp_path / "server.log", *words) as server:
        server.wait_for_models(artifact_id)
        assert server.ask("/healthz/ready") == (HEALTHY, {"ready": True, "artifact": artifact_id})
        assert server.ask("/predict", {"inputs": {"x": inputs.tolist()}})[0] == HEALTHY
        assert 'aotc_models_ready{model="first"} 2.0' in server.ask("/metrics")[1]
        assert server.end() == 0
        assert not server.said("(?i)warning|error|denied|not permitted")


def test_it_is_confined_as_the_unit_says(host: UnitHost) -> None:
    written = host.run_line(
        "/bin/sh -c 'cat /proc/self/status; touch /tmp/x /var/lib/model-server/x'"
    )
    assert written.returncode == 0, written.stderr
    status = dict(re.findall(r"(?m)^(\w+):\s+(.*)$", written.stdout))
    assert status["Uid"].split() == [str(USER)] * 4
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapEff"], 16) == 0
    assert oct((host.state / "x").stat().st_mode & 0o777) == "0o600"
    for place in ("/x", "/opt/model-server/x", "/srv/models/x", "/etc/aotc/x", "/usr/x"):
        assert "Read-only file system" in host.run_line(f"/usr/bin/touch {place}").stderr
    assert "Operation not permitted" in host.run_line("/usr/bin/unshare --user true").stderr


def test_it_does_not_start_with_a_bad_artifact(host: UnitHost) -> None:
    verify, install, _ = host.stated["ExecStartPre"]
    graph = next(host.inside("/srv/models/digits.aotc").rglob("*.onnx"))
    graph.chmod(0o644)
    flip_bit(graph)
    for line in (verify, install):
        done = host.run_line(line)
        assert done.returncode == 1
        assert "AOTC-G005" in done.stdout + done.stderr
    assert not list(host.state.glob("store/sha256-*"))
