"""A metric that is a function of the user's: imported, called, and told of where it fails."""

from __future__ import annotations

import importlib
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotc.errors import AotcError
from aotc.stages.proving.task_metrics import unjudged

Array = np.ndarray[Any, Any]
_OURS: Final = Path(__file__).parents[2]


class FunctionMetric:
    """`module:function(output, labels)` of the whole set; more is better.

    The module is imported when this is made, with `folders` before all else on the path: what else
    the process imports later is imported by then.  Raises AOTC-N027.
    """

    not_numbers = 0

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
                found=f"{function_name} is {'not there' if function is None else 'no function'} "
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
