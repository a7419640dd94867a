"""Buffers that stay on a device, shown with the host's memory as the device."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from aotc.base.errors import AotcError
from aotc.session.device.capturing_runner import CapturingRunner, OwnerThread
from aotc.session.device.cuda_device import PinnedMemory
from aotc.session.device.device import HostDevice, Target, read_values, row_copies
from aotc.session.device.fixed_run import NO_GRAPH, CapturedSizes, FixedRun, agree
from aotc.spec.variant import GraphCapture


def session() -> ort.InferenceSession:
    """y = x + x, and its sum over the last axis."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["y"]),
            helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "width"])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "width"]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def runner(**fields: Any) -> CapturingRunner:
    sizes = fields.pop("sizes", ({"batch": 2, "width": 4},))
    return CapturingRunner(
        session(), HostDevice(), GraphCapture(sizes=sizes, **fields), "variant v"
    )


def ones(batch: int, width: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.full((batch, width), batch + width, np.float32)}


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_regions_are_copied_as_numpy_copies_them(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    axes = st.lists(st.integers(1, 4), min_size=rank, max_size=rank)
    region = data.draw(axes)
    shapes, starts = [], []
    for _ in range(2):
        before, behind = data.draw(axes), data.draw(axes)
        # Often, axes are complete.
        pads = [(b - 1, a - 1) for b, a in zip(before, behind, strict=True)]
        shapes.append([r + b + a for r, (b, a) in zip(region, pads, strict=True)])
        starts.append([b for b, _ in pads])
    source = np.arange(np.prod(shapes[1]), dtype=np.int32).reshape(shapes[1])
    target = np.zeros(shapes[0], np.int32)
    expected = target.copy()
    place = tuple(slice(s, s + r) for s, r in zip(starts[0], region, strict=True))
    origin = tuple(slice(s, s + r) for s, r in zip(starts[1], region, strict=True))
    expected[place] = source[origin]
    device = HostDevice()
    for part in row_copies(region, shapes[0], shapes[1], starts[0], starts[1], 4):
        device.copy_rows(
            target.ctypes.data + part.target, source.ctypes.data + part.source, part.rows
        )
    assert np.array_equal(target, expected)


def test_a_batch_and_a_sequence_are_one_copy() -> None:
    copies = list(
        row_copies((2, 12, 5, 64), (8, 12, 16, 64), (2, 12, 5, 64), (0,) * 4, (0,) * 4, 2)
    )
    assert len(copies) == 1
    assert copies[0].rows.height == 2 * 12


def test_pinned_blocks_are_used_again_when_their_arrays_are_gone() -> None:
    memory: dict[int, Any] = {}

    def allocate(count: int) -> int:
        block = np.empty(count, np.uint8)
        memory[block.ctypes.data] = block
        return int(block.ctypes.data)

    pool = PinnedMemory(
        allocate, lambda address: memory.pop(address), kept_bytes=1 << 13, most_bytes=1 << 20
    )
    first = pool.take(100)
    view = first[10:20].view(np.int16)
    address = first.ctypes.data
    del first
    gc.collect()
    assert pool.take(100).ctypes.data != address
    del view
    gc.collect()
    third, fourth = pool.take(100), pool.take(4000)
    assert address in (third.ctypes.data, fourth.ctypes.data)
    # Over the bound it is ordinary memory.
    assert pool.take(1 << 14).ctypes.data not in memory
    others = [pool.take(4000) for _ in range(2)]
    assert len(memory) == 4
    del others
    gc.collect()
    # Returned blocks are sorted with the next call.
    small = pool.take(1)
    assert len(memory) == 4
    del small
    pool.close()
    del third, fourth
    gc.collect()
    assert not memory


def test_the_blocks_that_were_not_used_for_longest_are_freed_first() -> None:
    """What steady calls use is not freed because of what was asked for once."""
    memory: dict[int, Any] = {}
    allocated: list[int] = []

    def allocate(count: int) -> int:
        block = np.empty(count, np.uint8)
        memory[block.ctypes.data] = block
        allocated.append(count)
        return int(block.ctypes.data)

    pool = PinnedMemory(
        allocate, lambda address: memory.pop(address), kept_bytes=100 << 10, most_bytes=1 << 20
    )
    for count in (40 << 10, 20 << 10):
        pool.take(count)
    for _ in range(5):
        # Both of a call are in use at once.
        first, second = pool.take(48 << 10), pool.take(36 << 10)
        del first, second
    assert allocated == [count << 10 for count in (40, 20, 48, 36)]
    pool.take(1)
    assert sorted(len(block) for block in memory.values()) == [4 << 10, 36 << 10, 48 << 10]


def test_no_more_than_a_bound_is_page_locked_and_none_where_there_is_no_memory() -> None:
    memory: dict[int, Any] = {}
    left = [5]

    def allocate(count: int) -> int:
        if not left[0]:
            raise AotcError("AOTC-M004", "there is too little memory")
        left[0] -= 1
        block = np.empty(count, np.uint8)
        memory[block.ctypes.data] = block
        return int(block.ctypes.data)

    def free(address: int) -> None:
        left[0] += 1
        del memory[address]

    pool = PinnedMemory(allocate, free, kept_bytes=1 << 14, most_bytes=3 << 12)
    held = [pool.take(4096) for _ in range(5)]
    # Users keep answers: three are as much as may be locked.
    assert [array.ctypes.data in memory for array in held] == [True] * 3 + [False] * 2
    held.clear()
    assert pool.take(4096).ctypes.data in memory
    left[0] = 0
    # Idle blocks of other sizes give way; where that is not enough, memory is ordinary.
    one, other = pool.take(5000), pool.take(6000)
    assert one.ctypes.data in memory
    assert len(other) == 6000
    del one, other
    pool.close()
    assert not memory


@pytest.mark.parametrize("count", [1, 4096, 4097, 5000, 1 << 20, (1 << 20) + 1, 38_731_776])
def test_a_block_is_at_most_an_eighth_larger_than_what_was_asked_for(count: int) -> None:
    blocks: list[Any] = []

    def allocate(size: int) -> int:
        blocks.append(np.empty(size, np.uint8))
        return int(blocks[-1].ctypes.data)

    pool = PinnedMemory(allocate, lambda address: None, kept_bytes=1 << 26, most_bytes=1 << 26)
    assert len(pool.take(count)) == count
    assert count <= len(blocks[0]) <= max(4096, count * 9 / 8)


class Apart(HostDevice):
    """Memory that the host does not write."""

    def host_view(self, address: int, count: int) -> None:
        return None


class Staging(Apart):
    """Takes memory for arrays below 1 kB."""

    least_direct_bytes = 1 << 10

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[int] = []

    def host_bytes(self, count: int) -> Any:
        self.taken.append(count)
        return super().host_bytes(count)


@pytest.mark.parametrize(("width", "staged"), [(8, True), (1 << 10, False)])
def test_small_inputs_pass_through_memory_that_serves_again(width: int, staged: bool) -> None:
    device = Staging()
    run = FixedRun(session(), device, {"x": device.empty((2, width), "float32")})
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((width, 2)).astype(np.float32).T
        assert not x.flags.c_contiguous
        run.write({"x": x})
        run.run()
        np.testing.assert_array_equal(run.read(["y"])[0], x + x)
        assert not run._sources
    inputs = [count for count in device.taken if count == 2 * width * 4]
    # Each reading of the output takes as much.
    assert len(inputs) == 3 + staged


@pytest.mark.parametrize("kind", [HostDevice, Staging])
@pytest.mark.parametrize("width", [8, 1 << 10])
def test_addresses_and_arrays_of_the_host_take_turns(kind: type[HostDevice], width: int) -> None:
    device = kind()
    value = device.empty((2, width), "float32")
    target = Target(value, device)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((2, width)).astype(np.float32)
        if seed % 2:
            target.write(x)
        else:
            target.send(x.ctypes.data)
        np.testing.assert_array_equal(value.numpy(), x)
    if isinstance(device, Staging):
        assert len(device.taken) == (2 * width * 4 < device.least_direct_bytes)


class Late(Apart):
    """Copies when it is synchronized, as a driver may."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[tuple[int, int, int]] = []

    def copy(self, target: int, source: int, count: int) -> None:
        self.late.append((target, source, count))

    def synchronize(self) -> None:
        for copied in self.late:
            super().copy(*copied)
        self.late.clear()


def test_what_is_copied_later_lives_until_then() -> None:
    device = Late()
    run = FixedRun(session(), device, {"x": device.empty((64, 1 << 10), "float32")})
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((1 << 10, 64)).astype(np.float32)
        # The copy in C order is nobody else's.
        run.write({"x": x.T})
        garbage = [np.full(x.size, seed, np.float32) for _ in range(4)]
        device.synchronize()
        run.run()
        np.testing.assert_array_equal(run.read(["y"])[0], x.T + x.T)
        del garbage


def test_bytes_that_are_not_in_a_row_are_copied_in_order() -> None:
    device = Staging()
    for count in (1 << 4, 1 << 12):
        every_second = np.arange(2 * count).astype(np.uint8)[None, ::2]
        assert not every_second.flags.c_contiguous
        target = np.zeros(count, np.uint8)
        device.upload(target.ctypes.data, every_second)
        np.testing.assert_array_equal(target, every_second[0])


class Short(Late):
    """Its last answer finds no memory, as there is little left."""

    least_direct_bytes = 1 << 20
    fails = False

    def __init__(self) -> None:
        super().__init__()
        self.settled = 0

    def host_bytes(self, count: int) -> Any:
        if self.fails and count == 4:
            raise AotcError("AOTC-M004", "there is too little memory")
        return super().host_bytes(count)

    def settle(self) -> None:
        self.settled += 1
        super().settle()


def test_what_a_failed_call_began_is_awaited() -> None:
    """Else its copies would go to memory that others got meanwhile."""
    device = Short()
    run = FixedRun(session(), device, {"x": device.empty((2, 4), "float32")})
    given = {"x": np.full((2, 4), 3, np.float32)}
    device.fails = True
    with pytest.raises(AotcError) as caught:
        run.answer(given, ["y", "total"])
    assert caught.value.code == "AOTC-M004"
    assert device.settled
    assert not device.late
    assert not run._sources
    device.fails = False
    # Copies of this device come late, unlike its runs: what was written before is what is seen.
    y, total = run.answer(given, ["y", "total"])
    np.testing.assert_array_equal(y, given["x"] * 2)
    assert total == 48


def test_a_fixed_run_reads_its_inputs_anew() -> None:
    device = HostDevice()
    x = device.empty((2, 4), "float32")
    run = FixedRun(session(), device, {"x": x})
    for value in (1.0, 3.0):
        run.write({"x": np.full((2, 4), value, np.float32)})
        run.run()
        y, total = run.read(["y", "total"])
        assert (y == 2 * value).all()
        assert total == 16 * value
    assert not run.replays_wrongly()
    assert run.bytes == 2 * 32 + 4


class Counting(HostDevice):
    """Counts the bytes that are copied."""

    copied: int = 0

    def copy(self, target: int, source: int, count: int) -> None:
        self.copied += count
        super().copy(target, source, count)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_part_is_read_as_numpy_cuts_it(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    if data.draw(st.booleans()):
        shape[-1] *= 1000
    part = []
    for size in shape:
        start = data.draw(st.integers(0, size - 1))
        wanted = slice(start, data.draw(st.integers(start + 1, size)))
        part.append(data.draw(st.sampled_from([slice(None), wanted])))
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    device = Counting()
    (found,) = read_values([value], device, [tuple(part)])
    expected = array[tuple(part)]
    # Where it is all, the caller cuts.
    found = found if found.shape == expected.shape else found[tuple(part)]
    assert np.array_equal(found, expected)
    assert device.copied in (expected.nbytes, array.nbytes)


def test_the_padding_of_long_rows_is_not_read() -> None:
    array = np.random.default_rng(0).standard_normal((8, 96, 768)).astype(np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    for part, size in (
        ((slice(None), slice(0, 50), slice(None)), 8 * 50 * 768),
        ((slice(2, 8), slice(46, 96), slice(None)), 6 * 50 * 768),
        # As many copies as rows of a single word: all of it is one.
        ((slice(None), slice(None), slice(0, 7)), array.size),
        ((slice(0, 0), slice(None), slice(None)), array.size),
    ):
        device = Counting()
        (found,) = read_values([value], device, [part])
        assert device.copied == 4 * size
        assert np.array_equal(found, array if size == array.size else array[part])
        assert found.flags.c_contiguous and not np.shares_memory(found, array)


def test_a_runner_cuts_what_it_captured_and_returns_the_rest_whole() -> None:
    width = 2048
    with_sizes = runner(sizes=({"batch": 4, "width": width},))
    with_sizes.capture(ones(4, width), {"batch": 4, "width": width})

    def part_of(name: str, shape: Sequence[int]) -> tuple[slice, ...] | None:
        return (slice(0, 3), slice(None)) if name == "y" and shape[0] == 4 else None

    for batch, rows in ((4, 3), (5, 5)):
        sizes = {"batch": batch, "width": width}
        y, total = with_sizes.run(ones(batch, width), None, sizes, part_of)
        assert y.shape == (rows, width) and (y == 2 * (batch + width)).all()
        assert total == batch * width * 2 * (batch + width)
    with_sizes.close()


def test_an_owner_thread_answers_raises_and_ends() -> None:
    owner = OwnerThread("owner")
    assert owner.call(threading.current_thread).name == "owner"
    with pytest.raises(ZeroDivisionError):
        owner.call(lambda: 1 // 0)
    assert owner.call(lambda: owner.call(lambda: 7)) == 7
    owner.close()
    owner.close()
    with pytest.raises(AotcError) as caught:
        owner.call(lambda: 1)
    assert caught.value.code == "AOTC-R005"


def test_what_is_left_for_later_runs_between_calls_and_ends_with_the_thread() -> None:
    owner, order = OwnerThread("owner"), list[str]()
    began, go_on = threading.Event(), threading.Event()

    def first() -> None:
        order.append("first")
        began.set()
        assert go_on.wait(60)

    def second() -> None:
        order.append("second")

    owner.call(lambda: owner.behind([first, second]))
    assert began.wait(60)
    called = threading.Thread(target=owner.call, args=(lambda: order.append("call"),))
    called.start()
    while not owner._jobs.qsize():
        threading.Event().wait(0.001)
    go_on.set()
    called.join(60)
    while len(order) < 3:
        threading.Event().wait(0.001)
    assert order == ["first", "call", "second"]
    owner.close()
    assert not owner._thread.is_alive()


EXITS = """
import os, sys, threading
import onnxruntime as ort
from onnx import TensorProto, helper
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.device import HostDevice
from aotc.spec.variant import GraphCapture

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
runner = CapturingRunner(session, HostDevice(), GraphCapture(sizes=({"n": 2},)), "variant v")
owner, began = runner._owner, threading.Event()

def step():
    began.set()
    threading.Event().wait(0.2)
    print("ended", flush=True)

owner.call(lambda: owner.behind([step, step]))
assert began.wait(60)
if sys.argv[1] == "fork":
    held, leave = threading.Event(), threading.Event()

    def hold():
        with owner._closing:
            held.set()
            leave.wait(60)

    threading.Thread(target=hold).start()
    assert held.wait(60)
    child = os.fork()
    if not child:
        sys.exit(0)
    for _ in range(2000):
        gone, status = os.waitpid(child, os.WNOHANG)
        if gone:
            break
        threading.Event().wait(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
    leave.set()
    assert gone and status == 0, status
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_process_ends_after_the_step_that_runs(how: str) -> None:
    """And so does a child that was forked meanwhile: it has neither the thread nor its locks."""
    # Python warns of forks of processes with threads.
    command = [sys.executable, "-W", "ignore", "-c", EXITS, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended" in done.stdout


def test_captured_sizes_are_used_and_others_run() -> None:
    with_sizes = runner()
    assert with_sizes.capture(ones(2, 4), {"batch": 2, "width": 4})
    assert with_sizes.captured == ({"batch": 2, "width": 4},)
    for batch, width in ((2, 4), (3, 5), (2, 4)):
        y, total = with_sizes.run(ones(batch, width), None, {"batch": batch, "width": width})
        assert (y == 2 * (batch + width)).all()
        assert total == batch * width * 2 * (batch + width)
    assert len(with_sizes.captured) == 1
    (total,) = with_sizes.run(ones(2, 4), ["total"], {"batch": 2, "width": 4})
    assert total == 96
    with_sizes.close()


def test_further_sizes_are_captured_and_the_least_used_is_dropped() -> None:
    with_sizes = runner(on_call=True, max_count=2)
    for width in (1, 2, 1, 3):
        with_sizes.run(ones(1, width), None, {"batch": 1, "width": width})
    assert [size["width"] for size in with_sizes.captured] == [1, 3]
    assert [finding.code for finding in with_sizes.findings] == ["AOTC-R024"]
    assert "batch=1, width=2 was dropped" in with_sizes.findings[0].what
    with_sizes.close()


def test_memory_bounds_what_is_kept() -> None:
    sizes = CapturedSizes(max_count=10, max_bytes=100)
    run: Any = object()
    assert sizes.add((1,), run, 60) == ()
    assert sizes.add((2,), run, 30) == ()
    assert sizes.get((1,)) is run
    assert sizes.add((3,), run, 40) == ((2,),)
    # One is always kept, however large.
    assert sizes.add((4,), run, 1000) == ((1,), (3,))
    assert (len(sizes), sizes.bytes) == (1, 1000)


def test_answers_are_right_from_many_threads() -> None:
    with_sizes = runner(on_call=True, max_count=3)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            batch, width = (int(n) for n in rng.integers(1, 4, 2))
            x = rng.standard_normal((batch, width), np.float32)
            y, _ = with_sizes.run({"x": x}, None, {"batch": batch, "width": width})
            if not np.array_equal(y, x + x):
                wrong.append((batch, width))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with_sizes.close()


def test_a_closed_runner_refuses_and_kept_answers_stay() -> None:
    with_sizes = runner()
    with_sizes.capture(ones(2, 4), {"batch": 2, "width": 4})
    y, _ = with_sizes.run(ones(2, 4), None, {"batch": 2, "width": 4})
    with_sizes.close()
    with pytest.raises(AotcError) as caught:
        with_sizes.run(ones(2, 4), None, {"batch": 2, "width": 4})
    assert caught.value.code == "AOTC-R005"
    assert (y == 12).all()


def test_other_shapes_under_the_same_sizes_are_not_replayed() -> None:
    """Dims that no relation is enforced for may differ in calls of one key."""
    with_sizes = runner(sizes=({"batch": 2},))
    with_sizes.capture(ones(2, 4), {"batch": 2})
    for width in (4, 2, 7):
        y, _ = with_sizes.run(ones(2, width), None, {"batch": 2, "width": width})
        assert y.shape == (2, width)
        assert (y == 2 * (2 + width)).all()
    with_sizes.close()


def test_a_name_may_be_asked_for_twice() -> None:
    with_sizes = runner()
    for batch in (2, 3):
        found = with_sizes.run(ones(batch, 4), ["y", "total", "y"], {"batch": batch, "width": 4})
        assert [array.ndim for array in found] == [2, 0, 2]
    with_sizes.close()


def test_a_size_that_is_captured_again_is_counted_once() -> None:
    sizes = CapturedSizes(max_count=10, max_bytes=100)
    first: Any = object()
    second: Any = object()
    assert sizes.add((1,), first, 60) == ()
    assert sizes.add((1,), second, 70) == ()
    assert (sizes.bytes, sizes.get((1,))) == (70, second)


def test_a_runner_that_nobody_closes_leaves_no_thread() -> None:
    with_sizes = runner()
    thread = with_sizes._owner._thread
    del with_sizes
    gc.collect()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_a_closed_runner_frees_the_memory_of_its_device() -> None:
    closed: list[int] = []

    class Counted(HostDevice):
        def close(self) -> None:
            closed.append(self.index)

    graphs = GraphCapture(sizes=({"batch": 2, "width": 4},))
    with_sizes = CapturingRunner(session(), Counted(), graphs, "variant v")
    with_sizes.close()
    assert closed == [0]


def test_captures_are_told_and_calls_without_their_graph_are_known() -> None:
    promised, other = {"batch": 2, "width": 4}, {"batch": 3, "width": 4}
    told: list[str] = []
    with_sizes = runner()
    with_sizes.on_capture = lambda: told.append("captured")
    with_sizes.run(ones(2, 4), None, promised)
    assert with_sizes.missed_graph(promised)
    assert with_sizes.capture(ones(2, 4), promised)
    with_sizes.run(ones(2, 4), None, promised)
    with_sizes.run(ones(3, 4), None, other)
    assert not with_sizes.missed_graph(promised)
    assert not with_sizes.missed_graph(other), "nothing is promised of this size"
    assert told == ["captured"]
    with_sizes.close()


def test_copies_of_some_replays_are_timed() -> None:
    promised = {"batch": 2, "width": 4}
    told: list[tuple[int, float]] = []
    with_sizes = runner()
    with_sizes.on_copies = lambda count, seconds: told.append((count, seconds))
    assert with_sizes.capture(ones(2, 4), promised)
    for number in range(300):
        (found, total) = with_sizes.run(ones(2, 4), None, promised)
        assert (found[0, 0], float(total)) == (12, 96), number
    # Of the third, and of the 259th: x, y, and a sum.
    assert [count for count, _ in told] == [2 * 32 + 4] * 2
    assert all(seconds > 0 for _, seconds in told)
    with_sizes.close()


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ([1.0, np.inf, np.nan], True),
        ([1.001, np.inf, np.nan], True),
        ([1.2, np.inf, np.nan], False),
        ([1.001, -np.inf, np.nan], False),
        ([1.001, np.inf, np.inf], False),
        ([1.001, 1.0, np.nan], False),
    ],
    ids=str,
)
def test_replays_are_near_where_numbers_are_finite_and_equal_elsewhere(
    found: list[float], same: bool
) -> None:
    expected = np.array([1.0, np.inf, np.nan], np.float32)
    assert agree(np.array(found, np.float32), expected) is same


@pytest.mark.parametrize(
    ("number", "code"), [(700, "AOTC-R036"), (2, "AOTC-M004"), (900, "AOTC-R024")]
)
def test_a_gpu_that_fails_in_a_capture_is_not_a_refused_capture(number: int, code: str) -> None:
    """What comes after it would fail too: there is no run without a graph."""

    class Fails:
        """A session that fails when a graph is captured, after a run without."""

        def __getattr__(self, name: str) -> Any:
            return getattr(made, name)

        def run_with_iobinding(self, binding: Any, options: Any) -> None:
            made.run_with_iobinding(binding, options)
            if options.get_run_config_entry("gpu_graph_id") != str(NO_GRAPH):
                words = {2: "out of memory"}.get(number, "it failed")
                raise Fail(f"CUDA failure {number}: {words} ; GPU=0")

    made, device = session(), HostDevice()
    x = device.tensor_of(np.ones((2, 4), np.float32), "float32")
    with pytest.raises(AotcError) as caught:
        FixedRun(Fails(), device, {"x": x}, 1)  # type: ignore[arg-type]
    assert caught.value.code == code
