"""Twenty small models on a cluster: checked, and built as a fleet whose command is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from made_models import linear
from onnx import save
from ray_cluster import Cluster

from aotc import check_models
from aotc.trust import key_files

try:
    # A folder of that name, such as Ray's own in /tmp, is one to `import` as well.
    version("ray")
except PackageNotFoundError:
    pytest.skip("Ray is not installed: make test-fleet", allow_module_level=True)

COUNT = 20
_MAIN = "import sys; from aotc.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for number in range(COUNT):
        save(linear(features=2 + number), folder / f"model-{number:02}.onnx")
    return folder


def test_models_are_checked(cluster: Cluster, models: Path) -> None:
    (models / "broken.onnx").write_bytes(b"\x08\x08broken")
    try:
        told: list[str] = []
        found = check_models(models, on=f"ray://{cluster.address}", jobs=None, progress=told.append)
    finally:
        (models / "broken.onnx").unlink()
    assert found.unchecked == ()
    outcomes = {check.model: (check.outcome, check.code) for check in found.models}
    assert outcomes.pop("broken.onnx")[0] != "built"
    assert outcomes == {f"model-{number:02}.onnx": ("built", "") for number in range(COUNT)}
    assert len(told) == COUNT + 1
    assert all(check.original is not None for check in found.models if check.outcome == "built")


def test_a_fleet_goes_on_where_its_command_was_killed(
    cluster: Cluster, models: Path, tmp_path: Path
) -> None:
    private, _ = key_files.generate(tmp_path / "key.pem")
    (tmp_path / "fleet.yaml").write_text(
        f"schema: aotc.fleet/1\nname: twenty\nmodels: ['{models}/*.onnx']\n"
    )
    words = [
        *(sys.executable, "-c", _MAIN, "fleet", "build", "fleet.yaml", "--json"),
        *("--on", f"ray://{cluster.address}", "--key", str(private), "--state", "state"),
        "--no-cache",
    ]
    environment = {
        **cluster.environment,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    artifacts = tmp_path / "artifacts"
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as driver:
        while len(list(artifacts.glob("*/*/*.aotc/payload/aotc.json"))) < 3:
            assert driver.poll() is None, driver.communicate()[0]
            time.sleep(0.05)
        driver.kill()
    found = artifacts.glob("*/*/*.aotc/payload/aotc.json")
    done = {path: path.stat().st_mtime_ns for path in found}
    again = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    cells = json.loads(again.stdout)["cells"]
    outcomes = [each["outcome"] for each in cells]
    assert len(cells) == COUNT
    # The last one may have been killed between its artifact and its state.
    assert outcomes.count("reused") >= len(done) - 1
    assert outcomes.count("built") == COUNT - outcomes.count("reused")
    unchanged = [path for path, at in done.items() if path.stat().st_mtime_ns == at]
    assert len(unchanged) >= len(done) - 1
    assert {each["worker"]["name"] for each in cells} <= {"xeon", "epyc", "gpu"}
