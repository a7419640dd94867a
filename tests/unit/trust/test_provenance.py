"""SLSA provenance: read by the official schema, and true of this installation."""

from __future__ import annotations

import dataclasses
import datetime
import getpass
import hashlib
import json
import socket
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from artifact_builder import build_artifact
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.target import Target
from aotc.spec.versions import VERSION
from aotc.trust import key_files, provenance
from aotc.trust.key_loading import load_private

STARTED = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("artifact")
    private, _ = key_files.generate(folder / "key.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private))
    return decode(Manifest, strict_json((artifact / "payload" / "aotc.json").read_bytes()))


def gathered(**changes: Any) -> provenance.Materials:
    asked = {"fixtures": None, "tuned_from": None, "dims": {"batch": 8}, "licence": "MIT"}
    stated: dict[str, Any] = {
        "label": provenance.build_label("https://ci.example.com/builders/1", "run-7", "1.4.0"),
        "started": STARTED,
        "options": {"tune": False},
        "host": probe(gpus=False),
        "target": dataclasses.replace(probe(gpus=False), description="mine", extra={"a": "b"}),
        "source_sha256": "ab" * 32,
        "cached": False,
        "data": {},
    }
    asked |= {name: changes.pop(name) for name in asked.keys() & changes.keys()}
    model = "/some/where/linear.onnx"
    return provenance.gather_materials(SimpleNamespace(source=model, **asked), **stated | changes)


def said(manifest: Manifest, materials: provenance.Materials) -> dict[str, Any]:
    found = provenance.build_predicate(manifest, materials, provenance.libraries(manifest))
    assert isinstance(found, dict)
    return found


def dependencies(manifest: Manifest, **changes: Any) -> dict[str, dict[str, Any]]:
    found = said(manifest, gathered(**changes))["buildDefinition"]["resolvedDependencies"]
    names = [dependency["name"] for dependency in found]
    assert len(set(names)) == len(names)
    return {dependency["name"]: dependency for dependency in found}


def test_the_official_schema_takes_it(manifest: Manifest) -> None:
    predicate = said(manifest, gathered())
    read = json_format.ParseDict(predicate, provenance_pb2.Provenance())
    assert read.build_definition.build_type == "urn:aotc:build:v1"
    assert read.run_details.builder.id == "https://ci.example.com/builders/1"
    assert read.run_details.builder.version == {"aotc": VERSION}
    assert read.run_details.metadata.invocation_id == "run-7"
    assert read.run_details.metadata.started_on.ToDatetime(datetime.UTC) == STARTED
    assert read.run_details.metadata.finished_on.ToDatetime(datetime.UTC) >= STARTED
    for dependency in predicate["buildDefinition"]["resolvedDependencies"]:
        ResourceDescriptor.copy_from_pb(
            json_format.ParseDict(dependency, ResourceDescriptor().pb)
        ).validate()
    subject = [ResourceDescriptor(name="aotc.json", digest={"sha256": "cd" * 32}).pb]
    Statement(subject, "https://slsa.dev/provenance/v1", predicate).validate()


def test_the_official_schema_refuses_what_it_does_not_know(manifest: Manifest) -> None:
    predicate = said(manifest, gathered())
    predicate["runDetails"]["builder"]["host"] = "somewhere"
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(predicate, provenance_pb2.Provenance())


def test_external_parameters_are_what_the_user_chose(manifest: Manifest) -> None:
    asked = said(manifest, gathered())["buildDefinition"]["externalParameters"]
    assert asked["profile"] == manifest.profile
    assert asked["model"] == "linear.onnx"
    described = asked["target"].pop("described")
    assert asked["target"] == {"name": "host", "sha256": "0" * 64}
    assert decode(Target, described) == probe(gpus=False)
    assert asked["options"] == {"dims": {"batch": "8"}, "tune": False}
    assert asked["version"] == "1.4.0"


def test_the_model_its_data_and_the_toolchain_are_dependencies(manifest: Manifest) -> None:
    found = dependencies(manifest)
    assert found["linear.onnx"]["digest"] == {"sha256": manifest.source.sha256}
    assert found["aotc"]["digest"] == {"sha256": "ab" * 32}
    assert found["aotc"]["annotations"]["version"] == VERSION


def test_a_library_is_named_by_the_digest_of_its_record(manifest: Manifest) -> None:
    found = dependencies(manifest)
    for name in ("onnx", "onnxruntime", "numpy", "protobuf", "cryptography", "rfc8785"):
        record = next(
            file for file in metadata.files(name) or () if str(file).endswith(".dist-info/RECORD")
        )
        content = Path(str(record.locate())).read_bytes()
        assert found[name]["digest"] == {"sha256": hashlib.sha256(content).hexdigest()}
        assert found[name]["uri"] == f"pkg:pypi/{name}@{metadata.version(name)}"
        assert found[name]["annotations"]["version"] == metadata.version(name)
    assert "pytest" not in found


def test_the_environment_has_the_files_of_every_package(manifest: Manifest) -> None:
    """By digests that are the same for a wheel, and for whatever installed it."""
    internal = said(manifest, gathered())["buildDefinition"]["internalParameters"]
    packages = {each["name"]: each for each in internal["environment"]["packages"]}
    assert {"onnx", "onnxruntime", "numpy", "protobuf", "typer", "rich"} <= set(packages)
    assert "pytest" not in packages
    for name, each in packages.items():
        assert each["version"] == metadata.version(name)
        record = metadata.distribution(name).read_text("RECORD") or ""
        assert each["contents"] == provenance.contents_digest(record) != ""


def record_of(*rows: str) -> str:
    return "".join(f"{row}\r\n" for row in rows)


def test_what_an_installer_writes_is_no_part_of_a_packages_files() -> None:
    files = ("thing.py,sha256=abc,3", "thing-1.0.dist-info/METADATA,sha256=def,9")
    digest = provenance.contents_digest(record_of(*files, "thing-1.0.dist-info/RECORD,,"))
    assert len(digest) == 64
    for further in (
        "../../../bin/thing,sha256=x,1",
        "__pycache__/thing.cpython-311.pyc,,",
        "thing-1.0.dist-info/INSTALLER,sha256=x,4",
        "thing-1.0.dist-info/direct_url.json,sha256=x,4",
        "thing-1.0.dist-info/uv_cache.json,sha256=x,4",
    ):
        assert provenance.contents_digest(record_of(further, *reversed(files))) == digest


@pytest.mark.parametrize(
    "rows",
    [
        ("thing.py,sha256=abd,3", "thing-1.0.dist-info/METADATA,sha256=def,9"),
        ("other.py,sha256=abc,3", "thing-1.0.dist-info/METADATA,sha256=def,9"),
        ("thing.py,sha256=abc,3",),
        (
            "thing.py,sha256=abc,3",
            "thing-1.0.dist-info/METADATA,sha256=def,9",
            "thing.pth,sha256=x,1",
        ),
    ],
)
def test_other_files_are_another_package(rows: tuple[str, ...]) -> None:
    files = ("thing.py,sha256=abc,3", "thing-1.0.dist-info/METADATA,sha256=def,9")
    found = provenance.contents_digest(record_of(*rows))
    assert found not in ("", provenance.contents_digest(record_of(*files)))


@pytest.mark.parametrize("rows", [(), ("thing.py,,",), ("thing.py,md5=abc,3",)])
def test_files_without_a_digest_have_none(rows: tuple[str, ...]) -> None:
    assert provenance.contents_digest(record_of(*rows)) == ""


def test_a_provider_s_libraries_count_where_a_variant_uses_it(manifest: Manifest) -> None:
    name = "onnxruntime-ep-openvino"
    assert name not in {library.name for library in provenance.libraries(manifest)}
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    first = dataclasses.replace(
        manifest.variants[0], providers=("OpenVINOExecutionProvider", "CPUExecutionProvider")
    )
    other = dataclasses.replace(manifest, variants=(first, *manifest.variants[1:]))
    assert name in {library.name for library in provenance.libraries(other)}


def test_files_that_were_given_are_named_below_their_folder(
    manifest: Manifest, tmp_path: Path
) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "input_0.pb").write_bytes(b"one")
    (tmp_path / "old.aotc" / "attestations").mkdir(parents=True)
    (tmp_path / "old.aotc" / "attestations" / "evidence.sigstore.json").write_bytes(b"two")
    (tmp_path / "one.npz").write_bytes(b"three")
    found = dependencies(
        manifest, fixtures=tmp_path / "data", tuned_from=str(tmp_path / "old.aotc")
    )
    digest = hashlib.sha256(b"one").hexdigest()
    assert found["fixtures/a/input_0.pb"]["digest"] == {"sha256": digest}
    digest = hashlib.sha256(b"two").hexdigest()
    assert found["tuning/evidence.sigstore.json"]["digest"] == {"sha256": digest}
    assert "fixtures/one.npz" in dependencies(manifest, fixtures=tmp_path / "one.npz")


