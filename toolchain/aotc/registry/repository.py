"""A repository of a registry: manifests, blobs and referrers, each checked by its digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from aotc.registry.descriptors import Descriptor
from aotc.registry.references import Reference


class BlobStream:
    """A part of a blob while it arrives; continues by itself where a connection is cut."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as bytes have come; 0 at the end of the part."""
        raise NotImplementedError

    def close(self) -> None:
        """End the transfer."""


class Repository:
    """One repository, with the credentials that docker's configuration has for its registry.

    Plain HTTP is spoken to loopback, and elsewhere with `plain_http` alone; `ca` is a file of
    certificates (PEM) that are trusted instead of the system's.  May be used from several threads.
    """

    def __init__(
        self, reference: Reference, *, plain_http: bool = False, ca: Path | None = None
    ) -> None:
        raise NotImplementedError

    def resolve(self, reference: Reference) -> tuple[Descriptor, bytes]:
        """The manifest of a tag or digest, once: its descriptor and its bytes (at most 4 MiB)."""
        raise NotImplementedError

    def put_manifest(self, content: bytes, media_type: str, tag: str | None = None) -> Descriptor:
        """Store a manifest under its digest, and under `tag`.

        Of one with a `subject`, a registry without the referrers API gets the fallback tag's index.
        """
        raise NotImplementedError

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has a blob."""
        raise NotImplementedError

    def read_blob(self, descriptor: Descriptor, limit: int) -> bytes:
        """A small blob, whose size and digest were checked."""
        raise NotImplementedError

    def open_blob(
        self, descriptor: Descriptor, offset: int = 0, length: int | None = None
    ) -> BlobStream:
        """Bytes of a blob; the caller checks what they are."""
        raise NotImplementedError

    def put_blob(
        self,
        digest: str,
        size: int,
        opened: Callable[[], BinaryIO],
        *,
        mount_from: Sequence[str] = (),
        told: Callable[[int], None] | None = None,
    ) -> int:
        """Store a blob unless it is there, or in one of the repositories `mount_from`.

        Returns the number of bytes that were sent; `told` is called with each part's.  An upload
        that was cut goes on from where the registry has it.
        """
        raise NotImplementedError

    def referrers(self, digest: str, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
        """What refers to a manifest, by the referrers API or the fallback tag; none is verified."""
        raise NotImplementedError

    def annotations_of(self, content: bytes) -> Mapping[str, str]:
        """The annotations of a manifest."""
        raise NotImplementedError
