"""Metrics of a task, ours or a function of the user's, counted batch by batch."""

from __future__ import annotations

import importlib
import math
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from aotc.base.errors import AotcError

Array = np.ndarray[Any, Any]
_TOP: Final = 5


# Metrics of a task that are counted batch by batch: accuracy, top-5 accuracy, mean IoU.
#
# Answers are the largest values along the axis of classes; an output of integers or text holds the
# answers themselves. Of equal values the first counts as the larger, as argmax has it. An answer
# with NaN is wrong.


class Metric(Protocol):
    """A metric that grows with each batch; `nan_answers` counts answers with NaN."""

    nan_answers: int

    def add(self, output: Array, labels: Array) -> None:
        """Count a batch: the output, and the labels of its samples; raises AOTC-I080 and I081."""

    def value(self) -> float:
        """The metric of all that was added; raises AOTC-N025 where it has no value."""


class Accuracy:
    """The share of labels that are among the `top` largest values along the last axis."""

    def __init__(self, where: str, ignored: int | None, top: int) -> None:
        self._where, self._ignored, self._top = where, ignored, top
        self._right = self._counted = self.nan_answers = 0

    def add(self, output: Array, labels: Array) -> None:
        """Labels have the output's shape without its last axis, or of answers the whole shape."""
        if output.dtype.kind in "iubOUS":
            answers = output.reshape(labels.shape) if output.size == labels.size else output
            _require_shape(labels, answers.shape, self._where)
            if self._top > 1:
                raise _unfit(self._where, "values of at least 6 classes", "answers themselves")
            counted = _counted(labels, self._ignored)
            right = answers.astype(object) == _as_answers(labels, output, self._where)
        else:
            _require_floats(output, self._where)
            classes = output.shape[-1]
            _require_shape(labels, output.shape[:-1], self._where)
            if classes <= self._top:
                text = f"more than {self._top} classes along the last axis"
                raise _unfit(self._where, text, f"shape {list(output.shape)}")
            counted = _counted(labels, self._ignored)
            _require_classes(labels, counted, classes, self._where)
            found = output.astype(np.float64)
            numbers = ~np.isnan(found).any(axis=-1)
            self.nan_answers += int(np.count_nonzero(~numbers & counted))
            own = np.take_along_axis(found, np.where(counted, labels, 0)[..., None], -1)
            above = np.count_nonzero(found > own, axis=-1)
            before = np.arange(classes) < np.where(counted, labels, 0)[..., None]
            above += np.count_nonzero((found == own) & before, axis=-1)
            right = (above < self._top) & numbers
        self._right += int(np.count_nonzero(right & counted))
        self._counted += int(np.count_nonzero(counted))

    def value(self) -> float:
        """The share; raises AOTC-N025."""
        if not self._counted or self.nan_answers == self._counted:
            why = "every answer has NaN" if self._counted else "no label counts"
            raise unjudged(self._where, why)
        return self._right / self._counted


class MeanIou:
    """Intersection over union of predicted and labelled elements, mean over classes that occur.

    Classes are along axis 1 (N, C, H, W), or else the last axis, where the other axes are those of
    the labels (N, H, W).
    """

    def __init__(self, where: str, ignored: int | None) -> None:
        self._where, self._ignored = where, ignored
        # By class that occurred: labels may be any integers, such as ids of a large catalogue.
        self._both: Counter[int] = Counter()
        self._either: Counter[int] = Counter()
        self._counted = self.nan_answers = 0

    def add(self, output: Array, labels: Array) -> None:
        """Count elements by class; raises AOTC-I080 and I081."""
        counted = _counted(labels, self._ignored)
        if output.dtype.kind in "iub":
            answers = output.reshape(labels.shape) if output.size == labels.size else output
            _require_shape(labels, answers.shape, self._where)
            _require_integers(labels, "integers from 0 on", self._where)
            if any((part[counted] < 0).any() for part in (answers, labels)):
                raise _out_of_range(self._where, "classes from 0 on", "a negative one")
        else:
            _require_floats(output, self._where)
            axis = _class_axis(output, labels, self._where)
            _require_classes(labels, counted, output.shape[axis], self._where)
            numbers = ~np.isnan(output.astype(np.float64)).any(axis=axis)
            self.nan_answers += int(np.count_nonzero(~numbers & counted))
            # An answer with NaN is of no class.
            answers = np.where(numbers, output.argmax(axis=axis), -1)
        self._counted += int(np.count_nonzero(counted))
        expected, found = labels[counted], answers[counted]
        both = _by_class(expected[expected == found])
        self._both += both
        self._either += _by_class(expected) + _by_class(found[found >= 0]) - both

    def value(self) -> float:
        """The mean over classes; raises AOTC-N025."""
        if not self._either or self.nan_answers == self._counted:
            why = "every answer has NaN" if self.nan_answers else "no class occurs"
            raise unjudged(self._where, why)
        shares = [self._both[each] / self._either[each] for each in sorted(self._either)]
        return float(np.mean(shares))


