"""The labelled set of a task: read file by file, and cut into the batches that a model takes."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.graph import values
from aotc.graph.values import read_members
from aotc.spec.payload import Value
from aotc.spec.shapes import Domain

Array = np.ndarray[Any, Any]


def task_files(path: Path) -> tuple[Path, ...]:
    """The .npz files of a labelled set, in order of their names; raises AOTC-I079."""
    try:
        files = [path] if path.is_file() else sorted(path.glob("*.npz"))
        exists = path.exists()
    except OSError as error:
        raise _unusable("cannot be read", str(path), found=str(error.strerror)) from None
    if not files:
        what = "holds no file" if exists else "does not exist"
        raise _unusable(what, str(path), expected="a .npz file, or a folder of .npz files")
    return tuple(files)


def set_digest(path: Path, files: Sequence[Path]) -> str:
    """The sha256 of the file at `path`; of a folder, that of the names and sha256 of its `files`.

    Raises `OSError`.
    """
    digests = []
    for each in files:
        with each.open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256"))
    if path.is_file():
        return digests[0].hexdigest()
    whole = hashlib.sha256()
    for each, digest in zip(files, digests, strict=True):
        whole.update(each.name.encode() + b"\0" + digest.digest())
    return whole.hexdigest()


@record(kw_only=False)
class Batch:
    """Inputs of one run, its sizes by dim, labels of its samples, and how many these are.

    Where a file ends within a batch, its last sample is repeated.  `added`: samples have no axis in
    the model's inputs, and each is a run of its own.
    """

    inputs: Mapping[str, Any]
    sizes: Mapping[str, int]
    labels: Array
    samples: int
    added: bool

    def judged(self, output: Any, where: str) -> Array:
        """The part of an output that is of the samples, along its first axis; raises I081."""
        array = np.asarray(output) if isinstance(output, np.ndarray | np.generic) else None
        if array is not None and self.added:
            array = array[np.newaxis]
        wanted = next(iter(self.inputs.values())).shape[:1] if not self.added else (1,)
        if array is None or not array.ndim or array.shape[:1] != wanted:
            shape = list(array.shape) if array is not None else type(output).__name__
            raise AotcError(
                "AOTC-I081",
                "the output's first axis does not count the samples",
                where=where,
                expected=f"{wanted[0]} of them",
                found=str(shape),
            )
        part: Array = array[: self.samples]
        return part


def batches(
    file: Path,
    inputs: Sequence[Value],
    labels: str,
    domain: Domain,
    buckets: Mapping[str, int],
) -> Iterator[Batch]:
    """The samples of a file in batches of the size that calls have: that of `buckets`, or optimal.

    Raises AOTC-I079 and I080.
    """
    arrays, wanted = _read(file, inputs, labels)
    count = len(wanted)
    added = _samples_are_added(file, arrays, inputs)
    for value in inputs:
        found = arrays[value.name]
        if len(found) != count:
            raise AotcError(
                "AOTC-I080",
                "there are not as many labels as samples",
                where=f"{file}: {labels}",
                expected=f"{len(found)}, as of {value.name}",
                found=str(count),
            )
    step = 1 if added else _step(file, inputs, domain, buckets)
    for start in range(0, count, step):
        rows = np.minimum(np.arange(start, start + step), count - 1)
        part = {name: array[start] if added else array[rows] for name, array in arrays.items()}
        taken = min(step, count - start)
        sizes = _sizes(file, part, inputs)
        yield Batch(part, sizes, wanted[start : start + taken], taken, added)


def _read(file: Path, inputs: Sequence[Value], labels: str) -> tuple[dict[str, Array], Array]:
    names = [value.name for value in inputs]
    for value in inputs:
        if value.kind != "tensor":
            what = f"only holds arrays, but the model has an input that is a {value.kind}"
            raise _unusable(what, f"{file}: {value.name}", expected="inputs that are tensors")
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            found = read_members(archive.zip, [*names, labels])
            known = list(archive.files)
    except Exception as error:
        # For a damaged archive numpy, zip and zlib raise any kind of error.
        if not isinstance(error, OSError | ValueError | TypeError | EOFError | zipfile.BadZipFile):
            error = ValueError(str(error) or type(error).__name__)
        pickled = "allow_pickle" in str(error)
        text = "an array of Python objects, which is a pickle" if pickled else str(error)[:300]
        raise _unusable("cannot be read", str(file), "a .npz of plain arrays", text) from None
    if labels not in found:
        raise AotcError(
            "AOTC-I080",
            "there are no labels",
            where=str(file),
            expected=f"an array {labels!r}",
            found=", ".join(known)[:300],
            fix="Name their array with gates.task.labels.",
        )
    missing = [name for name in names if name not in found]
    if missing:
        text = ", ".join(known)[:300]
        raise _unusable("lacks inputs of the model", str(file), ", ".join(missing), text)
    wanted = found.pop(labels)
    if not wanted.ndim:
        where = f"{file}: {labels}"
        raise AotcError(
            "AOTC-I080", "the labels are a single value", where=where, expected="an array"
        )
    if not len(wanted):
        raise _unusable("holds no sample", str(file))
    for value in inputs:
        array = found[value.name]
        is_text = array.dtype.kind in "US"
        if (value.dtype == "string") != is_text or (
            not is_text and values.dtype_name(array.dtype) != value.dtype
        ):
            raise _unusable(
                "has another type than the model's input",
                f"{file}: {value.name}",
                value.dtype,
                values.dtype_name(array.dtype),
            )
        if is_text:
            found[value.name] = array.astype(object)
    return found, wanted


def _samples_are_added(file: Path, arrays: Mapping[str, Array], inputs: Sequence[Value]) -> bool:
    """Whether the arrays have one axis more than the inputs, as each sample is a whole input."""
    found = set()
    for value in inputs:
        array = arrays[value.name]
        rank = len(value.shape) if value.shape is not None else array.ndim
        if array.ndim - rank not in (0, 1) or not array.ndim:
            raise _unfit_shape(file, value, array)
        found.add(array.ndim - rank)
    if len(found) > 1:
        ranks = ", ".join(f"{value.name}: {arrays[value.name].ndim}" for value in inputs)
        raise _unusable("has samples along an axis of only some inputs", str(file), found=ranks)
    return found == {1}


def _step(file: Path, inputs: Sequence[Value], domain: Domain, buckets: Mapping[str, int]) -> int:
    """How many samples a run takes."""
    found = {}
    optimal = {**domain.corner("opt"), **buckets}
    for value in inputs:
        first = value.shape[0] if value.shape else 1
        found[value.name] = first if isinstance(first, int) else max(1, optimal.get(first, 1))
    if len(set(found.values())) > 1 or 0 in found.values():
        text = ", ".join(f"{name}: {size}" for name, size in found.items())
        what = "has samples along the first axis, which is not that of samples in every input"
        raise _unusable(what, str(file), "as many of each input", text)
    return next(iter(found.values()), 1)


def _sizes(file: Path, arrays: Mapping[str, Array], inputs: Sequence[Value]) -> dict[str, int]:
    """The sizes of dims in a batch; raises AOTC-I079 if the arrays do not fit the inputs."""
    sizes: dict[str, int] = {}
    for value in inputs:
        shape = np.shape(arrays[value.name])
        for dim, size in zip(value.shape or (), shape, strict=False):
            known = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
            if known != size:
                raise _unfit_shape(file, value, arrays[value.name])
    return sizes


def _unfit_shape(file: Path, value: Value, array: Array) -> AotcError:
    declared = "any" if value.shape is None else str(list(value.shape))
    what = "has another shape than the model's input"
    return _unusable(what, f"{file}: {value.name}", declared, str(list(array.shape)))


def _unusable(what: str, where: str, expected: str = "", found: str = "") -> AotcError:
    return AotcError(
        "AOTC-I079", f"the labelled set {what}", where=where, expected=expected, found=found
    )
