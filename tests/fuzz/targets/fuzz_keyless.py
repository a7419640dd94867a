"""Keyless bundles and trusted roots: only what a certified key signed is accepted."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

from fuzz_target import Target
from keyless_world import World
from structured import mutated

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedIdentity
from aotc.trust import dsse
from aotc.trust.bundles import verify_bundle

# It warns of each key that it cannot load.
logging.getLogger("sigstore").setLevel(logging.CRITICAL)
WORLD = World.new()
WHO, ISSUER = "ci@example.com", "https://issuer.example.com"
STATEMENT = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "aotc.json", "digest": {"sha256": "0" * 64}}],
    "predicateType": "urn:x",
    "predicate": {},
}
ROOT = json.dumps(WORLD.trusted_root())
IDENTITY = TrustedIdentity(identity=WHO, issuer=ISSUER, origin="ci", trusted_root=ROOT)
BUNDLE = json.dumps(WORLD.bundle(STATEMENT, WHO, ISSUER)).encode()
REFUSED = {"AOTC-G002", "AOTC-G003", "AOTC-G004", "AOTC-G013", "AOTC-G037", "AOTC-G038"}
WORDS = frozenset(
    {"tlogEntries", "logIndex", "logId", "kindVersion", "integratedTime", "inclusionPromise"}
    | {"inclusionProof", "canonicalizedBody", "hashes", "treeSize", "rootHash", "checkpoint"}
    | {"certificateAuthorities", "ctlogs", "tlogs", "validFor", "publicKey", "certChain"}
)


def check(data: bytes) -> bool:
    """A first byte `r` makes it a trusted root for the good bundle, else it is a bundle."""
    bundle, identity = data, IDENTITY
    if data[:1] == b"r":
        try:
            text = data[1:].decode("utf-8")
        except UnicodeDecodeError:
            return False
        # Other text is a path, and policies are not asked for files here.
        if not text.lstrip().startswith("{"):
            return False
        bundle, identity = BUNDLE, replace(IDENTITY, trusted_root=text)
    try:
        verified = verify_bundle(dsse.parse(bundle), (identity,))
    except AotcError as error:
        for refusal in (error, *error.also):
            assert refusal.code in REFUSED, refusal.line()
        return False
    assert verified.payload == base64.b64decode(json.loads(BUNDLE)["dsseEnvelope"]["payload"])
    return True


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    if data[:1] == b"r":
        made = mutated(data[1:], size - 1, seed)
        return None if made is None else b"r" + made
    return mutated(data, size, seed)


def seeds() -> Iterator[bytes]:
    """The good bundle and root, and those of another instance."""
    yield BUNDLE
    yield b"r" + ROOT.encode()
    yield json.dumps(WORLD.bundle(STATEMENT, "else@example.com", ISSUER)).encode()
    other = World.new()
    yield json.dumps(other.bundle(STATEMENT, WHO, ISSUER)).encode()
    yield b"r" + json.dumps(other.trusted_root()).encode()


TARGET = Target("keyless", check, seeds, WORDS, 16384, _mutate)
