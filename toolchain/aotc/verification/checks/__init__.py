"""Compatibility checks: one file a check, one row here."""

from __future__ import annotations

from typing import Final

from aotc.registry import Registry

CHECKS: Final = Registry(
    "check",
    (
        ("AOTC-C001", "aotc.verification.checks.operating_system:OperatingSystem"),
        ("AOTC-C002", "aotc.verification.checks.architecture:Architecture"),
        ("AOTC-C003", "aotc.verification.checks.libc:CLibrary"),
        ("AOTC-C004", "aotc.verification.checks.isa:IsaFeatures"),
        ("AOTC-C005", "aotc.verification.checks.onnxruntime:OnnxRuntimeVersion"),
        ("AOTC-C006", "aotc.verification.checks.providers:ExecutionProviders"),
        ("AOTC-C007", "aotc.verification.checks.driver:NvidiaDriver"),
        ("AOTC-C008", "aotc.verification.checks.compute_capability:ComputeCapability"),
        ("AOTC-C012", "aotc.verification.checks.plugin_library:PluginLibrary"),
    ),
)
