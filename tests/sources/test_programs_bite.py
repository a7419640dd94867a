"""That hostile programs are what they say: PyTorch alone runs their code, or never ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_programs import ATTACKS, HONEST
from repository import ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def test_they_bite_who_loads_them(tmp_path: Path) -> None:
    for kind in ATTACKS:
        if kind.bites:
            folder = tmp_path / kind.name
            folder.mkdir()
            kind.write(folder)
            (folder / "how").write_text(kind.bites)
    script = ROOT / "tests" / "sources" / "bitten.py"
    run = subprocess.run(
        [sys.executable, script, tmp_path, HONEST], capture_output=True, text=True, check=True
    )
    assert sorted(run.stdout.split()) == sorted(kind.name for kind in ATTACKS if kind.bites)
