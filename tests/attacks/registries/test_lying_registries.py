"""Registries that lie, lead elsewhere, refuse or break off while an artifact is pulled.

Each way has its code, and nothing of it is in the store; what a registry may do once, such as a
connection that is cut, is got over.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from referrers_registry import Fault, digest_of, referrers_registry
from registries import log_in, write_certificates
from shops import NAME, Shop, as_before, kept, shop

import aotc
from aotc.base.errors import AotcError
from aotc.registry import connection
from aotc.trust.key_loading import load_private

BLOBS = rf"GET /v2/{NAME}/blobs/"
MANIFEST = rf"GET /v2/{NAME}/manifests/"
PREDICATE = "dev.sigstore.bundle.predicateType"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def made(opened: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    # Between attempts; what a registry asks for is waited for all the same.
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)
    with as_before(opened, tmp_path) as restored:
        yield restored


def weights(made: Shop) -> str:
    """A pattern of the requests for the blob of the weights."""
    return BLOBS + made.layer("weights.bin")["digest"]


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


# -- lies
LIES: dict[str, tuple[Callable[[Shop], Fault], str]] = {
    "other bytes of the weights": (lambda made: Fault(weights(made), change=flipped), "AOTC-G005"),
    "fewer bytes than are told": (
        lambda made: Fault(weights(made), change=lambda b: b[:-1]),
        "AOTC-I204",
    ),
    "no bytes": (lambda made: Fault(weights(made), status=200), "AOTC-I205"),
    "another manifest than was asked for": (
        lambda made: Fault(MANIFEST, change=flipped),
        "AOTC-I205",
    ),
    "another digest than the manifest has": (
        lambda made: Fault(MANIFEST, headers={"Docker-Content-Digest": "sha256:" + "0" * 64}),
        "AOTC-I205",
    ),
    "a manifest without end": (
        lambda made: Fault(MANIFEST, status=200, body=b" " * 20_000_000),
        "AOTC-I206",
    ),
    "a manifest that is compressed": (
        lambda made: Fault(
            MANIFEST,
            status=200,
            headers={
                "Content-Encoding": "gzip",
                "Content-Type": "application/vnd.oci.image.manifest.v1+json",
            },
            body=gzip.compress(bytes(10_000_000)),
        ),
        "AOTC-I207",
    ),
    "weights that are compressed": (
        lambda made: Fault(
            weights(made),
            status=200,
            headers={"Content-Encoding": "gzip"},
            body=gzip.compress(bytes(10_000_000)),
        ),
        "AOTC-I207",
    ),
    "a page of a portal": (
        lambda made: Fault(
            "GET /v2/", status=200, headers={"Content-Type": "text/html"}, body=b"<html>Log in"
        ),
        "AOTC-I207",
    ),
}

# -- refusals
REFUSALS: dict[str, tuple[Callable[[Shop], Fault], str]] = {
    "who are you": (
        lambda made: Fault(
            "GET /v2/", status=401, headers={"WWW-Authenticate": 'Basic realm="tests"'}
        ),
        "AOTC-I199",
    ),
    "not you": (lambda made: Fault("GET /v2/", status=403), "AOTC-I199"),
    "nothing here": (lambda made: Fault("GET /v2/", status=404), "AOTC-I201"),
    "too many requests": (
        lambda made: Fault("GET /v2/", status=429, headers={"Retry-After": "0"}),
        "AOTC-I202",
    ),
    "too many requests for years": (
        lambda made: Fault("GET /v2/", status=429, headers={"Retry-After": "100000000"}),
        "AOTC-I202",
    ),
    "an error of the registry": (lambda made: Fault("GET /v2/", status=500), "AOTC-I202"),
    "a registry that is down": (lambda made: Fault("GET /v2/", status=503), "AOTC-I202"),
    "weights that are gone": (lambda made: Fault(weights(made), status=404), "AOTC-I201"),
    "weights that are cut each time": (lambda made: Fault(weights(made), cut_after=0), "AOTC-I204"),
}


@pytest.mark.parametrize("row", [*LIES, *REFUSALS])
def test_refused_with_a_code(made: Shop, row: str) -> None:
    fault, code = {**LIES, **REFUSALS}[row]
    made.registry.faults.append(fault(made))
    error = made.refused("1")
    assert error.code == code, error


def test_changed_weights_are_named(made: Shop) -> None:
    made.registry.faults.append(Fault(weights(made), change=flipped))
    assert "weights.bin" in made.refused("1").where


# -- what passes by itself
@pytest.mark.parametrize(
    "fault",
    [
        lambda made: Fault("GET /v2/", status=429, headers={"Retry-After": "0"}, times=2),
        lambda made: Fault("GET /v2/", status=503, times=2),
        lambda made: Fault(weights(made), cut_after=100_000, times=2),
        lambda made: Fault(MANIFEST, cut_after=10, times=1),
    ],
    ids=["too many requests", "down", "cut weights", "a cut manifest"],
)
@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_got_over(made: Shop, fault: Callable[[Shop], Fault], ranges: bool) -> None:
    made.registry.ranges = ranges
    made.registry.faults.append(fault(made))
    made.pull()
    (entry,) = made.store.glob("sha256-*")
    assert contents_of(entry / "payload") == contents_of(made.artifact / "payload")


def test_a_cut_download_goes_on_where_it_was(made: Shop) -> None:
    """By a range from there on."""
    made.registry.faults.append(Fault(weights(made), cut_after=100_000, times=1))
    made.pull()
    asked = [
        each for each in made.registry.asked if made.layer("weights.bin")["digest"] in str(each)
    ]
    ranges = [each.headers.get("Range") for each in asked if each.method == "GET"]
    assert any((each or "").startswith("bytes=100000-") for each in ranges), ranges


def test_another_part_than_was_asked_for(made: Shop) -> None:
    made.registry.faults.append(Fault(weights(made), cut_after=100_000, times=1))
    made.registry.faults.append(
        Fault(weights(made), headers={"Content-Range": "bytes 0-200079/300080"})
    )
    assert made.refused("1").code == "AOTC-I205"


def test_more_bytes_than_are_told_are_not_read(made: Shop) -> None:
    endless = Fault(weights(made), headers={"Content-Length": None}, change=lambda b: b * 100)
    made.registry.faults.append(endless)
    made.pull()
    (entry,) = made.store.glob("sha256-*")
    assert contents_of(entry / "payload") == contents_of(made.artifact / "payload")


# -- elsewhere
class Elsewhere:
    """Another host, which keeps what it was asked with."""

    def __init__(self, body: bytes) -> None:
        asked: list[dict[str, str]] = []
        self.asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def elsewhere(made: Shop) -> Iterator[Elsewhere]:
    """Which has the bytes of the weights."""
    served = Elsewhere(made.registry.blobs[made.layer("weights.bin")["digest"]])
    yield served
    served.close()


def _redirect(made: Shop, target: str) -> None:
    made.registry.faults.append(Fault(weights(made), status=307, headers={"Location": target}))


def test_no_credentials_go_to_another_host(
    made: Shop, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs may lie with another service, which is none of the registry's secrets."""
    made.registry.auth = "basic"
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", made.registry.host)))
    _redirect(made, f"http://{elsewhere.host}/blob")
    made.pull()
    assert elsewhere.asked
    for headers in elsewhere.asked:
        assert not {"authorization", "cookie", "proxy-authorization"} & set(headers)


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x", "http://", "//[::", "\x00"],
)
def test_leads_to_nothing_that_is_followed(made: Shop, target: str) -> None:
    _redirect(made, target)
    assert made.refused("1").code == "AOTC-I203"


