"""Variants in int8 and int4: made from a float32 model, proven, verified, loaded and run."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from onnx import TensorProto, helper, numpy_helper
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench, plain_answer, plain_session

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.host.probe import probe
from aotc.spec.codec import encode
from aotc.spec.precision import ParitySpec, QuantizationSpec
from aotc.spec.profile import Profile
from aotc.spec.variant import PassRecord
from aotc.trust.provenance import libraries

EXPORTS = Path("tests/data/exports").resolve()
DIGITS = Path("examples/digits").resolve()
EXACT = bool(exact_feature(probe(gpus=False).isa))
# Of the largest answer; the weights of the exports are random.
LIMITS = {"int8": 0.1, "int4": 0.2}


def int8(**fields: Any) -> Profile:
    # Answers of random weights hardly depend on the inputs: what they vary by is soon lost.
    loose = {
        name: {**encode(getattr(ParitySpec(), name)), "max_slice": 10.0}
        for name in ("int8", "int4")
    }
    stated = {"precision": "int8", "parity": {"random_shapes": 0, **loose}}
    return profile_with("edge", **{**stated, **fields})


def change_of(built: Built) -> PassRecord:
    (change,) = (item for item in built.manifest.variants[0].passes if item.name == "quantize")
    return change


def assert_answers(bench: Workbench, built: Built, inputs: dict[str, Any], limit: float) -> None:
    """The artifact is verified, loaded and run; its answers are the original's, within `limit`."""
    expected = plain_answer(plain_session(built.source), inputs)
    with bench.load(built) as model:
        found = model.run(inputs)
    for name, values in expected.items():
        if values.dtype != np.float32 or not values.size:
            continue
        off = np.abs(values - found[name]).max() / np.abs(values).max()
        assert 0 < off < limit, name


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Eight of the held-out digits as fixtures, and a hundred to calibrate with."""
    folder = tmp_path_factory.mktemp("images")
    every = np.load(DIGITS / "heldout.npz")["image"]
    np.savez(folder / "given.npz", image=every[:8])
    np.savez(folder / "calibration.npz", image=every[100:200])
    return folder / "given.npz", folder / "calibration.npz"


@pytest.fixture(scope="module")
def digits(bench: Workbench, images: tuple[Path, Path]) -> Built:
    given, calibration = images
    model = DIGITS / "digits.onnx"
    return bench.build(model, "digits", profile=int8(), fixtures=given, calibration=calibration)


def test_digits_are_quantized_statically_where_there_is_data(digits: Built) -> None:
    change = change_of(digits)
    assert change.options == {
        "activations": "uint8",
        "bits": 8,
        "form": "static",
        "method": "auto",
        "per_channel": True,
        # Without VNNI, sums of products with 8 bits do not fit.
        "reduce_range": platform.machine() == "x86_64",
        "samples": 100,
        "weights": "int8",
    }
    # Two of three convolutions with what follows each, and the product.
    assert change.matched["quantized"] >= 6
    # From float32 once, and to float32 for the product's answer by itself.
    assert change.matched["boundaries"] == 1
    # Of one channel, integers have no kernel of their own.
    assert change.matched["kept: island"] == 1
    products = digits.manifest.variants[0].computed_products
    assert products is not None
    assert (products.quantized, products.in_float) == (3, 1)
    # As the model names it, and not ONNX Runtime's blocks of channels.
    assert products.in_words() == "quantized 3 of 4 products; 1 runs in float: node_conv2d"
    assert digits.manifest.variants[0].parity.arithmetic == "int8"


def test_digits_are_told_as_before(bench: Workbench, digits: Built) -> None:
    held = np.load(DIGITS / "heldout.npz")
    expected = plain_answer(plain_session(digits.source), {"image": held["image"]})["logits"]
    with bench.load(digits) as model:
        found = model.run({"image": held["image"]})["logits"]
    right = [float((answer.argmax(1) == held["label"]).mean()) for answer in (expected, found)]
    assert right[0] - right[1] <= 0.005
    assert right[0] > 0.9


def test_one_form_means_the_same_on_every_cpu(digits: Built) -> None:
    (variant,) = digits.manifest.variants
    if platform.machine() == "x86_64":
        assert variant.integer_products is not None
        assert variant.integer_products.form == "seven-bits"
    operators = {node.op_type for node in digits.nodes()}
    assert "QLinearConv" in operators


def test_with_8_bits_there_is_a_companion_for_vnni(
    bench: Workbench, images: tuple[Path, Path]
) -> None:
    given, calibration = images
    profile = replace(int8(), quantization=QuantizationSpec(reduce_range=False))
    built = bench.build(
        DIGITS / "digits.onnx", "eight", profile=profile, fixtures=given, calibration=calibration
    )
    names = [variant.name for variant in built.manifest.variants]
    assert names == (["portable", "portable-vnni"] if EXACT else ["portable"])
    assert "same-sign-weights" in [item.name for item in built.manifest.variants[0].passes]


def test_two_builds_have_equal_bytes(
    bench: Workbench, digits: Built, images: tuple[Path, Path]
) -> None:
    given, calibration = images
    again = bench.build(
        digits.source, "digits-again", profile=int8(), fixtures=given, calibration=calibration
    )
    files = sorted(p.relative_to(digits.payload) for p in digits.payload.rglob("*") if p.is_file())
    assert files
    different = [
        str(name)
        for name in files
        if (digits.payload / name).read_bytes() != (again.payload / name).read_bytes()
    ]
    # The name of the artifact stands in the manifest.
    assert different in ([], ["aotc.json"])


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_exports_of_transformers(bench: Workbench, name: str, precision: str) -> None:
    built = bench.build(
        EXPORTS / f"{name}.onnx", f"{name}-{precision}", profile=int8(precision=precision)
    )
    change = change_of(built)
    assert change.options["form"] == {"int8": "dynamic", "int4": "weights"}[precision]
    assert change.matched["quantized"] >= 9
    operators = {node.op_type for node in built.nodes()}
    assert ("MatMulNBits" in operators) == (precision == "int4")
    used = metadata.version("onnx-ir") if precision == "int4" else ""
    assert built.manifest.toolchain.onnx_ir == used
    named = {library.name.replace("_", "-") for library in libraries(built.manifest)}
    assert ("onnx-ir" in named) == (precision == "int4")
    expected = {"batch": 2, "sequence": 16, "total": 24, "past_sequence": 8}
    assert_answers(bench, built, built.inputs(expected), LIMITS[precision])


def test_a_convolutional_export_with_data(bench: Workbench, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    images = generator.standard_normal((12, 3, 64, 64)).astype(np.float32)
    np.savez(tmp_path / "images.npz", pixel_values=images)
    np.savez(tmp_path / "given.npz", pixel_values=images[:2])
    built = bench.build(
        EXPORTS / "resnet50.onnx",
        "resnet50",
        profile=int8(),
        fixtures=tmp_path / "given.npz",
        calibration=tmp_path / "images.npz",
    )
    assert change_of(built).options["form"] == "static"
    assert_answers(bench, built, {"pixel_values": images[4:6]}, LIMITS["int8"])


def wide(nodes: list[onnx.NodeProto], weights: dict[str, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 256])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def matrix(seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal((256, 256)) / 16
    return values.astype(np.float32)


def looping() -> onnx.ModelProto:
    """A Loop with a product in its body."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["p"], "inner"),
            helper.make_node("Tanh", ["p"], ["next"], "squash"),
            helper.make_node("Identity", ["going"], ["go"], "on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("at", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(matrix(), "w")],
    )
    nodes = [helper.make_node("Loop", ["count", "yes", "x"], ["y"], "loop", body=body)]
    return wide(nodes, {"count": np.int64(1), "yes": np.bool_(True)})


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_bodies_of_loops(bench: Workbench, precision: str) -> None:
    # Of a product of 256 random numbers, the largest error of 4 bits is about 0.2.
    loose = {"random_shapes": 0, "int4": {"atol": 0.02, "rtol": 0.4, "min_cosine": 0.95}}
    profile = int8(precision=precision, parity=loose)
    built = bench.build(looping(), f"loop-{precision}", profile=profile)
    assert change_of(built).matched["quantized"] == 1
    assert_answers(bench, built, built.inputs({"batch": 3}), 2 * LIMITS[precision])
    assert_small(built, 0.6 if EXACT and precision == "int8" else 0.35)


