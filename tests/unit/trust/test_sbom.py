"""The bill of materials: valid by CycloneDX's own schema, and complete."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from artifact_builder import build_artifact
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from test_provenance import gathered

from aotc.base.errors import AotcError
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import ExternalFile, Manifest
from aotc.spec.target import Plugin
from aotc.trust import key_files, provenance, sbom
from aotc.trust.key_loading import load_private

ID = "0123456789abcdef" * 4
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Of a model with external data, for a plugin by its digest."""
    folder = tmp_path_factory.mktemp("artifact")
    private, _ = key_files.generate(folder / "key.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private))
    found = decode(Manifest, strict_json((artifact / "payload" / "aotc.json").read_bytes()))
    source = dataclasses.replace(
        found.source,
        producer_name="pytorch",
        producer_version="2.9",
        external_data=(ExternalFile(location="w/weights.bin", size=80, sha256="cd" * 32),),
    )
    plugin = Plugin(name="ep.so", sha256="ef" * 32, provider="FastExecutionProvider")
    toolchain = dataclasses.replace(found.toolchain, plugins=(plugin,))
    return dataclasses.replace(found, source=source, toolchain=toolchain)


def bill(manifest: Manifest, licence: str = "Apache-2.0") -> dict[str, Any]:
    materials = gathered(licence=licence)
    found = sbom.bill_of_materials(manifest, ID, materials, provenance.libraries(manifest))
    assert isinstance(found, dict)
    return found


def components(manifest: Manifest) -> dict[str, dict[str, Any]]:
    return {component["name"]: component for component in bill(manifest)["components"]}


@pytest.mark.parametrize("licence", ["", "MIT", "MIT OR Apache-2.0", "Our own terms, v2"])
def test_it_is_valid_by_the_official_schema(manifest: Manifest, licence: str) -> None:
    assert VALIDATOR.validate_str(json.dumps(bill(manifest, licence))) is None


def _no_type(found: dict[str, Any]) -> None:
    del found["components"][0]["type"]


def _short_hash(found: dict[str, Any]) -> None:
    found["metadata"]["component"]["hashes"][0]["content"] = "ab"


def _odd_card(found: dict[str, Any]) -> None:
    found["metadata"]["component"]["modelCard"]["weights"] = 7


@pytest.mark.parametrize("spoil", [_no_type, _short_hash, _odd_card])
def test_the_official_schema_finds_what_is_wrong(
    manifest: Manifest, spoil: Callable[[dict[str, Any]], None]
) -> None:
    found = copy.deepcopy(bill(manifest))
    spoil(found)
    assert VALIDATOR.validate_str(json.dumps(found)) is not None


def test_equal_artifacts_have_equal_bills(manifest: Manifest) -> None:
    one, other = bill(manifest), bill(manifest)
    assert one == other
    assert json.dumps(one) == json.dumps(other)
    assert "timestamp" not in one["metadata"]
    number = uuid.UUID(one["serialNumber"].removeprefix("urn:uuid:"))
    assert number == uuid.uuid5(uuid.NAMESPACE_URL, f"urn:aotc:artifact:{ID}")


def test_the_artifact_is_a_model_with_a_card(manifest: Manifest) -> None:
    artifact = bill(manifest)["metadata"]["component"]
    assert artifact["type"] == "machine-learning-model"
    assert artifact["hashes"] == [{"alg": "SHA-256", "content": ID}]
    assert artifact["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    parameters = artifact["modelCard"]["modelParameters"]
    assert parameters["inputs"] == [{"format": "x: float32[batch, 4]"}]
    assert parameters["outputs"] == [{"format": "y: float32[batch, 4]"}]


def test_model_data_libraries_and_plugins_are_there(manifest: Manifest) -> None:
    found = components(manifest)
    model = found["linear.onnx"]
    assert model["type"] == "machine-learning-model"
    assert model["hashes"] == [{"alg": "SHA-256", "content": manifest.source.sha256}]
    assert {"name": "onnx:producer", "value": "pytorch 2.9"} in model["properties"]
    assert found["w/weights.bin"]["type"] == "data"
    assert found["w/weights.bin"]["hashes"][0]["content"] == "cd" * 32
    assert found["ep.so"]["hashes"][0]["content"] == "ef" * 32
    assert found["numpy"]["purl"].startswith("pkg:pypi/numpy@")
    assert found["numpy"]["scope"] == "required"
    assert found["onnx"]["scope"] == "excluded"
    assert found["onnx"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_the_artifact_depends_on_every_component(manifest: Manifest) -> None:
    found = bill(manifest)
    of_artifact = next(
        dependency for dependency in found["dependencies"] if dependency["ref"] == f"artifact:{ID}"
    )
    assert sorted(of_artifact["dependsOn"]) == sorted(
        component["bom-ref"] for component in found["components"]
    )


def test_without_the_library_a_build_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cyclonedx", None)
    with pytest.raises(AotcError) as raised:
        sbom.require_library()
    assert raised.value.code == "AOTC-I019"
