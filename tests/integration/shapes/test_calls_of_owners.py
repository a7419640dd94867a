"""Calls that owners of models make without a flag: first calls, real values, usual sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import constant, info, model_of, node
from onnx import TensorProto
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
Call = Mapping[str, Any]


def floats(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def assert_in_range(bench: Workbench, built: Built, calls: Sequence[Call]) -> None:
    """The artifact answers as ONNX Runtime does, and counts no call as outside of the range."""
    plain = plain_session(built.source)
    with bench.load(built) as loaded:
        for inputs in calls:
            where = str({name: np.shape(value) for name, value in inputs.items()})
            answer = loaded.run(inputs)
            assert_agree(plain_answer(plain, inputs), answer, tolerance_of(built), where)
            assert loaded.telemetry.to_dict()["out_of_domain"] == 0, where


def cache_after(nodes: Sequence[onnx.NodeProto], kept: str, past: Sequence[int | str]) -> Any:
    """A cache that goes through `nodes`, and is joined with new entries on axis 2."""
    return model_of(
        [
            *nodes,
            node("Concat", [kept, "new"], "present", axis=2),
            node("ReduceSum", "present", "y", keepdims=0),
        ],
        [info("past", past), info("new", [1, 2, "t", 4])],
        [info("y", []), info("present", None)],
        {
            "from": ints(-63),
            "to": ints(2**62),
            "axis": ints(2),
            "shape": ints(1, 2, -1, 4),
            "order": ints(0, 1),
        },
    )


WAYS = {
    "joined": ([], "past", [1, 2, "p", 4]),
    "sliced": (
        [node("Slice", "past from to axis", "kept")],
        "kept",
        [1, 2, "p", 4],
    ),
    "transposed": (
        [node("Transpose", "past", "kept", perm=[0, 2, 1, 3])],
        "kept",
        [1, "p", 2, 4],
    ),
    "reshaped": (
        [node("Reshape", "past shape", "kept", allowzero=0)],
        "kept",
        [1, 2, "p", 2, 2],
    ),
    "gathered": (
        [node("Gather", "past order", "kept", axis=1)],
        "kept",
        [1, 2, "p", 4],
    ),
    "scaled": ([node("Mul", "past past", "kept")], "kept", [1, 2, "p", 4]),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_call_of_a_decoder_has_an_empty_cache(bench: Workbench, way: str) -> None:
    nodes, kept, past = WAYS[way]
    built = bench.build(cache_after(nodes, kept, past), way)

    def call(held: int, new: int) -> Call:
        shape = [held if size == "p" else int(size) for size in past]
        return {"past": floats(*shape), "new": floats(1, 2, new, 4)}

    calls = [call(0, 3), call(3, 1), call(70, 1)]
    plain = plain_session(built.source)
    try:
        plain_answer(plain, calls[0])
    except Exception:
        # A Reshape with -1 beside a size of 0 is no fault of ours: it is refused, and only that.
        with bench.load(built) as loaded, pytest.raises(AotcError) as refused:
            loaded.run(calls[0])
        assert refused.value.code == "AOTC-R010"
        calls = calls[1:]
    assert_in_range(bench, built, calls)


def merged(branches: Sequence[onnx.GraphProto]) -> onnx.ModelProto:
    return model_of(
        [
            node("Gather", "table ids", "e"),
            node("Unsqueeze", "e one", "k"),
            node("Squeeze", "use_cache zero", "flag"),
            node("If", "flag", "present", then_branch=branches[0], else_branch=branches[1]),
            node("ReduceMean", "present two", "ctx", keepdims=1),
            node("Add", "k ctx", "y"),
        ],
        [
            info("ids", ["batch", "seq"], INT64),
            info("past", ["batch", 1, "past_len", 8]),
            info("use_cache", [1], BOOL),
        ],
        [info("y", ["batch", 1, "seq", 8])],
        {"table": floats(20, 8), "one": ints(1), "zero": ints(0), "two": ints(2)},
    )


def test_a_merged_decoder_makes_its_first_call(bench: Workbench) -> None:
    """The Concat stands in a branch."""
    then = onnx.helper.make_graph(
        [node("Concat", "past k", "joined", axis=2)], "then", [], [info("joined", None)]
    )
    other = onnx.helper.make_graph(
        [node("Identity", "k", "alone")], "else", [], [info("alone", None)]
    )
    built = bench.build(merged((then, other)), "merged")

    def call(rows: int, new: int, held: int, cached: bool) -> Call:
        return {
            "ids": np.ones((rows, new), np.int64),
            "past": floats(rows, 1, held, 8),
            "use_cache": np.array([cached]),
        }

    calls = [call(1, 4, 0, False), call(1, 1, 4, True), call(2, 1, 30, True), call(1, 4, 0, True)]
    assert_in_range(bench, built, calls)


def test_no_detections_graphs_without_edges_and_empty_batches_are_answered(
    bench: Workbench,
) -> None:
    boxes = model_of(
        [node("MatMul", "boxes w", "s"), node("Sigmoid", "s", "scores")],
        [info("boxes", ["n", 4])],
        [info("scores", ["n", 2])],
        {"w": floats(4, 2)},
    )
    built = bench.build(boxes, "boxes")
    assert_in_range(bench, built, [{"boxes": floats(size, 4)} for size in (0, 1, 7)])
    edges = model_of(
        [
            node("Gather", "nodes from", "messages"),
            node("Unsqueeze", "to one", "rows"),
            node("ScatterND", "nodes rows messages", "y", reduction="add"),
        ],
        [info("nodes", ["n", 4]), info("from", ["e"], INT64), info("to", ["e"], INT64)],
        [info("y", ["n", 4])],
        {"one": ints(1)},
    )
    built = bench.build(edges, "edges")
    calls = [
        {"nodes": floats(3, 4), "from": ints(), "to": ints()},
        {"nodes": floats(3, 4), "from": ints(0, 2), "to": ints(2, 1)},
        {"nodes": floats(1, 4), "from": ints(0), "to": ints(0)},
    ]
    assert_in_range(bench, built, calls)


def test_size_0_alone_is_refused_where_nothing_would_be_answered(bench: Workbench) -> None:
    graph = model_of([node("Relu", "x", "y")], [info("x", ["batch", 8])], [info("y", ["batch", 8])])
    with pytest.raises(AotcError) as refused:
        bench.build(graph, "nothing", dims={"batch": 0})
    assert (refused.value.code, refused.value.where) == ("AOTC-S035", "dim batch")
    # A cache that is always empty leaves something to answer: such is the prompt's variant.
    nodes, kept, past = WAYS["joined"]
    built = bench.build(cache_after(nodes, kept, past), "prompt", dims={"p": 0})
    assert_in_range(bench, built, [{"past": floats(1, 2, 0, 4), "new": floats(1, 2, 5, 4)}])


# Values are not sizes


def speech() -> onnx.ModelProto:
    """The output is as long as the sum of durations, which `speed` scales."""
    return model_of(
        [
            node("Softplus", "x", "s"),
            node("Mul", "s speed", "m"),
            node("Ceil", "m", "c"),
            node("ReduceSum", "c", "t", keepdims=0),
            node("Cast", "t", "length", to=INT64),
            node("Unsqueeze", "length zero", "shape"),
            node("ReduceMean", "x", "mean", keepdims=1),
            node("Expand", "mean shape", "audio"),
        ],
        [info("x", ["n"]), info("speed", [1])],
        [info("audio", ["samples"])],
        {"zero": ints(0)},
    )


def test_a_number_that_scales_lengths_bounds_no_size(bench: Workbench) -> None:
    built = bench.build(speech(), "speech")
    assert "speed" in built.finding("AOTC-S030")
    calls = [{"x": floats(n), "speed": np.ones(1, np.float32)} for n in (1, 5, 50)]
    assert_in_range(bench, built, calls)


def test_the_users_fixture_is_in_the_range(bench: Workbench, tmp_path: Path) -> None:
    given = {"x": floats(50), "speed": np.full(1, 0.75, np.float32)}
    np.savez(tmp_path / "fifty.npz", **given)
    built = bench.build(speech(), "given", fixtures=tmp_path / "fifty.npz")
    assert "AOTC-S036" not in built.codes()
    assert_in_range(bench, built, [given])


def test_a_fixture_that_alone_runs_at_its_size_is_told(bench: Workbench, tmp_path: Path) -> None:
    """At more than 4 elements only one value passes, which nobody would guess."""
    graph = model_of(
        [
            node("Shape", "x", "n"),
            node("ReduceMax", "key", "most", keepdims=0),
            node("Equal", "most secret", "right"),
            node("Cast", "right", "as_int", to=INT64),
            node("Mul", "as_int many", "allowed"),
            node("Add", "allowed four", "bound"),
            node("Sub", "bound n", "room"),
            node("Concat", "room", "shape", axis=0),
            node("ConstantOfShape", "shape", "zeros"),
            node("ReduceSum", "zeros", "nothing", keepdims=0),
            node("Add", "x nothing", "y"),
        ],
        [info("x", ["n"]), info("key", [1], INT64)],
        [info("y", ["n"])],
        {"secret": np.int64(731), "many": ints(1000), "four": ints(4)},
    )
    np.savez(tmp_path / "key.npz", x=floats(9), key=ints(731))
    built = bench.build(graph, "secret", fixtures=tmp_path / "key.npz")
    inside = built.manifest.domain.dims["n"].accepts(9)
    assert inside != ("AOTC-S036" in built.codes())


def last_of(by: str) -> onnx.ModelProto:
    """Each row's last token: by a pointer, by a length, or by the number of ones of a mask."""
    pointer = {
        "pointer": ([node("Unsqueeze", "given one", "last")], ["b"]),
        "length": (
            [node("Sub", "given one", "less"), node("Unsqueeze", "less one", "last")],
            ["b"],
        ),
        "mask": (
            [
                node("ReduceSum", "given one", "count", keepdims=0),
                node("Sub", "count one", "less"),
                node("Unsqueeze", "less one", "last"),
            ],
            ["b", "t"],
        ),
    }
    nodes, shape = pointer[by]
    return model_of(
        [
            *nodes,
            node("Shape", "hidden", "s"),
            node("Gather", "s first", "rows_count", axis=0),
            node("Range", "zero rows_count step", "rows"),
            node("Unsqueeze", "rows one", "rows_1"),
            node("Concat", "rows_1 last", "at", axis=1),
            node("GatherND", "hidden at", "y"),
        ],
        [info("hidden", ["b", "t", 8]), info("given", shape, INT64)],
        [info("y", ["b", 8])],
        {
            "first": np.int64(0),
            "zero": np.int64(0),
            "step": np.int64(1),
            "one": ints(1),
        },
    )


