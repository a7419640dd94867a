"""Variants by bucket in real builds: names, graphs, weights, and answers."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from bucketed_models import (
    FLOAT,
    WIDTH,
    build_bucketed,
    by_name,
    encoder,
    model_of,
    profile,
    random_values,
    refused,
    rows,
    seq,
    session_of,
    words,
)
from model_parts import node
from onnx import NodeProto, helper
from repository import SUPPORT
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session

from aotc.spec.shapes import Crop, Dim, PadSpec

PACKAGE_API = SUPPORT / "ort_package_api.py"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench.at(tmp_path_factory.mktemp("variants"))


# -- one artifact with eight buckets, and one with only the dynamic graph

BUCKETS = (8, 16, 24, 32, 40, 48, 56, 64)


@pytest.fixture(scope="module")
def eight(shelf: Workbench) -> Built:
    spec = seq(f"buckets: {list(BUCKETS)}, outside: pad", batch="1..4")
    return shelf.build(encoder(), "eight", profile=profile(shelf, spec))


@pytest.fixture(scope="module")
def dynamic(shelf: Workbench) -> Built:
    return shelf.build(encoder(), "dynamic", dims={"batch": "1..4", "seq": "1..64"})


def test_each_bucket_is_a_variant_and_a_component(eight: Built) -> None:
    for size, (name, variant) in zip(BUCKETS, by_name(eight).items(), strict=True):
        assert name == f"portable.seq{size}"
        assert (variant.spec, variant.buckets) == ("portable", {"seq": size})
        assert variant.component == f"model.seq{size}"
        assert variant.model == f"model.seq{size}/{name}/model.onnx"
        assert variant.domain is not None
        assert variant.domain.dims["seq"] == Dim(
            min=size, max=size, opt=size, origin="stated", tested=(size,)
        )
        assert (variant.domain.dims["batch"].min, variant.domain.dims["batch"].max) == (1, 4)


def test_the_domain_holds_all_buckets(eight: Built) -> None:
    dim = eight.manifest.domain.dims["seq"]
    assert (dim.min, dim.max, dim.buckets) == (8, 64, BUCKETS)
    assert (dim.outside, dim.pad_from, dim.origin) == (("pad",), 1, "stated")
    assert set(BUCKETS) <= set(dim.tested)
    assert [size for size in range(70) if dim.accepts(size)] == list(range(1, 65))


def test_graphs_have_the_bucket_written_in(eight: Built) -> None:
    for variant in eight.manifest.variants:
        graph = onnx.load(eight.payload / variant.model, load_external_data=False).graph
        shapes = [
            [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, graph.output[0])
        ]
        size = variant.buckets["seq"]
        assert shapes == [["batch", size], ["batch", size], ["batch", size, WIDTH]]


def test_weights_lie_in_one_file_for_all(eight: Built) -> None:
    (entry,) = (file for file in eight.manifest.files if file.role == "weights")
    assert Path(entry.path).name == "weights.bin"
    assert {variant.weights for variant in eight.manifest.variants} == {
        str(Path(entry.path).parent)
    }
    for variant in eight.manifest.variants:
        assert variant.files == (variant.model, entry.path)
        assert variant.memory.weights_bytes == eight.manifest.variants[0].memory.weights_bytes
    data = (eight.payload / entry.path).read_bytes()
    for tensor in encoder().graph.initializer:
        if len(tensor.raw_data) >= 1024:
            assert data.count(tensor.raw_data[:256]) == 1, tensor.name


def test_eight_variants_are_hardly_larger_than_one(eight: Built, dynamic: Built) -> None:
    assert eight.report.payload_bytes <= 1.05 * dynamic.report.payload_bytes


def test_every_bucket_is_compared_as_is_and_padded(eight: Built) -> None:
    for variant in eight.manifest.variants:
        size = variant.buckets["seq"]
        compared = [sizes["seq"] for sizes in variant.parity.shapes]
        assert variant.parity.status == "passed"
        assert size in compared
        # And the smallest of all, in case only this bucket is loaded.
        others = {length for length in compared if length != size}
        assert others <= {1, *range(size - 7, size)}
        assert 1 in others
        assert variant.parity.padded == sum(length != size for length in compared) > 0


def test_the_evidence_tells_what_was_padded_to_what(eight: Built) -> None:
    for variant, reported in zip(eight.manifest.variants, eight.report.variants, strict=True):
        padded = [comparison for comparison in reported.comparisons if comparison.padded_to]
        assert len(padded) == variant.parity.padded
        for comparison in padded:
            assert comparison.padded_to == {**comparison.sizes, "seq": variant.buckets["seq"]}


def test_the_manifest_tells_how_to_pad_and_crop(eight: Built) -> None:
    assert eight.manifest.padding is not None
    assert eight.manifest.padding.inputs == {"ids": PadSpec(), "mask": PadSpec()}
    assert eight.manifest.padding.crops == (Crop(output="vectors", axis=1, dims=("seq",)),)


@pytest.mark.parametrize("length", [1, 5, 8, 9, 64])
def test_a_padded_answer_is_the_unpadded_one(eight: Built, length: int) -> None:
    size = next(bucket for bucket in BUCKETS if bucket >= length)
    variant = by_name(eight)[f"portable.seq{size}"]
    expected = plain_answer(plain_session(eight.source), words(3, length, length))
    feeds = {
        name: np.pad(array, [(0, 0), (0, size - length)])
        for name, array in words(3, length, length).items()
    }
    found = plain_answer(session_of(eight, variant), feeds)
    found["vectors"] = found["vectors"][:, :length]
    assert variant.parity.tolerance is not None
    assert_agree(expected, found, variant.parity.tolerance)


def test_another_opens_every_component(eight: Built, tmp_path: Path) -> None:
    """ONNX Runtime's C API for model packages, in a separate process."""
    for size in (8, 64):
        np.savez(tmp_path / "inputs.npz", **words(2, size, size - 3))
        files = [str(tmp_path / name) for name in ("inputs.npz", "outputs.npz")]
        subprocess.run(
            [sys.executable, str(PACKAGE_API), str(eight.payload), f"model.seq{size}", *files],
            check=True,
            timeout=600,
            capture_output=True,
        )
        expected = plain_answer(plain_session(eight.source), words(2, size, size - 3))
        with np.load(tmp_path / "outputs.npz") as outputs:
            for name, array in expected.items():
                np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5)


