"""Profiles that are learned for CUDA with captures: sizes take the place of variants."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from made_profiles import profile_with

from aotc.session.device.cuda_place import CudaPlace
from aotc.session.device.device import HostDevice
from aotc.spec.codec import decode, encode
from aotc.spec.command_reports import LearnReport
from aotc.tools.learn import profile_learn
from aotc.tools.learn_costs import CostTable, _Bench, measure_job

SIZES = tuple(range(1, 41))
Learned = Callable[..., LearnReport]


@pytest.fixture
def learned(tmp_path: Path) -> Learned:
    """A profile from requests of 1 to 40 words, whose cost rises with the size."""
    requests = [{"seq": size, "count": 10} for size in SIZES]
    (tmp_path / "traffic.jsonl").write_text("\n".join(map(json.dumps, requests)))
    costs = CostTable(
        dims=("seq",),
        sizes={"seq": SIZES},
        static=tuple(size * 1e-3 for size in SIZES),
        dynamic=tuple(size * 1e-3 + 0.05 for size in SIZES),
    )
    (tmp_path / "costs.json").write_text(json.dumps(encode(costs)))

    def run(graphs: Mapping[str, Any], **options: Any) -> LearnReport:
        base = profile_with("server-cuda", cuda={"graphs": dict(graphs)})
        path = tmp_path / "base.yaml"
        path.write_text(yaml.safe_dump(encode(base)))
        traffic, costs = tmp_path / "traffic.jsonl", tmp_path / "costs.json"
        return profile_learn(traffic, costs=costs, profile=path, **options)

    return run


def test_sizes_are_bounded_by_those_that_are_kept_not_by_variants(learned: Learned) -> None:
    found = learned({"capture": "sizes", "max_count": 16})
    assert max(plan.variants for plan in found.plans) == 16
    (chosen,) = [plan for plan in found.plans if plan.chosen]
    assert chosen.variants > 8
    assert "captured sizes: " in found.verdict
    assert found.profile.cuda.graphs.capture == "sizes"
    assert found.profile.problems() == []
    # They are sizes of one variant.
    assert (found.profile.variant_count(), found.profile.max_variants) == (1, 32)
    assert max(plan.variants for plan in learned({"capture": "sizes"}, max_variants=5).plans) == 5


def test_without_captures_they_are_variants(learned: Learned) -> None:
    found = learned({"capture": "none"})
    assert max(plan.variants for plan in found.plans) == 8
    assert "variants: " in found.verdict
    (chosen,) = [plan for plan in found.plans if plan.chosen]
    assert found.profile.variant_count() == chosen.variants > 1


def save(node: onnx.NodeProto, shape: list[str | int], folder: Path, **weights: Any) -> None:
    """A model of one node, whose input and output have one shape."""
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "graph", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")


@pytest.fixture
def request_on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the worker is asked, with the host's memory in place of a GPU's: the same path."""
    shape = ["seq", 4]
    save(onnx.helper.make_node("Tanh", ["x"], ["y"], name="squash"), shape, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CudaPlace, "device", lambda self: HostDevice())
    return {
        "graph": str(tmp_path / "m.onnx"),
        "weights": str(tmp_path),
        "inputs": [{"name": "x", "dtype": "float32", "shape": shape}],
        "hints": {},
        "dims": ["seq"],
        "sizes": {"seq": [2, 4, 8]},
        "between": {"seq": [3]},
        "recorded": {"seq": [2, 3, 7]},
        "others": {},
        "follows": {},
        "seconds": 0.0,
        "threads": 1,
        "seed": 1,
        "providers": ["cpu"],
        "plugins": {},
        "precision": "keep",
        "captures": True,
        "cuda_options": {},
        "fuses": False,
    }


def test_replays_are_measured_where_they_can_be(request_on_host: dict[str, Any]) -> None:
    bench = _Bench(request_on_host)
    assert len(list(bench.static({"seq": 3}, 0.0))) >= 3
    assert bench._captured is not None
    assert bench._captured._runner.captured == ({"seq": 3},)
    # Sizes that are not captured run there too, as calls of the loaded model do.
    assert bench._dynamic is None and bench.dynamic({"seq": 5}) > 0
    assert bench._captured._runner.captured == ({"seq": 3},)
    assert _Bench({**request_on_host, "captures": False})._captured is None


def test_convolutions_are_measured_with_the_sessions_that_they_are_built_with(
    request_on_host: dict[str, Any], tmp_path: Path
) -> None:
    """Another size in the session would free what a captured graph launches."""

    def sessions(stated: Mapping[str, Any]) -> str:
        captured = _Bench({**request_on_host, "cuda_options": {"graphs": stated}})._captured
        assert captured is not None
        return captured._runner.graphs.sessions

    assert [sessions({}), sessions({"sessions": "each"})] == ["one", "each"]
    shape = ["seq", 1, 4]
    request_on_host["inputs"][0]["shape"] = shape
    kernel = np.ones((1, 1, 1), np.float32)
    save(onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="c"), shape, tmp_path, w=kernel)
    assert [sessions({}), sessions({"sessions": "one"})] == ["each", "one"]


@pytest.mark.parametrize("captures", [True, False])
def test_a_measurement_has_a_cost_for_each_size(
    request_on_host: dict[str, Any], captures: bool
) -> None:
    found = measure_job({**request_on_host, "captures": captures})
    assert (found["sizes"], found["dynamic_sizes"]) == ({"seq": [2, 4, 8]}, {"seq": [2, 3, 4, 8]})
    assert (len(found["static"]), len(found["dynamic"])) == (3, 4)
    assert min(*found["static"], *found["dynamic"]) > 0
    assert found["new_size_seconds"] >= 0
    decode(CostTable, found)
