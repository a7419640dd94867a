"""Artifacts whose payload a wrong pass has spoiled: the node, and the part that fails alone."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantized_images import images, quantized
from refusals import refusal
from replaced_payload import with_manifest, with_model
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.cli import terminal
from aotc.report.sheets.variants import parity_view
from aotc.spec.reports import ParityDebugReport
from aotc.tools.debug_parity import debug_parity
from aotc.tools.smallest_failing import fails


def chain(length: int = 6, big: float = 1.0) -> onnx.ModelProto:
    """`x` through products and an activation each; the last one grows by `big`."""
    random = np.random.default_rng(7)
    nodes, weights = [], []
    given = "x"
    for index in range(length):
        weight = np.linalg.qr(random.standard_normal((8, 8)))[0].astype(np.float32)
        if index == length - 1:
            weight *= big
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        made = "y" if index == length - 1 else f"e{index}"
        nodes += [
            helper.make_node("MatMul", [given, f"w{index}"], [f"m{index}"], name=f"mul{index}"),
            helper.make_node("Elu", [f"m{index}"], [made], name=f"elu{index}"),
        ]
        given = f"e{index}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    """The chain, as it is."""
    return bench.build(chain(), "debugged-chain", dims={"batch": "1..8"})


def scaled(factor: float, *names: str) -> Callable[[onnx.ModelProto], None]:
    """A pass that multiplies weights, which it must not."""

    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.name in names:
                tensor.CopyFrom(
                    numpy_helper.from_array(numpy_helper.to_array(tensor) * factor, tensor.name)
                )

    return change


def reproduced(folder: Path) -> subprocess.CompletedProcess[str]:
    """The written script, run elsewhere by an interpreter that does not know aotc."""
    return subprocess.run(
        [sys.executable, "-I", str(folder / "reproduce.py")],
        cwd="/",
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def assert_ready_to_report(folder: Path, report: ParityDebugReport) -> None:
    """It fails elsewhere too, and says nothing of this machine."""
    assert report.submodel is not None
    assert {path.name for path in folder.iterdir()} == set(report.submodel.files)
    done = reproduced(folder)
    assert done.returncode == 1, done
    for path in folder.iterdir():
        data = path.read_bytes()
        for private in (str(folder.parent), str(Path.home()) + "/", socket.gethostname()):
            assert private.encode() not in data, path
    expected = np.load(folder / "expected.npz")[report.submodel.value]
    found = np.load(folder / "found.npz")[report.submodel.value]
    assert expected.shape == found.shape
    # Where both are the reference, the script is content.
    (folder / "submodel.onnx").write_bytes((folder / "reference.onnx").read_bytes())
    assert reproduced(folder).returncode == 0


def test_an_artifact_as_it_was_built_is_within_tolerance(built: Built, tmp_path: Path) -> None:
    report = debug_parity(built.path, built.source, output=tmp_path / "nothing")
    assert (report.failed, report.submodel, report.findings) == ((), None, ())
    assert report.errors.first == ""
    assert all(error.passed for error in (*report.outputs, *report.errors.nodes))
    assert {error.node for error in report.errors.nodes} >= {"mul3", "elu3", "elu5"}
    assert not (tmp_path / "nothing").exists()


def test_one_wrong_node_is_found_and_written(built: Built, tmp_path: Path) -> None:
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.1, "w3"))
    report = debug_parity(spoiled, built.source, output=tmp_path / "failing")
    assert [refusal.code for refusal in report.failed] == ["AOTC-N037"]
    assert (report.errors.first, report.errors.worst) == ("mul3", "mul3")
    found = report.submodel
    assert found is not None
    assert (found.nodes, found.ops, found.inputs) == (("mul3",), ("MatMul",), ("e2",))
    assert not found.accumulated
    assert_ready_to_report(tmp_path / "failing", report)


def gated_as(target: Path, source: Path, **gate: object) -> Path:
    """The artifact, as if its profile had stated this gate of `y`."""

    def state(document: dict[str, Any]) -> None:
        for variant in document["variants"]:
            variant["parity"]["gates"] = {"y": gate}

    return with_manifest(source, target, state)


def test_a_gate_in_place_of_the_tolerance_is_what_an_output_is_judged_by(
    built: Built, tmp_path: Path
) -> None:
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.1, "w3"))
    loose = gated_as(tmp_path / "loose.aotc", spoiled, replaces_tolerance=True, max_abs=100)
    report = debug_parity(loose, built.source)
    assert (report.failed, report.submodel) == ((), None)
    assert all(error.passed for error in report.outputs)
    assert report.gates["y"].max_abs == 100
    shown = io.StringIO()
    terminal.show_sheet(parity_view(report), file=shown)
    assert "max_abs 100, instead of the tolerance" in shown.getvalue()
    strict = gated_as(tmp_path / "strict.aotc", spoiled, replaces_tolerance=True, max_abs=1e-6)
    (refusal,) = debug_parity(strict, built.source).failed
    assert refusal.what == "output 'y' breaches its gate"
    assert refusal.expected == "max absolute error <= 1e-06"


def test_a_gate_that_is_stricter_than_the_tolerance(built: Built, tmp_path: Path) -> None:
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.0003, "w3"))
    assert debug_parity(spoiled, built.source).failed == ()
    strict = gated_as(tmp_path / "strict.aotc", spoiled, min_sqnr_db=100)
    report = debug_parity(strict, built.source)
    (refusal,) = report.failed
    assert (refusal.code, refusal.what) == ("AOTC-N037", "output 'y' breaches its gate")
    assert refusal.expected == (
        "error <= 1e-05 + 0.001 * max|reference|, cosine >= 0.9999, "
        "rms error of every slice <= 0.01 * its scale, SQNR >= 100 dB"
    )
    assert refusal.found.startswith("SQNR >= 100 dB: ")
    (found,) = debug_parity(
        gated_as(
            tmp_path / "both.aotc",
            with_model(built.path, tmp_path / "wrong.aotc", scaled(1.1, "w3")),
            min_sqnr_db=100,
        ),
        built.source,
    ).failed
    assert found.what == "output 'y' is out of tolerance"


def test_nodes_that_each_err_a_little_are_a_range(built: Built, tmp_path: Path) -> None:
    """Each product is within 0.001 of its own largest value; three of them are not."""
    weights = [f"w{index}" for index in range(6)]
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.0006, *weights))
    report = debug_parity(spoiled, built.source, output=tmp_path / "failing")
    assert [finding.code for finding in report.findings] == ["AOTC-N038"]
    found = report.submodel
    assert found is not None
    assert found.accumulated
    assert 2 <= len(found.nodes) < 12
    assert not found.error.passed
    assert_ready_to_report(tmp_path / "failing", report)


def test_a_fused_quantized_kernel_stands_for_its_nodes(bench: Workbench, tmp_path: Path) -> None:
    built = bench.build(images(), "debugged-images", dims={"batch": "1..4"})
    model = quantized(built.source, tmp_path / "quantized.onnx")
    scaled(2, "w2_scale")(model)
    coarse = {"atol": 1e-2, "rtol": 0.1, "min_cosine": 0.99}

    def parity(document: dict[str, Any]) -> None:
        document["variants"][0]["parity"].update(tolerance=coarse, arithmetic="quantized")

    whole = with_model(built.path, tmp_path / "whole.aotc", lambda _: model)
    spoiled = with_manifest(whole, tmp_path / "spoiled.aotc", parity)
    report = debug_parity(spoiled, built.source, output=tmp_path / "failing", variant="portable")
    assert (report.errors.first, report.errors.worst) == ("conv2", "conv2")
    found = report.submodel
    assert found is not None
    assert found.nodes == ("conv2",)
    assert any("Conv" in op for op in found.ops)
    assert found.inputs == ("r1",)
    assert_ready_to_report(tmp_path / "failing", report)


def rounded_to_half(model: onnx.ModelProto) -> None:
    """A pass that rounds what products make to float16, as kernels for that type do.

    The CPU's provider computes nodes in float16 in float32, and leaves casts between them out.
    """
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        model.graph.node.append(node)
        if node.op_type != "MatMul":
            continue
        name = node.output[0]
        made = model.graph.node[-1]
        made.output[0] = f"{name}_exact"
        for source, target, kind in (
            (f"{name}_exact", f"{name}_half", TensorProto.FLOAT16),
            (f"{name}_half", name, TensorProto.FLOAT),
        ):
            model.graph.node.append(
                helper.make_node("Cast", [source], [target], name=f"cast_{target}", to=kind)
            )


def test_an_overflow_in_half_precision_on_the_users_inputs(
    bench: Workbench, tmp_path: Path
) -> None:
    """On the artifact's own fixtures nothing overflows."""
    built = bench.build(chain(big=3000.0), "debugged-half", dims={"batch": "1..8"})

    coarse: dict[str, Any] = {"status": "passed", "arithmetic": "float16"}
    coarse["tolerance"] = {"atol": 1e-3, "rtol": 2e-2, "min_cosine": 0.999}
    target = with_model(built.path, tmp_path / "half.aotc", rounded_to_half, parity=coarse)
    assert debug_parity(target, built.source).failed == ()
    np.savez(tmp_path / "big.npz", x=np.full((2, 8), 4000, np.float32))
    report = debug_parity(
        target, built.source, fixtures=tmp_path / "big.npz", output=tmp_path / "failing"
    )
    assert report.fixture == "big"
    assert report.errors.first == "mul5"
    assert report.submodel is not None
    assert report.submodel.nodes == ("mul5",)
    assert "infinite" in report.submodel.error.reason
    assert_ready_to_report(tmp_path / "failing", report)


