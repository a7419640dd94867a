"""Chains of certificates: each certificate after its length in two bytes, the leaf first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzz_target import Target
from made_keys import AUTHORITY, LEAF, LOWER_LEAF, MIDDLE, NOW, ROOT, certificate, signer

from aotc.base.errors import AotcError
from aotc.trust import certificates

# Only these were certified for signing; by their bytes, as no bit of a certificate is free.
CERTIFIED = {LEAF: "leaf", LOWER_LEAF: "lower leaf"}
REFUSED = {"AOTC-G037", "AOTC-G038"}


def check(data: bytes) -> bool:
    """Only the two leaves are accepted, with their own keys; names can be shown."""
    chain = _split(data)
    if not chain:
        return False
    try:
        shown = certificates.claimed_name(chain)
        certificates.leaf_key(chain)
        assert shown.isprintable()
    except AotcError as error:
        assert error.code == "AOTC-G037"
    try:
        key = certificates.verify_chain(chain, (AUTHORITY,), NOW)
    except AotcError as error:
        for refusal in (error, *error.also):
            assert refusal.code in REFUSED
            assert f"{refusal.what}{refusal.found}{refusal.expected}".isprintable()
        return False
    assert chain[0] in CERTIFIED
    assert key.pem == signer(CERTIFIED[chain[0]]).public_pem
    assert key.origin == AUTHORITY.origin
    return True


def _split(data: bytes) -> list[bytes]:
    found = []
    while len(data) > 2 and len(found) < certificates.MAX_CERTIFICATES:
        size = int.from_bytes(data[:2], "big")
        found.append(data[2 : 2 + size])
        data = data[2 + size :]
    return found


def _joined(chain: Sequence[bytes]) -> bytes:
    return b"".join(len(item).to_bytes(2, "big") + item for item in chain)


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """Bytes of one certificate are changed; every third time the chain is."""
    chain = _split(data)
    if len(chain) < 2 or seed % 3:
        return None
    place = seed // 3 % len(chain)
    chain[0], chain[place] = chain[place], chain[0]
    made = _joined([*chain, chain[seed // 7 % len(chain)]][: 1 + seed % 5])
    return made if len(made) <= size else None


def seeds() -> Iterator[bytes]:
    """Good chains, others made of their parts, and a certificate without a purpose."""
    other = certificate("other", "stranger", ca=True)
    for chain in (
        [LEAF],
        [LOWER_LEAF, MIDDLE],
        [LOWER_LEAF],
        [LEAF, ROOT],
        [MIDDLE],
        [ROOT],
        [certificate("leaf", "stranger"), other],
        [certificate("deep", "low"), certificate("low", "middle", ca=True), MIDDLE],
    ):
        yield _joined(chain)


TARGET = Target("certificate", check, seeds, frozenset(), 4096, _mutate)
