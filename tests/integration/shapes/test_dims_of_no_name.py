"""Models with anonymous dims, built, loaded and called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.spec.codec import decode
from aotc.spec.profile import Profile

BATCH, ROWS, COLUMNS = "image:0.0", "image:0.2", "image:0.3"


def style_network(*names: str) -> onnx.ModelProto:
    """Reflected edges, a convolution, instance norm and upsampling: no two dims need be equal.

    `names`: of the batch, the rows and the columns.
    """
    rng = np.random.default_rng(5)
    constants: dict[str, Any] = {
        "borders": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "down": (rng.normal(size=(4, 3, 3, 3)) / 5).astype(np.float32),
        "scale": np.ones(4, np.float32),
        "bias": np.zeros(4, np.float32),
        "twice": np.array([1, 1, 2, 2], np.float32),
        "up": (rng.normal(size=(3, 4, 3, 3)) / 5).astype(np.float32),
    }
    batch, rows, columns = names
    shape = [batch, 3, rows, columns]
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Pad", ["image:0", "borders"], ["padded"], name="pad", mode="reflect"),
            node("Conv", ["padded", "down"], ["half"], name="down", strides=[2, 2]),
            node("InstanceNormalization", ["half", "scale", "bias"], ["norm"], name="norm"),
            node("Relu", ["norm"], ["bent"], name="relu"),
            node("Resize", ["bent", "", "twice"], ["full"], name="resize", mode="nearest"),
            node("Conv", ["full", "up"], ["styled"], name="up", pads=[1, 1, 1, 1]),
        ],
        "style",
        [helper.make_tensor_value_info("image:0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("styled", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        value_info=[
            helper.make_tensor_value_info("half", TensorProto.FLOAT, [batch, 4, rows, columns])
        ],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def image(*shape: int) -> dict[str, Any]:
    values = np.random.default_rng(7).normal(size=shape)
    return {"image:0": values.astype(np.float32)}


def profile(**fields: Any) -> Profile:
    limits = {"max_size": 64, "max_runs": 120}
    return decode(Profile, {"schema": "aotc.profile/1", "name": "style", "probe": limits, **fields})


def assert_runs(bench: Workbench, built: Built, *shape: int) -> None:
    inputs = image(*shape)
    with bench.load(built) as model:
        found = model.run(inputs)
        assert model.telemetry.to_dict()["out_of_domain"] == 0
    tolerance = tolerance_of(built, built.manifest.variants[0].name)
    assert_agree(plain_answer(plain_session(built.source), inputs), found, tolerance)


@pytest.mark.parametrize("names", [("None",) * 3, ("unk__1", "unk__2", "unk__2"), ("", "?", "-1")])
def test_a_style_network_is_built_with_nothing_stated(
    bench: Workbench, names: tuple[str, str, str]
) -> None:
    built = bench.build(style_network(*names), "-".join(names).replace("?", "q"), profile=profile())
    manifest = built.manifest
    assert manifest.inputs[0].shape == (BATCH, 3, ROWS, COLUMNS)
    assert list(manifest.domain.dims) == [BATCH, ROWS, COLUMNS]
    # The declared output is of no use: its names are not the input's.
    assert "AOTC-S009" not in built.codes()
    assert manifest.domain.relations == ()
    graph = onnx.load(built.payload / manifest.variants[0].model, load_external_data=False).graph
    dims = graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == [BATCH, 3, ROWS, COLUMNS]
    assert_runs(bench, built, 1, 3, 16, 48)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("by-dim", {"dims": {BATCH: 1, ROWS: "16..32:16", COLUMNS: 48}}),
        ("by-size", {"dims": {BATCH: "1", ROWS: "32", COLUMNS: "48"}}),
        (
            "by-profile",
            {
                "profile": profile(
                    inputs={"image:0": {"dtype": "float32", "shape": ["None", 3, "None", "None"]}},
                    dims={BATCH: 1, ROWS: {"buckets": [16, 32]}, COLUMNS: "48..96:16"},
                )
            },
        ),
        (
            "by-relation",
            {
                "profile": profile(
                    relations=[f"wide = {COLUMNS}", f"wide = {ROWS} + 16"],
                    dims={BATCH: 1, ROWS: "16..32:16"},
                )
            },
        ),
    ],
)
def test_each_dim_is_reached_by_its_position(
    bench: Workbench, name: str, options: dict[str, Any]
) -> None:
    built = bench.build(style_network("None", "None", "None"), name, **options)
    assert_runs(bench, built, 1, 3, 32, 48)
    with bench.load(built) as model, pytest.raises(AotcError) as caught:
        model.run(image(2, 3, 32, 48))
    assert (caught.value.code, caught.value.where) == ("AOTC-R004", f"dim {BATCH}")


def test_fixtures_give_each_dim_its_size(bench: Workbench, tmp_path: Path) -> None:
    path = tmp_path / "real.npz"
    np.savez(path, **image(1, 3, 20, 44))
    built = bench.build(
        style_network("None", "None", "None"), "fixtures", profile=profile(), fixtures=path
    )
    tested = {name: dim.tested for name, dim in built.manifest.domain.dims.items()}
    assert 1 in tested[BATCH]
    assert 20 in tested[ROWS]
    assert 44 in tested[COLUMNS]
    assert_runs(bench, built, 1, 3, 20, 44)


def test_the_refusal_of_an_old_name_says_what_to_write(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(style_network("None", "None", "None"), "old", dims={"None": 64})
    error = caught.value
    assert (error.code, error.where) == ("AOTC-S002", "dims.None")
    assert error.what == "'None' is the name of 3 different dims"
    assert error.expected == f"{BATCH}, {ROWS}, {COLUMNS}"
    relation = error.fix.split("equal: ")[1].rstrip(".")
    built = bench.build(
        style_network("None", "None", "None"),
        "mended",
        profile=profile(relations=[relation], dims={"size": 32, BATCH: 1}),
    )
    assert built.manifest.inputs[0].shape == (BATCH, 3, "size", "size")
    assert_runs(bench, built, 1, 3, 32, 32)


def test_an_old_name_that_stands_at_one_dim_is_taken(bench: Workbench) -> None:
    model = style_network("unk__1", "unk__2", "unk__3")
    built = bench.build(model, "counted", dims={"unk__1": 1, "unk__2": "32", "unk__3": "32..64:32"})
    dims = built.manifest.domain.dims
    assert {name: (dim.min, dim.max) for name, dim in dims.items()} == {
        BATCH: (1, 1),
        ROWS: (32, 32),
        COLUMNS: (32, 64),
    }
    assert_runs(bench, built, 1, 3, 32, 64)


def test_dims_by_buckets_and_crops_of_an_old_name(bench: Workbench) -> None:
    model = style_network("unk__1", "unk__2", "unk__3")
    fields = {"dims": {"unk__1": {"buckets": [1, 2, 4], "outside": "pad"}, ROWS: 32, COLUMNS: 32}}
    crops = {"styled": {"crop": {"0": "unk__1"}}}
    built = bench.build(model, "cropped", profile=profile(**fields, outputs=crops))
    assert_runs(bench, built, 3, 3, 32, 32)


def test_a_crop_of_an_old_name_that_stands_twice_is_refused(bench: Workbench) -> None:
    fields = {"dims": {BATCH: {"buckets": [1, 2], "outside": "pad"}}}
    crops = {"styled": {"crop": {"0": "None"}}}
    with pytest.raises(AotcError) as caught:
        bench.build(
            style_network("None", "None", "None"), "crop", profile=profile(**fields, outputs=crops)
        )
    assert (caught.value.code, caught.value.where) == ("AOTC-S002", "outputs.styled.crop")


def test_a_fault_of_the_variants_is_reported_before_one_of_a_crop(bench: Workbench) -> None:
    stages: list[str] = []
    fields = {"dims": {BATCH: {"buckets": [1, 2], "outside": "pad"}}}
    crops = {"styled": {"crop": {"0": "None"}}}
    twice = [{"name": "same"}, {"name": "Same"}]
    with pytest.raises(AotcError) as caught:
        bench.build(
            style_network("None", "None", "None"),
            "twice",
            profile=profile(**fields, outputs=crops, variants=twice),
            progress=stages.append,
        )
    assert caught.value.code == "AOTC-I022"
    assert stages == ["import"]


def test_two_inputs_with_one_counter_may_differ(bench: Workbench) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a/b.c", "x"], ["y"], name="product")],
        "product",
        [
            helper.make_tensor_value_info("a/b.c", TensorProto.FLOAT, ["unk__1", 4]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, "unk__1"]),
            # A dim of the third has the name of a position in the first.
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["a/b.c.0", 2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["unk__1", "unk__1"]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, ["a/b.c.0", 2]),
        ],
    )
    graph.node.append(helper.make_node("Neg", ["z"], ["w"], name="minus"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    built = bench.build(model, "counter", dims={"a/b.c.0": "1..3", "x.1": "5..6", "z.0": 7})
    domain = built.manifest.domain
    assert {name: (dim.min, dim.max) for name, dim in domain.dims.items()} == {
        "a/b.c.0": (1, 3),
        "x.1": (5, 6),
        "a/b.c.0_": (7, 7),
    }
    inputs = built.inputs({"a/b.c.0": 2, "x.1": 6, "a/b.c.0_": 7})
    with bench.load(built) as loaded:
        found = loaded.run(inputs)
    assert_agree(plain_answer(plain_session(built.source), inputs), found, tolerance_of(built))


def test_buffers_are_not_shared_by_names_that_say_nothing(bench: Workbench) -> None:
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Cos", ["a"], ["cos"], name="cos"),
            node("Sin", ["cos"], ["sin"], name="sin"),
            node("ReduceSum", ["sin"], ["sum"], name="sum", keepdims=0),
            node("Add", ["b", "sum"], ["added"], name="add"),
            node("Tanh", ["added"], ["tanh"], name="tanh"),
            node("Neg", ["tanh"], ["y"], name="minus"),
        ],
        "buffers",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["None"]) for name in ("a", "b")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["None"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"a": np.zeros(3, np.float32), "b": np.zeros(2000, np.float32)}
    source = bench.save(model, "buffers")
    # By itself ONNX Runtime believes that the two are of one size.
    with pytest.raises(Exception, match="Shape mismatch attempting to re-use buffer"):
        plain_session(source).run(None, inputs)
    built = bench.build(source, "buffers", dims={"a.0": "1..4", "b.0": "1..2000"})
    assert built.manifest.domain.relations == ()
    with bench.load(built) as loaded:
        (found,) = loaded.run(inputs).values()
    np.testing.assert_allclose(found, -np.tanh(np.full(2000, 3 * np.sin(1.0))), rtol=1e-5)