def products() -> onnx.ModelProto:
    """A product of unsigned and signed integers, whose pairs leave 16 bits."""
    weight = np.full((64, 16), 127, np.int8)
    graph = helper.make_graph(
        [
            helper.make_node("MatMulInteger", ["x", "w"], ["sums"], name="product"),
            helper.make_node("Cast", ["sums"], ["y"], name="cast", to=TensorProto.FLOAT),
        ],
        "products",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_the_saturating_product_of_this_cpu_is_found(bench: Workbench, tmp_path: Path) -> None:
    import onnxruntime as ort

    session = ort.InferenceSession(
        products().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (answer,) = session.run(None, {"x": np.full((1, 64), 255, np.uint8)})
    if answer[0, 0] == 64 * 255 * 127:
        pytest.skip("this CPU's kernels add products of unsigned and signed integers exactly")
    built = bench.build(products(), "debugged-products", dims={"batch": "1..4"})
    np.savez(tmp_path / "full.npz", x=np.full((1, 64), 255, np.uint8))
    target = with_model(built.path, tmp_path / "products.aotc", lambda _: onnx.load(built.source))
    report = debug_parity(
        target, built.source, fixtures=tmp_path / "full.npz", output=tmp_path / "failing"
    )
    assert report.errors.first == "product"
    assert report.submodel is not None
    assert report.submodel.ops == ("MatMulInteger",)


def refused(code: str, *arguments: Any, **options: Any) -> AotcError:
    """The error of a call, which must have `code`."""
    error = refusal(debug_parity, *arguments, **options)
    assert error.code == code, error
    return error


def test_another_model_is_refused(built: Built, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(chain(3).SerializeToString())
    error = refused("AOTC-I083", built.path, other)
    assert built.manifest.source.sha256 in error.expected
    refused("AOTC-I001", built.path, tmp_path / "none.onnx")


def test_without_inputs_some_are_made(built: Built, tmp_path: Path) -> None:
    bare = with_manifest(
        built.path, tmp_path / "bare.aotc", lambda manifest: manifest.update(fixtures=[])
    )
    report = debug_parity(bare, built.source)
    assert (report.failed, report.compared) == ((), ("made",))
    assert [finding.code for finding in report.findings] == ["AOTC-I114"]

    def as_text(manifest: Any) -> None:
        manifest.update(fixtures=[])
        manifest["inputs"][0].update(dtype="string")

    text = with_manifest(built.path, tmp_path / "text.aotc", as_text)
    assert "none can be made" in refused("AOTC-I084", text, built.source).what
    np.savez(tmp_path / "one.npz", x=np.ones((1, 8), np.float32))
    assert debug_parity(bare, built.source, fixtures=tmp_path / "one.npz").failed == ()
    np.savez(tmp_path / "large.npz", x=np.ones((100, 8), np.float32))
    refused("AOTC-I085", bare, built.source, fixtures=tmp_path / "large.npz")


def test_a_variant_that_does_not_run_here_is_refused(built: Built, tmp_path: Path) -> None:
    def needs_more(manifest: dict[str, Any]) -> None:
        manifest["variants"][0]["requirements"]["isa"] = ["a_feature_of_no_cpu"]

    foreign = with_manifest(built.path, tmp_path / "foreign.aotc", needs_more)
    refused("AOTC-C009", foreign, built.source, variant="portable")
    refused("AOTC-I027", foreign, built.source, variant="none")


def test_a_damaged_file_is_refused(built: Built, tmp_path: Path) -> None:
    damaged = with_manifest(built.path, tmp_path / "damaged.aotc", lambda manifest: None)
    (variant,) = (v for v in built.manifest.variants if v.name == "portable")
    path = damaged / "payload" / variant.model
    path.write_bytes(path.read_bytes() + b"\0")
    assert refused("AOTC-G005", damaged, built.source).where.endswith(variant.model)


def test_a_folder_that_exists_stays(built: Built, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("kept")
    refused("AOTC-I017", built.path, built.source, output=tmp_path / "mine")
    assert (tmp_path / "mine" / "notes").read_text() == "kept"


def test_the_report_is_json_that_names_the_kernel(built: Built, tmp_path: Path) -> None:
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.1, "w1"))
    debug_parity(spoiled, built.source, output=tmp_path / "failing")
    stated = json.loads((tmp_path / "failing" / "report.json").read_text())
    assert stated["submodel_nodes"] == [{"name": "mul1", "op": "MatMul"}]
    assert stated["tolerance"]["rtol"] == 1e-3
    assert stated["versions"]["onnxruntime"]


def test_the_report_states_the_session_of_the_part(built: Built, tmp_path: Path) -> None:
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.1, "w1"))
    debug_parity(spoiled, built.source, output=tmp_path / "failing")
    stated = json.loads((tmp_path / "failing" / "report.json").read_text())["session"]
    assert stated["providers"] == {"CPUExecutionProvider": {}}
    assert stated["optimization"] == "ORT_DISABLE_ALL"
    assert stated["threads"] >= 1


def test_a_report_whose_script_is_content_is_none(built: Built, tmp_path: Path) -> None:
    spoiled = with_model(built.path, tmp_path / "spoiled.aotc", scaled(1.1, "w1"))
    debug_parity(spoiled, built.source, output=tmp_path / "failing")
    assert fails(tmp_path / "failing")
    (tmp_path / "failing" / "submodel.onnx").write_bytes(
        (tmp_path / "failing" / "reference.onnx").read_bytes()
    )
    assert not fails(tmp_path / "failing")
