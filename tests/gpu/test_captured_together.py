"""Captured sizes beside each other: no build ends in a crash, and what it promises holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import mobile, residual, windows
from on_gpu import Built, built, close_to, note

import aotc
from aotc.runtime.model import Model

pytestmark = pytest.mark.gpu
BATCHES = {"batch": {"buckets": [1, 4, 16], "max": 64, "outside": ["pad", "route"]}}
TURNS = 200


def images(batch: int, seed: int, dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng((batch, seed))
    return {"image": rng.standard_normal((batch, 3, 224, 224)).astype(dtype)}


def forms_of(artifact: Built) -> list[str]:
    return [
        each.what for each in artifact.report.findings if each.code in ("AOTC-P014", "AOTC-P015")
    ]


def replay_at_random(model: Model, given: dict[Any, dict[str, Any]]) -> None:
    """Answers of all sizes in random order have the bits of the first ones."""
    firsts: dict[Any, Any] = {}
    chance = np.random.default_rng(1)
    keys = list(given)
    for _ in range(TURNS):
        key = keys[int(chance.integers(len(keys)))]
        (found,) = model.run(given[key]).values()
        np.testing.assert_array_equal(found, firsts.setdefault(key, found))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("name", ["mobile", "residual"])
def test_convolutional_networks_build_and_their_replays_hold(
    tmp_path: Path, name: str, dtype: Any
) -> None:
    network = tmp_path / f"{name}.onnx"
    network.write_bytes(mobile(dtype) if name == "mobile" else residual(18, dtype, 32, 3))
    artifact = built(network, tmp_path, BATCHES, refused="run")
    (tmp_path / "plain").mkdir()
    plain = built(network, tmp_path / "plain", BATCHES, capture="none")
    note(f"{name}, {dtype.__name__}: forms", forms_of(artifact))
    # 7 is routed to the variant without a graph, between replays; 3 is padded to 4.
    given = {(b, s): images(b, s, dtype) for b in (1, 3, 4, 7, 16) for s in range(2)}
    with aotc.load(artifact.path) as model, aotc.load(plain.path) as other:
        graphs = model.manifest.variants[0].cuda_graphs
        note(f"{name}, {dtype.__name__}: sessions", graphs and graphs.sessions)
        for inputs in given.values():
            close_to(model.run(inputs)["logits"], other.run(inputs)["logits"], 1e-2)
        replay_at_random(model, given)


def test_a_session_for_each_size_holds_where_the_profile_says_so(tmp_path: Path) -> None:
    network = tmp_path / "mobile.onnx"
    network.write_bytes(mobile(np.float16))
    made: dict[str, Built] = {}
    for sessions in ("one", "each"):
        folder = tmp_path / sessions
        folder.mkdir()
        graphs = {"capture": "sizes", "on_refusal": "run", "sessions": sessions}
        made[sessions] = built(network, folder, BATCHES, cuda={"graphs": graphs})
        note(f"mobile with {sessions}", forms_of(made[sessions]))
    assert not forms_of(made["each"])
    given = {(b, 0): images(b, 0, np.float16) for b in (1, 4, 7, 16)}
    with aotc.load(made["each"].path) as model:
        call = model.bind(given[(4, 0)])
        (bound,) = (each.numpy() for each in call().values())
        replay_at_random(model, given)
        (again,) = (each.numpy() for each in call().values())
        np.testing.assert_array_equal(bound, again)


def test_values_that_the_cpu_computed_are_not_stale_at_another_size(tmp_path: Path) -> None:
    network = tmp_path / "windows.onnx"
    network.write_bytes(windows())
    dims = {"batch": 2, "height": {"buckets": [8, 32, 64], "outside": "reject", "max": 64}}
    artifact = built(network, tmp_path, dims, refused="run")
    note("windows", forms_of(artifact))
    with aotc.load(artifact.path) as model:
        given = {
            (height, seed): {
                "x": np.random.default_rng((height, seed))
                .standard_normal((2, height, 8))
                .astype(np.float32)
            }
            for height in (8, 32, 64)
            for seed in range(3)
        }
        for (height, _), inputs in given.items():
            parts = np.roll(inputs["x"], -3, axis=1).reshape(2, height // 4, 4, 8)
            exponents = np.exp(parts - parts.max(2, keepdims=True))
            weights = exponents / exponents.sum(2, keepdims=True)
            expected = weights * np.linspace(-1, 1, 8, dtype=np.float32)
            close_to(model.run(inputs)["y"], expected.reshape(2, height, 8), 1e-5)
        replay_at_random(model, given)
