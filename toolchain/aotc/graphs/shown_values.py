"""Inner values of a graph as outputs of a copy of it, so that one run gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import onnx

from aotc.engine.session import run
from aotc.engine.values import Data

if TYPE_CHECKING:
    import onnxruntime as ort

T = TypeVar("T")


def groups_within(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """`items` in order, in groups whose sizes add up to at most `most`; a larger one is alone."""
    group: list[T] = []
    held = 0
    for item in items:
        size = size_of(item)
        if group and held + size > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += size
    if group:
        yield group


def with_outputs(
    model: onnx.ModelProto,
    names: Iterable[str],
    known: Mapping[str, onnx.ValueInfoProto] | None = None,
) -> onnx.ModelProto:
    """A copy of `model` with further values of its main graph as outputs.

    Those without a type in `known` are left out; without `known`, ONNX Runtime infers their types.
    Names of no node's output are left out as well.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    made = {name for node in model.graph.node for name in node.output if name}
    present = {value.name for value in model.graph.output}
    for name in dict.fromkeys(names):
        if name not in made or name in present:
            continue
        if known is None:
            shown.graph.output.append(onnx.ValueInfoProto(name=name))
        elif name in known:
            shown.graph.output.append(known[name])
    return shown


def outputs_of(
    session: ort.InferenceSession, inputs: Mapping[str, Data], names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Outputs of one run by name, by default all; `inputs` that the session lacks are left out."""
    wanted = {value.name for value in session.get_inputs()}
    asked = [value.name for value in session.get_outputs()] if names is None else list(names)
    given = {name: value for name, value in inputs.items() if name in wanted}
    return dict(zip(asked, run(session, given, asked), strict=True))