# -- which variants are made


def test_routing_makes_a_dynamic_variant_too(bench: Workbench) -> None:
    built = build_bucketed(
        bench, encoder(1), seq("buckets: [8, 16], max: 64, outside: [pad, route]")
    )
    variants = by_name(built)
    assert {name: variant.component for name, variant in variants.items()} == {
        "portable": "model",
        "portable.seq8": "model.seq8",
        "portable.seq16": "model.seq16",
    }
    dynamic = variants["portable"]
    assert (dynamic.spec, dynamic.buckets) == ("portable", {})
    assert dynamic.domain is not None
    free = dynamic.domain.dims["seq"]
    assert (free.min, free.max, free.buckets, free.outside, free.pad_from) == (1, 64, (), (), None)
    assert dynamic.parity.padded == 0
    assert {1, 8, 16, 64} <= {sizes["seq"] for sizes in dynamic.parity.shapes}
    for size in (8, 16):
        assert variants[f"portable.seq{size}"].parity.padded > 0
        assert variants[f"portable.seq{size}"].files[1:] == dynamic.files[1:]
    dim = built.manifest.domain.dims["seq"]
    assert dim.text() == "8, 16, and 1..64 (padded from 1)"


def test_routing_without_padding_pads_nothing(bench: Workbench) -> None:
    built = build_bucketed(bench, rows("mean"), seq("buckets: [8], max: 16, outside: route"))
    assert list(by_name(built)) == ["portable", "portable.seq8"]
    assert built.manifest.padding is None
    assert [variant.parity.padded for variant in built.manifest.variants] == [0, 0]


def test_every_combination_of_buckets_is_a_variant(bench: Workbench) -> None:
    text = "dims: {batch: {buckets: [1, 4], outside: pad}, seq: {buckets: [8, 16], outside: pad}}"
    built = build_bucketed(bench, rows("each"), text)
    variants = by_name(built)
    wanted = [
        {"batch": batch, "seq": length} for batch, length in itertools.product((1, 4), (8, 16))
    ]
    assert [variant.buckets for variant in variants.values()] == wanted
    assert list(variants) == [f"portable.batch{w['batch']}-seq{w['seq']}" for w in wanted]
    for variant in variants.values():
        assert {
            name: size
            for name, size in variant.parity.shapes[0].items()
            if size > variant.buckets[name]
        } == {}
        assert variant.parity.padded > 0
    assert {
        tuple(sizes.values())
        for sizes in variants["portable.batch4-seq16"].parity.shapes
        if dict(sizes) != {"batch": 4, "seq": 16}
    } <= {(1, 1), *itertools.product((2, 3, 4), range(9, 17))}


