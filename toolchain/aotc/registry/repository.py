"""A repository of a registry: manifests, blobs and referrers, each checked by its digest."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal
from urllib.parse import urlencode

from aotc.base.errors import AotcError, missing_package
from aotc.base.interruptions import stop_if_interrupted
from aotc.base.records import record, replace
from aotc.registry.descriptors import (
    INDEX,
    MANIFEST,
    MAX_MANIFEST,
    Descriptor,
    read_annotations,
    read_descriptor,
    read_document,
)
from aotc.registry.references import Reference, is_digest
from aotc.spec.codec import Json

if TYPE_CHECKING:
    import requests

    from aotc.registry.connection import Body, Connection

MAX_REFERRERS: Final = 1000
_MAX_PAGES: Final = 100
_MANIFESTS: Final = (
    MANIFEST,
    INDEX,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d+|\*)")
_NO_REFERRERS: Final = b'{"manifests": []}'
# How often an index of referrers is written anew because others write it, too.
_MAX_TURNS: Final = 8


@record
class Stored:
    """What became of a blob: it was there, was mounted from another repository, or was sent."""

    how: Literal["present", "mounted", "sent"]
    sent: int = 0
    """Bytes that were sent, also those of attempts that failed."""


class BlobStream:
    """A part of a blob while it arrives; continues by itself where a connection is cut."""

    def __init__(
        self, connection: Connection, url: str, descriptor: Descriptor, offset: int, length: int
    ) -> None:
        self._connection, self._url, self._descriptor = connection, url, descriptor
        self._at, self._end = offset, offset + length
        self._response: requests.Response | None = None
        self._body: Body | None = None
        self._cuts, self._progress = 0, 0

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as bytes have come; 0 at the end of the part.

        Raises AOTC-I204 where the connection is cut again and again, and AOTC-I205 where the
        registry's blob has another size.
        """
        from aotc.registry import connection
        from aotc.registry.connection import Body, Cut, errors_as_reasons, pause, shown

        wanted = buffer[: self._end - self._at]
        while len(wanted):
            stop_if_interrupted()
            reason = None
            try:
                if self._body is None:
                    self._response = self._opened()
                    self._body = Body(self._response)
                with errors_as_reasons(self._url):
                    block = self._body.read(len(wanted))
            except Cut as cut:
                block, reason = b"", cut.reason
            if count := len(block):
                wanted[:count] = block
                self._at += count
                self._progress += count
                if self._at == self._end:
                    self.close()
                return count
            self.close()
            self._cuts = 1 if self._progress >= connection.PROGRESS else self._cuts + 1
            self._progress = 0
            if self._cuts == connection.ATTEMPTS:
                raise reason or AotcError(
                    "AOTC-I204",
                    "The registry ends a blob early",
                    where=shown(self._url),
                    expected=f"{self._descriptor.size} bytes",
                    found=f"{self._at} bytes",
                )
            pause(self._cuts - 1)
        return 0

    def close(self) -> None:
        """End the transfer."""
        response, self._response, self._body = self._response, None, None
        if response is not None:
            # Closes the connection unless the answer was read to its end, when it is free already.
            response.close()

    def _opened(self) -> requests.Response:
        size = self._descriptor.size
        whole = self._at == 0 and self._end == size
        headers = {} if whole else {"Range": f"bytes={self._at}-{self._end - 1}"}
        response = self._connection.ask(
            "GET", self._url, "pull", expected=(200, 206, 416), headers=headers, stream=True
        )
        try:
            self._check_length(response)
            if response.status_code == 200:
                # A registry without ranges sends the whole blob.
                self._skip(response, self._at)
        except BaseException:
            response.close()
            raise
        return response

    def _check_length(self, response: requests.Response) -> None:
        size, stated = self._descriptor.size, response.headers.get("Content-Length")
        if response.status_code == 206:
            found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if (
                found is None
                or int(found[1]) != self._at
                or int(found[2]) != self._end - 1
                or found[3] not in ("*", str(size))
                or stated not in (None, str(self._end - self._at))
            ):
                raise self._other_size(
                    f"bytes {self._at}-{self._end - 1}/{size}",
                    f"{response.headers.get('Content-Range', 'no range')}, {stated} bytes",
                )
        elif response.status_code == 416 or stated not in (None, str(size)):
            raise self._other_size(f"{size} bytes", f"{stated} bytes")

    def _other_size(self, expected: str, found: str) -> AotcError:
        return AotcError(
            "AOTC-I205",
            "The registry's blob is of another size than its manifest says",
            where=self._url,
            expected=expected,
            found=found,
        )

    def _skip(self, response: requests.Response, count: int) -> None:
        from aotc.registry.connection import Body, errors_as_reasons

        body = Body(response)
        with errors_as_reasons(self._url):
            while count:
                block = body.read(count)
                if not block:
                    raise OSError("ended early")
                count -= len(block)


