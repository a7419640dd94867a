"""Inputs of a model as files: one byte for the kind, and then `.npy`, `.npz` or `.json`."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from edited_artifact import make_place
from fuzz_target import Target
from structured import mutated

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.runtime import value_files
from aotc.spec.payload import Value

KINDS = ("npy", "npz", "json")
INPUTS = (Value(name="x", dtype="float32", shape=("n",)), Value(name="y", dtype="int64"))
WORDS = frozenset(
    {"kind", "tensor", "dtype", "shape", "data", "sequence", "items", "map", "keys", "values"}
    | {"none", "string", "float32", "bfloat16", "'descr'", "'fortran_order'", "'<f4'", "'shape'"}
    | {"True", "False", "\x93NUMPY", "PK\x03\x04", "x.npy"}
)
PLACE = make_place()


def check(data: bytes) -> bool:
    """Refused as an argument, or values that are described, counted and written back unchanged."""
    if not data:
        return False
    kind = KINDS[data[0] % len(KINDS)]
    path = PLACE / f"input.{kind}"
    path.write_bytes(data[1:])
    word = str(path) if kind == "npz" else f"x={path}"
    try:
        found = value_files.read_inputs([word], INPUTS)
    except AotcError as error:
        # A narrow element type may need a package that is not here.
        assert error.code in ("AOTC-I027", "AOTC-I019"), error.code
        error.line().encode("utf-8", "backslashreplace")
        return False
    assert found
    for name, value in found.items():
        value_files.describe_output(name, value)
        values.nbytes(value)
        values.elements(value)
        values.is_finite(value)
    return True


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """JSON as a value; otherwise the header of an array is changed as text."""
    if not data:
        return None
    if KINDS[data[0] % len(KINDS)] == "json":
        made = mutated(data[1:], size - 1, seed)
        return None if made is None else data[:1] + made
    return mutate_header(data, size, seed)


def mutate_header(data: bytes, size: int, seed: int) -> bytes | None:
    """The header of an array somewhere in `data`, changed as text; often None."""
    drawn = random.Random(seed)
    start = data.find(b"{")
    if start < 0 or drawn.random() < 0.5:
        return None
    end = data.find(b"}", start) + 1 or len(data)
    header = {"descr": "'<f4'", "fortran_order": "False", "shape": "(2,)"}
    odd = ("(-1,)", "(2**62,)", "(99999999999,)", "()", "(", "'O'", "'V9'", "None", "[", "1j", "")
    header[drawn.choice(tuple(header))] = drawn.choice((*odd, "(" * 200, "'<M8[s]'", "'S0'"))
    text = "{" + ", ".join(f"'{key}': {value}" for key, value in header.items()) + "}"
    made = data[:start] + text.encode().ljust(end - start) + data[end:]
    return made if len(made) <= size else None


def seeds() -> Iterator[bytes]:
    """Each kind once, and bytes that are none of them."""
    array = np.arange(3, dtype=np.float32)
    yield b"\0" + _npy(array)
    yield b"\0" + _npy(np.array(1.5))
    yield b"\0" + _npy(array)[:20]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x.npy", _npy(array))
    yield b"\1" + packed.getvalue()
    yield b"\1PK\5\6" + bytes(18)
    path = PLACE / "seed.json"
    for value in (
        np.array(["a", "b"], dtype=object),
        [array, array[:1]],
        {1: 2.5, 2: 0.0},
        {"a": 1},
        None,
    ):
        yield b"\2" + values.save(value, path).read_bytes()
    tensor = {"kind": "tensor", "dtype": "float32", "shape": [2**40, 2**40], "data": ""}
    yield b"\2" + json.dumps({"kind": "sequence", "items": [tensor]}).encode()


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


TARGET = Target("inputs", check, seeds, WORDS, 2048, _mutate)
