"""What people read of signers, policies and stores: names, whole ids, headings and plurals."""

from __future__ import annotations

import io
from typing import Any

import pytest

from aotc.base.errors import expected_and_found
from aotc.cli import main as cli
from aotc.cli import terminal
from aotc.report.sheets import measurements
from aotc.report.sheets.artifact import attested_view
from aotc.report.sheets.stores import install_view, list_view
from aotc.report.sheets.trust import decision_sheet, verify_view
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import Approval, ArtifactName, AttestReport
from aotc.spec.command_reports import InstallReport, RunReport, StoreEntry, StoreListReport
from aotc.spec.payload import Finding
from aotc.spec.reports import (
    ConsideredAttestation,
    LoadReport,
    PolicyDecision,
    RequirementResult,
    VerifyReport,
)

ID = "8a" * 32
KEY = "7d" * 32


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a terminal."""
    monkeypatch.setenv("COLUMNS", "80")


def text(parts: Any) -> str:
    shown = io.StringIO()
    terminal.show_sheet(parts, file=shown)
    return shown.getvalue()


def answer(**change: Any) -> AttestReport:
    fields: dict[str, Any] = {
        "artifact": "m.aotc",
        "artifact_id": ID,
        "path": "m.aotc/attestations/oms-7d.sigstore.json",
        "predicate_type": "https://model_signing/signature/v1.0",
        "key_id": KEY,
        "development_key": False,
    }
    return AttestReport(**(fields | change))


def test_a_signature_is_signed_and_an_approval_attested() -> None:
    said = Approval(
        channel="prod",
        expires="2027-01-31T00:00:00Z",
        issued_at="2026-11-21T00:00:00Z",
        artifact=ArtifactName(name="m", id=ID),
    )
    signed = text(attested_view(answer()))
    assert signed.startswith("m.aotc  signed\n")
    assert f"  artifact   {ID}\n" in signed
    approved = answer(predicate_type=KINDS["approval"].predicate_type, approval=said)
    assert text(attested_view(approved)).startswith("m.aotc  attested\n")


def test_signers_have_the_names_of_the_policy() -> None:
    report = VerifyReport(
        artifact="m.aotc",
        artifact_id=ID,
        authentic=True,
        verdict="optimal",
        signers=(KEY, ID),
        signer_names=("ca, CN=release", ""),
        target="host",
        steps=(),
    )
    shown = text(verify_view(report))
    assert f"  artifact   {ID}\n" in shown
    assert "  signed by  ca, CN=release (key 7d7d7d7d7d7d), 8a8a8a8a8a8a\n" in shown


def test_what_is_not_known_is_not_shown() -> None:
    assert expected_and_found("", "x") == " (found x)"
    assert expected_and_found("a", "b") == " (expected a; found b)"
    assert expected_and_found("", "") == ""


def test_an_install_shows_whole_ids_and_findings() -> None:
    report = InstallReport(
        artifact="m.aotc",
        artifact_id=ID,
        name="m",
        store="/var/lib/aotc/store",
        folder=f"/var/lib/aotc/store/sha256-{ID}",
        installed=True,
        attestations=("oms.sigstore.json",),
        bytes=1000,
        findings=(Finding(code="AOTC-G021", what="no root keys", where="trust.yaml"),),
        seconds=0.1,
    )
    shown = text(install_view(report))
    assert f"  artifact  {ID}\n" in shown
    assert "  added     1 attestation: oms.sigstore.json\n" in shown
    assert shown.endswith("findings\n  AOTC-G021  trust.yaml: no root keys\n")


def test_every_column_of_a_store_has_its_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    entry = StoreEntry(
        artifact_id=ID,
        name="m",
        bytes=1000,
        attestations=4,
        installed_at="2026-11-21T16:00:00+00:00",
        used_at="2026-11-21T17:00:00+00:00",
        in_use=True,
    )
    shown = text(list_view(StoreListReport(store="/s", bytes=1000, entries=(entry,))))
    first, _, heads, row = shown.splitlines()
    assert first == "/s  1 artifact, 1.0 kB"
    for name, value in (
        ("name", "m"),
        ("size", "1.0 kB"),
        ("bundles", "4"),
        ("in use", "yes"),
    ):
        assert heads.index(name) == row.index(value, heads.index(name)), name


def test_a_decision_without_a_channel() -> None:
    counted = ConsideredAttestation(
        path="attestations/oms.sigstore.json", key_id=KEY, id="release", counts=True
    )
    need = RequirementResult(
        predicate="oms",
        signers=("release",),
        threshold=1,
        distinct=1,
        met=True,
        considered=(counted,),
    )
    decision = PolicyDecision(
        policy="plant",
        sequence=1,
        sha256=ID,
        expires="2027-02-19T00:00:00Z",
        artifact="m",
        accepted=True,
        rule="default",
        requirements=(need,),
    )
    lines = text(decision_sheet(decision)).splitlines()
    assert "  channel      none" in lines
    assert "requirements  result  signers  count" in lines
    assert "  oms         met     release  1 of 1 distinct key" in lines
    assert "attestations         signer   key           result" in lines


@pytest.mark.parametrize("artifact", ["m.aotc", f"sha256-{ID}"])
def test_of_an_entry_there_is_no_path(artifact: str) -> None:
    load = LoadReport(
        artifact_id=ID,
        variant="portable",
        verdict="optimal",
        from_store=True,
        verify_seconds=0.001,
        session_seconds=0.001,
        warmup_seconds=0.001,
    )
    shown = text(measurements.run_view(RunReport(artifact=artifact, load=load, runs=())))
    assert ("the files at the path" in shown) == (artifact == "m.aotc")


@pytest.mark.parametrize("command", ["run", "bench", "verify"])
@pytest.mark.parametrize("digits", ["53b15", ID])
def test_an_entry_is_named_by_its_whole_id(
    command: str,
    digits: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))
    assert cli.main([command, f"sha256-{digits}"]) == 3
    said = capsys.readouterr().err
    assert "AOTC-I001" in said
    assert "all 64 digits" in said
    assert ("5 digits" in said) == (digits == "53b15")
