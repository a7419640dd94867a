"""Artifacts are published only if the gate, in other processes than the build, accepts them.

Defects are planted in the staged artifact as a bug of a stage would cause them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench

import aotc
import aotc.pipeline.build
import aotc.runtime.rehearsal
from aotc.base.errors import AotcError
from aotc.pipeline.types import Artifact, ProvenModel

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8
SIZE = 64


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def product() -> onnx.ModelProto:
    """[batch, 64] times weights, large enough to be external data."""
    weights = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["y"], "product")],
        "product",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", SIZE])],
        [helper.make_tensor_value_info("y", FLOAT, ["batch", SIZE])],
        [numpy_helper.from_array(weights, "weights")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def add_training(model: onnx.ModelProto) -> None:
    """Training information, with the optimizer's state in a file that does not exist."""
    state = model.training_info.add().initialization.initializer.add()
    state.name, state.data_type, state.data_location = "momentum", FLOAT, TensorProto.EXTERNAL
    state.dims.append(SIZE)
    state.external_data.add(key="location", value="optimizer.bin")


def integers() -> onnx.ModelProto:
    """A product of integers with free sizes: at `inner` = 0 its kernel writes nothing."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"], "product")],
        "integers",
        [
            helper.make_tensor_value_info("a", UINT8, ["rows", "inner"]),
            helper.make_tensor_value_info("b", UINT8, ["inner", "columns"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["rows", "columns"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_accepted(bench: Workbench, built: Built) -> None:
    """The gate passes it, and a load runs its fixtures."""
    report = aotc.verify(built.path, key=bench.public)
    assert (report.verdict, report.refusals) == ("optimal", ())
    with bench.load(built) as model:
        assert model.report.fixtures == len(built.manifest.fixtures) > 0


# Two models whose artifacts were once refused by the gate.


def test_training_information_is_left_out_and_reported(bench: Workbench) -> None:
    model = product()
    add_training(model)
    size = model.training_info[0].ByteSize()
    built = bench.build(model, "trained")
    assert_accepted(bench, built)
    stated = f"training_info is left out: {size} bytes that only training reads"
    assert built.finding("AOTC-I040") == stated
    shipped = onnx.load(built.payload / "model/portable/model.onnx", load_external_data=False)
    assert not shipped.training_info
    plain = bench.build(product(), "plain")
    assert "AOTC-I040" not in plain.codes()


def test_a_size_whose_answer_no_kernel_writes_is_not_proven(bench: Workbench) -> None:
    built = bench.build(integers(), "integers")
    assert built.manifest.domain.dims["inner"].min == 1
    assert_accepted(bench, built)


def test_such_a_size_is_refused_if_requested(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(integers(), "integers", dims={"inner": "0..8"})
    assert caught.value.code == "AOTC-S005"
    assert caught.value.found == "ONNX Runtime answers with memory that it never wrote"


def test_a_size_of_zero_whose_answer_is_written_stays(bench: Workbench) -> None:
    """An empty sum is zero, and the kernel of a float product writes it."""
    model = product()
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"], "product")],
        "floats",
        [
            helper.make_tensor_value_info("a", FLOAT, ["rows", "inner"]),
            helper.make_tensor_value_info("b", FLOAT, ["inner", "columns"]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, ["rows", "columns"])],
    )
    model.graph.CopyFrom(graph)
    built = bench.build(model, "floats", dims={"inner": "0..64"})
    assert built.manifest.domain.dims["inner"].min == 0
    assert_accepted(bench, built)


# Defects that are planted.


def before_packaging(plant: Callable[[ProvenModel], None]) -> Callable[..., Artifact]:
    """`package`, with a defect in each variant's files, before they are listed and signed."""
    real = aotc.pipeline.build.package

    def planted(proven: Sequence[ProvenModel], *rest: Any) -> Artifact:
        for item in proven:
            plant(item)
        return real(proven, *rest)

    return planted


def after_packaging(plant: Callable[[Path], None]) -> Callable[..., Artifact]:
    """`package`, with a defect in the finished payload."""
    real = aotc.pipeline.build.package

    def planted(*arguments: Any) -> Artifact:
        artifact = real(*arguments)
        plant(artifact.folder / "payload")
        return artifact

    return planted


def refer_outside(variant: ProvenModel) -> None:
    path = variant.lowered.model
    model = onnx.load(path, load_external_data=False)
    add_training(model)
    path.write_bytes(model.SerializeToString())


