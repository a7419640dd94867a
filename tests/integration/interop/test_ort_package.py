"""The payload is an ONNX Runtime model package that ONNX Runtime opens and runs: by its C API, and
in Python from 1.32 on.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from built_artifact import DIGITS, BuiltArtifact
from onnx import TensorProto, helper
from repository import SUPPORT

PROGRAM = SUPPORT / "ort_package_api.py"
# Our names of the graph optimization levels, and ONNX Runtime's in session options.
LEVELS = {"disable": "disable_all", "all": "enable_all"}
Array = npt.NDArray[Any]


def open_and_run(
    package: Path, component: str, feeds: Mapping[str, Array], scratch: Path
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Outputs by name, and ONNX Runtime's messages about the package."""
    result = attempt(package, component, feeds, scratch)
    assert result.returncode == 0, result.stderr
    with np.load(scratch / "outputs.npz") as arrays:
        return dict(arrays), json.loads(result.stdout)


def attempt(
    package: Path, component: str, feeds: Mapping[str, Array], scratch: Path
) -> subprocess.CompletedProcess[str]:
    """Run the C API's program in a separate process, as a wrong call crashes it."""
    arrays: dict[str, Any] = dict(feeds)
    np.savez(scratch / "inputs.npz", **arrays)
    files = [str(scratch / "inputs.npz"), str(scratch / "outputs.npz")]
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(package), component, *files],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def manifest_of(artifact: BuiltArtifact) -> dict[str, Any]:
    """Our own manifest, as plain JSON."""
    document: dict[str, Any] = json.loads((artifact.payload / "aotc.json").read_bytes())
    return document


@pytest.fixture(scope="session")
def images() -> Array:
    """Held-out images, float32 [450, 1, 8, 8]."""
    with np.load(DIGITS / "heldout.npz") as arrays:
        return np.asarray(arrays["image"])


@pytest.mark.parametrize("batch", [1, 8])
def test_every_component_answers_as_the_original_model(
    digits: BuiltArtifact, images: Array, batch: int, tmp_path: Path
) -> None:
    feeds = {"image": images[:batch]}
    reference = ort.InferenceSession(digits.source, providers=["CPUExecutionProvider"])
    (expected,) = reference.run(["logits"], feeds)
    promised = {
        variant["component"]: variant["name"] for variant in manifest_of(digits)["variants"]
    }
    assert "model" in promised
    assert len(promised) == 2
    for component, variant in promised.items():
        outputs, opened = open_and_run(digits.payload, component, feeds, tmp_path)
        assert opened["components"] == {
            name: {only: "CPUExecutionProvider"} for name, only in promised.items()
        }
        assert opened["variant"] == variant
        assert Path(opened["folder"]) == digits.payload.resolve() / component / variant
        assert list(outputs) == ["logits"]
        assert outputs["logits"].shape == (batch, 10)
        np.testing.assert_allclose(outputs["logits"], expected, rtol=1e-4, atol=1e-5)


def open_in_python(package: Path, component: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name, as the guide has it for Python."""
    options = ort.SessionOptions()
    (cpu,) = (one for one in ort.get_ep_devices() if one.ep_name == "CPUExecutionProvider")
    options.add_provider_for_devices([cpu], {})
    opened = ort.ModelPackageContext(str(package))
    selected = opened.select_component(component, ort.ModelPackageOptions(options))
    session = selected.create_session()
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


@pytest.mark.parametrize("by", ["C", "Python"])
def test_every_component_answers_the_fixtures(
    digits: BuiltArtifact, by: str, tmp_path: Path
) -> None:
    if by == "Python" and not hasattr(ort, "ModelPackageContext"):
        pytest.skip(f"ONNX Runtime {ort.__version__} opens no packages in Python: 1.32 does")
    manifest = manifest_of(digits)
    assert manifest["fixtures"]
    for fixture in manifest["fixtures"]:
        feeds, golden = (
            {tensor["name"]: np.load(digits.payload / tensor["path"]) for tensor in fixture[side]}
            for side in ("inputs", "outputs")
        )
        for variant in manifest["variants"]:
            if by == "C":
                outputs, _ = open_and_run(digits.payload, variant["component"], feeds, tmp_path)
            else:
                outputs = open_in_python(digits.payload, variant["component"], feeds)
            assert set(outputs) == set(golden)
            for name, expected in golden.items():
                np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)


def test_weights_come_from_the_shared_asset(
    digits: BuiltArtifact, images: Array, tmp_path: Path
) -> None:
    package = tmp_path / "payload"
    shutil.copytree(digits.payload, package)
    (asset,) = (package / "shared_assets").iterdir()
    asset.rename(asset.with_name("sha256-" + "0" * 64))
    result = attempt(package, "model", {"image": images[:1]}, tmp_path)
    assert result.returncode == 1
    uri = asset.name.replace("-", ":")
    assert f"Asset URI not declared in this package: '{uri}'" in result.stderr


def test_the_session_has_the_options_of_our_manifest(
    digits: BuiltArtifact, images: Array, tmp_path: Path
) -> None:
    """Both manifests state the same; ONNX Runtime reads them, since it refuses a wrong one."""
    level = "session.graph_optimization_level"
    package = tmp_path / "payload"
    shutil.copytree(digits.payload, package)
    document = json.loads((package / "manifest.json").read_bytes())
    for variant in manifest_of(digits)["variants"]:
        body = document["components"][variant["component"]]["variants"][variant["name"]]
        options = body["executor_info"]["ort"]["session_options"]
        session = variant["session"]
        assert options[level] == LEVELS[session["optimization"]]
        assert session.get("config", {}).items() <= options.items()
        options[level] = "wrong"
    (package / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    result = attempt(package, "model", {"image": images[:1]}, tmp_path)
    assert result.returncode == 1
    assert "value for 'graph_optimization_level' must be one of" in result.stderr


def test_a_component_that_is_not_there_is_refused(
    digits: BuiltArtifact, images: Array, tmp_path: Path
) -> None:
    result = attempt(digits.payload, "model.other", {"image": images[:1]}, tmp_path)
    assert result.returncode == 1
    assert "OrtError: SelectComponent: Component model not found." in result.stderr


def test_the_api_carries_int64(tmp_path: Path) -> None:
    """The program itself, on a package written by hand: integers, two inputs, two outputs."""
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in "absd"]
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Sub", ["a", "b"], ["d"])]
    graph = helper.make_graph(nodes, "sum_and_difference", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    package = tmp_path / "package"
    (package / "cpu").mkdir(parents=True)
    onnx.save(model, package / "cpu" / "model.onnx")
    variant = {"ep": "CPUExecutionProvider", "executor_info": {"ort": {"model_file": "model.onnx"}}}
    document = {
        "schema_version": "1.0",
        "components": {"whole": {"variants": {"cpu": {**variant, "variant_directory": "cpu"}}}},
    }
    (package / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    feeds = {"a": np.array([1 << 40, 2, 3]), "b": np.array([1, -2, 3])}
    outputs, opened = open_and_run(package, "whole", feeds, tmp_path)
    assert opened["components"] == {"whole": {"cpu": "CPUExecutionProvider"}}
    np.testing.assert_array_equal(outputs["s"], feeds["a"] + feeds["b"])
    np.testing.assert_array_equal(outputs["d"], feeds["a"] - feeds["b"])
