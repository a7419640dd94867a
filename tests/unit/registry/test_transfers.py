"""Plain transfers with both registries: blobs, mounts, manifests and referrers."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from referrers_registry import ReferrersRegistry
from registries import log_in

from aotc.base.errors import AotcError
from aotc.registry.descriptors import MANIFEST, Descriptor
from aotc.registry.references import parse_reference
from aotc.registry.repository import Repository, Stored

EMPTY = Descriptor(
    media_type="application/vnd.oci.empty.v1+json",
    digest="sha256:" + hashlib.sha256(b"{}").hexdigest(),
    size=2,
)
LARGE = bytes(range(256)) * (5 << 12)  # 5 MiB: not sent in one request.


@pytest.fixture(params=["docker", "ours"])
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.getfixturevalue(request.param).host


def put(repository: Repository, content: bytes, **options: object) -> tuple[Descriptor, Stored]:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    stored = repository.put_blob(digest, len(content), lambda: io.BytesIO(content), **options)  # type: ignore[arg-type]
    media_type = "application/octet-stream"
    return Descriptor(media_type=media_type, digest=digest, size=len(content)), stored


def manifest(kind: str, *layers: Descriptor, subject: Descriptor | None = None) -> bytes:
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": kind,
        "config": EMPTY.to_json(),
        "layers": [layer.to_json() for layer in layers],
    }
    if subject is not None:
        document["subject"] = subject.to_json()
    return json.dumps(document).encode()


def test_a_blob_is_sent_once_and_mounted_elsewhere(host: str) -> None:
    there = Repository(parse_reference(f"oci://{host}/blobs/first"))
    parts: list[int] = []
    blob, stored = put(there, LARGE, told=parts.append)
    assert stored == Stored(how="sent", sent=len(LARGE))
    assert sum(parts) == len(LARGE)
    assert there.has_blob(blob.digest)
    assert put(there, LARGE)[1] == Stored(how="present")
    elsewhere = Repository(parse_reference(f"{host}/blobs/second"))
    assert not elsewhere.has_blob(blob.digest)
    stated = {"mount_from": ["blobs/none", "blobs/second", "blobs/first"]}
    assert put(elsewhere, LARGE, **stated)[1] == Stored(how="mounted")
    assert elsewhere.read_blob(blob, len(LARGE)) == LARGE
    assert put(there, b"")[1] == Stored(how="sent")


def test_a_part_of_a_blob_is_read(host: str) -> None:
    repository = Repository(parse_reference(f"{host}/parts"))
    blob, _ = put(repository, LARGE)
    for offset, length in ((0, 10), (7, 300_000), (len(LARGE) - 3, 3), (5, 0), (len(LARGE), 0)):
        read = bytearray(length + 10)
        with memoryview(read) as view:
            stream, at = repository.open_blob(blob, offset, length), 0
            while count := stream.readinto(view[at : at + 99_999]):
                at += count
            stream.close()
        assert (at, bytes(read[:at])) == (length, LARGE[offset : offset + length])


def test_a_manifest_is_found_by_its_tag_and_its_digest(host: str) -> None:
    reference = parse_reference(f"{host}/manifests:1.0")
    repository = Repository(reference)
    put(repository, b"{}")
    content = manifest("application/x-test", put(repository, b"layer")[0])
    stored = repository.put_manifest(content, MANIFEST, "1.0")
    assert stored.artifact_type == "application/x-test"
    assert repository.resolve(reference) == (stored, content)
    by_digest = parse_reference(f"{host}/manifests:other@{stored.digest}")
    assert repository.resolve(by_digest) == (stored, content)


def test_referrers_are_added_and_found_by_type(host: str) -> None:
    repository = Repository(parse_reference(f"{host}/referrers"))
    put(repository, b"{}")
    subject = repository.put_manifest(manifest("application/x-subject"), MANIFEST, "1")
    assert repository.referrers(subject.digest) == ()
    first, second = (
        repository.put_manifest(manifest(f"application/x-{kind}", subject=subject), MANIFEST)
        for kind in ("first", "second+json")
    )
    # Once more is nothing new.
    repository.put_manifest(manifest("application/x-first", subject=subject), MANIFEST)
    assert repository.referrers(subject.digest) == (first, second)
    # The query of an address reads '+' as a blank.
    assert repository.referrers(subject.digest, "application/x-second+json") == (second,)


def test_one_connection_is_used_for_all(ours: ReferrersRegistry) -> None:
    repository = Repository(parse_reference(f"{ours.host}/a:1"))
    blob, _ = put(repository, LARGE)
    put(repository, b"{}")
    repository.put_manifest(manifest("application/x-test", blob), MANIFEST, "1")
    found, _ = repository.resolve(repository.reference)
    repository.referrers(found.digest)
    repository.read_blob(blob, len(LARGE))
    stream = repository.open_blob(blob, 10, 100)
    assert stream.readinto(memoryview(bytearray(100))) == 100
    assert repository.has_blob(blob.digest)
    assert ours.connections == 1
    # What is not read to its end is not waited for.
    stream = repository.open_blob(blob)
    stream.readinto(memoryview(bytearray(100)))
    stream.close()
    assert repository.has_blob(blob.digest)
    assert ours.connections == 2


def test_several_threads_share_a_login(
    ours: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.auth = "bearer"
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", ours.host)))
    repository = Repository(parse_reference(f"{ours.host}/a"))
    with ThreadPoolExecutor(4) as threads:
        stored = list(threads.map(lambda n: put(repository, bytes([n]) * 1000), range(20)))
        read = list(threads.map(lambda item: repository.read_blob(item[0], 1000), stored))
    assert read == [bytes([n]) * 1000 for n in range(20)]
    assert sorted(ours.tokens.values(), key=len) == [
        {"repository:a:pull"},
        {"repository:a:pull,push"},
    ]


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "aotc.registry.connection", raising=False)
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(AotcError) as caught:
        Repository(parse_reference("ghcr.io/a"))
    assert (caught.value.code, caught.value.what) == (
        "AOTC-I019",
        "a registry needs the package requests",
    )
    assert "'.[oci]'" in caught.value.fix
