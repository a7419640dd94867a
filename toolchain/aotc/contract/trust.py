"""Trust: which public keys may vouch for an artifact. For now a plain list of PEM keys."""

from __future__ import annotations

import re

from aotc.contract.parsing import record

PEM = re.compile(
    r"-----BEGIN PUBLIC KEY-----\s+[A-Za-z0-9+/=\s]+?-----END PUBLIC KEY-----", re.ASCII
)


@record
class TrustedKey:
    """A P-256 public key (SPKI, PEM) and where it came from."""

    pem: str
    origin: str
    development: bool = False


def split_pem(text: str) -> tuple[str, ...]:
    """Every `PUBLIC KEY` block of a text, in order."""
    return tuple(match[0] + "\n" for match in PEM.finditer(text))
