"""`aotc build --calibration`: where data comes from, what is made of it, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command import Command
from made_models import linear, save
from repository import ROOT

DIGITS = ROOT / "examples" / "digits"


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in a folder with `digits.onnx` and 64 images in `images.npz`."""
    shutil.copyfile(DIGITS / "digits.onnx", tmp_path / "digits.onnx")
    with np.load(DIGITS / "heldout.npz") as held:
        np.savez(tmp_path / "images.npz", image=held["image"][:64], label=held["label"][:64])
    return Command(tmp_path)


def profile(aotc: Command, name: str = "p", **fields: Any) -> Path:
    """A profile file for small sizes."""
    stated = {
        "schema": "aotc.profile/1",
        "name": Path(name).name,
        "dims": {"batch": "1..4"},
        "parity": {"random_shapes": 0},
        **fields,
    }
    path = aotc.folder / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(stated))
    return path


def passes(aotc: Command, artifact: str = "out.aotc") -> dict[str, Any]:
    """The pass that quantized, of the first variant."""
    manifest = json.loads((aotc.folder / artifact / "payload" / "aotc.json").read_text())
    (found,) = (item for item in manifest["variants"][0]["passes"] if item["name"] == "quantize")
    assert isinstance(found, dict)
    return found


def materials(aotc: Command, artifact: str = "out.aotc") -> dict[str, str]:
    """Digests of what the provenance lists as given, by name."""
    path = aotc.folder / artifact / "attestations" / "provenance.sigstore.json"
    envelope = json.loads(path.read_text())["dsseEnvelope"]
    statement = json.loads(b64decode(envelope["payload"]))
    found = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    return {
        item["name"]: item["digest"]["sha256"]
        for item in found
        if item["annotations"].get("role") == "given"
    }


BUILD = ("build", "digits.onnx", "--profile", "p.yaml", "-o", "out.aotc")


def test_data_of_the_command_line(aotc: Command) -> None:
    profile(aotc, precision="int8")
    assert aotc(*BUILD, "--calibration", "images.npz").status == 0
    options = passes(aotc)["options"]
    assert (options["form"], options["samples"]) == ("static", 64)
    digest = hashlib.sha256((aotc.folder / "images.npz").read_bytes()).hexdigest()
    assert materials(aotc) == {"calibration/images.npz": digest}
    shown = aotc.plain("inspect", "out.aotc").stdout
    assert "static: ranges of 64 samples; " in shown
    assert "optimal sizes with your samples" in shown
    (first, *_) = aotc("inspect", "out.aotc").document["artifact"]["variants"]
    assert next(p for p in first["passes"] if p["name"] == "quantize")["options"]["samples"] == 64
    assert aotc.plain("inspect", "out.aotc", "--html", "page.html").status == 0
    assert "samples 64" in (aotc.folder / "page.html").read_text()
    # Nothing of the user's is shipped, and the artifact loads.
    np.save(aotc.folder / "one.npy", np.zeros((1, 1, 8, 8), np.float32))
    ran = aotc("run", "out.aotc", "--input", "image=one.npy")
    assert ran.status == 0
    shipped = b"".join(p.read_bytes() for p in (aotc.folder / "out.aotc").rglob("*.npy"))
    with np.load(aotc.folder / "images.npz") as images:
        rows = [row.tobytes() for row in images["image"].reshape(-1, 64)]
    assert not any(row in shipped for row in rows)


def test_a_diff_with_the_float32_artifact(aotc: Command) -> None:
    profile(aotc, precision="int8")
    assert aotc(*BUILD, "--calibration", "images.npz").status == 0
    words = ("build", "digits.onnx", "--profile", "p.yaml", "-o", "plain.aotc")
    assert aotc(*words, "--precision", "keep").status == 0
    found = aotc("diff", "plain.aotc", "out.aotc", "--fail-on", "precision,size:1.05")
    assert found.status == 1
    areas = {area["area"]: area["changes"] for area in found.document["areas"]}
    told = {change["what"]: (change["a"], change["b"]) for change in areas["precision"]}
    assert told["precision"] == ("keep", "int8")
    assert told["arithmetic"] == ("float32", "int8")


def test_data_of_the_profile_is_found_beside_it(aotc: Command) -> None:
    (aotc.folder / "own").mkdir()
    shutil.move(aotc.folder / "images.npz", aotc.folder / "own" / "set.npz")
    calibration = {"data": "set.npz", "max_samples": 10}
    profile(aotc, "own/p", precision="int8", calibration=calibration)
    words = ("build", "digits.onnx", "--profile", "own/p.yaml", "-o", "out.aotc")
    assert aotc(*words).status == 0
    assert passes(aotc)["options"]["samples"] == 10
    assert list(materials(aotc)) == ["calibration/set.npz"]
    # That of the command line goes first.
    np.savez(aotc.folder / "three.npz", image=np.eye(8, dtype="f4")[None, None].repeat(3, 0))
    assert aotc(*words, "--force", "--calibration", "three.npz").status == 0
    assert list(materials(aotc)) == ["calibration/three.npz"]


