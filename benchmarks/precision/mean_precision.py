"""Mean average precision of boxes at an overlap of a half, as a metric of `gates.task`.

Beside a profile it is `metric: mean_precision:score`; it needs numpy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_OVERLAP = 0.5
_LEAST_SCORE = 0.01
_MOST_BOXES = 20


def score(output: Array, labels: Array) -> float:
    """The mean of the classes' areas below precision over recall.

    `output` is float32 [N, cells, 4 + classes]: corners x1, y1, x2, y2, then a score by class.
    `labels` is float32 [N, objects, 5]: corners, then the class; -1 where there is no object.
    """
    classes = output.shape[-1] - 4
    return float(np.mean([_area(output, labels, c) for c in range(classes)]))


def _area(output: Array, labels: Array, number: int) -> float:
    """Of a class: the area below the largest precision at each recall or a higher one."""
    found: list[tuple[float, bool]] = []
    wanted = 0
    for answer, label in zip(output, labels, strict=True):
        right = label[label[:, 4] == number, :4]
        wanted += len(right)
        taken = np.zeros(len(right), bool)
        for box, certainty in _kept(answer[:, :4], answer[:, 4 + number]):
            overlaps = _overlaps(box, right) * ~taken
            hit = bool(len(right)) and overlaps.max() >= _OVERLAP
            if hit:
                taken[overlaps.argmax()] = True
            found.append((certainty, hit))
    found.sort(key=lambda each: -each[0])
    hits = np.cumsum([hit for _, hit in found])
    if not wanted or not len(hits):
        return 0.0
    precision = hits / np.arange(1, len(hits) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(hits / wanted, prepend=0.0) * best))


def _kept(boxes: Array, scores: Array) -> list[tuple[Array, float]]:
    """The boxes with the largest scores, without those that overlap a better one."""
    kept: list[tuple[Array, float]] = []
    for at in np.argsort(-scores, kind="stable")[:_MOST_BOXES]:
        if scores[at] < _LEAST_SCORE:
            break
        if all(_overlaps(boxes[at], box[None])[0] < _OVERLAP for box, _ in kept):
            kept.append((boxes[at], float(scores[at])))
    return kept


def _overlaps(box: Array, others: Array) -> Array:
    """Of `box` with each of `others`: the shared area by the area of both."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(np.maximum(others[:, 2:] - others[:, :2], 0), axis=1)
    return np.asarray(shared / (np.prod(np.maximum(box[2:] - box[:2], 0)) + areas - shared + 1e-9))
