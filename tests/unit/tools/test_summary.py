"""Inspection of an artifact: everything that it states, without verifying it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_builder import build_artifact, payload_digests, sign_artifact
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.codec import encode
from aotc.spec.evidence import Comparison, Evidence, OutputError, VariantEvidence
from aotc.tools.inspect import inspect, worst_errors
from aotc.trust import key_files, statements
from aotc.trust.development_key import development_key
from aotc.trust.key_loading import PrivateKey, load_private

TOOLCHAIN = ROOT / "toolchain"


@pytest.fixture
def development(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivateKey:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return development_key()


@pytest.fixture
def artifact(tmp_path: Path, development: PrivateKey) -> Path:
    folder = build_artifact(tmp_path / "linear.aotc", development)
    attest_evidence(folder, development)
    return folder


def evidence() -> Evidence:
    comparisons = tuple(
        Comparison(fixture=name, outputs=(OutputError(output="y", max_abs=a, max_rel=r, cosine=c),))
        for name, a, r, c in (("opt", 1e-6, 3e-7, 0.9999), ("max", 2e-6, 1e-7, None))
    )
    portable = VariantEvidence(
        name="portable", comparisons=comparisons, load_seconds=0.5, peak_memory_bytes=1000
    )
    return Evidence(
        built_at="2026-11-21T00:00:00+00:00", stages={"import": 0.1}, variants=(portable,), host={}
    )


def attest_evidence(folder: Path, key: PrivateKey, subject: str = "") -> None:
    identity = subject or payload_digests(folder)["aotc.json"]
    (folder / "attestations" / "evidence.sigstore.json").write_bytes(
        statements.sign(
            KINDS["evidence"].predicate_type, encode(evidence()), {"aotc.json": identity}, key
        )
    )


def test_what_an_artifact_says(artifact: Path, development: PrivateKey) -> None:
    report = inspect(artifact)
    assert (report.status, report.kind, report.name) == ("UNVERIFIED", "artifact", "linear")
    assert [value.name for value in (*report.inputs, *report.outputs)] == ["x", "y"]
    assert report.problems == ()
    said = report.artifact
    assert said is not None
    assert said.artifact_id == payload_digests(artifact)["aotc.json"]
    assert [(claim.path, claim.key_id, claim.development_key) for claim in said.claims] == [
        ("attestations/evidence.sigstore.json", development.key_id, True),
        ("attestations/oms.sigstore.json", development.key_id, True),
    ]
    payload = [path for path in (artifact / "payload").rglob("*") if path.is_file()]
    assert said.files == len(payload)
    assert said.payload_bytes == sum(path.stat().st_size for path in payload)
    portable, native = said.variants
    assert portable.share == {"CPUExecutionProvider": 1.0}
    assert portable.worst == (OutputError(output="y", max_abs=2e-6, max_rel=3e-7, cosine=0.9999),)
    assert (portable.load_seconds, portable.peak_memory_bytes) == (0.5, 1000)
    assert native.worst == ()
    assert native.load_seconds is None
    assert said.built_at == "2026-11-21T00:00:00+00:00"


def test_a_foreign_key_is_not_a_development_key(tmp_path: Path, artifact: Path) -> None:
    private, _ = key_files.generate(tmp_path / "other.pem")
    sign_artifact(artifact, load_private(private))
    said = inspect(artifact).artifact
    assert said is not None
    assert [claim.development_key for claim in said.claims] == [False, False]


def test_a_changed_payload_is_still_shown_unverified(artifact: Path) -> None:
    model = artifact / "payload" / "model" / "portable" / "model.onnx"
    model.write_bytes(b"changed")
    report = inspect(artifact)
    assert report.status == "UNVERIFIED"
    assert report.problems == ()


def test_evidence_about_another_artifact_is_not_shown(
    artifact: Path, development: PrivateKey
) -> None:
    attest_evidence(artifact, development, subject="0" * 64)
    report = inspect(artifact)
    assert [(problem.code, problem.what) for problem in report.problems] == [
        ("AOTC-G014", "the attestation is about another artifact")
    ]
    assert report.artifact is not None
    assert report.artifact.variants[0].worst == ()


def test_a_broken_attestation_is_a_problem_and_no_end(artifact: Path) -> None:
    (artifact / "attestations" / "oms.sigstore.json").write_text("{", encoding="utf-8")
    (artifact / "attestations" / "evidence.sigstore.json").unlink()
    report = inspect(artifact)
    assert [problem.code for problem in report.problems] == ["AOTC-G004"]
    assert report.artifact is not None
    assert report.artifact.claims == ()


def change(artifact: Path, **fields: object) -> None:
    path = artifact / "payload" / "aotc.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields), encoding="utf-8")


def test_a_newer_minor_and_an_unknown_feature_are_said(artifact: Path) -> None:
    change(artifact, schema="aotc.manifest/1.99", later=1, required_features=["time-travel"])
    report = inspect(artifact)
    assert [finding.code for finding in report.findings] == ["AOTC-G017"]
    assert "time-travel" in report.problems[0].what


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"schema": "aotc.manifest/2.0"}, "AOTC-G010 the artifact was made by a newer aotc"),
        ({"schema": "other"}, "AOTC-G009 is not like aotc.manifest/1.0"),
        ({"nam": 1}, "AOTC-G009 unknown field; did you mean 'name'?"),
        ({"variants": []}, "AOTC-G009 0 is less than 1"),
    ],
)
def test_a_manifest_that_cannot_be_read(
    artifact: Path, fields: dict[str, object], line: str
) -> None:
    change(artifact, **fields)
    with pytest.raises(AotcError) as caught:
        inspect(artifact)
    assert caught.value.line().startswith(line)


def test_what_is_not_an_artifact(tmp_path: Path, artifact: Path) -> None:
    with pytest.raises(AotcError) as missing:
        inspect(tmp_path / "none")
    assert missing.value.code == "AOTC-I001"
    (artifact / "payload" / "aotc.json").unlink()
    with pytest.raises(AotcError) as bare:
        inspect(artifact)
    assert bare.value.code == "AOTC-G015"
    (artifact / "payload" / "aotc.json").symlink_to("/etc/hostname")
    with pytest.raises(AotcError) as link:
        inspect(artifact)
    assert link.value.code == "AOTC-G008"
    (tmp_path / "text.onnx").write_text("no model", encoding="utf-8")
    with pytest.raises(AotcError) as text:
        inspect(tmp_path / "text.onnx")
    assert text.value.code == "AOTC-I002"


def test_an_artifact_is_read_without_anything_heavy(artifact: Path) -> None:
    code = (
        f"import sys, aotc; aotc.inspect({str(artifact)!r});"
        "print([n for n in ('numpy', 'onnx', 'onnxruntime', 'cryptography', 'yaml', 'rich')"
        " if n in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "[]\n"


def test_a_failed_comparison_is_the_worst() -> None:
    outputs = (
        OutputError(output="y", max_abs=1.0, max_rel=0.1, passed=False, reason="too far"),
        OutputError(output="y", max_abs=0.5, max_rel=0.2),
    )
    comparisons = tuple(Comparison(fixture="f", outputs=(value,)) for value in outputs)
    assert worst_errors(VariantEvidence(name="v", comparisons=comparisons)) == (
        OutputError(output="y", max_abs=1.0, max_rel=0.2, passed=False, reason="too far"),
    )
