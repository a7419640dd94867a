"""Estimators of scikit-learn, models of XGBoost and LightGBM: their answers, and their files."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from refusals import refusal
from workbench import Workbench

from aotc.sources.base import Captured, CaptureRequest
from aotc.sources.registry import importer_of

WITHOUT = "the extra 'sklearn' is not installed"
for needed in ("sklearn", "skops", "skl2onnx", "onnxmltools", "pandas"):
    pytest.importorskip(needed, reason=WITHOUT)

# Of onnxmltools' and skl2onnx's own imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def iris() -> tuple[Any, Any]:
    from sklearn.datasets import load_iris

    rows, kinds = load_iris(return_X_y=True)
    # Inputs of the model are float32: the library gets the same values.
    return rows.astype(np.float32).astype(np.float64), kinds


def numbers(rows: Any) -> dict[str, Any]:
    return {"input": rows.astype(np.float32)}


def capture(path: Path, folder: Path, *, trusted: bool = False) -> Captured:
    importer = importer_of(path)
    assert importer is not None
    folder.mkdir()
    request = CaptureRequest(source=str(path), trusted=trusted)
    return importer.capture(request, folder)


def both_answers(
    path: Path, folder: Path, given: Mapping[str, Any], *, trusted: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the exported model answers, and what the importer says that the library does."""
    captured = capture(path, folder, trusted=trusted)
    session = ort.InferenceSession(folder / captured.model)
    exported = session.run(list(captured.outputs), dict(given))
    importer = importer_of(path)
    assert importer is not None
    request = CaptureRequest(source=str(path), trusted=trusted)
    own = importer.answering(request, folder, captured)(given)
    return dict(zip(captured.outputs, exported, strict=True)), dict(own)


# Five pipelines.


def scaled_regression() -> tuple[Any, Any, dict[str, Any]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, kinds = iris()
    return (
        make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, kinds),
        rows,
        numbers(rows),
    )


def columns_of_text() -> tuple[Any, Any, dict[str, Any]]:
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rows, kinds = iris()
    color = np.array(["red", "green", "blue"], dtype=object)[np.arange(len(rows)) % 3]
    frame = pd.DataFrame({"color": color, "size": rows[:, 0], "weight": rows[:, 1]})
    columns = ColumnTransformer(
        [("texts", OneHotEncoder(), ["color"]), ("sizes", StandardScaler(), ["size", "weight"])]
    )
    names = np.array(["setosa", "versicolor", "virginica"])[kinds]
    pipeline = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(frame, names)
    given = {"color": color[:, None].astype(str)}
    given |= {name: frame[[name]].to_numpy(np.float32) for name in ("size", "weight")}
    return pipeline, frame, given


def components_and_vectors() -> tuple[Any, Any, dict[str, Any]]:
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    rows, kinds = iris()
    return make_pipeline(PCA(3), SVC()).fit(rows, kinds), rows, numbers(rows)


def filled_polynomials() -> tuple[Any, Any, dict[str, Any]]:
    from sklearn.datasets import load_diabetes
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    rows, values = load_diabetes(return_X_y=True)
    rows = rows.astype(np.float32).astype(np.float64)
    rows[::7, 2] = np.nan
    pipeline = make_pipeline(SimpleImputer(), PolynomialFeatures(2), Ridge()).fit(rows, values)
    return pipeline, rows, numbers(rows)


def scaled_forest() -> tuple[Any, Any, dict[str, Any]]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    rows, kinds = iris()
    forest = RandomForestClassifier(10, random_state=0)
    return make_pipeline(MinMaxScaler(), forest).fit(rows, kinds), rows, numbers(rows)


# Rows next to a threshold, of 150, at which one of the ten trees goes the other way in float32.
OTHER_WAY = {scaled_forest: 3}


@pytest.mark.parametrize(
    "make",
    [
        scaled_regression,
        columns_of_text,
        components_and_vectors,
        filled_polynomials,
        scaled_forest,
    ],
)
def test_pipeline_answers_as_the_library_does(
    make: Callable[[], tuple[Any, Any, dict[str, Any]]], tmp_path: Path
) -> None:
    from skops import io

    pipeline, rows, given = make()
    path = tmp_path / "model.skops"
    io.dump(pipeline, path)
    # Types of its own trees and numbers are among those that skops does not trust.
    trusted = bool(io.get_untrusted_types(file=path))
    exported, own = both_answers(path, tmp_path / "capture", given, trusted=trusted)
    predicted = pipeline.predict(rows)
    if "label" in exported:
        assert np.array_equal(own["label"], predicted)
        assert np.array_equal(exported["label"], predicted)
    else:
        np.testing.assert_allclose(own["variable"][:, 0], predicted)
        np.testing.assert_allclose(exported["variable"][:, 0], predicted, rtol=1e-5)
    if hasattr(pipeline, "predict_proba"):
        shares = pipeline.predict_proba(rows)
        np.testing.assert_allclose(own["probabilities"], shares)
        far = np.abs(exported["probabilities"] - shares).max(axis=1)
        assert np.count_nonzero(far > 1e-4) <= OTHER_WAY.get(make, 0)
        assert far.max() <= (0.1001 if make in OTHER_WAY else 1e-4)


