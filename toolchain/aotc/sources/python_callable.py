"""Callables of the user's Python code, `package.module:callable`, which make a model.

Such a callable returns a `torch.nn.Module` or a function of JAX with example inputs, and with the
dims that are free if there are any; or an exported program; or a fitted estimator.  It is the
user's own code that runs: only with `--trust-source`, in a sandboxed process, in the folder that
aotc was called in.  What it prints stays in the log of that process, and what it leaves is ended.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.sources.base import Answers, Captured, CaptureRequest, Importer
from aotc.sources.user_code import Called
from aotc.spec.codec import encode

if TYPE_CHECKING:
    Arrays = Mapping[str, Any]

_SOURCE: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
# In the folder of a capture: the names of arguments, and what the model answered first.
_ARGUMENTS: Final = "arguments.json"
_FIRST: Final = "first.npz"
_RETURNS: Final = (
    "(torch.nn.Module, example inputs), (function of JAX, example inputs), either with "
    "dynamic_shapes after them; a torch.export.ExportedProgram; or a fitted estimator of "
    "scikit-learn"
)

Kind = Literal["torch", "program", "jax", "estimator"]


@record
class Given:
    """What a callable returned: the model, with example inputs and its free dims."""

    kind: Kind
    model: Any
    examples: Any = None
    dynamic_shapes: Any = None


class PythonCallable(Importer):
    """A callable, by its module and name."""

    name: ClassVar[str] = "python"
    extra: ClassVar[str] = "torch"
    title: ClassVar[str] = "a callable (package.module:callable)"
    distributions: ClassVar[tuple[str, ...]] = (
        *("torch", "onnxscript", "onnx-ir", "onnx", "numpy", "jax", "jax2onnx"),
        *("scikit-learn", "skl2onnx"),
    )
    runs_code: ClassVar[bool] = True

    def recognizes(self, source: str) -> bool:
        """`package.module:callable`, where there is no such file."""
        return _SOURCE.fullmatch(source) is not None and not Path(source).exists()

    def require(self, source: str) -> None:
        """Nothing: whether there is such a module is known where it may be imported."""

    def files(self, source: str) -> tuple[Path, ...]:
        """None: what the callable reads is not known."""
        return ()

    def model_name(self, source: str) -> str:
        """The name of the callable."""
        return source.rpartition(":")[2].rpartition(".")[2]

    def is_free(self, request: CaptureRequest) -> bool:
        """The user's own code may download weights, and keep them."""
        return request.trusted

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """Call it, and export what it returns.

        Raises AOTC-I150 to I153, and what the framework's exporter refuses.
        """
        called = Called(request.source, request.directory)
        given, versions = given_of(called.value, request.source), self.versions()
        if given.kind == "jax":
            from aotc.sources.jax_functions import capture_function, function_of

            captured = capture_function(
                function_of(given.model, given.examples, given.dynamic_shapes), folder, versions
            )
        elif given.kind == "estimator":
            from aotc.sources.sklearn_estimators import capture_estimator

            captured = capture_estimator(given.model, folder, versions)
        else:
            captured = _capture_torch(given, folder, versions)
        answers = _answers(given, folder, captured)
        _save_first(answers, folder, captured)
        found = called.findings()
        return replace(
            captured,
            framework=replace(
                captured.framework,
                importer=self.name,
                source=request.source,
                files=called.files,
                trusted=True,
            ),
            findings=(*captured.findings, *found),
        )

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """Call it again: the model that it returns answers.

        Raises AOTC-I156 where that model answers the example otherwise than the captured one.
        """
        given = given_of(Called(request.source, request.directory).value, request.source)
        answers = _answers(given, folder, captured)
        _compare_first(answers, folder, captured, request.source)
        return answers


# What it returned.


def given_of(value: Any, source: str) -> Given:
    """What a callable returned, told apart; raises AOTC-I153 where it is nothing that is known."""
    from aotc.sources.torch_module import is_torch_module

    if type(value).__name__ == "ExportedProgram" and is_torch_module(value):
        return Given(kind="program", model=value)
    if _is_estimator(value):
        return Given(kind="estimator", model=value)
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        found = _described(value)
        if is_torch_module(value) or callable(value):
            found += " without example inputs"
        raise _unknown(source, found)
    model, examples, *more = value
    dynamic_shapes = more[0] if more else None
    if is_torch_module(model):
        kind: Kind = "program" if type(model).__name__ == "ExportedProgram" else "torch"
        return Given(kind=kind, model=model, examples=examples, dynamic_shapes=dynamic_shapes)
    if callable(model) and "jax" in sys.modules and not _has_tensors(examples):
        return Given(kind="jax", model=model, examples=examples, dynamic_shapes=dynamic_shapes)
    raise _unknown(source, f"a {type(value).__name__} that begins with {_described(model)}")


