"""Sessions, placement and parity on real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from third_party_models import MODELS, needs_models

from aotc.graph import values
from aotc.graph.model import read_model
from aotc.session import sessions
from aotc.session import sessions as session
from aotc.session.capture import value_of
from aotc.session.parity import compare
from aotc.sizes.inputs.fixtures import generate
from aotc.sizes.inputs.hints import hints_of
from aotc.spec.precision import ParitySpec
from aotc.spec.variant import SessionSpec

pytestmark = needs_models

CPU = ("CPUExecutionProvider",)
SIZES: dict[str, dict[str, int]] = {
    "basic_pitch_nmp": {"serving_default_input_2:0.0": 1},
    "gtcrn_stream": {},
    "magika_v3_3": {"bytes.0": 2},
    "mobilenet_qdq_int8": {"batch": 1},
    "silero_vad_op18_ifless": {"batch": 1, "sequence": 512},
    "silero_vad_v6": {"input.0": 1, "input.1": 512, "state.1": 1},
    "tiny_gpt2_past_genai": {"batch_size": 1, "seq_len": 2, "past_seq_len": 3, "total_seq_len": 5},
    "tinybert_untrained": {"batch": 2, "sequence": 7},
    "tract_bidi_lstm": {"batch": 2, "length": 9},
    "ultraface_rfb320": {},
    "xgboost_onnxmltools": {"X.0": 5},
    "yunet_n_dynamic": {"batch": 1, "height": 64, "width": 96},
}


def model_path(name: str) -> Path:
    return MODELS / f"{name}.onnx"


def inputs_of(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    model = read_model(model_path(name))
    declared = [value_of(info) for info in model.graph.input]
    constant = {tensor.name for tensor in model.graph.initializer}
    return generate(
        [value for value in declared if value.name not in constant], sizes, hints_of(model), 1
    )


def test_every_model_of_the_folder_is_here() -> None:
    assert sorted(SIZES) == sorted(path.stem for path in MODELS.glob("*.onnx"))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_an_optimized_session_agrees_with_the_reference(name: str, tmp_path: Path) -> None:
    reference = session.create_session(
        model_path(name), SessionSpec(optimization="disable"), providers=CPU, threads=1
    )
    variant = session.create_session(
        model_path(name).read_bytes(),
        SessionSpec(optimization="all"),
        providers=CPU,
        record_placement=True,
    )
    observed = sessions.observe(variant)
    assert observed.share == {CPU[0]: 1.0}
    assert observed.nodes
    inputs = inputs_of(name, SIZES[name])
    assert list(inputs) == [arg.name for arg in reference.get_inputs()]
    outputs = session.run(reference, inputs)
    tolerance = ParitySpec().quantized if "int8" in name else ParitySpec().float32
    for arg, golden, actual in zip(
        reference.get_outputs(), outputs, session.run(variant, inputs), strict=True
    ):
        path = values.save(golden, tmp_path / "golden")
        error = compare(values.load(path), actual, tolerance, arg.name)
        assert error.passed, error
        # The same output, moved by a tenth of its scale, must not pass.
        if golden.dtype == np.float32 and golden.size and tolerance == ParitySpec().float32:
            moved = actual + np.float32(0.1 * np.abs(actual).max() + 0.01)
            assert not compare(golden, moved, tolerance, arg.name).passed


@pytest.mark.parametrize("name", sorted(SIZES))
def test_what_onnxruntime_says_of_inputs_is_what_the_file_says(name: str) -> None:
    opened = session.create_session(
        model_path(name), SessionSpec(optimization="disable"), providers=CPU
    )
    declared = {info.name: value_of(info) for info in read_model(model_path(name)).graph.input}
    for arg in opened.get_inputs():
        described, read = values.ort_type_to_value(arg), declared[arg.name]
        assert (described.kind, described.dtype) == (read.kind, read.dtype)
        assert described.shape == (read.shape or None)


def test_an_optimized_graph_with_external_weights_loads_from_bytes(tmp_path: Path) -> None:
    name = "tinybert_untrained"
    options = session.session_options(
        SessionSpec(
            optimization="all",
            config={
                "session.optimized_model_external_initializers_file_name": "weights.bin",
                "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
            },
        )
    )
    options.optimized_model_filepath = str(tmp_path / "model.onnx")
    session.import_onnxruntime().InferenceSession(
        str(model_path(name)), options, providers=list(CPU)
    )
    content = (tmp_path / "model.onnx").read_bytes()
    opened = [
        session.create_session(
            content,
            SessionSpec(optimization="disable"),
            providers=CPU,
            weights_folder=tmp_path,
            record_placement=True,
        )
        for _ in range(2)
    ]
    first, second = (sessions.observe(item) for item in opened)
    assert sessions.differences(first, second) == ()
    names = {node.name for node in onnx.load(tmp_path / "model.onnx").graph.node}
    assert {node.name for node in first.nodes} == names
    inputs = inputs_of(name, SIZES[name])
    plain = session.create_session(
        model_path(name), SessionSpec(optimization="disable"), providers=CPU
    )
    for golden, actual in zip(
        session.run(plain, inputs), session.run(opened[0], inputs), strict=True
    ):
        assert compare(golden, actual, ParitySpec().float32, "y").passed
