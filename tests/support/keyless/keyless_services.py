"""Sigstore's services on 127.0.0.1: certificate authority, both kinds of log, and timestamps.

They check what real ones check: the token's signature and audience, that the client holds the key,
and that an entry's signature is by its certificate.  Sources: Fulcio's HTTP API v2, Rekor's v1 and
v2, RFC 9162 (Merkle tree), RFC 3161 (timestamps, made by OpenSSL).
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from keyless_world import World, logged_body, spki, text, usage

from aotc.spec.json import canonical_json
from aotc.trust import dsse

CERTIFICATES = "/api/v2/signingCert"
ENTRIES = {1: "/api/v1/log/entries", 2: "/api/v2/log/entries"}
TIMESTAMPS = "/api/v1/timestamp"
Answer = tuple[int, bytes]


class Refusal(Exception):
    """A service refuses: the HTTP status, and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def leaf_hash(body: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + body).digest()


def tree(leaves: list[bytes]) -> bytes:
    """The root over hashes of leaves (RFC 9162, 2.1.1)."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + tree(leaves[:half]) + tree(leaves[half:])).digest()


def proof(leaves: list[bytes], index: int) -> list[bytes]:
    """The inclusion proof of a leaf (RFC 9162, 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    if index < half:
        return [*proof(leaves[:half], index), tree(leaves[half:])]
    return [*proof(leaves[half:], index - half), tree(leaves[:half])]


@dataclass
class Services:
    """One instance; `says` overrides the answer of a path, `asked` lists the paths in order.

    `name` derives the certificate's identity from a token; `job` are claims of the CI's tokens.
    """

    folder: Path
    world: World = field(default_factory=World.new)
    issuer_key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    says: dict[str, Callable[[], Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    name: Callable[[dict[str, Any]], str] = lambda claims: claims.get("email") or claims["sub"]
    job: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    bodies: list[bytes] = field(default_factory=lambda: [b"an entry of somebody else"])

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._timestamping = self._new_timestamping()

    def token(self, **claims: Any) -> str:
        """An identity token of this instance's issuer; a claim that is None is left out."""
        now = int(time.time())
        stated = {
            "iss": "https://token.example.com",
            "aud": "sigstore",
            "sub": "release-job",
            "iat": now,
            "nbf": now,
            "exp": now + 600,
            **claims,
        }
        kept = {name: value for name, value in stated.items() if value is not None}
        return jwt.PyJWS().encode(json.dumps(kept).encode(), self.issuer_key, algorithm="ES256")

    def trusted_root(self) -> dict[str, Any]:
        return self.world.trusted_root(self._timestamping)

    def config(self, log: int, url: str = "") -> dict[str, Any]:
        """The ClientTrustConfig for this instance with a log of this version."""
        began = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

        def service(path: str, version: int) -> dict[str, Any]:
            return {
                "url": (url or self.url) + path,
                "majorApiVersion": version,
                "validFor": {"start": began},
                "operator": "example.com",
            }

        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self.trusted_root(),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service("", 1)],
                "oidcUrls": [],
                "rekorTlogUrls": [service("", log)],
                "rekorTlogConfig": {"selector": "ANY"},
                # A log of the second version gives no time of its own.
                "tsaUrls": [service(TIMESTAMPS, 1)] if log == 2 else [],
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def answer(self, path: str, headers: Any, body: bytes) -> Answer:
        self.asked.append(path)
        try:
            if path in self.says:
                return self.says[path]()
            if path == CERTIFICATES:
                return 201, self._certify(str(headers["Authorization"]), json.loads(body))
            if path == ENTRIES[1]:
                return 201, self._log(json.loads(body))
            if path == ENTRIES[2]:
                return 201, self._log_again(json.loads(body))
            if path == TIMESTAMPS:
                return 201, self._timestamp(body)
        except Refusal as refusal:
            document = {"code": refusal.status, "message": str(refusal)}
            return refusal.status, json.dumps(document).encode()
        return 404, b"{}"

    def _certify(self, bearer: str, posted: dict[str, Any]) -> bytes:
        try:
            claims = jwt.decode(
                bearer.removeprefix("Bearer "),
                self.issuer_key.public_key(),
                algorithms=["ES256"],
                audience="sigstore",
            )
        except jwt.InvalidTokenError as error:
            raise Refusal(
                401, f"There was an error processing the identity token: {error}"
            ) from None
        pem = base64.b64decode(posted["certificateSigningRequest"])
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        if not request.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise Refusal(400, "the request is not signed by its key")
        now = datetime.now(UTC).replace(microsecond=0)
        issuer = claims.get("federated_claims", {}).get("connector_id") or claims["iss"]
        der = self.world.certificate(key, self.name(claims), issuer, now)
        chain = [x509.load_der_x509_certificate(der), self.world.root]
        listed = [
            certificate.public_bytes(serialization.Encoding.PEM).decode() for certificate in chain
        ]
        document = {"signedCertificateEmbeddedSct": {"chain": {"certificates": listed}}}
        return json.dumps(document).encode()

    def _log(self, posted: dict[str, Any]) -> bytes:
        stated = posted["spec"]["proposedContent"]
        raw, (verifier,) = stated["envelope"], stated["verifiers"]
        envelope = json.loads(raw)
        payload = base64.b64decode(envelope["payload"])
        certificate = x509.load_pem_x509_certificate(base64.b64decode(verifier))
        self._check(certificate, envelope["signatures"][0]["sig"], dsse.pae(dsse.IN_TOTO, payload))
        body = logged_body(
            payload,
            hashlib.sha256(raw.encode()).hexdigest(),
            envelope["signatures"][0]["sig"],
            verifier,
        )
        moment = int(time.time())
        with self._lock:
            index, root, path = self._add(body)
            size = len(self.bodies)
        entry = {
            "body": text(body),
            "integratedTime": moment,
            "logID": hashlib.sha256(spki(self.world.log)).hexdigest(),
            "logIndex": index,
            "verification": {
                "inclusionProof": {
                    "checkpoint": self.world.checkpoint(size, root),
                    "hashes": [digest.hex() for digest in path],
                    "logIndex": index,
                    "rootHash": root.hex(),
                    "treeSize": size,
                },
                "signedEntryTimestamp": text(self.world.promise(body, moment, index)),
            },
        }
        return json.dumps({leaf_hash(body).hex(): entry}).encode()

    def _log_again(self, posted: dict[str, Any]) -> bytes:
        stated = posted["hashedRekordRequestV002"]
        der = base64.b64decode(stated["signature"]["verifier"]["x509Certificate"]["rawBytes"])
        digest = base64.b64decode(stated["digest"])
        self._check(
            x509.load_der_x509_certificate(der), stated["signature"]["content"], digest, hashed=True
        )
        body = canonical_json(
            {
                "apiVersion": "0.0.2",
                "kind": "hashedrekord",
                "spec": {
                    "hashedRekordV002": {
                        "data": {"algorithm": "SHA2_256", "digest": stated["digest"]},
                        "signature": stated["signature"],
                    }
                },
            }
        )
        with self._lock:
            index, root, path = self._add(body)
            size = len(self.bodies)
        entry = {
            "logIndex": str(index),
            "logId": {"keyId": text(hashlib.sha256(spki(self.world.log)).digest())},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
            "inclusionProof": {
                "logIndex": str(index),
                "rootHash": text(root),
                "treeSize": str(size),
                "hashes": [text(digest) for digest in path],
                "checkpoint": {"envelope": self.world.checkpoint(size, root)},
            },
            "canonicalizedBody": text(body),
        }
        return json.dumps(entry).encode()

    def _check(
        self, certificate: x509.Certificate, signature: str, data: bytes, *, hashed: bool = False
    ) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        digest = Prehashed(hashes.SHA256()) if hashed else hashes.SHA256()
        try:
            key.verify(base64.b64decode(signature), data, ec.ECDSA(digest))
        except InvalidSignature:
            raise Refusal(400, "the signature is not by the certificate") from None

    def _add(self, body: bytes) -> tuple[int, bytes, list[bytes]]:
        self.bodies.append(body)
        leaves = [leaf_hash(body) for body in self.bodies]
        index = len(leaves) - 1
        return index, tree(leaves), proof(leaves, index)

    def _new_timestamping(self) -> list[x509.Certificate]:
        """Certificates for timestamps, the root last; key and leaf are written for OpenSSL."""
        root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in "ab")
        now = datetime.now(UTC)

        def named(name: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

        def builder(name: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
            return (
                x509.CertificateBuilder()
                .subject_name(named(name))
                .issuer_name(named("time root"))
                .public_key(public)
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - timedelta(days=1))
                .not_valid_after(now + timedelta(days=9))
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
                .add_extension(
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), False
                )
            )

        root = (
            builder("time root", root_key.public_key())
            .add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(usage(certificates=True), True)
            .sign(root_key, hashes.SHA256())
        )
        leaf = (
            builder("time", key.public_key())
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(usage(certificates=False), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), True)
            .sign(root_key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        (self.folder / "time.crt").write_bytes(leaf.public_bytes(pem))
        (self.folder / "time.pem").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        (self.folder / "time.cnf").write_text(
            "[time]\nserial = time.serial\nsigner_cert = time.crt\nsigner_key = time.pem\n"
            "signer_digest = sha256\ndefault_policy = 1.2.3.4\ndigests = sha256\n"
            "accuracy = secs:1\ness_cert_id_alg = sha256\n"
        )
        return [leaf, root]

    def _timestamp(self, query: bytes) -> bytes:
        (self.folder / "query").write_bytes(query)
        command = "openssl ts -reply -config time.cnf -section time -queryfile query -out reply"
        subprocess.run(command.split(), cwd=self.folder, check=True, capture_output=True)
        return (self.folder / "reply").read_bytes()


@contextmanager
def serving(folder: Path) -> Iterator[Services]:
    """An instance that answers on a free port of 127.0.0.1."""
    services = Services(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = services.answer(self.path, self.headers, body)
            self._send(status, answer)

        def do_GET(self) -> None:
            """The CI's answer to one of its jobs."""
            secret = self.headers["Authorization"] == "bearer job"
            answer = json.dumps({"value": services.token(**services.job)}).encode()
            self._send(200 if secret else 403, answer)

        def _send(self, status: int, answer: bytes) -> None:
            # The client may have closed the connection.
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Log nothing, as tests read standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        services.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield services
        finally:
            server.shutdown()
            thread.join()
