"""Where all sizes are stated, their runs go side by side before the search asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import constant, info, node

from aotc.graph.symbols import Symbols
from aotc.session.parity import same_bits
from aotc.sizes import ahead
from aotc.sizes.inputs.fixtures import FixtureInputs, plan_fixtures
from aotc.sizes.inputs.value_sets import ValueSets
from aotc.sizes.reference import Reference, write_golden_outputs
from aotc.spec.payload import Value
from aotc.spec.precision import ParitySpec
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import DimRange

BATCH = {"batch": DimRange(min=1, max=8, buckets=(2, 8), outside=("pad",))}


class Counted(Reference):
    """A reference that counts its runs by the batch and the sum of the input."""

    runs: Counter[tuple[int, float]]

    def run(self, inputs: Mapping[str, Any], options: Any = None) -> list[Any]:
        """The outputs."""
        if not hasattr(self, "runs"):
            self.runs = Counter()
        self.runs[len(inputs["x"]), float(inputs["x"].sum())] += 1
        return super().run(inputs, options)


def reference_of(folder: Path, monkeypatch: pytest.MonkeyPatch, flat: int = 4) -> Counted:
    """A model of x: [batch, 4] that runs where 4 * batch is a multiple of `flat`."""
    monkeypatch.chdir(folder)
    graph = onnx.helper.make_graph(
        [
            node("Reshape", ["x", "pairs"], "arranged"),
            node("Softmax", ["arranged"], "shares"),
            node("Reshape", ["shares", "rows"], "y"),
        ],
        "shares",
        [info("x", ["batch", 4])],
        [info("y", ["batch", 4])],
        [constant("pairs", np.array([-1, flat])), constant("rows", np.array([-1, 4]))],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    path = folder / "model.onnx"
    onnx.save(model, path)
    value = Value(name="x", dtype="float32", shape=("batch", 4))
    made = Counted(
        model=path,
        graph=path,
        weights=folder,
        symbols=Symbols(declared=(value,)),
        outputs=(Value(name="y", dtype="float32", shape=("batch", 4)),),
        hints={},
        seed=1,
    )
    made.resume([], 60.0, [], 0.0)
    return made


def answered(reference: Reference) -> dict[str, tuple[FixtureInputs, Any]]:
    """Fixtures and the answers that the analysis writes, by name."""
    domain = reference.domain(BATCH, ProbeLimits(), [])
    fixtures = plan_fixtures(domain, ParitySpec(), reference.inputs_at, [])
    fixtures += reference.padded_fixtures(domain, side_by_side=False)
    noted: dict[str, tuple[FixtureInputs, Any]] = {}
    write_golden_outputs(
        reference,
        fixtures,
        Path("fixtures"),
        side_by_side=False,
        noted=lambda fixture, outputs: noted.setdefault(fixture.name, (fixture, outputs)),
    )
    return noted


def test_each_fixture_runs_once_and_answers_as_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aotc.sizes.ahead.runs_at_once", lambda count, peak: 2)
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    expected = answered(reference_of(tmp_path / "one", monkeypatch))
    reference = reference_of(tmp_path / "other", monkeypatch)
    reference.ahead = ahead.run_ahead(reference, BATCH, ParitySpec())
    assert "less1-negative" in reference.ahead
    found = answered(reference)
    assert found.keys() == expected.keys()
    for name, (fixture, outputs) in found.items():
        other, answers = expected[name]
        assert fixture.is_like(other)
        assert all(map(same_bits, outputs, answers))
    assert set(reference.runs.values()) == {1}


def test_sizes_that_are_not_stated_are_left_to_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = reference_of(tmp_path, monkeypatch)
    assert not ahead.run_ahead(reference, {}, ParitySpec())
    assert not hasattr(reference, "runs")


def test_sizes_that_fail_are_no_fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Batches must be even.
    monkeypatch.setattr("aotc.sizes.ahead.runs_at_once", lambda count, peak: 2)
    reference = reference_of(tmp_path, monkeypatch, flat=8)
    reference.ahead = ahead.run_ahead(reference, BATCH, ParitySpec())
    found = answered(reference)
    assert {fixture.sizes["batch"] for fixture, _ in found.values()} == {2, 4, 8}
    assert not [name for name in found if name.startswith("less")]


@pytest.mark.parametrize("values", [0, 3])
def test_a_size_that_ended_a_process_is_no_fixture_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    reference = reference_of(tmp_path, monkeypatch)
    monkeypatch.setattr(reference, "_value_sets", ValueSets({}, values))
    domain = reference.domain(BATCH, ProbeLimits(), [])
    less = [item for item in reference.planned_paddings(domain) if item.name.startswith("less")]
    assert less
    reference.resume([item.sizes for item in less], 60.0, [], 0.0)
    planned = reference.planned_paddings(domain)
    assert planned and not [item for item in planned if item.name.startswith("less")]
