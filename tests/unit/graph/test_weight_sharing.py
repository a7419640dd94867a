"""Tensors of one file found in another, kept, removed and placed once, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from aotc.graph import weights
from aotc.graph.weights import remove_shared

# Bytes of a tensor, and of what kernels packed of it, by ONNX Runtime's name of the packing.
Content = tuple[bytes, Mapping[str, Sequence[bytes]]]
PAGE = 4096


def plain(data: bytes) -> Content:
    return data, {}


def stored(
    folder: Path, name: str, contents: Mapping[str, Content]
) -> tuple[onnx.ModelProto, Path]:
    """A model whose tensors are in `folder/name`, one after another, at odd offsets."""
    tensors = []
    data = bytearray()

    def append(piece: bytes) -> int:
        data.extend(b"\xee" * 3)
        data.extend(piece)
        return len(data) - len(piece)

    for tensor_name, (raw, packings) in contents.items():
        tensor = TensorProto(name=tensor_name, data_type=TensorProto.UINT8, dims=[len(raw)])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", name), ("offset", append(raw)), ("length", len(raw))):
            tensor.external_data.add(key=key, value=str(value))
        for index, (kernel, parts) in enumerate(packings.items()):
            words = [f"{append(part)};{len(part)};{flag}" for flag, part in enumerate(parts)]
            tensor.external_data.add(key=f"prepacked_{index}", value="|".join([kernel, *words]))
        tensors.append(tensor)
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(bytes(data))
    return helper.make_model(helper.make_graph([], "graph", [], [], tensors)), path


def read(model: onnx.ModelProto, folder: Path) -> dict[str, Content]:
    """All data that the model's tensors refer to in `folder`, read without the tested code."""
    found: dict[str, Content] = {}
    for tensor in model.graph.initializer:
        entry = {pair.key: pair.value for pair in tensor.external_data}
        data = (folder / entry["location"]).read_bytes()

        def piece_at(offset: str, length: str, data: bytes = data) -> bytes:
            piece = data[int(offset) : int(offset) + int(length)]
            assert len(piece) == int(length)
            return piece

        packings: dict[str, list[bytes]] = {}
        for key, value in entry.items():
            if key.startswith("prepacked_"):
                kernel, *parts = value.split("|")
                cut = [part.split(";") for part in parts]
                assert [flag for _, _, flag in cut] == [str(n) for n in range(len(cut))]
                packings[kernel] = [piece_at(offset, length) for offset, length, _ in cut]
        found[tensor.name] = (piece_at(entry["offset"], entry["length"]), packings)
    return found


def offsets(model: onnx.ModelProto) -> Iterator[int]:
    for tensor in model.graph.initializer:
        for pair in tensor.external_data:
            if pair.key == "offset":
                yield int(pair.value)
            elif pair.key.startswith("prepacked_"):
                yield from (int(part.split(";")[0]) for part in pair.value.split("|")[1:])


A, B, C = (bytes([number]) * 5000 for number in (1, 2, 3))


# -- share


def test_twins_are_found_and_only_the_rest_is_kept(tmp_path: Path) -> None:
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A), "b": plain(B)})
    mine = {"b": plain(B), "own": plain(C), "a": plain(A)}
    model, data = stored(tmp_path, "mine.bin", mine)
    before = base_data.read_bytes()
    assert remove_shared(model, data, base, base_data) == [1, None, 0]
    kept = data.read_bytes()
    assert C in kept and A[:64] not in kept and B[:64] not in kept
    (own,) = (t for t in model.graph.initializer if t.name == "own")
    only = helper.make_model(helper.make_graph([], "own", [], [], [own]))
    assert read(only, tmp_path) == {"own": plain(C)}
    assert base_data.read_bytes() == before


def test_nothing_is_left_of_a_file_of_twins(tmp_path: Path) -> None:
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A), "b": plain(B)})
    model, data = stored(tmp_path, "mine.bin", {"other": plain(A)})
    assert remove_shared(model, data, base, base_data) == [0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.bin"]


def test_nothing_changes_where_nothing_is_alike(tmp_path: Path) -> None:
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A)})
    model, data = stored(tmp_path, "mine.bin", {"a": plain(B), "c": plain(C)})
    before = data.read_bytes()
    assert remove_shared(model, data, base, base_data) == [None, None]
    assert data.read_bytes() == before
    assert read(model, tmp_path) == {"a": plain(B), "c": plain(C)}


def test_one_byte_makes_another_tensor(tmp_path: Path) -> None:
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A)})
    near = {
        "first": plain(b"\0" + A[1:]),
        "last": plain(A[:-1] + b"\0"),
        "shorter": plain(A[:-1]),
        "longer": plain(A + A[:1]),
    }
    model, data = stored(tmp_path, "mine.bin", near)
    assert remove_shared(model, data, base, base_data) == [None] * 4
    assert read(model, tmp_path) == near


