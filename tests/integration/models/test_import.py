"""Models as exporters write them: every form is built, run and compared, or refused by code."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import model_parts
import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper
from refusals import refusal
from shared_workers import build
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.spec.json import strict_json
from aotc.spec.payload import Value
from aotc.trust.gate import verify

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
BOOL, HALF = TensorProto.BOOL, TensorProto.FLOAT16

constant = partial(model_parts.constant, dtype=np.float32)
model_of = partial(model_parts.model_of, opset=17, ir_version=9)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def random_tensor(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
    rng = np.random.default_rng(len(name))
    return constant(name, rng.normal(size=shape))


def assert_works(bench: Workbench, built: Built, *calls: dict[str, Any]) -> None:
    """The artifact answers `calls`, and its smallest and largest sizes, as the plain session."""
    domain = built.manifest.domain
    corners = [built.inputs(domain.corner(which)) for which in ("min", "max")]
    session = plain_session(built.source)
    with bench.load(built) as model:
        for inputs in (*calls, *corners):
            expected = plain_answer(session, inputs)
            assert_agree(expected, model.run(inputs), tolerance_of(built))


def refused(bench: Workbench, model: onnx.ModelProto, code: str, **options: Any) -> AotcError:
    error = refusal(bench.build, model, "refused", **options)
    assert error.code == code, error
    assert error.exit_status == 3
    assert sorted(path.name for path in bench.folder.iterdir()) == [
        "refused.onnx",
        "release.pem",
        "release.pub",
    ]
    return error


# -- external data


def layers() -> onnx.ModelProto:
    return model_of(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
            helper.make_node("Relu", ["h"], ["r"], name="bend"),
            helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], name="second"),
        ],
        [info("x", ["batch", 48])],
        [info("y", ["batch", 16])],
        [
            random_tensor("w1", (48, 96)),
            random_tensor("b1", (96,)),
            random_tensor("w2", (96, 16)),
            random_tensor("b2", (16,)),
        ],
    )


@pytest.mark.parametrize("files", [1, 4])
def test_external_data(bench: Workbench, files: int) -> None:
    folder = bench.folder / "source"
    folder.mkdir()
    path = folder / "layers.onnx"
    onnx.save(
        layers(),
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=files == 1,
        location="layers.data" if files == 1 else None,
        size_threshold=0,
    )
    built = bench.build(path, "layers", profile="server-cpu")
    external = built.manifest.source.external_data
    assert len(external) == files
    assert [file.location for file in external] == sorted(
        p.name for p in folder.iterdir() if p != path
    )
    assert [file.size for file in external] == [
        (folder / file.location).stat().st_size for file in external
    ]
    assert built.manifest.source.initializer_bytes == 4 * (48 * 96 + 96 + 96 * 16 + 16)
    assert_works(bench, built)


def moved_out(tensor: onnx.TensorProto, folder: Path, **entries: int) -> onnx.TensorProto:
    """`tensor` with its data in a separate file; `entries` are offset and length, if stated."""
    (folder / f"{tensor.name}.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=f"{tensor.name}.bin")
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_data_of_no_stated_length_and_within_a_subgraph(bench: Workbench) -> None:
    folder = bench.folder / "source"
    folder.mkdir()
    weights = moved_out(random_tensor("outer", (64, 64)), folder)
    within = moved_out(random_tensor("within", (64, 64)), folder, offset=0, length=4 * 64 * 64)
    model = model_of(
        [
            helper.make_node("MatMul", ["x", "outer"], ["h"], name="product"),
            helper.make_node(
                "If",
                ["flag"],
                ["y"],
                name="if",
                then_branch=subgraph(
                    [helper.make_node("MatMul", ["h", "within"], ["t"], name="then")],
                    [],
                    [info("t", None)],
                    [within],
                ),
                else_branch=subgraph(
                    [helper.make_node("Neg", ["h"], ["e"], name="else")], [], [info("e", None)]
                ),
            ),
        ],
        [info("x", ["n", 64]), info("flag", [], BOOL)],
        [info("y", ["n", 64])],
        [weights],
    )
    path = folder / "two.onnx"
    path.write_bytes(model.SerializeToString())
    built = bench.build(path, "two", profile="server-cpu")
    source = built.manifest.source
    assert [file.location for file in source.external_data] == ["outer.bin", "within.bin"]
    assert source.initializers == 2
    assert source.initializer_bytes == 2 * 4 * 64 * 64
    calls = [{"x": np.ones((2, 64), np.float32), "flag": np.array(flag)} for flag in (True, False)]
    assert_works(bench, built, *calls)


def test_weights_as_lists_of_numbers(bench: Workbench) -> None:
    """Old exporters write floats one by one, and not as bytes."""
    numbers = np.random.default_rng(1).normal(size=64 * 16)
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        [info("x", ["n", 64])],
        [info("y", ["n", 16])],
        [helper.make_tensor("w", FLOAT, [64, 16], numbers.tolist())],
    )
    built = bench.build(model, "numbers", profile="server-cpu")
    assert built.manifest.source.initializer_bytes == 4 * 64 * 16
    assert_works(bench, built)


def test_bytes_are_built_as_a_file_is(bench: Workbench) -> None:
    content = layers().SerializeToString()
    report = build(content, output=bench.folder / "bytes.aotc", key=bench.private)
    built = bench.build(layers(), "layers")
    assert report.payload_bytes > 0
    assert report.variants[0].comparisons == built.report.variants[0].comparisons


# -- functions


def test_functions_within_functions(bench: Workbench) -> None:
    opset = helper.make_opsetid("", 17)
    own = helper.make_opsetid("made.here", 1)
    inner = helper.make_function(
        "made.here",
        "Scaled",
        ["a", "b"],
        ["c"],
        [helper.make_node("Mul", ["a", "b"], ["ab"]), helper.make_node("Tanh", ["ab"], ["c"])],
        [opset],
    )
    outer = helper.make_function(
        "made.here",
        "Twice",
        ["a", "b"],
        ["d"],
        [
            helper.make_node("Scaled", ["a", "b"], ["c"], domain="made.here"),
            helper.make_node("Scaled", ["c", "b"], ["d"], domain="made.here"),
        ],
        [opset, own],
    )
    built = bench.build(
        model_of(
            [helper.make_node("Twice", ["x", "w"], ["y"], domain="made.here", name="call")],
            [info("x", ["n", 4])],
            [info("y", ["n", 4])],
            [random_tensor("w", (4,))],
            domains=["made.here"],
            functions=[inner, outer],
        ),
        "functions",
        profile="server-cpu",
    )
    source = built.manifest.source
    assert source.functions == ("made.here::Scaled", "made.here::Twice")
    assert source.custom_ops == ()
    assert source.op_types == {
        "Mul": 1,
        "Tanh": 1,
        "made.here::Scaled": 2,
        "made.here::Twice": 1,
    }
    assert (source.nodes, source.nodes_total) == (1, 5)
    assert_works(bench, built)


# -- control flow


def subgraph(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto] | None = None,
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs, initializers or [])


def test_if_with_values_of_the_graph_around_it(bench: Workbench) -> None:
    deep = helper.make_node(
        "If",
        ["large"],
        ["chosen"],
        name="deep",
        then_branch=subgraph([helper.make_node("Add", ["h", "x"], ["t"])], [], [info("t", None)]),
        else_branch=subgraph(
            [helper.make_node("Sub", ["h", "local"], ["e"])],
            [],
            [info("e", None)],
            [constant("local", [0.5])],
        ),
    )
    built = bench.build(
        model_of(
            [
                helper.make_node("Mul", ["x", "w"], ["h"], name="scale"),
                helper.make_node("ReduceSum", ["h"], ["s"], keepdims=0),
                helper.make_node("Greater", ["s", "zero"], ["large"]),
                helper.make_node(
                    "If",
                    ["flag"],
                    ["y"],
                    name="outer",
                    then_branch=subgraph([deep], [], [info("chosen", None)]),
                    else_branch=subgraph(
                        [helper.make_node("Neg", ["h"], ["n"])], [], [info("n", None)]
                    ),
                ),
            ],
            [info("x", ["n", 3]), info("flag", [], BOOL)],
            [info("y", ["n", 3])],
            [constant("w", [1, 2, 3]), constant("zero", 0)],
        ),
        "branches",
        profile="server-cpu",
    )
    source = built.manifest.source
    flows = [(flow.node, flow.op_type, dict(flow.subgraphs)) for flow in source.control_flow]
    assert sorted(flows) == [
        ("deep", "If", {"then_branch": 1, "else_branch": 1}),
        ("outer", "If", {"then_branch": 1, "else_branch": 1}),
    ]
    assert set(source.outer_scope_values) == {
        "outer.then_branch: h",
        "outer.then_branch: large",
        "outer.then_branch: x",
        "outer.else_branch: h",
        "deep.then_branch: h",
        "deep.then_branch: x",
        "deep.else_branch: h",
    }
    assert source.initializers == 3
    calls = [
        {"x": np.full((2, 3), sign, np.float32), "flag": np.array(flag)}
        for sign in (1, -1)
        for flag in (True, False)
    ]
    assert_works(bench, built, *calls)


def test_loop_with_a_value_of_the_graph_around_it(bench: Workbench) -> None:
    loop = subgraph(
        [
            helper.make_node("Add", ["state", "step"], ["next"]),
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Identity", ["next"], ["seen"]),
        ],
        [info("i", [], INT64), info("go", [], BOOL), info("state", None)],
        [info("again", [], BOOL), info("next", None), info("seen", None)],
    )
    built = bench.build(
        model_of(
            [
                helper.make_node("Mul", ["x", "half"], ["step"]),
                helper.make_node(
                    "Loop", ["times", "", "x"], ["last", "all"], name="loop", body=loop
                ),
            ],
            [info("x", ["n"])],
            [info("last", ["n"]), info("all", ["t", "n"])],
            [constant("half", 0.5), constant("times", 4, dtype=np.int64)],
        ),
        "loop",
    )
    source = built.manifest.source
    (flow,) = source.control_flow
    assert (flow.op_type, dict(flow.subgraphs)) == ("Loop", {"body": 3})
    assert source.outer_scope_values == ("loop.body: step",)
    assert_works(bench, built, {"x": np.arange(5, dtype=np.float32)})


def test_scan_with_a_value_of_the_graph_around_it(bench: Workbench) -> None:
    scan = subgraph(
        [
            helper.make_node("Mul", ["row", "w"], ["scaled"]),
            helper.make_node("Add", ["total", "scaled"], ["sum"]),
            helper.make_node("Identity", ["sum"], ["seen"]),
        ],
        [info("total", [3]), info("row", [3])],
        [info("sum", [3]), info("seen", [3])],
    )
    built = bench.build(
        model_of(
            [
                helper.make_node(
                    "Scan",
                    ["zeros", "x"],
                    ["sum_", "all"],
                    name="scan",
                    body=scan,
                    num_scan_inputs=1,
                ),
            ],
            [info("x", ["time", 3])],
            [info("sum_", [3]), info("all", ["time", 3])],
            [constant("w", [1, 2, 3]), constant("zeros", [0, 0, 0])],
        ),
        "scan",
    )
    source = built.manifest.source
    assert source.outer_scope_values == ("scan.body: w",)
    assert [flow.op_type for flow in source.control_flow] == ["Scan"]
    assert_works(bench, built)


# -- element types


def test_quantize_and_dequantize(bench: Workbench) -> None:
    """With weights of seven bits, as those of eight saturate in kernels of CPUs without VNNI."""
    rng = np.random.default_rng(8)
    weights = constant("w8", rng.integers(-63, 64, (16, 8)), dtype=np.int8)
    built = bench.build(
        model_of(
            [
                helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                helper.make_node("DequantizeLinear", ["w8", "ws", "wz"], ["w"]),
                helper.make_node("MatMul", ["d", "w"], ["m"]),
                helper.make_node("QuantizeLinear", ["m", "ms", "z"], ["mq"]),
                helper.make_node("DequantizeLinear", ["mq", "ms", "z"], ["y"]),
            ],
            [info("x", ["n", 16])],
            [info("y", ["n", 8])],
            [
                *(constant("s", 0.02), constant("z", 128, dtype=np.uint8), constant("ms", 0.1)),
                *(weights, constant("ws", 0.01), constant("wz", 0, dtype=np.int8)),
            ],
        ),
        "qdq",
        profile="server-cpu",
    )
    assert built.manifest.source.quantized
    assert not built.manifest.source.half_precision
    for variant in built.manifest.variants:
        assert variant.parity.arithmetic == "quantized"
    assert_works(bench, built)


def test_weights_of_four_bits(bench: Workbench) -> None:
    rng = np.random.default_rng(4)
    four = helper.make_tensor(
        "w4", TensorProto.INT4, [32, 16], rng.integers(-8, 8, 32 * 16).tolist()
    )
    model = model_of(
        [
            helper.make_node("DequantizeLinear", ["w4", "s"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        [info("x", ["n", 32])],
        [info("y", ["n", 16])],
        [four, constant("s", 0.1)],
        opset=21,
        ir_version=10,
    )
    built = bench.build(model, "four", profile="server-cpu")
    assert built.manifest.source.quantized
    assert built.manifest.variants[0].parity.arithmetic == "quantized"
    assert_works(bench, built)


def test_half_precision(bench: Workbench) -> None:
    weights = random_tensor("w", (16, 8))
    half = numpy_helper.from_array(numpy_helper.to_array(weights).astype(np.float16), "w")
    built = bench.build(
        model_of(
            [
                helper.make_node("MatMul", ["x", "w"], ["m"]),
                helper.make_node("Sigmoid", ["m"], ["y"]),
            ],
            [info("x", ["n", 16], HALF)],
            [info("y", ["n", 8], HALF)],
            [half],
        ),
        "half",
        profile="server-cpu",
    )
    assert built.manifest.source.half_precision
    assert built.manifest.inputs == (Value(name="x", dtype="float16", shape=("n", 16)),)
    assert built.manifest.variants[0].parity.arithmetic == "float16"
    assert_works(bench, built)


def test_bfloat16(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node("Cast", ["x"], ["wide"], to=FLOAT),
                helper.make_node("Mul", ["wide", "two"], ["doubled"]),
                helper.make_node("Cast", ["doubled"], ["y"], to=TensorProto.BFLOAT16),
            ],
            [info("x", ["n", 4], TensorProto.BFLOAT16)],
            [info("y", ["n", 4], TensorProto.BFLOAT16)],
            [constant("two", 2)],
        ),
        "narrow",
    )
    assert built.manifest.inputs[0].dtype == "bfloat16"
    with bench.load(built) as model:
        x = np.array([[1, 2, 3, 4]], ml_dtypes.bfloat16)
        (y,) = model.run({"x": x}).values()
    assert y.dtype == x.dtype
    assert y.astype(float).tolist() == [[2, 4, 6, 8]]


# -- text, sequences and maps


ML = {"ai.onnx.ml": 3}


def test_text_in_numbers_out(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node(
                    "LabelEncoder",
                    ["colour"],
                    ["code"],
                    domain="ai.onnx.ml",
                    keys_strings=["red", "green", "blue"],
                    values_int64s=[1, 2, 3],
                    default_int64=-1,
                ),
                helper.make_node(
                    "OneHotEncoder",
                    ["code"],
                    ["hot"],
                    domain="ai.onnx.ml",
                    cats_int64s=[1, 2, 3],
                ),
            ],
            [info("colour", ["n"], STRING)],
            [info("code", ["n"], INT64), info("hot", ["n", 3])],
            domains=ML,
        ),
        "colours",
    )
    assert built.manifest.inputs == (Value(name="colour", dtype="string", shape=("n",)),)
    assert built.manifest.source.opsets == {"ai.onnx": 17, "ai.onnx.ml": 3}
    call = {"colour": np.array(["blue", "no colour", "grün", "red"], dtype=object)}
    with bench.load(built) as model:
        found = model.run(call)
    assert found["code"].tolist() == [3, -1, -1, 1]
    assert_works(bench, built, call)


def test_text_out(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node(
                    "LabelEncoder",
                    ["code"],
                    ["word"],
                    domain="ai.onnx.ml",
                    keys_int64s=[0, 1],
                    values_strings=["no", "ja, sehr"],
                    default_string="?",
                )
            ],
            [info("code", ["n"], INT64)],
            [info("word", ["n"], STRING)],
            domains=ML,
        ),
        "words",
    )
    with bench.load(built) as model:
        found = model.run({"code": np.array([1, 0, 5])})["word"]
    assert found.tolist() == ["ja, sehr", "no", "?"]
    assert_works(bench, built)


@pytest.mark.parametrize("keys", ["strings", "int64s"])
def test_a_classifier_with_a_zip_map(bench: Workbench, keys: str) -> None:
    labels = ["cat", "dog", "eel"] if keys == "strings" else [10, 20, 30]
    kind = STRING if keys == "strings" else INT64
    scores = helper.make_sequence_type_proto(
        helper.make_map_type_proto(kind, helper.make_tensor_type_proto(FLOAT, []))
    )
    classes = {f"classlabels_{'strings' if keys == 'strings' else 'ints'}": labels}
    built = bench.build(
        model_of(
            [
                helper.make_node(
                    "LinearClassifier",
                    ["x"],
                    ["label", "raw"],
                    domain="ai.onnx.ml",
                    coefficients=[1.0, 0.0, 0.0, 1.0, -1.0, -1.0],
                    intercepts=[0.0, 0.1, 0.2],
                    post_transform="SOFTMAX",
                    **classes,
                ),
                helper.make_node(
                    "ZipMap",
                    ["raw"],
                    ["scores"],
                    domain="ai.onnx.ml",
                    **{f"classlabels_{keys}": labels},
                ),
            ],
            [info("x", ["n", 2])],
            [info("label", ["n"], kind), helper.make_value_info("scores", scores)],
            domains=ML,
        ),
        "classifier",
        profile="server-cpu",
    )
    assert built.manifest.outputs[1].kind == "map"
    x = np.array([[2, 0], [0, 2]], np.float32)
    with bench.load(built) as model:
        found = model.run({"x": x})
    assert found["label"].tolist() == labels[:2]
    assert [sorted(one) for one in found["scores"]] == [sorted(labels)] * 2
    assert [max(one, key=one.__getitem__) for one in found["scores"]] == labels[:2]
    assert_works(bench, built, {"x": x})


def test_a_sequence_in_and_out(bench: Workbench) -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["n", 2]))
    built = bench.build(
        model_of(
            [
                helper.make_node("ConcatFromSequence", ["parts"], ["joined"], axis=0),
                helper.make_node("SequenceInsert", ["parts", "joined"], ["more"]),
            ],
            [helper.make_value_info("parts", sequence)],
            [info("joined", ["m", 2]), helper.make_value_info("more", sequence)],
        ),
        "sequence",
    )
    assert [value.kind for value in built.manifest.inputs] == ["sequence"]
    assert [value.kind for value in built.manifest.outputs] == ["tensor", "sequence"]
    parts = [np.full((size, 2), size, np.float32) for size in (1, 3)]
    assert_works(bench, built, {"parts": parts})


def test_a_map_in(bench: Workbench) -> None:
    words = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, []))
    built = bench.build(
        model_of(
            [
                helper.make_node(
                    "DictVectorizer",
                    ["counts"],
                    ["y"],
                    domain="ai.onnx.ml",
                    string_vocabulary=["alpha", "omega"],
                )
            ],
            [helper.make_value_info("counts", words)],
            [info("y", [1, 2])],
            domains=ML,
        ),
        "words",
    )
    assert built.manifest.inputs == (
        Value(name="counts", kind="map", dtype="string", form="map(string,float)"),
    )
    with bench.load(built) as model:
        found = model.run({"counts": {"omega": 2.0, "else": 1.0}})
    assert found["y"].tolist() == [[0.0, 2.0]]
    assert_works(bench, built)


def test_sparse_weights(bench: Workbench) -> None:
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        [info("x", ["n", 4])],
        [info("y", ["n", 3])],
    )
    values = helper.make_tensor("w", FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("places", INT64, [2], [1, 7])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 3]))
    built = bench.build(model, "sparse", profile="server-cpu")
    assert_works(bench, built)


# -- names


def test_names_with_colons_slashes_and_dots(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node("Mul", ["x:0", "w/read:0"], ["m:0"], name="while/mul:0"),
                helper.make_node("Relu", ["m:0"], ["StatefulCall:1"], name="../relu"),
            ],
            [info("x:0", ["unk__1", 2])],
            [info("StatefulCall:1", ["unk__1", 2])],
            [constant("w/read:0", [2, 3])],
        ),
        "names",
        profile="server-cpu",
    )
    assert [value.name for value in built.manifest.inputs] == ["x:0"]
    assert [value.name for value in built.manifest.outputs] == ["StatefulCall:1"]
    assert all(".." not in entry.path.split("/") for entry in built.manifest.files)
    assert_works(bench, built)


def test_blank_node_names_and_names_that_subgraphs_repeat(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node("Exp", ["x"], ["a"]),
                helper.make_node("Cos", ["a"], ["b"], name="twin"),
                helper.make_node("Tanh", ["b"], ["c"], name="Exp_0"),
                helper.make_node(
                    "If",
                    ["flag"],
                    ["y"],
                    then_branch=subgraph(
                        [helper.make_node("Neg", ["c"], ["n"], name="twin")],
                        [],
                        [info("n", None)],
                    ),
                    else_branch=subgraph(
                        [helper.make_node("Abs", ["c"], ["p"], name="twin")],
                        [],
                        [info("p", None)],
                    ),
                ),
            ],
            [info("x", [3]), info("flag", [], BOOL)],
            [info("y", [3])],
        ),
        "twins",
        profile="server-cpu",
    )
    assert built.finding("AOTC-I031") == "2 nodes had no name and 2 had another's name"
    for variant in built.manifest.variants:
        names = [node.name for node in variant.placement.nodes]
        assert len(set(names)) == len(names) == 6
        assert "" not in names
    assert_works(bench, built)


def test_a_name_twice_in_one_graph_is_what_onnx_runtime_refuses(bench: Workbench) -> None:
    model = model_of(
        [
            helper.make_node("Exp", ["x"], ["a"], name="twin"),
            helper.make_node("Sin", ["a"], ["y"], name="twin"),
        ],
        [info("x", [3])],
        [info("y", [3])],
    )
    error = refused(bench, model, "AOTC-I012")
    assert error.found == ("This is an invalid model. Error: two nodes with same node name (twin).")


def test_weights_among_the_inputs_as_ir_3_wants_them(bench: Workbench) -> None:
    model = model_of(
        [helper.make_node("Mul", ["x", "w"], ["y"], name="scale")],
        [info("x", ["n", 2]), info("w", [2])],
        [info("y", ["n", 2])],
        [constant("w", [2, 3])],
        opset=8,
        ir_version=3,
    )
    built = bench.build(model, "old")
    assert built.manifest.source.ir_version == 3
    assert [value.name for value in built.manifest.inputs] == ["x"]
    assert built.finding("AOTC-I032") == "1 initializers were also graph inputs"
    assert_works(bench, built)


# -- declared shapes that are wrong


def test_a_declared_output_shape_that_is_wrong(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [helper.make_node("Transpose", ["x"], ["y"], name="turn")],
            [info("x", [2, 3])],
            [info("y", [2, 3])],
        ),
        "wrong",
    )
    assert built.finding("AOTC-S009") == "y: declared [2, 3], produced [3, 2]"
    assert_works(bench, built)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # True at the optimum, which is the first fixture.
        ([8], "y: declared [8], produced [4] at n=2, k=8"),
        # The same by name, if both dims have the same size.
        (["k"], "y: declared [k], produced [4] at n=2, k=8"),
        (["twice"], None),
    ],
)
def test_a_declared_output_shape_that_is_true_at_one_size(
    bench: Workbench, shape: list[int | str], expected: str | None
) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node("Concat", ["x", "x"], ["y"], name="twice", axis=0),
                helper.make_node("Neg", ["z"], ["w"], name="minus"),
            ],
            [info("x", ["n"]), info("z", ["k"])],
            [info("y", shape), info("w", ["k"])],
        ),
        f"once-{shape[0]}",
        dims={"n": "2..8", "k": 8},
    )
    assert built.manifest.domain.corner("opt") == {"n": 4, "k": 8}
    assert ("AOTC-S009" in built.codes()) == (expected is not None)
    if expected is not None:
        assert built.finding("AOTC-S009") == expected
    assert_works(bench, built)


def test_a_free_dim_that_works_at_one_size_only(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
            [info("x", ["n", "width"])],
            [info("y", ["n", 2])],
            [random_tensor("w", (7, 2))],
        ),
        "one",
    )
    assert built.finding("AOTC-S006") == "width: only size 7 was found to run"
    width = built.manifest.domain.dims["width"]
    assert (width.min, width.opt, width.max, width.origin) == (7, 7, 7, "probed")
    assert built.manifest.domain.dims["n"].max > 1
    assert_works(bench, built)


def test_dims_of_two_names_that_must_be_equal(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [helper.make_node("Concat", ["a", "b"], ["y"], axis=1, name="join")],
            [info("a", ["rows", 2]), info("b", ["lines", 3])],
            [info("y", ["rows", 5])],
        ),
        "equal",
    )
    (relation,) = built.manifest.domain.relations
    assert {relation.dim, *relation.terms} == {"rows", "lines"}
    assert relation.constant == 0
    assert built.finding("AOTC-S007") == f"{relation.dim}: {relation}"
    assert_works(bench, built)
    with bench.load(built) as model, pytest.raises(AotcError) as caught:
        model.run({"a": np.zeros((2, 2), np.float32), "b": np.zeros((3, 3), np.float32)})
    assert caught.value.code == "AOTC-R004"


def test_dims_without_names_or_ranks(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [
                helper.make_node("Relu", ["x"], ["y"], name="bend"),
                helper.make_node("Neg", ["free"], ["z"], name="turn"),
            ],
            [info("x", [None, 3, "?"]), info("free", None)],
            [info("y", None), info("z", None)],
        ),
        "nameless",
    )
    assert built.manifest.inputs[0].shape == ("x.0", 3, "x.2")
    assert built.manifest.inputs[1].shape is None
    assert sorted(built.manifest.domain.dims) == ["free.0", "x.0", "x.2"]
    assert_works(bench, built)


@pytest.mark.parametrize(
    ("shape", "inputs"), [((0, 3), (0, 3)), ((-1, 3), ("x.0", 3)), (("?", 3), ("x.0", 3))]
)
def test_declared_sizes_of_zero_below_zero_and_no_number(
    bench: Workbench, shape: tuple[int | str, ...], inputs: tuple[int | str, ...]
) -> None:
    """Zero is a size; what is negative or a question mark is free."""
    model = model_of(
        [helper.make_node("Neg", ["x"], ["y"], name="turn")],
        [info("x", shape)],
        [info("y", shape)],
    )
    built = bench.build(model, "none", profile="server-cpu")
    assert built.manifest.inputs[0].shape == inputs
    assert_works(bench, built)
    if isinstance(inputs[0], str):
        fixed = bench.build(model, "fixed", dims={"x.0": 5})
        graph = onnx.load(fixed.payload / fixed.manifest.variants[0].model).graph
        assert graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5


def test_inputs_that_nobody_reads_and_outputs_that_nobody_makes(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [helper.make_node("Neg", ["x"], ["y"], name="turn")],
            [info("x", ["n"]), info("unread", ["m", 3], INT64)],
            [info("y", ["n"]), info("x", ["n"]), info("w", [2])],
            [constant("w", [1, 2])],
        ),
        "odd",
        profile="server-cpu",
    )
    assert_works(bench, built)


def test_no_input_at_all(bench: Workbench) -> None:
    built = bench.build(
        model_of(
            [helper.make_node("Neg", ["w"], ["y"], name="turn")],
            [],
            [info("y", [3])],
            [constant("w", [1, 2, 3])],
        ),
        "constant",
        profile="server-cpu",
    )
    assert_works(bench, built, {})


# -- evidence


def test_the_checker_is_not_a_gate(bench: Workbench) -> None:
    """The checker wants sorted nodes; ONNX Runtime sorts them itself."""
    model = model_of(
        [
            helper.make_node("Neg", ["a"], ["y"], name="second"),
            helper.make_node("Exp", ["x"], ["a"], name="first"),
        ],
        [info("x", ["n"])],
        [info("y", ["n"])],
    )
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    built = bench.build(model, "unsorted", profile="server-cpu")
    assert "sorted" in built.finding("AOTC-I030")
    assert_works(bench, built)


def test_what_is_known_of_the_source(bench: Workbench) -> None:
    model = model_of(
        [
            helper.make_node("Constant", [], ["k"], value=constant("k", [1, 2, 3])),
            helper.make_node("Add", ["x", "k"], ["a"]),
            helper.make_node("Gelu", ["a"], ["y"], domain="com.microsoft"),
        ],
        [info("x", ["n", 3])],
        [info("y", ["n", 3])],
        domains=["com.microsoft"],
        ir_version=8,
    )
    model.producer_name, model.producer_version = "exporter", "2.5"
    model.domain, model.model_version = "org.example", 7
    model.graph.name = "graph"
    built = bench.build(model, "known")
    source = built.manifest.source
    assert (source.producer_name, source.producer_version) == ("exporter", "2.5")
    assert (source.domain, source.model_version) == ("org.example", 7)
    assert (source.graph_name, source.ir_version) == ("graph", 8)
    assert source.opsets == {"ai.onnx": 17, "com.microsoft": 1}
    assert (source.nodes, source.nodes_total, source.constants) == (3, 3, 1)
    assert source.op_types == {"Add": 1, "Constant": 1, "com.microsoft::Gelu": 1}
    assert source.contrib_ops == ("com.microsoft::Gelu",)
    assert (source.custom_ops, source.control_flow, source.outer_scope_values) == ((), (), ())
    assert built.manifest.inputs == (Value(name="x", dtype="float32", shape=("n", 3)),)
    assert_works(bench, built)


def test_paths_that_exporters_leave_are_stripped(bench: Workbench) -> None:
    secret = "/srv/people/ada/project/train.py"
    branch = [
        helper.make_node("Neg", ["x"], ["n"], doc_string=f"{secret}:1"),
        helper.make_node("Abs", ["x"], ["p"], doc_string=f"{secret}:2"),
    ]
    model = model_of(
        [
            helper.make_node("Exp", ["x"], ["e"], name="exp", doc_string=f"{secret}:3"),
            helper.make_node("ReduceSum", ["e"], ["s"], keepdims=0),
            helper.make_node("Greater", ["s", "w"], ["large"]),
            helper.make_node(
                "If",
                ["large"],
                ["y"],
                then_branch=subgraph(branch[:1], [], [info("n", None)]),
                else_branch=subgraph(branch[1:], [], [info("p", None)]),
            ),
        ],
        [info("x", ["n", 2])],
        [info("y", ["n", 2])],
        [constant("w", 4)],
        ir_version=10,
    )
    model.doc_string = model.graph.doc_string = secret
    for protos in (model.graph.node, model.graph.input, model.graph.initializer, [model]):
        for proto in protos:
            proto.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=secret)
    for proto in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        proto.doc_string = secret
    function = helper.make_function(
        "made.here",
        "Same",
        ["a"],
        ["b"],
        [helper.make_node("Identity", ["a"], ["b"])],
        [helper.make_opsetid("", 17)],
        doc_string=secret,
    )
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("made.here", 1))
    built = bench.build(model, "stripped", profile="server-cpu")
    for path in built.path.rglob("*"):
        if path.is_file():
            assert b"/srv/people" not in path.read_bytes(), path
    metadata = built.manifest.source.metadata_bytes
    assert metadata["doc_string"] >= 5 * len(secret)
    assert metadata["metadata_props"] >= 5 * len(secret)
    assert_works(bench, built)


# -- refusals


def test_a_compiled_model_is_refused(bench: Workbench) -> None:
    model = model_of(
        [
            helper.make_node(
                "EPContext", ["x"], ["y"], name="blob", domain="com.microsoft", embed_mode=1
            )
        ],
        [info("x", [1])],
        [info("y", [1])],
        domains=["com.microsoft"],
    )
    error = refused(bench, model, "AOTC-I010")
    assert error.line() == "AOTC-I010 the model holds an EPContext node [node blob]"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_numbers_are_refused_if_asked(bench: Workbench, kind: str, nested: bool) -> None:
    node = helper.make_node(kind, ["x"], ["r"], name="dice")
    other = helper.make_node("Identity", ["x"], ["same"])
    if nested:
        node = helper.make_node(
            "If",
            ["flag"],
            ["r_"],
            then_branch=subgraph([node], [], [info("r", None)]),
            else_branch=subgraph([other], [], [info("same", None)]),
        )
    model = model_of(
        [node],
        [info("x", [2]), info("flag", [], BOOL)],
        [info("r_" if nested else "r", None)],
    )
    error = refused(bench, model, "AOTC-I011", random="refuse")
    assert error.line() == f"AOTC-I011 {kind} draws random numbers [node dice]"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("form", ["initializer", "node"])
def test_dropout_is_refused_if_it_trains(bench: Workbench, training: bool, form: str) -> None:
    flag = constant("flag", training, dtype=bool)
    nodes = [helper.make_node("Dropout", ["x", "ratio", "flag"], ["y"], name="drop")]
    initializers = [constant("ratio", 0.5)]
    if form == "node":
        nodes.insert(0, helper.make_node("Constant", [], ["flag"], name="flag", value=flag))
    else:
        initializers.append(flag)
    model = model_of(nodes, [info("x", [4, 4])], [info("y", [4, 4])], initializers)
    if training:
        error = refused(bench, model, "AOTC-I011", random="refuse")
        assert error.line() == "AOTC-I011 Dropout draws random numbers [node drop]"
    else:
        assert_works(bench, bench.build(model, "dropout", random="refuse"))


def test_an_unknown_element_type_is_refused(bench: Workbench) -> None:
    of_input = model_of(
        [helper.make_node("Identity", ["x"], ["y"])], [info("x", [2], 99)], [info("y", [2])]
    )
    error = refused(bench, of_input, "AOTC-I007")
    assert error.line() == "AOTC-I007 unknown element type [x] (found 99)"
    of_weight = layers()
    of_weight.graph.initializer[0].data_type = 77
    error = refused(bench, of_weight, "AOTC-I007")
    assert error.line() == "AOTC-I007 unknown element type [tensor w1] (found 77)"


def test_a_file_larger_than_protobuf_reads_is_refused(bench: Workbench) -> None:
    path = bench.folder / "large.onnx"
    with path.open("wb") as file:
        # A hole: it takes no space on disk.
        file.truncate(1 << 31)
    with pytest.raises(AotcError) as caught:
        bench.build(path, "large")
    assert (caught.value.code, caught.value.exit_status) == ("AOTC-I002", 3)
    assert caught.value.what == "a protobuf message cannot exceed 2 GiB"
    assert "external data" in caught.value.fix


def plain(kind: str, domain: str = "", opset: int = 17) -> onnx.ModelProto:
    node = helper.make_node(kind, ["x"], ["y"], name="node", domain=domain)
    ends = [info("x", [2])], [info("y", [2])]
    return model_of([node], *ends, opset=opset, domains=[domain] if domain else [])


def test_an_opset_too_new_is_refused(bench: Workbench) -> None:
    assert "opset" in refused(bench, plain("Relu", opset=99), "AOTC-I008").what


def test_an_ir_version_too_new_is_refused(bench: Workbench) -> None:
    model = plain("Relu")
    model.ir_version = 99
    assert "IR version" in refused(bench, model, "AOTC-I016").what


@pytest.mark.parametrize(
    ("kind", "domain"), [("Rleu", ""), ("Relu", "com.nobody"), ("NoSuchThing", "com.microsoft")]
)
def test_an_unknown_operator_is_refused(bench: Workbench, kind: str, domain: str) -> None:
    error = refused(bench, plain(kind, domain), "AOTC-I009")
    assert kind in error.found


def test_types_without_a_kernel_on_the_cpu_are_told_from_unknown_operators(
    bench: Workbench,
) -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "x"], ["y"], name="node")],
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2])],
    )
    error = refused(bench, model, "AOTC-I009")
    assert "types" in error.what
    assert "Add" in error.found
    assert "float32" in error.fix


def test_a_custom_operator_is_evidence_before_it_is_refused(bench: Workbench) -> None:
    from aotc.session.capture import read_capture

    model = plain("Relu", "com.nobody")
    captured, _, _ = read_capture(bench.save(model, "custom"))
    assert captured.custom_ops == ("com.nobody::Relu",)


def test_a_dead_end_that_onnx_runtime_itself_refuses(bench: Workbench) -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "nowhere"], ["y"])], [info("x", [2])], [info("y", [2])]
    )
    assert "nowhere" in refused(bench, model, "AOTC-I012").found


# -- names


@pytest.mark.parametrize(("file", "name"), [("a\nb\x7f", "a_b_"), ("ä" * 120, "ä" * 120)])
def test_a_file_of_any_name_makes_an_artifact_that_verifies(
    bench: Workbench, file: str, name: str
) -> None:
    source = bench.folder / f"{file}.onnx"
    source.write_bytes(layers().SerializeToString())
    output = bench.folder / "named.aotc"
    build(source, output=output, key=bench.private)
    assert strict_json((output / "payload" / "aotc.json").read_bytes())["name"] == name
    assert verify(output, key=bench.public).authentic
