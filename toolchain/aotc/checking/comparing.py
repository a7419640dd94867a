"""Whether an artifact answers test data as the data, or else as ONNX Runtime, has the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.contract.profile import ParitySpec
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.model_checks import Answers
from aotc.engine import session
from aotc.engine.parity import compare
from aotc.errors import AotcError
from aotc.graphs.original import open_original
from aotc.probing.inputs.user_fixtures import read_test_data
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.rehearsal_jobs import open_staged

# Of several sets of data the worst counts.
_WORSE: Final[tuple[Answers, ...]] = ("", "as expected", "as onnxruntime", "refused", "differ")

Outputs = Mapping[str, Any]


def compare_answers(request: Json) -> Json:
    """Run every set of the `data` through the `artifact`, and where need be through the `model`.

    `key` is the one that signed the artifact.  The answers are compared by the tolerance of the
    artifact's own parity.  Returns `answers`, with the `code` of a refusal, `what` and `where`.
    """
    try:
        with open_staged({**request, "libraries": {}}, None) as model:
            found = [_judge(model, Path(request["model"]), Path(each)) for each in request["data"]]
    except AotcError as error:
        return _refused(error, "")
    return max(found, key=lambda each: _WORSE.index(each["answers"]))


def _judge(model: ReadyModel, original: Path, folder: Path) -> dict[str, Json]:
    try:
        inputs = read_test_data(folder, model.inputs)
        wanted = _expected(folder, model.outputs)
    except AotcError as error:
        return _refused(error, folder.name)
    try:
        found = model.run(inputs)
    except AotcError as error:
        refused = _refused(error, folder.name)
        # The data is at fault where the model itself takes it as little.
        same = error.code == "AOTC-R005" and not _runs(original, inputs, model.outputs)
        return {**refused, "code": "", "answers": "as onnxruntime"} if same else refused
    tolerance = model.variant.parity.tolerance or ParitySpec().float32
    wrong = _difference(wanted, found, tolerance) if wanted is not None else ""
    if wanted is not None and not wrong:
        return {"answers": "as expected"}
    try:
        other = _original(original, inputs, model.outputs)
    except AotcError as error:
        # There is nothing to compare with but what the data says.
        return {
            "answers": "differ" if wrong else "",
            "what": wrong or f"ONNX Runtime does not run the data: {error.found or error.what}",
            "where": folder.name,
        }
    against = _difference(other, found, tolerance)
    if not against:
        return {"answers": "as onnxruntime", "what": wrong, "where": folder.name}
    return {"answers": "differ", "what": against, "where": folder.name}


def _expected(folder: Path, outputs: Sequence[Value]) -> Outputs | None:
    """The outputs that the data has; None where it has none."""
    if not any(folder.glob("output_*.pb")):
        return None
    return read_test_data(folder, outputs, "output")


def _original(path: Path, inputs: Mapping[str, Any], outputs: Sequence[Value]) -> Outputs:
    _, opened = open_original(path)
    names = [value.name for value in outputs]
    return dict(zip(names, session.run(opened, inputs, names), strict=True))


def _runs(path: Path, inputs: Mapping[str, Any], outputs: Sequence[Value]) -> bool:
    try:
        _original(path, inputs, outputs)
    except AotcError:
        return False
    return True


def _difference(wanted: Outputs, found: Outputs, tolerance: Tolerance) -> str:
    """How the first output that differs does so, in words; empty: none does."""
    for name, value in wanted.items():
        compared = compare(value, found[name], tolerance, name)
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
