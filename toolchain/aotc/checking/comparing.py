"""Compares an artifact's answers to test data with the data's outputs, or ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.contract.precision.parity_spec import ParitySpec
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.model_checks import Answers
from aotc.engine import session
from aotc.engine.parity import compare
from aotc.errors import AotcError
from aotc.graphs.original import open_original
from aotc.probing.inputs.user_fixtures import read_test_data
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.rehearsal_jobs import open_staged

# With several sets of test data, the worst answer counts.
_WORST_LAST: Final[tuple[Answers, ...]] = ("", "as expected", "as onnxruntime", "refused", "differ")

Outputs = Mapping[str, Any]


def compare_answers(request: Json) -> Json:
    """Run every set of the `data` with the `artifact`, and if necessary with the `model`.

    `keys` is the one that signed the artifact.  Answers are compared by the tolerance of the
    artifact's own parity.  Returns `answers`, the `code` of a refusal, `what` and `where`.
    """
    try:
        with open_staged({**request, "libraries": {}}, None) as model:
            result = [
                _compare_set(model, Path(request["model"]), Path(set_)) for set_ in request["data"]
            ]
    except AotcError as error:
        return _refused(error, "")
    return max(result, key=lambda answer: _WORST_LAST.index(answer["answers"]))


def _compare_set(model: ReadyModel, original: Path, folder: Path) -> dict[str, Json]:
    try:
        inputs = read_test_data(folder, model.inputs)
        expected = _expected_outputs(folder, model.outputs)
    except AotcError as error:
        return _refused(error, folder.name)
    try:
        result = model.run(inputs)
    except AotcError as error:
        refused = _refused(error, folder.name)
        # If the original model does not run the data either, the data is at fault.
        same = error.code == "AOTC-R005" and not _original_runs(original, inputs, model.outputs)
        return {**refused, "code": "", "answers": "as onnxruntime"} if same else refused
    tolerance = model.variant.parity.tolerance or ParitySpec().float32
    wrong = _difference(expected, result, tolerance) if expected is not None else ""
    if expected is not None and not wrong:
        return {"answers": "as expected"}
    try:
        other = _run_original(original, inputs, model.outputs)
    except AotcError as error:
        # There are only the outputs in the data to compare with.
        return {
            "answers": "differ" if wrong else "",
            "what": wrong or f"ONNX Runtime does not run the data: {error.found or error.what}",
            "where": folder.name,
        }
    against = _difference(other, result, tolerance)
    if not against:
        return {"answers": "as onnxruntime", "what": wrong, "where": folder.name}
    return {"answers": "differ", "what": against, "where": folder.name}


def _expected_outputs(folder: Path, outputs: Sequence[Value]) -> Outputs | None:
    """The outputs in the test data; None if it has none."""
    if not any(folder.glob("output_*.pb")):
        return None
    return read_test_data(folder, outputs, "output")


def _run_original(path: Path, inputs: Mapping[str, Any], outputs: Sequence[Value]) -> Outputs:
    _, opened = open_original(path)
    names = [value.name for value in outputs]
    return dict(zip(names, session.run(opened, inputs, names), strict=True))


def _original_runs(path: Path, inputs: Mapping[str, Any], outputs: Sequence[Value]) -> bool:
    try:
        _run_original(path, inputs, outputs)
    except AotcError:
        return False
    return True


def _difference(expected: Outputs, result: Outputs, tolerance: Tolerance) -> str:
    """How the first differing output differs, in words; "" if none does."""
    for name, value in expected.items():
        compared = compare(value, result[name], tolerance, name)
        if not compared.passed:
            return f"{name}: {compared.reason}"
    return ""


def _refused(error: AotcError, where: str) -> dict[str, Json]:
    return {
        "answers": "refused",
        "code": error.code,
        "what": error.what,
        "where": where or error.where,
        "expected": error.expected,
        "found": error.found,
    }