def test_files_behind_linked_folders_are_named_where_they_are_read(
    manifest: Manifest, tmp_path: Path
) -> None:
    for name in ("elsewhere", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere" / "input_0.pb").write_bytes(b"one")
    (tmp_path / "data" / "s0").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "around").symlink_to(tmp_path / "data")
    found = dependencies(manifest, fixtures=tmp_path / "data")
    digest = hashlib.sha256(b"one").hexdigest()
    assert found["fixtures/s0/input_0.pb"]["digest"] == {"sha256": digest}
    assert [name for name in found if name.startswith("fixtures/")] == ["fixtures/s0/input_0.pb"]


def test_data_that_options_name_is_a_material(manifest: Manifest) -> None:
    found = dependencies(manifest, data={"calibration/set.npz": "cd" * 32})
    assert found["calibration/set.npz"] == {
        "name": "calibration/set.npz",
        "digest": {"sha256": "cd" * 32},
        "annotations": {"role": "given"},
    }


def test_it_names_no_host_user_or_folder(manifest: Manifest) -> None:
    text = json.dumps(said(manifest, gathered()))
    for name in (socket.gethostname(), getpass.getuser()):
        assert f'"{name}"' not in text
        assert f"/{name}" not in text
    for place in ("/some/where", str(Path.home()) + "/", sys.prefix):
        assert place not in text


