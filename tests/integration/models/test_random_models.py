"""Models that draw random numbers: from seeds in each call, passed by the call, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from command import Command
from model_parts import info, model_of, node
from onnx import TensorProto, helper
from refusals import refusal
from workbench import Built, Workbench, plain_answer, plain_session

from aotc.base.errors import AotcError
from aotc.spec.manifest import RandomNode

BOOL, INT32, INT64 = TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64
DOUBLE = TensorProto.DOUBLE
X = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
TRAINING = {"ratio": np.float32(0.3), "training": np.array(True)}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def speech(**attributes: Any) -> onnx.ModelProto:
    """Noise that an input scales, as in models of speech."""
    return model_of(
        [
            node("RandomNormalLike", "x", "r", "dice", **attributes),
            node("Mul", "r noise_scale", "n", "scaled"),
            node("Add", "x n", "y", "sum"),
            node("Neg", "x", "z", "same"),
        ],
        {"x": ["a", "b"], "noise_scale": [1]},
        {"y": ["a", "b"], "z": ["a", "b"]},
    )


def scaled(scale: float) -> dict[str, Any]:
    return {"x": X, "noise_scale": np.array([scale], np.float32)}


def drawing(op: str, **attributes: Any) -> onnx.ModelProto:
    """A model of x whose output y is what `op` draws; its seed is 5 unless it is given."""
    seed = {"seed": 5 if op == "Dropout" else 5.0}
    stated = {name: value for name, value in {**seed, **attributes}.items() if value is not None}
    nodes = {
        "RandomNormal": [node(op, "", "r", "dice", shape=[3, 7], **stated), node("Add", "x r")],
        "RandomUniform": [node(op, "", "r", "dice", shape=[3, 7], **stated), node("Add", "x r")],
        "RandomNormalLike": [node(op, "x", "r", "dice", **stated), node("Add", "x r")],
        "RandomUniformLike": [node(op, "x", "r", "dice", **stated), node("Add", "x r")],
        "Multinomial": [node(op, "x", "y", "dice", sample_size=4, **stated)],
        "Bernoulli": [node("Sigmoid", "x", "p"), node(op, "p", "y", "dice", **stated)],
        "Dropout": [node(op, "x ratio training", "y", "dice", **stated)],
    }[op]
    kind = INT32 if op == "Multinomial" else TensorProto.FLOAT
    dims = [3, 7] if op in ("RandomNormal", "RandomUniform") else ["a", "b"]
    constants = TRAINING if op == "Dropout" else {}
    return model_of(nodes, [info("x", dims)], [info("y", None, kind)], constants)


def drawn(op: str, shape: Sequence[int], *, dtype: int = 1, **attributes: Any) -> Any:
    """What ONNX Runtime draws first of all, with seed 5."""
    made = node(op, "", "y", shape=list(shape), dtype=dtype, seed=5.0, **attributes)
    model = model_of([made], (), [info("y", None, dtype)], opset=17, ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {})[0]


def vits() -> onnx.ModelProto:
    """Noise whose length follows from the values of x."""
    return model_of(
        [
            node("ReduceSum", "x", "sum", keepdims=0),
            node("Abs", "sum", "abs"),
            node("Cast", "abs", "whole", to=INT64),
            node("Add", "whole one", "more"),
            node("Min", "more most", "count"),
            node("Unsqueeze", "count zero", "shape"),
            node("ConstantOfShape", "shape", "flat"),
            node("RandomNormalLike", "flat", "y", "dice", seed=5.0),
        ],
        {"x": ["a", "b"]},
        {"y": ["length"]},
        {"one": np.int64(1), "most": np.int64(8), "zero": np.array([0])},
    )


def looped() -> onnx.ModelProto:
    """Three draws, one in each trip."""
    body = helper.make_graph(
        [node("RandomNormalLike", "x", "r", "dice", seed=5.0), node("Identity", "go", "goes")],
        "body",
        [info("at", [], INT64), info("go", [], BOOL)],
        [info("goes", [], BOOL), info("r", None)],
    )
    loop = node("Loop", "trips go_on", "y", "loop", body=body)
    constants = {"trips": np.int64(3), "go_on": np.array(True)}
    return model_of([loop], {"x": ["a", "b"]}, [info("y", None)], constants)


def branched() -> onnx.ModelProto:
    """A draw in one branch of an If."""
    one = helper.make_graph(
        [node("RandomNormalLike", "x", "r", "dice", seed=5.0)], "one", [], [info("r", None)]
    )
    other = helper.make_graph([node("Neg", "x", "n", "neg")], "other", [], [info("n", None)])
    made = node("If", "flag", "y", "if", then_branch=one, else_branch=other)
    return model_of([made], [info("x", ["a", "b"]), info("flag", [], BOOL)], [info("y", None)])


def twice(opset: int = 21) -> onnx.ModelProto:
    """A function that draws, called twice."""
    opsets = [helper.make_opsetid("", opset)]
    body = [node("RandomNormalLike", "v", "r", "dice"), node("Add", "v r", "w", "sum")]
    function = helper.make_function("own", "Noisy", ["v"], ["w"], body, opsets)
    calls = [
        node("Noisy", "x", "h", "first", domain="own"),
        node("Noisy", "h", "y", "second", domain="own"),
    ]
    return model_of(
        calls, {"x": ["a", "b"]}, {"y": ["a", "b"]}, domains=["own"], functions=[function]
    )


def answers_of(bench: Workbench, built: Built, *calls: Mapping[str, Any]) -> list[dict[str, Any]]:
    with bench.load(built) as model:
        return [model.run(inputs) for inputs in calls]


def nodes_of(built: Built) -> tuple[RandomNode, ...]:
    assert built.manifest.random is not None
    return built.manifest.random.nodes


def refused(bench: Workbench, model: onnx.ModelProto, code: str, **options: Any) -> AotcError:
    error = refusal(bench.build, model, "refused", **options)
    assert (error.code, error.exit_status) == (code, 3), error
    left = {path.name for path in bench.folder.iterdir()}
    assert left == {"refused.onnx", "release.pem", "release.pub"}
    return error


# -- what a build without any option gives


def test_a_model_of_speech_is_built_and_its_randomness_told(bench: Workbench) -> None:
    built = bench.build(speech(seed=1.0), "speech", random="seed")
    assert built.finding("AOTC-I098") == (
        "node dice: RandomNormalLike draws random numbers (normal, mean 0, scale 1), on which y "
        "depends; it draws from seed 1 of the model"
    )
    assert built.finding("AOTC-N062") == (
        "random: seed: y: compared with the numbers that the seeds draw, as every call does"
    )
    assert built.manifest.required_features == ("random-seeds",)
    assert "random-seeds" in [each.name for each in built.manifest.variants[0].passes]
    session = plain_session(built.source)
    silent, *noisy = answers_of(bench, built, scaled(0.0), scaled(1.0), scaled(1.0))
    expected = plain_answer(session, scaled(0.0))
    assert all(np.array_equal(silent[name], value) for name, value in expected.items())
    assert not np.array_equal(noisy[0]["y"], silent["y"])
    assert np.array_equal(noisy[0]["y"], noisy[1]["y"])


@pytest.mark.parametrize(
    "op",
    [
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
        "Bernoulli", "Dropout",
    ],
)  # fmt: skip
def test_each_call_has_the_first_draw_of_onnxruntime(bench: Workbench, op: str) -> None:
    """Bound to no order of calls, sizes or loads."""
    built = bench.build(drawing(op), "drawing", random="seed")
    smaller = {"x": X[:2]}
    calls = (
        [{"x": X}, {"x": X}]
        if op.endswith(("Normal", "Uniform"))
        else [{"x": X}, smaller, {"x": X}]
    )
    for inputs, found in zip(calls, answers_of(bench, built, *calls), strict=True):
        expected = plain_answer(plain_session(built.source), inputs)
        assert np.array_equal(found["y"], expected["y"])
    assert nodes_of(built)[0].seed == 5


@pytest.mark.parametrize("model", [looped, branched, vits])
def test_draws_in_control_flow_and_of_shapes_by_value(bench: Workbench, model: Any) -> None:
    built = bench.build(model(), "flow", random="seed")
    inputs = {"x": X, **({"flag": np.array(True)} if model is branched else {})}
    first, second = answers_of(bench, built, inputs, inputs)
    assert np.array_equal(first["y"], second["y"])
    expected = plain_answer(plain_session(built.source), inputs)["y"]
    assert np.array_equal(first["y"], expected)


def test_by_default_a_model_goes_on_drawing_as_in_onnx_runtime(bench: Workbench) -> None:
    """At its speed: a call opens no session."""
    built = bench.build(speech(seed=1.0), "speech")
    assert built.finding("AOTC-N062") == (
        "random: free: y: compared with the first numbers that the seeds draw; later calls draw "
        "others"
    )
    silent, *noisy = answers_of(bench, built, scaled(0.0), scaled(1.0), scaled(1.0))
    expected = plain_answer(plain_session(built.source), scaled(0.0))
    assert np.array_equal(silent["y"], expected["y"])
    assert not np.array_equal(noisy[0]["y"], noisy[1]["y"])


def test_nodes_without_a_seed_get_different_ones(bench: Workbench) -> None:
    model = model_of(
        [
            node("RandomNormalLike", "x", "r1", "one"),
            node("RandomNormalLike", "x", "r2", "two", seed=1.0),
            node("RandomNormalLike", "x", "r3", "three", seed=float("nan")),
            node("RandomNormalLike", "x", "r4", "idle"),
            node("Sub", "r1 r3", "y"),
            node("Add", "x r2", "z"),
        ],
        {"x": ["a", "b"]},
        {"y": ["a", "b"], "z": ["a", "b"]},
    )
    built = bench.build(model, "seedless")
    found = {each.node: (each.seed, each.given, each.outputs) for each in nodes_of(built)}
    assert found == {
        "one": (2, True, ("y",)),
        "two": (1, False, ("z",)),
        "three": (3, True, ("y",)),
        "idle": (None, False, ()),
    }
    assert built.finding("AOTC-N062") == (
        "random: free: y, z: compared with the first numbers that the seeds draw; later calls draw "
        "others"
    )
    first, second = answers_of(bench, built, {"x": X}, {"x": X})
    assert np.any(first["y"])
    assert not np.array_equal(first["y"], second["y"])
    (again,) = answers_of(bench, built, {"x": X})
    assert np.array_equal(first["y"], again["y"])


def test_free_calls_go_on_as_a_session_of_onnxruntime(bench: Workbench) -> None:
    """From the first call on, whatever the warm-up ran; bound calls too."""
    built = bench.build(speech(seed=1.0), "free", random="free")
    session = plain_session(built.source)
    expected = [plain_answer(session, scaled(1.0))["y"] for _ in range(3)]
    found = [each["y"] for each in answers_of(bench, built, *[scaled(1.0)] * 3)]
    assert all(map(np.array_equal, expected, found))
    with bench.load(built) as model:
        call = model.bind(scaled(1.0))
        first = call.outputs["y"].numpy()
        call()
        assert not np.array_equal(first, call.outputs["y"].numpy())
        model.warm(["portable"])
        assert np.array_equal(model.run(scaled(1.0))["y"], expected[0])
    assert "AOTC-N040" not in [each.code for each in built.report.findings]


def test_each_call_of_a_function_draws_its_own(bench: Workbench) -> None:
    built = bench.build(twice(), "twice")
    assert [(each.seed, each.outputs) for each in nodes_of(built)] == [(1, ("y",)), (2, ("y",))]
    assert built.manifest.variants[0].passes[0].name == "inline-functions"


def test_nothing_is_told_of_dropout_in_inference(bench: Workbench) -> None:
    model = drawing("Dropout")
    del model.graph.node[0].input[2]
    built = bench.build(model, "inference")
    assert built.manifest.random is None
    assert not {"AOTC-I098", "AOTC-N062"} & set(built.codes())


# -- numbers that the call passes


@pytest.mark.parametrize(
    ("op", "noise"),
    [
        ("RandomNormal", ("RandomNormal", {"mean": 2.0, "scale": 3.0})),
        ("RandomNormalLike", ("RandomNormal", {"mean": 2.0, "scale": 3.0})),
        ("RandomUniform", ("RandomUniform", {"low": 2.0, "high": 3.0})),
        ("RandomUniformLike", ("RandomUniform", {"low": 2.0, "high": 3.0})),
        ("Bernoulli", ("RandomUniform", {})),
        ("Dropout", ("RandomUniform", {})),
        ("Multinomial", ("RandomUniform", {})),
    ],
)
def test_numbers_that_onnxruntime_draws_give_its_answer(
    bench: Workbench, op: str, noise: tuple[str, dict[str, float]]
) -> None:
    source, parameters = noise
    built = bench.build(drawing(op, **parameters), "passed", random="as-input")
    (told,) = nodes_of(built)
    assert (told.input, told.seed) == ("dice_noise", None)
    kind = "normal" if source == "RandomNormal" else "uniform"
    assert (told.distribution, told.parameters) == (kind, parameters or {"low": 0.0, "high": 1.0})
    assert not built.manifest.required_features
    if op == "Multinomial":
        # ONNX Runtime draws these in float64.
        given = drawn(source, (3, 4), dtype=DOUBLE).astype(np.float32)
    else:
        given = drawn(source, (3, 7), **parameters)
    (found,) = answers_of(bench, built, {"x": X, "dice_noise": given})
    expected = plain_answer(plain_session(built.source), {"x": X})
    assert np.array_equal(found["y"], expected["y"])


def test_the_noise_of_a_branch_and_of_a_function_is_passed(bench: Workbench) -> None:
    built = bench.build(branched(), "branch", random="as-input")
    noise = drawn("RandomNormal", (3, 7))
    inputs = {"x": X, "flag": np.array(True), "dice_noise": noise}
    assert np.array_equal(answers_of(bench, built, inputs)[0]["y"], noise)
    built = bench.build(twice(), "calls", random="as-input")
    given = {value.name: noise for value in built.manifest.inputs if value.name != "x"}
    assert len(given) == 2
    (found,) = answers_of(bench, built, {"x": X, **given})
    assert np.allclose(found["y"], X + 2 * noise)


def test_dropout_passes_on_what_it_keeps_and_where(bench: Workbench) -> None:
    """With a mask as an output, and an input that says whether it trains; opset 12."""
    model = model_of(
        [node("Dropout", "x - training", "y mask", "dice")],
        [info("x", [None, None]), info("training", [], BOOL)],
        [info("y", None), info("mask", None, BOOL)],
        opset=12,
        ir_version=7,
    )
    built = bench.build(model, "dropout", random="as-input")
    assert built.manifest.inputs[-1].shape == ("x.0", "x.1")
    noise = np.random.default_rng(1).uniform(size=X.shape).astype(np.float32)
    calls = [{"x": X, "training": np.array(on), "dice_noise": noise} for on in (True, False)]
    trained, not_trained = answers_of(bench, built, *calls)
    assert np.array_equal(trained["mask"], noise >= 0.5)
    assert np.array_equal(trained["y"], np.where(noise >= 0.5, 2 * X, 0 * X))
    assert np.array_equal(not_trained["y"], X)
    assert not_trained["mask"].all()


def test_a_call_without_the_noise_is_told_what_to_draw(bench: Workbench) -> None:
    built = bench.build(speech(mean=0.5), "speech", random="as-input")
    assert built.finding("AOTC-I098").endswith(
        "(normal, mean 0.5, scale 1), on which y depends; a call passes them as input dice_noise"
    )
    with bench.load(built) as model:
        error = refusal(model.run, scaled(0.0))
    assert error.code == "AOTC-R001"
    assert error.what == (
        "input 'dice_noise' is missing: pass random numbers (normal, mean 0.5, scale 1)"
    )


# -- what is refused


def test_what_cannot_hold_names_the_node(bench: Workbench) -> None:
    error = refused(bench, speech(), "AOTC-I097", random="seed")
    assert error.line().startswith("AOTC-I097 RandomNormalLike has no seed [node dice]")
    assert "--random free" in error.fix
    error = refused(bench, speech(seed=1.0), "AOTC-I011", random="refuse")
    assert error.line() == "AOTC-I011 RandomNormalLike draws random numbers [node dice]"
    error = refused(bench, vits(), "AOTC-I096", random="as-input")
    assert (error.where, error.found) == ("node dice", "dim 0 of flat is none of the inputs' dims")
    assert "--random seed" in error.fix
    error = refused(bench, looped(), "AOTC-I096", random="as-input")
    assert error.found == "it is in the body of a Loop, and draws in each of its trips"
    error = refused(bench, speech(mean=float("inf")), "AOTC-I096", random="as-input")
    assert error.found == "its mean, scale, low or high is not finite"
    error = refused(bench, twice(17), "AOTC-I011")
    assert error.what.endswith("draws random numbers in a function that cannot be inlined")
    old = drawing("Multinomial")
    old.opset_import[0].version, old.ir_version = 12, 7
    assert refused(bench, old, "AOTC-I096", random="as-input").found == "opset 12; that takes 13"


@pytest.mark.parametrize(
    ("made", "drawn", "passed"),
    [
        (node("RandomNormalLike", "", "r", "dice"), "AOTC-I012", "AOTC-I096"),
        (node("RandomNormalLike", "none", "r", "dice"), "AOTC-I012", "AOTC-I096"),
        (node("RandomNormalLike", "x", "r", "dice", dtype=99), "AOTC-I012", "AOTC-I007"),
        (node("RandomNormal", "", "r", "dice", shape=[-1]), "AOTC-I012", "AOTC-I096"),
    ],
)
def test_malformed_nodes_have_a_code(
    bench: Workbench, made: onnx.NodeProto, drawn: str, passed: str
) -> None:
    model = model_of([made, node("Add", "x r")], {"x": [2]}, {"y": [2]})
    refused(bench, model, drawn)
    refused(bench, model, passed, random="as-input")


def test_an_unknown_policy_is_refused(bench: Workbench) -> None:
    error = refusal(bench.build, speech(), "refused", random="dice")
    assert (error.code, error.where) == ("AOTC-I027", "--random dice")
    assert error.expected == "free, seed, as-input, refuse"


def test_seeds_are_not_padded_and_not_bound(bench: Workbench) -> None:
    """Of padded sizes other numbers would be drawn, and a bound call would go on drawing."""
    profile = bench.folder / "padded.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: padded\ndims: {b: {buckets: [8], outside: pad}}\n"
    )
    for seed in ({"seed": 1.0}, {}):
        error = refusal(bench.build, speech(**seed), "padded", profile=profile)
        assert (error.code, error.where) == ("AOTC-S019", "node dice")
    profile.write_text(profile.read_text() + "random: as-input\n")
    built = bench.build(speech(seed=1.0), "padded", profile=profile)
    noise = drawn("RandomNormal", X.shape)
    (found,) = answers_of(bench, built, {**scaled(1.0), "dice_noise": noise})
    assert np.array_equal(found["y"], X + noise)
    with bench.load(bench.build(speech(seed=1.0), "bound", random="seed")) as model:
        assert refusal(model.bind, scaled(1.0)).code == "AOTC-N064"


# -- with what else a build does


@pytest.mark.parametrize("random", ["seed", "as-input"])
@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_lower_precision_is_compared_with_equal_numbers(
    bench: Workbench, random: str, precision: str
) -> None:
    rng = np.random.default_rng(1)
    weights = {
        "w": (rng.standard_normal((64, 256)) * 0.1).astype(np.float32),
        "v": (rng.standard_normal((256, 32)) * 0.1).astype(np.float32),
    }
    model = model_of(
        [
            node("MatMul", "x w", "a", "first"),
            node("Tanh", "a", "t", "bend"),
            node("RandomNormalLike", "t", "r", "dice", seed=3.0),
            node("Add", "t r", "n", "sum"),
            node("MatMul", "n v", "y", "last"),
        ],
        {"x": ["a", 64]},
        {"y": ["a", 32]},
        weights,
    )
    built = bench.build(model, "precise", random=random, precision=precision)
    assert built.manifest.variants[0].parity.status == "passed"
    inputs = {"x": rng.standard_normal((4, 64)).astype(np.float32)}
    if random == "seed":
        first, second = answers_of(bench, built, inputs, inputs)
        assert np.array_equal(first["y"], second["y"])
        expected = plain_answer(plain_session(built.source), inputs)["y"]
        assert np.max(np.abs(first["y"] - expected)) < 0.05 * np.max(np.abs(expected))


def test_the_command_tells_it_in_a_line(tmp_path: Path) -> None:
    aotc = Command(tmp_path)
    onnx.save(speech(seed=1.0), tmp_path / "speech.onnx")
    built = aotc.plain("build", "speech.onnx", "--random", "seed", "-o", "speech.aotc")
    assert "random     seed: y by dice" in built.stdout
    shown = aotc.plain("inspect", "speech.aotc").stdout
    assert "random: seed" in shown
    model = aotc("inspect", "speech.onnx").document
    assert [each["code"] for each in model["findings"]] == ["AOTC-I098"]
    passed = aotc("build", "speech.onnx", "--random", "as-input", "-o", "passed.aotc")
    assert passed.status == 0
    state = aotc("inspect", "passed.aotc").document["artifact"]["random"]
    assert (state["policy"], state["nodes"][0]["input"]) == ("as-input", "dice_noise")


def test_test_data_of_drawn_outputs_is_not_compared(tmp_path: Path) -> None:
    """What is not drawn still is: an output that differs is told."""
    aotc = Command(tmp_path)
    for name, wrong in (("right", 0.0), ("wrong", 1.0)):
        folder = tmp_path / "models" / name
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        onnx.save(speech(), folder / "model.onnx")
        arrays = {"input_0": X, "input_1": np.ones(1, np.float32)}
        arrays |= {"output_0": X, "output_1": -X + np.float32(wrong)}
        for file, array in arrays.items():
            tensor = onnx.numpy_helper.from_array(array)
            (data / f"{file}.pb").write_bytes(tensor.SerializeToString())
    found = aotc("check-models", "models").document["models"]
    assert {each["model"].split("/")[0]: each["answers"] for each in found} == {
        "right": "as-expected",
        "wrong": "as-onnxruntime",
    }
