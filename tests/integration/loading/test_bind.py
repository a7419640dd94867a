"""Bound calls on the CPU: guarded, routed and padded as `run`, in memory that is shared."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from typing import Any

import numpy as np
import pytest
from masked_encoder import WIDTH, WORDS, encoder
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.runtime import binding
from aotc.runtime.model import Model
from aotc.runtime.store.pruning import remove_entry
from aotc.session.device import device
from aotc.session.device.device import HostDevice, Target
from aotc.spec.profile import Profile
from aotc.spec.shapes import DimRange


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    dims = {
        "batch": DimRange.from_json({"buckets": [1, 4], "outside": "pad"}),
        "seq": DimRange.from_json({"buckets": [4, 16], "max": 40, "outside": ["pad", "route"]}),
    }
    profile = Profile(schema="aotc.profile/1", name="shapes", dims=dims)
    return bench.build(encoder(), "bound", profile=profile)


@pytest.fixture(scope="module")
def model(bench: Workbench, built: Built) -> Any:
    with bench.load(built) as loaded:
        yield loaded


def inputs_of(batch: int, seq: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng((batch, seq, seed))
    return {
        "ids": rng.integers(0, WORDS, (batch, seq)),
        "mask": rng.integers(0, 2, (batch, seq)).astype(np.float32),
    }


@pytest.mark.parametrize(
    ("batch", "seq"), list(itertools.product((1, 2, 3, 4), (1, 3, 4, 5, 16, 17, 40)))
)
def test_a_bound_call_answers_as_run(model: Model, batch: int, seq: int) -> None:
    call = model.bind(inputs_of(batch, seq))
    for seed in range(3):
        inputs = inputs_of(batch, seq, seed)
        found = call(inputs if seed else None)["hidden"]
        assert found.shape == (batch, seq, WIDTH)
        np.testing.assert_array_equal(found.numpy(), model.run(inputs)["hidden"])


def test_memory_is_shared_both_ways(model: Model) -> None:
    inputs = inputs_of(4, 16)
    call = model.bind(inputs)
    output = np.from_dlpack(call.outputs["hidden"])
    assert output.ctypes.data == call.outputs["hidden"].address
    buffer = np.from_dlpack(call.inputs["mask"])
    before = call()["hidden"].numpy()
    np.testing.assert_array_equal(output, before)
    # What stands in the buffer is what the next call reads.
    changed = 1 - inputs["mask"]
    ctypes.memmove(buffer.ctypes.data, changed.ctypes.data, changed.nbytes)
    call()
    assert not np.array_equal(output, before)
    expected = model.run({**inputs, "mask": changed})["hidden"]
    np.testing.assert_array_equal(output, expected)


def test_torch_tensors_are_taken_where_they_are(model: Model) -> None:
    torch = pytest.importorskip("torch")
    inputs = {name: torch.from_numpy(array) for name, array in inputs_of(4, 16).items()}
    call = model.bind(inputs)
    assert call.inputs["ids"].address == inputs["ids"].data_ptr()
    inputs["mask"].fill_(1.0)
    expected = model.run({name: item.numpy() for name, item in inputs.items()})["hidden"]
    found = torch.from_dlpack(call()["hidden"])
    np.testing.assert_array_equal(found.numpy(), expected)


class Lent:
    """An array of the host that is taken where it is, as a tensor of another library."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.dtype = array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()


@pytest.mark.parametrize(("batch", "seq"), [(4, 16), (3, 16), (4, 9), (2, 3), (1, 25)])
def test_a_tensor_in_place_is_read_anew_padded_or_not(model: Model, batch: int, seq: int) -> None:
    inputs = inputs_of(batch, seq)
    call = model.bind({name: Lent(array) for name, array in inputs.items()})
    assert all(call.inputs[name].address == inputs[name].ctypes.data for name in inputs)
    for seed in range(1, 3):
        for name, array in inputs_of(batch, seq, seed).items():
            inputs[name][...] = array
        found = call()["hidden"].numpy()
        np.testing.assert_array_equal(found, model.run(inputs)["hidden"])
    # Further tensors are copied to where the first ones are.
    call(inputs_of(batch, seq, 7))
    np.testing.assert_array_equal(inputs["mask"], inputs_of(batch, seq, 7)["mask"])


