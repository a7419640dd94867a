"""Ranges that follow from observed values, by each method, against known numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from aotc.graph import values
from aotc.pipeline import calibration
from aotc.pipeline.calibration import BINS, Histogram
from aotc.spec.codec import Json

METHODS = ("auto", "minmax", "percentile", "entropy")


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A request for the ranges of `x` and of its double `y`, on samples of `x`."""
    monkeypatch.chdir(tmp_path)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], "double")],
        "doubling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "source.onnx")

    def request(method: str, samples: list[Any], percentile: float = 99.0) -> Json:
        saved = [
            values.save(np.asarray(sample, np.float32), tmp_path / f"sample{number}")
            for number, sample in enumerate(samples)
        ]
        return {
            "source": "source.onnx",
            "weights": ".",
            "folder": f"kept-{method}-{percentile}",
            "method": method,
            "percentile": percentile,
            "samples": [{"inputs": {"x": str(path)}} for path in saved],
        }

    return request


def ranges(request: Json) -> dict[str, Any]:
    found = calibration.observed_ranges(request, ["x", "y"])
    assert list(found) == ["x", "y"]
    return {name: seen.bounds for name, seen in found.items()}


def even(low: float, high: float, count: int = 100_001) -> Any:
    return np.linspace(low, high, count, dtype=np.float32)


def test_minmax_is_of_all_samples(request_of: Any) -> None:
    found = ranges(request_of("minmax", [[0.5, 1.0], [-3.0, 0.0, 2.0]]))
    assert found == {"x": (-3.0, 2.0), "y": (-6.0, 4.0)}


@pytest.mark.parametrize(
    ("percentile", "low", "high"),
    [(100.0, -1.0, 3.0), (99.0, -0.98, 2.98), (90.0, -0.8, 2.8), (50.0, 0.0, 2.0)],
)
def test_percentile_cuts_half_of_the_rest_on_each_side(
    request_of: Any, percentile: float, low: float, high: float
) -> None:
    parts = np.array_split(even(-1.0, 3.0), 7)
    found = ranges(request_of("percentile", parts, percentile))
    for name, factor in (("x", 1.0), ("y", 2.0)):
        width = 4.0 * factor / BINS["percentile"]
        least, largest = found[name]
        assert factor * low - width - 1e-6 <= least <= factor * low
        assert factor * high <= largest <= factor * high + width + 1e-6


def test_entropy_leaves_out_what_is_far_and_rare(request_of: Any) -> None:
    chance = np.random.default_rng(0)
    usual = chance.standard_normal(100_000)
    found = ranges(request_of("entropy", [usual, [100.0]]))
    assert found["x"][0] == usual.astype(np.float32).min()
    assert 4.0 < found["x"][1] < 30.0
    assert found["y"] == pytest.approx((2 * found["x"][0], 2 * found["x"][1]))


def test_entropy_keeps_what_is_spread_evenly(request_of: Any) -> None:
    assert ranges(request_of("entropy", [even(-2.0, 2.0)]))["x"] == pytest.approx((-2.0, 2.0))


@pytest.mark.parametrize("method", METHODS)
def test_a_quiet_sample_before_a_loud_one(request_of: Any, method: str) -> None:
    """The bins are of the whole range, however much larger it is than that of the first sample."""
    found = ranges(request_of(method, [even(-1e-9, 1e-9), even(-1e6, 1e6)], 100.0))
    assert found["x"] == pytest.approx((-1e6, 1e6))


@pytest.mark.parametrize("method", METHODS)
def test_one_value_and_none_that_is_finite(request_of: Any, method: str) -> None:
    assert ranges(request_of(method, [[1.5], [1.5, 1.5]]))["x"] == (1.5, 1.5)
    request = request_of(method, [[1.0, 2.0], [np.inf], [3.0]])
    assert ranges({**request, "folder": "infinite"}) == {"x": None, "y": None}


@pytest.mark.parametrize("method", METHODS)
def test_one_sample_is_held_at_once(
    request_of: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(method, [even(0, 1), even(0, 2), even(0, 3)])
    events: list[str] = []

    def noting(name: str, does: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            events.append(name)
            return does(*given, **named)

        return noted

    monkeypatch.setattr(calibration.values, "load", noting("load", values.load))
    monkeypatch.setattr(calibration, "run", noting("run", calibration.run))
    ranges(request)
    assert events == ["load", "run"] * (3 if method in ("auto", "minmax") else 6)


def outliers(request: Json) -> Any:
    return calibration.observed_ranges(request, ["x"])["x"]


def test_auto_cuts_off_what_costs_every_other_value_much(request_of: Any) -> None:
    usual = np.random.default_rng(0).standard_normal(1_000_000)
    found = outliers(request_of("auto", [usual, [20.0]]))
    assert found.bounds == (usual.astype(np.float32).min(), 20.0)
    low, high = found.clipped
    assert found.bounds[0] <= low < -4.0
    assert 4.0 < high < 5.0


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([np.random.default_rng(1).standard_normal(200_000)], id="normal"),
        pytest.param([np.random.default_rng(1).laplace(size=200_000)], id="long tails"),
        pytest.param([even(-2.0, 2.0)], id="even"),
        pytest.param([np.zeros(1000)], id="zero"),
        # One that is so large is worth more than all others.
        pytest.param([np.random.default_rng(1).standard_normal(1000), [1e6]], id="huge"),
    ],
)
def test_auto_leaves_ranges_without_outliers(request_of: Any, samples: list[Any]) -> None:
    assert outliers(request_of("auto", samples)).clipped is None


def test_other_methods_know_of_no_outliers(request_of: Any) -> None:
    usual = np.random.default_rng(0).standard_normal(1_000_000)
    assert outliers(request_of("minmax", [usual, [20.0]])).clipped is None


def test_channels_are_those_of_the_last_axis_over_all_samples(request_of: Any) -> None:
    samples = [[1.0, -2.0, 0.0], [-3.0, 1.0, 0.0]]
    for _ in ("observed", "read again"):
        found = calibration.observed_ranges(request_of("minmax", samples), ["x", "y"], ["x"])
        assert found["y"].channels is None
        channels = found["x"].channels
        assert channels is not None
        assert channels.low.tolist() == [-3.0, -2.0, 0.0]
        assert channels.high.tolist() == [1.0, 1.0, 0.0]
        assert channels.squares.tolist() == [5.0, 2.5, 0.0]
        assert channels.bounds == found["x"].bounds


def test_samples_that_differ_in_their_channels_have_none(request_of: Any) -> None:
    found = calibration.observed_ranges(request_of("minmax", [[1.0], [1.0, 2.0]]), ["x"], ["x"])
    assert found["x"].channels is None


def test_a_histogram_without_values_has_the_range_that_is_known() -> None:
    """An operator that draws numbers draws others in the second run."""
    for method in ("percentile", "entropy"):
        histogram = Histogram(method, (1.0, 2.0))  # type: ignore[arg-type]
        histogram.add(np.array([7.0], np.float32))
        assert histogram.range(99.0) == (1.0, 2.0)
