"""Fitted estimators and pipelines of scikit-learn, exported by skl2onnx.

A file is one of skops, which says what types it holds before any is made, or a pickle, which runs
code: that only with `--trust-source`.

The library computes in float64, and the exported model in float32, as skl2onnx documents: behind a
step that computes, a value near a threshold of a tree may go the other way.  Trees that are given
their inputs as they are have thresholds that skl2onnx rounds so that none does.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.base.text import listed
from aotc.sources.base import EXAMPLES, MODEL, Answers, Captured, CaptureRequest, Importer
from aotc.spec.allowed_values import MAX_VALUES, AllowedValues
from aotc.spec.framework_capture import CapturedDim, FrameworkCapture
from aotc.spec.payload import Finding

_SKOPS: Final = ".skops"
_PICKLES: Final = (".pkl", ".pickle", ".joblib")
_BATCH: Final = "batch"
_INPUT: Final = "input"
# Categories that the example's first rows have.
_EXAMPLE_ROWS: Final = 2


class SklearnEstimator(Importer):
    """A file that holds a fitted estimator."""

    name: ClassVar[str] = "sklearn"
    extra: ClassVar[str] = "sklearn"
    title: ClassVar[str] = "an estimator of scikit-learn (.skops)"
    modules: ClassVar[tuple[str, ...]] = ("sklearn", "skops", "skl2onnx", "onnx", "numpy", "pandas")
    distributions: ClassVar[tuple[str, ...]] = (
        *("scikit-learn", "skops", "skl2onnx", "onnx", "numpy"),
    )

    def recognizes(self, source: str) -> bool:
        """A name that ends in .skops, or as pickles do."""
        return source.lower().endswith((_SKOPS, *_PICKLES))

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """Load the file, and export what it holds."""
        estimator, found = load_estimator(request)
        captured = capture_estimator(estimator, folder, self.versions())
        path = Path(request.source)
        kind = "skops" if path.suffix.lower() == _SKOPS else "pickle"
        return replace(
            captured,
            framework=replace(
                captured.framework,
                format=f"{captured.framework.format}, {kind}",
                source=path.name,
                trusted=request.trusted,
            ),
            findings=(*captured.findings, *found),
        )

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """Its own predictions."""
        return estimator_answers(load_estimator(request)[0], captured.outputs)


def load_estimator(request: CaptureRequest) -> tuple[Any, tuple[Finding, ...]]:
    """The estimator in a file, and what is told of it.

    Raises AOTC-I127 (a pickle, untrusted), I158 (types that skops does not trust), I159 (it cannot
    be read) and I153 (it is no fitted estimator).
    """
    path = Path(request.source)
    if path.suffix.lower() != _SKOPS and not request.trusted:
        raise AotcError(
            "AOTC-I127",
            "a pickle runs code of its own",
            where=path.name,
            fix="Save the estimator with skops.io.dump, which holds no code. If you trust the "
            "author of this file, add --trust-source.",
        )
    if request.directory:
        # Types of the user's own are imported from there.
        sys.path.insert(0, request.directory)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        estimator = _from_skops(path, request.trusted) if path.suffix.lower() == _SKOPS else None
        if estimator is None:
            estimator = _from_pickle(path)
    older = sorted({str(each.message).partition(".")[0] for each in told if _is_older(each)})
    findings = tuple(Finding(code="AOTC-I157", what=what[:300], where=path.name) for what in older)
    return _fitted(estimator, path.name), findings


def _is_older(warning: warnings.WarningMessage) -> bool:
    return warning.category.__name__ == "InconsistentVersionWarning"


def _from_skops(path: Path, trusted: bool) -> Any:
    from skops import io

    try:
        unknown = sorted(io.get_untrusted_types(file=path))
        if unknown and not trusted:
            raise AotcError(
                "AOTC-I158",
                f"the file holds {len(unknown)} types that skops does not trust",
                where=path.name,
                found=listed(unknown[:20]),
            )
        return io.load(path, trusted=unknown)
    except (AotcError, MemoryError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise _unreadable(error, path, "skops") from None


def _from_pickle(path: Path) -> Any:
    import joblib

    try:
        return joblib.load(path)
    except MemoryError:
        raise
    # SystemExit too: the file runs code.
    except BaseException as error:
        raise _unreadable(error, path, "joblib") from None


def _unreadable(error: BaseException, path: Path, library: str) -> AotcError:
    first = next(iter(str(error).strip().splitlines()), "")
    return AotcError(
        "AOTC-I159",
        f"{library} cannot load the file",
        where=path.name,
        found=f"{type(error).__name__}: {first}"[:300],
    )


def _fitted(estimator: Any, where: str) -> Any:
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    found = type(estimator).__name__
    if isinstance(estimator, BaseEstimator):
        try:
            check_is_fitted(estimator)
            return estimator
        except NotFittedError:
            found += ", which is not fitted"
    raise AotcError(
        "AOTC-I153",
        "there is no fitted estimator",
        where=where,
        expected="an estimator or pipeline of scikit-learn after fit()",
        found=found,
    )


# From an estimator to an ONNX model.


@record
class Columns:
    """How an estimator is given its inputs: one matrix, or one column an input.

    `types` are `float` or `str`, one a column; `names` those of the estimator, or none.
    """

    types: tuple[str, ...]
    names: tuple[str, ...] = ()
    apart: bool = False
    text: bool = False

    def inputs(self) -> tuple[str, ...]:
        """The names of the model's inputs."""
        if not self.apart:
            return (_INPUT,)
        return self.names or tuple(f"x{number}" for number in range(len(self.types)))


