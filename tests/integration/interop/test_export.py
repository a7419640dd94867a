"""Exports: plain sessions open them, without aotc, and answer bit for bit as the artifact does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino_models
import pytest
from artifact_builder import build_artifact
from built_artifact import DIGITS, BuiltArtifact
from command import Command
from custom_operators import real_library, text_model
from file_bytes import flip_bit
from made_profiles import profile_with, small_profile
from onnx import TensorProto, helper, numpy_helper
from refusals import refusal
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench

from aotc import export, load
from aotc.base.records import replace
from aotc.spec.codec import encode
from aotc.spec.command_reports import Exported, ExportReport
from aotc.spec.precision import ParitySpec
from aotc.spec.target import Plugin
from aotc.tools.export import ExportSource
from aotc.tools.onnx_folder import layout
from aotc.trust import key_files
from aotc.trust.key_loading import load_private
from aotc.trust.packing import pack

# Runs what the README of an export says, in a Python that has no aotc, and then a session without
# any options. Inputs and outputs are pickled, as some are text.
PLAIN = """
import pickle, re, sys
sys.modules["aotc"] = None
(code,) = re.findall("```python\\n(.*?)```", open("README.md", encoding="utf-8").read(), re.S)
found = {}
exec(code, found)
session = found["session"]
with open(sys.argv[1], "rb") as file:
    calls = pickle.load(file)
names = [each.name for each in session.get_outputs()]
answers = [dict(zip(names, session.run(names, call))) for call in calls]
if "plugins" not in sys.argv[3:]:
    import onnxruntime as ort
    options = found["options"] if "custom" in sys.argv[3:] else None
    ort.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
with open(sys.argv[2], "wb") as file:
    pickle.dump((answers, session.get_providers()), file)
