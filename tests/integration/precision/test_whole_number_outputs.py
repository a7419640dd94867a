"""Builds of models whose outputs are labels, ranks, truths and rounded images, and their loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import small_profile
from model_parts import constant, info, model_of, node
from onnx import TensorProto
from refusals import refusal
from workbench import Built, Workbench, only_variant, plain_answer, plain_session

from aotc.base.errors import AotcError
from aotc.tools.debug_parity import debug_parity

INT64 = TensorProto.INT64


def network(
    tail: list[onnx.NodeProto],
    output: onnx.ValueInfoProto,
    constants: list[onnx.TensorProto] | None = None,
    *,
    classes: int = 12,
    common: float = 0.0,
) -> onnx.ModelProto:
    """A normalized convolution and scores `s` [n, classes, 32, 32], which `tail` decides by."""
    random = np.random.default_rng(3)

    def drawn(name: str, *shape: int, scale: float = 1.0, mean: float = 0.0) -> onnx.TensorProto:
        return constant(name, random.standard_normal(shape) * scale + mean, np.float32)

    return model_of(
        [
            node("Conv", "x w", "c", "conv", pads=[1] * 4),
            node("BatchNormalization", "c gain b mean gain", "normal", "normal"),
            node("Relu", "normal", "r", "relu"),
            node("Conv", "r v", "s", "scores", pads=[1] * 4),
            *tail,
        ],
        {"x": ["n", 3, 32, 32]},
        [output],
        [
            drawn("w", 16, 3, 3, 3, scale=0.3),
            constant("gain", np.abs(random.standard_normal(16)) + 0.3, np.float32),
            drawn("b", 16),
            drawn("mean", 16),
            drawn("v", classes, 16, 3, 3, scale=0.01 if common else 0.1, mean=common),
            *(constants or []),
        ],
    )


def labels(**stated: Any) -> onnx.ModelProto:
    return network(
        [node("ArgMax", "s", "y", "labels", axis=1, keepdims=0)],
        info("y", ["n", 32, 32], INT64),
        **stated,
    )


def profile(precision: str = "keep", **fields: Any) -> Any:
    return small_profile("edge", dims={"n": "1..4"}, precision=precision, **fields)


def told(built: Built) -> dict[str, str]:
    return {finding.code: finding.what for finding in built.report.findings}


def kinds(built: Built) -> dict[str, str]:
    return {name: each.kind for name, each in only_variant(built).parity.decided.items()}


def test_a_pixel_that_rounds_otherwise_takes_no_optimization_away(bench: Workbench) -> None:
    """Fused, values differ in the last bits: of steps as small as these some round otherwise."""
    tail = [
        node("Mul", "s many", "m", "steps"),
        node("Round", "m", "q", "round"),
        node("Cast", "q", "y", "image", to=TensorProto.INT32),
    ]
    model = network(
        tail, info("y", ["n", 3, 32, 32], TensorProto.INT32),
        [constant("many", 1e4, np.float32)], classes=3,
    )  # fmt: skip
    built = bench.build(model, "image", profile=profile())
    assert "AOTC-O003" not in built.codes()
    assert only_variant(built).session.optimization != "disable"
    assert "decided narrowly" in told(built)["AOTC-N053"]
    assert kinds(built) == {"y": "rounded"}
    with bench.load(built) as loaded:
        x = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32)
        expected = plain_answer(plain_session(built.source), {"x": x})["y"]
        assert np.abs(loaded.run({"x": x})["y"] - expected).max() <= 1
    # What was measured is in the evidence, and in no payload.
    assert "AOTC-N053" not in built.codes()


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_label_map_in_a_lower_precision_is_built_and_loads(
    bench: Workbench, precision: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {}
    if precision == "int8":
        random = np.random.default_rng(9)
        for number in range(4):
            x = random.standard_normal((1, 3, 32, 32)).astype(np.float32)
            np.savez(tmp_path / f"{number}.npz", x=x)
        options = {"calibration": tmp_path, "embed_fixtures": True}
    built = bench.build(labels(), f"labels-{precision}", profile=profile(precision), **options)
    assert kinds(built) == {"y": "choice"}
    assert built.manifest.fixtures
    assert "of 'y'" in told(built)["AOTC-N053"] or "'y'" in told(built)["AOTC-N053"]
    with bench.load(built) as loaded:
        assert loaded.report.variants[0].fixtures
    if precision == "float16":
        report = debug_parity(built.path, built.source)
        assert not report.failed
        assert report.outputs[0].rule.startswith("at most 1 % of the choices differ")


@pytest.fixture(scope="module")
def confused() -> onnx.ModelProto:
    """Weights beside whose common part float16 has few digits left for what differs."""
    return labels(common=4.0)


def refused(bench: Workbench, model: onnx.ModelProto, stated: Any) -> AotcError:
    return refusal(bench.build, model, "no", profile=stated, cache=False, force=True)


def test_the_rule_that_refuses_labels_is_told_with_the_remedy_that_works(
    bench: Workbench, confused: onnx.ModelProto
) -> None:
    error = refused(bench, confused, profile("float16"))
    assert error.code == "AOTC-N001"
    assert error.expected == (
        "at most 1 % of the choices differ, and only where errors of 0.001 + 0.02 of the largest "
        "explain it"
    )
    assert " values differ: more than " in error.found
    assert "max|reference|" not in error.expected + error.fix
    remedy = "gates: {outputs: {y: {replaces_tolerance: true, min_agreement: "
    assert remedy in error.fix
    share = float(error.fix.partition(remedy)[2].partition("}")[0])
    gates = {"outputs": {"y": {"replaces_tolerance": True, "min_agreement": share - 0.1}}}
    built = bench.build(confused, "allowed", profile=profile("float16", gates=gates))
    with bench.load(built) as loaded:
        assert loaded.report.variants[0].fixtures


def test_a_profile_may_allow_more_or_less(bench: Workbench, confused: onnx.ModelProto) -> None:
    parity = {"random_shapes": 0, "float16": {"atol": 1e-3, "rtol": 2e-2, "max_differing": 0.9}}
    built = bench.build(confused, "more", profile=profile("float16", parity=parity))
    assert only_variant(built).parity.decided["y"].max_differing == 0.9
    parity["float16"] = {"atol": 1e-3, "rtol": 2e-2, "max_differing": 0.0}
    error = refused(bench, labels(), profile("float16", parity=parity))
    assert error.expected.startswith("at most 0 % of the choices differ")


def test_an_equality_of_whole_numbers_is_told_as_such(bench: Workbench) -> None:
    """Text and numbers that no float decides must be equal, and the message says no tolerance."""
    built = bench.build(
        network([node("Shape", "s", "y", "shape")], info("y", [4], INT64)), "shape",
        profile=profile(),
    )  # fmt: skip
    assert not only_variant(built).parity.decided


def test_a_fixture_of_one_label_that_was_a_tie_is_not_embedded(bench: Workbench) -> None:
    """The load could not tell it from a wrong answer, as nothing there says how narrow it was."""
    model = model_of(
        [
            node("Abs", "x", "a", "positive"),
            node("MatMul", "a w", "t", "ties"),
            # For other inputs the third label wins, so that answers show something.
            node("MatMul", "x v", "u", "others"),
            node("Add", "t u", "s", "scores"),
            node("ArgMax", "s", "y", "label", axis=1),
        ],
        {"x": ["n", 256]},
        [info("y", ["n", 1], INT64)],
        [
            constant("w", np.tile([100.0, 100.01, 50.0], (256, 1)), np.float32),
            constant("v", np.pad(np.full((256, 1), 3000.0), ((0, 0), (2, 0))), np.float32),
        ],
    )
    stated = small_profile("edge", dims={"n": 1}, precision="float16")
    built = bench.build(model, "tie", profile=stated)
    assert "1 value differs" in told(built)["AOTC-N053"]
    assert not built.manifest.fixtures
    assert "AOTC-N006" in built.codes()
    with bench.load(built) as loaded:
        assert loaded.run({"x": np.zeros((1, 256), np.float32)})["y"].shape == (1, 1)


def test_places_of_a_threshold_may_be_more_or_fewer(bench: Workbench) -> None:
    tail = [
        node("Greater", "s t", "g", "greater"),
        node("NonZero", "g", "z", "places"),
        node("Transpose", "z", "y", "turn"),
    ]
    model = network(tail, info("y", [None, 4], INT64), [constant("t", 0.7, np.float32)])
    built = bench.build(model, "places", profile=profile("float16"))
    assert kinds(built) == {"y": "places"}
    assert "decided narrowly" in told(built)["AOTC-N053"]
    with bench.load(built) as loaded:
        assert loaded.report.variants[0].fixtures
