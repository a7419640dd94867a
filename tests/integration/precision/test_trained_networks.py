"""What lower precision costs networks that were trained, on data that neither training nor
calibration saw: within a point of accuracy, or of mean average precision."""

from __future__ import annotations

import json

import numpy as np
import pytest
from workbench import Workbench

from benchmarks.precision import mean_precision, tasks
from benchmarks.precision.trained import FOLDER, FORMS, LARGEST_DROP, NETWORKS, fields

# Of the networks themselves, below which a drop says little.
LEAST = {"pieces": 0.85, "scenes": 0.8}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench.at(tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_form_keeps_what_was_learned(bench: Workbench, name: str, form: str) -> None:
    profile = bench.folder / f"{name}.yaml"
    asked = fields(name, form, bench.folder, LARGEST_DROP / 100)
    profile.write_text(json.dumps({"schema": "aotc.profile/1", "name": "trained", **asked}))
    built = bench.build(FOLDER / f"{name}.onnx", f"{name}-{form}", profile=profile, cache=False)
    for variant in built.report.variants:
        assert variant.task is not None
        assert variant.task.passed
        assert variant.task.original >= LEAST[name]
        assert variant.task.drop <= LARGEST_DROP / 100


def test_no_file_is_of_two_uses() -> None:
    uses: dict[str, set[str]] = {}
    for number in range(len(tasks.LANGUAGES)):
        for path in tasks.files(number):
            uses.setdefault(path.name, set()).add(tasks.use_of(path))
    assert all(len(found) == 1 for found in uses.values())
    assert {"train", "calibrate", "judge"} == set().union(*uses.values())


def boxes(*rows: tuple[float, ...]) -> np.ndarray:
    """One image's answers of two classes: corners and scores."""
    return np.array([rows], np.float32)


def test_precision_falls_with_wrong_boxes_that_are_sure() -> None:
    label = np.array([[[0, 0, 10, 10, 0], [20, 20, 30, 30, 1], [-1, -1, -1, -1, -1]]], np.float32)
    first, second = (0, 0, 10, 9, 0.9, 0), (20, 21, 30, 30, 0, 0.8)
    assert mean_precision.score(boxes(first, second), label) == 1
    # A second box on the same object is no second find, and one elsewhere is wrong.
    assert mean_precision.score(boxes(first, (0, 0, 10, 10, 0.8, 0), second), label) == 1
    wrong = (40, 40, 50, 50, 0.95, 0)
    assert mean_precision.score(boxes(wrong, first, second), label) == pytest.approx(0.75)
    assert mean_precision.score(boxes((0, 5, 10, 15, 0.9, 0), second), label) == 0.5
    assert mean_precision.score(boxes((0, 0, 10, 10, 0, 0)), label) == 0