def _by_class(classes: Array) -> Counter[int]:
    found, counts = np.unique(classes, return_counts=True)
    return Counter({int(each): int(n) for each, n in zip(found, counts, strict=True)})


def metric_of(name: str, ignored: int | None, where: str) -> Metric:
    """The metric of that name; `where` names the output and the set in refusals."""
    if name == "mean_iou":
        return MeanIou(where, ignored)
    return Accuracy(where, ignored, _TOP if name == "top5" else 1)


def unjudged(where: str, why: str) -> AotcError:
    """The refusal of a metric that has no value."""
    return AotcError(
        "AOTC-N025", "the metric has no value", where=where, expected="a finite number", found=why
    )


def _unfit(where: str, expected: str, found: str) -> AotcError:
    what = "the metric cannot be computed from this output"
    return AotcError("AOTC-I081", what, where=where, expected=expected, found=found)


def _counted(labels: Array, ignored: int | None) -> Array:
    if ignored is None or labels.dtype.kind not in "iu":
        return np.ones(labels.shape, bool)
    counted: Array = labels != ignored
    return counted


def _as_answers(labels: Array, output: Array, where: str) -> Array:
    """Labels that answers can equal, as objects: text has a fixed width in files, not in outputs.

    Raises AOTC-I080 where none can: of text and numbers, and of floating-point labels.
    """
    is_text = output.dtype.kind in "OUS"
    if labels.dtype.kind not in ("US" if is_text else "iub"):
        wanted = "text, as the output is" if is_text else "integers, as the output has"
        raise _out_of_range(where, wanted, f"labels of {_type_of(labels)}")
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise _out_of_range(where, "text in UTF-8", str(error)[:300]) from None
    return labels.astype(object)


def _type_of(labels: Array) -> str:
    return "text" if labels.dtype.kind in "US" else str(labels.dtype)


def _require_floats(output: Array, where: str) -> None:
    if output.dtype.kind in "cOUS" or output.ndim < 2:
        found = f"{output.dtype} of shape {list(output.shape)}"
        raise _unfit(where, "real numbers, along an axis of samples and one of classes", found)


def _require_shape(labels: Array, wanted: Sequence[int], where: str) -> None:
    if labels.shape != tuple(wanted):
        raise AotcError(
            "AOTC-I080",
            "the labels' shape does not fit the output",
            where=where,
            expected=f"{list(wanted)} for a batch of {labels.shape[0]}",
            found=str(list(labels.shape)),
        )


def _class_axis(output: Array, labels: Array, where: str) -> int:
    for axis in (1, output.ndim - 1):
        if output.shape[:axis] + output.shape[axis + 1 :] == labels.shape:
            return axis
    _require_shape(labels, output.shape[:1] + output.shape[2:], where)
    return 1


def _require_classes(labels: Array, counted: Array, classes: int, where: str) -> None:
    wanted = f"integers from 0 to {classes - 1}"
    _require_integers(labels, wanted, where)
    wrong = counted & ((labels < 0) | (labels >= classes))
    if wrong.any():
        count = int(np.count_nonzero(wrong))
        raise _out_of_range(where, wanted, f"{labels[wrong].flat[0]}, and {count} such in a batch")