"""


def plain_answers(
    folder: Path, calls: list[Mapping[str, Any]], scratch: Path, *words: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """What a session of ONNX Runtime alone answers, and its providers."""
    import pickle

    (scratch / "calls").write_bytes(pickle.dumps(calls))
    done = subprocess.run(
        [sys.executable, "-I", "-c", PLAIN, str(scratch / "calls"), str(scratch / "out"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answers, providers = pickle.loads((scratch / "out").read_bytes())
    return answers, providers


def assert_equal_bits(folder: Path, expected: list[Any], found: list[Any]) -> None:
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert list(one) == list(other)
        for name, value in one.items():
            first, second = np.asarray(value), np.asarray(other[name])
            assert first.dtype == second.dtype
            if first.dtype.kind == "O":
                assert first.tolist() == second.tolist()
            else:
                assert first.tobytes() == second.tobytes(), f"{folder.name}: {name}"


def exported(
    bench: Workbench,
    built: Built,
    calls: list[Mapping[str, Any]],
    folder: Path,
    *words: str,
    **options: Any,
) -> tuple[ExportReport, list[str]]:
    """An export whose answers were found to be the artifact's; and the session's providers."""
    report = export(built.path, folder / "plain", key=bench.public, **options)
    place = folder / "plain"
    onnx.checker.check_model(str(place / "model.onnx"))
    with load(
        built.path, key=bench.public, store=bench.folder / "store", variant=report.variant
    ) as model:
        expected = [dict(model.run(call)) for call in calls]
    found, providers = plain_answers(place, calls, folder, *words)
    assert_equal_bits(place, expected, found)
    return report, providers


def images(*batches: int) -> list[Mapping[str, Any]]:
    every = np.load(DIGITS / "heldout.npz")["image"]
    return [{"image": every[:batch]} for batch in batches]


@pytest.fixture(scope="module")
def routed(bench: Workbench) -> Built:
    """Three graphs over the same weights: of two sizes, and of all."""
    dims = {"batch": {"min": 1, "max": 8, "buckets": [1, 4], "outside": "route"}}
    return bench.build(DIGITS / "digits.onnx", "routed", profile=profile_with("edge", dims=dims))


@pytest.fixture(scope="module")
def unrouted(bench: Workbench) -> Built:
    """Two graphs, of one size each, and none of all."""
    dims = {"batch": {"buckets": [1, 4]}}
    return bench.build(DIGITS / "digits.onnx", "unrouted", profile=profile_with("edge", dims=dims))


@pytest.mark.parametrize("name", ["portable", "native"])
def test_a_session_without_aotc_answers_as_the_artifact(
    digits: BuiltArtifact, name: str, tmp_path: Path
) -> None:
    report = export(digits.path, tmp_path / "plain", key=digits.public_key, variant=name)
    assert (report.variant, report.chosen, report.format) == (name, "as asked for", "onnx")
    assert [finding.code for finding in report.findings] == []
    place = tmp_path / "plain"
    onnx.checker.check_model(str(place / "model.onnx"))
    calls = images(1, 8)
    with load(digits.path, key=digits.public_key, store=tmp_path / "store", variant=name) as model:
        expected = [dict(model.run(call)) for call in calls]
    found, providers = plain_answers(place, calls, tmp_path)
    assert_equal_bits(place, expected, found)
    assert providers == ["CPUExecutionProvider"]
    said = json.loads((place / "export.json").read_text())
    # Of a variant for one kind of CPU all was done at build.
    level = {"portable": "all", "native": "disable"}[name]
    assert (said["variant"], said["session"]["optimization"]) == (name, level)
    assert said["artifact_id"] == report.artifact_id
    assert sorted([*said["files"], "export.json"]) == sorted(report.files)
    # All weights are beside the model, and referred to by their names alone.
    model = onnx.load(place / "model.onnx", load_external_data=False)
    places = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    assert places and places <= set(report.files)


def test_what_this_host_would_load_is_exported_and_said(
    digits: BuiltArtifact, tmp_path: Path
) -> None:
    report = export(digits.path, tmp_path / "plain", key=digits.public_key)
    assert (report.variant, report.chosen) == ("native", "the one that this host would load")
    (finding,) = report.findings
    assert (finding.code, finding.what) == (
        "AOTC-I118",
        "native is exported, the one that this host would load; not portable",
    )
    lesser = Command(tmp_path, {"AOTC_HOST_ISA": "sse4_1"})
    found = lesser("export", digits.path, "-o", "other", "--key", digits.public_key, "--json")
    assert json.loads(found.stdout)["variant"] == "portable"


def test_where_none_runs_the_one_that_needs_least_is_exported(
    bench: Workbench, tmp_path: Path
) -> None:
    artifact = build_artifact(
        tmp_path / "a.aotc",
        load_private(bench.private),
        requirements={"onnxruntime_min": "99", "onnxruntime_below": "100"},
    )
    report = export(artifact, tmp_path / "plain", key=bench.public)
    assert (report.variant, report.chosen) == ("portable", "the first that needs no CPU feature")


def test_one_of_several_graphs(bench: Workbench, routed: Built, tmp_path: Path) -> None:
    """The one of all sizes, unless another is named."""
    names = [variant.name for variant in routed.manifest.variants]
    assert len(names) == 3
    (whole,) = (each.name for each in routed.manifest.variants if not each.buckets)
    report, _ = exported(bench, routed, images(1, 3, 8), tmp_path)
    assert report.variant == whole
    said = json.loads((tmp_path / "plain" / "export.json").read_text())
    assert said["sizes"] == {"batch": "1..8"}
    (small,) = (each for each in routed.manifest.variants if each.buckets == {"batch": 4})
    (tmp_path / "small").mkdir()
    report, _ = exported(bench, routed, images(4), tmp_path / "small", variant=small.name)
    said = json.loads((tmp_path / "small" / "plain" / "export.json").read_text())
    assert (report.variant, said["sizes"]) == (small.name, {"batch": "4"})


def test_graphs_of_one_size_each_have_to_be_named(
    bench: Workbench, unrouted: Built, tmp_path: Path
) -> None:
    error = refusal(lambda: export(unrouted.path, tmp_path / "plain", key=bench.public))
    assert error.code == "AOTC-I119"
    names = [variant.name for variant in unrouted.manifest.variants]
    assert error.expected == "one of " + ", ".join(names)
    assert not (tmp_path / "plain").exists()
    exported(bench, unrouted, images(1), tmp_path, variant=names[0])


def test_integers(bench: Workbench, tmp_path: Path) -> None:
    every = np.load(DIGITS / "heldout.npz")["image"]
    np.savez(tmp_path / "given.npz", image=every[:8])
    np.savez(tmp_path / "calibration.npz", image=every[100:200])
    built = bench.build(
        DIGITS / "digits.onnx",
        "integers",
        profile=profile_with(
            "edge",
            precision="int8",
            parity={"random_shapes": 0, "int8": {**encode(ParitySpec().int8), "max_slice": 10.0}},
        ),
        fixtures=tmp_path / "given.npz",
        calibration=tmp_path / "calibration.npz",
    )
    assert built.manifest.variants[0].precision == "int8"
    exported(bench, built, images(1, 8), tmp_path)


def branching() -> onnx.ModelProto:
    """An If within a Loop, whose bodies have weights of their own."""
    weights = {
        name: np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32)
        for seed, name in enumerate("ab")
    }

    def branch(name: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("MatMul", ["state", name], [f"y{name}"], name=f"product_{name}")],
            f"branch_{name}",
            [],
            [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(weights[name], name)],
        )

    body = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["state"], ["sum"], keepdims=0, name="sum"),
            helper.make_node("Greater", ["sum", "zero"], ["positive"], name="positive"),
            helper.make_node(
                *("If", ["positive"], ["chosen"]),
                then_branch=branch("a"),
                else_branch=branch("b"),
                name="choice",
            ),
            helper.make_node("Tanh", ["chosen"], ["next"], name="squashed"),
            helper.make_node("Identity", ["go"], ["on"], name="going"),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body, name="loop")],
        "branching",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(np.int64(3), "trips")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_weights_of_subgraphs(bench: Workbench, tmp_path: Path) -> None:
    built = bench.build(
        branching(), "branching", profile=profile_with("edge", dims={"batch": "1..4"})
    )
    x = np.random.default_rng(9).standard_normal((3, 8)).astype(np.float32)
    exported(bench, built, [{"x": x}, {"x": -x}], tmp_path)


@needs_models
def test_a_model_of_others_with_control_flow(bench: Workbench, tmp_path: Path) -> None:
    built = bench.build(MODELS / "silero_vad_v6.onnx", "silero", profile=profile_with("edge"))
    assert built.manifest.source.control_flow
    sizes = built.manifest.domain.corner("opt")
    exported(bench, built, [built.inputs(sizes), built.inputs(sizes, seed=5)], tmp_path)


@pytest.mark.openvino
def test_compiled_parts(bench: Workbench, tmp_path: Path) -> None:
    profile = profile_with(
        "edge-openvino", partitioning={"weigh_boundaries": False}, dims={"batch": "1..8"}
    )
    # So wide that constants stay in the shared weights, whose folder an option names.
    built = bench.build(openvino_models.plain(512), "compiled", profile=profile)
    (stated,) = built.manifest.variants[0].session.provider_options.values()
    assert "${weights}/weights.bin" in stated["load_config"]
    calls = [built.inputs({"batch": 3}), built.inputs({"batch": 1})]
    report, providers = exported(bench, built, calls, tmp_path, "plugins")
    assert providers[0] == "OpenVINOExecutionProvider"
    nodes = onnx.load(tmp_path / "plain" / "model.onnx", load_external_data=False).graph.node
    assert [node.op_type for node in nodes] == ["EPContext"]
    (blob,) = (a.s.decode() for a in nodes[0].attribute if a.name == "ep_cache_context")
    assert blob in report.files


def test_what_a_plugin_of_the_user_and_cuda_need_is_said(routed: Built) -> None:
    """The lines of Python are compiled, and not run: neither provider is here."""
    (plain,) = (each for each in routed.manifest.variants if not each.buckets)
    cuda = "CUDAExecutionProvider"
    told = []
    for name, plugins in ((cuda, ()), ("OwnExecutionProvider", (Plugin(name="own.so"),))):
        needs = replace(
            plain.requirements,
            providers=(name, "CPUExecutionProvider"),
            plugins=tuple(replace(each, provider=name) for each in plugins),
        )
        session = replace(
            plain.session,
            config={"session.set_denormal_as_zero": "1"},
            provider_options={name: {"level": 'a"b'}},
            threads=3,
        )
        variant = replace(plain, providers=needs.providers, requirements=needs, session=session)
        described = Exported(
            format="onnx",
            name="routed",
            artifact_id="0" * 64,
            variant=variant.name,
            unproven="no such device",
            providers=needs.providers,
            session=session,
            requirements=needs,
            files={},
        )
        source = ExportSource(manifest=routed.manifest, variant=variant, described=described)
        text = layout(source).texts["README.md"]
        (code,) = re.findall("```python\n(.*?)```", text, re.S)
        compile(code, name, "exec")
        assert "were not compared with the original model's**: no such device." in text
        assert 'options.add_session_config_entry("session.set_denormal_as_zero", "1")' in code
        assert "options.intra_op_num_threads = 3" in code
        assert '{"level": \'a"b\'}' in code
        told.append((text, code))
    assert 'pip install "onnxruntime-gpu>=' in told[0][0]
    assert "ort.preload_dlls()" in told[0][1]
    assert f'providers=[("{cuda}", {{"level":' in told[0][1]
    assert 'pip install "onnxruntime>=' in told[1][0]
    assert '"OwnExecutionProvider", "PLUGIN.so"' in told[1][1]


def test_operators_of_a_library(bench: Workbench, tmp_path: Path) -> None:
    library = real_library()
    built = bench.build(
        text_model(),
        "custom",
        profile=small_profile("edge", dims={"batch": "1..2"}),
        custom_ops=[library],
    )
    calls = [{"text": np.array(["hello worlds", "a cat"], object)}]
    report, _ = exported(bench, built, calls, tmp_path, "custom")
    assert f"custom_ops/{library.name}" in report.files


# What is exported, and what is refused.


def test_equal_bytes_from_a_folder_and_a_packed_file(digits: BuiltArtifact, tmp_path: Path) -> None:
    pack(digits.path, tmp_path / "packed.zip")
    reports = [
        export(source, tmp_path / name, key=digits.public_key)
        for source, name in ((digits.path, "a"), (tmp_path / "packed.zip", "b"))
    ]
    assert reports[0].files == reports[1].files
    for name in reports[0].files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "packed.zip"]


def test_what_exists_is_replaced_only_where_it_is_an_export(
    digits: BuiltArtifact, tmp_path: Path
) -> None:
    def write(folder: Path, **options: Any) -> ExportReport:
        return export(digits.path, folder, key=digits.public_key, **options)

    place = tmp_path / "plain"
    write(place, variant="portable")
    error = refusal(lambda: write(place))
    assert (error.code, error.what) == ("AOTC-I017", "the output exists")
    assert (
        error.fix == "Choose another folder with -o, or remove it; --force replaces only an export."
    )
    report = write(place, variant="native", force=True)
    assert sorted(path.name for path in place.iterdir()) == sorted(report.files)
    (place / "notes.txt").write_text("mine")
    error = refusal(lambda: write(place, force=True))
    assert (error.code, error.what) == (
        "AOTC-I017",
        "the output exists and contains 'notes.txt', which is not part of the export",
    )
    assert (place / "notes.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    error = refusal(lambda: write(other, force=True))
    assert error.what == (
        "the output exists and is not an export, so that --force does not replace it"
    )
    artifact = tmp_path / "copy.aotc"
    subprocess.run(["cp", "-r", digits.path, artifact], check=True)
    assert refusal(lambda: write(artifact, force=True)).code == "AOTC-I017"
    assert (artifact / "payload" / "aotc.json").is_file()


def test_what_no_trusted_key_signed_is_not_exported(digits: BuiltArtifact, tmp_path: Path) -> None:
    _, other = key_files.generate(tmp_path / "other.pem")
    place = tmp_path / "plain"
    assert refusal(lambda: export(digits.path, place, key=other)).code == "AOTC-G002"
    changed = tmp_path / "changed.aotc"
    subprocess.run(["cp", "-r", digits.path, changed], check=True)
    (weights,) = changed.rglob("weights.bin")
    weights.chmod(0o644)
    flip_bit(weights)
    assert refusal(lambda: export(changed, place, key=digits.public_key)).code == "AOTC-G005"
    assert not place.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_names_that_there_are_not(digits: BuiltArtifact, tmp_path: Path) -> None:
    place = tmp_path / "plain"
    error = refusal(lambda: export(digits.path, place, key=digits.public_key, variant="nativ"))
    assert (error.code, error.what) == (
        "AOTC-I027",
        "the artifact has no variant 'nativ'; did you mean 'native'?",
    )
    error = refusal(lambda: export(digits.path, place, key=digits.public_key, format="onx"))
    assert (error.code, error.what) == (
        "AOTC-I027",
        "there is no format 'onx'; did you mean 'onnx'?",
    )
    assert not place.exists()


def test_the_readme_says_what_nobody_checks_from_then_on(
    digits: BuiltArtifact, tmp_path: Path
) -> None:
    export(digits.path, tmp_path / "plain", key=digits.public_key, variant="portable")
    text = " ".join((tmp_path / "plain" / "README.md").read_text("utf-8").split())
    (said,) = re.findall(r"\*\*No longer checked\*\*.*?golden answers\.", text)
    for word in ("signature", "digests", "host fits", "which provider", "sizes and values"):
        assert word in said
