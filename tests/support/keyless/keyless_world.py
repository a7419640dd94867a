"""An instance of sigstore: CA, certificate log, transparency log and trusted root, in memory.

Formats: RFC 6962 (signed certificate timestamps), RFC 9162 (Merkle leaf), the checkpoint of
transparency-dev, and the sigstore bundle specification.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from aotc.spec.json import canonical_json
from aotc.trust import dsse

ISSUER_EXTENSION = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
TIMESTAMPS_EXTENSION = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
SIGNED_AT = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def ecdsa(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    return key.sign(message, ec.ECDSA(hashes.SHA256()))


def usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass(frozen=True)
class World:
    """The keys of one instance of sigstore."""

    authority: ec.EllipticCurvePrivateKey
    root: x509.Certificate
    certificate_log: ec.EllipticCurvePrivateKey
    log: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls) -> World:
        authority, certificate_log, log = (ec.generate_private_key(ec.SECP256R1()) for _ in "abc")
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "short-lived")])
        public = authority.public_key()
        root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(SIGNED_AT - timedelta(days=9))
            .not_valid_after(SIGNED_AT + timedelta(days=999))
            .add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(usage(certificates=True), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
            .sign(authority, hashes.SHA256())
        )
        return cls(authority, root, certificate_log, log)

    def write_trusted_root(self, path: Path) -> Path:
        """Write what verifiers of this instance trust."""
        path.write_text(json.dumps(self.trusted_root()))
        return path

    def trusted_root(self, timestamping: Sequence[x509.Certificate] = ()) -> dict[str, Any]:
        """The same as data, with a chain of certificates for timestamps, its root last."""
        began = (SIGNED_AT - timedelta(days=9)).strftime("%Y-%m-%dT%H:%M:%SZ")

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            return {
                "baseUrl": "https://log.example.com",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": text(spki(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": began},
                },
                "logId": {"keyId": text(hashlib.sha256(spki(key)).digest())},
            }

        def authority(chain: Sequence[x509.Certificate]) -> dict[str, Any]:
            listed = [text(item.public_bytes(serialization.Encoding.DER)) for item in chain]
            return {
                "subject": {"organization": "example", "commonName": "short-lived"},
                "uri": "https://ca.example.com",
                "certChain": {"certificates": [{"rawBytes": item} for item in listed]},
                "validFor": {"start": began},
            }

        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log)],
            "certificateAuthorities": [authority([self.root])],
            "ctlogs": [log(self.certificate_log)],
            "timestampAuthorities": [authority(timestamping)] if timestamping else [],
        }

    def certificate(
        self, key: ec.EllipticCurvePublicKey, who: str, issuer: str, at: datetime = SIGNED_AT
    ) -> bytes:
        """The DER of a certificate that is valid for ten minutes, with its log's promise."""
        public = self.authority.public_key()
        name = (
            x509.RFC822Name(who)
            if "@" in who.split("/")[0]
            else x509.UniformResourceIdentifier(who)
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.root.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(at - timedelta(minutes=1))
            .not_valid_after(at + timedelta(minutes=9))
            .add_extension(usage(certificates=False), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False)
            .add_extension(x509.SubjectAlternativeName([name]), True)
            .add_extension(x509.UnrecognizedExtension(ISSUER_EXTENSION, issuer.encode()), False)
        )
        unlogged = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        promise = x509.UnrecognizedExtension(TIMESTAMPS_EXTENSION, self._listed(unlogged, at))
        made = builder.add_extension(promise, False).sign(self.authority, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.DER)

    def _listed(self, unlogged: bytes, at: datetime) -> bytes:
        """A list of one signed certificate timestamp, in an OCTET STRING."""
        moment = struct.pack(">Q", int(at.timestamp() * 1000))
        issuer = hashlib.sha256(spki(self.authority)).digest()
        entry = issuer + len(unlogged).to_bytes(3, "big") + unlogged
        # Version 1, a certificate's timestamp, of a certificate to be, without extensions.
        signed = b"\x00\x00" + moment + b"\x00\x01" + entry + b"\x00\x00"
        signature = ecdsa(self.certificate_log, signed)
        log = hashlib.sha256(spki(self.certificate_log)).digest()
        # Digest SHA-256 (4), signature ECDSA (3).
        stamp = b"\x00" + log + moment + b"\x00\x00\x04\x03"
        stamp += struct.pack(">H", len(signature)) + signature
        listed = struct.pack(">H", len(stamp) + 2) + struct.pack(">H", len(stamp)) + stamp
        return b"\x04" + _length(len(listed)) + listed

    def bundle(self, statement: Any, who: str, issuer: str) -> dict[str, Any]:
        """A keyless bundle over a statement, in the first entry of the log."""
        key = ec.generate_private_key(ec.SECP256R1())
        der = self.certificate(key.public_key(), who, issuer)
        payload = canonical_json(statement)
        signature = ecdsa(key, dsse.pae(dsse.IN_TOTO, payload))
        pem = x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
        body = logged_body(payload, "0" * 64, text(signature), text(pem))
        return {
            "mediaType": dsse.BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {
                "certificate": {"rawBytes": text(der)},
                "tlogEntries": [self._entry(body)],
            },
            "dsseEnvelope": {
                "payload": text(payload),
                "payloadType": dsse.IN_TOTO,
                "signatures": [{"sig": text(signature)}],
            },
        }

    def _entry(self, body: bytes) -> dict[str, Any]:
        log = hashlib.sha256(spki(self.log)).digest()
        root = hashlib.sha256(b"\x00" + body).digest()
        moment = int(SIGNED_AT.timestamp())
        return {
            "logIndex": "0",
            "logId": {"keyId": text(log)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(moment),
            "inclusionPromise": {"signedEntryTimestamp": text(self.promise(body, moment, 0))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": text(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": self.checkpoint(1, root)},
            },
            "canonicalizedBody": text(body),
        }

    def promise(self, body: bytes, moment: int, index: int) -> bytes:
        """The log's signature for an entry that it accepted."""
        log = hashlib.sha256(spki(self.log)).hexdigest()
        said = {"body": text(body), "integratedTime": moment, "logID": log, "logIndex": index}
        return ecdsa(self.log, canonical_json(said))

    def checkpoint(self, size: int, root: bytes) -> str:
        """The log's signature of its whole tree."""
        note = f"log.example.com\n{size}\n{text(root)}\n"
        log = hashlib.sha256(spki(self.log)).digest()
        signed = text(log[:4] + ecdsa(self.log, note.encode()))
        return f"{note}\n\u2014 log.example.com {signed}\n"


def logged_body(payload: bytes, envelope: str, signature: str, certificate: str) -> bytes:
    """A log's entry for an envelope: digests, the signature and the signer's PEM (base64)."""
    return canonical_json(
        {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": envelope},
                "payloadHash": {
                    "algorithm": "sha256",
                    "value": hashlib.sha256(payload).hexdigest(),
                },
                "signatures": [{"signature": signature, "verifier": certificate}],
            },
        }
    )


def _length(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(raw)]) + raw
