"""The onnx package's own node tests that have control flow, sequences, optionals or free dims.

If the plain session refuses a model, the build refuses it with a code; otherwise the artifact
returns the outputs that the package expects.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from workbench import Workbench, plain_session

from aotc.base.errors import AotcError
from aotc.session.sessions import ort_errors

NAMES = (
    "test_affine_grid_2d_expanded",
    "test_flexattention_causal_mask",
    "test_identity_opt",
    "test_identity_sequence",
    "test_if",
    "test_if_opt",
    "test_if_seq",
    "test_linear_attention_delta_expanded",
    "test_loop11",
    "test_loop13_seq",
    "test_loop16_seq_none",
    "test_optional_get_element_optional_sequence",
    "test_optional_has_element_empty_optional_input",
    "test_optional_has_element_tensor_input",
    "test_range_bfloat16_type_positive_delta_expanded",
    "test_range_float16_type_positive_delta_expanded",
    "test_range_int32_type_negative_delta_expanded",
    "test_scan9_multi_state",
    "test_scan9_sum",
    "test_scan_sum",
    "test_sequence_insert_at_back",
    "test_sequence_map_add_1_sequence_1_tensor",
    "test_sequence_map_extract_shapes_expanded",
    "test_sequence_map_identity_2_sequences",
    "test_affine_grid_2d_align_corners_expanded",
    "test_affine_grid_3d_align_corners_expanded",
    "test_affine_grid_3d_expanded",
    "test_flexattention_prob_mod",
    "test_flexattention_relative_positional",
    "test_flexattention_score_mod",
    "test_flexattention_soft_cap",
    "test_linear_attention_decode_step_expanded",
    "test_linear_attention_explicit_scale_expanded",
    "test_linear_attention_fp16_expanded",
    "test_linear_attention_gated_delta_beta_scalar_expanded",
    "test_linear_attention_gated_delta_expanded",
    "test_linear_attention_gated_delta_gqa_expanded",
    "test_linear_attention_gated_delta_mqa_expanded",
    "test_linear_attention_gated_expanded",
    "test_linear_attention_gated_per_head_decay_expanded",
    "test_linear_attention_linear_expanded",
    "test_linear_attention_linear_t1_no_past_expanded",
    "test_linear_attention_no_past_explicit_zeros_expanded",
    "test_linear_attention_prefill_with_past_expanded",
    "test_optional_get_element_optional_tensor",
    "test_optional_get_element_sequence",
    "test_optional_has_element_optional_input",
    "test_range_float_type_positive_delta_expanded",
    "test_scan9_scalar",
    "test_sequence_insert_at_front",
    "test_sequence_map_add_1_sequence_1_tensor_expanded",
    "test_sequence_map_add_2_sequences",
    "test_sequence_map_add_2_sequences_expanded",
    "test_sequence_map_extract_shapes",
    "test_sequence_map_identity_1_sequence",
    "test_sequence_map_identity_1_sequence_1_tensor",
    "test_sequence_map_identity_1_sequence_1_tensor_expanded",
    "test_sequence_map_identity_1_sequence_expanded",
    "test_sequence_map_identity_2_sequences_expanded",
)

# Many cases of two operators differ only in their numbers; a few of each are always run.
OFTEN = (
    "test_flexattention_causal_mask",
    "test_linear_attention_delta_expanded",
    "test_linear_attention_fp16_expanded",
    "test_linear_attention_prefill_with_past_expanded",
)
# The newest version that ONNX Runtime reads; the package writes newer ones.
NEWEST_IR = 13
NEWEST_OPSET = 26

Cases = Mapping[str, Any]


def marked_names() -> list[Any]:
    """All names; those of the large families are marked as slow."""
    families = ("test_flexattention_", "test_linear_attention_")
    return [
        pytest.param(name, marks=pytest.mark.slow)
        if name.startswith(families) and name not in OFTEN
        else name
        for name in NAMES
    ]


@pytest.fixture(scope="module")
def cases() -> Cases:
    """The package's node tests by name; generating them takes seconds."""
    with warnings.catch_warnings():
        # Some of them divide by zero on purpose.
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None) if case.model is not None}


