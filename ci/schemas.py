"""The JSON Schemas of the wire formats, as they are committed and shipped.

`python ci/schemas.py` compares them with the records, and writes them with `--write`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from aotc.contract.attestation_kinds import KINDS
from aotc.contract.builtin import data_folder
from aotc.contract.codec.schema import schema_text
from aotc.contract.config import Config
from aotc.contract.counters import TelemetryReport
from aotc.contract.manifest.document import Manifest
from aotc.contract.profile import Profile
from aotc.contract.results import command_reports, init_report
from aotc.contract.results import reports as report
from aotc.contract.results.bench_history import HistoryLine
from aotc.contract.results.bench_reports import BenchReport
from aotc.contract.results.cache_reports import CacheListReport, PruneReport
from aotc.contract.results.diff_report import DiffReport
from aotc.contract.results.explain_report import ExplainReport
from aotc.contract.results.model_checks import CheckModelsReport
from aotc.contract.results.packing_reports import PackReport, UnpackReport
from aotc.contract.results.parity_debug import ParityDebugReport
from aotc.contract.results.run_report import RunReport
from aotc.contract.results.store_reports import InstallReport, StoreListReport, StorePruneReport
from aotc.contract.results.trust_reports import RootReport, TrustReport
from aotc.contract.target import Target
from aotc.contract.trust import attestations
from aotc.contract.trust.signer import SignerFile
from aotc.contract.trust.trust_policy import RootKeys, TrustPolicy
from aotc.learning.cost_table import CostTable

# Folder, file name, record.
SCHEMAS: Final[tuple[tuple[str, str, type], ...]] = (
    ("profiles", "profile", Profile),
    ("profiles", "target", Target),
    ("manifests", "manifest", Manifest),
    ("manifests", "signer", SignerFile),
    ("manifests", "build", report.BuildReport),
    ("manifests", "verify", report.VerifyReport),
    ("manifests", "costs", CostTable),
    ("manifests", "learn", command_reports.LearnReport),
    ("manifests", "load", report.LoadReport),
    ("manifests", "inspect", report.InspectReport),
    ("manifests", "diff", DiffReport),
    ("manifests", "parity-debug", ParityDebugReport),
    ("manifests", "error", command_reports.ErrorReport),
    ("manifests", "report", RunReport),
    ("manifests", "run", command_reports.RunReport),
    ("manifests", "telemetry", TelemetryReport),
    ("manifests", "bench", BenchReport),
    ("manifests", "bench-history", HistoryLine),
    ("manifests", "cache-list", CacheListReport),
    ("manifests", "cache-prune", PruneReport),
    ("manifests", "install", InstallReport),
    ("manifests", "store-list", StoreListReport),
    ("manifests", "store-prune", StorePruneReport),
    ("manifests", "explain", ExplainReport),
    ("manifests", "trust", TrustPolicy),
    ("manifests", "root", RootKeys),
    ("manifests", "trust-answer", TrustReport),
    ("manifests", "root-answer", RootReport),
    ("manifests", "keygen", command_reports.KeygenReport),
    ("manifests", "list", command_reports.ListReport),
    ("manifests", "config", Config),
    ("manifests", "config-answer", command_reports.ConfigReport),
    ("manifests", "version", command_reports.VersionReport),
    ("manifests", "pack", PackReport),
    ("manifests", "unpack", UnpackReport),
    ("manifests", "attest", attestations.AttestReport),
    ("manifests", "check", command_reports.CheckReport),
    ("manifests", "init", init_report.InitReport),
    ("manifests", "check-models", CheckModelsReport),
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