def change_answers(variant: ProvenModel) -> None:
    analyzed = variant.lowered.analyzed
    for reference in analyzed.references:
        for path in reference.outputs.values():
            np.save(path, np.load(path) + 1)


def add_a_byte(payload: Path) -> None:
    (weights,) = payload.glob("shared_assets/*/weights.bin")
    with weights.open("ab") as file:
        file.write(b"\1")


def add_a_file(payload: Path) -> None:
    (payload / "notes.txt").write_text("left behind")


def spoil_the_list(payload: Path) -> None:
    path = payload / "aotc.json"
    document = json.loads(path.read_bytes())
    document["files"][0]["size"] += 1
    path.write_text(json.dumps(document))


PLANTED = {
    "external data": (before_packaging, refer_outside, "AOTC-G014", "optimizer.bin"),
    "other golden answers": (before_packaging, change_answers, "AOTC-N003", "golden"),
    "a byte more": (after_packaging, add_a_byte, "AOTC-G005", "weights.bin"),
    "a file more": (after_packaging, add_a_file, "AOTC-G007", "notes.txt"),
    "another list": (after_packaging, spoil_the_list, "AOTC-G005", "aotc.json"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_not_published(
    name: str, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, plant, code, word = PLANTED[name]
    monkeypatch.setattr(aotc.pipeline.build, "package", where(plant))  # type: ignore[operator]
    before = sorted(bench.folder.iterdir())
    with pytest.raises(AotcError) as caught:
        aotc.build(
            bench.save(product(), "planted"),
            output=bench.folder / "planted.aotc",
            key=bench.private,
        )
    error = caught.value
    assert (error.code, error.exit_status) == ("AOTC-G040", 1)
    assert error.also[0].code == code
    reason = error.also[0]
    assert error.found == f"{code} {reason.what}" + (f": {reason.found}" if reason.found else "")
    assert word in error.also[0].line()
    assert not any(str(bench.folder) in refusal.line() for refusal in (error, *error.also))
    assert not any("Get the artifact" in refusal.fix for refusal in (error, *error.also))
    left = sorted(path for path in bench.folder.iterdir() if path.name != "planted.onnx")
    assert left == before


def test_the_command_says_why(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error with all reasons; its fix addresses the person who builds."""
    from aotc.cli.output import error_lines

    monkeypatch.setattr(aotc.pipeline.build, "package", after_packaging(add_a_file))
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "planted")
    lines = error_lines(caught.value)
    assert lines[:3] == [
        "error: AOTC-G040 artifact fails its own gate",
        "  what:     the finished artifact fails its own gate, and was not published",
        "  found:    AOTC-G007 a file was not signed",
    ]
    assert lines[-2:] == [
        "and 1 more:",
        "  AOTC-G007 a file was not signed [payload/notes.txt]",
    ]


def test_what_was_at_the_output_stays(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    built = bench.build(product(), "kept")
    with monkeypatch.context() as patch:
        patch.setattr(aotc.pipeline.build, "package", after_packaging(add_a_byte))
        with pytest.raises(AotcError, match="AOTC-G040"):
            bench.build(product(), "kept", force=True)
    assert_accepted(bench, built)


def test_answers_that_differ_are_fixed_by_leaving_sizes_out(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aotc.pipeline.build, "package", before_packaging(change_answers))
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "planted")
    assert "--dim NAME=MIN..MAX" in caught.value.fix
    assert "Get the artifact" not in caught.value.fix


def test_every_variant_that_ran_here_is_loaded(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the one that a load would choose."""

    def spoil_the_second(variant: ProvenModel) -> None:
        if variant.plan.name == "second":
            variant.lowered.model.write_bytes(b"\x08\x08")

    profile = bench.folder / "two.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: two\nproviders: [cpu]\n"
        "variants: [{name: first, isa: baseline}, {name: second, isa: baseline}]\n"
    )
    built = bench.build(product(), "two", profile=profile)
    with bench.load(built) as model:
        assert model.variant.name == "first"
    monkeypatch.setattr(aotc.pipeline.build, "package", before_packaging(spoil_the_second))
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "planted", profile=profile)
    assert [(error.code, error.where) for error in caught.value.also] == [
        ("AOTC-R008", "variant second")
    ]
    (reason,) = caught.value.also
    assert reason.found and reason.found in caught.value.found


def test_a_crash_while_it_is_loaded_has_a_code(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "crashing_jobs.py").write_text(
        "import os\n"
        "def gate(request):\n    return {'refusals': []}\n"
        f"def load(request):\n    os.kill(os.getpid(), {int(signal.SIGSEGV)})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    monkeypatch.setattr(aotc.runtime.rehearsal, "_JOBS", "crashing_jobs")
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "crashing")
    assert (caught.value.code, caught.value.exit_status) == ("AOTC-G040", 1)
    assert [error.code for error in caught.value.also] == ["AOTC-I013"]
    assert "SIGSEGV" in caught.value.also[0].what
    assert not (bench.folder / "crashing.aotc").exists()


def test_what_the_machine_lacks_is_not_the_artifacts_fault(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "poor_jobs.py").write_text(
        "def gate(request):\n    return {'refusals': []}\n"
        "def load(request):\n"
        "    return {'refusals': [{'code': 'AOTC-I015', 'what': 'no memory', 'where': ''}]}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    monkeypatch.setattr(aotc.runtime.rehearsal, "_JOBS", "poor_jobs")
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "poor")
    assert caught.value.code == "AOTC-I015"
    assert not (bench.folder / "poor.aotc").exists()


# The build cache.


def test_what_was_not_published_is_not_kept(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(bench.folder / "cache"))
    with monkeypatch.context() as patch:
        patch.setattr(aotc.pipeline.build, "package", before_packaging(change_answers))
        with pytest.raises(AotcError, match="AOTC-G040"):
            bench.build(product(), "kept")
    assert not bench.build(product(), "kept").report.cached


def test_a_cached_build_is_verified_as_well(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is signed anew, and the new signature may be wrong."""
    monkeypatch.setenv("AOTC_CACHE", str(bench.folder / "cache"))
    bench.build(product(), "kept")
    assert bench.build(product(), "kept", force=True).report.cached
    real = aotc.pipeline.build.seal

    def seal_without_signature(folder: Path, *rest: Any) -> None:
        real(folder, *rest)
        (folder / "attestations" / "oms.sigstore.json").unlink()

    monkeypatch.setattr(aotc.pipeline.build, "seal", seal_without_signature)
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "kept", force=True)
    assert [error.code for error in caught.value.also] == ["AOTC-G001"]


# Which process checks, and against which target.


def test_the_building_process_does_not_import_the_gate(bench: Workbench) -> None:
    source = bench.save(product(), "apart")
    program = (
        "import sys, aotc\n"
        f"aotc.build({str(source)!r}, output={str(bench.folder / 'apart.aotc')!r}, "
        f"key={str(bench.private)!r})\n"
        "print([name for name in sys.modules if name.startswith(('aotc.trust.gate', "
        "'aotc.trust.checks', 'aotc.runtime.loading'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_variant_that_this_host_cannot_run_is_verified_and_not_loaded(bench: Workbench) -> None:
    """The gate only requires that some variant fits the described target."""
    from aotc.host.probe import probe

    other = "aarch64" if probe().architecture == "x86_64" else "x86_64"
    target = bench.folder / "other.yaml"
    target.write_text(
        f"schema: aotc.target/1\nname: other\nos: linux\narchitecture: {other}\n"
        "libc: {name: glibc, version: '2.35'}\n"
    )
    profile = bench.folder / "allowed.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: allowed\nproviders: [cpu]\nunproven: allow\n"
        "variants: [{name: portable, isa: baseline}]\n"
    )
    built = bench.build(product(), "foreign", profile=profile, target=target)
    assert [variant.parity.status for variant in built.manifest.variants] == ["not-run"]
    report = aotc.verify(built.path, key=bench.public, target=target)
    assert report.authentic


def test_a_target_that_takes_no_variant_is_reported(bench: Workbench) -> None:
    target = bench.folder / "old.yaml"
    from aotc.host.probe import probe

    host = probe()
    libc = f"{{name: {host.libc.name}, version: '{host.libc.version}'}}" if host.libc else "null"
    target.write_text(
        f"schema: aotc.target/1\nname: old\nos: {host.os}\narchitecture: {host.architecture}\n"
        f"libc: {libc}\nonnxruntime: 1.10.0\n"
    )
    with pytest.raises(AotcError) as caught:
        bench.build(product(), "old", target=target)
    assert caught.value.code == "AOTC-G040"
    assert [error.code for error in caught.value.also] == ["AOTC-C009", "AOTC-C005"]
    assert "correct its description" in caught.value.fix
