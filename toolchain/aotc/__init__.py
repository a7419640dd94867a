"""aotc: an ahead-of-time build toolchain for ONNX models.

What `__all__` names is public; everything else is private, and may change in any release.  Each
name is imported when it is first used, so a host that only verifies artifacts needs neither onnx,
onnxruntime nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.spec.versions import VERSION as __version__

if TYPE_CHECKING:
    from aotc.base.errors import AotcError, Place
    from aotc.base.progress import Count, Watcher
    from aotc.base.text import printable
    from aotc.fleet.building import build_fleet
    from aotc.fleet.check_models import check_models
    from aotc.pipeline.build import build
    from aotc.report.html.artifact_page import write_page
    from aotc.runtime.binding import BoundCall
    from aotc.runtime.dlpack import DeviceTensor
    from aotc.runtime.loading import load
    from aotc.runtime.model import Model
    from aotc.runtime.prometheus import PrometheusMetrics
    from aotc.runtime.telemetry import Telemetry
    from aotc.session.worker_pool import Workers
    from aotc.spec.bench_reports import BenchReport, NodesReport, NodeTime, Timing
    from aotc.spec.command_reports import (
        CallRoute,
        CheckModelsReport,
        ExportReport,
        LearnReport,
        MergedVariant,
        MergeReport,
        ModelCheck,
        PlanRow,
        PullReport,
        PushReport,
    )
    from aotc.spec.diff_report import AreaDiff, Change, DiffReport
    from aotc.spec.evidence import OutputError, VariantEvidence
    from aotc.spec.fleet import Cell, CellResult, FleetReport
    from aotc.spec.json import to_json
    from aotc.spec.manifest import Manifest
    from aotc.spec.payload import Finding, Value
    from aotc.spec.profile import Profile
    from aotc.spec.profile_files import load_profile
    from aotc.spec.reports import (
        ArtifactSummary,
        BuildReport,
        CheckResult,
        Claim,
        InspectReport,
        LoadReport,
        ProvenWhere,
        Refusal,
        VariantLoad,
        VariantSummary,
        VariantVerdict,
        VerifyReport,
    )
    from aotc.spec.reproduction import ReproduceReport
    from aotc.spec.run_report import Gate, Journal, Measurement
    from aotc.spec.traffic import TelemetryReport, VariantTelemetry
    from aotc.spec.trust_policy import Signer
    from aotc.spec.variant import Variant
    from aotc.tools.bench import bench
    from aotc.tools.diff.artifacts import diff
    from aotc.tools.export import export
    from aotc.tools.inspect import inspect
    from aotc.tools.learn import profile_learn
    from aotc.tools.merge import merge_artifacts
    from aotc.tools.pulling import pull
    from aotc.tools.pushing import push
    from aotc.tools.reproduce.rebuilding import reproduce
    from aotc.trust.gate import verify
    from aotc.trust.keyless_signing import KeylessSigner

__all__ = [
    "AotcError",
    "AreaDiff",
    "ArtifactSummary",
    "BenchReport",
    "BoundCall",
    "BuildReport",
    "CallRoute",
    "Cell",
    "CellResult",
    "Change",
    "CheckModelsReport",
    "CheckResult",
    "Claim",
    "Count",
    "DeviceTensor",
    "DiffReport",
    "ExportReport",
    "Finding",
    "FleetReport",
    "Gate",
    "InspectReport",
    "Journal",
    "KeylessSigner",
    "LearnReport",
    "LoadReport",
    "Manifest",
    "Measurement",
    "MergeReport",
    "MergedVariant",
    "Model",
    "ModelCheck",
    "NodeTime",
    "NodesReport",
    "OutputError",
    "Place",
    "PlanRow",
    "Profile",
    "PrometheusMetrics",
    "ProvenWhere",
    "PullReport",
    "PushReport",
    "Refusal",
    "ReproduceReport",
    "Signer",
    "Telemetry",
    "TelemetryReport",
    "Timing",
    "Value",
    "Variant",
    "VariantEvidence",
    "VariantLoad",
    "VariantSummary",
    "VariantTelemetry",
    "VariantVerdict",
    "VerifyReport",
    "Watcher",
    "Workers",
    "__version__",
    "bench",
    "build",
    "build_fleet",
    "check_models",
    "diff",
    "export",
    "inspect",
    "load",
    "load_profile",
    "merge_artifacts",
    "printable",
    "profile_learn",
    "pull",
    "push",
    "reproduce",
    "to_json",
    "verify",
    "write_page",
]

# Where each name is: the same as above, which type checkers read.
_PUBLIC = {
    "AotcError": "aotc.base.errors",
    "AreaDiff": "aotc.spec.diff_report",
    "ArtifactSummary": "aotc.spec.reports",
    "BenchReport": "aotc.spec.bench_reports",
    "BoundCall": "aotc.runtime.binding",
    "BuildReport": "aotc.spec.reports",
    "CallRoute": "aotc.spec.command_reports",
    "Cell": "aotc.spec.fleet",
    "CellResult": "aotc.spec.fleet",
    "Change": "aotc.spec.diff_report",
    "CheckModelsReport": "aotc.spec.command_reports",
    "CheckResult": "aotc.spec.reports",
    "Claim": "aotc.spec.reports",
    "Count": "aotc.base.progress",
    "DeviceTensor": "aotc.runtime.dlpack",
    "DiffReport": "aotc.spec.diff_report",
    "ExportReport": "aotc.spec.command_reports",
    "Finding": "aotc.spec.payload",
    "FleetReport": "aotc.spec.fleet",
    "Gate": "aotc.spec.run_report",
    "InspectReport": "aotc.spec.reports",
    "Journal": "aotc.spec.run_report",
    "KeylessSigner": "aotc.trust.keyless_signing",
    "LearnReport": "aotc.spec.command_reports",
    "LoadReport": "aotc.spec.reports",
    "Manifest": "aotc.spec.manifest",
    "Measurement": "aotc.spec.run_report",
    "MergeReport": "aotc.spec.command_reports",
    "MergedVariant": "aotc.spec.command_reports",
    "Model": "aotc.runtime.model",
    "ModelCheck": "aotc.spec.command_reports",
    "NodeTime": "aotc.spec.bench_reports",
    "NodesReport": "aotc.spec.bench_reports",
    "OutputError": "aotc.spec.evidence",
    "Place": "aotc.base.errors",
    "PlanRow": "aotc.spec.command_reports",
    "Profile": "aotc.spec.profile",
    "PrometheusMetrics": "aotc.runtime.prometheus",
    "ProvenWhere": "aotc.spec.reports",
    "PullReport": "aotc.spec.command_reports",
    "PushReport": "aotc.spec.command_reports",
    "Refusal": "aotc.spec.reports",
    "ReproduceReport": "aotc.spec.reproduction",
    "Signer": "aotc.spec.trust_policy",
    "Telemetry": "aotc.runtime.telemetry",
    "TelemetryReport": "aotc.spec.traffic",
    "Timing": "aotc.spec.bench_reports",
    "Value": "aotc.spec.payload",
    "Variant": "aotc.spec.variant",
    "VariantEvidence": "aotc.spec.evidence",
    "VariantLoad": "aotc.spec.reports",
    "VariantSummary": "aotc.spec.reports",
    "VariantTelemetry": "aotc.spec.traffic",
    "VariantVerdict": "aotc.spec.reports",
    "VerifyReport": "aotc.spec.reports",
    "Watcher": "aotc.base.progress",
    "Workers": "aotc.session.worker_pool",
    "bench": "aotc.tools.bench",
    "build": "aotc.pipeline.build",
    "build_fleet": "aotc.fleet.building",
    "check_models": "aotc.fleet.check_models",
    "diff": "aotc.tools.diff.artifacts",
    "export": "aotc.tools.export",
    "inspect": "aotc.tools.inspect",
    "load": "aotc.runtime.loading",
    "load_profile": "aotc.spec.profile_files",
    "merge_artifacts": "aotc.tools.merge",
    "printable": "aotc.base.text",
    "profile_learn": "aotc.tools.learn",
    "pull": "aotc.tools.pulling",
    "push": "aotc.tools.pushing",
    "reproduce": "aotc.tools.reproduce.rebuilding",
    "to_json": "aotc.spec.json",
    "verify": "aotc.trust.gate",
    "write_page": "aotc.report.html.artifact_page",
}
# What only loads and runs artifacts, for which ONNX Runtime's package is enough.
_LOADS = frozenset(("BoundCall", "DeviceTensor", "Model", "bench", "load"))
# Wings that import no compiled packages.
_LIGHT = ("aotc.base.", "aotc.spec.")
# What another extra than `cpu` brings the packages of.
_EXTRAS = {"write_page": "report"}


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if not TYPE_CHECKING:
    # Else a type checker would take every name for one of the package's.

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module 'aotc' has no attribute {name!r}")
        from importlib import import_module

        imported = import_module
        if not _PUBLIC[name].startswith(_LIGHT):
            from aotc.base.interruptions import uninterrupted

            # Modules in C, such as numpy's, cannot be imported again after half of it.
            imported = uninterrupted(import_module)
        try:
            return getattr(imported(_PUBLIC[name]), name)
        except ModuleNotFoundError as error:
            from aotc.base.errors import missing_package

            extra = _EXTRAS.get(name, "cpu")
            raise missing_package(error, f"aotc.{name}", extra, only_loads=name in _LOADS) from None