def test_each_of_the_profiles_variants_has_all_buckets(bench: Workbench) -> None:
    text = "variants: [{name: portable}, {name: native, isa: host}]\n" + seq("buckets: [8, 16]")
    built = build_bucketed(bench, encoder(1), text)
    variants = by_name(built)
    assert [(v.spec, v.buckets["seq"]) for v in variants.values()] == [
        ("portable", 8),
        ("portable", 16),
        ("native", 8),
        ("native", 16),
    ]
    isa = variants["native.seq8"].component.split(".")[1]
    assert [variant.component for variant in variants.values()] == [
        "model.seq8",
        "model.seq16",
        f"model.{isa}.seq8",
        f"model.{isa}.seq16",
    ]
    assert variants["native.seq8"].requirements.isa_exact
    # Constants that both contain are stored once: the table, most of the bytes.
    stored = sum(entry.size for entry in built.manifest.files if entry.role == "weights")
    assert stored <= 1.2 * variants["portable.seq8"].memory.weights_bytes


def test_names_that_collide_are_reported(bench: Workbench) -> None:
    text = "variants: [{name: one}, {name: one.seq8}]\n"
    text += seq("buckets: [8], max: 16, outside: route")
    assert refused(bench, rows("each"), text).exit_status == 3


def test_too_many_combinations_are_refused(bench: Workbench) -> None:
    text = "max_variants: 5\ndims: {batch: {buckets: [1, 2]}, seq: {buckets: [8, 16, 24]}}"
    error = refused(bench, rows("each"), text)
    assert error.code == "AOTC-S017"
    assert "buckets make 6 variants, more than max_variants 5" in str(error)
    assert len(build_bucketed(bench, rows("each"), text.replace("5", "6")).manifest.variants) == 6


# -- static graphs


def test_nodes_that_compute_shapes_are_dropped(bench: Workbench) -> None:
    text = seq("buckets: [8, 16], max: 64, outside: [pad, route]")
    built = build_bucketed(bench, encoder(), text)
    variants = by_name(built)
    operators = {name: [node.op_type for node in built.nodes(name)] for name in variants}
    # Its batch is known, and its length is read of no shape.
    assert operators["portable"].count("Shape") == 0
    for name in ("portable.seq8", "portable.seq16"):
        assert (variants[name].shape_nodes, variants[name].shape_nodes_dropped) == (0, 8)
        assert not {"Shape", "Concat"} & set(operators[name])
        assert "fix-dims" in [record.name for record in variants[name].passes]


def test_nodes_that_compute_shapes_are_dropped_despite_a_free_batch(bench: Workbench) -> None:
    text = "dims: {batch: 1..4, seq: {buckets: [8, 16], max: 64, outside: [pad, route]}}"
    variants = by_name(build_bucketed(bench, encoder(), text))
    dynamic, static = variants["portable"], variants["portable.seq8"]
    assert dynamic.shape_nodes > static.shape_nodes
    assert static.shape_nodes + static.shape_nodes_dropped == 8
    assert static.shape_nodes_dropped > 0


def test_sizes_that_contradict_a_branch_are_left_out(bench: Workbench) -> None:
    """The branch for 40 words is never taken at 8, but with 8 as a constant it is refused."""

    def branch(inner: NodeProto) -> onnx.GraphProto:
        outputs = [helper.make_tensor_value_info(inner.output[0], FLOAT, None)]
        return helper.make_graph([inner], "body", [], outputs)

    model = model_of(
        [
            node("Shape", "x", "shape", start=1),
            node("Squeeze", "shape", "length"),
            node("Equal", "length forty", "known"),
            node(
                "If",
                "known",
                "y",
                then_branch=branch(node("MatMul", "x w", "product")),
                else_branch=branch(node("Neg", "x", "negative")),
            ),
        ],
        {"x": ["batch", "seq"]},
        {"y": None},
        {"forty": np.array(40), "w": random_values(40, 8)},
    )
    built = build_bucketed(bench, model, seq("buckets: [8, 16], outside: pad"))
    dropped_branches = [
        finding for finding in built.manifest.findings if finding.code == "AOTC-O004"
    ]
    assert [finding.where for finding in dropped_branches] == ["portable.seq8", "portable.seq16"]
    assert all("MatMul" in finding.what for finding in dropped_branches)
    for variant in built.manifest.variants:
        assert variant.parity.padded > 0
        feeds = {"x": np.ones((2, variant.buckets["seq"]), np.float32)}
        (answer,) = session_of(built, variant).run(None, feeds)
        np.testing.assert_array_equal(answer, -feeds["x"])
