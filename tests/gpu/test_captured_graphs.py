"""Captured graphs: at warm-up, with the answers of runs without them, from several threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import either, partly_on_the_cpu, rows_and_columns
from on_gpu import CUDA, Built, built, close_to, note, told_of
from residual_artifacts import EXACT, image, residual_artifact

import aotc
from aotc.base.errors import AotcError
from aotc.spec.reports import CapturedGraphs

pytestmark = pytest.mark.gpu
THREADS, CALLS = 8, 50


def test_sizes_of_the_profile_are_captured_before_the_model_is_ready(captured: Built) -> None:
    with aotc.load(captured.path) as model:
        assert model.ready
        sizes = [size for runner in model._runners for size in getattr(runner, "captured", ())]
        note("captured at warm-up", sizes)
        assert {size["batch"] for size in sizes} >= {1, 4}
        promised = [
            size
            for one in model.manifest.variants
            if one.cuda_graphs
            for size in one.cuda_graphs.sizes
        ]
        assert {size["batch"] for size in promised} == {size["batch"] for size in sizes}


@pytest.mark.alone
def test_device_memory_is_told_beside_that_of_a_plain_session(captured: Built) -> None:
    with aotc.load(captured.path) as model:
        weights = max(variant.memory.weights_bytes for variant in model.variants)
        taken = model.report.device_bytes
        assert taken is not None and taken >= weights
    for measured in captured.report.variants:
        assert measured.device_bytes is not None and measured.device_bytes >= weights
        assert measured.plain_device_bytes is not None and measured.plain_device_bytes >= weights
    first = captured.report.variants[0]
    told = {"load": taken, "session": first.device_bytes, "plain": first.plain_device_bytes}
    note("device memory of the CNN", told)


def test_sizes_are_captured_behind_a_load_while_threads_call(
    captured: Built, without_graphs: Built
) -> None:
    """Answers are the same before and after, and what a bound call captures meanwhile too."""
    wrong: list[Any] = []
    given = {(batch, seed): image(batch, seed) for batch in (1, 3, 4) for seed in range(4)}
    with aotc.load(without_graphs.path) as plain:
        expected = {key: plain.run(inputs)["logits"] for key, inputs in given.items()}
    with aotc.load(captured.path, capture_first=[{"batch": 4}]) as model:
        assert model.ready
        first = model.report.variants[0].captures
        assert first is not None
        note("captured first, and behind", [first.captured, first.waiting])
        assert {size["batch"] for size in (*first.captured, *first.waiting)} >= {1, 4}

        def work(number: int) -> None:
            order = np.random.default_rng(number).permutation(len(given))
            try:
                for turn in range(CALLS):
                    key = list(given)[order[turn % len(given)]]
                    close_to(model.run(given[key])["logits"], expected[key], 1e-4)
                call = model.bind(given[4, 0])
                close_to(call()["logits"].numpy(), expected[4, 0], 1e-4)
            except BaseException as error:
                wrong.append(error)

        in_threads(work)
        assert not wrong
        found = all_captured(model)
        assert {size["batch"] for size in found.captured} >= {1, 4}
        assert not found.refused and not told_of(model)
        before = model.telemetry.snapshot().fallbacks
        for key, inputs in given.items():
            close_to(model.run(inputs)["logits"], expected[key], 1e-4)
        assert model.telemetry.snapshot().fallbacks == before


def test_a_model_is_closed_while_it_captures(captured: Built) -> None:
    for _ in range(3):
        with aotc.load(captured.path, capture_first=[{"batch": 4}]) as model:
            model.run(image(4, 0))
        with pytest.raises(AotcError) as caught:
            model.run(image(4, 0))
        assert caught.value.code == "AOTC-R005"
    with aotc.load(captured.path) as model:
        model.run(image(1, 0))


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work` in several threads at once, each with its number, to their ends."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def all_captured(model: aotc.Model) -> CapturedGraphs:
    """What is captured once nothing waits."""
    for _ in range(60_000):
        found = model.report.variants[0].captures
        assert found is not None
        if not found.waiting:
            return found
        threading.Event().wait(0.001)
    raise AssertionError("sizes still wait to be captured")


def test_captures_and_calls_without_a_graph_are_counted(captured: Built) -> None:
    with aotc.load(captured.path) as model:
        sizes = [size for runner in model._runners for size in getattr(runner, "captured", ())]
        assert model.telemetry.snapshot().captures == len(sizes) > 0
        model.run(image(4, 0))
        call = model.bind(image(5, 0))
        call()
        found = model.telemetry.snapshot()
        assert (found.captures, found.calls, found.fallbacks) == (len(sizes) + 1, 2, {})


def test_a_child_of_a_process_that_used_cuda_is_refused(captured: Built) -> None:
    with aotc.load(captured.path) as model:
        pid = os.fork()
        if not pid:
            try:
                aotc.load(captured.path)
            except AotcError as error:
                os._exit(int(error.code.removeprefix("AOTC-R")))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 35
        model.run(image(4, 0))


def test_small_weights_are_not_read_into_page_locked_memory(captured: Built) -> None:
    with aotc.load(captured.path) as model:
        options = [runner.session.get_provider_options()[CUDA] for runner in model._runners]
    assert [each["external_data_loader_reading_threads"] for each in options] == ["0"] * len(
        options
    )


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7])
def test_answers_are_those_of_runs_without_graphs(
    captured: Built, without_graphs: Built, batch: int
) -> None:
    """2 and 3 are padded to a captured 4; 7 is not captured."""
    with aotc.load(captured.path) as ours, aotc.load(without_graphs.path) as plain:
        for seed in range(3):
            given = image(batch, seed)
            found, expected = ours.run(given)["logits"], plain.run(given)["logits"]
            assert found.shape == (batch, 10)
            close_to(found, expected, 1e-4)
            np.testing.assert_array_equal(found, ours.run(given)["logits"])


def test_padding_is_cut_off_whatever_its_place(tmp_path: Path) -> None:
    """Of long rows it is not copied from the device; of short ones it is cut on the host."""
    network = tmp_path / "rows.onnx"
    network.write_bytes(rows_and_columns(2048))
    sequence = {"min": 1, "buckets": [8, 32], "outside": "pad"}
    artifact = built(network, tmp_path, {"batch": 4, "seq": sequence})
    with aotc.load(artifact.path) as model:
        kept = []
        for seq in (5, 8, 20, 32, 1):
            given = np.random.default_rng(seq).standard_normal((4, seq, 2048)).astype(np.float32)
            kept.append((given, model.run({"x": given})))
        # Later calls leave the answers of earlier ones alone.
        for given, found in kept:
            close_to(found["rows"], np.tanh(given), 1e-5)
            np.testing.assert_array_equal(found["columns"], found["rows"].transpose(0, 2, 1))


def test_an_answer_may_be_given_to_the_next_call(tmp_path: Path) -> None:
    """It is in page-locked memory, and as large as what is copied from where it is."""
    network = tmp_path / "rows.onnx"
    network.write_bytes(rows_and_columns(2048))
    artifact = built(network, tmp_path, {"batch": 8, "seq": 32})
    with aotc.load(artifact.path) as model:
        rows = np.random.default_rng(0).standard_normal((8, 32, 2048)).astype(np.float32)
        expected = rows
        for _ in range(20):
            rows = model.run({"x": rows})["rows"]
            expected = np.tanh(expected)
        assert rows.nbytes == 2 << 20
        close_to(rows, expected, 1e-4)
        call = model.bind({"x": np.zeros_like(rows)})
        close_to(call({"x": rows})["rows"].numpy(), np.tanh(rows), 1e-5)


def test_several_threads_use_one_model(captured: Built) -> None:
    wrong: list[Any] = []
    with aotc.load(captured.path) as model:
        given = {(batch, seed): image(batch, seed) for batch in (1, 3, 4) for seed in range(4)}
        expected = {key: model.run(inputs)["logits"] for key, inputs in given.items()}

        def work(number: int) -> None:
            order = np.random.default_rng(number).permutation(len(given))
            try:
                for turn in range(CALLS):
                    key = list(given)[order[turn % len(given)]]
                    found = model.run(given[key])["logits"]
                    if not np.allclose(found, expected[key], rtol=1e-4, atol=1e-5):
                        wrong.append((number, turn, key))
            except Exception as error:
                wrong.append(error)

        in_threads(work)
    assert not wrong


def test_further_sizes_are_captured_at_their_first_call(tmp_path: Path) -> None:
    artifact = residual_artifact(tmp_path, EXACT, capture="calls")
    with aotc.load(artifact.path) as model, aotc.load(artifact.path) as other:
        before = len(model._runners[0].captured)
        first = model.run(image(5))["logits"]
        assert len(model._runners[0].captured) == before + 1
        np.testing.assert_array_equal(first, model.run(image(5))["logits"])
        close_to(first, other.run(image(5))["logits"], 1e-4)


@pytest.mark.parametrize(
    ("network", "n", "why"),
    [(either, 8, "control flow"), (partly_on_the_cpu, 4, "Asinh is on CPUExecutionProvider")],
)
def test_what_cannot_be_captured_is_refused(
    tmp_path: Path, network: Callable[[], bytes], n: int, why: str
) -> None:
    source = tmp_path / "network.onnx"
    source.write_bytes(network())
    with pytest.raises(AotcError) as caught:
        built(source, tmp_path, {"n": n})
    note(f"no capture: {network.__name__}", caught.value.line())
    assert caught.value.code == "AOTC-P014"
    assert why in caught.value.found


def test_control_flow_runs_without_graphs_where_the_profile_says_so(tmp_path: Path) -> None:
    network = tmp_path / "either.onnx"
    network.write_bytes(either())
    artifact = built(network, tmp_path, {"n": 8}, refused="run")
    with aotc.load(artifact.path) as model:
        for sign in (1, -1):
            given = np.full(8, sign * 2, np.float32)
            expected = np.maximum(given, 0) if sign > 0 else -given
            np.testing.assert_array_equal(model.run({"x": given})["y"], expected)
        assert not model.bind({"x": given}).captured
        assert "AOTC-P014" in {finding.code for finding in artifact.report.findings}


def test_copies_between_devices_run_without_graphs_where_the_profile_says_so(
    tmp_path: Path,
) -> None:
    network = tmp_path / "partly.onnx"
    network.write_bytes(partly_on_the_cpu())
    artifact = built(network, tmp_path, {"n": 4}, refused="run")
    assert "AOTC-P014" in {finding.code for finding in artifact.report.findings}
    with aotc.load(artifact.path) as model:
        given = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
        expected = np.exp(np.arcsinh(np.maximum(given, 0)))
        np.testing.assert_allclose(model.run({"x": given})["y"], expected, rtol=1e-5)
        call = model.bind({"x": given})
        assert not call.captured
        np.testing.assert_allclose(call()["y"].numpy(), expected, rtol=1e-5)
