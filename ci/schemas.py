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
from aotc.contract.counters import TelemetryAnswer
from aotc.contract.manifest.document import Manifest
from aotc.contract.profile import Profile
from aotc.contract.results import answers
from aotc.contract.results import reports as report
from aotc.contract.results.cache_answers import CacheListAnswer, PruneReport
from aotc.contract.results.model_checks import CheckModelsAnswer
from aotc.contract.results.packing_answers import PackAnswer, UnpackAnswer
from aotc.contract.results.store_answers import InstallReport, StoreListAnswer, StorePruneReport
from aotc.contract.results.trust_answers import RootAnswer, TrustAnswer
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
    ("manifests", "learn", answers.LearnAnswer),
    ("manifests", "load", report.LoadReport),
    ("manifests", "inspect", report.InspectReport),
    ("manifests", "error", answers.ErrorAnswer),
    ("manifests", "run", answers.RunAnswer),
    ("manifests", "telemetry", TelemetryAnswer),
    ("manifests", "bench", answers.BenchAnswer),
    ("manifests", "cache-list", CacheListAnswer),
    ("manifests", "cache-prune", PruneReport),
    ("manifests", "install", InstallReport),
    ("manifests", "store-list", StoreListAnswer),
    ("manifests", "store-prune", StorePruneReport),
    ("manifests", "explain", answers.ExplainAnswer),
    ("manifests", "trust", TrustPolicy),
    ("manifests", "root", RootKeys),
    ("manifests", "trust-answer", TrustAnswer),
    ("manifests", "root-answer", RootAnswer),
    ("manifests", "keygen", answers.KeygenAnswer),
    ("manifests", "list", answers.ListAnswer),
    ("manifests", "pack", PackAnswer),
    ("manifests", "unpack", UnpackAnswer),
    ("manifests", "attest", attestations.AttestAnswer),
    ("manifests", "check", answers.CheckAnswer),
    ("manifests", "check-models", CheckModelsAnswer),
    ("manifests", "doctor", answers.DoctorAnswer),
    *(("manifests", kind.usage, kind.load_record()) for kind in KINDS.values() if kind.record),
)


def path_of(folder: str, name: str) -> Path:
    """Where a schema is committed."""
    return data_folder(folder) / f"{name}.schema.json"


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` write, every schema; 1 where one is not current."""
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
