"""Models of XGBoost and LightGBM, in the files that these libraries write as JSON or text.

XGBoost compares in float32, as an exported model does.  LightGBM compares in float64: exported
thresholds are rounded, so that a value next to one may go the other way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import open_plain
from aotc.base.records import replace
from aotc.sources.base import EXAMPLES, MODEL, Answers, Captured, CaptureRequest, Importer
from aotc.sources.sklearn_estimators import batch_dim, name_batch, not_exported
from aotc.spec.framework_capture import FrameworkCapture
from aotc.spec.payload import Finding

_INPUT: Final = "input"
_XGBOOST_JSON: Final = re.compile(rb'\s*\{\s*"(?:learner|version)"\s*:\s*[\[{]')
_LIGHTGBM: Final = re.compile(rb"tree\r?\nversion=v\d+\r?\n")
_LABEL: Final = "label"


def _begins_as(source: str, pattern: re.Pattern[bytes]) -> bool:
    with contextlib.suppress(OSError, ValueError), open_plain(source) as file:
        return pattern.match(file.read(256)) is not None
    return False


class XGBoostModel(Importer):
    """A file of `Booster.save_model`: JSON, or the same in binary."""

    name: ClassVar[str] = "xgboost"
    extra: ClassVar[str] = "sklearn"
    title: ClassVar[str] = "a model of XGBoost (.json, .ubj)"
    modules: ClassVar[tuple[str, ...]] = ("onnxmltools", "skl2onnx", "sklearn", "onnx", "numpy")
    distributions: ClassVar[tuple[str, ...]] = (
        *("xgboost", "xgboost-cpu", "onnxmltools", "skl2onnx", "onnx", "numpy"),
    )

    def recognizes(self, source: str) -> bool:
        """A name that ends in .ubj, or JSON that begins as XGBoost writes it."""
        name = source.lower()
        return name.endswith(".ubj") or (
            name.endswith(".json") and _begins_as(source, _XGBOOST_JSON)
        )

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """Load the file, and export it with onnxmltools."""
        path = Path(request.source)
        booster = load_xgboost(path)
        from onnxmltools import convert_xgboost

        # The exporter takes no other names of features than f0, f1 …
        booster.feature_names = None
        framework = FrameworkCapture(
            importer=self.name,
            format="XGBoost model",
            source=path.name,
            made_by=_xgboost_version(booster),
            versions=self.versions(),
            exporter="onnxmltools.convert_xgboost",
        )
        return _captured(convert_xgboost, booster, booster.num_features(), framework, folder)

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """Its own predictions, on one thread."""
        booster = load_xgboost(Path(request.source))
        booster.feature_names = None
        booster.set_param({"nthread": 1})

        def answer(arrays: Mapping[str, Any]) -> dict[str, Any]:
            import xgboost

            # As XGBClassifier.predict_proba does where a matrix has no names.
            return _by_output(booster.predict(xgboost.DMatrix(arrays[_INPUT])), captured)

        return answer


class LightGBMModel(Importer):
    """A file of `Booster.save_model`: text."""

    name: ClassVar[str] = "lightgbm"
    extra: ClassVar[str] = "sklearn"
    title: ClassVar[str] = "a model of LightGBM (.txt)"
    modules: ClassVar[tuple[str, ...]] = ("onnxmltools", "skl2onnx", "sklearn", "onnx", "numpy")
    distributions: ClassVar[tuple[str, ...]] = (
        *("lightgbm", "onnxmltools", "skl2onnx", "onnx", "numpy"),
    )

    def recognizes(self, source: str) -> bool:
        """Text that begins as LightGBM writes it."""
        return source.lower().endswith(".txt") and _begins_as(source, _LIGHTGBM)

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """Load the file, and export it with onnxmltools."""
        path = Path(request.source)
        booster = load_lightgbm(path)
        from functools import partial

        from onnxmltools import convert_lightgbm

        framework = FrameworkCapture(
            importer=self.name,
            format="LightGBM model",
            source=path.name,
            made_by="LightGBM",
            versions=self.versions(),
            exporter="onnxmltools.convert_lightgbm",
        )
        convert = partial(convert_lightgbm, zipmap=False)
        what = "LightGBM compares with thresholds in float64, and the exported model in float32"
        finding = Finding(code="AOTC-I157", what=what, where=path.name)
        return _captured(convert, booster, booster.num_feature(), framework, folder, finding)

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """Its own predictions, on one thread."""
        booster = load_lightgbm(Path(request.source))

        def answer(arrays: Mapping[str, Any]) -> dict[str, Any]:
            rows = arrays[_INPUT].astype("float64")
            return _by_output(booster.predict(rows, num_threads=1), captured)

        return answer


def load_xgboost(path: Path) -> Any:
    """The booster in a file; raises AOTC-I159 (it cannot be read) and I019 (no XGBoost)."""
    try:
        import xgboost
    except ModuleNotFoundError as error:
        raise _not_installed(error, "xgboost", "xgboost-cpu, or xgboost,") from None
    booster = xgboost.Booster()
    try:
        booster.load_model(path)
    except xgboost.core.XGBoostError as error:
        raise _unreadable(error, path, "XGBoost") from None
    return booster


def load_lightgbm(path: Path) -> Any:
    """The booster in a file; raises AOTC-I159 (it cannot be read) and I019 (no LightGBM)."""
    try:
        import lightgbm
    except ModuleNotFoundError as error:
        raise _not_installed(error, "lightgbm", "lightgbm") from None
    try:
        return lightgbm.Booster(model_file=path)
    except lightgbm.basic.LightGBMError as error:
        raise _unreadable(error, path, "LightGBM") from None


def _not_installed(error: ModuleNotFoundError, module: str, package: str) -> Exception:
    if error.name != module:
        return error
    return AotcError(
        "AOTC-I019",
        f"a model of {module} needs the package {module}",
        fix=f"pip install {package} beside the extra 'sklearn' of aotc.",
    )


def _unreadable(error: Exception, path: Path, library: str) -> AotcError:
    # XGBoost begins with a time and a place in its own code.
    first = next(iter(re.sub(r"^\[[\d:]+\] \S+: ", "", str(error)).strip().splitlines()), "")
    return AotcError(
        "AOTC-I159", f"{library} cannot load the file", where=path.name, found=first[:300]
    )


def _xgboost_version(booster: Any) -> str:
    import json

    version = json.loads(booster.save_config()).get("version", ())
    return "XGBoost " + ".".join(map(str, version)) if version else "XGBoost"


def _captured(
    convert: Any,
    booster: Any,
    count: int,
    framework: FrameworkCapture,
    folder: Path,
    *findings: Finding,
) -> Captured:
    import numpy as np
    import onnx
    from onnxmltools.convert.common.data_types import FloatTensorType

    try:
        model = convert(booster, initial_types=[(_INPUT, FloatTensorType([None, count]))])
    except Exception as error:
        exporter = framework.exporter.partition(".")[0]
        raise not_exported(error, exporter, framework.format) from None
    name_batch(model)
    onnx.save(model, folder / MODEL)
    examples: dict[str, Any] = {_INPUT: np.zeros((2, count), np.float32)}
    np.savez(folder / EXAMPLES, **examples)
    opset = next((each.version for each in model.opset_import if not each.domain), 0)
    return Captured(
        framework=replace(framework, opset=opset, dims=(batch_dim(model),)),
        outputs=tuple(value.name for value in model.graph.output),
        examples=EXAMPLES,
        findings=findings,
    )


def _by_output(predicted: Any, captured: Captured) -> dict[str, Any]:
    """Predictions as the exported model's outputs: labels and probabilities, or values."""
    import numpy as np

    values = np.asarray(predicted)
    if _LABEL not in captured.outputs:
        return {captured.outputs[0]: values.reshape(len(values), -1)}
    if values.ndim == 1:
        values = np.stack([1 - values, values], axis=1)
        labels = values[:, 1] > 0.5
    else:
        labels = np.argmax(values, axis=1)
    found = {_LABEL: labels.astype(np.int64)}
    return found | {name: values for name in captured.outputs if name != _LABEL}
