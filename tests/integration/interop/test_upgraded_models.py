"""`aotc fleet upgrade` with two real versions of ONNX Runtime, the newest and the one before.

The version before has an environment of its own, which `make test-previous` makes.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest
from command import Command
from made_models import linear, save
from repository import ROOT

from aotc.spec.codec import decode
from aotc.spec.providers import RUNTIME_MINORS
from aotc.spec.upgrade import UpgradeReport
from aotc.spec.versions import release

BEFORE = ROOT / ".venv-previous"
OLDER, NEWER = RUNTIME_MINORS
# ONNX Runtime 1.31 knows operator sets up to 26.
NEW_OPSET = 27


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """One that both take, one that only the newer takes, and one that neither does."""
    if release(ort.__version__)[:2] != NEWER:
        pytest.skip(f"ONNX Runtime {ort.__version__} is not the newer of the two")
    if not (BEFORE / "bin" / "aotc").exists():
        pytest.skip("no .venv-previous is there: make test-previous makes it")
    folder = tmp_path / "models"
    folder.mkdir()
    save(linear(), folder / "linear.onnx")
    save(linear(opset=NEW_OPSET), folder / "new.onnx")
    unknown = linear()
    unknown.graph.node[0].op_type = "NoSuchOperator"
    save(unknown, folder / "unknown.onnx")
    return folder


def test_to_the_version_before(tmp_path: Path, models: Path) -> None:
    """What it lacks fails; an artifact of the newer version does not run there."""
    outcome = Command(tmp_path)("fleet", "upgrade", models, "--to", BEFORE, "--no-latency")
    answer = decode(UpgradeReport, outcome.document)
    assert release(answer.after.versions.onnxruntime)[:2] == OLDER
    found = {each.model: each for each in answer.models}
    assert {name: each.outcome for name, each in found.items()} == {
        "linear.onnx": "same",
        "new.onnx": "fails",
        "unknown.onnx": "fails-in-both",
    }
    assert outcome.status == 1
    refusal = found["new.onnx"].after.refusal
    assert refusal is not None
    assert refusal.code == "AOTC-I008"
    answers = found["linear.onnx"].answers
    assert (answers.identical, answers.not_compared) == (True, ())
    assert answers.calls >= 1
    assert answers.earlier_artifact.startswith("AOTC-C")


@pytest.mark.slow
def test_from_the_version_before(tmp_path: Path, models: Path) -> None:
    """Nothing is worse; an artifact of the version before runs on the newer one."""
    (models / "unknown.onnx").unlink()
    outcome = Command(tmp_path)(
        "fleet", "upgrade", models, "--from", BEFORE, "--to", ort.__version__, "--no-latency"
    )
    answer = decode(UpgradeReport, outcome.document)
    found = {each.model: each for each in answer.models}
    assert {name: each.outcome for name, each in found.items()} == {
        "linear.onnx": "same",
        "new.onnx": "builds-now",
    }
    assert outcome.status == 0
    answers = found["linear.onnx"].answers
    assert (answers.identical, answers.earlier_artifact) == (True, "")
