"""Models of operator sets before 13 in int8: raised, or told why they were not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from model_parts import info, model_of
from onnx import helper
from workbench import Built, Workbench, plain_answer, plain_session

from aotc.base.errors import AotcError
from aotc.graph.passes.convert_opset import opset_of
from aotc.pipeline.integers import raised
from aotc.session.inference import with_types
from aotc.spec.profile import Profile

Nodes = list[onnx.NodeProto]
node = helper.make_node


def weights(*shape: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.random.default_rng(len(shape)).standard_normal(shape)
    return (found * 0.1).astype(np.float32)


def network(opset: int, ir_version: int) -> onnx.ModelProto:
    """Convolutions with a normalization, a Clip, an Upsample or Resize, a Dropout and a product."""
    constants = {
        "w": weights(16, 3, 3, 3),
        **{name: np.abs(weights(16)) + 1 for name in ("s", "b", "m", "v")},
        "u": weights(16, 16, 3, 3),
        "p": weights(16, 10),
    }
    nodes = [node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4)]
    nodes.append(node("BatchNormalization", ["c", *"sbmv"], ["n"], "norm"))
    if opset < 11:
        nodes.append(node("Clip", ["n"], ["r"], "clip", min=0.0, max=6.0))
    else:
        constants |= {"low": np.float32(0), "high": np.float32(6)}
        nodes.append(node("Clip", ["n", "low", "high"], ["r"], "clip"))
    sizes = [1.0, 1.0, 2.0, 2.0]
    if opset < 9:
        nodes.append(node("Upsample", ["r"], ["l"], "larger", mode="linear", scales=sizes))
    else:
        constants["sizes"] = np.array(sizes, np.float32)
        read = ["r", "sizes"]
        if opset > 10:
            constants["roi"] = np.zeros(0, np.float32)
            read = ["r", "roi", "sizes"]
        operator = "Upsample" if opset == 9 else "Resize"
        nodes.append(node(operator, read, ["l"], "larger", mode="linear"))
    nodes += [
        node("Dropout", ["l"], ["d"], "drop"),
        node("Conv", ["d", "u"], ["e"], "second", pads=[1] * 4),
        node("GlobalAveragePool", ["e"], ["g"], "mean"),
        node("Flatten", ["g"], ["f"], "flat"),
        node("MatMul", ["f", "p"], ["y"], "product"),
    ]
    inputs = [info("x", ["n", 3, 16, 16])]
    if ir_version < 4:
        # Every initializer was an input as well.
        inputs += [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
            )
            for name, array in constants.items()
        ]
    return model_of(nodes, inputs, {"y": ["n", 10]}, constants, opset=opset, ir_version=ir_version)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.npz"
    samples = np.random.default_rng(7).uniform(-1, 1, (16, 3, 16, 16)).astype(np.float32)
    np.savez(path, x=samples)
    return path


def int8(**fields: Any) -> Profile:
    stated = {"precision": "int8", "dims": {"n": "1..4"}, "parity": {"random_shapes": 0}}
    return profile_with("edge", **{**stated, **fields})


def opset_in(built: Built) -> int:
    model = onnx.load(built.payload / built.manifest.variants[0].model, load_external_data=False)
    return opset_of(model)


def code(error: AotcError) -> tuple[str, str]:
    return error.code, error.found


@pytest.mark.parametrize(
    ("opset", "ir_version"), [(7, 3), (8, 4), (9, 3), (10, 5), (11, 6), (12, 7)]
)
def test_a_network_of_an_older_opset_is_quantized(
    opset: int, ir_version: int, data: Path, tmp_path: Path
) -> None:
    bench = Workbench.at(tmp_path)
    built = bench.build(
        network(opset, ir_version), "older", profile=int8(), calibration=data, embed_fixtures=True
    )
    (change,) = (item for item in built.manifest.variants[0].passes if item.name == "quantize")
    assert change.options["per_channel"] is True
    assert change.matched["quantized"] >= 2
    assert built.finding("AOTC-O005") == (
        f"variant portable: opset {opset} was converted to 13, at which integers are written"
    )
    assert opset_in(built) >= 13
    with np.load(data) as samples:
        inputs = {"x": samples["x"][:2]}
    expected = plain_answer(plain_session(built.source), inputs)["y"]
    with bench.load(built) as model:
        found = model.run(inputs)["y"]
    assert isinstance(found, np.ndarray)
    assert 0 < np.abs(expected - found).max() < 0.1 * np.abs(expected).max()


def test_the_profile_may_keep_the_opset(data: Path, tmp_path: Path) -> None:
    bench = Workbench.at(tmp_path)
    kept = int8(opset="keep")
    built = bench.build(network(11, 6), "kept", profile=kept, calibration=data)
    assert opset_in(built) == 11
    assert not {"AOTC-O005", "AOTC-N072"}.intersection(built.codes())
    with pytest.raises(AotcError) as caught:
        bench.build(network(9, 4), "older", profile=kept, calibration=data)
    assert code(caught.value) == ("AOTC-N071", "opset 9: the profile says 'opset: keep'")
    assert caught.value.fix == (
        "Leave 'opset: keep' out of the profile, or export the model at opset 13 or later."
    )


def resized(opset: int) -> onnx.ModelProto:
    """Larger along one axis and smaller along the other, for which a later Resize has no word."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        node("Resize", ["c", "sizes"], ["l"], "resize"),
        node("Conv", ["l", "u"], ["y"], "second", pads=[1] * 4),
    ]
    constants = {
        "w": weights(16, 3, 3, 3),
        "u": weights(8, 16, 3, 3),
        "sizes": np.array([1, 1, 2, 0.5], np.float32),
    }
    return model_of(
        nodes, {"x": ["n", 3, 16, 16]}, {"y": ["n", 8, 32, 8]}, constants, opset=opset, ir_version=5
    )


