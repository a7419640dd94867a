"""Describing a plain ONNX model: the only part of inspection that imports onnx."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.results.reports import InspectReport
from aotc.errors import AotcError, install_extra


def inspect_model(path: Path) -> InspectReport:
    """Describe a model file without running it.

    Raises I001 to I007, I010, I011, and I019 if onnx is not installed.
    """
    try:
        from aotc.graphs.capture import read_capture
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("onnx", "google")):
            raise
        raise AotcError(
            "AOTC-I019",
            "inspecting a model needs onnx",
            where=str(path),
            fix=install_extra("cpu"),
        ) from None
    source, inputs, outputs = read_capture(path)
    return InspectReport(
        kind="model",
        path=str(path),
        name=path.stem,
        source=source,
        inputs=inputs,
        outputs=outputs,
        findings=source.findings,
    )
