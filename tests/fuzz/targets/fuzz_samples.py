"""Samples to calibrate with: one byte for the kind, and then a `.npz`, or the array `x` of one."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Iterator

import numpy as np
from edited_artifact import make_place
from fuzz_inputs import mutate_header
from fuzz_target import Target

from aotc.base.errors import AotcError
from aotc.sizes.inputs.samples import read_samples, refuse_not_finite
from aotc.spec.payload import Value

INPUTS = (Value(name="x", dtype="float32", shape=("n", 2)),)
REFUSED = frozenset({"AOTC-I073", "AOTC-I074", "AOTC-I075", "AOTC-I076", "AOTC-I077"})
WORDS = frozenset({"'descr'", "'fortran_order'", "'<f4'", "'shape'", "True", "'|O'", "x.npy"})
PLACE = make_place()
_FEW = 8


def check(data: bytes) -> bool:
    """Refused by one of its codes, or samples of the input's type and of one row each."""
    if not data:
        return False
    path = PLACE / "samples.npz"
    path.write_bytes(data[1:] if data[0] % 2 else _archive(data[1:]))
    try:
        found = list(itertools.islice(read_samples(path, INPUTS, {"n": 1}), _FEW))
        for sample in found:
            refuse_not_finite(sample, str(path))
    except AotcError as error:
        assert error.code in REFUSED, error.code
        error.line().encode("utf-8", "backslashreplace")
        return False
    for sample in found:
        assert sample["x"].dtype == np.float32
        assert sample["x"].shape == (1, 2)
    return bool(found)


def _archive(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x.npy", content)
    return packed.getvalue()


def _npy(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def seeds() -> Iterator[bytes]:
    """Rows and columns, too few dims, an archive as it is, and one that is cut."""
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    yield b"\0" + _npy(array)
    yield b"\0" + _npy(np.asfortranarray(array))
    yield b"\0" + _npy(array[0])
    yield b"\0" + _npy(array * np.float32(np.nan))
    yield b"\1" + _archive(_npy(array))
    yield b"\1" + _archive(_npy(array))[:-20]


TARGET = Target(
    name="samples", check=check, seeds=seeds, words=WORDS, mutate=mutate_header, max_bytes=4096
)
