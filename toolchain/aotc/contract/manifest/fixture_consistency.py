"""What a manifest says of inputs, outputs and fixtures, held against itself.

Who runs a fixture looks its arrays up by name, and would fail at a name that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Problem

if TYPE_CHECKING:
    from aotc.contract.manifest.document import Manifest
    from aotc.contract.manifest.interface import Value
    from aotc.contract.manifest.payload_files import FixtureTensor


def fixture_problems(manifest: Manifest) -> Iterator[Problem]:
    """Every place where names of inputs, outputs and fixtures contradict each other."""
    yield from _values(manifest.inputs, "inputs")
    yield from _values(manifest.outputs, "outputs")
    inputs = {value.name for value in manifest.inputs}
    optional = {value.name for value in manifest.inputs if value.kind == "optional"}
    outputs = {value.name for value in manifest.outputs}
    listed = {entry.path for entry in manifest.files}
    seen: set[str] = set()
    for index, fixture in enumerate(manifest.fixtures):
        where = f"fixtures[{index}]"
        if fixture.name in seen:
            yield Problem(f"{where}.name", "is another fixture's too")
        seen.add(fixture.name)
        yield from _tensors(fixture.inputs, inputs, inputs - optional, listed, f"{where}.inputs")
        yield from _tensors(fixture.outputs, outputs, set(), listed, f"{where}.outputs")
        if not fixture.outputs:
            yield Problem(f"{where}.outputs", "are none, so that nothing could be compared")


def _values(values: tuple[Value, ...], where: str) -> Iterator[Problem]:
    if len({value.name for value in values}) != len(values):
        yield Problem(where, "two have one name")


def _tensors(
    tensors: tuple[FixtureTensor, ...],
    known: set[str],
    needed: set[str],
    listed: set[str],
    where: str,
) -> Iterator[Problem]:
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        yield Problem(where, "two have one name")
    for tensor in tensors:
        if tensor.name not in known:
            yield Problem(f"{where}.{tensor.name}", "is no name of the model")
        if tensor.path not in listed:
            yield Problem(f"{where}.{tensor.name}", "is not among files")
    for name in sorted(needed - names):
        yield Problem(f"{where}.{name}", "is missing")
