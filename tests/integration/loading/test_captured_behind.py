"""Sizes captured behind a load: between calls, told by the report, checked before they are used.

The host's memory takes the place of a GPU's: sizes run there as they would be captured.
"""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.runtime.model import Model
from aotc.runtime.warmup import open_variant
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.device import HostDevice
from aotc.spec.reports import LoadReport, VariantLoad
from aotc.spec.variant import GraphCapture

SECONDS = 60
FIRST: list[dict[str, int]] = [{"seq": 8}]
Sizes = list[dict[str, int]]


class Paced(HostDevice):
    """Each capture but the first waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Semaphore(0)
        self.may_go = threading.Semaphore(1)
        self.without_memory = 0

    def tensor_of(self, array: Any, dtype: str) -> Any:
        self.began.release()
        assert self.may_go.acquire(timeout=SECONDS)
        if array.shape[1] == self.without_memory:
            raise AotcError("AOTC-M004", "there is too little memory")
        return super().tensor_of(array, dtype)

    def await_capture(self) -> None:
        assert self.began.acquire(timeout=SECONDS)

    def let_all_go(self) -> None:
        for _ in range(100):
            self.may_go.release()


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    """Rows of [batch, seq, 8] times a matrix, for CUDA, with four captured sizes."""
    matrix = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "seq", 8])
        for name in ("x", "y")
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "rows",
        value[:1],
        value[1:],
        [numpy_helper.from_array(matrix, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    profile = profile_with(
        "server-cuda",
        dims={"batch": 2, "seq": {"min": 1, "buckets": [4, 8, 16, 32], "outside": "pad"}},
        cuda={"graphs": {"capture": "sizes"}},
    )
    return bench.build(model, "behind", profile=profile)


Opened = Callable[..., tuple[Model, CapturingRunner]]


@pytest.fixture
def opened(built: Built) -> Iterator[Opened]:
    """Opens the artifact with its captures on a device, as a load that is not warm yet."""
    models: list[Model] = []

    def opened(
        device: HostDevice, payload: Path = built.payload, **graphs: Any
    ) -> tuple[Model, CapturingRunner]:
        (promised,) = built.manifest.variants
        assert promised.cuda_graphs is not None
        on_host = replace(
            promised,
            providers=("CPUExecutionProvider",),
            session=replace(promised.session, provider_options={}),
            cuda_graphs=replace(promised.cuda_graphs, **graphs),
        )
        assert on_host.cuda_graphs is not None
        session = open_variant(payload, on_host, threads=1)
        runner = CapturingRunner(session, device, on_host.cuda_graphs, "variant portable")
        report = LoadReport(
            artifact_id="0" * 64,
            variant="portable",
            verdict="optimal",
            from_store=True,
            verify_seconds=0.0,
            session_seconds=0.0,
            warmup_seconds=0.0,
            variants=(VariantLoad(name="portable", session_seconds=0.0),),
        )
        made = Model(built.manifest, [on_host], [runner], report, payload=payload)
        models.append(made)
        return made, runner

    yield opened
    for model in models:
        model.close()


def rows(seq: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(seq).normal(size=(2, seq, 8)).astype(np.float32)}


def seqs(sizes: tuple[Mapping[str, int], ...]) -> list[int]:
    return [size["seq"] for size in sizes]


def told(model: Model) -> tuple[list[int], list[int], list[int]]:
    """The sizes that are captured, waiting and refused, by the report."""
    (load,) = model.report.variants
    assert load.captures is not None
    found = load.captures
    return sorted(seqs(found.captured)), seqs(found.waiting), seqs(found.refused)


def is_done(model: Model) -> bool:
    for _ in range(SECONDS * 1000):
        if not told(model)[1]:
            return True
        threading.Event().wait(0.001)
    return False


def begun(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_load_captures_all_unless_it_is_told_otherwise(opened: Opened) -> None:
    model, _ = opened(HostDevice())
    model.warm()
    assert model.ready
    assert told(model) == ([4, 8, 16, 32], [], [])


def test_a_model_is_ready_after_the_first_and_calls_go_between_captures(opened: Opened) -> None:
    device = Paced()
    model, _ = opened(device)
    plain, _ = opened(HostDevice())
    model.warm(capture_first=FIRST)
    device.await_capture()
    assert model.ready
    # The largest waits for leave to be captured.
    device.await_capture()
    assert told(model) == ([8], [32, 16, 4], [])
    answers: list[Any] = []
    call = begun(lambda: answers.append(model.run(rows(3))["y"]))
    while not model._runners[0]._owner._jobs.qsize():  # type: ignore[attr-defined]
        threading.Event().wait(0.001)
    device.may_go.release()
    call.join(SECONDS)
    # It was padded to a size that waits, and that is the next.
    device.await_capture()
    assert told(model) == ([8, 32], [4, 16], [])
    assert answers[0].shape == (2, 3, 8)
    np.testing.assert_array_equal(answers[0], plain.run(rows(3))["y"])
    assert model.telemetry.snapshot().fallbacks == {"graph": 1}
    device.let_all_go()
    assert is_done(model)
    assert told(model) == ([4, 8, 16, 32], [], [])
    np.testing.assert_array_equal(answers[0], model.run(rows(3))["y"])
    found = model.telemetry.snapshot()
    assert (found.calls, found.captures, found.fallbacks) == (2, 4, {"graph": 1})
    assert not model.findings()


def test_closing_in_the_midst_ends_it(opened: Opened) -> None:
    device = Paced()
    model, runner = opened(device)
    model.warm(capture_first=FIRST)
    for _ in range(2):
        device.await_capture()
    closing = begun(model.close)
    # All else is refused at once; the capture that runs is the last.
    for _ in range(SECONDS * 1000):
        if runner._owner._closed:
            break
        threading.Event().wait(0.001)
    device.may_go.release()
    closing.join(SECONDS)
    assert not closing.is_alive() and not runner._owner._thread.is_alive()
    assert not device.began.acquire(blocking=False)
    with pytest.raises(AotcError) as caught:
        model.run(rows(4))
    assert caught.value.code == "AOTC-R005"
    assert model.report.variants[0].captures is None


def test_what_fails_behind_is_told_and_runs_without_a_graph(opened: Opened) -> None:
    device = Paced()
    device.let_all_go()
    device.without_memory = 16
    model, _ = opened(device)
    model.warm(capture_first=FIRST)
    assert is_done(model)
    assert told(model) == ([4, 8, 32], [], [16])
    (finding,) = model.findings()
    assert finding.code == "AOTC-R024" and finding.where == "variant portable"
    assert "seq=16" in finding.what and "AOTC-M004 there is too little memory" in finding.what
    assert model.run(rows(16))["y"].shape == (2, 16, 8)


def test_our_own_errors_are_told_too(opened: Opened) -> None:
    class Broken(HostDevice):
        def tensor_of(self, array: Any, dtype: str) -> Any:
            if array.shape[1] == 4:
                raise KeyError("broken")
            return super().tensor_of(array, dtype)

    model, _ = opened(Broken())
    model.warm(capture_first=FIRST)
    assert is_done(model)
    assert told(model) == ([8, 16, 32], [], [4])
    assert "KeyError('broken')" in model.findings()[0].what


def test_a_size_whose_golden_answer_differs_is_refused(
    opened: Opened, built: Built, tmp_path: Path
) -> None:
    payload = tmp_path / "payload"
    shutil.copytree(built.payload, payload)
    # It is padded to 4.
    (altered,) = (fixture for fixture in built.manifest.fixtures if fixture.sizes["seq"] == 1)
    path = payload / altered.outputs[0].path
    path.chmod(0o600)
    np.save(path, np.load(path) + 1)
    model, _ = opened(HostDevice(), payload)
    model.warm(capture_first=FIRST)
    assert is_done(model)
    assert told(model) == ([8, 16, 32], [], [4])
    for call in (model.run, model.bind):
        with pytest.raises(AotcError) as caught:
            call(rows(3))
        assert caught.value.code == "AOTC-N003"
    assert "calls of batch=2, seq=4 are refused: AOTC-N003" in model.findings()[0].what
    assert model.run(rows(8))["y"].shape == (2, 8, 8)


def test_one_golden_answer_is_compared_before_a_model_is_ready(
    opened: Opened, built: Built
) -> None:
    """Also if no fixture has a size that is captured first."""
    manifest = built.manifest
    model, _ = opened(HostDevice())
    others = tuple(fixture for fixture in manifest.fixtures if fixture.sizes["seq"] != 8)
    model.manifest = replace(manifest, fixtures=others)
    model.warm(capture_first=FIRST)
    assert model.report.fixtures == 1


def test_warming_again_captures_what_waits(opened: Opened) -> None:
    device = Paced()
    model, _ = opened(device)
    model.warm(capture_first=FIRST)
    device.let_all_go()
    model.warm(["portable"])
    assert is_done(model)
    assert told(model) == ([4, 8, 16, 32], [], [])
    assert model.telemetry.snapshot().captures == 4


def test_further_sizes_at_their_first_call_need_not_wait(opened: Opened) -> None:
    device = Paced()
    model, runner = opened(device, on_call=True)
    model.warm(capture_first=FIRST)
    for _ in range(2):
        device.await_capture()
    answers: list[Any] = []
    call = begun(lambda: answers.append(model.run(rows(4))["y"]))
    while not model._runners[0]._owner._jobs.qsize():  # type: ignore[attr-defined]
        threading.Event().wait(0.001)
    device.may_go.release()
    device.await_capture()
    device.may_go.release()
    call.join(SECONDS)
    assert runner.has_captured({"batch": 2, "seq": 4})
    device.let_all_go()
    assert is_done(model)
    assert told(model) == ([4, 8, 16, 32], [], [])
    assert model.telemetry.snapshot().captures == 4


@pytest.mark.parametrize(
    ("first", "found"),
    [([{"seq": 7}], "seq=7"), ([], "an empty list"), ([{"other": 8}], "other=8")],
)
def test_first_sizes_are_captured_ones(opened: Opened, first: Sizes, found: str) -> None:
    model, _ = opened(HostDevice())
    with pytest.raises(AotcError) as caught:
        model.warm(capture_first=first)
    assert caught.value.code == "AOTC-I027"
    assert (caught.value.where, caught.value.found) == ("capture_first", found)
    assert "batch=2, seq=32" in caught.value.expected
    assert not model.ready


@pytest.mark.parametrize("first", [{"seq": 8}, "seq", [8], [None], 8], ids=repr)
def test_what_is_no_list_of_sizes_is_refused(opened: Opened, first: Any) -> None:
    model, _ = opened(HostDevice())
    with pytest.raises(AotcError) as caught:
        model.warm(capture_first=first)
    assert (caught.value.code, caught.value.where) == ("AOTC-I027", "capture_first")
    assert caught.value.found == repr(first)
    assert '[{"batch": 8}]' in caught.value.expected


def test_where_nothing_is_captured_nothing_is_asked(bench: Workbench) -> None:
    """The same call serves hosts without a GPU."""
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in ("x", "y")]
    graph = helper.make_graph([node], "relu", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    plain = bench.build(model, "plain", profile=profile_with("edge", dims={"n": "1..4"}))
    with bench.load(plain) as loaded:
        loaded.warm([loaded.variant.name], capture_first=FIRST)
        assert loaded.ready and loaded.report.variants[0].captures is None


def test_a_runner_that_nobody_closes_leaves_no_thread(built: Built) -> None:
    device = Paced()
    (variant,) = built.manifest.variants
    session = open_variant(
        built.payload,
        replace(
            variant,
            providers=("CPUExecutionProvider",),
            session=replace(variant.session, provider_options={}),
        ),
        threads=1,
    )
    sizes = tuple({"batch": 2, "seq": seq} for seq in (4, 8, 16))
    runner = CapturingRunner(session, device, GraphCapture(sizes=sizes), "variant v")

    def capture(runner: CapturingRunner, sizes: Mapping[str, int]) -> None:
        runner.capture(rows(sizes["seq"]), sizes)

    runner.capture_behind(sizes, capture)
    for _ in range(2):
        device.await_capture()
    thread, gone = runner._owner._thread, weakref.ref(runner)
    del runner
    device.may_go.release()
    thread.join(SECONDS)
    gc.collect()
    assert not thread.is_alive() and gone() is None
    # The third was not begun.
    assert not device.began.acquire(blocking=False)
