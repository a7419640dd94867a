"""The signature of a payload, verified alone: what the gate does with each bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from aotc.spec.trust_anchors import Anchor, TrustedKey
from aotc.trust import dsse, oms
from aotc.trust.bundles import verify_bundle


@dataclass(frozen=True)
class SignedPayload:
    """The sha256 (hex) of every file by its path in the payload, and the key that signed them."""

    digests: Mapping[str, str]
    key: TrustedKey


def verify_payload(
    bundle: bytes, anchors: Iterable[Anchor], *, at: datetime | None = None
) -> SignedPayload:
    """The digests that a trusted key signed; raises what reading and verifying a bundle do."""
    verified = verify_bundle(dsse.parse(bundle), anchors, at=at)
    return SignedPayload(oms.read_digests(verified.payload), verified.key)
