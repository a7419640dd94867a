"""Loaded artifacts with buckets: calls are routed, padded and cropped correctly, and counted."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_encoder import WORDS, encoder
from workbench import Built, Workbench, plain_answer, plain_session

from aotc import load
from aotc.base.errors import AotcError
from aotc.runtime.model import Model
from aotc.spec.profile import Profile, VariantSpec
from aotc.spec.shapes import DimRange
from aotc.spec.traffic import read_traffic


def profile(dims: dict[str, Any], **fields: Any) -> Profile:
    ranges = {name: DimRange.from_json(spec) for name, spec in dims.items()}
    return Profile(schema="aotc.profile/1", name="shapes", dims=ranges, **fields)


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    """batch 1 or up to 4, seq in buckets, longer ones routed."""
    dims = {
        "batch": {"buckets": [1, 4], "outside": "pad"},
        "seq": {"buckets": [4, 16], "max": 40, "outside": ["pad", "route"]},
    }
    return bench.build(encoder(), "encoder", profile=profile(dims))


@pytest.fixture(scope="module")
def plain(built: Built) -> Any:
    return plain_session(built.source)


def call(batch: int, seq: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng((batch, seq, seed))
    return {
        "ids": rng.integers(0, WORDS, (batch, seq)),
        "mask": rng.integers(0, 2, (batch, seq)).astype(np.float32),
    }


def assert_right(model: Model, plain: Any, inputs: dict[str, Any]) -> None:
    expected = plain_answer(plain, inputs)["hidden"]
    found: Any = model.run(inputs)["hidden"]
    assert found.shape == expected.shape
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_every_size_gives_the_unpadded_answer(bench: Workbench, built: Built, plain: Any) -> None:
    with bench.load(built) as model:
        for batch, seq in itertools.product(range(1, 5), (1, 2, 3, 4, 5, 15, 16, 17, 40)):
            inputs = call(batch, seq)
            given = {name: array.copy() for name, array in inputs.items()}
            assert_right(model, plain, inputs)
            for name, array in inputs.items():
                np.testing.assert_array_equal(array, given[name])
        counted = model.telemetry.to_dict()
        assert counted["calls"] == 36
        assert counted["routes"] == {"exact": 4, "padded": 24, "routed": 8}
        assert sum(variant["calls"] for variant in counted["variants"].values()) == 36


def test_padding_is_counted_exactly(bench: Workbench, built: Built) -> None:
    with bench.load(built) as model:
        model.run(call(3, 5))
        counted = model.telemetry.to_dict()["variants"]["portable.batch4-seq16"]
        # Two inputs, each from 3 x 5 to 4 x 16.
        assert (counted["input_elements"], counted["padding_elements"]) == (30, 98)
        assert counted["padding_share"] == pytest.approx(98 / 128)
        route = model.route(call(3, 5))
        assert (route.variant, route.cause) == ("portable.batch4-seq16", "padded")
        assert route.padded_to == {"batch": 4, "seq": 16}
        assert model.telemetry.calls == 1, "asking for a route is no call"


def test_arrays_in_another_order_are_taken_and_told_once(
    bench: Workbench, built: Built, plain: Any
) -> None:
    """As ONNX Runtime takes them: by a variant of that very size, by padding, and routed."""
    with bench.load(built) as model:
        for batch, seq in ((4, 16), (3, 5), (4, 40)):
            inputs = call(batch, seq)
            assert_right(model, plain, {**inputs, "mask": np.asfortranarray(inputs["mask"])})
            wide = np.repeat(inputs["ids"], 2, axis=1)
            assert_right(model, plain, {**inputs, "ids": wide[:, ::2]})
            assert_right(model, plain, {**inputs, "ids": inputs["ids"][::-1, ::-1]})
        told = [each for each in model.findings() if each.code == "AOTC-I095"]
        assert [each.where for each in told] == ["input ids", "input mask"]
    with bench.load(built) as model:
        assert_right(model, plain, call(3, 5))
        assert "AOTC-I095" not in [each.code for each in model.findings()]


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (call(5, 4), "AOTC-S010"),
        (call(1, 41), "AOTC-S010"),
        (call(1, 0), "AOTC-S010"),
        ({"ids": call(1, 4)["ids"]}, "AOTC-R001"),
        ({**call(1, 4), "more": np.ones(1)}, "AOTC-R001"),
        ({**call(1, 4), "mask": np.ones((1, 4))}, "AOTC-R002"),
        ({**call(1, 4), "mask": np.ones((1, 4), object)}, "AOTC-R002"),
        ({**call(1, 4), "mask": np.ones(4, np.float32)}, "AOTC-R003"),
        ({**call(1, 4), "mask": np.ones((1, 5), np.float32)}, "AOTC-R004"),
    ],
    ids=[
        *("batch", "long", "empty", "missing", "unknown", "double", "objects", "rank"),
        "disagree",
    ],
)
def test_nothing_runs_after_a_refusal(
    bench: Workbench, built: Built, inputs: dict[str, Any], code: str
) -> None:
    with bench.load(built) as model:
        with pytest.raises(AotcError) as caught:
            model.run(inputs)
        assert caught.value.code == code
        counted = model.telemetry.to_dict()
        assert counted["calls"] == 0
        assert counted["refusals"] == {code: 1}
        (guard,) = counted["refusals_by_place"]
        assert (guard["code"], guard["calls"]) == (code, 1)
        assert guard["where"]


def test_loading_warms_every_variant_and_says_what_each_cost(
    bench: Workbench, built: Built
) -> None:
    with bench.load(built) as model:
        assert model.ready
        loads = model.report.variants
        assert [load.name for load in loads] == [
            variant.name for variant in built.manifest.variants
        ]
        assert all(load.warmed and load.session_seconds > 0 for load in loads)
        assert all(load.first_run_seconds is not None for load in loads)
        assert {load.fixtures for load in loads} <= {1, 2}
        assert model.report.fixtures == sum(load.fixtures for load in loads)
    assert not model.ready, "closed"


def test_only_what_is_asked_for_is_warmed(bench: Workbench, built: Built) -> None:
    names = ["portable.batch1-seq4", "portable.batch4-seq16"]
    store = bench.folder / "store"
    loaded = load(built.path, key=bench.public, store=store, variant=names, warm_up=names[:1])
    with loaded as model:
        assert [variant.name for variant in model.variants] == names
        assert [variant.warmed for variant in model.report.variants] == [True, False]
        assert not model.ready
        model.warm(names[1])
        assert model.ready
        # Without the others, a call goes to the next variant that fits, or is refused.
        assert model.route(call(1, 5)).variant == names[1]
        with pytest.raises(AotcError, match="AOTC-S010 no loaded variant accepts a call"):
            model.route(call(1, 17))
        with pytest.raises(AotcError, match="AOTC-I027 no variant 'portable' is loaded"):
            model.warm(["portable"])


def test_a_single_variant(bench: Workbench, built: Built) -> None:
    with bench.load(built, "portable.batch4-seq16") as model:
        assert model.report.variant == "portable.batch4-seq16"
        assert model.route(call(1, 1)).padded_to == {"batch": 4, "seq": 16}


def test_requests_are_recorded(bench: Workbench, built: Built, tmp_path: Path) -> None:
    path = tmp_path / "shapes.jsonl"
    with load(built.path, key=bench.public, store=bench.folder / "store", record=path) as model:
        model.run(call(2, 7))
        with pytest.raises(AotcError):
            model.run(call(9, 7))
        with pytest.raises(AotcError):
            model.run({})
    # Coverage counts refused sizes, and not other refusals.
    assert read_traffic(path, built.manifest.inputs).counts == {(2, 7): 1, (9, 7): 1}


def test_a_mistake_does_not_spoil_the_record(
    bench: Workbench, built: Built, tmp_path: Path
) -> None:
    path, good = tmp_path / "shapes.jsonl", call(2, 7)
    huge = np.empty((0, 2**40), np.int64)
    mistakes: list[dict[str, Any]] = [
        {**good, "mask": np.ones(7, np.float32)},
        {**good, "mask": np.ones((2, 8), np.float32)},
        {"ids": np.ones((2, 0), np.int64), "mask": "no array"},
        {"ids": huge, "mask": huge.astype(np.float32)},
    ]
    with load(built.path, key=bench.public, store=bench.folder / "store", record=path) as model:
        model.run({"ids": good["ids"].tolist(), "mask": good["mask"]})
        for inputs in mistakes:
            with pytest.raises(AotcError):
                model.run(inputs)
        with pytest.raises(AotcError, match="AOTC-S010"):
            model.run(call(2, 0))
    assert read_traffic(path, built.manifest.inputs).counts == {(2, 7): 1, (2, 0): 1}


def test_a_record_that_cannot_be_written_is_reported(
    bench: Workbench, built: Built, tmp_path: Path
) -> None:
    store = bench.folder / "store"
    model = load(built.path, key=bench.public, store=store, record=tmp_path)
    with model:
        model.run(call(1, 4))
        assert model.findings() == ()
    (finding,) = model.findings()
    assert (finding.code, finding.what) == ("AOTC-R012", "1 requests could not be recorded")


def test_refusals_are_counted_at_few_places(bench: Workbench, built: Built) -> None:
    with bench.load(built, "portable.batch1-seq4") as model:
        for seq in range(5, 41):
            with pytest.raises(AotcError, match="AOTC-S010"):
                model.run(call(1, seq))
        guards = model.telemetry.to_dict()["refusals_by_place"]
    assert guards == [{"code": "AOTC-S010", "where": "dim batch, seq", "calls": 36}]


def test_dims_that_are_stated_are_held_to_it(bench: Workbench) -> None:
    dims = {"batch": 1, "seq": {"min": 2, "max": 20, "outside": "route"}}
    found = bench.build(encoder(), "open", profile=profile(dims))
    with bench.load(found) as model:
        model.run(call(1, 30))
        counted = model.telemetry.to_dict()
        assert counted["out_of_domain_by_dim"] == {"seq": 1}
        assert counted["routes"] == {"outside": 1}


def test_a_grid_pads_one_dynamic_variant(bench: Workbench) -> None:
    dims = {"batch": 1, "seq": {"min": 1, "max": 32, "multiple_of": 8, "outside": "pad"}}
    found = bench.build(encoder(), "grid", profile=profile(dims))
    plain = plain_session(found.source)
    with bench.load(found) as model:
        assert len(model.variants) == 1
        for seq in (1, 8, 9, 31, 32):
            assert_right(model, plain, call(1, seq))
        assert model.telemetry.to_dict()["routes"] == {"exact": 2, "padded": 3}
        with pytest.raises(AotcError, match="AOTC-S010"):
            model.run(call(1, 33))


@pytest.mark.parametrize("prepack", ["saved", "off", "at-load"])
def test_however_weights_are_packed(bench: Workbench, prepack: Any) -> None:
    dims = {"batch": 1, "seq": {"buckets": [4, 16], "outside": "pad"}}
    variants = (VariantSpec(name="portable"), VariantSpec(name="fast", isa="host", prepack=prepack))
    found = bench.build(encoder(), f"pack-{prepack}", profile=profile(dims, variants=variants))
    plain = plain_session(found.source)
    with bench.load(found, "fast") as model:
        assert [variant.name for variant in model.variants] == ["fast.seq4", "fast.seq16"]
        for seq in (1, 4, 9, 16):
            assert_right(model, plain, call(1, seq))


@pytest.mark.parametrize("turns", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_eight_threads_with_mixed_shapes(
    bench: Workbench, built: Built, plain: Any, turns: int
) -> None:
    shapes = [(1, 1), (1, 4), (2, 3), (4, 16), (3, 9), (1, 40), (4, 17), (2, 16)]
    calls = [call(*shape, seed) for shape in shapes for seed in range(3)]
    right = [plain_answer(plain, inputs)["hidden"] for inputs in calls]
    done: list[Counter[str]] = []
    wrong: list[str] = []
    with bench.load(built) as model:
        wanted = [model.route(inputs).variant for inputs in calls]

        def work(seed: int) -> None:
            counts: Counter[str] = Counter()
            order = np.random.default_rng(seed)
            for _ in range(turns):
                index = int(order.integers(len(calls) + 1))
                if index == len(calls):
                    with pytest.raises(AotcError):
                        model.run(call(9, 1))
                    counts["refused"] += 1
                    continue
                found: Any = model.run(calls[index])["hidden"]
                if not np.allclose(found, right[index], rtol=1e-4, atol=1e-4):
                    wrong.append(f"thread {seed}, call {index}")
                counts[wanted[index]] += 1
            done.append(counts)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert len(done) == 8
        total: Counter[str] = sum(done, Counter())
        counted = model.telemetry.to_dict()
        json.dumps(counted, allow_nan=False)
    assert counted["refusals"] == {"AOTC-S010": total.pop("refused")}
    assert counted["calls"] == sum(total.values())
    found_calls = {name: each["calls"] for name, each in counted["variants"].items()}
    assert {name: calls for name, calls in found_calls.items() if calls} == dict(total)


def test_one_bucket_takes_all_that_is_smaller(bench: Workbench) -> None:
    dims = {"batch": 1, "seq": {"buckets": [16], "outside": "pad"}}
    found = bench.build(encoder(), "single", profile=profile(dims))
    plain = plain_session(found.source)
    with bench.load(found) as model:
        for seq in (1, 15, 16):
            assert_right(model, plain, call(1, seq))


def test_no_output_and_no_space_are_reported(
    bench: Workbench, built: Built, tmp_path: Path
) -> None:
    with bench.load(built) as model, pytest.raises(AotcError, match="AOTC-I027 no output"):
        model.run(call(1, 4), [])
    with pytest.raises(AotcError, match="AOTC-I027 the size limit of the record"):
        load(
            built.path,
            key=bench.public,
            store=bench.folder / "store",
            record=tmp_path / "r.jsonl",
            record_bytes=0,
        )
