"""The JSON Schemas of the wire formats, as they are committed and shipped.

`python ci/schemas.py` compares them with the records, and writes them with `--write`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from aotc.spec import attestations, command_reports, fleet, matrix_report, reports
from aotc.spec import command_reports as init_report
from aotc.spec.answers import KeptAnswers
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.bench_reports import BenchReport, HistoryLine
from aotc.spec.command_reports import (
    CacheListReport,
    CheckModelsReport,
    InstallReport,
    PackReport,
    PruneReport,
    RootReport,
    StoreListReport,
    StorePruneReport,
    TrustReport,
    UnpackReport,
)
from aotc.spec.config import Config
from aotc.spec.diff_report import DiffReport
from aotc.spec.json_schema import schema_text
from aotc.spec.manifest import Manifest
from aotc.spec.profile import Profile
from aotc.spec.profile_files import data_folder
from aotc.spec.reports import ParityDebugReport
from aotc.spec.reproduction import ReproduceReport
from aotc.spec.run_report import RunReport
from aotc.spec.target import Target
from aotc.spec.traffic import TelemetryReport
from aotc.spec.trust_policy import RootKeys, SignerFile, TrustPolicy
from aotc.spec.upgrade import UpgradeReport
from aotc.tools.explanation import ExplainReport
from aotc.tools.learn_costs import CostTable

# Folder, file name, record.
SCHEMAS: Final[tuple[tuple[str, str, type], ...]] = (
    ("profiles", "profile", Profile),
    ("profiles", "target", Target),
    ("profiles", "fleet", fleet.Fleet),
    ("manifests", "manifest", Manifest),
    ("manifests", "signer", SignerFile),
    ("manifests", "build", reports.BuildReport),
    ("manifests", "verify", reports.VerifyReport),
    ("manifests", "fleet-plan", fleet.FleetPlan),
    ("manifests", "fleet-report", fleet.FleetReport),
    ("manifests", "fleet-verify", matrix_report.CompatibilityReport),
    ("manifests", "fleet-emit", matrix_report.EmitReport),
    ("manifests", "costs", CostTable),
    ("manifests", "profile-learn", command_reports.LearnReport),
    ("manifests", "load", reports.LoadReport),
    ("manifests", "inspect", reports.InspectReport),
    ("manifests", "diff", DiffReport),
    ("manifests", "debug-parity", ParityDebugReport),
    ("manifests", "error", command_reports.ErrorReport),
    ("manifests", "report", RunReport),
    ("manifests", "run", command_reports.RunReport),
    ("manifests", "telemetry", TelemetryReport),
    ("manifests", "fleet-upgrade", UpgradeReport),
    ("manifests", "bench", BenchReport),
    ("manifests", "bench-history", HistoryLine),
    ("manifests", "cache-list", CacheListReport),
    ("manifests", "cache-prune", PruneReport),
    ("manifests", "install", InstallReport),
    ("manifests", "pull", command_reports.PullReport),
    ("manifests", "store-list", StoreListReport),
    ("manifests", "store-prune", StorePruneReport),
    ("manifests", "explain", ExplainReport),
    ("manifests", "trust", TrustPolicy),
    ("manifests", "root", RootKeys),
    ("manifests", "trust-report", TrustReport),
    ("manifests", "root-report", RootReport),
    ("manifests", "keygen", command_reports.KeygenReport),
    ("manifests", "list", command_reports.ListReport),
    ("manifests", "config", Config),
    ("manifests", "config-report", command_reports.ConfigReport),
    ("manifests", "version", command_reports.VersionReport),
    ("manifests", "pack", PackReport),
    ("manifests", "unpack", UnpackReport),
    ("manifests", "push", command_reports.PushReport),
    ("manifests", "export", command_reports.ExportReport),
    ("manifests", "merge", command_reports.MergeReport),
    ("manifests", "exported", command_reports.Exported),
    ("manifests", "attest", attestations.AttestReport),
    ("manifests", "reproduce", ReproduceReport),
    ("manifests", "profile-check", command_reports.CheckReport),
    ("manifests", "init", init_report.InitReport),
    ("manifests", "check-models", CheckModelsReport),
    ("manifests", "kept-answers", KeptAnswers),
    ("manifests", "doctor", command_reports.DoctorReport),
    *(("manifests", kind.usage, kind.load_record()) for kind in KINDS.values() if kind.record),
)


def path_of(folder: str, name: str) -> Path:
    """The path at which a schema is committed."""
    return data_folder(folder) / f"{name}.schema.json"


def main(arguments: list[str]) -> int:
    """Compare every schema, or write it with `--write`; 1 if one is not current."""
    stale = 0
    for folder, name, cls in SCHEMAS:
        path, text = path_of(folder, name), schema_text(cls)
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        if "--write" in arguments:
            path.write_text(text, "utf-8")
        else:
            stale = 1
        sys.stdout.write(f"{'wrote' if '--write' in arguments else 'not current:'} {path}\n")
    return stale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
