"""The form of a call: inputs by name, names of outputs; other forms are told how to be put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotc.contract.manifest.interface import Value
from aotc.engine.values import describe
from aotc.errors import AotcError

# Of inputs, in an example.
_MOST = 3


def refuse_other_forms(inputs: object, outputs: object, wanted: Sequence[Value]) -> None:
    """Raise AOTC-R021 where a call is not `run({NAME: array, ...}, [NAME, ...])`.

    `wanted` are the model's inputs.  ONNX Runtime takes the outputs first, and other runtimes take
    the arrays alone.
    """
    if type(inputs) is dict and outputs is None:
        return
    if not isinstance(inputs, Mapping):
        turned = isinstance(outputs, Mapping)
        raise AotcError(
            "AOTC-R021",
            "the inputs come first, and the names of outputs after them"
            if turned
            else "the inputs are not given by name",
            where="inputs",
            expected=_example(wanted),
            found=f"run({_described(inputs)}, {_described(outputs)})"
            if turned
            else _described(inputs),
        )
    if outputs is not None and (isinstance(outputs, str) or not _are_names(outputs)):
        raise AotcError(
            "AOTC-R021",
            "the outputs are not a list of names",
            where="outputs",
            expected="a list of names, or None for all",
            found=repr(outputs) if isinstance(outputs, str) else _described(outputs),
        )


def _are_names(outputs: object) -> bool:
    return isinstance(outputs, Sequence) and all(isinstance(each, str) for each in outputs)


def _example(wanted: Sequence[Value]) -> str:
    named = [f"{value.name!r}: array" for value in wanted[:_MOST]]
    return f"run({{{', '.join([*named, *(['...'] if len(wanted) > _MOST else [])])}}})"


def _described(given: Any) -> str:
    if given is None:
        return "None"
    if isinstance(given, Mapping):
        return "a mapping"
    if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
        return "a list of names"
    return describe(given)