def test_what_stays_at_its_opset_has_one_scale_for_all_channels(data: Path, tmp_path: Path) -> None:
    bench = Workbench.at(tmp_path)
    built = bench.build(resized(10), "resized", profile=int8(), calibration=data)
    assert built.finding("AOTC-N072") == (
        "variant portable: weights have one scale for all channels at opset 10, which was not "
        "raised: resize: onnx cannot convert this Resize from version 10 to 13"
    )
    (change,) = (item for item in built.manifest.variants[0].passes if item.name == "quantize")
    assert change.options["per_channel"] is False


def test_what_can_neither_be_raised_nor_quantized_is_refused(data: Path, tmp_path: Path) -> None:
    """Normalized by pixel, which a later BatchNormalization does not do."""
    constants = {
        **{name: np.abs(weights(3, 16, 16)) + 1 for name in ("s", "b", "m", "v")},
        "w": weights(16, 3, 3, 3),
    }
    nodes = [
        node("BatchNormalization", ["x", *"sbmv"], ["c"], "norm", spatial=0),
        node("Conv", ["c", "w"], ["y"], "conv", pads=[1] * 4),
    ]
    model = model_of(
        nodes,
        {"x": ["n", 3, 16, 16]},
        {"y": ["n", 16, 16, 16]},
        constants,
        opset=8,
        ir_version=4,
    )
    with pytest.raises(AotcError) as caught:
        Workbench.at(tmp_path).build(model, "pixels", profile=int8(), calibration=data)
    assert code(caught.value) == (
        "AOTC-N071",
        "opset 8: norm: onnx cannot convert this BatchNormalization from version 7 to 9",
    )
    assert caught.value.fix.startswith("Export the model at opset 13 or later")


def test_a_converted_graph_that_answers_otherwise_is_not_taken(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ONNX's own converter does with a Resize, whose coordinates it leaves at the default."""
    from aotc.graph.passes import convert_opset

    monkeypatch.setattr(convert_opset, "_COORDINATES_SINCE", 0)
    model = with_types(network(9, 4), tmp_path)
    np.save(tmp_path / "x.npy", np.load(data)["x"][:1])
    made, why = raised(model, tmp_path, [{"x": str(tmp_path / "x.npy")}])
    assert (made is model, opset_of(made)) == (True, 9)
    assert why.startswith("at opset 13 output 'y' differs: error ")
