"""Models whose inputs have stated values: built on them, told, and refused others at a call."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.runtime import value_files
from aotc.spec.codec import decode
from aotc.spec.profile import Profile
from aotc.tools.example_inputs import example_at

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'

# The length of its answer is a sum of durations, which a negative speed makes negative.
SPEECH = """
    g (float[n] x, float[1] speed) => (float[samples] audio) {
        zero = Constant <value = int64[1] {0}> ()
        s = Softplus (x)  m = Mul (s, speed)  c = Ceil (m)
        total = ReduceSum <keepdims = 0> (c)  len = Cast <to = 7> (total)
        shape = Unsqueeze (len, zero)  mean = ReduceMean <keepdims = 1> (x)
        audio = Expand (mean, shape)
    }"""
# Sampling rates are looked up by their quotient, and there are two.
RATES = """
    g (float[n] audio, int64 rate) => (float[n] y) {
        gains = Constant <value = float[2] {0.5, 2.0}> ()
        one = Constant <value = int64 {1}> ()  step = Constant <value = int64 {8000}> ()
        quotient = Div (rate, step)  at = Sub (quotient, one)  gain = Gather (gains, at)
        y = Mul (audio, gain)
    }"""
# As exported from packed sequences: no length is above the time, or the node fails.
PACKED = """
    g (float[time, batch, 3] x, int32[batch] lengths) => (float[batch, 4] last) {
        zero = Constant <value = int64[1] {0}> ()
        w = Constant <value = float[1, 16, 3] {%s}> ()
        r = Constant <value = float[1, 16, 4] {%s}> ()
        all, h = LSTM <hidden_size = 4> (x, w, r, , lengths)
        last = Squeeze (h, zero)
    }"""
# A mask is made of the lengths: what is above the time is no error, only wrong.
MASKED = """
    g (float[batch, time] x, int64[batch] lengths) => (float[batch] mean) {
        axis = Constant <value = int64[1] {1}> ()
        start = Constant <value = int64 {0}> ()  step = Constant <value = int64 {1}> ()
        shape = Shape (x)  at = Constant <value = int64 {1}> ()  time = Gather (shape, at)
        places = Range (start, time, step)  column = Unsqueeze (lengths, axis)
        inside = Less (places, column)  mask = Cast <to = 1> (inside)
        kept = Mul (x, mask)  sum = ReduceSum <keepdims = 0> (kept, axis)
        count = Cast <to = 1> (lengths)  mean = Div (sum, count)
    }"""

SCALED = """
    g (float[n, 4] x, float[1] speed) => (float[n, 4] y) {
        k = Constant <value = float[4, 4] {1, 2, 3, 4, 4, 3, 2, 1, 1, 3, 2, 4, 4, 2, 3, 1}> ()
        p = MatMul (x, k)  y = Mul (p, speed)
    }"""


def model_of(text: str) -> onnx.ModelProto:
    if "%s" in text:
        rng = np.random.default_rng(3)
        weights = (", ".join(f"{w:.3f}" for w in rng.normal(size=n)) for n in (48, 64))
        text = text % tuple(weights)
    return parser.parse_model(HEAD + text)


def profile(**fields: Any) -> Profile:
    limits = {"max_size": 32, "max_runs": 120}
    return decode(Profile, {"schema": "aotc.profile/1", "name": "p", "probe": limits, **fields})


def assert_answers(bench: Workbench, built: Built, *calls: dict[str, Any]) -> None:
    session = plain_session(built.source)
    with bench.load(built) as model:
        for inputs in calls:
            found = model.run(inputs)
            tolerance = tolerance_of(built, built.manifest.variants[0].name)
            assert_agree(plain_answer(session, inputs), found, tolerance)


def assert_refused(error: AotcError, code: str, **told: str) -> None:
    assert (error.code, {name: getattr(error, name) for name in told}) == (code, told)


def refused_build(bench: Workbench, text: str, **options: Any) -> AotcError:
    with pytest.raises(AotcError) as refused:
        bench.build(model_of(text), "refused", force=True, **options)
    return refused.value


def floats(*shape: int) -> Any:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def speech(bench: Workbench) -> Built:
    stated = profile(inputs={"speed": {"min": 0.5, "max": 2.0}})
    return bench.build(model_of(SPEECH), "speech", profile=stated)


@pytest.fixture(scope="module")
def packed(bench: Workbench) -> Built:
    return bench.build(model_of(PACKED), "packed", profile=profile(), values={"lengths": "1..time"})


def test_a_speed_of_speech_is_drawn_from_what_is_stated(bench: Workbench, speech: Built) -> None:
    assert speech.manifest.domain.dims["n"].max == 32
    assert "stated-values" in speech.manifest.required_features
    told = speech.finding("AOTC-S033")
    assert told.startswith("input speed: stated: from 0.5 to 2; tried: 0.5 to 2 in ")
    for fixture in speech.manifest.fixtures:
        given = value_files.read_fixture(speech.payload, fixture)["speed"]
        assert 0.5 <= given.min() <= given.max() <= 2.0
    speeds = (0.5, 0.7, 2.0)
    assert_answers(
        bench, speech, *({"x": floats(5), "speed": np.float32([speed])} for speed in speeds)
    )


@pytest.mark.parametrize(
    ("speed", "found"),
    [(0.49, "0.49"), (2.1, "2.1"), (-1.0, "-1"), (np.nan, "NaN"), (np.inf, "inf")],
)
def test_another_speed_is_refused_before_anything_runs(
    bench: Workbench, speech: Built, speed: float, found: str
) -> None:
    inputs = {"x": floats(5), "speed": np.float32([speed])}
    with bench.load(speech) as model:
        for call in (model.run, model.route, model.bind):
            with pytest.raises(AotcError) as refused:
                call(inputs)
            assert_refused(
                refused.value,
                "AOTC-R027",
                what="input 'speed' has a value outside of those that the profile states",
                where="input speed",
                expected="from 0.5 to 2",
                found=found,
            )
        assert model.telemetry.to_dict()["calls"] == 0


def test_all_stated_rates_are_compared(bench: Workbench) -> None:
    stated = profile(inputs={"rate": {"values": [8000, 16000]}})
    built = bench.build(model_of(RATES), "rates", profile=stated)
    told = built.finding("AOTC-S033")
    assert told.startswith("input rate: stated: 8000, 16000; tried: 8000, 16000 in ")
    rates = (8000, 16000)
    assert_answers(bench, built, *({"audio": floats(4), "rate": np.array(r)} for r in rates))
    with bench.load(built) as model, pytest.raises(AotcError) as refused:
        model.run({"audio": floats(4), "rate": np.array(44100)})
    assert_refused(refused.value, "AOTC-R027", expected="8000, 16000", found="44100")


def test_a_rate_that_does_not_run_is_told_and_the_others_are_proven(bench: Workbench) -> None:
    stated = profile(inputs={"rate": {"values": [44100, 8000, 16000, 48000]}})
    built = bench.build(model_of(RATES), "some-rates", profile=stated)
    failed = [f.what for f in built.manifest.findings if f.code == "AOTC-S034"]
    assert [text.partition(":")[0].partition(" at ")[0] for text in failed] == [
        "the model does not run with rate = 44100",
        "the model does not run with rate = 48000",
    ]
    assert "tried: 8000, 16000 in " in built.finding("AOTC-S033")
    assert_answers(bench, built, {"audio": floats(4), "rate": np.array(16000)})


def test_lengths_are_up_to_the_time_of_the_call(bench: Workbench, packed: Built) -> None:
    dims = packed.manifest.domain.dims
    assert (dims["time"].min, dims["time"].max, dims["batch"].max) == (1, 32, 32)
    told = packed.finding("AOTC-S033")
    assert told.startswith("input lengths: stated: from 1 to time; tried: 1 to 32 in ")
    # At least one fixture has a length of all the time; here each has.
    assert ", time itself in " in told
    lengths = ([5, 1], [4, 2], [5, 5])
    assert_answers(
        bench, packed, *({"x": floats(5, 2, 3), "lengths": np.int32(each)} for each in lengths)
    )
    with bench.load(packed) as model, pytest.raises(AotcError) as refused:
        model.run({"x": floats(5, 2, 3), "lengths": np.int32([6, 1])})
    assert_refused(
        refused.value, "AOTC-R027", expected="from 1 to time = 5", found="6, the largest of 2"
    )


def test_a_bound_call_is_held_to_what_its_memory_has(bench: Workbench, packed: Built) -> None:
    with bench.load(packed) as model:
        good = {"x": floats(3, 2, 3), "lengths": np.int32([3, 1])}
        call = model.bind(good)
        first = call()["last"].numpy()
        with pytest.raises(AotcError, match="AOTC-R027") as refused:
            call({"lengths": np.int32([4, 1])})
        assert refused.value.expected == "from 1 to time = 3"
        # What was refused was not written.
        np.testing.assert_array_equal(call()["last"].numpy(), first)
        wrong = np.int32([1, 9])
        ctypes.memmove(call.inputs["lengths"].address, wrong.ctypes.data, wrong.nbytes)
        with pytest.raises(AotcError, match="AOTC-R027"):
            call()
        np.testing.assert_array_equal(call({"lengths": good["lengths"]})["last"].numpy(), first)


def test_inputs_of_other_sizes_are_cut_to_what_is_allowed_there(
    bench: Workbench, packed: Built
) -> None:
    with bench.load(packed) as model:
        for time in (1, 2, 20):
            example, sizes = example_at(model, (), {"time": time, "batch": 3})
            inputs = example.inputs
            assert sizes["time"] == time
            assert inputs["lengths"].max() <= time
            assert model.run(inputs)["last"].shape == (3, 4)


def test_masks_of_padded_variants_are_proven_within_the_time(bench: Workbench) -> None:
    dims = {"time": {"buckets": [4, 8], "outside": "pad"}, "batch": "1..4"}
    inputs = {"lengths": {"min": 1, "max": "time"}}
    stated = profile(inputs=inputs, dims=dims, outputs={"mean": {"crop": {}}})
    built = bench.build(model_of(MASKED), "masked", profile=stated)
    calls = [{"x": floats(2, time), "lengths": np.array([time, 1])} for time in (1, 3, 4, 5, 7, 8)]
    assert_answers(bench, built, *calls)
    # The time is that of the call, not the one to which it is padded.
    with bench.load(built) as model, pytest.raises(AotcError, match="AOTC-R027"):
        model.run({"x": floats(2, 3), "lengths": np.array([4, 1])})


def test_names_of_dims_are_those_of_the_profile(bench: Workbench) -> None:
    text = MASKED.replace("int64[batch] lengths", "int64[rows] lengths")
    stated = profile(
        relations=["clip = x.1", "batch = lengths.0"], inputs={"lengths": {"min": 1, "max": "x.1"}}
    )
    built = bench.build(model_of(text), "renamed", profile=stated)
    (lengths,) = (value for value in built.manifest.inputs if value.name == "lengths")
    assert lengths.allowed is not None
    assert lengths.allowed.max == "clip"
    assert_answers(bench, built, {"x": floats(2, 6), "lengths": np.array([6, 1])})


@pytest.mark.parametrize(
    ("text", "inputs", "code", "told"),
    [
        (
            RATES,
            {"rate": {"values": [8000, 0.5]}},
            "AOTC-I111",
            {"where": "inputs.rate.values", "expected": "int64", "found": "0.5 has a fraction"},
        ),
        (
            PACKED,
            {"lengths": {"max": 2**40}},
            "AOTC-I111",
            {
                "where": "inputs.lengths.max",
                "found": "1099511627776 is outside -2147483648..2147483647",
            },
        ),
        (
            PACKED,
            {"lengths": {"max": "tme"}},
            "AOTC-S002",
            {
                "what": "the model has no dim 'tme'",
                "where": "inputs.lengths.max",
                "expected": "batch, time",
                "found": "nearest: time",
            },
        ),
        (
            PACKED,
            {"lengths": {"max": "x.2"}},
            "AOTC-S004",
            {"what": "the model fixes 'x.2'", "found": "size 3", "fix": "Write the number."},
        ),
        (
            SPEECH,
            {"sped": {"max": 2}},
            "AOTC-S002",
            {"where": "inputs.sped", "found": "nearest: speed"},
        ),
        (
            "g (float[n] x, bool b) => (float[n] y) { y = Where (b, x, x) }",
            {"b": {"max": 1}},
            "AOTC-I111",
            {
                "where": "inputs.b",
                "expected": "numbers or text",
                "found": "a tensor of bool has no values that can be stated",
            },
        ),
        (
            "g (seq(float[n]) x, int64 i) => (float[n] y) { y = SequenceAt (x, i) }",
            {"x": {"max": 1}},
            "AOTC-I111",
            {
                "where": "inputs.x",
                "found": "a sequence of float32 has no values that can be stated",
            },
        ),
        (
            "g (string[n] x) => (string[n] y) { y = Identity (x) }",
            {"x": {"max": 1}},
            "AOTC-I111",
            {"where": "inputs.x", "found": "text has no bounds; state values"},
        ),
    ],
)
def test_statements_that_are_none_of_the_model_are_refused(
    bench: Workbench, text: str, inputs: Any, code: str, told: dict[str, str]
) -> None:
    assert_refused(refused_build(bench, text, profile=profile(inputs=inputs)), code, **told)


@pytest.mark.parametrize("fixed", [False, True])
def test_values_that_no_run_passes_are_named(bench: Workbench, fixed: bool) -> None:
    text = RATES.replace("[n]", "[4]") if fixed else RATES
    stated = profile(inputs={"rate": {"values": [44100, 48000]}})
    error = refused_build(bench, text, profile=stated)
    assert_refused(
        error,
        "AOTC-S032",
        what="no run passes with the values that the profile states, at any size that was tried",
        where="inputs.rate",
    )
    assert error.found.startswith("rate is stated as 44100, 48000: ")
    assert "Gather" in error.found


def test_sizes_that_allow_no_value_are_left_out(bench: Workbench) -> None:
    stated = profile(inputs={"lengths": {"min": 3, "max": "time"}})
    built = bench.build(model_of(PACKED), "long", profile=stated)
    assert built.manifest.domain.dims["time"].min == 3


def saved(folder: Path, **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "one.npz", **arrays)
    return folder


def test_fixtures_and_samples_of_excluded_values_are_refused(
    bench: Workbench, tmp_path: Path
) -> None:
    stated = profile(inputs={"speed": {"min": 0.5, "max": 2.0}}, precision="int8")
    given = {"x": floats(5), "speed": np.float32([3])}
    what = "input 'speed' has a value outside of those that the profile states"
    error = refused_build(
        bench, SPEECH, profile=stated, fixtures=saved(tmp_path / "fixtures", **given)
    )
    where = "fixture one: speed"
    assert_refused(error, "AOTC-I112", what=what, where=where, expected="from 0.5 to 2", found="3")
    samples = saved(tmp_path / "samples", x=floats(4, 4), speed=given["speed"])
    error = refused_build(bench, SCALED, profile=stated, calibration=samples)
    assert_refused(error, "AOTC-I112", what=what, expected="from 0.5 to 2", found="3")
    assert error.where.endswith("one.npz, sample 0: speed")


def test_the_command_line_states_values_and_shows_them(
    bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, artifact = bench.save(model_of(SPEECH), "spoken"), tmp_path / "spoken.aotc"
    words = ["build", str(model), "-o", str(artifact), "--key", str(bench.private), "--force"]
    assert main([*words, "--dim", "n=1..8", "--value", "speed=0.5..2.0"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(artifact)]) == 0
    shown = capsys.readouterr().out
    assert "float32 [1], from 0.5 to 2" in shown
    assert "input speed: stated: from 0.5 to 2; tried: 0.5 to 2 in " in shown
    assert main([*words, "--value", "speed=2..1"]) == 3
    told = capsys.readouterr().err
    assert "AOTC-I110" in told
    assert "min: 2 is more than max 1" in told
    assert "--value speed=2..1" in told
