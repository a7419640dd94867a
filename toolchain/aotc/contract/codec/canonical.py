"""Canonical JSON (RFC 8785), so that equal documents have equal bytes."""

from __future__ import annotations

import hashlib

from aotc.contract.codec.parsing import Json


def canonical_json(value: Json) -> bytes:
    """`value` in the form of RFC 8785; raises `ValueError` for what JSON cannot hold."""
    import rfc8785

    return rfc8785.dumps(value)


def canonical_sha256(value: Json) -> str:
    """sha256 (hex) of the canonical form."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
