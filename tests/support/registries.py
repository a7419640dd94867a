"""Debian's docker-registry on loopback: 2.8, which has no referrers API."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

USER, PASSWORD = "pusher", "secret"
# bcrypt of the password, which is all that docker-registry takes.
HTPASSWD = f"{USER}:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n"


@dataclass(frozen=True)
class Registry:
    """A registry that runs: `127.0.0.1:PORT`, where it keeps its files, and who vouches for it."""

    host: str
    folder: Path
    ca: Path | None = None

    def blobs(self) -> set[str]:
        """The digests of all blobs and manifests that it keeps."""
        found = self.folder.glob("data/docker/registry/v2/blobs/sha256/*/*/data")
        return {f"sha256:{path.parent.name}" for path in found}

    def blob_file(self, digest: str) -> Path:
        """The file of a blob, which a test may spoil."""
        name = digest.removeprefix("sha256:")
        return self.folder / f"data/docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data"


@contextmanager
def docker_registry(
    folder: Path, *, users: bool = False, tls: bool = False, deletes: bool = True
) -> Iterator[Registry]:
    """Run one whose files are in `folder`; with `users`, `USER` and `PASSWORD` are asked for.

    With `tls`, it has a certificate for 127.0.0.1 and localhost of a CA that nobody else trusts.
    """
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian's package of that name)")
    folder.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    http: dict[str, object] = {"addr": "127.0.0.1:0", "secret": "of these tests"}
    stated: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(folder / "data")},
            "delete": {"enabled": deletes},
        },
        "http": http,
    }
    if users:
        (folder / "htpasswd").write_text(HTPASSWD)
        stated["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    if tls:
        write_certificates(folder)
        http["tls"] = {"certificate": str(folder / "server.pem"), "key": str(folder / "server.key")}
    (folder / "registry.yml").write_text(json.dumps(stated))
    log = folder / "registry.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [program, "serve", str(folder / "registry.yml")],
            stdout=written,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        host = _address(process, log)
        yield Registry(host, folder, folder / "ca.pem" if tls else None)
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    while True:
        text = log.read_text(errors="replace")
        if found := re.search(r"listening on (127\.0\.0\.1:\d+)", text):
            return found[1]
        assert process.poll() is None, text
        time.sleep(0.01)


@contextmanager
def cutting_proxy(host: str, *cuts: int | None) -> Iterator[str]:
    """Pass connections on to `host`; the n-th is closed after `cuts[n]` bytes of the client.

    None closes none, as do those after the last.  Yields the host that is to be asked.
    """
    left = list(cuts)
    name, _, port = host.partition(":")

    def pump(source: socket.socket, target: socket.socket, limit: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while block := source.recv(1 << 16):
                passed += len(block)
                if limit is not None and passed > limit:
                    target.sendall(block[: len(block) - (passed - limit)])
                    break
                target.sendall(block)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve(client: socket.socket, limit: int | None) -> None:
        with client, socket.create_connection((name, int(port))) as registry:
            back = threading.Thread(target=pump, args=(registry, client, None))
            back.start()
            pump(client, registry, limit)
            back.join()

    # Called by the one thread that accepts, so in the order in which clients come.
    with listening(lambda client: partial(serve, client, left.pop(0) if left else None)) as there:
        yield there


@contextmanager
def listening(
    answering: Callable[[socket.socket], Callable[[], object]],
) -> Iterator[str]:
    """Yields a host on loopback; each client gets a thread, which does what `answering` returns."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=answering(client), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()


def write_certificates(folder: Path) -> None:
    """A CA (ca.pem), and a certificate of it for loopback (server.pem, server.key)."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA of tests")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)

    def certificate(
        subject: x509.Name, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
        )

    ca = (
        certificate(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                *[False] * 5,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    server = (
        certificate(name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(server.public_bytes(Encoding.PEM))
    (folder / "server.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def log_in(folder: Path, host: str, user: str = USER, password: str = PASSWORD) -> Path:
    """What `docker login` writes into `folder`, which `DOCKER_CONFIG` is to name."""
    folder.mkdir(parents=True, exist_ok=True)
    auth = b64encode(f"{user}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return folder
