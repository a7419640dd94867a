"""Inputs and outputs of a float32 model that the profile gives a half-precision type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import openvino_models as small
import pytest
from gpu_models import residual
from half_models import in_half
from made_profiles import profile_with
from model_parts import info
from onnx import TensorProto, helper
from repository import ROOT
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.providers.cuda import CudaBackend
from aotc.spec.profile import Profile

KINDS = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
without_cuda = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)


def types(**dtypes: str) -> dict[str, Any]:
    return {name: {"dtype": dtype} for name, dtype in dtypes.items()}


def on_cpu(inputs: dict[str, Any], outputs: dict[str, Any], **fields: Any) -> Profile:
    dims = {"dims": {"batch": "1..4"}}
    return profile_with("edge", inputs=inputs, outputs=outputs, **{**dims, **fields})


def on_cuda(dtype: str, precision: str, **fields: Any) -> Profile:
    stated = {"inputs": types(x=dtype), "outputs": types(y=dtype)}
    bare: dict[str, Any] = {"budgets": {}, "unproven": "allow", "dims": {"batch": "1..4"}}
    return profile_with("server-cuda", precision=precision, **{**bare, **stated, **fields})


def casts(built: Built, variant: str = "portable") -> list[onnx.NodeProto]:
    return [node for node in built.nodes(variant) if node.op_type == "Cast"]


def dtypes_of(built: Built) -> tuple[list[str], list[str]]:
    return (
        [value.dtype for value in built.manifest.inputs],
        [value.dtype for value in built.manifest.outputs],
    )


@pytest.mark.parametrize("dtype", list(KINDS))
def test_callers_pass_and_get_the_stated_type(bench: Workbench, dtype: str) -> None:
    built = bench.build(
        small.plain(), f"both-{dtype}", profile=on_cpu(types(x=dtype), types(y=dtype))
    )
    assert dtypes_of(built) == ([dtype], [dtype])
    assert built.manifest.inputs[0].shape == ("batch", small.WIDTH)
    (variant,) = built.manifest.variants
    made = next(one for one in variant.passes if one.name == "interface-types")
    assert made.options == {"inputs": {"x": dtype}, "outputs": {"y": dtype}}
    assert made.nodes_after == made.nodes_before + 2
    assert (variant.parity.status, variant.parity.arithmetic) == ("passed", "float16")
    exact = plain_session(built.source)
    with bench.load(built) as model:
        for batch in (1, 3):
            given = built.inputs({"batch": batch})
            assert given["x"].dtype == KINDS[dtype]
            found = model.run(given)["y"]
            expected = plain_answer(exact, {"x": given["x"].astype(np.float32)})["y"]
            assert found.dtype == KINDS[dtype]
            assert_agree(expected, found.astype(np.float32), tolerance_of(built), f"batch {batch}")
        with pytest.raises(AotcError) as refused:
            model.run({"x": np.zeros((1, small.WIDTH), np.float32)})
    assert "float32" in refused.value.found


def test_an_exact_output_keeps_its_tolerance(bench: Workbench) -> None:
    """What the cast of an input loses, the reference loses too."""
    built = bench.build(small.plain(), "input", profile=on_cpu(types(x="float16"), {}))
    assert dtypes_of(built) == (["float16"], ["float32"])
    (variant,) = built.manifest.variants
    assert (variant.parity.status, variant.parity.arithmetic) == ("passed", "float32")


def test_weights_in_a_file_of_their_own(bench: Workbench) -> None:
    path = bench.folder / "external.onnx"
    onnx.save(
        small.plain(128), path, save_as_external_data=True, location="w.bin", size_threshold=64
    )
    built = bench.build(path, "external", profile=on_cpu({}, types(y="float16")))
    assert dtypes_of(built) == (["float32"], ["float16"])


def test_what_subgraphs_read_is_cast_too(bench: Workbench) -> None:
    """Both branches read the input from outside, and the output is read by another node."""

    def branch(op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["x"], [f"{op}_y"], name=op)
        return helper.make_graph([node], op, [], [info(f"{op}_y", ["batch", 4])])

    model = small.model_of(
        [
            helper.make_node(
                "If", ["flag"], ["y"], name="if",
                then_branch=branch("Tanh"), else_branch=branch("Neg"),
            ),
            helper.make_node("Sqrt", ["z"], ["root"], name="root"),
            helper.make_node("Abs", ["y"], ["z"], name="abs"),
        ],
        [info("flag", [], small.BOOL), info("x", ["batch", 4])],
        [info(name, ["batch", 4]) for name in ("y", "z", "root", "c")],
        [small.weight("c", 2, 4)],
    )  # fmt: skip
    model.graph.node.insert(1, model.graph.node.pop(2))
    model.graph.output[3].type.tensor_type.shape.dim[0].dim_value = 2
    halves = types(y="float16", c="float16")
    built = bench.build(model, "branches", profile=on_cpu(types(x="float16"), halves))
    assert dtypes_of(built) == (["bool", "float16"], ["float16", "float32", "float32", "float16"])
    x = np.array([[-1.5, 0, 2, 0.25]], np.float16)
    exact = x.astype(np.float32)
    with bench.load(built) as loaded:
        for flag, expected in ((True, np.tanh(exact)), (False, -exact)):
            found = loaded.run({"flag": np.array(flag), "x": x})
            assert np.allclose(found["y"], expected, atol=1e-3)
            # Rounded for the caller alone: inside it is float32.
            assert np.allclose(found["root"], np.sqrt(np.abs(expected)), atol=1e-6)


def test_a_model_in_half_already_is_left(bench: Workbench) -> None:
    halves = types(x="float16"), types(y="float16")
    built = bench.build(in_half(small.plain()), "half-already", profile=on_cpu(*halves))
    (variant,) = built.manifest.variants
    assert "interface-types" not in [one.name for one in variant.passes]


def labelled() -> onnx.ModelProto:
    """Sums of int64, and a float32 input that is an output too."""
    return small.model_of(
        [helper.make_node("Add", ["n", "n"], ["twice"], name="add")],
        [info("n", ["batch"], small.INT64), info("x", ["batch"])],
        [info("twice", ["batch"], small.INT64), info("x", ["batch"])],
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "where"),
    [
        (types(n="float16"), {}, "inputs.n.dtype"),
        ({}, types(twice="bfloat16"), "outputs.twice.dtype"),
        (types(x="float64"), {}, "inputs.x.dtype"),
        ({}, types(x="int8"), "outputs.x.dtype"),
        ({}, types(missing="float16"), "outputs.missing"),
        (types(x="float16"), {}, "outputs.x.dtype"),
        (types(x="float16"), types(x="bfloat16"), "outputs.x.dtype"),
    ],
)
def test_other_conversions_are_refused(
    bench: Workbench, inputs: dict[str, Any], outputs: dict[str, Any], where: str
) -> None:
    with pytest.raises(AotcError) as refused:
        bench.build(labelled(), "refused", profile=on_cpu(inputs, outputs))
    assert (refused.value.code, refused.value.where) == ("AOTC-S002", where)


def test_an_operator_set_without_the_cast_is_refused(bench: Workbench) -> None:
    older = small.plain()
    older.opset_import[0].version = 12
    with pytest.raises(AotcError) as refused:
        bench.build(older, "older", profile=on_cpu(types(x="bfloat16"), {}))
    assert (refused.value.code, refused.value.where) == ("AOTC-S002", "inputs.x.dtype")


def test_an_input_that_is_an_output_has_one_type(bench: Workbench) -> None:
    halves = types(x="float16")
    built = bench.build(labelled(), "passed-on", profile=on_cpu(halves, halves))
    assert dtypes_of(built) == (["int64", "float16"], ["int64", "float16"])


@without_cuda
@pytest.mark.parametrize("dtype", list(KINDS))
def test_a_half_variant_with_a_half_interface_has_no_casts(bench: Workbench, dtype: str) -> None:
    profile = on_cuda(dtype, dtype, variants=[{"name": "portable"}, HOST])
    built = bench.build(small.plain(256), f"cuda-{dtype}", profile=profile)
    assert dtypes_of(built) == ([dtype], [dtype])
    assert not casts(built)
    kinds = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    graph = onnx.load(
        built.payload / built.manifest.variants[0].model, load_external_data=False
    ).graph
    assert {tensor.data_type for tensor in graph.initializer} < kinds
    # The other variant computes in float32 behind the same interface.
    assert len(casts(built, "host")) == 2
    by_name = {item.name: item.parity for item in built.manifest.variants}
    assert by_name["portable"].arithmetic == dtype
    assert by_name["host"].status == "passed"


HOST = {"name": "host", "providers": ["cpu"], "precision": "keep"}


@without_cuda
def test_casts_between_the_two_halves_stay(bench: Workbench) -> None:
    built = bench.build(small.plain(256), "mixed", profile=on_cuda("bfloat16", "float16"))
    assert [node.attribute[0].i for node in casts(built)] == [
        TensorProto.FLOAT16, TensorProto.BFLOAT16,
    ]  # fmt: skip


@without_cuda
def test_a_float32_variant_casts_at_the_boundary(bench: Workbench) -> None:
    built = bench.build(small.plain(256), "exact", profile=on_cuda("float16", "keep"))
    assert len(casts(built)) == 2


@without_cuda
def test_convolutions_have_no_casts(bench: Workbench) -> None:
    model = residual(18, np.float32)
    (given,), (made,) = model.graph.input, model.graph.output
    stated = {
        "inputs": types(**{given.name: "float16"}),
        "outputs": types(**{made.name: "float16"}),
    }
    built = bench.build(model, "residual", profile=on_cuda("float16", "float16", **stated))
    assert not casts(built)


def test_a_pattern_is_for_all_tensors_of_float32_that_it_matches(bench: Workbench) -> None:
    """A name of its own goes first, and integers stay what they are."""
    model = small.model_of(
        [
            helper.make_node("Gather", ["x_table", "x_ids"], ["y_row"], name="gather"),
            helper.make_node("Abs", ["x_other"], ["y_other"], name="abs"),
        ],
        [
            info("x_table", [6, 4]),
            info("x_ids", [2], TensorProto.INT64),
            info("x_other", ["batch", 4]),
        ],
        [info("y_row", [2, 4]), info("y_other", ["batch", 4])],
        [],
    )
    inputs = {"x_*": {"dtype": "float16"}, "x_other": {"dtype": "bfloat16"}}
    built = bench.build(model, "pattern", profile=on_cpu(inputs, {"*": {"dtype": "float16"}}))
    assert dtypes_of(built) == (["float16", "int64", "bfloat16"], ["float16", "float16"])


def test_a_pattern_is_for_outputs_that_are_cropped(bench: Workbench) -> None:
    half = {"*": {"dtype": "float16"}}
    dims = {"batch": {"buckets": [4], "outside": "pad"}}
    built = bench.build(small.plain(), "padded-pattern", profile=on_cpu(half, half, dims=dims))
    assert dtypes_of(built) == (["float16"], ["float16"])
    padding = built.manifest.padding
    assert padding is not None and [crop.dims for crop in padding.crops] == [("batch",)]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"z*": {"dtype": "float16"}}, {}),
        ({}, {"z*": {"dtype": "float16"}}),
        ({"x*": {"dtype": "float32"}}, {}),
        ({"x*": {"dtype": "float16", "pad": {"value": 1}}}, {}),
        ({}, {"*": {"crop": {"0": "batch"}}}),
    ],
    ids=["no input", "no output", "float32", "padding", "crop"],
)
def test_a_pattern_that_says_something_else_is_refused(
    bench: Workbench, inputs: dict[str, Any], outputs: dict[str, Any]
) -> None:
    with pytest.raises(AotcError) as refused:
        bench.build(small.plain(), "no-pattern", profile=on_cpu(inputs, outputs))
    assert refused.value.code == "AOTC-S002"


LENGTHS = {"past_sequence_length": 32, "total_sequence_length": 32}


@without_cuda
@pytest.mark.parametrize(
    ("decoder", "sizes"),
    [
        ("genai_fp32", {"batch_size": 1, "sequence_length": 1, **LENGTHS}),
        ("llama_static", {"sequence": 1}),
    ],
)
def test_caches_of_a_half_precision_decoder_stay_in_place(
    bench: Workbench, decoder: str, sizes: dict[str, int]
) -> None:
    """No cast is left between them and what writes them, and one size is captured."""
    built = bench.build(
        ROOT / "tests" / "data" / "exports" / f"{decoder}.onnx",
        f"half-{decoder}",
        profile=profile_with(
            "server-cuda",
            precision="float16",
            inputs={"past_key_values.*": {"dtype": "float16"}},
            outputs={"*": {"dtype": "float16"}},
            dims=sizes,
            unproven="allow",
            budgets={},
        ),
    )
    variant = built.manifest.variants[0]
    assert not [cast for cast in casts(built) if cast.output[0] in variant.in_place.values()]
    assert len(variant.in_place) == 4
    assert variant.cuda_graphs is not None
    (captured,) = variant.cuda_graphs.sizes
    assert sizes.items() <= captured.items()
