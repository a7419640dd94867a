"""Whole numbers that differ: excused where the original decided narrowly, and refused elsewhere.

Every variant here is a real model with other weights, or an answer that a destroyed one would give.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from model_parts import constant, info, model_of, node
from onnx import TensorProto

from aotc.base.records import replace
from aotc.graph.decisions import Decisions
from aotc.session.decisions import Judge
from aotc.session.margins import OriginalMargins, scale_of
from aotc.session.parity import compare
from aotc.spec.evidence import OutputError
from aotc.spec.precision import DecidedOutput, OutputGate, Tolerance

FLOAT16 = Tolerance(atol=1e-3, rtol=2e-2, min_cosine=0.999)
ROWS, CLASSES = 2000, 12
SHARE = 0.01

INT64, UINT8, BOOL = TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL
TAILS: dict[str, tuple[list[onnx.NodeProto], int, list[onnx.TensorProto]]] = {
    "choice": ([node("ArgMax", "s", axis=1, keepdims=0)], INT64, []),
    "table": (
        [node("ArgMax", "s", "a", axis=1, keepdims=0), node("Gather", "table a")],
        INT64,
        [constant("table", np.arange(CLASSES)[::-1] * 7, np.int64)],
    ),
    "floats": (
        [node("ArgMax", "s", "a", axis=1, keepdims=0), node("Cast", "a", "f", to=1),
         node("Mul", "f tenth")],
        TensorProto.FLOAT,
        [constant("tenth", 0.1, np.float32)],
    ),
    "ranking": ([node("TopK", "s k", "v y")], INT64, [constant("k", [4])]),
    "threshold": ([node("Greater", "s t")], BOOL, [constant("t", 0.5, np.float32)]),
    "between": (
        [node("Greater", "s t", "g"), node("Less", "s u", "h"), node("And", "g h", "i"),
         node("Not", "i")],
        BOOL,
        [constant("t", 0.4, np.float32), constant("u", 0.6, np.float32)],
    ),
    "background": (
        [node("ArgMax", "s", "a", axis=1, keepdims=0), node("ReduceMax", "s axes", "m", keepdims=0),
         node("Greater", "m t", "g"), node("Where", "g a none")],
        INT64,
        [constant("axes", [1]), constant("t", 2.0, np.float32), constant("none", 255, np.int64)],
    ),
    "places": (
        [node("Greater", "s t", "g"), node("NonZero", "g")],
        INT64,
        [constant("t", 1.5, np.float32)],
    ),
    "rounded": (
        [node("Mul", "s hundred", "h"), node("Clip", "h low high", "c"), node("Round", "c", "r"),
         node("Cast", "r", to=UINT8)],
        UINT8,
        [constant(n, v, np.float32) for n, v in (("hundred", 60), ("low", 0), ("high", 255))],
    ),
    "quantized": (
        [node("QuantizeLinear", "s step zero")],
        UINT8,
        [constant("step", 0.05, np.float32), constant("zero", 128, np.uint8)],
    ),
    "count": (
        [node("Greater", "s t", "g"), node("Cast", "g", "i", to=INT64),
         node("ReduceSum", "i axes", keepdims=0)],
        INT64,
        [constant("t", 0.5, np.float32), constant("axes", [0])],
    ),
}  # fmt: skip


def network(tail: str, error: float = 0.0) -> onnx.ModelProto:
    """Scores of random features, and what is decided by them; `error` is added to its weights."""
    weights = np.random.default_rng(5).standard_normal((16, CLASSES)) * 0.25
    weights += np.random.default_rng(6).standard_normal(weights.shape) * error
    nodes, kind, constants = TAILS[tail]
    return model_of(
        [node("MatMul", "x w", "s"), *nodes],
        {"x": ["n", 16]},
        [info("y", None, kind)],
        [constant("w", weights, np.float32), *constants],
    )


def answer(model: onnx.ModelProto, x: np.ndarray, name: str = "y") -> np.ndarray:
    found: np.ndarray = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run([name], {"x": x})[0]
    return found


class Original:
    """One model, its inputs, and what judges its output `y`."""

    def __init__(self, tail: str, folder: Path, rows: int = ROWS) -> None:
        self.model = network(tail)
        self.x = np.random.default_rng(7).standard_normal((rows, 16)).astype(np.float32)
        self.reference = answer(self.model, self.x)
        path = folder / "original.onnx"
        path.write_bytes(self.model.SerializeToString())
        stated = Decisions(self.model).stated
        self.stated = {name: replace(each, max_differing=SHARE) for name, each in stated.items()}
        self.margins = OriginalMargins(path, folder, self.stated)

    def judged(
        self, actual: np.ndarray, tolerance: Tolerance = FLOAT16, gate: OutputGate | None = None
    ) -> OutputError:
        judge = self.margins.judge("y", "f", partial(dict, x=self.x), tolerance)
        return compare(self.reference, actual, tolerance, "y", gate, decided=judge)

    def at_load(self, actual: np.ndarray) -> OutputError:
        return compare(self.reference, actual, FLOAT16, "y", decided=Judge(self.stated["y"]))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("tail", TAILS)
def test_what_float16_would_flip_is_excused_at_the_build_and_at_a_load(
    tail: str, tmp_path: Path
) -> None:
    original = Original(tail, tmp_path)
    found = original.judged(answer(network(tail, 3e-4), original.x))
    assert found.passed, found
    assert found.differing > 0
    assert found.within_margin == found.differing
    assert original.at_load(answer(network(tail, 3e-4), original.x)).passed


@pytest.mark.parametrize("tail", TAILS)
def test_the_same_answer_has_nothing_to_excuse(tail: str, tmp_path: Path) -> None:
    original = Original(tail, tmp_path)
    found = original.judged(original.reference.copy())
    assert (found.passed, found.differing, found.within_margin) == (True, 0, None)


@pytest.mark.parametrize("tail", TAILS)
def test_another_network_is_refused(tail: str, tmp_path: Path) -> None:
    original = Original(tail, tmp_path)
    found = original.judged(answer(network(tail, 1.0), original.x))
    assert not found.passed
    assert found.rule
    assert "differ" in found.reason


def destroyed(tail: str, reference: np.ndarray) -> dict[str, np.ndarray]:
    """Answers at random, of one value, and shifted in place and in value (truths inverted)."""
    random = np.random.default_rng(8).permutation(reference.reshape(-1)).reshape(reference.shape)
    step = reference.dtype.type(60 if tail in ("rounded", "quantized", "count") else 1)
    return {
        "random": random,
        "constant": np.full_like(reference, reference.reshape(-1)[0]),
        "shifted": np.roll(reference, 1, axis=0),
        "more": ~reference if reference.dtype == bool else reference + step,
    }


@pytest.mark.parametrize("kind", ["random", "constant", "shifted"])
@pytest.mark.parametrize("tail", [t for t in TAILS if t not in ("places", "count", "floats")])
def test_a_destroyed_answer_is_refused_although_all_was_decided_narrowly(
    tail: str, kind: str, tmp_path: Path
) -> None:
    """The tolerance is so wide that every margin is within it: the share alone refuses."""
    original = Original(tail, tmp_path)
    wide = Tolerance(atol=0.1 if tail in ("rounded", "quantized") else 10.0, rtol=0.0)
    found = original.judged(destroyed(tail, original.reference)[kind], wide)
    assert not found.passed, found


@pytest.mark.parametrize("rare", [12, 200])
def test_a_rare_class_that_is_lost_is_refused_although_few_values_differ(
    rare: int, tmp_path: Path
) -> None:
    """All margins are within the tolerance, and the share of all that may differ is wide."""
    original = Original("background", tmp_path, rows=20 * rare)
    original.reference[:] = 255
    original.reference[::20] = np.arange(rare) % CLASSES
    original.stated["y"] = replace(original.stated["y"], max_differing=0.1)
    lost = original.reference.copy()
    lost[::20] = 255
    # One is kept: the answer is not of one value.
    lost[:20] = original.reference[:20]
    kept = original.reference.copy()
    kept[: 10 * rare : 20] = 255
    found = original.at_load(lost)
    assert not found.passed
    assert f"of {rare} other than 255 only 1 agree" in found.reason
    assert original.at_load(kept).passed


@pytest.mark.parametrize("kind", ["random", "constant", "shifted", "more"])
@pytest.mark.parametrize("tail", TAILS)
def test_a_destroyed_answer_is_refused_at_a_load(tail: str, kind: str, tmp_path: Path) -> None:
    original = Original(tail, tmp_path)
    assert not original.at_load(destroyed(tail, original.reference)[kind]).passed


def test_one_clear_decision_is_enough_to_refuse(tmp_path: Path) -> None:
    original = Original("choice", tmp_path)
    actual = original.reference.copy()
    scores = answer(with_scores(original.model), original.x, "s")
    clear = int(np.argmax(scores.max(axis=1) - np.median(scores, axis=1)))
    actual[clear] = int(np.argmin(scores[clear]))
    found = original.judged(actual)
    assert not found.passed
    assert (found.differing, found.within_margin) == (1, 0)
    assert found.reason == f"1 of {ROWS} values differ: 1 of them were decided clearly"
    assert original.at_load(actual).passed


def with_scores(model: onnx.ModelProto) -> onnx.ModelProto:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.append(info("s", None))
    return shown


def test_indices_of_equal_scores_are_as_good_in_any_order(tmp_path: Path) -> None:
    """Ties: a provider may list them otherwise, and then every rank has another index."""
    model = model_of(
        [node("Round", "x", "s"), node("TopK", "s k", "v y")],
        {"x": ["n", 16]},
        [info("y", None, INT64)],
        [constant("k", [16])],
    )
    original = Original("ranking", tmp_path)
    original.model = model
    (tmp_path / "original.onnx").write_bytes(model.SerializeToString())
    original.margins = OriginalMargins(tmp_path / "original.onnx", tmp_path, original.stated)
    original.reference = answer(model, original.x)
    scores = np.round(original.x)
    last_first = 15 - np.argsort(-scores[:, ::-1], axis=1, kind="stable")
    found = original.judged(last_first)
    assert found.passed, found
    assert found.differing > ROWS
    twice = last_first.copy()
    twice[0, 0] = twice[0, 1]
    assert not original.judged(twice).passed


def test_places_may_be_more_or_fewer_but_in_their_order(tmp_path: Path) -> None:
    original = Original("places", tmp_path)
    scores = answer(with_scores(original.model), original.x, "s")
    near = np.stack(np.nonzero(scores > 1.499))
    assert near.shape[1] > original.reference.shape[1]
    found = original.judged(near)
    assert found.passed, found
    assert not original.judged(near[:, ::-1]).passed
    far = np.delete(original.reference, np.argmax(scores[tuple(original.reference)]), axis=1)
    refused = original.judged(far)
    assert not refused.passed
    assert refused.reason.endswith("1 of them were decided clearly")


def test_of_few_values_one_is_excused_by_its_margin_alone(tmp_path: Path) -> None:
    """A load knows no margin, so that it excuses none of few: the fixture is not embedded then."""
    original = Original("choice", tmp_path, rows=1)
    scores = answer(with_scores(original.model), original.x, "s")[0]
    second = np.array([np.argsort(scores)[-2]])
    wide = Tolerance(atol=float(np.ptp(scores)), rtol=0.0)
    assert original.judged(second, wide).passed
    assert not original.judged(second, Tolerance(atol=0.0, rtol=1e-6)).passed
    assert not original.at_load(second).passed


def test_a_gate_of_the_profile_takes_the_place_of_the_rule(tmp_path: Path) -> None:
    original = Original("choice", tmp_path)
    actual = answer(network("choice", 0.05), original.x)
    assert not original.judged(actual).passed
    share = float(np.mean(actual == original.reference))
    gate = OutputGate(replaces_tolerance=True, min_agreement=share - 0.01)
    assert original.judged(actual, gate=gate).passed
    strict = OutputGate(replaces_tolerance=True, min_agreement=share + 0.01)
    assert original.judged(actual, gate=strict).breached == ("min_agreement",)


def test_a_mask_is_no_scale() -> None:
    values = np.array([0.5, -2.0, -1e9, -1e9, np.inf, -3.4e38, np.nan], np.float32)
    assert scale_of(values) == 2.0
    assert scale_of(np.zeros(3, np.float32)) == 0.0
    assert scale_of(np.array([1.0, 5000.0])) == 5000.0


def test_of_a_model_that_does_not_run_the_share_alone_counts(tmp_path: Path) -> None:
    original = Original("choice", tmp_path)
    original.margins = OriginalMargins(tmp_path / "original.onnx", tmp_path, original.stated)
    actual = answer(network("choice", 3e-4), original.x)
    inputs: dict[str, Any] = {"x": original.x[:, :3]}
    judge = original.margins.judge("y", "f", lambda: inputs, FLOAT16)
    found = compare(original.reference, actual, FLOAT16, "y", decided=judge)
    assert found.passed
    assert found.within_margin is None
    few = compare(original.reference[:50], actual[:50], FLOAT16, "y", decided=judge)
    assert not few.differing
    one = original.reference[:50].copy()
    one[3] += 1
    refused = compare(original.reference[:50], one, FLOAT16, "y", decided=judge)
    assert refused.reason == (
        "1 of 50 values differ: it is not known how narrowly they were decided"
    )


def test_the_rule_is_told_in_words() -> None:
    def told(kind: Any) -> str:
        judge = Judge(DecidedOutput(kind=kind, max_differing=0.01))
        zeros = np.zeros((1, 100), np.int64)
        return compare(zeros, zeros, FLOAT16, "y", decided=judge).rule

    within = "0.001 + 0.02 of the largest"
    assert told("choice") == (
        f"at most 1 % of the choices differ, and only where errors of {within} explain it"
    )
    assert told("other") == "at most 1 % of the whole numbers differ"
    assert told("places").startswith("at most 1 % of the places are missing and as many are added")
    assert told("rounded").startswith(f"rounded values differ by at most 1 and {within}")
    assert told("ranking").startswith("at most 50 % of the ranked indices are not among those")