@pytest.mark.parametrize("by", ["pointer", "length", "mask"])
def test_positions_bound_no_size(bench: Workbench, by: str) -> None:
    built = bench.build(last_of(by), f"last_{by}")

    def call(*lasts: int, t: int) -> Call:
        given = {
            "pointer": ints(*lasts),
            "length": ints(*(last + 1 for last in lasts)),
            "mask": np.array([[at <= last for at in range(t)] for last in lasts], np.int64),
        }
        return {"hidden": floats(len(lasts), t, 8), "given": given[by]}

    assert_in_range(bench, built, [call(5, 0, 3, t=6), call(1, 0, t=2), call(0, t=1)])


def test_lengths_of_a_packed_recurrence_bound_no_size(bench: Workbench) -> None:
    """They are sorted first, as exporters of packed sequences write."""
    hidden = 4
    graph = model_of(
        [
            node("Shape", "lengths", "count"),
            node("TopK", "lengths count", "sorted order"),
            node("Gather", "x order", "by_length"),
            node("Transpose", "by_length", "in_time", perm=[1, 0, 2]),
            node("Cast", "sorted", "sizes", to=TensorProto.INT32),
            node("LSTM", "in_time w r - sizes", "- y", hidden_size=hidden),
        ],
        [info("x", ["batch", "time", 3]), info("lengths", ["batch"], INT64)],
        [info("y", [1, "batch", hidden])],
        {"w": floats(1, 4 * hidden, 3), "r": floats(1, 4 * hidden, hidden)},
    )
    built = bench.build(graph, "packed")
    calls = [
        {"x": floats(len(lengths), max(lengths), 3), "lengths": ints(*lengths)}
        for lengths in ((7,), (7, 3, 5), (2, 7, 1), (60, 1, 2, 33, 44, 5, 6, 59))
    ]
    assert_in_range(bench, built, calls)