def test_difference_behind_the_first_block_is_seen(tmp_path: Path) -> None:
    large = b"\5" * ((4 << 20) + 10)
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(large)})
    model, data = stored(tmp_path, "mine.bin", {"a": plain(large[:-1] + b"\6"), "b": plain(large)})
    assert remove_shared(model, data, base, base_data) == [None, 0]


def test_of_several_twins_the_one_of_the_same_name_is_taken(tmp_path: Path) -> None:
    alike = {name: plain(A) for name in ("x", "y", "z")}
    base, base_data = stored(tmp_path, "base.bin", alike)
    model, data = stored(tmp_path, "mine.bin", {"y": plain(A), "other": plain(A), "z": plain(A)})
    assert remove_shared(model, data, base, base_data) == [1, 0, 2]


def test_no_file_has_no_tensors(tmp_path: Path) -> None:
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A)})
    empty = helper.make_model(helper.make_graph([], "graph", [], []))
    assert remove_shared(empty, tmp_path / "none.bin", base, base_data) == []
    model, data = stored(tmp_path, "mine.bin", {"a": plain(A)})
    assert remove_shared(model, data, empty, tmp_path / "none.bin") == [None]
    assert read(model, tmp_path) == {"a": plain(A)}


def test_twins_are_packed_by_the_same_kernel(tmp_path: Path) -> None:
    packed: Content = (A, {"MatMul+1": [b"p" * 300, b"q" * 9]})
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A), "b": packed})
    mine: dict[str, Content] = {
        "unpacked": plain(A),
        "same": packed,
        "other": (A, {"Gemm+2": [b"r" * 300]}),
        "more": (A, {"MatMul+1": [b"p" * 300, b"q" * 9], "Gemm+2": [b"r" * 300]}),
    }
    model, data = stored(tmp_path, "mine.bin", mine)
    assert remove_shared(model, data, base, base_data) == [0, 1, None, None]
    rest = [t for t in model.graph.initializer if t.name in ("other", "more")]
    left = helper.make_model(helper.make_graph([], "rest", [], [], rest))
    assert read(left, tmp_path) == {name: mine[name] for name in ("other", "more")}


# -- keep


def test_what_is_kept_moves_together_with_what_is_packed_of_it(tmp_path: Path) -> None:
    contents: dict[str, Content] = {
        "a": (A, {"K+1": [b"1" * 40, b"2" * 5000], "L+9": [b"3" * 7]}),
        "b": (B, {"K+2": [b"4" * 40]}),
        "c": plain(C),
    }
    model, data = stored(tmp_path, "data.bin", contents)
    weights.keep_tensors(model, data, [True, False, True])
    del model.graph.initializer[1]
    assert read(model, tmp_path) == {"a": contents["a"], "c": contents["c"]}
    assert B[:64] not in data.read_bytes() and b"4444" not in data.read_bytes()
    assert [offset % PAGE for offset in offsets(model)] == [0] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_all_that_is_wanted_is_left_as_it_is(tmp_path: Path) -> None:
    model, data = stored(tmp_path, "data.bin", {"a": plain(A), "b": plain(B)})
    before, text = data.read_bytes(), model.SerializeToString()
    weights.keep_tensors(model, data, [True, True])
    assert (data.read_bytes(), model.SerializeToString()) == (before, text)


# -- place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "placed"
    made.mkdir()
    return made


def test_equal_keys_are_placed_once(tmp_path: Path, folder: Path) -> None:
    contents = {"a": plain(A), "b": plain(B), "twin": plain(A)}
    model, data = stored(tmp_path, "data.bin", contents)
    placed: dict[str, tuple[str, int]] = {}
    files = {"A": "shared.bin", "B": "own.bin"}
    weights.place_tensors(model, data, ["A", "B", "A"], folder, files.__getitem__, placed)
    assert read(model, folder) == contents
    assert (folder / "shared.bin").read_bytes() == A
    assert (folder / "own.bin").read_bytes() == B
    assert placed == {"A": ("shared.bin", 0), "B": ("own.bin", 0)}


def test_what_another_model_placed_is_pointed_at(tmp_path: Path, folder: Path) -> None:
    placed: dict[str, tuple[str, int]] = {}
    packing = {"K+1": [b"1" * 40, b"2" * 50]}
    first, first_data = stored(tmp_path, "one.bin", {"a": (A, packing), "b": plain(B)})
    weights.place_tensors(first, first_data, ["A", "B"], folder, lambda key: "shared.bin", placed)
    size = (folder / "shared.bin").stat().st_size
    second, second_data = stored(
        tmp_path, "two.bin", {"b": plain(B), "c": plain(C), "a": (A, packing)}
    )
    weights.place_tensors(
        second, second_data, ["B", "C", "A"], folder, lambda key: "shared.bin", placed
    )
    assert read(first, folder) == {"a": (A, packing), "b": plain(B)}
    assert read(second, folder) == {"b": plain(B), "c": plain(C), "a": (A, packing)}
    grown = (folder / "shared.bin").read_bytes()
    assert len(grown) - size <= PAGE + len(C)
    assert grown.count(A) == grown.count(B) == grown.count(C) == 1
    assert {offset % PAGE for model in (first, second) for offset in offsets(model)} == {0}


