"""Builds for CUDA on a host without a GPU: the graph is fused, and others are not."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx
import pytest
from workbench import Built, Workbench

from aotc.graph.view import every_node
from aotc.host.probe import probe
from aotc.pipeline.context import BuildContext
from aotc.pipeline.reuse import artifact_key_parts
from aotc.pipeline.tune import candidate_spec, candidates
from aotc.spec.profile import Profile, TuneSpec, VariantSpec
from aotc.spec.profile_files import load_profile
from aotc.spec.providers import CudaOptions
from aotc.trust.provenance import libraries

MODEL = Path("tests/data/exports/bert.onnx").resolve()
RANGES: dict[str, Any] = {"batch": "1..8", "sequence": "1..64"}


def profile(fusion: str = "auto", **fields: Any) -> Profile:
    cuda = CudaOptions(fusion=fusion)  # type: ignore[arg-type]
    return replace(
        load_profile("server-cuda"),
        cuda=cuda,
        budgets=type(load_profile("edge").budgets)(),
        **fields,
    )


def graph(built: Built, index: int = 0) -> onnx.ModelProto:
    variant = built.manifest.variants[index]
    return onnx.load(built.payload / variant.model, load_external_data=False)


def stored_numbers(model: onnx.ModelProto) -> int:
    return sum(math.prod(tensor.dims) for tensor in model.graph.initializer)


@pytest.fixture(scope="module")
def fused(bench: Workbench) -> Built:
    return bench.build(MODEL, "fused", profile=profile(), dims=RANGES)


@pytest.fixture(scope="module")
def unfused(bench: Workbench) -> Built:
    return bench.build(MODEL, "unfused", profile=profile("none"), dims=RANGES)


def test_passes_say_what_they_matched(fused: Built) -> None:
    matched = {item.name: dict(item.matched) for item in fused.manifest.variants[0].passes}
    assert matched["fuse-attention"] == {"decomposed": 2}
    assert matched["pack-attention"] == {"three products": 2}
    assert matched["fuse-gelu"] == {"erf": 2, "bias": 2}
    assert matched["fuse-normalization"] == {"skip layer": 4}


def test_the_libraries_that_fuse_are_named_where_they_did(fused: Built, unfused: Built) -> None:
    names = ("onnxscript", "onnx-ir")
    toolchain, without = fused.manifest.toolchain, unfused.manifest.toolchain
    assert (toolchain.onnxscript, toolchain.onnx_ir) == tuple(map(metadata.version, names))
    assert (without.onnxscript, without.onnx_ir) == ("", "")
    assert "onnxscript" not in (unfused.payload / "aotc.json").read_text()
    assert {library.name.replace("_", "-") for library in libraries(fused.manifest)} >= {*names}
    assert "onnxscript" not in {library.name for library in libraries(unfused.manifest)}


def test_the_build_cache_distinguishes_their_versions() -> None:
    host = probe()
    context = BuildContext(profile=profile(), target=host, host=host)
    parts = artifact_key_parts("model", "name", context)
    assert parts is not None
    assert parts["packages"]["onnxscript"] == metadata.version("onnxscript")
    assert parts["packages"]["onnx-ir"] == metadata.version("onnx-ir")


def test_weights_are_stored_once(fused: Built, unfused: Built) -> None:
    """Joined weights of queries, keys and values replace the single ones."""
    assert "Concat" not in {
        node.op_type for node in graph(fused).graph.node if "weight" in "".join(node.input)
    }
    assert stored_numbers(graph(fused)) <= 1.05 * stored_numbers(graph(unfused))


def test_a_profile_may_say_no(unfused: Built) -> None:
    assert not any(item.matched for item in unfused.manifest.variants[0].passes)
    assert not any(node.domain == "com.microsoft" for node in every_node(graph(unfused)))


def test_two_builds_give_the_same_bytes(bench: Workbench, fused: Built) -> None:
    again = bench.build(MODEL, "again", profile=profile(), dims=RANGES)
    assert [item.sha256 for item in again.manifest.files] == [
        item.sha256 for item in fused.manifest.files
    ]


def test_variants_on_the_cpu_are_not_fused(bench: Workbench) -> None:
    variants = (VariantSpec(name="gpu"), VariantSpec(name="cpu", providers=("cpu",)))
    built = bench.build(MODEL, "both", profile=profile(variants=variants), dims=RANGES)
    matched = {
        variant.name: any(item.matched for item in variant.passes)
        for variant in built.manifest.variants
    }
    assert matched == {"gpu": True, "cpu": False}


def test_tuning_tries_fusion_and_layout_on_cuda_alone() -> None:
    tune = TuneSpec(fusion=("none",), layout=("nhwc", "nchw"))
    wanted = profile(tune=tune)
    found = candidates(wanted)
    on_cuda = [(row.fusion, row.layout) for row in found if row.providers[0] == "cuda"]
    assert on_cuda == [
        (fusion, layout) for fusion in ("auto", "none") for layout in ("auto", "nhwc", "nchw")
    ]
    assert len([row for row in found if row.providers == ("cpu",)]) == 1
    last = next(row for row in found if (row.fusion, row.layout) == ("none", "nchw"))
    assert candidate_spec(last, wanted).cuda == CudaOptions(fusion="none", layout="nchw")
    assert candidate_spec(found[0], wanted).cuda is None
