"""Weights as external data: stored once for all variants, shared, and compacted."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import onnx

from aotc.base.files.reading import open_plain
from aotc.graph.model import tensors

# Below this an entry costs more than it saves; ONNX Runtime's writer gets the same limit.
EXTERNAL_BYTES = 1024
# The page size of mappings, and enough for any SIMD load.
_ALIGN = 4096
_BLOCK = 4 << 20
# Prefix of entries that ONNX Runtime adds for weights that it packed for its kernels.
PACKED = "prepacked_"
# A file of which more is read than this share is linked, not copied.
_MAX_USED_SHARE = 0.95


class Packed(NamedTuple):
    """A tensor as packed for one kernel: offset, length and a flag of each part in its file.

    `name` is ONNX Runtime's: that of the kernel, with a hash of the packed bytes.
    """

    name: str
    parts: tuple[tuple[int, int, str], ...]

    def moved(self, offsets: Sequence[int]) -> Packed:
        """The same parts at other offsets."""
        parts = zip(offsets, self.parts, strict=True)
        return Packed(self.name, tuple((at, length, flag) for at, (_, length, flag) in parts))

    def text(self) -> str:
        """ONNX Runtime's notation: `NAME|OFFSET;LENGTH;FLAG`."""
        return "|".join((self.name, *(f"{at};{length};{flag}" for at, length, flag in self.parts)))


def packed_forms(tensor: onnx.TensorProto) -> list[Packed]:
    """The packed forms of an external tensor."""
    found = []
    for pair in tensor.external_data:
        if pair.key.startswith(PACKED):
            name, *parts = pair.value.split("|")
            cut = [part.split(";", 2) for part in parts]
            found.append(Packed(name, tuple((int(a), int(b), c) for a, b, c in cut)))
    return found


def externalize(model: onnx.ModelProto, folder: Path, name: str) -> int:
    """Move large initializers of the main graph of `model` to the end of the file `folder/name`.

    Only `raw_data` is moved.  Returns the size of the file; it is not created if there are none.
    """
    large = [t for t in model.graph.initializer if len(t.raw_data) >= EXTERNAL_BYTES]
    if not large:
        return 0
    with (folder / name).open("ab") as file:
        offset = file.tell()
        for tensor in large:
            offset += file.write(b"\0" * (-offset % _ALIGN))
            length = len(tensor.raw_data)
            file.write(tensor.raw_data)
            _refer_to(tensor, name, offset, length)
            offset += length
    return offset


def _refer_to(
    tensor: onnx.TensorProto, location: str, offset: int, length: int, packed: Sequence[Packed] = ()
) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    for index, form in enumerate(packed):
        tensor.external_data.add(key=f"{PACKED}{index}", value=form.text())


def external_tensors(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, int, int]]:
    """Each external tensor of `model` with its offset and length, in bytes.

    Includes initializers of subgraphs, which ONNX Runtime externalizes as well.
    """
    for tensor in tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entry = {pair.key: pair.value for pair in tensor.external_data}
            yield tensor, int(entry.get("offset", "0")), int(entry["length"])


def adopt_file(model: onnx.ModelProto, data: Path, folder: Path, name: str) -> None:
    """Move `data`, the external file of `model`, to `folder/name`.

    It is copied only where much of it is there twice: equal tensors then refer to the first one.
    """
    firsts = _first_equals(model, data)
    doubled = sum(
        length
        for at, (_, _, length) in zip(firsts, external_tensors(model), strict=True)
        if at is not None
    )
    if doubled and doubled > (1 - _MAX_USED_SHARE) * data.stat().st_size:
        keep_tensors(model, data, [at is None for at in firsts])
    else:
        firsts = [None] * len(firsts)
    if data.exists():
        data.rename(folder / name)
    stored = list(external_tensors(model))
    for own, at in zip(stored, firsts, strict=True):
        kept, offset, length = own if at is None else stored[at]
        _refer_to(own[0], name, offset, length, packed_forms(kept))


def _first_equals(model: onnx.ModelProto, data: Path) -> list[int | None]:
    """For each external tensor of `model` the first one of equal bytes; None: it is that one."""
    found: list[int | None] = []
    known: dict[tuple[int, tuple[str, ...], bytes], list[tuple[int, int]]] = {}
    with _mapped(data) as mapped:
        for tensor, offset, length in external_tensors(model):
            own = mapped[offset : offset + length]
            alike = known.setdefault((*_sharing_key(tensor, length), own[:_ALIGN].tobytes()), [])
            same = (i for i, at in alike if _equal(own, mapped[at : at + length]))
            found.append(next(same, None))
            if found[-1] is None:
                alike.append((len(found) - 1, offset))
    return found


