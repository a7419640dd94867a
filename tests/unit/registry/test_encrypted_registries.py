"""TLS: whose certificates are trusted, and where plain HTTP is spoken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from referrers_registry import Fault, ReferrersRegistry, referrers_registry
from registries import Registry, docker_registry, log_in
from test_transfers import put

from aotc.base.errors import AotcError
from aotc.registry.connection import Connection
from aotc.registry.references import parse_reference
from aotc.registry.repository import Repository

DIGEST = "sha256:" + "00" * 32


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Debian's with a certificate of its own CA, and a password."""
    with docker_registry(tmp_path_factory.mktemp("tls"), users=True, tls=True) as registry:
        yield registry


def refused(host: str, **options: object) -> AotcError:
    with pytest.raises(AotcError) as caught:
        Repository(parse_reference(f"{host}/a"), **options).has_blob(DIGEST)  # type: ignore[arg-type]
    return caught.value


def test_a_ca_is_trusted_where_it_is_named(
    encrypted: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", encrypted.host)))
    reference = parse_reference(f"{encrypted.host}/a")
    # What requests would take in place of ours.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    assert put(Repository(reference, ca=encrypted.ca), b"x")[1].how == "sent"
    monkeypatch.setenv("AOTC_OCI_CA", str(encrypted.ca))
    assert put(Repository(reference), b"x")[1].how == "present"


def test_another_ca_is_not(encrypted: Registry, tmp_path: Path) -> None:
    with referrers_registry(tmp_path / "other") as other:
        error = refused(encrypted.host, ca=other.ca)
    assert (error.code, error.what) == (
        "AOTC-I198",
        f"The certificate of {encrypted.host} is not trusted",
    )
    assert error.found.startswith("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    assert "AOTC_OCI_CA" in error.fix


def test_a_name_that_is_not_in_the_certificate(encrypted: Registry) -> None:
    port = encrypted.host.rpartition(":")[2]
    error = refused(f"127.1:{port}", ca=encrypted.ca)
    assert error.code == "AOTC-I198"


def test_plain_http_where_tls_is_expected(docker: Registry, encrypted: Registry) -> None:
    error = refused(docker.host, ca=encrypted.ca)
    assert (error.code, error.what) == (
        "AOTC-I198",
        f"No encrypted connection to {docker.host}",
    )
    assert error.fix.startswith(
        f"If the host speaks plain HTTP: --plain-http, or AOTC_OCI_PLAIN_HTTP={docker.host}."
    )
    # As the user says.
    reference = parse_reference(f"{docker.host}/a")
    assert not Repository(reference, ca=encrypted.ca, plain_http=True).has_blob(DIGEST)


def test_tls_where_plain_http_is_expected(encrypted: Registry) -> None:
    error = refused(encrypted.host)
    assert (error.code, error.found) == ("AOTC-I202", "400 Bad Request")
    assert "If it speaks TLS" in error.fix


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "No such file or directory"),
        ("a pipe", "it is a named pipe, not a plain file"),
        ("", "Empty certificate data"),
        ("certificate", "no start line: cadata does not contain a certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ""),
    ],
)
def test_a_ca_that_cannot_be_read(content: str | None, found: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content == "a pipe":
        os.mkfifo(path)
    elif content is not None:
        path.write_text(content)
    error = refused("registry.example", ca=path)
    assert (error.code, error.where) == ("AOTC-I208", str(path))
    assert error.found.startswith(found)


@pytest.mark.parametrize(
    ("host", "scheme"),
    [
        ("127.0.0.1:5000", "http"),
        ("127.7.7.7", "http"),
        ("localhost:5000", "http"),
        ("[::1]:5000", "http"),
        ("localhost.example", "https"),
        ("10.0.0.1:5000", "https"),
        ("ghcr.io", "https"),
        ("docker.io", "https"),
    ],
)
def test_plain_http_is_for_loopback_and_what_is_named(
    host: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Connection(host, plain_http=False, ca=None).scheme == scheme
    assert Connection(host, plain_http=True, ca=None).scheme == "http"
    for stated in (host, host.upper()):
        monkeypatch.setenv("AOTC_OCI_PLAIN_HTTP", f"a.example, {stated},")
        assert Connection(host, plain_http=False, ca=None).scheme == "http"
    assert Connection("other.example", plain_http=False, ca=None).scheme == "https"


def test_what_is_encrypted_leads_to_nothing_plain(ours: ReferrersRegistry, tmp_path: Path) -> None:
    with referrers_registry(tmp_path / "tls") as encrypted:
        away = {"Location": f"http://{ours.host}/v2/"}
        encrypted.faults.append(Fault(of="HEAD", status=307, headers=away))
        error = refused(encrypted.host, ca=encrypted.ca)
        assert (error.code, error.what) == (
            "AOTC-I203",
            f"{encrypted.host} sends to plain HTTP, from HTTPS",
        )
        # Nor is a token asked for there.
        encrypted.faults.clear()
        encrypted.auth, encrypted.realm = "bearer", f"http://{ours.host}/token"
        assert refused(encrypted.host, ca=encrypted.ca).code == "AOTC-I203"
    assert ours.asked == []
