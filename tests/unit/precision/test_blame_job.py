"""The search for nodes to blame, on networks of products with planted bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from planted_models import products, residual_network, with_outliers

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.pipeline.blame import blame_job
from aotc.spec.codec import decode, encode
from aotc.spec.precision import GateSpec, OutputGate, Tolerance
from aotc.spec.variant import SessionSpec

LAYERS, WIDTH = 12, 32


def network() -> onnx.ModelProto:
    return residual_network(LAYERS, WIDTH)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked_of(folder: Path, model: onnx.ModelProto, **changes: Any) -> dict[str, Any]:
    """A request as the parent writes it, with two fixtures."""
    path = folder / "source.onnx"
    path.write_bytes(model.SerializeToString())
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    references = []
    for number, rows in enumerate((8, 3)):
        chance = np.random.default_rng(number)
        x = chance.standard_normal((rows, WIDTH)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        places = {}
        for name, array in (("x", x), ("y", y)):
            places[name] = folder / f"{name}{number}.npy"
            values.save(array, places[name])
        references.append(
            {
                "name": f"fixture {number}",
                "sizes": {"n": rows},
                "wanted": {"n": rows},
                "inputs": {"x": str(places["x"])},
                "outputs": {"y": str(places["y"])},
                "second": {},
            }
        )
        if not number:
            np.savez(folder / "data.npz", x=x)
    return {
        "writer": "trial_writer:write_int8",
        "asked": {"model": str(path), "data": str(folder / "data.npz")},
        "kept_before": [],
        "source": {"model": str(path), "weights": str(folder)},
        "session": encode(SessionSpec(optimization="basic")),
        "providers": ["CPUExecutionProvider"],
        "libraries": {},
        "tolerance": encode(Tolerance(atol=1e-2, rtol=0.1, min_cosine=0.99)),
        "original": {"model": str(path), "weights": str(folder), "decided": {}},
        "gates": encode(GateSpec()),
        "inputs": [],
        "padding": None,
        "parted": {},
        "arithmetic": "int8",
        "references": references,
        "trials": 15,
        "seconds": 600.0,
        **changes,
    }


def test_a_planted_node_is_found_exactly_and_first(here: Path) -> None:
    for name in ("product 0", "product 5", "product 11"):
        folder = here / name
        folder.mkdir()
        answer = blame_job(asked_of(folder, with_outliers(network(), name)))
        assert answer["found"]["kept"] == [name]
        assert answer["found"]["minimal"]
        assert answer["found"]["trials"] == 1
        assert answer["worst"] == name
        assert answer["found"]["before"] > 1 >= answer["found"]["after"]
        (change,) = answer["outputs"]
        assert change["max_rel_after"] < change["max_rel_before"]
        assert not [each for each in here.iterdir() if each.name.startswith("graph-")]


def test_several_planted_nodes_are_found_in_15_trials(here: Path) -> None:
    model = network()
    planted = ["product 2", "product 6", "product 9"]
    for name in planted:
        model = with_outliers(model, name)
    answer = blame_job(asked_of(here, model))
    assert answer["found"]["kept"] == planted
    assert answer["found"]["minimal"]
    assert answer["found"]["trials"] <= 15
    assert answer["found"]["ended"] == "complete"
    assert answer["candidates"] == LAYERS
    spent = blame_job({**asked_of(here, model), "trials": 3})
    assert (spent["found"]["trials"], spent["found"]["ended"]) == (3, "trials")


def test_where_float32_fails_too_two_trials_say_so(here: Path) -> None:
    request = asked_of(here, network())
    (place,) = request["references"][1]["outputs"].values()
    values.save(np.asarray(values.load(Path(place))) * np.float32(1.5), Path(place))
    answer = blame_job(request)
    assert answer["found"]["all_pass"] is False
    assert answer["found"]["kept"] == []
    assert answer["found"]["trials"] == 2


def test_a_gate_of_the_output_is_what_a_trial_must_pass(here: Path) -> None:
    model = with_outliers(network(), "product 5")
    loose = asked_of(here, model, tolerance=encode(Tolerance(atol=1e9, rtol=1e9)), trials=15)
    assert blame_job(loose)["reproduced"] is False
    gates = GateSpec(outputs={"*": OutputGate(min_sqnr_db=25.0)})
    answer = blame_job({**loose, "gates": encode(gates)})
    assert answer["found"]["kept"] == ["product 5"]


def test_what_the_profile_keeps_is_kept_in_each_trial(here: Path) -> None:
    model = with_outliers(with_outliers(network(), "product 3"), "product 7")
    answer = blame_job(asked_of(here, model, kept_before=["product 3"]))
    assert answer["found"]["kept"] == ["product 7"]
    assert answer["candidates"] == LAYERS - 1


def test_a_trial_that_does_not_load_is_no_answer_and_not_the_end(here: Path) -> None:
    model = with_outliers(with_outliers(network(), "product 3"), "product 7")
    request = asked_of(here, model)
    request["asked"]["fails_with"] = "product 7"
    answer = blame_job(request)
    assert answer["found"]["kept"] == []
    assert answer["found"]["all_pass"] is False


def test_few_nodes_that_leave_nothing_in_the_lower_precision_are_no_answer(here: Path) -> None:
    """A build with them would be refused: it is all of them, or others."""
    request = asked_of(here, with_outliers(network(), "product 3"))
    request["asked"]["nothing_without"] = "product 3"
    answer = blame_job(request)
    assert len(answer["found"]["kept"]) == LAYERS
    assert answer["found"]["all_pass"]


def test_a_graph_that_does_not_load_as_built_is_refused(here: Path) -> None:
    request = asked_of(here, network(), kept_before=["product 7"])
    request["asked"]["fails_with"] = "product 7"
    with pytest.raises(AotcError) as refused:
        blame_job(request)
    assert refused.value.code == "AOTC-R008"


def test_without_time_nothing_is_tried(here: Path) -> None:
    model = with_outliers(network(), "product 3")
    answer = blame_job(asked_of(here, model, seconds=0.0))
    assert answer["found"]["trials"] == 0
    assert answer["found"]["ended"] == "time"
    assert answer["found"]["kept"] == []
    assert answer["worst"] == "product 3"


def test_planting_changes_no_bit_of_float32(here: Path) -> None:
    model = network()
    x = np.random.default_rng(5).standard_normal((4, WIDTH)).astype(np.float32)

    def answer(given: onnx.ModelProto) -> Any:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(
            given.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, {"x": x})[0]

    assert products(model) == [f"product {index}" for index in range(LAYERS)]
    planted = answer(with_outliers(model, "product 4", channels=3))
    assert np.array_equal(answer(model), planted)


def test_the_request_is_read_as_it_is_written(here: Path) -> None:
    request = asked_of(here, network())
    assert decode(SessionSpec, request["session"]) == SessionSpec(optimization="basic")