class Repository:
    """One repository, with the credentials that docker's configuration has for its registry.

    Plain HTTP is spoken to loopback, and elsewhere with `plain_http` alone, or where the host
    stands in `AOTC_OCI_PLAIN_HTTP` (comma-separated).  `ca`, or `AOTC_OCI_CA`, is a file of
    certificates (PEM) that are trusted instead of the system's; with it, loopback is spoken to by
    TLS.  May be used from several threads.
    """

    def __init__(
        self, reference: Reference, *, plain_http: bool = False, ca: Path | None = None
    ) -> None:
        """Asks nothing of the registry yet.  Raises AOTC-I019 without the extra `oci`."""
        try:
            from aotc.registry.connection import Connection
        except ModuleNotFoundError as error:
            raise missing_package(error, "a registry", "oci") from None
        self.reference = reference
        self._connection = Connection(reference.registry, plain_http=plain_http, ca=ca)
        self._base = f"{self._connection.base}/v2/{reference.repository}"
        self._writing_index = threading.Lock()

    def resolve(self, reference: Reference) -> tuple[Descriptor, bytes]:
        """The manifest of a tag or digest, once: its descriptor and its bytes (at most 4 MiB).

        A digest is preferred to a tag; without either, the tag is `latest`.  Raises AOTC-I205 where
        the bytes are not those of the digest, or of the one that the registry tells.
        """
        if reference.digest is None and reference.tag is None:
            reference = replace(reference, tag="latest")
        found = self._manifest(reference.digest or str(reference.tag))
        if found is None:
            raise AotcError(
                "AOTC-I201",
                f"{reference.registry} does not have it",
                where=str(reference),
            )
        return found

    def put_manifest(self, content: bytes, media_type: str, tag: str | None = None) -> Descriptor:
        """Store a manifest under its digest, and under `tag`.

        Of one with a `subject`, a registry without the referrers API gets the fallback tag's index.
        """
        document = read_document(content, "the manifest to store")
        digest = _digest(content)
        url = f"{self._base}/manifests/{tag or digest}"
        response = self._connection.ask(
            "PUT",
            url,
            "push",
            expected=(200, 201, 202),
            headers={"Content-Type": media_type},
            body=content,
        )
        _check_told(response, digest, url)
        descriptor = Descriptor(
            media_type=media_type,
            digest=digest,
            size=len(content),
            annotations=read_annotations(document, url),
            artifact_type=_artifact_type(document),
        )
        subject = document.get("subject")
        if subject is not None and "OCI-Subject" not in response.headers:
            self._add_to_index(read_descriptor(subject, url).digest, descriptor)
        return descriptor

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has a blob."""
        return self._blob_length(digest) is not None

    def read_blob(self, descriptor: Descriptor, limit: int) -> bytes:
        """A small blob, whose size and digest were checked.

        Raises AOTC-I206 where it is larger than `limit` bytes, and AOTC-I205 where the registry's
        bytes are others.
        """
        url = self._blob_url(descriptor.digest)
        if descriptor.size > limit:
            raise AotcError(
                "AOTC-I206",
                "A blob is too large to be read",
                where=url,
                expected=f"at most {limit} bytes",
                found=f"{descriptor.size} bytes",
            )
        content = bytearray(descriptor.size)
        with memoryview(content) as left:
            stream, at = self.open_blob(descriptor), 0
            try:
                while count := stream.readinto(left[at:]):
                    at += count
            finally:
                stream.close()
        _check_digest(content, descriptor.digest, url)
        return bytes(content)

    def open_blob(
        self, descriptor: Descriptor, offset: int = 0, length: int | None = None
    ) -> BlobStream:
        """Bytes of a blob; the caller checks what they are."""
        length = descriptor.size - offset if length is None else length
        if not 0 <= offset <= offset + length <= descriptor.size:
            raise ValueError(f"{offset}+{length} is not within {descriptor.size} bytes")
        url = self._blob_url(descriptor.digest)
        return BlobStream(self._connection, url, descriptor, offset, length)

    def put_blob(
        self,
        digest: str,
        size: int,
        opened: Callable[[], BinaryIO],
        *,
        mount_from: Sequence[str] = (),
        told: Callable[[int], None] | None = None,
    ) -> Stored:
        """Store a blob unless it is there, or in one of the repositories `mount_from`.

        These are repositories of this registry.  `told` is called with the number of bytes as they
        are sent.  An upload that was cut goes on from where the registry has it.
        """
        from aotc.registry.uploads import upload

        present = self._blob_length(digest)
        if present not in (None, "", str(size)):
            raise AotcError(
                "AOTC-I205",
                "The registry has a blob of this digest with another size",
                where=self._blob_url(digest),
                expected=f"{size} bytes",
                found=f"{present} bytes",
            )
        if present is not None:
            return Stored(how="present")
        sources = [name for name in mount_from if name != self.reference.repository]
        sent = upload(
            self._connection, self._base, digest, size, opened, mount_from=sources, told=told
        )
        return Stored(how="mounted") if sent is None else Stored(how="sent", sent=sent)

    def referrers(self, digest: str, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
        """What refers to a manifest, by the referrers API or the fallback tag; none is verified.

        Raises AOTC-I206 for more than 1,000 of them, 100 pages, or 4 MiB in all.
        """
        query = (
            f"?{urlencode({'artifactType': artifact_type})}" if artifact_type is not None else ""
        )
        url: str | None = f"{self._base}/referrers/{digest}{query}"
        found: dict[str, Descriptor] = {}
        pages, size = 0, 0
        while url is not None:
            pages += 1
            response = self._connection.ask(
                "GET", url, "pull", expected=(200, 404), headers={"Accept": INDEX}
            )
            if response.status_code == 404:
                if pages > 1:
                    raise self._connection.refusal(response, "GET", url)
                fallback = self._manifest(_fallback_tag(digest))
                page, more = (fallback[1] if fallback else _NO_REFERRERS), None
            else:
                page, more = response.content, response.links.get("next", {}).get("url")
            size += len(page)
            for descriptor in _listed(page, url):
                if artifact_type in (None, descriptor.artifact_type):
                    found.setdefault(descriptor.digest, descriptor)
            if len(found) > MAX_REFERRERS or size > MAX_MANIFEST or (more and pages == _MAX_PAGES):
                raise AotcError(
                    "AOTC-I206",
                    "The registry lists too many referrers",
                    where=url,
                    expected=(
                        f"at most {MAX_REFERRERS}, in {_MAX_PAGES} pages and {MAX_MANIFEST} bytes"
                    ),
                    found=f"{len(found)} in {pages} pages and {size} bytes, or more",
                )
            url = self._connection.checked_address(url, more) if more else None
        return tuple(found.values())

    def _manifest(self, name: str) -> tuple[Descriptor, bytes] | None:
        """What a tag or digest names; None where there is nothing."""
        url = f"{self._base}/manifests/{name}"
        response = self._connection.ask(
            "GET", url, "pull", expected=(200, 404), headers={"Accept": ", ".join(_MANIFESTS)}
        )
        if response.status_code == 404:
            return None
        content: bytes = response.content
        digest = _digest(content)
        if is_digest(name):
            _check_digest(content, name, url)
        _check_told(response, digest, url)
        document = read_document(content, url)
        stated = document.get("mediaType")
        sent_as = response.headers.get("Content-Type", "").partition(";")[0].strip()
        sent_as = sent_as or str(stated or "")
        if stated is not None and stated != sent_as:
            raise AotcError(
                "AOTC-I205",
                "The registry gives a manifest another type than it states itself",
                where=url,
                expected=str(stated),
                found=sent_as,
            )
        descriptor = Descriptor(
            media_type=sent_as,
            digest=digest,
            size=len(content),
            annotations=read_annotations(document, url),
            artifact_type=_artifact_type(document),
        )
        return descriptor, content

    def _blob_url(self, digest: str) -> str:
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is no digest")
        return f"{self._base}/blobs/{digest}"

    def _blob_length(self, digest: str) -> str | None:
        """The stated length of a blob, empty where it is not stated; None where it is not there."""
        response = self._connection.ask("HEAD", self._blob_url(digest), "pull", expected=(200, 404))
        is_there = response.status_code == 200
        return response.headers.get("Content-Length", "") if is_there else None

    def _add_to_index(self, subject: str, referrer: Descriptor) -> None:
        """Add a referrer to the index that stands in for the referrers API.

        No registry changes an index only if it is as it was read: the one that was written is read
        again, and written anew where others wrote it between.  Raises AOTC-I209.
        """
        tag = _fallback_tag(subject)
        url = f"{self._base}/manifests/{tag}"
        with self._writing_index:
            for _ in range(_MAX_TURNS):
                found = self._manifest(tag)
                content = found[1] if found else _NO_REFERRERS
                listed = _listed(content, url)
                if any(row.digest == referrer.digest for row in listed):
                    return
                if len(listed) >= MAX_REFERRERS:
                    raise AotcError(
                        "AOTC-I206",
                        "The artifact has too many referrers",
                        where=url,
                        expected=f"at most {MAX_REFERRERS}",
                        found=str(len(listed)),
                    )
                # With all that others say of theirs.
                there = read_document(content, url)
                index: dict[str, Json] = {
                    **there,
                    "schemaVersion": 2,
                    "mediaType": INDEX,
                    "manifests": [*_rows(there, url), referrer.to_json()],
                }
                content = json.dumps(index, separators=(",", ":")).encode()
                self._connection.ask(
                    "PUT",
                    url,
                    "push",
                    expected=(200, 201, 202),
                    headers={"Content-Type": INDEX},
                    body=content,
                )
        raise AotcError(
            "AOTC-I209",
            "Others change the index of referrers at the same time",
            where=url,
            found=f"{_MAX_TURNS} times",
        )


def _listed(content: bytes, where: str) -> tuple[Descriptor, ...]:
    return tuple(read_descriptor(row, where) for row in _rows(read_document(content, where), where))


def _rows(index: Mapping[str, Json], where: str) -> list[Json]:
    rows = index.get("manifests")
    if not isinstance(rows, list):
        raise AotcError(
            "AOTC-I207", "A list of referrers is no index", where=where, found=str(rows)[:200]
        )
    return rows


def _fallback_tag(digest: str) -> str:
    """The tag of the index of referrers where a registry lacks their API (specification 1.1)."""
    return digest.replace(":", "-")


def _artifact_type(document: Mapping[str, Json]) -> str | None:
    stated, config = document.get("artifactType"), document.get("config")
    if not stated and isinstance(config, dict):
        stated = config.get("mediaType")
    return stated if isinstance(stated, str) else None


def _digest(content: bytes | bytearray) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _check_digest(content: bytes | bytearray, expected: str, url: str) -> None:
    if (found := _digest(content)) != expected:
        raise AotcError(
            "AOTC-I205",
            "The registry's bytes are not those of their digest",
            where=url,
            expected=expected,
            found=found,
        )


def _check_told(response: requests.Response, expected: str, url: str) -> None:
    """Whether the digest that a registry tells is that of what was sent."""
    told = response.headers.get("Docker-Content-Digest")
    if told and told.startswith("sha256:") and told != expected:
        raise AotcError(
            "AOTC-I205",
            "The registry tells another digest than that of the bytes",
            where=url,
            expected=expected,
            found=told,
        )
