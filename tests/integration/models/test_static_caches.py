"""A decoder that torch exported with a static cache, and the same one whose past grows.

Both have one network: `benchmarks/networks/exports.py` wrote `llama_sdpa` and `llama_static`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from exported_models import FOLDER, PAST
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.runtime.model import Model

ROWS, LAYERS, WIDTH, VOCABULARY = 32, 2, 8, 64
NAMES = [f"{PAST}{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
CARRY = {name: name.replace(PAST, "present.") for name in NAMES}


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    return bench.build(FOLDER / "llama_static.onnx", "static", dims={"sequence": "1..8"})


@pytest.fixture(scope="module")
def model(bench: Workbench, built: Built) -> Iterator[Model]:
    with bench.load(built) as loaded:
        yield loaded


def test_each_cache_is_written_by_one_node(built: Built) -> None:
    (variant,) = built.manifest.variants
    assert variant.in_place == CARRY
    writes = [node for node in built.nodes("portable") if node.op_type.startswith("Scatter")]
    assert [node.op_type for node in writes] == ["ScatterElements"] * len(NAMES)
    assert sorted(node.input[0] for node in writes) == sorted(NAMES)
    assert sorted(node.output[0] for node in writes) == sorted(CARRY.values())
    # Layers write to the same rows.
    assert len({node.input[1] for node in writes}) == 1
    assert variant.parity.status == "passed"


@pytest.mark.parametrize("prompt", [1, 5])
def test_all_lengths_are_answered_as_by_a_growing_past(
    built: Built, model: Model, prompt: int
) -> None:
    """From an empty cache to a full one, by one call for all steps, and one for the prompt."""
    growing, tolerance = plain_session(FOLDER / "llama_sdpa.onnx"), tolerance_of(built)
    rng = np.random.default_rng(prompt)
    past = {name: np.zeros((1, 1, 0, WIDTH), np.float32) for name in NAMES}
    # Rows that no token was written to hold anything.
    caches = {name: 9 * rng.standard_normal((1, 1, ROWS, WIDTH), np.float32) for name in NAMES}
    tokens = rng.integers(0, VOCABULARY, (1, prompt))
    empty = np.array(0)
    first = model.bind({"input_ids": tokens, "length": empty, **caches}, carry=CARRY)
    held = {name: first.inputs[name] for name in NAMES}
    later = model.bind({"input_ids": tokens[:, :1], "length": empty, **held}, carry=CARRY)
    length = 0
    while length + tokens.shape[1] <= ROWS:
        mask = np.ones((1, length + tokens.shape[1]), np.int64)
        expected = plain_answer(growing, {"input_ids": tokens, "attention_mask": mask, **past})
        call = later if length else first
        found = call({"input_ids": tokens, "length": np.array(length)})
        length += tokens.shape[1]
        answer: dict[str, Any] = {"logits": found["logits"].numpy()}
        for name, output in CARRY.items():
            assert found[output].address == held[name].address
            answer[output] = found[output].numpy()[:, :, :length]
            past[name] = expected[output]
        assert_agree({name: expected[name] for name in answer}, answer, tolerance, f"{length}")
        tokens = expected["logits"][:, -1:].argmax(-1)
        assert (answer["logits"][:, -1:].argmax(-1) == tokens).all()
    assert length == ROWS
    with pytest.raises(AotcError) as caught:
        later({"input_ids": tokens, "length": np.array(ROWS)})
    # No row of the cache has this position.
    assert caught.value.code == "AOTC-R005"
    assert "out of data bounds" in caught.value.found


def test_a_stated_capacity_refuses_before_anything_runs(bench: Workbench) -> None:
    values = {"length": f"0..{ROWS - 1}"}
    built = bench.build(
        FOLDER / "llama_static.onnx", "static_step", dims={"sequence": 1}, values=values
    )
    caches = {name: np.zeros((1, 1, ROWS, WIDTH), np.float32) for name in NAMES}
    given = {"input_ids": np.array([[5]]), "length": np.array(ROWS - 1), **caches}
    with bench.load(built) as loaded:
        call = loaded.bind(given, carry=CARRY)
        before = call()["present.0.key"].numpy()
        with pytest.raises(AotcError) as caught:
            call({"length": np.array(ROWS)})
        assert caught.value.code == "AOTC-R027"
        np.testing.assert_array_equal(call.inputs[NAMES[0]].numpy(), before)
