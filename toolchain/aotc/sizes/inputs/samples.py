"""Samples of real data in `.npz` files, repeated and cut to other sizes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.graph.allowed_arrays import cut_to_allowed
from aotc.graph.values import (
    Header,
    Npz,
    PickledObjects,
    held_bytes,
    in_native_order,
    open_npz,
    read_array,
    read_header,
    read_rows,
)
from aotc.spec.payload import Value

_RESAVE: Final = "Save arrays of numbers or text: numpy.savez(file, NAME=array)."
Sample = Mapping[str, Any]


# Samples in `.npz` files: each array holds one, or several one after another.
#
# A sample is what one run of the model takes. Along the first axis of an input, it has the input's
# fixed size there, or the smallest size at which the model runs if the dim is free: that of a
# batch, as a rule 1. A larger array is cut into such samples, and what is too little for one at its
# end is left out. A scalar, and an array of one sample beside others of several, is the same in all
# samples of the file.


def read_samples(
    path: Path, inputs: Sequence[Value], smallest: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """The samples of the `.npz` at `path` in order, as arrays by input; one is held at a time.

    `smallest` are sizes of free dims.  Other arrays of the file are ignored.  Raises
    AOTC-I073 (the file is not such an archive or ends early), I074 (inputs are missing or of
    another type), I075 (ranks, fixed sizes or counts of samples differ) and I077 (pickled objects).
    """
    try:
        yield from _samples(path, inputs, smallest)
    except AotcError:
        raise
    except Exception as error:
        # For a damaged archive numpy, zip and zlib raise any kind of error.
        raise AotcError(
            "AOTC-I073",
            "the file is not a readable .npz",
            where=str(path),
            found=(str(error) or type(error).__name__)[:300],
        ) from None


def _samples(
    path: Path, inputs: Sequence[Value], smallest: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    with open_npz(path) as archive, ExitStack() as opened:
        members = _members(archive, path, inputs)
        cuts: dict[str, tuple[int, int]] = {}
        held = 0
        for value in inputs:
            with archive.opened(members[value.name]) as member:
                try:
                    header = read_header(member, members[value.name].file_size)
                except PickledObjects:
                    raise AotcError(
                        "AOTC-I077",
                        "the array holds Python objects",
                        where=f"{path}: {value.name}",
                        expected=value.dtype,
                        found="a pickle, which can run any program when it is read",
                        fix=_RESAVE,
                    ) from None
            _require_type(header, value, path)
            step, count = cuts[value.name] = _cut(header, value, smallest, path)
            size = members[value.name].file_size
            held += held_bytes(header, size, step if count > 1 else None)
        archive.require_size(held)
        if any(count == 0 for _, count in cuts.values()):
            return
        counts = {name: count for name, (_, count) in cuts.items() if count > 1}
        if len(set(counts.values())) > 1:
            raise AotcError(
                "AOTC-I075",
                "inputs have different numbers of samples",
                where=str(path),
                expected="the same number along the first axis of each",
                found=", ".join(f"{name}: {count}" for name, count in counts.items()),
                fix="Save each sample as a file of its own, in one folder.",
            )
        whole: dict[str, Any] = {}
        rows: dict[str, Iterator[Any]] = {}
        for name, (step, count) in cuts.items():
            member = opened.enter_context(archive.opened(members[name]))
            size = members[name].file_size
            if count > 1:
                rows[name] = read_rows(member, size, step)
            else:
                whole[name] = read_array(member, size)
        for _ in range(max(counts.values(), default=1)):
            sample = {**whole, **{name: next(pieces) for name, pieces in rows.items()}}
            # The order of bytes in a file is nobody's fault.
            yield {name: in_native_order(each) for name, each in sample.items()}


def _members(archive: Npz, path: Path, inputs: Sequence[Value]) -> dict[str, zipfile.ZipInfo]:
    found = {value.name: archive.member(value.name) for value in inputs}
    missing = [name for name, member in found.items() if member is None]
    if missing:
        raise AotcError(
            "AOTC-I074",
            "inputs of the model are missing",
            where=str(path),
            expected=", ".join(value.name for value in inputs),
            found=", ".join(archive.names) or "no array",
            fix=f"Save them under the names of the inputs; there is no {', '.join(missing)}.",
        )
    return {name: member for name, member in found.items() if member is not None}


def _require_type(header: Header, value: Value, path: Path) -> None:
    if value.kind not in ("tensor", "optional"):
        raise AotcError(
            "AOTC-I074",
            f"the input is a {value.kind}, but a .npz only holds arrays",
            where=f"{path}: {value.name}",
            fix="Give folders of ONNX test data: input_0.pb and so on.",
        )
    dtype = header.dtype
    text = dtype.kind in "US"
    if (value.dtype == "string") != text or (not text and values.dtype_name(dtype) != value.dtype):
        raise AotcError(
            "AOTC-I074",
            "the array's type differs from the input's",
            where=f"{path}: {value.name}",
            expected=value.dtype,
            found=values.dtype_name(dtype),
            fix=f"Convert the array before it is saved: array.astype({value.dtype!r}).",
        )


def _cut(header: Header, value: Value, smallest: Mapping[str, int], path: Path) -> tuple[int, int]:
    """Elements of one sample along the first axis, and the number of samples."""
    shape, declared = header.shape, value.shape
    if declared is None:
        return 0, 1
    same_rank = len(shape) == len(declared)
    if not same_rank or any(
        isinstance(size, int) and not (found == size or (axis == 0 and found > size > 0))
        for axis, (size, found) in enumerate(zip(declared, shape, strict=True))
    ):
        raise AotcError(
            "AOTC-I075",
            f"the array's {'size' if same_rank else 'rank'} differs from the input's",
            where=f"{path}: {value.name}",
            expected=shape_text(declared),
            found=shape_text(shape),
            fix="Save arrays as the model takes them, or several one after another along the first "
            "axis.",
        )
    if not declared:
        return 0, 1
    first = declared[0]
    step = first if isinstance(first, int) else smallest.get(first, shape[0])
    step = max(step, 1)
    return step, shape[0] // step or min(shape[0], 1)


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape in words, such as `[batch, 3, 224]`."""
    return f"[{', '.join(map(str, shape))}]"