def test_what_is_packed_stands_in_the_file_of_its_tensor(tmp_path: Path, folder: Path) -> None:
    contents: dict[str, Content] = {"a": (A, {"K+1": [b"1" * 40]}), "b": (B, {"K+2": [b"2" * 40]})}
    model, data = stored(tmp_path, "data.bin", contents)
    files = {"A": "shared.bin", "B": "own.bin"}
    weights.place_tensors(model, data, ["A", "B"], folder, files.__getitem__, {})
    assert read(model, folder) == contents
    assert (folder / "own.bin").read_bytes().endswith(b"2" * 40)
    assert weights.external_locations(model) == ("own.bin", "shared.bin")


def test_twins_without_a_file_are_placed_by_what_lies_there(tmp_path: Path, folder: Path) -> None:
    base, base_data = stored(tmp_path, "base.bin", {"a": plain(A), "b": plain(B)})
    model, data = stored(tmp_path, "mine.bin", {"x": plain(B)})
    assert remove_shared(model, data, base, base_data) == [1]
    placed: dict[str, tuple[str, int]] = {}
    weights.place_tensors(base, base_data, ["A", "B"], folder, lambda key: "shared.bin", placed)
    weights.place_tensors(model, data, ["B"], folder, lambda key: "shared.bin", placed)
    assert read(model, folder) == {"x": plain(B)}
    with pytest.raises(EOFError, match="external data no longer exists"):
        weights.place_tensors(model, data, ["C"], folder, lambda key: "shared.bin", placed)


def test_an_adopted_file_is_known_by_its_places(tmp_path: Path, folder: Path) -> None:
    contents: dict[str, Content] = {"a": (A, {"K+1": [b"1" * 40, b"2" * 50]}), "b": plain(B)}
    base, base_data = stored(tmp_path, "base.bin", contents)
    weights.adopt_file(base, base_data, folder, "shared.bin")
    assert not base_data.exists()
    assert read(base, folder) == contents
    placed = weights.tensor_places(base, ["A", "B"])
    assert list(placed) == ["A", "A K+1 0", "A K+1 1", "B"]
    model, data = stored(tmp_path, "mine.bin", {"z": contents["a"], "c": plain(C)})
    before = (folder / "shared.bin").read_bytes()
    weights.place_tensors(model, data, ["A", "C"], folder, lambda key: f"{key}.bin", placed)
    assert (folder / "shared.bin").read_bytes() == before
    assert read(model, folder) == {"z": contents["a"], "c": plain(C)}
    assert weights.external_locations(model) == ("C.bin", "shared.bin")


def test_an_adopted_file_has_equal_tensors_once(tmp_path: Path, folder: Path) -> None:
    packed: Content = (A, {"K+1": [b"1" * 40]})
    contents: dict[str, Content] = {
        **{"a": plain(A), "b": plain(B), "twin": plain(A)},
        # Another kernel's, and equal in the first page alone.
        **{"packed": packed, "other": plain(A[:PAGE] + B[PAGE:]), "again": packed},
    }
    model, data = stored(tmp_path, "data.bin", contents)
    weights.adopt_file(model, data, folder, "shared.bin")
    assert read(model, folder) == contents
    assert len(set(offsets(model))) == 5
    assert (folder / "shared.bin").read_bytes().count(A) == 2


def test_an_adopted_file_is_left_alone_where_little_is_equal(tmp_path: Path, folder: Path) -> None:
    contents = {"a": plain(b"a" * 1000), "twin": plain(b"a" * 1000), "b": plain(B * 10)}
    model, data = stored(tmp_path, "data.bin", contents)
    before = data.read_bytes()
    weights.adopt_file(model, data, folder, "shared.bin")
    assert (folder / "shared.bin").read_bytes() == before
    assert read(model, folder) == contents


def test_digests_name_the_wanted_bytes(tmp_path: Path) -> None:
    contents = {"a": plain(A), "b": plain(B), "twin": plain(A)}
    model, data = stored(tmp_path, "data.bin", contents)
    first, second, third = weights.digests(model, data, [True, True, True])
    assert first == third != second
    assert weights.digests(model, data, [False, True, False]) == ["", second, ""]
    assert weights.digests(model, tmp_path / "none.bin", [False] * 3) == ["", "", ""]


def test_data_that_ends_early_is_told(tmp_path: Path, folder: Path) -> None:
    model, data = stored(tmp_path, "data.bin", {"a": plain(A)})
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(EOFError, match="external data ends early"):
        weights.place_tensors(model, data, ["A"], folder, lambda key: "shared.bin", {})
    with pytest.raises(EOFError, match="external data ends early"):
        weights.digests(model, data, [True])