def _unknown(source: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I153",
        "the callable returns nothing that can be captured",
        where=source,
        expected=_RETURNS,
        found=found,
    )


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _is_estimator(value: Any) -> bool:
    return not isinstance(value, type) and any(
        f"{each.__module__}.{each.__name__}" == "sklearn.base.BaseEstimator"
        for each in type(value).__mro__
    )


def _has_tensors(examples: Any) -> bool:
    leaves = examples.values() if isinstance(examples, Mapping) else examples
    if not isinstance(leaves, tuple | list) and not isinstance(examples, Mapping):
        leaves = [examples]
    return any(type(leaf).__module__.partition(".")[0] == "torch" for leaf in leaves)


# PyTorch.


def _capture_torch(given: Given, folder: Path, versions: Mapping[str, str]) -> Captured:
    from aotc.sources.torch_module import arguments_of, export_module
    from aotc.sources.torch_program import capture_program

    positional, named = arguments_of(() if given.examples is None else given.examples)
    program, asked = export_module(given.model, positional, named, given.dynamic_shapes)
    captured = capture_program(
        program, folder, source=None, versions=versions, options={"asked": encode(asked)}
    )
    names = [
        name if isinstance(name, str) else None for name in program.graph_signature.user_inputs
    ]
    (folder / _ARGUMENTS).write_text(json.dumps(names))
    kind = "exported program" if given.kind == "program" else "module"
    return replace(
        captured, framework=replace(captured.framework, format=f"{kind} of a Python callable")
    )


def _module_answers(given: Given, folder: Path, captured: Captured) -> Answers:
    """What the user's own module answers, as PyTorch calls it, on one thread."""
    import torch
    from torch.utils import _pytree

    from aotc.sources.torch_module import arguments_of

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    names = json.loads((folder / _ARGUMENTS).read_text())
    examples, spec = _pytree.tree_flatten(arguments_of(given.examples))

    def answer(arrays: Arrays) -> Arrays:
        flat = [
            torch.from_numpy(arrays[name].copy()) if name in arrays else example
            for name, example in zip(names, examples, strict=True)
        ]
        positional, named = _pytree.tree_unflatten(flat, spec)
        with torch.no_grad():
            result = given.model(*positional, **named)
        tensors = [each for each in _pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        found = (each.detach().cpu().numpy() for each in tensors)
        return dict(zip(captured.outputs, found, strict=True))

    return answer


# The framework's answers, and whether they are those of the captured model.


def _answers(given: Given, folder: Path, captured: Captured) -> Answers:
    if given.kind == "jax":
        from aotc.sources.jax_functions import function_answers, function_of

        function = function_of(given.model, given.examples, given.dynamic_shapes)
        return function_answers(function, captured.outputs)
    if given.kind == "estimator":
        from aotc.sources.sklearn_estimators import estimator_answers

        return estimator_answers(given.model, captured.outputs)
    if given.kind == "torch":
        return _module_answers(given, folder, captured)
    from aotc.sources.torch_program import eager_answers

    return eager_answers(given.model, captured.outputs)


def _examples(folder: Path, captured: Captured) -> Arrays:
    import numpy as np

    if not captured.examples:
        return {}
    with np.load(folder / captured.examples, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _save_first(answers: Answers, folder: Path, captured: Captured) -> None:
    import numpy as np

    if examples := _examples(folder, captured):
        first: dict[str, Any] = dict(answers(examples))
        np.savez(folder / _FIRST, **first)


def _compare_first(answers: Answers, folder: Path, captured: Captured, source: str) -> None:
    import numpy as np

    examples = _examples(folder, captured)
    if not examples or not (folder / _FIRST).exists():
        return
    again = answers(examples)
    with np.load(folder / _FIRST, allow_pickle=False) as first:
        for name in first.files:
            kept = first[name]
            floats = kept.dtype.kind in "fc"
            if not np.array_equal(kept, again[name], equal_nan=floats):
                raise AotcError(
                    "AOTC-I156",
                    f"two calls gave models that answer otherwise in {name}, to the same example",
                    where=source,
                )