def refuse_not_finite(sample: Mapping[str, Any], where: str) -> None:
    """Raise AOTC-I076 if an array of a sample holds NaN or infinity; `where` names the sample."""
    for name, array in sample.items():
        if values.is_finite(array):
            continue
        bad = int(np.size(array) - np.isfinite(array).sum()) if isinstance(array, np.ndarray) else 1
        raise AotcError(
            "AOTC-I076",
            "a sample holds NaN or infinity",
            where=f"{where}: {name}",
            expected="finite numbers",
            found=f"{bad} of {np.size(array)} elements are not finite"
            if isinstance(array, np.ndarray)
            else "a sequence with such elements",
        )


def tiled(
    samples: Sequence[Sample], inputs: Sequence[Value], sizes: Mapping[str, int], first: int = 0
) -> dict[str, Any]:
    """Inputs at `sizes`, made of `samples` from number `first` on, again from the start after all.

    A free first axis holds one sample after another, the same ones for every input.  Along other
    axes a sample is cut, or repeated from its start.  An axis without elements becomes zeros.
    What is no tensor is that of the first sample.  A value that the input excludes at these sizes,
    such as a length of more than there is, becomes the nearest that it allows.
    """
    ordered = [samples[(first + number) % len(samples)] for number in range(len(samples))]
    return {
        value.name: cut_to_allowed(
            _tensor([each[value.name] for each in ordered], value, sizes), value, sizes
        )
        for value in inputs
    }


def _tensor(arrays: Sequence[Any], value: Value, sizes: Mapping[str, int]) -> Any:
    if value.kind != "tensor" or not isinstance(arrays[0], np.ndarray):
        return arrays[0]
    shape = value.shape_at(sizes) if value.shape is not None else arrays[0].shape
    free = bool(shape) and (value.shape is None or isinstance(value.shape[0], str))
    if not free:
        return _fitted(arrays[0], shape)
    rows: list[np.ndarray[Any, Any]] = []
    count = 0
    while count < shape[0]:
        array = arrays[len(rows) % len(arrays)]
        taken = min(shape[0] - count, max(array.shape[0], 1))
        rows.append(_fitted(array, (taken, *shape[1:])))
        count += taken
    return np.concatenate(rows) if rows else _fitted(arrays[0], shape)


def _fitted(array: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if 0 in array.shape:
        return np.zeros(shape, array.dtype)
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis=axis)
    return array
