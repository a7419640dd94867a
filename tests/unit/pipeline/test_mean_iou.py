"""Mean IoU of answers that are classes themselves: which labels count, and how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotc.base.errors import AotcError
from aotc.pipeline.task_metrics import metric_of

ANSWERS = np.array([[0, 1], [1, 1]])


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (np.array([["0", "1"], ["1", "1"]]), "labels of text"),
        (np.array([[np.nan, 1], [1, 1]]), "labels of float64"),
        (np.array([[0.9, 1], [1, 1]], np.float32), "labels of float32"),
        (np.array([[-1, 1], [1, 1]]), "a negative one"),
    ],
)
def test_labels_that_are_not_classes(labels: Any, found: str) -> None:
    with pytest.raises(AotcError) as refused:
        metric_of("mean_iou", None, "here").add(ANSWERS, labels)
    assert (refused.value.code, refused.value.found) == ("AOTC-I080", found)


def test_answers_that_are_text() -> None:
    with pytest.raises(AotcError) as refused:
        metric_of("mean_iou", None, "here").add(np.array(["a", "b"], object), np.array([0, 1]))
    assert refused.value.code == "AOTC-I081"


@pytest.mark.parametrize("large", [2**40, 2**63])
def test_classes_may_be_any_integers(large: int) -> None:
    """As ids of a catalogue are: memory is for those that occur."""
    metric = metric_of("mean_iou", 7, "here")
    metric.add(np.array([0, large, large, 5], np.uint64), np.array([0, large, 0, 7], np.uint64))
    metric.add(np.array([True, False]), np.array([1, 0]))
    # 0: 2 of 3, 1: 1 of 1, the large one: 1 of 2; where the label is 7, nothing counts.
    assert metric.value() == pytest.approx((2 / 3 + 1 + 1 / 2) / 3)
