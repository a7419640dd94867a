"""Values in files and in words, and ONNX Runtime's type strings as records."""

from __future__ import annotations

import errno
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.session.capture import value_of
from aotc.session.parity import compare
from aotc.spec.payload import Value
from aotc.spec.precision import Tolerance

EXACT = Tolerance(atol=0.0, rtol=0.0)
WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)

tensors = st.one_of(
    npst.arrays(
        st.sampled_from(["bool", "int8", "uint64", "int64", "float16", "float32", "float64"]),
        npst.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    st.lists(WORDS, max_size=4).map(lambda words: np.array(words, object)),
)
maps = st.one_of(
    st.dictionaries(WORDS, st.floats(), max_size=4),
    st.dictionaries(st.integers(-9, 9), st.floats(), max_size=4),
)
anything = st.one_of(
    tensors, maps, st.none(), st.lists(tensors, max_size=3), st.lists(maps, max_size=3)
)


@given(anything)
@settings(max_examples=150)
def test_what_is_saved_is_what_is_loaded(tmp_path_factory: Any, value: Any) -> None:
    folder = tmp_path_factory.mktemp("value")
    path = values.save(value, folder / "x.npy")
    assert path.parent == folder
    assert path.suffix == (".npy" if values.is_npy_array(value) else ".json")
    error = compare(value, values.load(path), EXACT, "x")
    assert error.passed, error
    again = values.save(values.load(path), folder / "again")
    assert again.read_bytes() == path.read_bytes()


def test_bytes_do_not_depend_on_memory_layout_or_order_of_keys(tmp_path: Path) -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    one = values.save(array, tmp_path / "one")
    other = values.save(np.asfortranarray(array), tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()
    one = values.save({"a": 1.0, "b": 2.0}, tmp_path / "one")
    other = values.save({"b": 2.0, "a": 1.0}, tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


def test_a_dot_in_a_name_is_kept(tmp_path: Path) -> None:
    assert values.save(np.zeros(1), tmp_path / "layer.0").name == "layer.0.npy"


def test_narrow_floats_travel_as_bits(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0]).astype(ml_dtypes.float8_e4m3fn)
    path = values.save(array, tmp_path / "x")
    assert path.name == "x.json"
    loaded = values.load(path)
    assert loaded.dtype == array.dtype
    assert loaded.tobytes() == array.tobytes()
    assert values.describe(array) == "float8e4m3fn[2]"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.npy", b""),
        ("x.npy", b"\x93NUMPY\x01\x00rubbish"),
        ("x.json", b"{}"),
        ("x.json", b'{"kind":"list"}'),
        ("x.json", b'{"kind":"tensor","dtype":"float32","shape":[2],"data":"AAAA"}'),
        ("x.json", b'{"kind":"tensor","dtype":"float32","shape":[1],"data":"!"}'),
        ("missing.npy", None),
    ],
)
def test_a_damaged_file_gives_a_code(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(AotcError) as caught:
        values.load(tmp_path / name)
    assert caught.value.code == "AOTC-I024"
    assert caught.value.where == str(tmp_path / name)


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(AotcError, match="AOTC-G014"):
        values.load(tmp_path / "x.npy", refusal="AOTC-G014")


@dataclass
class Arg:
    """ONNX Runtime's description of an input."""

    name: str
    type: str
    shape: list[int | str | None]


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("tensor(float)", ["N", None, 3], ("tensor", "float32", ("N", "x.1", 3))),
        ("tensor(double)", [2], ("tensor", "float64", (2,))),
        ("tensor(bfloat16)", [], ("tensor", "bfloat16", None)),
        ("tensor(string)", [None], ("tensor", "string", ("x.0",))),
        ("seq(tensor(int64))", [], ("sequence", "int64", None)),
        ("optional(tensor(float))", ["n", 3], ("optional", "float32", ("n", 3))),
        ("optional(seq(tensor(bool)))", [], ("optional", "bool", None)),
        ("map(string,tensor(float))", [], ("map", "string", None)),
        ("seq(map(int64,tensor(float)))", [], ("map", "int64", None)),
        ("sparse_tensor(float)", [4, 4], ("sparse", "float32", (4, 4))),
    ],
)
def test_type_strings(
    text: str, shape: list[int | str | None], expected: tuple[Any, str, Any]
) -> None:
    kind, dtype, sizes = expected
    found = values.ort_type_to_value(Arg("x", text, shape))
    assert found == Value(name="x", kind=kind, dtype=dtype, shape=sizes)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("key", "name"), [(TensorProto.INT64, "int64"), (TensorProto.STRING, "string")]
)
def test_the_whole_type_of_a_map(key: int, name: str, listed: bool) -> None:
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    whole = f"map({name},float)"
    if listed:
        kind, whole = helper.make_sequence_type_proto(kind), f"seq({whole})"
    found = value_of(helper.make_value_info("z", kind))
    assert found == Value(name="z", kind="map", dtype=name, form=whole)


@pytest.mark.parametrize("text", ["", "tensor", "opaque(a,b)", "seq(opaque(a))"])
def test_an_unknown_type_string_gives_a_code(text: str) -> None:
    with pytest.raises(AotcError, match="AOTC-I007 unknown type"):
        values.ort_type_to_value(Arg("x", text, []))


def test_sizes_and_words() -> None:
    pairs = [
        (None, 0, "nothing"),
        (np.zeros((2, 3), "f4"), 24, "float32[2, 3]"),
        (np.array(["ab", "é"], object), 4, "string[2]"),
        ([np.zeros(3, "i8")] * 2, 48, "list of 2 int64[3]"),
        ({"a": 1.0}, 9, "map of 1"),
        ([{1: 1.0}], 16, "list of 1 map of 1"),
    ]
    for value, size, text in pairs:
        assert (values.nbytes(value), values.describe(value)) == (size, text)


def test_an_unknown_element_type_gives_a_code() -> None:
    with pytest.raises(AotcError, match="AOTC-I007 unknown element type"):
        values.numpy_dtype("i8,i8")


def test_a_value_that_no_file_holds_says_why(tmp_path: Path) -> None:
    """A full disk ends a write in the middle as a limit on the size of files does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            values.save(np.zeros(1 << 16, dtype=np.float32), tmp_path / "value.npy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
