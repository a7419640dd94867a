"""Which references of a model lie among the signed files that its variant reads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import onnx
import pytest
from artifact_builder import build_artifact
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from aotc.spec.codec import Problem, decode
from aotc.spec.manifest import Manifest
from aotc.trust.container import FolderContainer
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.references import outside_references

BYTES = 80
OUTSIDE = "which is not among its signed files"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    private, _ = generate(tmp_path / "key.pem")
    return build_artifact(tmp_path / "a.aotc", load_private(private), native=False)


def manifest_of(artifact: Path) -> Manifest:
    return decode(Manifest, json.loads((artifact / "payload" / "aotc.json").read_bytes()))


def found(artifact: Path, manifest: Manifest | None = None) -> list[Problem]:
    with FolderContainer(artifact) as container:
        return outside_references(container, manifest or manifest_of(artifact))


def write(artifact: Path, model: ModelProto | bytes) -> None:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    (artifact / "payload" / manifest_of(artifact).variants[0].model).write_bytes(data)


def weights(*entries: tuple[str, str]) -> ModelProto:
    tensor = TensorProto(name="w", data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)
    return ModelProto(ir_version=9, graph=GraphProto(initializer=[tensor]))


def placed(offset: str | None, length: str | None, **more: str) -> ModelProto:
    entries = [("location", "weights.bin"), *more.items()]
    entries += [("offset", offset)] if offset is not None else []
    entries += [("length", length)] if length is not None else []
    return weights(*entries)


def test_a_built_model_refers_to_its_own_files(artifact: Path) -> None:
    assert found(artifact) == []


@pytest.mark.parametrize(
    "location",
    [
        *("", ".", "..", "/dev/zero", "../weights.bin", "./weights.bin", "a/../weights.bin"),
        *("weights.bin/", "WEIGHTS.BIN", "weights.bin\0", "weights.bin ", "\\weights.bin"),
        *("model.onnx", "C:weights.bin", "*/_ORT_MEM_ADDR_/*", "file:weights.bin", "nothing.bin"),
    ],
)
def test_another_location(location: str, artifact: Path) -> None:
    write(artifact, weights(("location", location), ("offset", "0"), ("length", "4")))
    [problem] = found(artifact)
    assert problem.path == manifest_of(artifact).variants[0].model
    assert problem.what == f"has external data in {location!r}, {OUTSIDE}"


@pytest.mark.parametrize("first", [True, False])
def test_of_two_locations_both_count(first: bool, artifact: Path) -> None:
    entries = [("location", "weights.bin"), ("location", "/dev/zero")]
    write(artifact, weights(*(entries if first else entries[::-1])))
    assert [problem.what for problem in found(artifact)] == [
        f"has external data in '/dev/zero', {OUTSIDE}"
    ]


def test_no_location(artifact: Path) -> None:
    write(artifact, weights())
    assert [problem.what for problem in found(artifact)] == ["has external data without a location"]


@pytest.mark.parametrize(
    ("offset", "length", "good"),
    [
        ("0", str(BYTES), True),
        (str(BYTES), "0", True),
        ("16", "64", True),
        (None, None, True),
        (None, str(BYTES), True),
        (str(BYTES), None, True),
        ("16", "65", False),
        ("81", "0", False),
        (None, "81", False),
        ("81", None, False),
        ("-8", "4", False),
        ("0", "-1", False),
        ("0x0", "4", False),
        ("+1", "4", False),
        (" 1", "4", False),
        ("1_0", "4", False),
        ("\u0661", "4", False),
        ("", "4", False),
        ("1\n", "4", False),
        ("9" * 19, "9" * 19, False),
        ("0" * 20, "4", False),
        (str((1 << 64) - 4), "8", False),
    ],
)
def test_where_in_the_file(
    offset: str | None, length: str | None, good: bool, artifact: Path
) -> None:
    write(artifact, placed(offset, length))
    problems = found(artifact)
    assert len(problems) == (not good)
    assert all(f"of a file of {BYTES} bytes" in problem.what for problem in problems)


@pytest.mark.parametrize(
    ("packed", "good"),
    [
        ("kernel|0;16;1", True),
        ("kernel|0;16;1|16;64;0", True),
        ("kernel|0;16;1|16;65;0", False),
        ("kernel|-1;4;1", False),
        ("kernel|4", False),
        ("kernel|", False),
    ],
)
def test_where_in_the_file_packed_weights_are(packed: str, good: bool, artifact: Path) -> None:
    write(artifact, placed("0", "16", prepacked_0=packed))
    assert len(found(artifact)) == (not good)


def test_a_file_that_another_variant_reads(artifact: Path) -> None:
    manifest = manifest_of(artifact)
    variant = manifest.variants[0]
    alone = dataclasses.replace(variant, files=(variant.model,))
    problems = found(artifact, dataclasses.replace(manifest, variants=(alone,)))
    assert [problem.what for problem in problems] == [
        f"has external data in 'weights.bin', {OUTSIDE}",
    ]


def test_without_a_shared_asset_data_lie_next_to_the_model(artifact: Path) -> None:
    manifest = manifest_of(artifact)
    variant = manifest.variants[0]
    without_asset = dataclasses.replace(variant, weights=None)
    manifest = dataclasses.replace(manifest, variants=(without_asset,))
    # So the folder of the asset is not read, and the model itself may hold weights.
    assert len(found(artifact, manifest)) == 1
    write(artifact, weights(("location", "model.onnx"), ("length", "4")))
    assert found(artifact, manifest) == []


def context(name: str, file: str, mode: int) -> ModelProto:
    node = NodeProto(op_type="EPContext", domain="com.microsoft")
    node.attribute.add(name=name, s=file.encode(), type=AttributeProto.STRING)
    node.attribute.add(name="embed_mode", i=mode, type=AttributeProto.INT)
    return ModelProto(ir_version=9, graph=GraphProto(node=[node]))


@pytest.mark.parametrize(
    ("name", "file", "mode", "good"),
    [
        ("ep_cache_context", "model.onnx", 0, True),
        ("ep_cache_context", "weights.bin", 0, False),
        ("ep_cache_context", "../model.onnx", 0, False),
        ("ep_cache_context", "", 0, False),
        ("ep_cache_context", "/dev/zero", 0, False),
        ("ep_cache_context", "/dev/zero", 1, True),
        ("onnx_model_filename", "source.onnx", 1, True),
        ("onnx_model_filename", "", 1, True),
        ("onnx_model_filename", "../source.onnx", 1, False),
        ("onnx_model_filename", "/source.onnx", 0, False),
    ],
)
def test_compiled_parts(name: str, file: str, mode: int, good: bool, artifact: Path) -> None:
    write(artifact, context(name, file, mode))
    assert len(found(artifact)) == (not good)


def test_a_problem_is_reported_once(artifact: Path) -> None:
    model = weights(("location", "/dev/zero"))
    model.graph.initializer.append(model.graph.initializer[0])
    write(artifact, model)
    assert len(found(artifact)) == 1


def test_what_is_not_a_model(artifact: Path) -> None:
    write(artifact, b"\x3a\x7flocation")
    [problem] = found(artifact)
    assert problem.what == "is not an ONNX model: a field that is longer than its message"


def test_models_that_are_not_read_are_not_looked_at(artifact: Path) -> None:
    write(artifact, weights(("location", "/dev/zero")))
    manifest = manifest_of(artifact)
    with FolderContainer(artifact) as container:
        assert outside_references(container, manifest, read=()) == []
        assert len(outside_references(container, manifest, read=[manifest.variants[0].model])) == 1


def test_a_model_as_onnx_writes_it_with_external_data(artifact: Path, tmp_path: Path) -> None:
    place = tmp_path / "saved" / "model.onnx"
    place.parent.mkdir()
    built = artifact / "payload" / manifest_of(artifact).variants[0].model
    model = onnx.load(built, load_external_data=False)
    folder = artifact / "payload" / (manifest_of(artifact).variants[0].weights or "")
    onnx.load_external_data_for_model(model, str(folder))
    onnx.save_model(
        model, place, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    write(artifact, place.read_bytes())
    assert (place.parent / "weights.bin").stat().st_size <= BYTES
    assert found(artifact) == []
