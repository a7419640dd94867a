"""Those who make artifacts: an engineer with a network, and a pipeline; each types line by line."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import pytest
from repository import ROOT
from typist import DIGITS, Typist

INT8 = """\
schema: aotc.profile/1
name: digits-int8
precision: int8
calibration: {data: heldout.npz}
gates:
  outputs:
    logits: {min_agreement: 0.97, replaces_tolerance: true}
  task: {data: heldout.npz, metric: accuracy, max_drop: 0.01}
"""
TOO_EXACT = INT8.replace("min_agreement: 0.97", "min_sqnr_db: 90")
ROOMY = "schema: aotc.profile/1\nname: small\nbudgets: {artifact_bytes: 1000000}\n"
TOO_SMALL = ROOMY.replace("1000000", "1000")
COMPARE = """\
import aotc, numpy as np
held = np.load("heldout.npz")
for name in ("digits.aotc", "int8.aotc"):
    with aotc.load(name) as model:
        right = model.run({"image": held["image"]})["logits"].argmax(1) == held["label"]
    print(name, f"{right.mean():.3f}")
"""


@pytest.fixture
def typist(tmp_path: Path) -> Typist:
    found = Typist(tmp_path)
    for name in ("digits.onnx", "heldout.npz"):
        shutil.copy(DIGITS / name, found.here)
    return found


def test_an_engineer_makes_a_network_small_and_keeps_it_right(typist: Typist) -> None:
    typist.writes("int8.yaml", INT8)
    typist.writes("compare.py", COMPARE)
    typist.types("aotc doctor")
    assert "batch" in typist.types("aotc inspect digits.onnx")
    assert "built, proven and signed" in typist.types("aotc build digits.onnx")
    assert "accuracy of 450 samples" in typist.types(
        "aotc build digits.onnx --profile int8.yaml -o int8.aotc"
    )
    sizes = [
        sum(path.stat().st_size for path in (typist.here / name / "payload").rglob("*.*"))
        for name in ("digits.aotc", "int8.aotc")
    ]
    assert sizes[1] < sizes[0] / 2
    printed = typist.types("python compare.py").split()
    assert abs(float(printed[1]) - float(printed[3])) <= 0.01
    assert "precision" in typist.types("aotc diff digits.aotc int8.aotc")
    assert "median run" in typist.types("aotc bench int8.aotc --against digits.onnx --runs 40")
    assert "logits" in typist.types("aotc run int8.aotc --input heldout.npz")
    typist.types("aotc export int8.aotc -o plain")
    plain = "import onnxruntime as ort; print(ort.InferenceSession('plain/model.onnx'))"
    assert "InferenceSession" in typist.types(f'python -c "{plain}"')


def test_an_engineer_asks_for_too_much_and_is_told_what_to_write(typist: Typist) -> None:
    typist.writes("int8.yaml", TOO_EXACT)
    said = typist.types("aotc build digits.onnx --profile int8.yaml -o int8.aotc", status=1)
    assert "AOTC-N020" in said
    assert "SQNR >= 90 dB" in said
    assert "int8.yaml:7:" in said
    assert not (typist.here / "int8.aotc").exists()
    assert "keep_float32" in typist.types("aotc explain AOTC-N020")


@pytest.mark.slow
def test_an_engineer_comes_from_pytorch(tmp_path: Path) -> None:
    for module in ("torch", "onnxscript"):
        if find_spec(module) is None:
            pytest.skip(f"nothing is trained and exported: there is no {module}")
    typist = Typist(tmp_path)
    typist.types(f"mkdir -p build examples && cp -r {ROOT}/examples/tutorial build/")
    typist.types(f"cp -r {DIGITS} examples/ && python build/tutorial/data.py")
    typist.types("python build/tutorial/network.py")
    typist.types("cd build/tutorial && aotc build digits.onnx")
    said = typist.types(
        "cd build/tutorial && aotc build digits.onnx --profile int8.yaml -o int8.aotc"
    )
    assert "accuracy of 150 samples" in said
    assert typist.types("python build/tutorial/compare.py").count("accuracy 0.9") == 2


def test_a_pipeline_builds_reports_and_stops_at_a_gate(typist: Typist) -> None:
    typist.types("git init -q . && git config user.name a && git config user.email a@example.com")
    typist.types("mkdir models && mv digits.onnx models && git add . && git commit -qm model")
    typist.types("cd models && aotc init digits.onnx")
    assert (typist.here / ".github" / "workflows" / "aotc.yml").is_file()
    assert not (typist.here / "models" / ".github").exists()
    typist.types("aotc profile check models/digits.profile.yaml")
    reports = "--report report.md --report report.xml --report report.sarif --report report.json"
    build = "aotc build models/digits.onnx --profile models/digits.profile.yaml"
    typist.types(f"{build} -o released.aotc")
    # A pull request that changes nothing answers as what was released.
    typist.writes("models/digits.profile.yaml", ROOMY)
    typist.types(f"{build} -o next.aotc --against released.aotc {reports}")
    passed = cases_of_size(typist.here / "report.xml")
    assert "digits" in typist.text("report.md")
    assert list(ElementTree.parse(typist.here / "report.xml").iter("failure")) == []
    assert "AOTC-M001" not in typist.text("report.sarif")
    assert json.loads(typist.text("report.json"))["schema"].startswith("aotc.report/")
    # One that breaches a gate stops, and the reports say where.
    typist.writes("models/digits.profile.yaml", TOO_SMALL)
    said = typist.types(
        f"{build} -o breached.aotc {reports} --format github",
        status=1,
    )
    assert "::error" in said
    assert "AOTC-M001" in said
    assert not (typist.here / "breached.aotc").exists()
    assert cases_of_size(typist.here / "report.xml") == passed != set()
    (failed,) = ElementTree.parse(typist.here / "report.xml").iter("failure")
    assert "artifact_bytes" in str(failed.attrib) + (failed.text or "")
    results = json.loads(typist.text("report.sarif"))["runs"][0]["results"]
    assert [each["ruleId"] for each in results if each["level"] == "error"] == ["AOTC-M001"]
    assert "AOTC-M001" in typist.text("report.md")


def cases_of_size(report: Path) -> set[tuple[str | None, str | None]]:
    """Classes and names of the test cases that tell of the artifact's size."""
    cases = ElementTree.parse(report).iter("testcase")
    names = {(case.get("classname"), case.get("name")) for case in cases}
    return {each for each in names if "artifact_bytes" in str(each)}
