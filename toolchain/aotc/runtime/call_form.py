"""The form of a call: inputs by name and names of outputs; other forms are explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotc.contract.manifest.interface import Value
from aotc.engine.values import describe
from aotc.errors import AotcError

# How many inputs an example shows.
_MAX_SHOWN = 3


def refuse_other_forms(inputs: object, outputs: object, wanted: Sequence[Value]) -> None:
    """Raise AOTC-R021 if a call is not `run({NAME: array, ...}, [NAME, ...])`.

    `wanted` are the model's inputs.  ONNX Runtime takes the outputs first, and other runtimes take
    only arrays.
    """
    if type(inputs) is dict and outputs is None:
        return
    if not isinstance(inputs, Mapping):
        swapped = isinstance(outputs, Mapping)
        raise AotcError(
            "AOTC-R021",
            "the inputs come first, and the names of outputs after them"
            if swapped
            else "the inputs are not given by name",
            where="inputs",
            expected=_example(wanted),
            found=f"run({_form_of(inputs)}, {_form_of(outputs)})" if swapped else _form_of(inputs),
        )
    if outputs is not None and (isinstance(outputs, str) or not _are_names(outputs)):
        raise AotcError(
            "AOTC-R021",
            "the outputs are not a list of names",
            where="outputs",
            expected="a list of names, or None for all",
            found=repr(outputs) if isinstance(outputs, str) else _form_of(outputs),
        )


def _are_names(outputs: object) -> bool:
    return isinstance(outputs, Sequence) and all(isinstance(name, str) for name in outputs)


def _example(wanted: Sequence[Value]) -> str:
    named = [f"{value.name!r}: array" for value in wanted[:_MAX_SHOWN]]
    return f"run({{{', '.join([*named, *(['...'] if len(wanted) > _MAX_SHOWN else [])])}}})"


def _form_of(given: Any) -> str:
    if given is None:
        return "None"
    if isinstance(given, Mapping):
        return "a mapping"
    if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
        return "a list of names"
    return describe(given)