class Elsewhere:
    """A tensor that says it is on a GPU."""

    dtype = np.dtype(np.float32)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 3

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("nobody may ask for it")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mask": np.ones((4, 4))}, "AOTC-R002"),
        ({"mask": np.ones((4, 5), np.float32)}, "AOTC-R004"),
        ({"mask": np.ones((4, 8), np.float32)[:, ::2]}, "AOTC-R011"),
        ({"mask": Elsewhere()}, "AOTC-R022"),
        ({"mask": "text"}, "AOTC-R002"),
        ({"mask": [[1.0], [2.0, 3.0]]}, "AOTC-R002"),
        ({"mask": np.ones((4, 4), ">f4")}, "AOTC-R002"),
        ({"more": np.ones((4, 4), np.float32)}, "AOTC-R001"),
    ],
    ids=["dtype", "shape", "strides", "device", "text", "ragged", "order", "unknown"],
)
def test_tensors_that_do_not_fit_are_refused(
    model: Model, change: dict[str, Any], code: str
) -> None:
    given = inputs_of(4, 4)
    with pytest.raises(AotcError) as caught:
        model.bind({**given, **change})
    assert caught.value.code == code
    call = model.bind(given)
    expected = call()["hidden"].numpy()
    with pytest.raises(AotcError) as caught:
        call(change)
    assert caught.value.code == code
    np.testing.assert_array_equal(call()["hidden"].numpy(), expected)


def test_outputs_are_named_and_checked(model: Model) -> None:
    with pytest.raises(AotcError) as caught:
        model.bind(inputs_of(1, 4), ["nothing"])
    assert caught.value.code == "AOTC-I027"
    assert list(model.bind(inputs_of(1, 4), ["hidden"])()) == ["hidden"]
    assert not model.bind(inputs_of(1, 4)).captured


