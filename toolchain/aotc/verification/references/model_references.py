"""Whether the models of an artifact refer to nothing but signed files that their variant reads.

A trusted key may have signed a model whose weights lie at `/dev/zero` or in a file beside the
artifact, as no tool that signs files looks into them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import get_args

from aotc.contract.codec.parsing import Pattern, Problem
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.payload_files import PayloadPath
from aotc.contract.manifest.variant import Variant
from aotc.errors import AotcError
from aotc.files.artifact_layout import PAYLOAD
from aotc.verification.container.base import ArtifactFile, Container
from aotc.verification.references.onnx_references import (
    CACHE,
    CompiledPart,
    ExternalData,
    references,
)
from aotc.verification.references.protobuf_wire import MalformedModel

_PATH = next(note.regex for note in get_args(PayloadPath) if isinstance(note, Pattern))
_NUMBER = r"[0-9]{1,19}"
# Weights that ONNX Runtime has packed for a kernel: NAME|OFFSET;LENGTH;FLAG|...
_PACKED = "prepacked_"


def require_inside(
    container: Container, manifest: Manifest, read: Collection[str] | None = None
) -> None:
    """Raise G014 for every reference that `outside_references` finds, the first leading."""
    found = [
        AotcError(
            "AOTC-G014",
            "a model refers to what was not signed",
            where=f"{PAYLOAD}/{each.path}",
            found=each.what,
        )
        for each in outside_references(container, manifest, read)
    ]
    if found:
        found[0].also = tuple(found[1:])
        raise found[0]


def outside_references(
    container: Container, manifest: Manifest, read: Collection[str] | None = None
) -> list[Problem]:
    """What models refer to that is not signed, not their variant's, or beyond a file's end.

    With `read`, only the models among these payload files are looked at.  Raises what opening a
    file does.
    """
    sizes = {entry.path: entry.size for entry in manifest.files}
    problems: list[Problem] = []
    for variant in manifest.variants:
        if read is not None and variant.model not in read:
            continue
        known = {path: sizes[path] for path in variant.files}
        with container.open(f"{PAYLOAD}/{variant.model}") as file:
            try:
                problems += _outside(_Stored(file), variant, known)
            except MalformedModel as error:
                problems.append(Problem(variant.model, f"is no ONNX model: {error}"))
    return problems


class _Stored:
    """A model in a file."""

    def __init__(self, file: ArtifactFile) -> None:
        self.size = file.size
        self._file = file

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`."""
        self._file.seek(offset)
        parts = bytearray()
        while len(parts) < count:
            part = self._file.read(count - len(parts))
            if not part:
                raise MalformedModel("it ends early")
            parts += part
        return bytes(parts)


def _outside(source: _Stored, variant: Variant, known: Mapping[str, int]) -> Iterator[Problem]:
    """ONNX Runtime finds weights in the shared asset's folder, and the rest beside the model."""
    beside = posixpath.dirname(variant.model)
    asset = beside if variant.weights is None else variant.weights
    told: set[Problem] = set()
    for reference in references(source):
        if isinstance(reference, CompiledPart):
            found = _compiled(reference, variant.model, beside, known)
        else:
            found = _external(reference, variant.model, asset, known)
        for problem in found:
            if problem not in told:
                told.add(problem)
                yield problem


def _compiled(
    part: CompiledPart, model: str, folder: str, known: Mapping[str, int]
) -> Iterator[Problem]:
    if part.attribute == CACHE:
        if _inside(folder, part.file, known) is None:
            yield _elsewhere(model, "a compiled part", part.file)
    # What it was compiled from need not be there; OpenVINO writes a name without a file.
    elif part.file and not re.fullmatch(_PATH, part.file):
        yield _elsewhere(model, "the source of a compiled part", part.file)


def _external(
    data: ExternalData, model: str, folder: str, known: Mapping[str, int]
) -> Iterator[Problem]:
    locations = [value for key, value in data.entries if key == "location"]
    sizes = [_inside(folder, location, known) for location in locations]
    for location, size in zip(locations, sizes, strict=True):
        if size is None:
            yield _elsewhere(model, "external data", location)
    if not locations:
        yield Problem(model, "has external data without a location")
    least = min((size for size in sizes if size is not None), default=None)
    if least is None:
        return
    offset, length = "0", "0"
    for key, value in data.entries:
        if key == "offset":
            offset = value
        elif key == "length":
            length = value
        elif key.startswith(_PACKED):
            for part in value.split("|")[1:]:
                start, _, rest = part.partition(";")
                yield from _beyond(model, start, rest.partition(";")[0], least)
    yield from _beyond(model, offset, length, least)


def _beyond(model: str, offset: str, length: str, size: int) -> Iterator[Problem]:
    numbers = [int(text) for text in (offset, length) if re.fullmatch(_NUMBER, text)]
    if len(numbers) < 2 or sum(numbers) > size:
        place = f"{offset[:20]} + {length[:20]}"
        yield Problem(model, f"has external data at {place}, of a file of {size} bytes")


def _inside(folder: str, file: str, known: Mapping[str, int]) -> int | None:
    """The size of a signed file that the variant reads, by its name as the model has it."""
    if not re.fullmatch(_PATH, file):
        return None
    return known.get(posixpath.join(folder, file))


def _elsewhere(model: str, what: str, file: str) -> Problem:
    return Problem(model, f"has {what} in {file[:100]!r}, which is not among its signed files")
