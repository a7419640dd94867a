"""Quantized models: a variant with the same answers on every CPU, and a faster one for VNNI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from integer_models import COLUMNS, PLAIN_ISA, WIDTH, activations_product, dynamic, static
from onnx import helper
from repository import ROOT
from workbench import Built, Workbench, plain_answer, plain_session

from aotc import load
from aotc.base.errors import AotcError
from aotc.graph.passes.same_sign_weights import exact_feature, saturating_operands
from aotc.host.probe import probe
from aotc.spec.profile import FixtureSpec, VariantSpec
from aotc.spec.profile_files import load_profile, load_target
from aotc.trust.compatibility import judge

# How a CPU with these features is emulated here.
PLAIN_CPU = ("qemu-x86_64", "-cpu", "EPYC-Milan")
needs_exact_cpu = pytest.mark.skipif(
    not exact_feature(probe(gpus=False).isa), reason="this CPU has no VNNI"
)
needs_emulator = pytest.mark.skipif(
    shutil.which(PLAIN_CPU[0]) is None,
    reason="needs qemu-x86_64 (qemu-user) to run as a CPU without VNNI",
)


MODELS = {"dynamic": dynamic, "static": static}


@pytest.fixture(scope="module", params=list(MODELS))
def built(request: pytest.FixtureRequest, bench: Workbench) -> Built:
    return bench.build(MODELS[request.param](), request.param)


def graph_of(built: Built, variant: str) -> onnx.ModelProto:
    (chosen,) = (
        built_variant for built_variant in built.manifest.variants if built_variant.name == variant
    )
    model = onnx.load(built.payload / chosen.model, load_external_data=False)
    if chosen.weights is not None:
        folder = built.payload / chosen.weights
        onnx.load_external_data_for_model(model, str(folder))
    return model


def test_nothing_of_the_portable_variant_hangs_on_the_cpu(built: Built) -> None:
    assert not list(saturating_operands(graph_of(built, "portable")))
    portable = built.manifest.variants[0]
    assert (portable.name, portable.component) == ("portable", "model")
    assert portable.requirements.isa == ()
    assert "same-sign-weights" in [record.name for record in portable.passes]
    # On a CPU without the feature, the reference has a finding of its own.
    (text,) = (
        finding.what
        for finding in built.manifest.findings
        if finding.code == "AOTC-O008" and finding.where == "variant portable"
    )
    assert text.startswith("the weights of 1 integer product are written in the sign")


@needs_exact_cpu
def test_the_quicker_variant_requires_the_feature(built: Built) -> None:
    _, quick = built.manifest.variants
    assert list(saturating_operands(graph_of(built, "portable-vnni")))
    assert (quick.name, quick.spec, quick.component) == (
        "portable-vnni",
        "portable-vnni",
        "model.vnni",
    )
    assert quick.requirements.isa == (exact_feature(probe(gpus=False).isa),)
    assert not quick.requirements.isa_exact
    assert quick.parity.status == "passed"


@needs_exact_cpu
def test_both_answer_alike_to_the_last_bit(built: Built, bench: Workbench) -> None:
    inputs = built.inputs({"n": 5})
    with bench.load(built, "portable") as one, bench.load(built, "portable-vnni") as other:
        assert np.array_equal(one.run(inputs)["y"], other.run(inputs)["y"])


@needs_exact_cpu
def test_a_host_with_the_feature_takes_the_quicker_one(built: Built, bench: Workbench) -> None:
    with bench.load(built) as loaded:
        assert loaded.report.variant == "portable-vnni"
        assert loaded.report.verdict == "optimal"


@needs_exact_cpu
def test_verify_reports_a_host_without_it(built: Built) -> None:
    host = replace(probe(gpus=False), isa=tuple(PLAIN_ISA.split()))
    judgement = judge(built.manifest, host)
    # A build on such a host gives the same.
    assert (judgement.best, judgement.verdict) == ("portable", "optimal")
    portable, quick = judgement.variants
    assert portable.runs
    assert [reason.code for reason in quick.reasons] == ["AOTC-C004"]
    assert "vnni" in quick.reasons[0].found
    assert [finding.code for finding in judgement.findings] == ["AOTC-C014"]
    assert "portable-vnni (" in judgement.findings[0].what


PROGRAM = """
import sys
import aotc
from aotc.base.errors import AotcError
artifact, key, store = sys.argv[1:]
with aotc.load(artifact, key=key, store=store) as model:
    print(model.report.variant, model.report.fixtures)
try:
    aotc.load(artifact, key=key, store=store, variant="portable-vnni")
except AotcError as error:
    print(error.code, *(each.code for each in error.also))
