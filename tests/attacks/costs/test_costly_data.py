"""Arrays and test data of a few bytes that would fill the memory: refused, not unpacked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from refusals import refusal

from aotc.graph import values
from aotc.runtime.value_files import read_inputs
from aotc.sizes.inputs.fixtures import read_fixtures, read_test_data
from aotc.sizes.inputs.samples import read_samples
from aotc.spec.payload import Value

INPUTS = [Value(name="x", dtype="float32", shape=("n", 4))]
TEXT = [Value(name="x", dtype="string", shape=("n",))]


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """The beginning of a `.npy` file, without the array."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def archive(
    path: Path, content: bytes, *, method: int = zipfile.ZIP_DEFLATED, stated: int | None = None
) -> Path:
    """A `.npz` with the array x; `stated` is the size that it claims for it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr("x.npy", content)
    data = bytearray(file.getvalue())
    if stated is not None:
        start = data.index(b"PK\x01\x02")
        data[start + 24 : start + 28] = stated.to_bytes(4, "little")
    path.write_bytes(data)
    return path


def directory(path: Path, members: int) -> Path:
    """A `.npz` whose list of members is long: each takes far more memory than bytes."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("x.npy", b"")
    data = path.read_bytes()
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry = data[start:end] * members
    last = bytearray(data[end:])
    last[12:16] = len(entry).to_bytes(4, "little")
    path.write_bytes(data[:start] + entry + last)
    return path


ROWS = 1 << 18
ZEROS = header((ROWS, 4)) + bytes(ROWS * 16)
BOMBS: dict[str, Callable[[Path], Path]] = {
    "zeros": lambda path: archive(path, ZEROS),
    "zeros, packed by another method": lambda path: archive(
        path, header((ROWS, 4)) + bytes(1 << 20), method=zipfile.ZIP_BZIP2
    ),
    "more than there is": lambda path: archive(
        path, header((ROWS, 4)) + bytes(16), stated=4_000_000_000
    ),
    "less than there is": lambda path: archive(path, header((ROWS, 4)) + bytes(16), stated=200),
    "a shape that overflows": lambda path: archive(path, header((2**40, 2**40, 4))),
    "a shape below zero": lambda path: archive(path, header((-1, 4)) + bytes(16)),
    "objects": lambda path: archive(path, header((2, 4), "|O") + bytes(64)),
    "a very long list of members": lambda path: directory(path, 200_000),
}
READERS: dict[str, Callable[[Path], Any]] = {
    "fixtures": lambda path: read_fixtures(path, INPUTS, path.parent / "f"),
    "samples": lambda path: list(read_samples(path, INPUTS, {})),
    "inputs": lambda path: read_inputs([str(path)], INPUTS),
}


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read of members."""
    read: list[int] = [0]
    plain = zipfile.ZipExtFile.read

    def noting(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        data = plain(self, n)
        read.append(len(data))
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "read", noting)
    return read


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", BOMBS)
def test_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: list[int], kind: str, reader: str
) -> None:
    monkeypatch.setattr(values, "MAX_UNPACKED_BYTES", 1 << 20)
    path = BOMBS[kind](tmp_path / "d.npz")
    error = refusal(READERS[reader], path)
    assert error.exit_status in (2, 3)
    assert sum(unpacked) < 1 << 20


def test_arrays_of_zeros_are_read_up_to_a_limit(tmp_path: Path) -> None:
    """Masks are such arrays."""
    path = archive(tmp_path / "d.npz", header((1 << 20, 4)) + bytes(16 << 20))
    assert path.stat().st_size < 1 << 16
    assert READERS["inputs"](path)["x"].shape == (1 << 20, 4)


def test_text_of_no_length(tmp_path: Path) -> None:
    """It takes no bytes, and an object for each element once it is used."""
    path = tmp_path / "x.npy"
    path.write_bytes(header((10**12,), "<U0"))
    assert refusal(values.load, path).code == "AOTC-I024"


def saved(folder: Path, tensor: onnx.TensorProto) -> Path:
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    return folder


def test_one_long_text_among_many(tmp_path: Path) -> None:
    """As numpy's own text each would be as long as the longest: 40 GB of a file of 300 kB."""
    texts = [b"a" * 200_000, *[b""] * 50_000]
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.STRING, dims=[50_001], string_data=texts)
    found = read_test_data(saved(tmp_path, tensor), TEXT)["x"]
    assert (found.dtype, found.shape, len(found[0])) == (np.dtype(object), (50_001,), 200_000)


def test_test_data_does_not_name_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_bytes(bytes(16))
    tensor = onnx.TensorProto(name="x", data_type=onnx.TensorProto.FLOAT, dims=[1, 4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    sequence = onnx.SequenceProto(elem_type=onnx.SequenceProto.TENSOR, tensor_values=[tensor])
    assert refusal(read_test_data, saved(tmp_path, tensor), INPUTS).code == "AOTC-I024"
    (tmp_path / "input_0.pb").write_bytes(sequence.SerializeToString())
    lists = [Value(name="x", dtype="float32", kind="sequence")]
    assert refusal(read_test_data, tmp_path, lists).code == "AOTC-I024"


@pytest.mark.parametrize(
    "tensor",
    [
        onnx.TensorProto(data_type=99, dims=[1], raw_data=bytes(4)),
        onnx.TensorProto(data_type=1, dims=[2**62, 2**62], raw_data=bytes(4)),
        onnx.TensorProto(data_type=1, dims=[1] * 10_000, raw_data=bytes(4)),
        onnx.TensorProto(data_type=22, dims=[2**40], raw_data=bytes(4)),
        onnx.TensorProto(data_type=8, dims=[2**40], string_data=[b"\xff"]),
    ],
)
def test_tensors_that_are_none(tmp_path: Path, tensor: onnx.TensorProto) -> None:
    assert refusal(read_test_data, saved(tmp_path, tensor), INPUTS).code == "AOTC-I024"