def test_data_of_the_configuration(aotc: Command) -> None:
    profile(aotc, precision="int8")
    (aotc.folder / "aotc.yaml").write_text("build: {calibration: images.npz}\n")
    assert aotc(*BUILD).status == 0
    assert list(materials(aotc)) == ["calibration/images.npz"]
    shown = aotc.plain("config")
    assert "images.npz" in shown.stdout


def test_static_quantization_needs_data(aotc: Command) -> None:
    profile(aotc, precision="int8", quantization={"form": "static"})
    error = aotc(*BUILD).refused("AOTC-I072", 3)
    assert error["where"] == "variant portable: quantization.form: static"
    assert not (aotc.folder / "out.aotc").exists()


def test_data_that_nobody_observes_on_is_told(aotc: Command) -> None:
    profile(aotc)
    made = aotc(*BUILD, "--calibration", "images.npz").document
    assert "AOTC-N019" in [item["code"] for item in made["findings"]]


@pytest.mark.parametrize(
    ("made", "code", "word"),
    [
        ("missing", "AOTC-I001", "none.npz"),
        ("pickle", "AOTC-I077", "bad.npz: image"),
        ("nan", "AOTC-I076", "bad.npz, sample 1: image"),
        ("name", "AOTC-I074", "bad.npz"),
        ("shape", "AOTC-I075", "bad.npz: image"),
        ("cut", "AOTC-I073", "bad.npz"),
        ("empty", "AOTC-I072", "empty"),
    ],
)
def test_what_is_wrong_with_data_has_a_code(aotc: Command, made: str, code: str, word: str) -> None:
    profile(aotc, precision="int8")
    path = aotc.folder / "bad.npz"
    images = np.zeros((2, 1, 8, 8), np.float32)
    if made == "missing":
        path = aotc.folder / "none.npz"
    elif made == "pickle":
        np.savez(path, image=np.array([{}], object))
    elif made == "nan":
        images[1, 0, 2, 2] = np.nan
        np.savez(path, image=images)
    elif made == "name":
        np.savez(path, picture=images)
    elif made == "shape":
        np.savez(path, image=images[..., :7])
    elif made == "cut":
        np.savez(path, image=images)
        path.write_bytes(path.read_bytes()[:-40])
    else:
        path = aotc.folder / "empty"
        path.mkdir()
    error = aotc(*BUILD, "--calibration", path).refused(code, 3)
    assert error["where"].endswith(word)
    assert error["fix"]
    shown = aotc.plain(*BUILD, "--calibration", path)
    assert (shown.status, shown.stdout) == (3, "")
    assert shown.stderr.count(f"error: {code} ") == 1
    assert not (aotc.folder / "out.aotc").exists()
    assert aotc.leftovers() == []


def test_a_pickle_is_no_fixture(aotc: Command) -> None:
    np.savez(aotc.folder / "bad.npz", image=np.array([{}], object))
    profile(aotc)
    error = aotc(*BUILD, "--fixtures", "bad.npz").refused("AOTC-I077", 3)
    assert error["where"].endswith("bad.npz")


@pytest.mark.openvino
def test_openvino_compiles_what_was_quantized(aotc: Command) -> None:
    profile(aotc, precision="int8", providers=["openvino", "cpu"])
    assert aotc(*BUILD, "--calibration", "images.npz").status == 0
    (variant,) = aotc("inspect", "out.aotc").document["artifact"]["variants"]
    assert variant["precision"] == "int8"
    (part,) = variant["partitioning"]["partitions"]
    assert part["provider"] == "OpenVINOExecutionProvider"
    assert part["ops"]["QuantizeLinear"] > 1


@pytest.mark.openvino
def test_openvino_takes_weights_in_blocks(aotc: Command) -> None:
    save(linear(features=64), aotc.folder / "linear.onnx")
    profile(aotc, precision="int4", providers=["openvino", "cpu"])
    words = ("build", "linear.onnx", "--profile", "p.yaml", "-o", "out.aotc")
    assert aotc(*words).status == 0
    (variant,) = aotc("inspect", "out.aotc").document["artifact"]["variants"]
    (part,) = variant["partitioning"]["partitions"]
    assert part["provider"] == "OpenVINOExecutionProvider"
    assert [op for op in part["ops"] if op.endswith("MatMulNBits")]


@pytest.mark.parametrize("provider", ["tensorrt_rtx", "cuda"])
def test_a_form_that_a_provider_does_not_run(aotc: Command, provider: str) -> None:
    from aotc.providers.base import BACKENDS

    if not BACKENDS.load(provider)().probe().available:
        pytest.skip(f"{provider} is not installed")
    static = {"form": "static"}
    profile(aotc, precision="int8", providers=[provider, "cpu"], quantization=static)
    error = aotc(*BUILD, "--calibration", "images.npz").refused("AOTC-N008", 3)
    assert error["found"] == "int8 (static)"
    assert error["expected"].startswith(f"{provider}: keep, tf32")
