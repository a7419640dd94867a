"""Which values are tried at a size that fails, and which inputs are in doubt."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from graph_values import value
from onnx import parser

from aotc.sizes.inputs.fixtures import Alternative, FixtureInputs, generate
from aotc.sizes.inputs.hints import doubtful_inputs, hints_of
from aotc.sizes.inputs.value_sets import ValueSets, values_to_try

FIRST: dict[str, dict[str, object]] = {}


def offered(count: int) -> Iterator[Alternative]:
    for number in range(count):
        yield Alternative(f"x: {number}", {"x": {"kind": "full", "value": number}})


def test_what_was_accepted_is_used_from_then_on_and_stays_with_its_sizes() -> None:
    sets = ValueSets(FIRST)
    sets.accept({"n": 1}, 0)
    first, second, *_ = sets.others(0, lambda: offered(3))
    sets.accept({"n": 2}, second)
    assert [sets.number({"n": n}) for n in (1, 2, 3)] == [0, second, second]
    assert sets.hints() == sets.hints(second) == {"x": {"kind": "full", "value": 1}}
    assert sets.told() == "x: 1"
    assert sets.first_rejected == {"n": 2}
    # At a further size the first values come next, then those that were never accepted.
    again = list(sets.others(second, lambda: pytest.fail("asked twice")))
    assert again[:2] == [0, first]


def test_values_of_a_fixture_itself_are_used_at_its_sizes_alone() -> None:
    sets = ValueSets(FIRST)
    sets.accept({"n": 50}, 200)
    assert (sets.number({"n": 50}), sets.number({"n": 51})) == (200, 0)
    assert sets.told() == ""


def test_a_search_does_not_try_without_end() -> None:
    sets = ValueSets(FIRST)
    tried = sum(len(list(sets.others(0, lambda: offered(1000)))) for _ in range(100))
    assert tried == 80


def test_values_as_the_users_fixtures_have_come_first() -> None:
    inputs = (value("x", "n"), value("rate", 1, dtype="int64"), value("ids", "n", dtype="int64"))
    given = [
        FixtureInputs(
            f"user{at}",
            {
                "x": np.linspace(2, 3 + at, 20, dtype=np.float32),
                "rate": np.array([8000 * (at + 1)]),
                "ids": np.arange(20) + 5,
            },
            {"n": 20},
        )
        for at in range(2)
    ]
    first, *_ = values_to_try(inputs, [], {"x": {"kind": "ones"}}, given)
    assert first.hints["x"] == {"kind": "uniform", "low": 2.0, "high": 4.0}
    assert first.hints["rate"] == {"kind": "choice", "values": [8000, 16000]}
    assert first.hints["ids"] == {"kind": "index", "low": 5, "high": 25}
    drawn = generate(inputs, {"n": 7}, first.hints, 0)
    assert set(drawn["rate"].tolist()) <= {8000, 16000}
    assert 2 <= drawn["x"].min() <= drawn["x"].max() <= 4


def test_lengths_are_tied_to_the_dims_that_are_not_their_own() -> None:
    inputs = (value("x", "batch", "time"), value("lengths", "batch", dtype="int64"))
    tried = [other.what for other in values_to_try(inputs, inputs[1:], {}, [])]
    assert tried[:2] == ["lengths: 1 to time", "lengths: time"]
    assert tried[2:4] == ["lengths: 1 to batch", "lengths: batch"]
    assert {"lengths: 0", "lengths: 1"} <= set(tried)
    first, *_ = values_to_try(inputs, inputs[1:], {}, [])
    lengths = generate(inputs, {"batch": 50, "time": 3}, first.hints, 0)["lengths"]
    assert set(lengths.tolist()) == {1, 2, 3}


HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'


def doubtful(text: str) -> set[str]:
    model: onnx.ModelProto = parser.parse_model(HEAD + text)
    return set(doubtful_inputs(model, hints_of(model)))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # A factor of a length, but not the image of which boxes are chosen.
        ("""g (float[n] x, float[1] speed) => (float[m] y) {
             s = Mul (x, speed)  t = ReduceSum <keepdims = 0> (s)  l = Cast <to = 7> (t)
             z = Constant <value = int64[1] {0}> ()  d = Unsqueeze (l, z)
             y = ConstantOfShape (d) }""", {"x", "speed"}),
        ("""g (float[1, 3, h, w] image) => (int64[4, m] y) {
             r = Relu (image)  y = NonZero (r) }""", set()),
        # A rule tells what indices of a table are; of a count only that it is small.
        ("""g (int64[n] ids) => (float[n, 2] y) {
             t = Constant <value = float[3, 2] {1., 2., 3., 4., 5., 6.}> ()
             y = Gather (t, ids) }""",
         set()),
        ("""g (float[n] x, int64 count) => (float[m] y) {
             z = Constant <value = int64[1] {0}> ()  c = Unsqueeze (count, z)
             y = Tile (x, c) }""", {"count"}),
        # A number that only computes is in no doubt.
        ("g (float[n] x, float[1] scale) => (float[n] y) { y = Mul (x, scale) }", set()),
        # A condition is.
        ("""g (float[n] x, int64 step) => (float[n] y) {
             z = Constant <value = int64 {3}> ()  t = Div (step, z)  c = Equal (t, z)
             y = If (c) <then_branch = a () => (float[n] p) { p = Relu (x) },
                         else_branch = b () => (float[n] q) { q = Neg (x) }> }""", {"step"}),
    ],
)  # fmt: skip
def test_inputs_in_doubt_are_those_whose_values_decide(text: str, names: set[str]) -> None:
    assert doubtful(text) == names
