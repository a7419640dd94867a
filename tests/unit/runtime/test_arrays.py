"""Inputs and outputs as files."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.runtime import value_files
from aotc.spec.payload import Value

INPUTS = (
    Value(name="ids", dtype="int64", shape=("batch", "seq")),
    Value(name="a", dtype="float32", shape=(2,)),
    Value(name="a=b", dtype="float32", shape=(2,)),
)
_HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}"
# A whole .npy file, of an empty array.
NPY = b"\x93NUMPY\x01\x00\x76\x00" + _HEADER.ljust(117) + b"\n"


def test_the_longest_name_that_fits_is_meant(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert list(value_files.read_inputs([f"a={tmp_path}/x.npy"], INPUTS)) == ["a"]
    assert list(value_files.read_inputs([f"a=b={tmp_path}/x.npy"], INPUTS)) == ["a=b"]


def test_an_input_given_twice(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    np.savez(tmp_path / "x.npz", a=np.ones(2, np.float32))
    with pytest.raises(AotcError) as caught:
        value_files.read_inputs([f"a={tmp_path}/x.npy", f"{tmp_path}/x.npz"], INPUTS)
    assert caught.value.line() == f"AOTC-I027 input 'a' is given twice [{tmp_path}/x.npz]"


def test_an_archive_without_an_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", label=np.ones(2))
    with pytest.raises(AotcError) as caught:
        value_files.read_inputs([f"{tmp_path}/x.npz"], INPUTS)
    assert (caught.value.code, caught.value.expected, caught.value.found) == (
        "AOTC-I027",
        "ids, a, a=b",
        "label",
    )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", b"\x93NUMPY", NPY])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(AotcError) as caught:
        value_files.read_inputs([f"{tmp_path}/x.npz"], INPUTS)
    assert (caught.value.code, caught.value.where) == ("AOTC-I027", f"{tmp_path}/x.npz")


def test_outputs_are_written_under_names_that_are_safe(tmp_path: Path) -> None:
    outputs = {
        "../up": np.zeros(2, np.float32),
        "/up": np.ones(2, np.float32),
        "": np.ones(1, np.int64),
        "text": np.array(["a"], dtype=object),
    }
    written = value_files.write_outputs(tmp_path / "out", outputs)
    assert [path.name for path in written.values()] == [
        "%2E.%2Fup.npy",
        "%2Fup.npy",
        "%.npy",
        "text.json",
    ]
    assert {path.parent for path in written.values()} == {tmp_path / "out"}
    assert values.load(written["text"]).tolist() == ["a"]


def test_outputs_replace_files_and_nothing_else(tmp_path: Path) -> None:
    """A link that lay in the folder led root to a file of its own."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    folder = tmp_path / "out"
    folder.mkdir()
    outputs = {"y": np.zeros(2, np.float32)}
    for _ in range(2):
        (written,) = value_files.write_outputs(folder, outputs).values()
        assert values.load(written).tolist() == [0.0, 0.0]
        assert list(folder.iterdir()) == [folder / "y.npy"]
    for spoil in (lambda: written.symlink_to(secret), written.mkdir):
        written.unlink()
        spoil()
        with pytest.raises(AotcError, match="AOTC-I017"):
            value_files.write_outputs(folder, outputs)
        assert secret.read_bytes() == b"secret"
        assert list(folder.iterdir()) == [written]


def test_an_output_in_words() -> None:
    numbers = np.array([1.0, np.nan, 3.0], np.float32)
    shown = value_files.describe_output("y", numbers, Path("y.npy"))
    assert (shown.value, shown.minimum, shown.mean, shown.maximum) == ("float32[3]", 1.0, 2.0, 3.0)
    assert shown.file == "y.npy"
    text = value_files.describe_output("t", np.array(["a"], dtype=object))
    assert (text.value, text.minimum) == ("string[1]", None)
    assert value_files.describe_output("n", np.full(2, np.inf)).maximum is None


def test_a_fixture_is_repeated_to_other_sizes() -> None:
    fixture = {"ids": np.array([[7, 8], [9, 10]]), "a": np.ones(2, np.float32)}
    found = value_files.resize(fixture, INPUTS[:2], {"batch": 1, "seq": 5})
    assert found["ids"].tolist() == [[7, 8, 7, 8, 7]]
    assert found["a"] is fixture["a"]
    with pytest.raises(AotcError) as caught:
        value_files.resize({"ids": np.zeros((0, 2))}, INPUTS[:1], {"batch": 4})
    assert caught.value.line() == "AOTC-I027 input 'ids' cannot be resized [dim batch]"


def test_an_archive_for_one_input(tmp_path: Path) -> None:
    """The only array is meant, or of several the one of the input's name."""
    ids = np.array([[1, 2]])
    for name, arrays_ in (
        ("only.npz", {"arr_0": ids}),
        ("named.npz", {"ids": ids, "labels": np.zeros(3)}),
        ("UPPER.NPZ", {"ids": ids}),
    ):
        with (tmp_path / name).open("wb") as file:
            np.savez(file, **arrays_)
        found = value_files.read_inputs([f"ids={tmp_path / name}"], INPUTS)
        assert list(found) == ["ids"]
        assert np.array_equal(found["ids"], ids)


def test_an_archive_that_holds_no_such_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(1), y=np.zeros(1))
    np.savez(tmp_path / "none.npz")
    np.save(tmp_path / "plain.npy", np.zeros(1))
    (tmp_path / "plain.npy").rename(tmp_path / "plain.npz")
    for name, what in (
        ("other", "the archive holds several arrays, and none of them is called 'ids'"),
        ("none", "the archive holds no array"),
        ("plain", "the file is not a .npz archive"),
        ("missing", "no such input file"),
    ):
        with pytest.raises(AotcError, match=what) as caught:
            value_files.read_inputs([f"ids={tmp_path / name}.npz"], INPUTS)
        assert caught.value.code == ("AOTC-I001" if name == "missing" else "AOTC-I027")
        if name == "other":
            assert caught.value.expected == "one array, or one called ids"
            assert caught.value.found == "x, y"


def long_header(length: int) -> bytes:
    return b"\x93NUMPY\x02\x00" + length.to_bytes(4, "little")


def test_a_header_without_end_is_not_read(tmp_path: Path) -> None:
    """Zeros that no disk holds: whoever read them all would need the memory for it."""
    path = tmp_path / "x.npy"
    path.write_bytes(long_header(2**32 - 1))
    with path.open("r+b") as file:
        file.truncate(1 << 33)
    tracemalloc.start()
    with pytest.raises(AotcError) as caught:
        value_files.read_inputs([f"ids={path}"], INPUTS)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert (caught.value.code, caught.value.found) == (
        "AOTC-I027",
        f"a header of {2**32 - 1} bytes",
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (long_header(16 << 20) + bytes(16 << 20), "a header of 16777216 bytes"),
        (NPY.replace(b"(0,)", b"(9,)") + bytes(16 << 20), ""),
        (NPY.replace(b"(0,)}       ", b"(9999999,)} ") + bytes(16 << 20), "fewer than shape"),
        (bytes(16 << 20), "magic"),
    ],
)
def test_archives_that_grow_when_they_are_read(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ids.npy", content)
    for word in (str(path), f"ids={path}"):
        if not why:
            assert value_files.read_inputs([word], INPUTS)["ids"].shape == (9,)
            continue
        tracemalloc.start()
        with pytest.raises(AotcError) as caught:
            value_files.read_inputs([word], INPUTS)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # A page of what is decompressed, and never all of it.
        assert most < 8 << 20
        assert (caught.value.code, why in caught.value.found) == ("AOTC-I027", True)