def capture_estimator(estimator: Any, folder: Path, versions: Mapping[str, str]) -> Captured:
    """Export an estimator to `folder`; raises AOTC-I121, which names what cannot be exported."""
    import numpy as np
    import onnx
    import sklearn
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    estimator = _fitted(estimator, type(estimator).__name__)
    columns = columns_of(estimator)
    tensors = {"float": FloatTensorType, "str": StringTensorType}
    width = 1 if columns.apart else len(columns.types)
    initial = [
        (name, tensors[kind]([None, width]))
        for name, kind in zip(columns.inputs(), columns.types, strict=False)
    ]
    options = {id(estimator): {"zipmap": False}} if _is(estimator, "classifier") else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = convert_sklearn(estimator, "model", initial_types=initial, options=options)
    except Exception as error:
        raise not_exported(error, "skl2onnx", type(estimator).__name__) from None
    name_batch(model)
    onnx.save(model, folder / MODEL)
    examples = _examples(estimator, columns)
    np.savez(folder / EXAMPLES, **examples)
    framework = FrameworkCapture(
        importer="sklearn",
        format=f"scikit-learn {type(estimator).__name__}",
        source="estimator in memory",
        made_by=f"scikit-learn {sklearn.__version__}",
        versions=versions,
        exporter="skl2onnx.convert_sklearn",
        opset=_opset(model),
        dims=(batch_dim(model),),
    )
    found = []
    if _trees_compute_behind(estimator):
        what = "trees behind other steps compare in float32 what the library compares in float64"
        found.append(Finding(code="AOTC-I157", what=what, where=type(estimator).__name__))
    return Captured(
        framework=framework,
        outputs=tuple(value.name for value in model.graph.output),
        values=_required_texts(estimator, columns),
        examples=EXAMPLES,
        findings=tuple(found),
    )


