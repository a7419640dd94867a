"""How far apart the weights of two graphs are, read in blocks."""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from io import FileIO
from typing import Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.spec.diff_report import TensorChange, WeightsDiff
from aotc.tools.diff.stored_graph import StoredGraph, StoredTensor
from aotc.tools.inspect import ArtifactContents
from aotc.trust.container import ArtifactFile

# Elements of a block, few enough for the processor's caches.
_BLOCK: Final = 1 << 18
_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
# How passes name what they make of a weight.
_MADE: Final = re.compile(r"_(float16|bfloat16|quantized|transposed)\Z")
# Of the same node in both graphs: what it reads in A and what in B, and whether that is at one
# input of one operator.
SameInput = tuple[str, str, bool]
Tensors = Mapping[str, StoredTensor]
Pairs = list[tuple[StoredTensor, StoredTensor]]


class WeightReader:
    """Compares weights of two open artifacts; a context manager that closes their files."""

    def __init__(self, a: ArtifactContents, b: ArtifactContents) -> None:
        self._stack = ExitStack()
        self._sides = (_Weights(a, self._stack), _Weights(b, self._stack))
        self._known: dict[tuple[object, object], TensorChange | None] = {}

    def __enter__(self) -> WeightReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compare(
        self, a: StoredGraph, b: StoredGraph, read: Iterable[SameInput], variant: str
    ) -> WeightsDiff:
        """The differences of all weights of two graphs.

        Weights are matched by name and shape; of the others, those with equal types, shapes and
        bytes; then what passes made of one, which they name after it; then those of one shape that
        the same nodes `read`, where that is clear.  A number and an array are never a pair.  What
        the manifests list with one digest is equal without being read.  Raises AOTC-I062 if a file
        ends early, and what opening a file does.
        """
        removed, added = dict(a.tensors), dict(b.tensors)

        def taken(names: Iterable[tuple[str, str]]) -> Pairs:
            return [(removed.pop(one), added.pop(other)) for one, other in names]

        pairs = taken([(name, name) for name in removed if _is_same(removed[name], added)])
        renamed = self._drop_renamed(removed, added)
        pairs += taken(_made_of(removed, added))
        pairs += taken([(one, other) for other, one in _made_of(added, removed)])
        pairs += taken(_read_alike(removed, added, read))
        found = [self._difference(one, other) for one, other in pairs]
        changed = tuple(each for each in found if each is not None)
        return WeightsDiff(
            variants=(variant,),
            equal=len(found) - len(changed),
            renamed=renamed,
            changed=changed,
            removed=tuple(
                TensorChange(a=each.name, dtype_a=each.dtype, shape_a=each.shape)
                for each in removed.values()
            ),
            added=tuple(
                TensorChange(b=each.name, dtype_b=each.dtype, shape_b=each.shape)
                for each in added.values()
            ),
        )

    def _difference(self, a: StoredTensor, b: StoredTensor) -> TensorChange | None:
        """How two weights of one name differ; None if they do not."""
        one, other = self._sides
        place_a, place_b = one.place(a), other.place(b)
        alike = a.dtype == b.dtype and a.shape == b.shape
        if alike and place_a == place_b:
            return None
        key = (a.name, place_a), (b.name, place_b)
        if key not in self._known:
            self._known[key] = self._measured(a, b, alike)
        return self._known[key]

    def _measured(self, a: StoredTensor, b: StoredTensor, alike: bool) -> TensorChange | None:
        one, other = self._sides
        max_abs = max_rel = None
        if a.shape == b.shape and a.dtype in _FLOATS and b.dtype in _FLOATS:
            is_equal, max_abs, max_rel = _float_difference(one.blocks(a), other.blocks(b), a, b)
            is_equal = is_equal and alike
        else:
            pairs = zip(one.blocks(a), other.blocks(b), strict=False)
            is_equal = alike and a.length == b.length and all(x == y for x, y in pairs)
        if is_equal:
            return None
        return TensorChange(
            a=a.name,
            b=b.name,
            dtype_a=a.dtype,
            dtype_b=b.dtype,
            shape_a=a.shape,
            shape_b=b.shape,
            max_abs=max_abs,
            max_rel=max_rel,
        )

    def _drop_renamed(
        self, removed: dict[str, StoredTensor], added: dict[str, StoredTensor]
    ) -> int:
        """Take out of both what has the same bytes under another name; returns how many."""
        one, other = self._sides
        waiting: dict[tuple[str, tuple[int, ...]], list[StoredTensor]] = defaultdict(list)
        for tensor in added.values():
            waiting[tensor.dtype, tensor.shape].append(tensor)
        digests: dict[str, bytes] = {}
        count = 0
        for name, tensor in list(removed.items()):
            candidates = waiting.get((tensor.dtype, tensor.shape), [])
            if not candidates:
                continue
            digest = one.digest(tensor)
            for candidate in candidates:
                if candidate.name not in digests:
                    digests[candidate.name] = other.digest(candidate)
                if digests[candidate.name] == digest:
                    candidates.remove(candidate)
                    del removed[name], added[candidate.name]
                    count += 1
                    break
        return count


# Which weight of one graph is which of another, where bytes do not say it.


def _is_same(a: StoredTensor, added: Mapping[str, StoredTensor]) -> bool:
    """Whether B has a weight of the same name that is as large, or was made larger or smaller."""
    b = added.get(a.name)
    if b is None or a.shape == b.shape:
        return b is not None
    return len(a.shape) == len(b.shape) and 1 not in (math.prod(a.shape), math.prod(b.shape))


