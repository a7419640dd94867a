"""Plain transfers with both registries: blobs, mounts, manifests and referrers."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator

import pytest

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
        for kind in ("first", "second")
    )
    # Once more is nothing new.
    repository.put_manifest(manifest("application/x-first", subject=subject), MANIFEST)
    assert repository.referrers(subject.digest) == (first, second)
    assert repository.referrers(subject.digest, "application/x-second") == (second,)