def not_exported(error: Exception, exporter: str, what: str) -> AotcError:
    """AOTC-I121 of an exporter of this kind, in its own words, which may be pages."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    text = f"{lines[0]} … {lines[-1]}" if len(lines) > 1 else "".join(lines)
    return AotcError(
        "AOTC-I121",
        f"{exporter} cannot export {what}",
        found=f"{type(error).__name__}: {text}"[:400],
    )


def name_batch(model: Any) -> None:
    """Call the first dim `batch` in inputs and outputs, which all have it."""
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        if shape.dim:
            shape.dim[0].dim_param = _BATCH


def batch_dim(model: Any) -> CapturedDim:
    """The one free dim of such a model."""
    places = tuple(f"{value.name}.0" for value in model.graph.input)
    return CapturedDim(name=_BATCH, inputs=places, min=1)


def _opset(model: Any) -> int:
    return next((each.version for each in model.opset_import if not each.domain), 0)


def columns_of(estimator: Any) -> Columns:
    """What the estimator was fitted on, as far as it says."""
    first = _steps(estimator)[0]
    names = tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))
    count = getattr(estimator, "n_features_in_", None)
    if count is None:
        # A vectorizer takes texts.
        return Columns(types=("str",), text=True)
    types = ["float"] * count
    selects_by_name = False
    if hasattr(first, "_transformer_to_input_indices"):
        for key, transformer, chosen in first.transformers_:
            if isinstance(transformer, str):
                continue
            selects_by_name |= bool(names) and not callable(chosen)
            if _takes_text(transformer):
                for index in first._transformer_to_input_indices[key]:
                    types[index] = "str"
    elif _takes_text(first):
        types = ["str"] * count
    apart = selects_by_name or len(set(types)) > 1
    return Columns(types=tuple(types), names=names, apart=apart)


def _steps(estimator: Any) -> list[Any]:
    steps = getattr(estimator, "steps", None)
    if not steps:
        return [estimator]
    return [
        inner for _, step in steps for inner in _steps(step) if step not in (None, "passthrough")
    ]


def _takes_text(transformer: Any) -> bool:
    return any(
        each.dtype.kind in "OUS"
        for step in _steps(transformer)
        for each in getattr(step, "categories_", ())
    )


def _is(estimator: Any, kind: str) -> bool:
    import sklearn.base

    test: Callable[[Any], bool] = getattr(sklearn.base, f"is_{kind}")
    return bool(test(estimator))


def _trees_compute_behind(estimator: Any) -> bool:
    def has_trees(step: Any) -> bool:
        return type(step).__module__.startswith(("sklearn.tree", "sklearn.ensemble"))

    return any(has_trees(step) for step in _steps(estimator)[1:])


def _examples(estimator: Any, columns: Columns) -> dict[str, Any]:
    """Rows of inputs that the estimator knows: its categories, and zeros."""
    import numpy as np

    values = [
        [known[row % len(known)] if len(known) else 0.0 for row in range(_EXAMPLE_ROWS)]
        for known in _known_values(estimator, columns)
    ]
    arrays = [
        np.array(column, dtype=np.str_ if kind == "str" else np.float32)
        for column, kind in zip(values, columns.types, strict=True)
    ]
    if columns.apart:
        return dict(zip(columns.inputs(), (each[:, None] for each in arrays), strict=True))
    return {_INPUT: np.stack(arrays, axis=1)}


def _required_texts(estimator: Any, columns: Columns) -> dict[str, AllowedValues]:
    """The texts of inputs of which an encoder refuses all others."""
    first = _steps(estimator)[0]
    if not columns.apart or not hasattr(first, "_transformer_to_input_indices"):
        return {}
    found = {}
    for key, transformer, _ in first.transformers_:
        for step in () if isinstance(transformer, str) else _steps(transformer):
            if getattr(step, "handle_unknown", "") != "error":
                continue
            indices = first._transformer_to_input_indices[key]
            for index, known in zip(indices, getattr(step, "categories_", ()), strict=False):
                if known.dtype.kind in "OUS" and len(known) <= MAX_VALUES:
                    texts = tuple(str(each) for each in known)
                    found[columns.inputs()[index]] = AllowedValues(values=texts)
    return found


def _known_values(estimator: Any, columns: Columns) -> Iterator[Sequence[Any]]:
    first = _steps(estimator)[0]
    known: dict[int, Sequence[Any]] = {}
    if columns.text:
        words = sorted(getattr(first, "vocabulary_", {"": 0}))
        known[0] = [" ".join(words[:8]), " ".join(words[-8:])]
    elif hasattr(first, "_transformer_to_input_indices"):
        for key, transformer, _ in first.transformers_:
            indices = first._transformer_to_input_indices.get(key, ())
            for step in () if isinstance(transformer, str) else _steps(transformer):
                known.update(zip(indices, getattr(step, "categories_", ()), strict=False))
    else:
        known.update(enumerate(getattr(first, "categories_", ())))
    for number in range(len(columns.types)):
        yield list(known.get(number, ()))


# The library's own predictions.


def estimator_answers(estimator: Any, outputs: Sequence[str]) -> Answers:
    """What the estimator itself predicts, in float64, by name of output as skl2onnx names them."""
    columns = columns_of(estimator)

    def answer(arrays: Mapping[str, Any]) -> dict[str, Any]:
        rows = given_rows(arrays, columns)
        found = {}
        for name in outputs:
            found[name] = _prediction(estimator, name, rows)
        return found

    return answer


def given_rows(arrays: Mapping[str, Any], columns: Columns) -> Any:
    """Arrays by input as what an estimator is called with: texts, a matrix, or a data frame."""
    import numpy as np

    if columns.text:
        return [str(text) for text in arrays[_INPUT].reshape(-1)]
    if columns.apart:
        parts = [arrays[name].reshape(-1) for name in columns.inputs()]
    else:
        parts = list(arrays[_INPUT].T)
    parts = [
        part.astype(object) if kind == "str" else part.astype(np.float64)
        for part, kind in zip(parts, columns.types, strict=True)
    ]
    if columns.names:
        import pandas as pd

        return pd.DataFrame(dict(zip(columns.names, parts, strict=True)))
    if set(columns.types) == {"float"}:
        return np.stack(parts, axis=1)
    rows = np.empty((len(parts[0]), len(parts)), dtype=object)
    for number, part in enumerate(parts):
        rows[:, number] = part
    return rows


def _plain_labels(labels: Any) -> Any:
    """Labels in the types that the exported model has: texts instead of objects, and integers."""
    if labels.dtype.kind == "O":
        return labels.astype(str)
    return labels.astype("int64") if labels.dtype.kind in "bu" else labels


def _prediction(estimator: Any, output: str, rows: Any) -> Any:
    import numpy as np

    if output == "label":
        labels = _plain_labels(np.asarray(estimator.predict(rows)))
        return labels.reshape(-1, 1) if _is(estimator, "outlier_detector") else labels
    if output == "probabilities":
        if hasattr(estimator, "predict_proba"):
            return np.asarray(estimator.predict_proba(rows))
        scores = np.asarray(estimator.decision_function(rows))
        return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
    if output == "scores":
        if _is(estimator, "outlier_detector"):
            return np.asarray(estimator.decision_function(rows)).reshape(-1, 1)
        return np.asarray(estimator.transform(rows))
    if hasattr(estimator, "predict"):
        values = np.asarray(estimator.predict(rows))
        return values.reshape(-1, 1) if values.ndim == 1 else values
    values = estimator.transform(rows)
    return np.asarray(values.todense() if hasattr(values, "todense") else values)