def test_equal_builds_say_the_same(manifest: Manifest) -> None:
    materials = gathered()
    assert said(manifest, materials) == said(manifest, materials)


def test_the_builder_is_the_stated_one_or_the_environment_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AOTC_BUILDER_ID", raising=False)
    assert provenance.build_label(None).builder == "urn:aotc:builder:local"
    monkeypatch.setenv("AOTC_BUILDER_ID", "https://ci.example.com/2")
    assert provenance.build_label(None).builder == "https://ci.example.com/2"
    assert provenance.build_label("urn:example:3").builder == "urn:example:3"


@pytest.mark.parametrize("stated", ["", "builder", "https:", "urn:a b", "urn:a\n", "HTTPS://x"])
def test_a_builder_that_is_not_a_uri_is_refused(stated: str) -> None:
    with pytest.raises(AotcError) as raised:
        provenance.build_label(stated)
    assert (raised.value.code, raised.value.where) == ("AOTC-I027", "--builder-id")


@pytest.mark.parametrize("release", ["1.2.3.4.5", "v1", "1.", "1.0-rc1"])
def test_a_release_that_is_not_a_version_is_refused(release: str) -> None:
    with pytest.raises(AotcError) as raised:
        provenance.build_label(None, release=release)
    assert (raised.value.code, raised.value.where) == ("AOTC-I027", "--release")


def installed(folder: Path, name: str, lines: str, record: bool) -> metadata.Distribution:
    """A distribution as an installer leaves it, with these lines of metadata."""
    place = folder / f"{name}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{lines}")
    if record:
        (place / "RECORD").write_bytes(
            f"{name}.py,sha256=x,1\r\n{name}-1.0.dist-info/RECORD,,\r\n".encode()
        )
    return metadata.Distribution.at(place)


@pytest.mark.parametrize(
    ("lines", "licences"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: old\n", ("MIT OR Apache-2.0",)),
        ("License: BSD\n", ("BSD",)),
        (
            f"License: {'very long ' * 20}\nClassifier: License :: OSI Approved :: MIT License\n",
            ("MIT License",),
        ),
        ("Classifier: License :: OSI Approved\n", ()),
        ("", ()),
    ],
)
def test_licences_are_as_the_metadata_states_them(
    tmp_path: Path, lines: str, licences: tuple[str, ...]
) -> None:
    found = provenance._library(installed(tmp_path, "thing", lines, record=True))
    assert found.licences == licences


def test_a_library_without_a_record_is_named_by_its_list_of_files(tmp_path: Path) -> None:
    with_record = provenance._library(installed(tmp_path, "one", "", record=True))
    assert with_record.digest_of == "RECORD"
    text = (tmp_path / "one-1.0.dist-info" / "RECORD").read_bytes()
    assert with_record.sha256 == hashlib.sha256(text).hexdigest()
    without = provenance._library(installed(tmp_path, "other", "", record=False))
    assert without.digest_of == "names of files"
    assert without.sha256 == hashlib.sha256(b"").hexdigest()