def test_leads_in_a_circle(made: Shop) -> None:
    _redirect(made, f"/v2/{NAME}/blobs/{made.layer('weights.bin')['digest']}")
    assert made.refused("1").code == "AOTC-I203"


def test_leads_from_tls_to_plain_text(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, made: Shop
) -> None:
    key = load_private(made.public.with_suffix(".pem"))
    artifact = build_artifact(tmp_path / "b.aotc", key, padding=300_000)
    with referrers_registry(tmp_path / "tls") as secure:
        monkeypatch.setenv("AOTC_OCI_CA", str(secure.ca))
        reference = f"oci://{secure.host}/{NAME}:1"
        aotc.push(artifact, reference)
        secure.faults.append(
            Fault(BLOBS, status=307, headers={"Location": f"http://{elsewhere.host}/blob"})
        )
        with pytest.raises(AotcError) as caught:
            aotc.pull(reference, key=made.public, store=made.store)
    assert caught.value.code == "AOTC-I203"
    assert elsewhere.asked == []
    assert kept(made.store) == []


def test_a_certificate_of_another_authority_is_refused(
    made: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_certificates(tmp_path)
    monkeypatch.setenv("AOTC_OCI_CA", str(tmp_path / "ca.pem"))
    with referrers_registry(tmp_path / "tls") as secure:
        with pytest.raises(AotcError) as caught:
            aotc.pull(f"oci://{secure.host}/{NAME}:1", key=made.public, store=made.store)
        assert secure.asked == []
    assert caught.value.code == "AOTC-I198"


def test_nobody_answers(made: Shop) -> None:
    with pytest.raises(AotcError) as caught:
        aotc.pull(f"oci://127.0.0.1:1/{NAME}:1", key=made.public, store=made.store)
    assert caught.value.code == "AOTC-I197"


def test_plain_text_is_for_loopback_alone(made: Shop) -> None:
    """No request goes out: the name is one that nobody has."""
    with pytest.raises(AotcError) as caught:
        aotc.pull(f"oci://registry.invalid/{NAME}:1", key=made.public, store=made.store)
    assert caught.value.code == "AOTC-I197"


# -- moves
def test_a_tag_that_moves_is_resolved_once(made: Shop) -> None:
    """Whatever it names later: what is pulled is what it named first, and that digest is told."""
    other = json.loads(json.dumps(made.manifest()))
    other["annotations"] = {"other": "manifest"}
    repo = made.registry.repo(NAME)
    digest = made.add_manifest(repo.manifests[made.digest][0], other)
    made.registry.faults.append(
        Fault(MANIFEST + "1$", after=1, then=lambda: repo.tags.update({"1": digest}))
    )
    moved = [False]

    def move() -> None:
        moved[0] = True
        repo.tags["1"] = digest

    made.registry.faults.append(Fault(BLOBS, times=1, then=move))
    report = made.pull()
    assert moved[0]
    assert made.digest in json.dumps(
        report.to_dict() if hasattr(report, "to_dict") else str(report)
    )
    named = [each for each in made.registry.requests(MANIFEST) if each.endswith("/1")]
    assert len(named) == 1
    (entry,) = made.store.glob("sha256-*")
    assert contents_of(entry / "payload") == contents_of(made.artifact / "payload")


# -- referrers
def _lie_about_referrers(made: Shop, change: Callable[[Any], object]) -> None:
    def changed(content: bytes) -> bytes:
        document = json.loads(content)
        answer = change(document)
        return answer if isinstance(answer, bytes) else json.dumps(document).encode()

    made.registry.faults.append(
        Fault(f"GET /v2/{NAME}/referrers/", headers={"Content-Length": None}, change=changed)
    )


def _of_another_subject(made: Shop) -> dict[str, Any]:
    """A referrer of another manifest, as the registry lists it among those of this one."""
    repo = made.registry.repo(NAME)
    listed = next(
        document
        for _, content in repo.manifests.values()
        if (document := json.loads(content)).get("subject", {}).get("digest") == made.digest
    )
    referrer = json.loads(json.dumps(listed))
    referrer["subject"]["digest"] = digest_of(b"another")
    digest = made.add_manifest("application/vnd.oci.image.manifest.v1+json", referrer)
    return {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": digest,
        "size": len(repo.manifests[digest][1]),
        "artifactType": BUNDLE,
        "annotations": referrer.get("annotations", {}),
    }


REFERRERS: dict[str, tuple[Callable[[Shop], Callable[[Any], object]], str]] = {
    "of another subject": (
        lambda made: lambda index: index["manifests"].append(_of_another_subject(made)),
        "AOTC-I215",
    ),
    "without an end": (
        lambda made: lambda index: index["manifests"].extend(index["manifests"][:1] * 20_000),
        "AOTC-I206",
    ),
    "no JSON": (lambda made: lambda index: b"<html>", "AOTC-I207"),
    "no index": (lambda made: lambda index: b"[]", "AOTC-I207"),
    "a digest of another manifest": (
        lambda made: lambda index: index["manifests"][0].update(digest=made.digest),
        "AOTC-I207",
    ),
    "a digest that is a path": (
        lambda made: lambda index: index["manifests"][0].update(digest="sha256:../../../../x"),
        "AOTC-I207",
    ),
    "a size that is a lie": (
        lambda made: lambda index: index["manifests"][0].update(size=1 << 60),
        "AOTC-I207",
    ),
}


@pytest.mark.parametrize("row", REFERRERS)
def test_referrers_that_are_lies(made: Shop, row: str) -> None:
    change, code = REFERRERS[row]
    _lie_about_referrers(made, change(made))
    assert made.refused("1").code == code


def test_referrers_that_are_kept_back(made: Shop) -> None:
    """Without the signature, nobody vouches: no weights are asked for."""
    _lie_about_referrers(made, lambda index: index["manifests"].clear())
    assert made.refused("1").code == "AOTC-G001"
    assert made.registry.requests(weights(made)) == []


def test_a_referrer_that_is_gone_is_as_one_that_is_kept_back(made: Shop) -> None:
    """Such as after a registry cleaned up: a policy says what an artifact must have."""
    _lie_about_referrers(
        made,
        lambda index: next(
            each for each in index["manifests"] if "evidence" in each["annotations"][PREDICATE]
        ).update(digest="sha256:" + "0" * 64),
    )
    made.pull()
    (entry,) = made.store.glob("sha256-*")
    assert {path.name for path in (entry / "attestations").iterdir()} == {"oms.sigstore.json"}


def test_referrers_in_pages_without_end(made: Shop) -> None:
    made.registry.faults.append(
        Fault(
            f"GET /v2/{NAME}/referrers/",
            headers={"Link": f'</v2/{NAME}/referrers/{made.digest}?again=1>; rel="next"'},
        )
    )
    assert made.refused("1").code == "AOTC-I206"


def test_a_stranger_is_refused_before_weights_are_asked_for(made: Shop, tmp_path: Path) -> None:
    from aotc.trust.key_files import generate

    _, other = generate(tmp_path / "other.pem")
    report = aotc.verify(made.reference(), key=other)
    assert not report.authentic
    assert made.registry.requests(weights(made)) == []
    with pytest.raises(AotcError) as caught:
        aotc.pull(made.reference(), key=other, store=made.store)
    assert caught.value.code in {refusal.code for refusal in report.refusals}
    assert made.registry.requests(weights(made)) == []
    assert kept(made.store) == []
