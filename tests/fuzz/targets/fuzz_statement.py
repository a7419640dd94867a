"""Statements that a trusted key did sign: they may lie or be ambiguous, and are read strictly."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from fuzz_target import Target
from made_keys import TRUSTED
from repository import ROOT
from signed_payload import verify_payload
from structured import json_number, mutated

from aotc.base.errors import AotcError
from aotc.trust import dsse, oms, statements

VECTORS = ROOT / "manifests" / "vectors"
TRUST = (TRUSTED.trusted(),)
WORDS = frozenset(
    [
        "_type",
        "subject",
        "name",
        "digest",
        "sha256",
        "predicateType",
        "predicate",
        "serialization",
        "method",
        "files",
        "hash_type",
        "allow_symlinks",
        "ignore_paths",
        "resources",
        "algorithm",
        "payload",
    ]
) | {oms.STATEMENT_TYPE, oms.PREDICATE_TYPE}


def check(data: bytes) -> bool:
    """What is accepted is what another parser reads; paths stay inside; the subject is right."""
    bundle = _bundle(data)
    by_oms, by_attest = False, False
    try:
        signed = verify_payload(bundle, TRUST)
        by_oms = True
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} == {"AOTC-G004"}
    try:
        said = statements.verify(bundle, TRUST)
        by_attest = True
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} == {"AOTC-G004"}
    if not (by_oms or by_attest):
        return False
    statement = json.loads(data.decode("utf-8"), parse_int=json_number)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    if by_oms:
        _check_oms(statement, dict(signed.digests))
    if by_attest:
        claim = statements.read_unverified(bundle)
        assert claim.predicate_type == statement["predicateType"]
        assert said.predicate == claim.predicate == statement.get("predicate")
        subjects = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
        assert said.subjects == claim.subjects == subjects
        assert len(subjects) == len(statement["subject"])
        assert claim.hint == TRUSTED.key_id
    return True


def _check_oms(statement: dict[str, object], digests: dict[str, str]) -> None:
    resources = statement["predicate"]["resources"]  # type: ignore[index]
    assert digests == {resource["name"]: resource["digest"] for resource in resources}
    assert len(digests) == len(resources) > 0
    for name, digest in digests.items():
        path = PurePosixPath(name)
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert str(path) == name
        assert "\\" not in name
        assert len(bytes.fromhex(digest)) == 32
    joined = b"".join(bytes.fromhex(resource["digest"]) for resource in resources)
    (subject,) = statement["subject"]  # type: ignore[misc]
    assert subject["digest"] == {"sha256": hashlib.sha256(joined).hexdigest()}


def _bundle(payload: bytes) -> bytes:
    """These bytes, validly signed."""
    signature = TRUSTED.sign(dsse.pae(dsse.IN_TOTO, payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": dsse.IN_TOTO,
        "signatures": [{"sig": base64.b64encode(signature).decode()}],
    }
    claim = {"publicKey": {"hint": TRUSTED.key_id}}
    return json.dumps(
        {
            "mediaType": dsse.BUNDLE_MEDIA_TYPE,
            "verificationMaterial": claim,
            "dsseEnvelope": envelope,
        }
    ).encode()


def _resized(data: bytes, size: int, seed: int) -> bytes | None:
    """A changed statement; every other time the subject is adapted to its files."""
    made = mutated(data, size, seed)
    if made is None or seed % 2:
        return made
    try:
        statement = json.loads(made)
        digests = [item["digest"] for item in statement["predicate"]["resources"]]
        statement["subject"] = [{"name": "p", "digest": {"sha256": oms.root_digest(digests)}}]
    except (ValueError, TypeError, KeyError):
        return made
    fitting = json.dumps(statement).encode()
    return fitting if len(fitting) <= size else made


def seeds() -> Iterator[bytes]:
    """The statements that the published vectors signed."""
    for path in sorted(VECTORS.glob("*/*.sigstore.json")):
        try:
            yield dsse.parse(path.read_bytes()).payload
        except AotcError:
            continue
    yield dsse.parse(oms.sign({"a/b": "0" * 64, "c": "1" * 64}, TRUSTED)).payload


TARGET = Target("statement", check, seeds, WORDS, 4096, _resized)
