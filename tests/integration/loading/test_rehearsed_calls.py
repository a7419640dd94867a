"""A model that is ready has answered before, on the path that requests take; nothing counts it."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from built_artifact import BuiltArtifact

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.runtime.loading import load
from aotc.runtime.model import Model
from aotc.runtime.warmup import rehearse_calls
from aotc.spec.manifest import Manifest
from aotc.spec.variant import Variant

# What a load gives to the rehearsal of a variant.
Loaded = tuple[Manifest, Path, Variant]


@pytest.fixture
def loaded(digits: BuiltArtifact, tmp_path: Path) -> Loaded:
    with load(digits.path, key=digits.public_key, store=tmp_path, threads=1) as model:
        return model.manifest, model.payload, model.variant


def test_a_load_answers_calls_that_nothing_counts(
    digits: BuiltArtifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = []
    run = Model._run

    def noted(self: Model, inputs: Any, *further: Any) -> Any:
        found = run(self, inputs, *further)
        answered.append(inputs)
        return found

    monkeypatch.setattr(Model, "_run", noted)
    traffic = tmp_path / "traffic.jsonl"
    with load(
        digits.path, key=digits.public_key, store=tmp_path / "store", threads=1, record=traffic
    ) as model:
        assert model.ready and len(model.variants) <= len(answered) <= 10 * len(model.variants)
        assert model.telemetry.calls == 0 and not model.telemetry.snapshot().refusals
        model.run(answered[0])
        assert model.telemetry.calls == 1
    assert len(traffic.read_text().splitlines()) == 1


def test_captured_sizes_are_rehearsed_and_long_runs_are_not(loaded: Loaded) -> None:
    manifest, payload, variant = loaded
    sizes: list[int] = []

    def answer(inputs: Any) -> None:
        (value,) = inputs.values()
        sizes.append(value.shape[0])
        raise AotcError("AOTC-R011", "a value is out of its range")

    (dim,) = manifest.domain.dims
    captured: Any = SimpleNamespace(sizes=({dim: 1}, {dim: 4}))
    rehearse_calls(answer, replace(variant, cuda_graphs=captured), manifest, payload, 5.0)
    # A refusal is no reason to go on with such inputs.
    assert sizes == [4, 1]
    sizes.clear()
    rehearse_calls(answer, variant, manifest, payload, 0.5)
    rehearse_calls(answer, variant, manifest, payload, None)
    assert not sizes
    rehearse_calls(answer, variant, manifest, payload, 0.001)
    assert len(sizes) == 1


def test_an_answer_is_kept_while_the_next_call_is_made(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As callers do: the memory of two answers is there before the first request."""
    manifest, payload, variant = loaded
    (dim,) = manifest.domain.dims
    captured: Any = SimpleNamespace(sizes=({dim: 4},))
    monkeypatch.setattr("aotc.runtime.warmup.time.perf_counter", lambda: 0.0)
    answers: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def answer(inputs: Any) -> Any:
        alive.append(sum(found() is not None for found in answers))
        found = np.zeros(3)
        answers.append(weakref.ref(found))
        return found

    rehearse_calls(answer, replace(variant, cuda_graphs=captured), manifest, payload, None)
    assert alive == [0] + [1] * 9
    assert all(found() is None for found in answers)


def test_of_a_variant_without_graphs_the_shortest_runs_are_rehearsed_most(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, payload, variant = loaded
    now = 0.0
    calls: list[Any] = []
    monkeypatch.setattr("aotc.runtime.warmup.time.perf_counter", lambda: now)
    for seconds, expected in ((0.0001, 10), (0.002, 3), (0.009, 1)):

        def answer(inputs: Any, seconds: float = seconds) -> None:
            nonlocal now
            now += seconds
            calls.append(inputs)

        calls.clear()
        rehearse_calls(answer, variant, manifest, payload, seconds)
        assert len(calls) == expected


def test_calls_of_captured_sizes_settle_in_arrays_of_their_own(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, payload, variant = loaded
    (dim,) = manifest.domain.dims
    captured: Any = SimpleNamespace(sizes=({dim: 1}, {dim: 4}))
    seen: list[Any] = []

    def answer(inputs: Any) -> None:
        seen.append(next(iter(inputs.values())))

    clock = iter(range(1000))
    monkeypatch.setattr("aotc.runtime.warmup.time.perf_counter", lambda: 0.0)
    rehearse_calls(answer, replace(variant, cuda_graphs=captured), manifest, payload, None)
    assert [array.shape[0] for array in seen] == [4] * 10 + [1] * 10
    assert len({array.ctypes.data for array in seen}) == len(seen)
    seen.clear()
    # A slow model is not rehearsed for long.
    monkeypatch.setattr("aotc.runtime.warmup.time.perf_counter", lambda: float(next(clock)))
    rehearse_calls(answer, replace(variant, cuda_graphs=captured), manifest, payload, None)
    assert [array.shape[0] for array in seen] == [4] * 3 + [1] * 3
