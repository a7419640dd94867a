"""Verify bundles of one statement with securesystemslib: enough distinct keys must have signed it.

Usage: python verify.py --threshold 2 --key A.pub --key B.pub BUNDLE BUNDLE
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey


def read_key(path: Path) -> SSlibKey:
    """A public key, under the id that bundles name it by."""
    public = load_pem_public_key(path.read_bytes())
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return SSlibKey.from_crypto(public, keyid=hashlib.sha256(pem).hexdigest())


def read_envelope(path: Path) -> Envelope:
    """The envelope of a bundle; the bundle's hint says whose signature it is."""
    bundle = json.loads(path.read_bytes())
    envelope = bundle["dsseEnvelope"]
    for signature in envelope["signatures"]:
        signature["keyid"] = bundle["verificationMaterial"]["publicKey"]["hint"]
    return Envelope.from_dict(envelope)


def main() -> int:
    """Verify what the command line names; 0 where enough keys signed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threshold", type=int, default=1)
    parser.add_argument("--key", type=Path, action="append", required=True)
    parser.add_argument("bundles", type=Path, nargs="+")
    asked = parser.parse_args()
    together, *others = map(read_envelope, asked.bundles)
    for each in others:
        if (each.payload, each.payload_type) != (together.payload, together.payload_type):
            print("the bundles hold different statements", file=sys.stderr)
            return 1
        together.signatures.update(each.signatures)
    try:
        signed = together.verify([read_key(path) for path in asked.key], asked.threshold)
    except (ValueError, VerificationError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"verified {json.loads(together.payload)['predicateType']} by {len(signed)} keys")
    return 0


if __name__ == "__main__":
    sys.exit(main())
