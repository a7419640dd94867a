"""All signed documents are read by the official readers of their formats, which refuse the unknown.

Bundles: the models that sigstore generates from its protocol buffers.  Statements: in-toto's
protocol buffers and their validation.  OMS: the package that the format comes from.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.statement import Statement
from model_signing._signing import signing
from pydantic import ValidationError
from sigstore_models.bundle.v1 import Bundle

from aotc.runtime.qualification import qualify
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.trust_policy import POLICY_PREDICATE
from aotc.trust import key_files, oms
from aotc.trust.attesting import approve, sign
from aotc.trust.key_loading import load_private

TYPES = (
    oms.PREDICATE_TYPE,
    KINDS["evidence"].predicate_type,
    KINDS["provenance"].predicate_type,
    KINDS["sbom"].predicate_type,
    KINDS["approval"].predicate_type,
    KINDS["qualification"].predicate_type,
    POLICY_PREDICATE,
)


@pytest.fixture(scope="module")
def bundles(
    digits: BuiltArtifact, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """One bundle of each kind, by its predicate type."""
    folder = tmp_path_factory.mktemp("signed")
    artifact = Path(shutil.copytree(digits.path, folder / "digits.aotc"))
    private, _ = key_files.generate(folder / "ops.pem")
    signer = load_private(private)
    trust = digits.public_key
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_STORE", str(folder / "store"))
        sign(artifact, signer, trust=trust)
        approve(artifact, signer, channel="prod", expires="2099-01-31", note="é", trust=trust)
        qualify(artifact, signer, trust=trust, runs=3)
    command = Path(sys.executable).with_name("aotc")
    for words in (
        ("init", "--name", "plant", "--signer", f"release={trust}"),
        ("sign", "trust.yaml", "--key", "ops.pem"),
    ):
        subprocess.run([command, "trust", *words], cwd=folder, capture_output=True, check=True)
    found = {}
    for path in (*(artifact / "attestations").iterdir(), *folder.glob("trust.yaml.*")):
        document = json.loads(path.read_bytes())
        found[statement(document)["predicateType"]] = document
    return found


def statement(bundle: dict[str, Any]) -> dict[str, Any]:
    stated = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    assert isinstance(stated, dict)
    return stated


def read_statement(stated: dict[str, Any]) -> Statement:
    """A statement as in-toto reads it; raises ParseError or ValueError."""
    read = Statement([], "", {})
    json_format.ParseDict(stated, read.pb)
    read.validate()
    return read


def test_there_is_a_bundle_of_each_kind(bundles: dict[str, dict[str, Any]]) -> None:
    assert sorted(bundles) == sorted(TYPES)


@pytest.mark.parametrize("kind", TYPES)
def test_sigstore_reads_the_bundle(kind: str, bundles: dict[str, dict[str, Any]]) -> None:
    document = bundles[kind]
    read = Bundle.from_dict(copy.deepcopy(document))
    assert read.to_dict() == document
    assert read.dsse_envelope is not None
    assert json.loads(read.dsse_envelope.payload) == statement(document)


@pytest.mark.parametrize("kind", TYPES)
def test_in_toto_reads_the_statement(kind: str, bundles: dict[str, dict[str, Any]]) -> None:
    stated = statement(bundles[kind])
    read = read_statement(stated)
    assert json_format.MessageToDict(read.pb) == stated


def test_slsa_reads_the_provenance(bundles: dict[str, dict[str, Any]]) -> None:
    predicate = statement(bundles[KINDS["provenance"].predicate_type])["predicate"]
    read = json_format.ParseDict(predicate, provenance_pb2.Provenance())
    assert read.build_definition.build_type == "urn:aotc:build:v1"


def test_cyclonedx_reads_the_bill_of_materials(bundles: dict[str, dict[str, Any]]) -> None:
    document = json.dumps(statement(bundles[KINDS["sbom"].predicate_type])["predicate"])
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None


def test_model_signing_reads_every_file(
    bundles: dict[str, dict[str, Any]], digits: BuiltArtifact
) -> None:
    read = signing.dsse_payload_to_manifest(statement(bundles[oms.PREDICATE_TYPE]))
    listed = {
        descriptor.identifier: descriptor.digest for descriptor in read.resource_descriptors()
    }
    assert {resource.algorithm for resource in listed.values()} == {"sha256"}
    assert {name: file.digest_hex for name, file in listed.items()} == {
        path.relative_to(digits.payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in digits.payload.rglob("*")
        if path.is_file()
    }


def test_model_signing_writes_the_same_fields(bundles: dict[str, dict[str, Any]]) -> None:
    stated = statement(bundles[oms.PREDICATE_TYPE])
    read = signing.dsse_payload_to_manifest(stated)
    written = json_format.MessageToDict(signing.Payload(read).statement.pb)
    # It states `ignore_paths` only if there are any.
    assert stated["predicate"]["serialization"].pop("ignore_paths") == []
    # Order and root are equal, too: a payload has the same digest, whichever tool signs it.
    assert written == stated


def _other_media_type(bundle: dict[str, Any]) -> None:
    bundle["mediaType"] = "application/vnd.dev.sigstore.bundle.v9+json"


def _extra_field(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["extra"] = 1


def _nobody(bundle: dict[str, Any]) -> None:
    del bundle["verificationMaterial"]["publicKey"]


@pytest.mark.parametrize("spoil", [_other_media_type, _extra_field, _nobody])
def test_sigstore_refuses_another_bundle(
    spoil: Callable[[dict[str, Any]], None], bundles: dict[str, dict[str, Any]]
) -> None:
    document = copy.deepcopy(bundles[oms.PREDICATE_TYPE])
    spoil(document)
    with pytest.raises(ValidationError):
        Bundle.from_dict(document)


@pytest.mark.parametrize(
    "changes",
    [{"_type": "https://in-toto.io/Statement/v0"}, {"subject": []}, {"predicate": {}},
     {"subject": [{"name": "payload"}]}, {"when": "now"}],
)  # fmt: skip
def test_in_toto_refuses_another_statement(
    changes: dict[str, Any], bundles: dict[str, dict[str, Any]]
) -> None:
    with pytest.raises((json_format.ParseError, ValueError)):
        read_statement({**statement(bundles[oms.PREDICATE_TYPE]), **changes})


def test_model_signing_refuses_another_list(bundles: dict[str, dict[str, Any]]) -> None:
    stated = copy.deepcopy(statement(bundles[oms.PREDICATE_TYPE]))
    stated["predicate"]["resources"][0]["digest"] = "0" * 64
    with pytest.raises(ValueError, match="inconsistent"):
        signing.dsse_payload_to_manifest(stated)
