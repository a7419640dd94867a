"""Nine real architectures from the onnx package, with weights made by ConstantOfShape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import numpy_helper
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import verify

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
QUICK = ("inception_v1", "resnet50", "shufflenet", "squeezenet")
# Hundreds of megabytes of weights, or as the quick ones in more nodes.
SLOW = ("bvlc_alexnet", "densenet121", "inception_v2", "vgg19", "zfnet512")
NETWORKS = (*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW))


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def shape_of(built: Built) -> tuple[int, ...]:
    (value,) = built.manifest.inputs
    return tuple(size for size in value.shape or () if isinstance(size, int))


def assert_like_the_plain_session(bench: Workbench, built: Built) -> None:
    (value,) = built.manifest.inputs
    image = np.random.default_rng(5).normal(size=shape_of(built)).astype(np.float32)
    expected = plain_answer(plain_session(built.source), {value.name: image})
    with bench.load(built) as model:
        assert model.report.fixtures == len(built.manifest.fixtures) > 0
        found = model.run({value.name: image})
    assert_agree(expected, found, tolerance_of(built), built.manifest.name)


def test_all_networks_that_ship_are_here() -> None:
    assert sorted(path.stem for path in LIGHT.glob("*.onnx")) == sorted(
        f"light_{name}" for name in (*QUICK, *SLOW)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_built_verified_and_run(bench: Workbench, name: str) -> None:
    path = LIGHT / f"light_{name}.onnx"
    built = bench.build(path, name, profile="edge")
    assert verify(built.path, key=bench.public).verdict == "optimal"
    source = built.manifest.source
    assert source.size == path.stat().st_size
    assert source.op_types["ConstantOfShape"] > 0
    assert built.manifest.domain.dims == {}
    # Its weights are folded once, at build time.
    assert "ConstantOfShape" not in {node.op_type for node in built.nodes()}
    assert_like_the_plain_session(bench, built)
    data = (LIGHT / f"light_{name}_output_0.pb").read_bytes()
    shipped = numpy_helper.to_array(onnx.TensorProto.FromString(data))
    (value,) = built.manifest.inputs
    with bench.load(built) as model:
        # The shipped network does not depend on the image: all weights of a layer are equal.
        (found,) = model.run({value.name: np.ones(shape_of(built), np.float32)}).values()
    np.testing.assert_allclose(found, shipped, rtol=1e-3, atol=1e-7)


def with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with weights that differ, so that its answer depends on the image.

    It returns logits: after so many layers Softmax would leave only one class.
    """
    rng = np.random.default_rng(11)
    shapes = {
        tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer
    }
    kept = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            continue
        shape = shapes[node.input[0]]
        if len(shape) > 1:
            weights = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape)
        else:
            # Scale, shift, mean or variance of a normalization: positive, near one.
            weights = rng.uniform(0.5, 1.5, shape)
        model.graph.initializer.append(
            numpy_helper.from_array(weights.astype(np.float32), node.output[0])
        )
    if kept[-1].op_type == "Softmax":
        model.graph.output[0].name = kept.pop().input[0]
        model.graph.output[0].type.tensor_type.ClearField("shape")
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.ir_version = max(model.ir_version, 4)
    return model


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_weights_that_differ(bench: Workbench, name: str) -> None:
    model = with_random_weights(onnx.load(LIGHT / f"light_{name}.onnx"))
    built = bench.build(model, name, profile="server-cpu")
    (value,) = built.manifest.inputs
    rng = np.random.default_rng(5)
    images = [rng.normal(size=shape_of(built)).astype(np.float32) for _ in range(2)]
    session = plain_session(built.source)
    answers = [plain_answer(session, {value.name: image}) for image in images]
    (one,), (other,) = (answer.values() for answer in answers)
    assert not np.allclose(one, other, rtol=0.1)
    for variant in ("portable", "native"):
        with bench.load(built, variant) as loaded:
            for image, answer in zip(images, answers, strict=True):
                found = loaded.run({value.name: image})
                assert_agree(answer, found, tolerance_of(built, variant), name)