@pytest.mark.parametrize("names", [("no", "yes"), (False, True)], ids=["texts", "truths"])
def test_labels_have_the_types_of_the_exported_model(
    tmp_path: Path, names: tuple[Any, Any]
) -> None:
    from sklearn.linear_model import LogisticRegression

    from aotc.sources.sklearn_estimators import capture_estimator, estimator_answers

    rows, kinds = iris()
    # A data frame's column of texts has this type.
    chosen = np.array([names[int(kind > 1)] for kind in kinds])
    chosen = chosen.astype(object) if chosen.dtype.kind == "U" else chosen
    estimator = LogisticRegression().fit(rows, chosen)
    captured = capture_estimator(estimator, tmp_path, {})
    given = numbers(rows)
    own = estimator_answers(estimator, captured.outputs)(given)
    session = ort.InferenceSession(tmp_path / captured.model)
    (exported,) = session.run(["label"], given)
    np.savez(tmp_path / "first.npz", label=own["label"])
    with np.load(tmp_path / "first.npz", allow_pickle=False) as kept:
        assert np.array_equal(kept["label"], exported.astype(kept["label"].dtype))
    assert own["label"].dtype.kind == ("U" if names[0] == "no" else "i")


def test_trees_behind_other_steps_are_told(tmp_path: Path) -> None:
    from skops import io

    path = tmp_path / "forest.skops"
    io.dump(scaled_forest()[0], path)
    (found,) = capture(path, tmp_path / "capture", trusted=True).findings
    assert found.code == "AOTC-I157"
    io.dump(scaled_regression()[0], path)
    assert capture(path, tmp_path / "again").findings == ()


def test_text_and_numbers_are_inputs_of_their_own(tmp_path: Path) -> None:
    from skops import io

    path = tmp_path / "columns.skops"
    io.dump(columns_of_text()[0], path)
    captured = capture(path, tmp_path / "capture")
    (dim,) = captured.framework.dims
    assert (dim.name, dim.min) == ("batch", 1)
    assert dim.inputs == ("color.0", "size.0", "weight.0")
    with np.load(tmp_path / "capture" / captured.examples) as examples:
        # What the encoder knows; it refuses other colors.
        assert examples["color"].tolist() == [["blue"], ["green"]]
        assert examples["size"].dtype == np.float32


# Boosted trees.


def boosted(library: str, rows: Any, kinds: Any, path: Path) -> tuple[Any, Any]:
    """A classifier of XGBoost or LightGBM, saved to `path`: its predictions and probabilities."""
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "xgboost":
        model = module.XGBClassifier(n_estimators=20, n_jobs=1).fit(rows, kinds)
        model.save_model(path)
    else:
        model = module.LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1).fit(rows, kinds)
        model.booster_.save_model(path)
    return model.predict(rows), model.predict_proba(rows)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("library", "suffix"), [("xgboost", "json"), ("xgboost", "ubj"), ("lightgbm", "txt")]
)
def test_boosted_trees_answer_as_the_library_does(
    library: str, suffix: str, classes: int, tmp_path: Path
) -> None:
    rows, kinds = iris()
    kinds = np.minimum(kinds, classes - 1)
    path = tmp_path / f"trees.{suffix}"
    labels, shares = boosted(library, rows, kinds, path)
    exported, own = both_answers(path, tmp_path / "capture", numbers(rows))
    for answers in (exported, own):
        np.testing.assert_allclose(answers["probabilities"], shares, rtol=1e-4, atol=1e-5)
        assert np.array_equal(answers["label"], labels)