"""


def on_a_plain_cpu(arguments: list[str], timeout: int = 600) -> str:
    """The output of a program for which ONNX Runtime and aotc's probe find AVX2 and no VNNI."""
    done = subprocess.run(
        [*PLAIN_CPU, sys.executable, *arguments],
        env={**os.environ, "AOTC_HOST_ISA": PLAIN_ISA, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_emulator
@needs_exact_cpu
def test_a_cpu_without_it_gives_the_golden_answers(built: Built, bench: Workbench) -> None:
    arguments = ["-c", PROGRAM, str(built.path), str(bench.public), str(bench.folder / "plain")]
    lines = on_a_plain_cpu(arguments).splitlines()
    assert lines == ["portable 2", "AOTC-C009 AOTC-C004"]


def test_a_build_host_without_it_makes_only_the_portable_variant(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_HOST_ISA", PLAIN_ISA)
    probe.cache_clear()
    try:
        built = bench.build(dynamic(), "elsewhere", profile="server-cpu")
    finally:
        monkeypatch.undo()
        probe.cache_clear()
    assert [variant.name for variant in built.manifest.variants] == ["portable", "native"]
    # What runs on such CPUs is exact there, too, above all the reference.
    assert all(
        not list(saturating_operands(graph_of(built, name))) for name in ("native", "portable")
    )
    texts = [f"{f.where}: {f.what}" for f in built.manifest.findings if f.code == "AOTC-O008"]
    assert [line.partition(":")[0] for line in texts] == [
        "reference",
        "variant portable",
        "variant native",
    ]


def test_weights_of_seven_bits_need_no_second_variant(bench: Workbench) -> None:
    built = bench.build(dynamic(largest=63), "seven")
    (portable,) = built.manifest.variants
    assert portable.name == "portable"
    assert "AOTC-O008" not in built.codes()
    # The weights are unchanged, and stored once.
    assert (built.payload / portable.model).stat().st_size < WIDTH * COLUMNS


@needs_exact_cpu
def test_buckets_have_their_quicker_forms(bench: Workbench) -> None:
    profile = replace(
        load_profile("edge"),
        dims={"n": json_range({"buckets": [1, 4], "max": 8, "outside": ["pad", "route"]})},
    )
    built = bench.build(dynamic(), "bucketed", profile=profile)
    assert [(variant.name, variant.component) for variant in built.manifest.variants] == [
        ("portable", "model"),
        ("portable.n1", "model.n1"),
        ("portable.n4", "model.n4"),
        ("portable-vnni", "model.vnni"),
        ("portable-vnni.n1", "model.n1.vnni"),
        ("portable-vnni.n4", "model.n4.vnni"),
    ]
    with bench.load(built) as loaded:
        assert loaded.report.variant == "portable-vnni"
        inputs = built.inputs({"n": 3})
        assert loaded.route(inputs).padded_to == {"n": 4}


def json_range(stated: Any) -> Any:
    from aotc.spec.shapes import DimRange

    return DimRange.from_json(json.loads(json.dumps(stated)))


@needs_exact_cpu
def test_every_variant_is_a_component_of_its_own(bench: Workbench) -> None:
    variants = (VariantSpec(name="portable"), VariantSpec(name="vnni", threads=1))
    built = bench.build(
        dynamic(), "named", profile=replace(load_profile("edge"), variants=variants)
    )
    components = [variant.component for variant in built.manifest.variants]
    assert len(set(components)) == len(components) == 4


def test_a_target_that_this_host_cannot_prove_is_reported(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_HOST_ISA", PLAIN_ISA)
    probe.cache_clear()
    try:
        built = bench.build(dynamic(), "for-another", target="linux-x86-64-avx512")
    finally:
        monkeypatch.undo()
        probe.cache_clear()
    assert [variant.name for variant in built.manifest.variants] == ["portable"]
    wanted = [f.what for f in built.manifest.findings if f.code == "AOTC-O009"]
    vnni = "avx512_vnni" in (load_target("linux-x86-64-avx512").isa or ())
    assert [reason.endswith("cannot prove it") for reason in wanted] == [True] * vnni


@needs_exact_cpu
def test_too_many_variants_leave_the_quicker_ones_out(bench: Workbench) -> None:
    built = bench.build(dynamic(), "narrow", profile=replace(load_profile("edge"), max_variants=1))
    assert [variant.name for variant in built.manifest.variants] == ["portable"]
    assert "portable-vnni: with them there were more than max_variants (1)" in built.finding(
        "AOTC-O009"
    )


@needs_exact_cpu
def test_a_product_of_two_inputs_requires_the_feature(bench: Workbench) -> None:
    built = bench.build(activations_product(), "inputs")
    (portable,) = built.manifest.variants
    assert portable.requirements.isa == (exact_feature(probe(gpus=False).isa),)
    assert "1 integer product may saturate" in built.finding("AOTC-N010")
    # A user who opens the package without checking the CPU does not get this component.
    assert portable.component != "model"
    assert portable.component.startswith("model.")
    assert "AOTC-O003" not in built.codes()
    with pytest.raises(AotcError) as caught:
        bench.build(activations_product(), "foreign", target="linux-x86-64")
    assert caught.value.code == "AOTC-N002"
    assert "the target lacks" in caught.value.what


def test_a_product_of_two_inputs_holds_for_cpus_like_this_one(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_HOST_ISA", PLAIN_ISA)
    probe.cache_clear()
    try:
        built = bench.build(activations_product(), "inputs-elsewhere")
    finally:
        monkeypatch.undo()
        probe.cache_clear()
    (portable,) = built.manifest.variants
    assert portable.requirements.isa_exact
    assert set(PLAIN_ISA.split()) <= set(portable.requirements.isa)


def test_levels_that_are_stated_stay(bench: Workbench) -> None:
    spec = VariantSpec(name="portable", optimization="extended")
    profile = replace(load_profile("edge"), variants=(spec,), fixtures=FixtureSpec(max_count=1))
    built = bench.build(static(), "stated", profile=profile)
    assert not list(saturating_operands(graph_of(built, "portable")))
    assert built.manifest.variants[0].session.optimization == "extended"


# Complete builds on a CPU that saturates, including the reference.


def in_a_function() -> onnx.ModelProto:
    """The product inside of a function of the model."""
    source = dynamic()
    inner = [node for node in source.graph.node if node.op_type != "Mul"]
    function = helper.make_function(
        "mine", "Product", ["x", "w"], ["f", "s"], inner, [helper.make_opsetid("", 17)]
    )
    del source.graph.node[:3]
    source.graph.node.insert(0, helper.make_node("Product", ["x", "w"], ["f", "s"], domain="mine"))
    source.functions.append(function)
    source.opset_import.append(helper.make_opsetid("mine", 1))
    return source


def with_old_ir_version() -> onnx.ModelProto:
    """Weights are inputs of the graph too, as IR version 3 asks."""
    source = dynamic()
    source.ir_version = 3
    source.opset_import[0].version = 11
    for tensor in source.graph.initializer:
        source.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
    return source


def with_other_encoding() -> bytes:
    """The weights' name is not UTF-8."""
    source = dynamic()
    source.graph.initializer[0].name = "wght"
    source.graph.node[1].input[1] = "wght"
    return source.SerializeToString().replace(b"wght", b"w\xbd\xdat")


BUILDING = """
import sys
from pathlib import Path
import aotc
folder, key = Path(sys.argv[1]), sys.argv[2]
for path in sorted(folder.glob("*.onnx")):
    output = folder / f"{path.stem}.aotc"
    aotc.build(path, output=output, key=key, cache=False, profile="server-cpu")
    print(path.stem)
"""


@pytest.mark.slow
@needs_emulator
@needs_exact_cpu
def test_what_a_cpu_without_it_builds_holds_here(bench: Workbench, tmp_path: Path) -> None:
    models = {
        "function": in_a_function().SerializeToString(),
        "old": with_old_ir_version().SerializeToString(),
        "plain": dynamic().SerializeToString(),
        "static": static().SerializeToString(),
        "text": with_other_encoding(),
    }
    for name, data in models.items():
        (tmp_path / f"{name}.onnx").write_bytes(data)
    venv = tmp_path / "emulated"
    home = Path(sys.executable).parents[1]
    subprocess.run(["sh", "ci/emulate.sh", home, "Haswell", venv], check=True, cwd=ROOT)
    process = subprocess.run(
        [venv / "bin" / "python", "-c", BUILDING, str(tmp_path), str(bench.private)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == list(models)
    for name in models:
        store = tmp_path / "store"
        with load(tmp_path / f"{name}.aotc", key=bench.public, store=store) as loaded:
            assert loaded.report.variant == "portable"
            codes = [finding.code for finding in loaded.manifest.findings]
            assert "AOTC-O003" not in codes
            assert "AOTC-N010" not in codes
            inputs = {"x": np.random.default_rng(7).standard_normal((5, WIDTH)).astype(np.float32)}
            expected = plain_answer(plain_session(tmp_path / f"{name}.onnx"), inputs)
            found = loaded.run(inputs)
            scale = np.abs(expected["y"]).max()
            assert np.abs(found["y"] - expected["y"]).max() <= 0.01 * scale, name