def _made_of(sources: Tensors, others: Tensors) -> list[tuple[str, str]]:
    """Names of weights, and of what passes converted, quantized or transposed of them."""
    found = []
    for name, tensor in others.items():
        source, shape = name, tensor.shape
        while source not in sources and (made := _MADE.search(source)):
            source = source[: made.start()]
            shape = shape[::-1] if made[1] == "transposed" else shape
        if source in sources and sources[source].shape == shape:
            found.append((source, name))
    # Of several that were made of one, none is the other.
    times = Counter(source for source, _ in found)
    return [(source, name) for source, name in found if times[source] == 1]


def _read_alike(
    removed: Tensors, added: Tensors, read: Iterable[SameInput]
) -> list[tuple[str, str]]:
    """Names of weights of one shape that the same nodes read, where it is clear which is which.

    Nodes with different operators have only kernels in common, with more than one axis: what has
    the shape of a bias may be the scales of the other.
    """
    found: dict[tuple[str, str], None] = {}
    for name, other, same_operator in read:
        one, two = removed.get(name), added.get(other)
        if one is None or two is None or one.shape != two.shape:
            continue
        if same_operator or len(one.shape) > 1:
            found[name, other] = None
    times = Counter(name for name, _ in found), Counter(other for _, other in found)
    return [pair for pair in found if times[0][pair[0]] == times[1][pair[1]] == 1]


class _Weights:
    """The weights of one artifact, each of whose files is opened once."""

    def __init__(self, artifact: ArtifactContents, stack: ExitStack) -> None:
        self._artifact = artifact
        self._stack = stack
        self._files: dict[str, ArtifactFile | FileIO] = {}
        self._digests = {entry.path: entry.sha256 for entry in artifact.manifest.files}

    def place(self, tensor: StoredTensor) -> object:
        """Equal for equal bytes: of a file with one digest, or in the model itself."""
        if tensor.held:
            return tensor.digest
        return self._digests[tensor.path], tensor.offset, tensor.length

    def digest(self, tensor: StoredTensor) -> bytes:
        """A digest of its bytes."""
        digest = hashlib.blake2b()
        for block in self.blocks(tensor):
            digest.update(block)
        return digest.digest()

    def blocks(self, tensor: StoredTensor) -> Iterator[bytes | bytearray]:
        """Its bytes, `_BLOCK` elements at a time; raises AOTC-I062 if its file ends early.

        A block may be overwritten by the next one.
        """
        elements = math.prod(tensor.shape)
        size = _BLOCK * max(tensor.length // elements, 1) if elements else _BLOCK
        file = self._file(tensor)
        buffer = bytearray(min(size, tensor.length))
        done = 0
        while done < tensor.length:
            view = memoryview(buffer)[: min(size, tensor.length - done)]
            _fill(file, tensor, tensor.offset + done, view)
            yield buffer if len(view) == len(buffer) else bytes(view)
            done += len(view)

    def _file(self, tensor: StoredTensor) -> ArtifactFile | FileIO:
        key = str(tensor.held or tensor.path)
        if key not in self._files:
            opened: ArtifactFile | FileIO
            if tensor.held:
                opened = FileIO(tensor.held)
            else:
                opened = self._artifact.container.open(f"{PAYLOAD}/{tensor.path}")
            self._stack.callback(opened.close)
            self._files[key] = opened
        return self._files[key]


def _fill(file: ArtifactFile | FileIO, tensor: StoredTensor, offset: int, view: memoryview) -> None:
    file.seek(offset)
    filled = 0
    while filled < len(view):
        count = file.readinto(view[filled:])
        if not count:
            raise AotcError(
                "AOTC-I062",
                "a file of weights is truncated",
                where=f"{PAYLOAD}/{tensor.path}",
                found=f"weight {tensor.name}",
            )
        filled += count


def _float_difference(
    blocks_a: Iterator[bytes | bytearray],
    blocks_b: Iterator[bytes | bytearray],
    a: StoredTensor,
    b: StoredTensor,
) -> tuple[bool, float, float | None]:
    """Whether all numbers have equal bytes or values; max |b - a|, and that to max |a|.

    The measure of `OutputError`: the largest float for a number that is finite on one side only.
    """
    read_a, read_b = _READERS[a.dtype], _READERS[b.dtype]
    largest = difference = 0.0
    is_equal = True
    for one, other in zip(blocks_a, blocks_b, strict=False):
        if a.dtype == b.dtype and one == other:
            largest = max(largest, _largest(read_a(one)))
            continue
        x, y = read_a(one), read_b(other)
        largest = max(largest, _largest(x))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = float(np.max(np.abs(y - x), initial=0.0))
        if not np.isfinite(apart):
            apart = _finite_difference(x, y)
        difference = max(difference, apart)
        is_equal = False
    return is_equal, difference, difference / largest if largest else None


def _largest(numbers: Any) -> float:
    found = float(np.max(np.abs(numbers), initial=0.0))
    return found if np.isfinite(found) else _largest(numbers[np.isfinite(numbers)])


def _finite_difference(a: Any, b: Any) -> float:
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    left_a, left_b = a[~same].astype(np.float64), b[~same].astype(np.float64)
    if not (np.isfinite(left_a).all() and np.isfinite(left_b).all()):
        return sys.float_info.max
    return float(np.max(np.abs(left_b - left_a), initial=0.0))


_READERS: Final[Mapping[str, Callable[[bytes | bytearray], Any]]] = {
    "float16": lambda data: np.frombuffer(data, "<f2").astype(np.float32),
    "bfloat16": lambda data: (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32),
    "float32": lambda data: np.frombuffer(data, "<f4"),
    "float64": lambda data: np.frombuffer(data, "<f8"),
}
