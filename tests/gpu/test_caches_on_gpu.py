"""Caches of a fixed capacity: one captured graph decodes at all lengths, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from on_gpu import built, close_to, note
from repository import ROOT

import aotc
from aotc.runtime.model import Model

pytestmark = pytest.mark.gpu
EXPORTS = ROOT / "tests" / "data" / "exports"
DECODER = EXPORTS / "genai_fp32.onnx"
CAPACITY, WIDTH = 48, 64
LENGTHS = {"past_sequence_length": CAPACITY, "total_sequence_length": CAPACITY}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    found = built(
        DECODER,
        tmp_path_factory.mktemp("caches"),
        {"batch_size": 1, "sequence_length": 1, **LENGTHS},
        precision="float16",
        inputs={"past_key_values.*": {"dtype": "float16"}},
        outputs={"present.*": {"dtype": "float16"}},
    )
    with aotc.load(found.path) as loaded:
        yield loaded


def decoded(model: Model, *, carry: bool) -> tuple[list[Any], int]:
    """Logits of all steps, each fed the token that the plain model chooses, and captures."""
    names = dict(model.variant.in_place)
    assert len(names) == 4
    plain = ort.InferenceSession(DECODER, providers=["CPUExecutionProvider"])
    growing = {name: np.zeros((1, 1, 0, WIDTH), np.float32) for name in names}
    rng = np.random.default_rng(0)
    # Rows beyond those that the mask tells of hold anything.
    caches = {
        name: rng.standard_normal((1, 1, CAPACITY, WIDTH), np.float32).astype(np.float16)
        for name in names
    }
    tokens = np.array([[5]])
    first = {"input_ids": tokens, "attention_mask": mask_of(1), **caches}
    captures = model.telemetry.snapshot().captures
    call = model.bind(first, carry=names if carry else None)
    assert call.captured
    addresses = {name: tensor.address for name, tensor in call.inputs.items()}
    answers = []
    for rows in range(1, CAPACITY + 1):
        inputs = {"input_ids": tokens, "attention_mask": np.ones((1, rows), np.int64), **growing}
        wanted = ["logits", *names.values()]
        logits, *presents = plain.run(wanted, inputs)
        growing = dict(zip(names, presents, strict=True))
        given = {"input_ids": tokens, "attention_mask": mask_of(rows)}
        found = call(given if carry else {**given, **caches})
        answers.append((found["logits"].numpy(), logits))
        if carry:
            assert all(found[output].address == addresses[name] for name, output in names.items())
        else:
            caches = {name: found[output].numpy() for name, output in names.items()}
        tokens = logits[:, -1:].argmax(-1)
    return answers, model.telemetry.snapshot().captures - captures


def mask_of(rows: int) -> np.ndarray[Any, Any]:
    return (np.arange(CAPACITY)[None] < rows).astype(np.int64)


@pytest.mark.parametrize("carry", [True, False], ids=["in place", "passed on"])
def test_one_graph_serves_every_step(model: Model, carry: bool) -> None:
    answers, captures = decoded(model, carry=carry)
    assert captures == 1
    worst = max(
        float(np.abs(found - expected).max() / np.abs(expected).max())
        for found, expected in answers
    )
    note(f"caches, carry={carry}: worst of {CAPACITY} steps, of the largest logit", worst)
    for found, expected in answers:
        close_to(found, expected, 2e-2)


def test_a_cache_that_is_on_the_device_is_used_where_it_is(model: Model) -> None:
    torch = pytest.importorskip("torch")
    names = dict(model.variant.in_place)
    shape = (1, 1, CAPACITY, WIDTH)
    caches = {name: torch.zeros(shape, dtype=torch.float16, device="cuda") for name in names}
    given = {"input_ids": np.array([[5]]), "attention_mask": mask_of(1), **caches}
    call = model.bind(given, carry=names)
    # To bind leaves them as they are.
    assert not any(cache.any() for cache in caches.values())
    call()
    for name, cache in caches.items():
        assert call.outputs[names[name]].address == cache.data_ptr()
        assert cache[0, 0, 0].any()
        assert not cache[0, 0, 1:].any()


def test_a_static_cache_of_torch_is_written_in_place(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """By plain operators; the same network with a past that grows tells the answers."""
    rows, width = 32, 8
    found = built(
        EXPORTS / "llama_static.onnx",
        tmp_path_factory.mktemp("static"),
        {"sequence": 1},
        precision="float16",
        inputs={"past_key_values.*": {"dtype": "float16"}},
        outputs={"present.*": {"dtype": "float16"}},
    )
    plain = ort.InferenceSession(EXPORTS / "llama_sdpa.onnx", providers=["CPUExecutionProvider"])
    with aotc.load(found.path) as model:
        names = dict(model.variant.in_place)
        assert len(names) == 4
        caches = {name: np.full((1, 1, rows, width), 9, np.float16) for name in names}
        growing = {name: np.zeros((1, 1, 0, width), np.float32) for name in names}
        tokens = np.array([[5]])
        given = {"input_ids": tokens, "length": np.array(0), **caches}
        call = model.bind(given, carry=names)
        assert call.captured
        for length in range(rows):
            mask = np.ones((1, length + 1), np.int64)
            inputs = {"input_ids": tokens, "attention_mask": mask, **growing}
            logits, *presents = plain.run(["logits", *names.values()], inputs)
            growing = dict(zip(names, presents, strict=True))
            answer = call({"input_ids": tokens, "length": np.array(length)})
            close_to(answer["logits"].numpy(), logits, 2e-2)
            for name, output in names.items():
                written = answer[output].numpy()[:, :, : length + 1]
                close_to(written, growing[name], 2e-2)
            tokens = logits[:, -1:].argmax(-1)