def digests(model: onnx.ModelProto, data: Path, wanted: Sequence[bool]) -> list[str]:
    """The sha256 of each `wanted` external tensor of `model`, in order; "" for the others.

    `data` is its external file.
    """
    if not any(wanted):
        return [""] * len(wanted)
    with open_plain(data) as source:
        return [
            digest(source, offset, length) if is_wanted else ""
            for (_, offset, length), is_wanted in zip(external_tensors(model), wanted, strict=True)
        ]


def place_tensors(
    model: onnx.ModelProto,
    data: Path,
    keys: Sequence[str],
    folder: Path,
    file_of: Callable[[str], str],
    placed: dict[str, tuple[str, int]],
) -> None:
    """Copy the external tensors of `model` from `data` into files of `folder`.

    `keys` identify the tensors' contents, in order: equal keys mean equal bytes.  `file_of` gives
    the file name by key.  `placed` has the file and offset of contents that are already in
    `folder`, by key, and is extended; those are referred to instead of copied.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_plain(data)) if data.exists() else None

        def placed_at(key: str, name: str, offset: int, length: int) -> tuple[str, int]:
            if key not in placed:
                if source is None:
                    raise EOFError("external data no longer exists")
                path = folder / name
                with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
                    file.write(b"\0" * (-file.seek(0, os.SEEK_END) % _ALIGN))
                    placed[key] = (name, file.tell())
                    _copy(source, offset, length, file)
            return placed[key]

        for (tensor, offset, length), key in zip(external_tensors(model), keys, strict=True):
            # Packed forms have to be in the same file as the tensor.
            name, start = placed_at(key, file_of(key), offset, length)
            packed = [
                form.moved(
                    [
                        placed_at(f"{key} {form.name} {index}", name, *part[:2])[1]
                        for index, part in enumerate(form.parts)
                    ]
                )
                for form in packed_forms(tensor)
            ]
            _refer_to(tensor, name, start, length, packed)


def keep_tensors(model: onnx.ModelProto, data: Path, wanted: Sequence[bool]) -> None:
    """Keep only the `wanted` external tensors of `model` in its file `data`, in order."""
    if all(wanted):
        return
    smaller = data.with_name(f"{data.name}.kept")
    written = 0
    with open_plain(data) as source, smaller.open("wb", buffering=0) as file:

        def copy_to_end(offset: int, length: int) -> int:
            nonlocal written
            written += file.write(b"\0" * (-written % _ALIGN))
            _copy(source, offset, length, file)
            written += length
            return written - length

        for (tensor, offset, length), is_kept in zip(external_tensors(model), wanted, strict=True):
            if is_kept:
                start = copy_to_end(offset, length)
                packed = [
                    form.moved([copy_to_end(*part[:2]) for part in form.parts])
                    for form in packed_forms(tensor)
                ]
                _refer_to(tensor, data.name, start, length, packed)
    if written:
        smaller.replace(data)
    else:
        smaller.unlink()
        data.unlink()


def tensor_places(model: onnx.ModelProto, keys: Sequence[str]) -> dict[str, tuple[str, int]]:
    """File and offset of everything that `place_tensors` would copy for `model`, by key."""
    found = {}
    for (tensor, offset, _), key in zip(external_tensors(model), keys, strict=True):
        name = location(tensor)
        found[key] = (name, offset)
        for form in packed_forms(tensor):
            for index, part in enumerate(form.parts):
                found[f"{key} {form.name} {index}"] = (name, part[0])
    return found


def external_locations(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the external files that `model` refers to, sorted."""
    return tuple(sorted({location(tensor) for tensor, _, _ in external_tensors(model)}))


def copy_ranges(
    source: BinaryIO, ranges: Sequence[tuple[int, int]], target: RawIOBase
) -> dict[tuple[int, int], int]:
    """Append the (offset, length) ranges of `source` to the empty `target`.

    Returns the offset of each range in `target`.
    """
    moved: dict[tuple[int, int], int] = {}
    written = 0
    for offset, length in ranges:
        written += target.write(b"\0" * (-written % _ALIGN)) or 0
        moved[offset, length] = written
        _copy(source, offset, length, target)
        written += length
    return moved


def repoint(model: onnx.ModelProto, name: str, moved: Mapping[tuple[int, int], int]) -> None:
    """Update the offsets of the external tensors of `model` in the file `name`.

    `moved` has the new offset by old offset and length.
    """
    for tensor, offset, length in external_tensors(model):
        if location(tensor) == name:
            _refer_to(tensor, name, moved[offset, length], length)


def gather_tensors(model: onnx.ModelProto, folder: Path, target: Path) -> None:
    """Copy all external tensors of `model`, whose files are in `folder`, into the file `target`."""
    written = 0
    with target.open("wb", buffering=0) as file:
        for tensor in tensors(model):
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            entry = {pair.key: pair.value for pair in tensor.external_data}
            with open_plain(folder / entry["location"]) as source:
                offset = int(entry.get("offset", "0"))
                length = int(entry.get("length", "0")) or source.seek(0, 2) - offset
                written += file.write(b"\0" * (-written % _ALIGN))
                _copy(source, offset, length, file)
                start, packed = written, []
                written += length
                for form in packed_forms(tensor):
                    offsets = []
                    for at, size, _ in form.parts:
                        written += file.write(b"\0" * (-written % _ALIGN))
                        _copy(source, at, size, file)
                        offsets.append(written)
                        written += size
                    packed.append(form.moved(offsets))
            _refer_to(tensor, target.name, start, length, packed)
    if not written:
        target.unlink()


