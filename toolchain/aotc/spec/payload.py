"""What manifests list: files of a payload, inputs and outputs, fixtures, and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from aotc.base.records import field, record, replace
from aotc.spec.allowed_values import AllowedValues
from aotc.spec.codec import Bounds, Pattern, Problem

# Relative, with forward slashes, and without an empty, '.' or '..' part.
PayloadPath = Annotated[
    str, Pattern(r"(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+(/(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+)*")
]
Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}")]
# At most as long as a file name can be, and printable as it is.
NAME = r"[^\x00-\x1f\x7f/]+"
# Names that a build generates, and uses for folders.
PlainName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")]
FixtureName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")]
# Small enough for two threads to share 100 MB evenly.
CHUNK_BYTES = 16 << 20

_DEFAULT_SIZE = 2

Role = Literal["package", "model", "weights", "fixture", "ep-context", "custom-ops"]


@record
class FileEntry:
    """One payload file other than aotc.json."""

    path: PayloadPath
    size: Annotated[int, Bounds(0)]
    sha256: Sha256
    role: Role
    chunks: Annotated[
        tuple[Sha256, ...], "sha256 of each 16 MiB of a larger file; the last chunk may be shorter"
    ] = ()


@record
class FixtureTensor:
    """One array of a fixture: a `.npy` file, or JSON text for strings, sequences and maps."""

    name: str
    path: PayloadPath


@record
class Fixture:
    """Golden inputs, and the outputs of the reference for them."""

    name: FixtureName
    origin: Literal["generated", "user"]
    sizes: Annotated[Mapping[str, int], "by dim"] = field(default_factory=dict)
    excluded_variants: Annotated[
        tuple[PlainName, ...], "variants that were not compared with it, and are not judged by it"
    ] = ()
    inputs: tuple[FixtureTensor, ...]
    outputs: tuple[FixtureTensor, ...]


# Inputs and outputs of a model, and their shapes, as the manifest states them.


Kind = Literal["tensor", "sequence", "optional", "map", "sparse"]


@record
class Value:
    """A graph input or output.

    `shape` holds sizes and names of dims; None: the rank is unknown.
    """

    name: str
    kind: Kind = "tensor"
    dtype: Annotated[
        str,
        "numpy's name, string for text; for a sequence, of its elements; for a map, of its keys",
    ]
    shape: tuple[int | str, ...] | None = None
    form: Annotated[str, "the whole type of a map, such as seq(map(int64,float))"] = ""
    allowed: Annotated[
        AllowedValues | None, "of an input: the values that calls are held to; unset: all"
    ] = None

    def shape_at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input at `sizes`.

        A dim that `sizes` lacks has size 2, and an input of unknown rank the shape [2].
        """
        if self.shape is None:
            return (sizes.get(f"{self.name}.0", _DEFAULT_SIZE),)
        return tuple(d if isinstance(d, int) else sizes.get(d, _DEFAULT_SIZE) for d in self.shape)

    def problems(self) -> list[Problem]:
        """Values that this type does not have."""
        found = self.allowed.problems_of(self.kind, self.dtype) if self.allowed else []
        return [replace(each, path=f"allowed.{each.path}".rstrip(".")) for each in found]


@record
class ValueShapes:
    """The shape of one output: as declared, as inferred, and as produced by runs.

    Shapes hold sizes, names of dims, sums of them such as `past + seq`, or `?` for what is none of
    these.  None: the rank is unknown, or the output is not a tensor.
    """

    name: str
    declared: tuple[int | str, ...] | None = None
    inferred: tuple[int | str, ...] | None = None
    produced: tuple[int | str, ...] | None = None


# Consistency of the inputs, outputs and fixtures of a manifest.
#
# A fixture's arrays are looked up by name when it runs, so a wrong name must be found before.


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


@record
class Finding:
    """Something that was noticed and does not lead to a refusal, with its place."""

    code: Annotated[str, Pattern(r"AOTC-[A-Z]\d{3}")]
    what: str
    where: str = ""