def has_subgraph(model: onnx.ModelProto) -> bool:
    kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    return any(a.type in kinds for node in model.graph.node for a in node.attribute)


def is_free(model: onnx.ModelProto) -> bool:
    """Whether an input is not a tensor, has no rank, or has a dim without a size."""
    for info in model.graph.input:
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
            return True
        if any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
            return True
    return False


def test_all_such_cases_are_here(cases: Cases) -> None:
    wanted = {n for n, case in cases.items() if has_subgraph(case.model) or is_free(case.model)}
    assert wanted == set(NAMES)


def write_data(case: Any, folder: Path) -> Path:
    """The case's own inputs as the package would write them."""
    folder.mkdir()
    inputs, _ = case.data_sets[0]
    for index, (value, info) in enumerate(zip(inputs, case.model.graph.input, strict=True)):
        if isinstance(value, onnx.TensorProto | onnx.SequenceProto | onnx.OptionalProto):
            proto = value
        elif info.type.HasField("sequence_type"):
            proto = numpy_helper.from_list(value, info.name)
        elif info.type.HasField("optional_type"):
            proto = numpy_helper.from_optional(value, info.name)
        else:
            proto = numpy_helper.from_array(value, info.name)
        (folder / f"input_{index}.pb").write_bytes(proto.SerializeToString())
    return folder


def refusal(path: Path) -> str:
    """Why the plain session refuses the model; empty if it runs."""
    try:
        plain_session(path)
    except ort_errors() as error:
        return str(error)
    return ""


def in_python(value: Any) -> Any:
    """A case's value as a caller passes it."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value


def assert_close(expected: Any, found: Any, case: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert_close(one, other, case)
    elif expected is None:
        assert found is None
    else:
        expected, found = np.asarray(expected), np.asarray(found)
        assert (expected.dtype, expected.shape) == (found.dtype, found.shape)
        one, other = (
            array.astype(np.float64) if array.dtype.kind not in "OUb" else array
            for array in (expected, found)
        )
        np.testing.assert_allclose(other, one, rtol=case.rtol, atol=case.atol)


def older(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph under versions that ONNX Runtime reads."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, NEWEST_IR)
    for entry in (*copy.opset_import, *(e for f in copy.functions for e in f.opset_import)):
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(entry.version, NEWEST_OPSET)
    return copy


def assert_refused(bench: Workbench, path: Path, fixtures: Path) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(path, path.stem, fixtures=fixtures)
    assert caught.value.exit_status == 3, caught.value
    assert caught.value.code in ("AOTC-I008", "AOTC-I009", "AOTC-I012", "AOTC-I016"), caught.value
    assert not (bench.folder / f"{path.stem}.aotc").exists()


@pytest.mark.parametrize("name", marked_names())
def test_node_model(name: str, cases: Cases, tmp_path: Path) -> None:
    case = cases[name]
    bench = Workbench.at(tmp_path)
    path = bench.save(case.model, name)
    fixtures = write_data(case, tmp_path / "data")
    if refusal(path):
        assert_refused(bench, path, fixtures)
        path = bench.save(older(case.model), f"{name}_older")
        if refusal(path):
            assert_refused(bench, path, fixtures)
            return
    built = bench.build(path, path.stem, profile="edge", fixtures=fixtures)
    inputs, outputs = case.data_sets[0]
    names = [value.name for value in built.manifest.inputs]
    with bench.load(built) as model:
        found = model.run(dict(zip(names, map(in_python, inputs), strict=True)))
    for expected, value in zip(outputs, built.manifest.outputs, strict=True):
        assert_close(in_python(expected), found[value.name], case)