def _require_integers(labels: Array, wanted: str, where: str) -> None:
    if labels.dtype.kind not in "iub":
        raise _out_of_range(where, wanted, f"labels of {_type_of(labels)}")


def _out_of_range(where: str, expected: str, found: str) -> AotcError:
    what = "labels are not classes of the output"
    return AotcError("AOTC-I080", what, where=where, expected=expected, found=found)


_OURS: Final = Path(__file__).parents[1]


class FunctionMetric:
    """`module:function(output, labels)` of the whole set; more is better.

    The module is imported when this is made, with `folders` before all else on the path: what else
    the process imports later is imported by then.  Raises AOTC-N027.
    """

    nan_answers = 0

    def __init__(self, name: str, folders: Sequence[str], where: str) -> None:
        self._name, self._folders, self._where = name, folders, where
        self._outputs: list[Array] = []
        self._labels: list[Array] = []
        module_name, _, function_name = name.partition(":")
        sys.path[:0] = folders
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            raise self._failed("the module of the metric cannot be imported", error) from None
        function = getattr(module, function_name, None)
        if not callable(function):
            raise AotcError(
                "AOTC-N027",
                "the module of the metric has no such function",
                where=where,
                expected=name,
                found=f"{function_name} is {'missing' if function is None else 'not a function'} "
                f"in {_shown(str(getattr(module, '__file__', module_name)), folders)}",
            )
        self._function: Callable[[Array, Array], Any] = function

    def add(self, output: Array, labels: Array) -> None:
        """Keep a batch until all are there; raises AOTC-I081 if they do not fit each other."""
        if self._outputs and self._outputs[0].shape[1:] != output.shape[1:]:
            raise AotcError(
                "AOTC-I081",
                "outputs of different sizes cannot be given to a function as one array",
                where=self._where,
                expected=str(list(self._outputs[0].shape[1:])),
                found=str(list(output.shape[1:])),
                fix="Give samples of one size.",
            )
        self._outputs.append(output)
        self._labels.append(labels)

    def value(self) -> float:
        """What the function returns; raises AOTC-N025 and N027."""
        try:
            labels = np.concatenate(self._labels)
            returned = self._function(np.concatenate(self._outputs), labels)
        except (Exception, SystemExit) as error:
            raise self._failed("the function of the metric failed", error) from None
        try:
            value = float(returned)
        except (TypeError, ValueError, OverflowError):
            found = f"{self._name} returned {type(returned).__name__}"
            raise unjudged(self._where, found) from None
        if not math.isfinite(value):
            raise unjudged(self._where, f"{self._name} returned {value}")
        return value

    def _failed(self, what: str, error: BaseException) -> AotcError:
        """The refusal, with the error's message and the last line of the user's that led to it."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if _is_below(frame.filename, self._folders)]
        place = ""
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{_shown(error.filename, self._folders)}, line {error.lineno}: "
        elif own:
            place = f"{_shown(own[-1].filename, self._folders)}, line {own[-1].lineno}: "
        message = str(error.msg if isinstance(error, SyntaxError) else error)
        text = f"{type(error).__name__}: {message}" if message else type(error).__name__
        return AotcError(
            "AOTC-N027", what, where=self._where, expected=self._name, found=(place + text)[:500]
        )


def _is_below(file: str, folders: Sequence[str]) -> bool:
    """Whether a file is the user's: in one of `folders`, and neither installed there nor ours."""
    path = Path(file)
    if path.is_relative_to(_OURS) or "site-packages" in path.parts:
        return False
    return any(path.is_relative_to(folder) for folder in folders)


def _shown(file: str, folders: Sequence[str]) -> str:
    """A file by its path from the first of `folders` that it is below."""
    for folder in folders:
        if Path(file).is_relative_to(folder):
            return str(Path(file).relative_to(folder))
    return file
