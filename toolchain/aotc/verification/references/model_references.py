"""Whether the models of an artifact refer only to signed files that their variant reads.

A trusted key may have signed a model whose weights are in `/dev/zero` or in a file outside the
artifact, as tools that sign files do not look into them.
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
# Weights that ONNX Runtime packed for a kernel: NAME|OFFSET;LENGTH;FLAG|...
_PACKED = "prepacked_"


def require_inside(
    container: Container, manifest: Manifest, read: Collection[str] | None = None
) -> None:
    """Raise AOTC-G014 if `outside_references` finds references; `also` holds all but the first."""
    found = [
        AotcError(
            "AOTC-G014",
            "a model refers to what was not signed",
            where=f"{PAYLOAD}/{problem.path}",
            found=problem.what,
        )
        for problem in outside_references(container, manifest, read)
    ]
    if found:
        found[0].also = tuple(found[1:])
        raise found[0]


def outside_references(
    container: Container, manifest: Manifest, read: Collection[str] | None = None
) -> list[Problem]:
    """References to files that are not signed or not the variant's, or beyond the end of a file.

    With `read`, only the models among these payload files are examined.  Raises what opening a file
    does.
    """
    sizes = {entry.path: entry.size for entry in manifest.files}
    problems: list[Problem] = []
    for variant in manifest.variants:
        if read is not None and variant.model not in read:
            continue
        known = {path: sizes[path] for path in variant.files}
        with container.open(f"{PAYLOAD}/{variant.model}") as file:
            try:
                problems += _problems_of_model(_FileSource(file), variant, known)
            except MalformedModel as error:
                problems.append(Problem(variant.model, f"is not an ONNX model: {error}"))
    return problems


class _FileSource:
    """A model in a file."""

    def __init__(self, file: ArtifactFile) -> None:
        self.size = file.size
        self._file = file

    def at(self, offset: int, count: int) -> bytes:
        """The `count` bytes at `offset`; raises MalformedModel if there are fewer."""
        self._file.seek(offset)
        parts = bytearray()
        while len(parts) < count:
            part = self._file.read(count - len(parts))
            if not part:
                raise MalformedModel("it ends early")
            parts += part
        return bytes(parts)


def _problems_of_model(
    source: _FileSource, variant: Variant, known: Mapping[str, int]
) -> Iterator[Problem]:
    """The problems of one model.

    ONNX Runtime looks for weights in the folder of the shared weights, and for other files in the
    folder of the model.
    """
    model_folder = posixpath.dirname(variant.model)
    weights_folder = model_folder if variant.weights is None else variant.weights
    reported: set[Problem] = set()
    for reference in references(source):
        if isinstance(reference, CompiledPart):
            found = _compiled_part_problems(reference, variant.model, model_folder, known)
        else:
            found = _external_data_problems(reference, variant.model, weights_folder, known)
        for problem in found:
            if problem not in reported:
                reported.add(problem)
                yield problem


def _compiled_part_problems(
    part: CompiledPart, model: str, folder: str, known: Mapping[str, int]
) -> Iterator[Problem]:
    if part.attribute == CACHE:
        if _signed_size(folder, part.file, known) is None:
            yield _not_signed(model, "a compiled part", part.file)
    # The source need not exist; OpenVINO writes a name without a file.
    elif part.file and not re.fullmatch(_PATH, part.file):
        yield _not_signed(model, "the source of a compiled part", part.file)


def _external_data_problems(
    data: ExternalData, model: str, folder: str, known: Mapping[str, int]
) -> Iterator[Problem]:
    locations = [value for key, value in data.entries if key == "location"]
    sizes = [_signed_size(folder, location, known) for location in locations]
    for location, size in zip(locations, sizes, strict=True):
        if size is None:
            yield _not_signed(model, "external data", location)
    if not locations:
        yield Problem(model, "has external data without a location")
    smallest = min((size for size in sizes if size is not None), default=None)
    if smallest is None:
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
                yield from _beyond_end(model, start, rest.partition(";")[0], smallest)
    yield from _beyond_end(model, offset, length, smallest)


def _beyond_end(model: str, offset: str, length: str, size: int) -> Iterator[Problem]:
    numbers = [int(text) for text in (offset, length) if re.fullmatch(_NUMBER, text)]
    if len(numbers) < 2 or sum(numbers) > size:
        place = f"{offset[:20]} + {length[:20]}"
        yield Problem(model, f"has external data at {place}, of a file of {size} bytes")


def _signed_size(folder: str, file: str, known: Mapping[str, int]) -> int | None:
    """The size of a signed file of the variant, by its name in the model; None if there is none."""
    if not re.fullmatch(_PATH, file):
        return None
    return known.get(posixpath.join(folder, file))


def _not_signed(model: str, what: str, file: str) -> Problem:
    return Problem(model, f"has {what} in {file[:100]!r}, which is not among its signed files")