@pytest.mark.parametrize(
    ("library", "suffix", "content"),
    [
        ("xgboost", "ubj", b"{no"),
        ("xgboost", "json", b'{"learner": {}, "version": [3, 2, 0]}'),
        ("lightgbm", "txt", b"tree\nversion=v4\nnum_class=1\n"),
    ],
)
def test_damaged_files_of_trees_are_refused(
    library: str, suffix: str, content: bytes, tmp_path: Path
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    path = tmp_path / f"trees.{suffix}"
    path.write_bytes(content)
    error = refusal(capture, path, tmp_path / "capture")
    assert (error.code, error.where) == ("AOTC-I159", f"trees.{suffix}")
    assert error.found


@pytest.mark.parametrize("name", ["package.json", "notes.txt", "model.onnx"])
def test_other_files_are_none_of_them(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"name": "shop"}\n')
    assert importer_of(tmp_path / name) is None


# Files.


class Bomb:
    """What a pickle runs when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("suffix", ["pkl", "pickle", "joblib"])
def test_pickles_are_not_loaded_without_trust(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    error = refusal(capture, path, tmp_path / "capture")
    assert (error.code, error.where) == ("AOTC-I127", f"model.{suffix}")
    assert "skops.io.dump" in error.fix
    assert not (tmp_path / "mark").exists()


def test_trusted_pickles_are_captured(tmp_path: Path) -> None:
    import joblib

    pipeline, rows, given = scaled_regression()
    path = tmp_path / "model.joblib"
    joblib.dump(pipeline, path)
    exported, _ = both_answers(path, tmp_path / "capture", given, trusted=True)
    assert np.array_equal(exported["label"], pipeline.predict(rows))


def test_types_that_skops_does_not_trust_are_named(tmp_path: Path) -> None:
    from skops import io

    path = tmp_path / "hostile.skops"
    io.dump({"a": os.path.join, "b": Path}, path)
    error = refusal(capture, path, tmp_path / "capture")
    assert (error.code, error.where) == ("AOTC-I158", "hostile.skops")
    assert "posixpath.join" in error.found
    assert "--trust-source" in error.fix


@pytest.mark.parametrize("content", [b"", b"PK\3\4 no archive", None])
def test_damaged_files_of_skops_are_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "damaged.skops"
    if content is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("schema.json", "{}")
    else:
        path.write_bytes(content)
    error = refusal(capture, path, tmp_path / "capture")
    assert (error.code, error.where) == ("AOTC-I159", "damaged.skops")


def test_what_is_no_fitted_estimator_is_refused(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from skops import io

    path = tmp_path / "other.skops"
    io.dump([1, 2], path)
    assert refusal(capture, path, tmp_path / "list").found == "list"
    io.dump(LogisticRegression(), path)
    error = refusal(capture, path, tmp_path / "unfitted")
    assert (error.code, error.found) == (
        "AOTC-I153",
        "LogisticRegression, which is not fitted",
    )


def test_estimators_that_cannot_be_exported_are_named(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer
    from skops import io

    rows, kinds = iris()
    path = tmp_path / "splines.skops"
    io.dump(make_pipeline(SplineTransformer(), LogisticRegression()).fit(rows, kinds), path)
    trusted = bool(io.get_untrusted_types(file=path))
    error = refusal(capture, path, tmp_path / "capture", trusted=trusted)
    assert (error.code, error.what) == ("AOTC-I121", "skl2onnx cannot export Pipeline")
    assert "SplineTransformer" in error.found


# Whole builds.


def test_pipeline_with_columns_of_text_is_built(bench: Workbench, tmp_path: Path) -> None:
    from skops import io

    path = tmp_path / "columns.skops"
    pipeline, frame, given = columns_of_text()
    io.dump(pipeline, path)
    built = bench.build(path, "columns")
    framework = built.manifest.source.framework
    assert framework is not None
    assert (framework.importer, framework.exporter) == ("sklearn", "skl2onnx.convert_sklearn")
    assert built.manifest.domain.dims["batch"].min == 1
    assert built.manifest.domain.dims["batch"].max > 9
    # The encoder refuses other texts, and so do calls.
    color = next(value for value in built.manifest.inputs if value.name == "color")
    assert color.allowed is not None and color.allowed.values == ("blue", "green", "red")
    answers = bench.load(built).run({name: values[:9] for name, values in given.items()})
    assert answers["label"].tolist() == pipeline.predict(frame)[:9].tolist()


def test_boosted_trees_are_built(bench: Workbench, tmp_path: Path) -> None:
    rows, kinds = iris()
    labels, _ = boosted("xgboost", rows, kinds, tmp_path / "trees.json")
    built = bench.build(tmp_path / "trees.json", "trees")
    framework = built.manifest.source.framework
    assert framework is not None and framework.importer == "xgboost"
    answers = bench.load(built).run(numbers(rows))
    assert np.array_equal(answers["label"], labels)
