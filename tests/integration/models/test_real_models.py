"""All commands on models of other projects: build, verify, inspect, load, run, compare."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import inspect, verify
from aotc.runtime.model import Model
from aotc.spec.shapes import Domain

pytestmark = needs_models
NAMES = (
    "basic_pitch_nmp",
    "gtcrn_stream",
    "magika_v3_3",
    "mobilenet_qdq_int8",
    "silero_vad_op18_ifless",
    "silero_vad_v6",
    "tiny_gpt2_past_genai",
    "tinybert_untrained",
    "tract_bidi_lstm",
    "ultraface_rfb320",
    "xgboost_onnxmltools",
    "yunet_n_dynamic",
)
VARIANTS = ("portable", "native")
MOBILENET_DATA = "mobilenet_qdq_int8.test_data_set_0"
# Maximum input elements at random sizes, so that a run is short.
MOST_ELEMENTS = 1 << 18


@pytest.fixture(scope="module")
def built(bench: Workbench, request: pytest.FixtureRequest) -> Built:
    """One model of the folder, built once for all tests that read it."""
    name: str = request.param
    fixtures = MODELS / MOBILENET_DATA if name == "mobilenet_qdq_int8" else None
    return bench.build(MODELS / f"{name}.onnx", name, profile="server-cpu", fixtures=fixtures)


def of_every_model(test: Any) -> Any:
    return pytest.mark.parametrize("built", NAMES, indirect=True)(test)


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("built", names, indirect=True)


def random_sizes(built: Built) -> dict[str, int]:
    """Random sizes within the recorded domain, the same for a model in every test run."""
    rng = np.random.default_rng(len(built.manifest.name))
    domain = built.manifest.domain
    while True:
        sizes = domain.complete(
            {
                name: int(rng.integers(dim.min // dim.multiple_of, dim.max // dim.multiple_of + 1))
                * dim.multiple_of
                for name, dim in domain.dims.items()
            }
        )
        inputs = built.inputs(sizes)
        if sum(np.asarray(value).size for value in inputs.values()) <= MOST_ELEMENTS:
            return sizes


def assert_matches(built: Built, model: Model, inputs: dict[str, Any]) -> dict[str, Any]:
    expected = plain_answer(plain_session(built.source), inputs)
    found = model.run(inputs)
    assert list(found) == [value.name for value in built.manifest.outputs]
    assert_agree(expected, found, tolerance_of(built, model.report.variant), built.manifest.name)
    return found


def test_the_folder_holds_the_models_that_are_tested() -> None:
    listed = json.loads((MODELS / "MANIFEST.json").read_text())
    assert sorted(item["name"] for item in listed) == sorted(NAMES)


@of_every_model
def test_verified_and_inspected(bench: Workbench, built: Built) -> None:
    report = verify(built.path, key=bench.public)
    assert report.authentic
    assert report.verdict == "optimal"
    assert report.refusals == ()
    runs = [verdict.name for verdict in report.variants if verdict.runs]
    # For a quantized model, CPUs with VNNI have a faster variant, too.
    assert [name for name in runs if name != "portable-vnni"] == list(VARIANTS)
    assert runs == [variant.name for variant in built.manifest.variants]
    assert (
        report.hashed_bytes
        >= built.report.payload_bytes - (built.payload / "aotc.json").stat().st_size
    )
    seen = inspect(built.path)
    assert seen.status == "UNVERIFIED"
    assert seen.problems == ()
    assert seen.artifact is not None
    assert seen.artifact.artifact_id == report.artifact_id == built.report.artifact_id
    assert seen.source.size == built.source.stat().st_size
    assert seen.domain == built.manifest.domain
    for variant in seen.artifact.variants:
        assert variant.placement_origin == "observed"
        assert variant.share == {"CPUExecutionProvider": 1.0}
        assert variant.parity.status == "passed"
        assert {error.output for error in variant.worst} == {v.name for v in seen.outputs}


@of_every_model
def test_the_evidence_is_what_the_folder_says(built: Built) -> None:
    listed = json.loads((MODELS / "MANIFEST.json").read_text())
    (item,) = (item for item in listed if item["name"] == built.manifest.name)
    source = built.manifest.source
    assert source.sha256 == item["sha256"]
    assert {name: source.opsets.get(name) for name in item["opset"]} == item["opset"]
    inputs = {value.name: value.shape for value in built.manifest.inputs}
    for name, (_, declared) in item["inputs"].items():
        assert inputs[name] == tuple(
            # Anonymous dims.
            f"{name}.{axis}" if str(size).startswith(("?", "unk__")) else size
            for axis, size in enumerate(declared)
        )


@pytest.mark.parametrize("variant", VARIANTS)
@of_every_model
def test_answers_are_the_plain_sessions(bench: Workbench, built: Built, variant: str) -> None:
    domain = built.manifest.domain
    with bench.load(built, variant) as model:
        assert model.report.variant == variant
        assert model.report.fixtures == len(built.manifest.fixtures)
        for sizes in (domain.corner("min"), domain.corner("opt"), random_sizes(built)):
            assert_matches(built, model, built.inputs(sizes))
        assert model.telemetry.to_dict()["out_of_domain"] == 0


@of("mobilenet_qdq_int8")
def test_mobilenet_gives_the_answer_that_ships_with_it(bench: Workbench, built: Built) -> None:
    data = MODELS / MOBILENET_DATA
    image, scores = (
        numpy_helper.to_array(onnx.TensorProto.FromString((data / f"{name}_0.pb").read_bytes()))
        for name in ("input", "output")
    )
    assert built.manifest.source.quantized
    assert built.manifest.variants[0].parity.arithmetic == "quantized"
    # The user's data proved the variants, and is not in the artifact.
    fixtures = [comparison.fixture for comparison in built.report.variants[0].comparisons]
    assert "user0" in fixtures
    assert [f.origin for f in built.manifest.fixtures if f.origin == "user"] == []
    with bench.load(built) as model:
        found = assert_matches(built, model, {"image": image})["scores"]
    assert np.argmax(found) == np.argmax(scores)
    # Quantized results differ by one step between releases of ONNX Runtime.
    np.testing.assert_allclose(found, scores, atol=0.1 * np.abs(scores).max())


@of("tract_bidi_lstm")
def test_the_sentence_splitter_gives_the_values_that_ship_with_it(
    bench: Workbench, built: Built
) -> None:
    with np.load(MODELS / "tract_bidi_lstm.io.npz") as data:
        text, expected = data["input"], data["Add_26"]
    with bench.load(built) as model:
        found = assert_matches(built, model, {"input": text})["output"]
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


def relations(domain: Domain) -> list[str]:
    return [str(relation) for relation in domain.relations]


@of("silero_vad_v6")
def test_silero_ties_its_state_to_the_batch(built: Built) -> None:
    assert relations(built.manifest.domain) == ["state.1 = input.0"]
    assert built.finding("AOTC-S007") == "state.1: state.1 = input.0"
    source = built.manifest.source
    assert {flow.op_type for flow in source.control_flow} == {"If"}
    # Its subgraphs read values of the graphs around them.
    assert source.outer_scope_values


@of("silero_vad_op18_ifless")
def test_silero_of_opset_18_frees_batch_and_sequence(built: Built) -> None:
    assert sorted(built.manifest.domain.dims) == ["batch", "sequence"]
    assert [flow.op_type for flow in built.manifest.source.control_flow] == ["If"]


@of("tiny_gpt2_past_genai")
def test_gpt2_adds_past_and_present(bench: Workbench, built: Built) -> None:
    domain = built.manifest.domain
    assert relations(domain) == ["total_seq_len = seq_len + past_seq_len"]
    assert domain.dims["past_seq_len"].min == 0
    assert "com.microsoft::Attention" in built.manifest.source.contrib_ops
    sizes = domain.complete({"batch_size": 1, "past_seq_len": 0, "seq_len": 3})
    with bench.load(built) as model:
        assert_matches(built, model, built.inputs(sizes))


@of("yunet_n_dynamic")
def test_yunet_wants_multiples_of_32(built: Built) -> None:
    dims = built.manifest.domain.dims
    assert {name: dims[name].multiple_of for name in ("height", "width")} == {
        "height": 32,
        "width": 32,
    }


@of("xgboost_onnxmltools")
def test_trees_of_only_the_ml_domain(built: Built) -> None:
    assert "ai.onnx.ml" in built.manifest.source.opsets
    assert any(op.startswith("ai.onnx.ml::TreeEnsemble") for op in built.manifest.source.op_types)


@of("basic_pitch_nmp")
def test_names_with_a_colon_are_kept(built: Built) -> None:
    assert [value.name for value in built.manifest.inputs] == ["serving_default_input_2:0"]
