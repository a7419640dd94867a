"""Passes, weights and fixture hints, on small graphs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import model_parts
import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph import weights
from aotc.graph.passes.base import Pass, run_passes
from aotc.graph.passes.on_import import ConstantInputs, NameNodes, StripMetadata
from aotc.graph.passes.with_sizes import FixDims
from aotc.sizes.inputs.fixtures import generate
from aotc.sizes.inputs.hints import hints_of
from aotc.sizes.trials import Growth
from aotc.spec.payload import Value

model_of = partial(model_parts.model_of, outputs={"y": None}, opset=17, ir_version=8)


def test_names_become_unique_also_in_subgraphs_and_unique_ones_stay() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["b"], name="same")],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    model = model_of(
        [
            helper.make_node("Relu", ["x"], ["a"], name="same"),
            helper.make_node("Relu", ["a"], ["c"]),
            helper.make_node("If", ["k"], ["y"], then_branch=body, else_branch=body),
        ],
        [info("x", [1]), info("k", [], TensorProto.BOOL)],
    )
    (record,) = run_passes(model, [NameNodes()])
    names = [node.name for node in model.graph.node]
    assert names == ["same", "Relu_0", "If_0"]
    inner = [a.g.node[0].name for a in model.graph.node[2].attribute]
    assert inner == ["same_0", "same_1"]
    assert (record.name, record.nodes_before, record.nodes_after) == ("name-nodes", 3, 3)


def test_metadata_is_stripped_everywhere() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n", doc_string="/home/someone/model.py")
    node.metadata_props.add(key="stack", value="/home/someone")
    model = model_of([node], [info("x", [1])])
    model.graph.input[0].doc_string = "/home/someone"
    model.metadata_props.add(key="path", value="/home/someone")
    run_passes(model, [StripMetadata()])
    assert b"someone" not in model.SerializeToString()


def test_initializers_leave_the_inputs() -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"], name="n")],
        [info("x", [1]), info("w", [1])],
        initializers={"w": np.ones(1, np.float32)},
    )
    model.ir_version = 3
    run_passes(model, [ConstantInputs()])
    assert [value.name for value in model.graph.input] == ["x"]
    assert model.ir_version == 4


def test_dims_are_fixed_by_name_and_by_place() -> None:
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"], name="n")],
        [info("x", ["batch", None])],
    )
    (record,) = run_passes(model, [FixDims(sizes={"batch": 4, "x.1": 7})])
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [4, 7]
    assert record.options == {"sizes": {"batch": 4, "x.1": 7}}


def test_a_pass_that_breaks_its_promise_is_a_bug() -> None:
    class Lazy(Pass):
        name = "lazy"

        def apply(self, model: onnx.ModelProto) -> None:
            pass

        def ensures(self, model: onnx.ModelProto) -> str:
            return "nothing was done"

    with pytest.raises(RuntimeError, match="pass lazy does not ensure: nothing was done"):
        run_passes(model_of([], []), [Lazy()])


def _two_weights(seed: int) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    shared = np.full(600, 3.0, np.float32)
    own = rng.normal(size=700).astype(np.float32)
    return model_of(
        [], initializers={"shared": shared, "own": own, "small": np.ones(2, np.float32)}
    )


def test_tensors_of_two_variants_are_stored_once(tmp_path: Path) -> None:
    models, data, keys = [], [], []
    for index in range(2):
        model = _two_weights(index)
        assert weights.externalize(model, tmp_path, f"{index}.data") == 4096 + 2800
        models.append(model)
        data.append(tmp_path / f"{index}.data")
        keys.append(weights.digests(model, data[-1], [True, True]))
    assert keys[0][0] == keys[1][0]
    assert keys[0][1] != keys[1][1]
    target = tmp_path / "asset"
    target.mkdir()
    placed: dict[str, tuple[str, int]] = {}
    for index, model in enumerate(models):
        weights.place_tensors(
            model,
            data[index],
            keys[index],
            target,
            lambda key, index=index: "both" if key == keys[0][0] else f"only{index}",  # type: ignore[misc]
            placed,
        )
    assert sorted(path.name for path in target.iterdir()) == ["both", "only0", "only1"]
    assert weights.external_locations(models[1]) == ("both", "only1")
    for index, model in enumerate(models):
        onnx.save(model, target / f"{index}.onnx")
        loaded = onnx.load(target / f"{index}.onnx")
        wanted = _two_weights(index)
        for tensor, reference in zip(
            loaded.graph.initializer, wanted.graph.initializer, strict=True
        ):
            np.testing.assert_array_equal(
                numpy_helper.to_array(tensor), numpy_helper.to_array(reference)
            )


def test_ids_stay_within_the_rows_of_the_embedding() -> None:
    model = model_of(
        [
            helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
            helper.make_node("Gather", ["table", "wide"], ["y"]),
        ],
        [info("ids", ["batch", "n"], TensorProto.INT32)],
        initializers={"table": np.zeros((30, 4), np.float32)},
    )
    hints = hints_of(model)
    assert hints == {"ids": {"kind": "index", "high": 30}}
    value = Value(name="ids", dtype="int32", shape=("batch", "n"))
    ids = generate([value], {"batch": 8, "n": 100}, hints, seed=1)["ids"]
    assert ids.shape == (8, 100)
    assert ids.dtype == np.int32
    assert (ids.min(), ids.max()) == (0, 29)


def test_what_is_compared_takes_the_constants() -> None:
    model = model_of(
        [helper.make_node("Equal", ["rate", "known"], ["y"])],
        [info("rate", [], TensorProto.INT64)],
        initializers={"known": np.array(16000, np.int64)},
    )
    hints = hints_of(model)
    value = Value(name="rate", dtype="int64", shape=())
    assert generate([value], {}, hints, seed=1)["rate"] == 16000


def test_masks_are_ones_and_draws_repeat() -> None:
    model = model_of(
        [helper.make_node("Identity", ["attention_mask"], ["y"])],
        [info("attention_mask", ["n"], TensorProto.INT64)],
    )
    assert hints_of(model) == {"attention_mask": {"kind": "ones"}}
    value = Value(name="x", dtype="float16", shape=("n", 3))
    first = generate([value], {"n": 4}, {}, seed=5)["x"]
    np.testing.assert_array_equal(first, generate([value], {"n": 4}, {}, seed=5)["x"])
    assert not np.array_equal(first, generate([value], {"n": 4}, {}, seed=6)["x"])


def test_growth_is_a_parabola_through_the_counted_points() -> None:
    growth = Growth(((1, 1.0), (2, 4.0), (3, 9.0)))
    assert growth.at(10) == pytest.approx(100.0)
    assert Growth(((4, 1.0),)).at(12) == pytest.approx(3.0)
