"""Decoders of ONNX Runtime GenAI's ModelBuilder, built without flags and called as GenAI does.

The graphs `genai_*` of `tests/data/exports` were written by
`benchmarks/networks/genai_decoders.py`; where the builder is installed, it writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_models import FOLDER, PAST
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.runtime.model import Model
from benchmarks.networks.genai_decoders import POSITIONS, PRECISIONS, VOCABULARY, write

PROMPT, TOKENS = 16, 256
Call = Callable[[Mapping[str, Any]], dict[str, Any]]
# Batch, past and new tokens of calls that plain ONNX Runtime answers.
ONE_SEQUENCE = ((1, 0, 1), (1, 0, PROMPT), (1, PROMPT, 1), (1, 1, 1), (1, 100, 28), (1, 255, 1))
SEVERAL_SEQUENCES = ((2, 0, PROMPT), (2, PROMPT, 1), (8, 0, 5), (8, 255, 1))


def inputs_of(built: Built, batch: int, past: int, tokens: int) -> dict[str, Any]:
    """Random tokens after a random past, which the mask spans too."""
    rng = np.random.default_rng(past * 100 + tokens * 10 + batch)
    inputs: dict[str, Any] = {
        "input_ids": rng.integers(0, VOCABULARY, (batch, tokens)),
        "attention_mask": np.ones((batch, past + tokens), np.int64),
    }
    for session_input in plain_session(built.source).get_inputs():
        if session_input.name.startswith(PAST):
            shape = (batch, 1, past, 64)
            inputs[session_input.name] = rng.standard_normal(shape, np.float32)
    return inputs


def decoded(call: Call, prompt: np.ndarray, first: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All answers: to the prompt, then to the likeliest token after each answer.

    `first` are the inputs of a first call; each answer's `present` is the next call's past.
    """
    answers: list[dict[str, Any]] = []
    inputs = {**first, "input_ids": prompt}
    for _ in range(TOKENS):
        answer = call(inputs)
        answers.append(answer)
        inputs = {name.replace("present.", PAST): value for name, value in answer.items()}
        inputs["input_ids"] = inputs.pop("logits")[:, -1:].argmax(-1)
        total = prompt.shape[1] + len(answers)
        inputs["attention_mask"] = np.ones((len(prompt), total), np.int64)
    return answers


@pytest.fixture(scope="module", params=[f"genai_{precision}" for precision in PRECISIONS])
def built(bench: Workbench, request: pytest.FixtureRequest) -> Built:
    """A committed decoder, built without flags."""
    return bench.build(FOLDER / f"{request.param}.onnx", request.param)


def outside(model: Model) -> int:
    """How many calls were outside the proven range."""
    return int(model.telemetry.to_dict()["out_of_domain"])


def assert_decodes(bench: Workbench, built: Built, batch: int) -> None:
    """The artifact decodes as the plain model does, within its proven range."""
    plain = plain_session(built.source)
    first = inputs_of(built, batch, 0, PROMPT)
    prompt = first["input_ids"]
    expected = decoded(lambda inputs: plain_answer(plain, inputs), prompt, first)
    chosen = [answer["logits"][:, -1].argmax(-1).tolist() for answer in expected]
    assert len({tuple(tokens) for tokens in chosen}) > TOKENS // 16, "the decoder repeats itself"
    model = bench.load(built)
    found = decoded(model.run, prompt, first)
    tolerance = tolerance_of(built)
    for step, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert_agree(one, other, tolerance, f"step {step}")
    assert [answer["logits"][:, -1].argmax(-1).tolist() for answer in found] == chosen
    assert outside(model) == 0, built.manifest.domain


def test_256_tokens_are_those_of_the_plain_model(bench: Workbench, built: Built) -> None:
    """A prompt with an empty past, then one token at a time, each present fed back."""
    assert_decodes(bench, built, batch=1)


def test_several_sequences_are_decoded_alike(bench: Workbench, built: Built) -> None:
    """The same for two sequences at once."""
    assert_decodes(bench, built, batch=2)


@pytest.mark.parametrize("sizes", [*ONE_SEQUENCE, *SEVERAL_SEQUENCES], ids=str)
def test_a_call_that_onnx_runtime_answers_is_in_the_range(
    bench: Workbench, built: Built, sizes: tuple[int, int, int]
) -> None:
    """Prompts, steps, and a chunk after a past, each by itself."""
    inputs = inputs_of(built, *sizes)
    expected = plain_answer(plain_session(built.source), inputs)
    model = bench.load(built)
    assert_agree(expected, model.run(inputs), tolerance_of(built))
    assert outside(model) == 0, built.manifest.domain