def location(tensor: onnx.TensorProto) -> str:
    """The name of the file that an external tensor is in."""
    return next(pair.value for pair in tensor.external_data if pair.key == "location")


def _blocks(source: BinaryIO, offset: int, length: int) -> Iterator[bytes]:
    source.seek(offset)
    while length:
        block = source.read(min(length, _BLOCK))
        if not block:
            raise EOFError("external data ends early")
        length -= len(block)
        yield block


def digest(source: BinaryIO, offset: int, length: int) -> str:
    """The sha256 (hex) of a part of a file."""
    found = hashlib.sha256()
    for block in _blocks(source, offset, length):
        found.update(block)
    return found.hexdigest()


def _copy(source: BinaryIO, offset: int, length: int, target: RawIOBase) -> None:
    """Append to the unbuffered `target`; within the kernel if possible."""
    while length and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source.fileno(), target.fileno(), length, offset)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
                raise
            break
        if not count:
            raise EOFError("external data ends early")
        offset, length = offset + count, length - count
    for block in _blocks(source, offset, length):
        target.write(block)


def remove_shared(
    model: onnx.ModelProto, data: Path, base: onnx.ModelProto, base_data: Path
) -> list[int | None]:
    """Remove the external tensors from `data` that `base_data` holds as well.

    `data` and `base_data` are the external files of `model` and `base`.  Returns for each external
    tensor of `model` the index of its twin among those of `base`, or None.  `data` is deleted if
    nothing remains; entries in `model` of removed tensors are no longer valid.
    """
    if not data.exists():
        return []
    twins: list[int | None] = []
    with _mapped(data) as own_data, _mapped(base_data) as base_mapped:
        known: dict[tuple[int, tuple[str, ...]], list[tuple[str, int, int]]] = {}
        for index, (tensor, offset, length) in enumerate(external_tensors(base)):
            known.setdefault(_sharing_key(tensor, length), []).append((tensor.name, index, offset))
        for tensor, offset, length in external_tensors(model):
            own = own_data[offset : offset + length]
            # Usually twins have the same name.
            same = known.get(_sharing_key(tensor, length), ())
            likely = sorted(same, key=lambda entry: entry[0] != tensor.name)
            twins.append(
                next((i for _, i, at in likely if _equal(own, base_mapped[at : at + length])), None)
            )
    keep_tensors(model, data, [twin is None for twin in twins])
    return twins


def _sharing_key(tensor: onnx.TensorProto, length: int) -> tuple[int, tuple[str, ...]]:
    """Twins have the same length, and the same kernels packed them."""
    return length, tuple(packed.name for packed in packed_forms(tensor))


@contextmanager
def _mapped(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    yield np.memmap(path, dtype=np.uint8, mode="r") if path.exists() else np.empty(0, np.uint8)


def _equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    for start in range(0, len(one), _BLOCK):
        if not np.array_equal(one[start : start + _BLOCK], other[start : start + _BLOCK]):
            return False
    return True


def compact(
    models: Sequence[Path], source: Path, target: Path, *, unchanged_files: Collection[str] = ()
) -> None:
    """Create the folder `target` with the parts of `source` that the graphs `models` read.

    If little of a file is read, only that is copied and the graphs are changed to refer to the
    copy; other files are linked, and so are `unchanged_files`, which are also read by something
    other than the graphs.  The folder `source` stays as it is.
    """
    target.mkdir()
    graphs = {path: onnx.load(path, load_external_data=False) for path in models}
    read: dict[str, dict[tuple[int, int], None]] = {}
    packed: set[str] = set()
    for graph in graphs.values():
        for tensor, offset, length in external_tensors(graph):
            name = location(tensor)
            read.setdefault(name, {})[offset, length] = None
            if packed_forms(tensor):
                packed.add(name)
    for name in unchanged_files:
        read.setdefault(name, {})
    for name, ranges in sorted(read.items()):
        file = source / name
        wanted = sum(length for _, length in ranges)
        if (
            name in packed
            or name in unchanged_files
            or wanted >= _MAX_USED_SHARE * file.stat().st_size
        ):
            os.link(file, target / name)
            continue
        with open_plain(file) as old, (target / name).open("wb", buffering=0) as new:
            moved = copy_ranges(old, sorted(ranges), new)
        for graph in graphs.values():
            repoint(graph, name, moved)
    for path, graph in graphs.items():
        path.write_bytes(graph.SerializeToString(deterministic=True))
