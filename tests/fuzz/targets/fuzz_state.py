"""A user's record of policies and releases: it is kept or refused, but never restarted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from edited_artifact import make_place
from fuzz_target import Target
from structured import mutated, words_of

from aotc.base.errors import AotcError
from aotc.spec.reports import ArtifactRelease
from aotc.trust.policy.state import SeenPolicy, StateFile, TrustState

STATE = StateFile(make_place() / "trust-state.json")
NOW = datetime(2027, 1, 1, tzinfo=UTC)
UNREADABLE = {"AOTC-G035", "AOTC-I046"}
# What says that something later was seen.
LATER = {"AOTC-G022", "AOTC-G030", "AOTC-G036"}


def check(data: bytes) -> bool:
    """What is read is still there after a policy and a release were recorded."""
    STATE.path.write_bytes(data)
    try:
        before = STATE.read()
    except AotcError as error:
        assert error.code in UNREADABLE
        return False
    name = next(iter(before.policies), "prod")
    model = next(iter(before.artifacts), "m")
    seen = SeenPolicy(sequence=2**53 - 1, sha256="0" * 64)
    release = ArtifactRelease(kind="version", value="9.9")
    try:
        STATE.note_policy(name, seen, NOW, exact=True)
        STATE.note_artifact(model, release, NOW, allowed=False)
    except AotcError as error:
        assert error.code in LATER | UNREADABLE, error.line()
    after = STATE.read()
    for other, known in before.policies.items():
        assert after.policies[other].sequence >= known.sequence
    assert set(before.artifacts) <= set(after.artifacts)
    assert before.latest is None or after.latest is not None
    return True


def seeds() -> Iterator[bytes]:
    """An empty record, one with content, and one that aotc never writes."""
    full = {
        "schema": "aotc.trust-state/1",
        "latest": "2026-12-31T00:00:00Z",
        "policies": {"prod": {"sequence": 3, "sha256": "1" * 64}},
        "artifacts": {"m": {"kind": "version", "value": "1.2.0"}, "n": {"kind": "built"}},
    }
    yield json.dumps(full).encode()
    yield json.dumps({**full, "artifacts": {}}).encode()
    yield json.dumps({**full, "artifacts": {}, "latest": None}).encode()
    yield from (b"", b"{}", b"null", b'{"schema": "aotc.trust-state/2"}')


TARGET = Target("state", check, seeds, words_of(TrustState), 2048, mutated)
