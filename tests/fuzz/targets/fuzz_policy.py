"""Trust policies and the root keys of a host: YAML about whom to trust."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz_target import Target
from made_keys import AUTHORITY, TRUSTED, signer
from structured import mutated, words_of

from aotc.base.errors import AotcError
from aotc.spec.codec import decode, encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.trust_policy import RootKeys, TrustPolicy
from aotc.spec.yaml import yaml_text
from aotc.trust.policy.document import parse_policy, read_roots

_FOLDER = tempfile.TemporaryDirectory(prefix="aotc-fuzz-")
atexit.register(_FOLDER.cleanup)
REFUSED = {"AOTC-G019", "AOTC-I046"}
FILE = Path(_FOLDER.name) / "file.yaml"


def check(data: bytes) -> bool:
    """Only AOTC-G019; what is accepted is written and read back unchanged."""
    try:
        policy = parse_policy(data, FILE).policy
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} <= REFUSED
    else:
        _check_policy(policy)
        return True
    FILE.write_bytes(data)
    try:
        roots = read_roots(FILE)
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} <= REFUSED
        return False
    assert 0 < roots.threshold <= len(roots.keys) == len(set(roots.keys))
    FILE.write_text(yaml_text(roots), encoding="utf-8")
    assert read_roots(FILE) == roots
    return True


def _check_policy(policy: TrustPolicy) -> None:
    for full in (True, False):
        text = yaml_text(policy, full=full).encode("utf-8")
        assert parse_policy(text, FILE).policy == policy
    assert decode(TrustPolicy, strict_json(canonical_json(encode(policy)))) == policy
    holders = {item.id: item for item in policy.signers()}
    assert len(holders) == len(policy.signers())
    assert len({key.pem for key in policy.keys}) == len(policy.keys)
    # A rule that asks for nothing, or for nobody, would let everything in.
    assert policy.rules
    for rule in policy.rules:
        assert rule.require
        for need in rule.require:
            assert need.threshold >= 1
            assert need.signers
            assert all(need.predicate in holders[item].usage for item in need.signers)


def seeds() -> Iterator[bytes]:
    """A policy with every field, small ones, and root keys."""
    more = signer("aotc fuzzing: another key, public to all")
    full = {
        "schema": "aotc.trust/1",
        "name": "all",
        "sequence": 3,
        "valid_from": "2026-01-01T00:00:00Z",
        "expires": "2126-01-01T00:00:00Z",
        "keys": [
            {"id": "a", "pem": TRUSTED.public_pem, "usage": ["oms", "provenance", "approval"]},
            {
                "id": "b",
                "pem": more.public_pem,
                "usage": ["qualification"],
                "valid_from": "2026-01-01T00:00:00Z",
                "valid_until": "2027-01-01T00:00:00Z",
                "revoked": "lost",
            },
        ],
        "authorities": [{"id": "ca", "pem": AUTHORITY.pem, "usage": ["oms"]}],
        "identities": [
            {"id": "ci", "identity": "a@example.com", "issuer": "https://i", "usage": ["oms"]}
        ],
        "rules": [
            {
                "name": "prod",
                "match": {"name": "m-*", "channel": "prod"},
                "require": [
                    {"predicate": "oms", "signers": ["a", "ca", "ci"], "threshold": 2},
                    {"predicate": "provenance", "signers": ["a"], "builders": ["urn:x"]},
                    {"predicate": "approval", "signers": ["a"], "max_age": 30, "channel": "prod"},
                    {"predicate": "qualification", "signers": ["b"], "target": "any"},
                ],
                "min_version": "1.4.0",
            }
        ],
        "revoked": {"artifacts": ["0" * 64], "keys": ["b", "1" * 64]},
        "limits": {"payload_bytes": 1, "files": 2, "bundles": 3},
        "min_versions": {"m-1": "1.2", "m-2": "2027-01-01T00:00:00Z"},
        "rollback": ["2" * 64],
    }
    small = {
        "schema": "aotc.trust/1",
        "name": "s",
        "sequence": 1,
        "expires": "2126-01-01T00:00:00Z",
        "keys": full["keys"][:1],  # type: ignore[index]
        "rules": [
            {
                "name": "r",
                "match": {"name": "*"},
                "require": [{"predicate": "oms", "signers": ["a"]}],
            }
        ],
    }
    roots = {
        "schema": "aotc.root/1",
        "policy": "plant",
        "threshold": 2,
        "keys": [TRUSTED.public_pem, more.public_pem],
    }
    for item in (full, small, roots):
        yield json.dumps(item).encode()
    yield yaml_text(decode(TrustPolicy, full)).encode()
    yield yaml_text(decode(RootKeys, roots)).encode()
    yield b"a: &x [1]\nb: *x\n"


WORDS = words_of(TrustPolicy, RootKeys) | {
    "aotc.root/2",
    "!!binary",
    "!!python/name:os.system",
}
TARGET = Target("policy", check, seeds, WORDS, 8192, mutated)