def test_a_cache_of_fixed_length_is_answered(bench: Workbench, built: Built) -> None:
    """GenAI shares one buffer of past and present, which is longer than what is in it."""
    inputs = inputs_of(built, 1, POSITIONS, 1)
    inputs["attention_mask"] = np.ones((1, PROMPT), np.int64)
    expected = plain_answer(plain_session(built.source), inputs)
    of_one = bench.build(built.source, f"{built.source.stem}_of_one", dims={"batch_size": 1})
    for each in (built, of_one):
        assert_agree(expected, bench.load(each).run(inputs), tolerance_of(each))


CAPACITY = 48


@pytest.fixture(scope="module")
def in_place(bench: Workbench, built: Built) -> Built:
    """The decoder with caches of a fixed capacity, as a profile states them."""
    sizes = {"past_sequence_length": CAPACITY, "total_sequence_length": CAPACITY}
    dims: dict[str, Any] = {"batch_size": 1, "sequence_length": "1..8", **sizes}
    return bench.build(built.source, f"{built.source.stem}_in_place", dims=dims)


def mask_of(rows: int) -> np.ndarray[Any, Any]:
    """Of that many rows of a cache."""
    return (np.arange(CAPACITY)[None] < rows).astype(np.int64)


@pytest.mark.parametrize("prompt", [1, 7])
def test_caches_of_a_fixed_capacity_decode_alike(
    bench: Workbench, built: Built, in_place: Built, prompt: int
) -> None:
    """A call for the prompt and one for all steps, in the same caches, from empty to full ones."""
    (variant,) = in_place.manifest.variants
    carry = dict(variant.in_place)
    assert sorted(carry.values()) == sorted(name.replace(PAST, "present.") for name in carry)
    assert len(carry) == 4
    plain, tolerance = plain_session(built.source), tolerance_of(built)
    rng = np.random.default_rng(prompt)
    tokens = rng.integers(0, VOCABULARY, (1, prompt))
    growing = {name: np.zeros((1, 1, 0, 64), np.float32) for name in carry}
    # Rows beyond those that the mask tells of hold anything.
    caches = {name: 9 * rng.standard_normal((1, 1, CAPACITY, 64), np.float32) for name in carry}
    model = bench.load(in_place)
    given = {"input_ids": tokens, "attention_mask": mask_of(prompt), **caches}
    first = model.bind(given, carry=carry)
    held = {name: first.inputs[name] for name in carry}
    given = {"input_ids": tokens[:, -1:], "attention_mask": mask_of(prompt), **held}
    later = model.bind(given, carry=carry)
    addresses = {name: tensor.address for name, tensor in held.items()}
    rows, chosen = 0, []
    while rows + tokens.shape[1] <= CAPACITY:
        rows += tokens.shape[1]
        mask = np.ones((1, rows), np.int64)
        inputs = {"input_ids": tokens, "attention_mask": mask, **growing}
        expected = plain_answer(plain, inputs)
        call = later if chosen else first
        found = call({"input_ids": tokens, "attention_mask": mask_of(rows)})
        answer = {"logits": found["logits"].numpy()}
        for output, name in sorted((output, name) for name, output in carry.items()):
            assert call.inputs[name].address == found[output].address == addresses[name]
            answer[output] = found[output].numpy()[:, :, :rows]
            growing[name] = expected[output]
        expected = {name: expected[name] for name in answer}
        assert_agree(expected, answer, tolerance, f"{rows} rows")
        tokens = expected["logits"][:, -1:].argmax(-1)
        assert (answer["logits"][:, -1:].argmax(-1) == tokens).all()
        chosen.append(int(tokens[0, 0]))
    assert rows == CAPACITY
    assert len(set(chosen)) > 1
    # A full cache takes no more: there is no mask of so many rows.
    with pytest.raises(AotcError) as caught:
        later({"input_ids": tokens, "attention_mask": np.ones((1, CAPACITY + 1), np.int64)})
    assert caught.value.code == "AOTC-R004"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_the_builder_writes_now_decodes_too(
    bench: Workbench, tmp_path: Path, precision: str
) -> None:
    """The same with the builder that is installed."""
    for name in ("torch", "transformers", "onnxruntime_genai"):
        pytest.importorskip(name, reason=f"{name} is not installed: GenAI's builder is not tried")
    model = write(tmp_path, precision)
    assert_decodes(bench, bench.build(model, f"builder_{precision}"), batch=1)