# Sizes that real data has


def test_seconds_of_raw_audio_are_in_the_range(bench: Workbench) -> None:
    graph = model_of(
        [
            node("Unsqueeze", "audio one", "a"),
            node("Conv", "a w", "f", strides=[160]),
            node("Relu", "f", "y"),
        ],
        [info("audio", [1, "samples"])],
        [info("y", [1, 8, "frames"])],
        {"w": floats(8, 1, 400) * np.float32(0.05), "one": ints(1)},
    )
    built = bench.build(graph, "audio")
    assert built.manifest.domain.dims["samples"].opt == 16000
    assert_in_range(bench, built, [{"audio": floats(1, n)} for n in (400, 16000, 160000)])


@pytest.mark.parametrize(("dense", "opt"), [(True, 640), (False, 224)])
def test_images_of_640_and_1024_pixels_are_in_the_range(
    bench: Workbench, dense: bool, opt: int
) -> None:
    nodes = [node("Conv", "image w", "c", strides=[32, 32]), node("Relu", "c", "y")]
    shape: list[int | str] = ["n", 8, "rows", "columns"]
    if not dense:
        nodes[1:] = [node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "y")]
        shape = ["n", 8]
    graph = model_of(
        nodes,
        [info("image", ["n", 3, "h", "w_"])],
        [info("y", shape)],
        {"w": floats(8, 3, 32, 32) * np.float32(0.02)},
    )
    built = bench.build(graph, f"images_{dense}")
    assert built.manifest.domain.dims["h"].opt == opt
    calls = [{"image": floats(1, 3, h, w)} for h, w in ((640, 640), (1024, 1024), (640, 1024))]
    assert_in_range(bench, built, calls)


def test_512_tokens_are_in_the_range(bench: Workbench) -> None:
    graph = model_of(
        [
            node("Gather", "table ids", "e"),
            node("Transpose", "e", "t", perm=[0, 2, 1]),
            node("MatMul", "e t", "scores"),
            node("Softmax", "scores", "p", axis=-1),
            node("MatMul", "p e", "y"),
        ],
        [info("ids", ["n", "length"], INT64)],
        [info("y", ["n", "length", 16])],
        [constant("table", floats(100, 16))],
    )
    built = bench.build(graph, "tokens")
    calls = [{"ids": np.ones(shape, np.int64)} for shape in ((1, 512), (8, 512), (1, 7))]
    assert_in_range(bench, built, calls)