def test_several_calls_and_threads_do_not_mix(model: Model) -> None:
    calls = [(model.bind(inputs_of(batch, seq)), batch, seq) for batch in (1, 3) for seq in (4, 9)]
    wrong: list[Any] = []

    def work(call: Any, batch: int, seq: int) -> None:
        for seed in range(20):
            inputs = inputs_of(batch, seq, seed)
            found = call(inputs)["hidden"].numpy()
            if not np.array_equal(found, model.run(inputs)["hidden"]):
                wrong.append((batch, seq, seed))

    threads = [threading.Thread(target=work, args=item) for item in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_model_answers_no_bound_call(bench: Workbench, built: Built) -> None:
    loaded = bench.load(built)
    call = loaded.bind(inputs_of(1, 4))
    kept = np.from_dlpack(call()["hidden"])
    expected = kept.copy()
    loaded.close()
    for refused in (call, lambda: loaded.bind(inputs_of(1, 4))):
        with pytest.raises(AotcError) as caught:
            refused()
        assert caught.value.code == "AOTC-R005"
    np.testing.assert_array_equal(kept, expected)


def test_a_bound_call_keeps_its_artifact_in_the_store(bench: Workbench) -> None:
    dims = {"batch": DimRange.from_json(2), "seq": DimRange.from_json(4)}
    profile = Profile(schema="aotc.profile/1", name="alone", dims=dims)
    built = bench.build(encoder(), "bound-alone", profile=profile)
    store, artifact_id = bench.folder / "store", built.report.artifact_id
    call = bench.load(built).bind(inputs_of(2, 4))
    gc.collect()
    with pytest.raises(AotcError) as caught:
        remove_entry(store, artifact_id)
    assert caught.value.code == "AOTC-R017"
    assert call()["hidden"].shape == (2, 4, WIDTH)
    del call
    gc.collect()
    assert remove_entry(store, artifact_id).removed == (artifact_id,)


def test_calls_and_refusals_are_counted(bench: Workbench, built: Built) -> None:
    with bench.load(built) as loaded:
        call = loaded.bind(inputs_of(3, 4))
        call()
        call()
        for refused in (lambda: loaded.bind({"ids": 1}), lambda: call([1])):
            with pytest.raises(AotcError):
                refused()
        counted = loaded.telemetry.to_dict()
        assert (counted["calls"], counted["routes"]) == (2, {"padded": 2})
        assert counted["refusals"] == {"AOTC-R001": 1}


def test_only_what_is_given_is_copied(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with one new input copies one, and none is looked at closer that plainly fits."""
    inputs = inputs_of(4, 16)
    call = model.bind(inputs)
    first, second, third = (inputs_of(4, 16, seed)["mask"] for seed in (1, 2, 3))
    ours = model.bind({**inputs, "mask": third}).inputs["mask"]
    forms = ((first, first), (Lent(second), second), (ours, third))
    copied: list[int] = []
    write, copy = Target.write, Target.copy

    def counted_write(self: Target, array: Any) -> Any:
        copied.append(self.address)
        return write(self, array)

    def counted_copy(self: Target, source: int) -> None:
        copied.append(self.address)
        copy(self, source)

    def refused(*given: Any) -> Any:
        raise AssertionError("it fits")

    monkeypatch.setattr(Target, "write", counted_write)
    monkeypatch.setattr(Target, "copy", counted_copy)
    monkeypatch.setattr(binding, "take_tensor", refused)
    for form, mask in forms:
        copied.clear()
        found = call({"mask": form})["hidden"].numpy()
        assert copied == [call.inputs["mask"].address]
        np.testing.assert_array_equal(found, model.run({**inputs, "mask": mask})["hidden"])
    copied.clear()
    call()
    assert not copied


class Apart(HostDevice):
    """A device that is not the host, as tensors and copies see it."""

    dlpack_type = 2
    least_direct_bytes = 1 << 9

    def host_view(self, address: int, count: int) -> None:
        return None


def test_tensors_of_the_host_are_sent_at_once(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that lie in page-locked memory, say, are looked at no closer than the device's own."""
    monkeypatch.setattr(device, "HostDevice", Apart)
    inputs = inputs_of(4, 16)
    call = model.bind(inputs)
    monkeypatch.setattr(binding, "take_tensor", None)
    for seed in range(1, 4):
        new = inputs_of(4, 16, seed)
        # One is small enough to be staged, the other is not.
        assert new["mask"].nbytes < Apart.least_direct_bytes <= new["ids"].nbytes
        found = call({name: Lent(array) for name, array in new.items()})["hidden"]
        np.testing.assert_array_equal(found.numpy(), model.run(new)["hidden"])


def test_one_tensor_may_be_several_inputs_and_its_own(model: Model) -> None:
    inputs = inputs_of(4, 16)
    call = model.bind({name: Lent(array) for name, array in inputs.items()})
    expected = call()["hidden"].numpy()
    # The memory itself, as ours and as the caller's: there is nothing to copy.
    for same in (call.inputs, {"mask": Lent(inputs["mask"])}, {"mask": inputs["mask"]}):
        np.testing.assert_array_equal(call(same)["hidden"].numpy(), expected)
    # Overlapping what it is copied to.
    shifted = np.zeros(inputs["mask"].size + 1, np.float32)
    memory = shifted[:-1].reshape(4, 16)
    memory[...] = inputs["mask"]
    overlapping = model.bind({"ids": inputs["ids"], "mask": Lent(memory)})
    moved = shifted[1:].reshape(4, 16)
    wanted = model.run({**inputs, "mask": moved.copy()})["hidden"]
    np.testing.assert_array_equal(overlapping({"mask": moved})["hidden"].numpy(), wanted)


def test_nothing_is_written_where_one_of_several_is_refused(model: Model) -> None:
    inputs, other = inputs_of(4, 4), inputs_of(4, 4, 1)
    call = model.bind(inputs)
    expected = call()["hidden"].numpy()
    with pytest.raises(AotcError) as caught:
        call({"ids": other["ids"], "mask": np.ones((4, 5), np.float32)})
    assert caught.value.code == "AOTC-R004"
    np.testing.assert_array_equal(call()["hidden"].numpy(), expected)
