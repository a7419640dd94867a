"""Consistency of the inputs, outputs and fixtures of a manifest.

A fixture's arrays are looked up by name when it runs, so a wrong name must be found before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Problem

if TYPE_CHECKING:
    from aotc.contract.manifest.interface import Value
    from aotc.contract.manifest.payload_files import FileEntry, Fixture, FixtureTensor


def value_problems(inputs: Iterable[Value], outputs: Iterable[Value]) -> Iterator[Problem]:
    """Inputs that have the same name, and outputs that do."""
    for where, values in (("inputs", inputs), ("outputs", outputs)):
        names = [value.name for value in values]
        if len(set(names)) != len(names):
            yield Problem(where, "two have the same name")


def fixture_problems(
    fixtures: Iterable[Fixture],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    files: Iterable[FileEntry],
) -> Iterator[Problem]:
    """Fixtures that contradict each other, the names of values, or the list of files."""
    given = {value.name for value in inputs}
    optional = {value.name for value in inputs if value.kind == "optional"}
    produced = {value.name for value in outputs}
    listed = {entry.path for entry in files}
    seen: set[str] = set()
    for index, fixture in enumerate(fixtures):
        where = f"fixtures[{index}]"
        if fixture.name in seen:
            yield Problem(f"{where}.name", "is also the name of another fixture")
        seen.add(fixture.name)
        yield from _tensor_problems(
            fixture.inputs, given, given - optional, listed, f"{where}.inputs"
        )
        yield from _tensor_problems(fixture.outputs, produced, set(), listed, f"{where}.outputs")
        if not fixture.outputs:
            yield Problem(f"{where}.outputs", "is empty, so nothing could be compared")


def _tensor_problems(
    tensors: tuple[FixtureTensor, ...],
    known: set[str],
    needed: set[str],
    listed: set[str],
    where: str,
) -> Iterator[Problem]:
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        yield Problem(where, "two have the same name")
    for tensor in tensors:
        if tensor.name not in known:
            yield Problem(f"{where}.{tensor.name}", "is not a name of the model")
        if tensor.path not in listed:
            yield Problem(f"{where}.{tensor.name}", "is not among files")
    for name in sorted(needed - names):
        yield Problem(f"{where}.{name}", "is missing")
