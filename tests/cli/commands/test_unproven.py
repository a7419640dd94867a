"""What no machine at hand can prove: every answer of the command says so, and what proves it."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest
from command import Command
from junitparser import JUnitXml, Skipped
from made_models import linear, save

from aotc.spec.codec import decode
from aotc.spec.run_report import RunReport

FORMS = ("r.json", "r.md", "r.xml", "r.sarif", "r.codequality.json", "r.html")
REPORTS = tuple(word for name in FORMS for word in ("--report", name))
FOREIGN = "linux-x86-64" if platform.machine() == "aarch64" else "linux-arm64"
PROVES = "'aotc attest m.aotc --qualify' proves it"


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in a folder with a model."""
    save(linear(), tmp_path / "linear.onnx")
    return Command(tmp_path)


def told(aotc: Command, *words: str) -> dict[str, str]:
    """Every form of the report of a command that ends well, and what it printed."""
    outcome = aotc.plain(*words, *REPORTS, "--format", "github")
    assert outcome.status == 0, outcome.stderr
    texts = {name: (aotc.folder / name).read_text(encoding="utf-8") for name in FORMS}
    return {**texts, "shown": outcome.stdout, "annotations": outcome.stderr}


def assert_not_proven(texts: dict[str, str], reason: str) -> None:
    """Each form says of the variant `portable` that it is not proven, and none that all is well."""
    report = decode(RunReport, json.loads(texts["r.json"]))
    (proof,) = (gate for gate in report.gates if gate.name == "proof")
    assert (proof.subject, proof.status) == ("variant portable", "not-judged")
    assert proof.measured.startswith(f"not proven: {reason}")
    assert texts["r.md"].startswith("### ⚠️ `aotc ")
    assert "1 not judged" in texts["r.md"]
    assert "variant portable is not proven" in texts["r.md"]
    assert "variant portable is not proven" in texts["r.html"]
    (suite,) = JUnitXml.fromstring(texts["r.xml"].encode())
    (case,) = (each for each in suite if each.name == "proof")
    assert isinstance(case.result[0], Skipped)
    assert "not proven" in case.result[0].message
    (result,) = (
        each
        for each in json.loads(texts["r.sarif"])["runs"][0]["results"]
        if each["ruleId"] == "AOTC-N002"
    )
    assert result["level"] == "warning"
    assert PROVES in result["message"]["text"]
    issues = json.loads(texts["r.codequality.json"])
    assert [each["severity"] for each in issues if each["check_name"] == "AOTC-N002"] == ["minor"]
    (warning,) = (line for line in texts["annotations"].splitlines() if "AOTC-N002" in line)
    assert warning.startswith("::warning ")
    assert "NOT PROVEN" in texts["shown"]
    for name, text in texts.items():
        assert "gates passed." not in text, name


def test_a_build_for_cuda_without_a_gpu(aotc: Command) -> None:
    from aotc.providers.cuda import CudaBackend

    if CudaBackend().probe().runs:
        pytest.skip("this machine runs CUDA")
    words = ("build", "linear.onnx", "--profile", "server-cuda", "-o", "m.aotc", "--force")
    first = told(aotc, *words)
    assert_not_proven(first, "cuda: ")
    # What was compared says where, and so does a build from the cache.
    for texts in (first, told(aotc, *words)):
        report = decode(RunReport, json.loads(texts["r.json"]))
        (parity,) = (gate for gate in report.gates if gate.name == "parity.float32")
        assert parity.subject == ("variant portable, undivided on the CPU, not on CUDA, output 'y'")
        assert_not_proven(texts, "cuda: ")
    assert texts["shown"].startswith("m.aotc  from the build cache; built and signed; NOT PROVEN")


def test_a_build_for_another_architecture(aotc: Command) -> None:
    words = ("build", "linear.onnx", "--target", FOREIGN, "-o", "m.aotc")
    refused = aotc(*words)
    assert (refused.status, refused.first["code"]) == (1, "AOTC-N002")
    assert "--allow-unproven" in refused.first["fix"]
    assert "aotc attest --qualify" in refused.first["fix"]
    assert not (aotc.folder / "m.aotc").exists()
    texts = told(aotc, *words, "--allow-unproven")
    assert_not_proven(texts, "built on ")
    assert "  to prove   on the device: aotc attest m.aotc --qualify\n" in texts["shown"]
    assert ", on the build host\n" in texts["shown"]
    report = decode(RunReport, json.loads(texts["r.json"]))
    elsewhere = f"variant portable, on the build host, not on {FOREIGN}"
    measured = {each.subject for each in report.measurements if each.name != "size"}
    assert measured == {elsewhere, f"{elsewhere}, output 'y'"}
    assert f"| `latency, on the build host, not on {FOREIGN}` |" in texts["r.md"]
    # The option is the profile's setting, and stands where a precision that was given stands.
    manifest = json.loads((aotc.folder / "m.aotc" / "payload" / "aotc.json").read_bytes())
    assert manifest["profile"]["unproven"] == "allow"
    # However quiet a call is to be, what nothing proves is told.
    quiet = aotc.plain(*words, "--allow-unproven", "-q")
    assert re.fullmatch("[0-9a-f]{64}\n", quiet.stdout)
    assert quiet.stderr.startswith("m.aotc: NOT PROVEN: ")
    built = told(aotc, "verify", "m.aotc", "--target", FOREIGN)
    assert_not_proven(built, "built on ")
    assert built["shown"].startswith(
        "m.aotc  VERIFIED, degraded: runs, but portable is NOT PROVEN\n"
    )
    assert PROVES in " ".join(built["shown"].split())
    inspected = aotc.plain("inspect", "m.aotc").stdout
    assert "NOT PROVEN: built on " in inspected
    assert PROVES in " ".join(inspected.split())
    assert "to prove " in aotc.plain("inspect", "m.aotc", "--summary").stdout


def test_what_is_proven_is_a_gate_that_passed(aotc: Command) -> None:
    texts = told(aotc, "build", "linear.onnx", "--allow-unproven", "-o", "m.aotc")
    report = decode(RunReport, json.loads(texts["r.json"]))
    (proof,) = (gate for gate in report.gates if gate.name == "proof")
    assert proof.status == "passed"
    assert proof.measured.startswith("proven on ")
    assert texts["r.md"].startswith("### ✅ `aotc build` passed\n")
    assert f"All {len(report.gates)} gates passed." in texts["r.md"]
    assert "built, proven and signed" in texts["shown"]
    assert "to prove" not in texts["shown"]
    texts = told(aotc, "verify", "m.aotc")
    assert texts["r.md"].startswith("### ✅ `aotc verify` passed\n")
    assert "VERIFIED, optimal" in texts["shown"]