def assert_small(built: Built, share: float) -> None:
    """All weights of the payload take at most that share of the model's."""
    size = sum(path.stat().st_size for path in built.payload.rglob("*") if path.suffix == ".bin")
    size = size or sum(path.stat().st_size for path in built.payload.rglob("*.onnx"))
    assert 0 < size <= share * built.source.stat().st_size


@needs_models
def test_branches_of_a_model_that_nobody_here_wrote(bench: Workbench) -> None:
    built = bench.build(MODELS / "silero_vad_v6.onnx", "silero", profile=int8())
    change = change_of(built)
    # The recurrences of both branches; convolutions stay.
    assert change.matched["in each call"] >= 2
    assert all(variant.parity.status == "passed" for variant in built.manifest.variants)


def two_products() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
        helper.make_node("Relu", ["p"], ["r"], "between"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    return wide(nodes, {"w": matrix(1), "v": matrix(2)})


def test_the_profile_keeps_nodes_in_float32(bench: Workbench) -> None:
    built = bench.build(two_products(), "kept", profile=int8(keep_float32=["sec*"]))
    change = change_of(built)
    assert change.kept == ("second",)
    assert change.matched["kept: profile"] == 1
    assert change.matched["quantized"] == 1


def test_a_name_of_no_node_is_refused(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(two_products(), "unknown", profile=int8(keep_float32=["secnd"]))
    error = caught.value
    assert (error.code, error.found) == ("AOTC-N016", "secnd")
    assert error.what == "no node has the name 'secnd'"
    assert error.where == "variant portable: keep_float32"
    assert error.expected == "the name of a node, such as second"


def test_nothing_to_quantize_is_refused(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(two_products(), "all-kept", profile=int8(keep_float32=["*"]))
    error = caught.value
    assert (error.code, error.found) == ("AOTC-N015", "2 kept: profile")
    assert error.what == "no node can be quantized in the form dynamic"


def test_a_quantized_model_is_left_as_it_is(bench: Workbench) -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantize"),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"], "product"),
        helper.make_node("Cast", ["i"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"], "scale"),
    ]
    integers = (matrix() * 200).clip(-60, 60).astype(np.int8)
    built = bench.build(wide(nodes, {"w": integers}), "integers", profile=int8())
    assert "the model is quantized, and is left unchanged" in built.finding("AOTC-N014")
    assert built.manifest.variants[0].precision == "keep"


@pytest.mark.parametrize(
    ("quantization", "what"),
    [
        (
            {"operators": ["Softmax"]},
            "Softmax cannot be quantized in the form dynamic",
        ),
        ({"activations": "int8"}, "ONNX quantizes activations to uint8 in each call"),
    ],
)
def test_statements_that_do_not_fit_the_form(
    bench: Workbench, quantization: dict[str, Any], what: str
) -> None:
    profile = int8(quantization={"form": "dynamic", **quantization})
    with pytest.raises(AotcError) as caught:
        bench.build(two_products(), "unfit", profile=profile)
    assert (caught.value.code, caught.value.what) == ("AOTC-N017", what)


def test_weights_that_are_no_numbers_stay(bench: Workbench) -> None:
    bad = matrix()
    bad[0, 0] = np.nan
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
        helper.make_node("MatMul", ["p", "v"], ["y"], "nan"),
    ]
    built = bench.build(
        wide(nodes, {"w": matrix(1), "v": bad}), "nan", profile=int8(precision="int4")
    )
    assert change_of(built).kept == ("nan",)


def test_samples_that_are_repeated_are_not_judged_by_slices(
    bench: Workbench, tmp_path: Path
) -> None:
    """A sequence comes first, so that one sample is repeated along the batch: one value a slice."""
    hidden = 64
    generator = np.random.default_rng(11)

    def drawn(*shape: int) -> Any:
        return (generator.standard_normal(shape) * 0.1).astype(np.float32)

    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "b"], ["all", "h"], "gru", hidden_size=hidden),
        helper.make_node("Squeeze", ["all", "axes"], ["s"], "squeeze"),
        helper.make_node("MatMul", ["s", "v"], ["y"], "product"),
    ]
    constants = {
        "w": drawn(1, 3 * hidden, 64),
        "r": drawn(1, 3 * hidden, hidden),
        "b": drawn(1, 6 * hidden),
        "v": drawn(hidden, 300),
        "axes": np.array([1], np.int64),
    }
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["t", None, 300])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for number in range(8):
        folder = tmp_path / "samples" / f"test_data_set_{number}"
        folder.mkdir(parents=True)
        sample = generator.standard_normal((10, 1, 64)).astype(np.float32)
        tensor = numpy_helper.from_array(sample, "x")
        (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    built = bench.build(model, "recurrent", profile=int8(), calibration=tmp_path / "samples")
    assert built.manifest.variants[0].parity.status == "passed"
