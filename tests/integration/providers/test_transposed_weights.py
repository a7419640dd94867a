"""Weights of float32 products lie along K where a variant computes in TF32, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import openvino_models as small
import pytest
from made_profiles import profile_with
from onnx import numpy_helper
from workbench import Built, Workbench

from aotc.providers.cuda import CudaBackend
from aotc.spec.profile import Profile

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
NAME = "transpose-weights"


def profile(base: str = "server-cuda", **fields: Any) -> Profile:
    """The profile with other fields, for few rows."""
    return profile_with(base, **{"dims": {"batch": "1..4"}, **fields})


@pytest.fixture(scope="module")
def tf32(bench: Workbench) -> Built:
    return bench.build(small.plain(), "transposed", profile=profile(precision="tf32"))


def passes_of(built: Built) -> list[str]:
    (variant,) = built.manifest.variants
    return [record.name for record in variant.passes]


def weights_of(built: Built) -> list[np.ndarray[Any, Any]]:
    """The matrices, with the values that lie in the payload."""
    (variant,) = built.manifest.variants
    model = onnx.load(built.payload / variant.model, load_external_data=False)
    files = {path.name: path.parent for path in built.payload.rglob("*.bin")}
    found = []
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            (place,) = (item.value for item in tensor.external_data if item.key == "location")
            name = place.rsplit("/", 1)[-1]
            for item in tensor.external_data:
                if item.key == "location":
                    item.value = name
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(files[name]))
        found.append(numpy_helper.to_array(tensor))
    return [array for array in found if array.ndim == 2]


def test_the_manifest_counts_the_products(tf32: Built) -> None:
    (variant,) = tf32.manifest.variants
    assert [dict(item.matched) for item in variant.passes if item.name == NAME] == [{"products": 2}]


def original() -> list[np.ndarray[Any, Any]]:
    return [numpy_helper.to_array(tensor) for tensor in small.plain().graph.initializer]


def are(found: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]]) -> bool:
    """Whether they are the same, in any order."""
    return sorted(array.tobytes() for array in found) == sorted(
        np.ascontiguousarray(array).tobytes() for array in expected
    )


def test_a_tf32_variant_on_cuda_records_the_pass(tf32: Built) -> None:
    names = passes_of(tf32)
    assert names.count(NAME) == 1
    assert names.index(NAME) > names.index("onnxruntime-optimizer")
    assert [node.op_type for node in tf32.nodes()] == ["FusedMatMul", "Tanh"] * 2
    assert are(weights_of(tf32), [array.T for array in original()])
    (variant,) = tf32.manifest.variants
    assert variant.placement.share == {"CUDAExecutionProvider": 1.0}


def test_the_changed_graph_was_compared_with_the_original(tf32: Built) -> None:
    (evidence,) = tf32.report.variants
    errors = [error for one in evidence.unpartitioned for error in one.outputs]
    assert errors
    assert all(error.passed for error in errors)


def test_two_builds_give_the_same_artifact(bench: Workbench, tf32: Built) -> None:
    again = bench.build(
        tf32.source, "transposed-again", profile=profile(precision="tf32"), cache=False
    )
    assert again.report.artifact_id == tf32.report.artifact_id


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "keep"},
        {"precision": "float16"},
        {"precision": "tf32", "cuda": {"fusion": "none"}},
        {"base": "edge"},
    ],
    ids=["keep", "half", "unfused", "cpu"],
)
def test_no_other_variant_is_changed(
    bench: Workbench, fields: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    built = bench.build(
        small.plain(), f"as-it-is-{request.node.callspec.id}", profile=profile(**fields)
    )
    assert NAME not in passes_of(built)
    if fields.get("precision") != "float16":
        assert are(weights_of(built), original())
