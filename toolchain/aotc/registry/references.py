"""References to what a registry holds: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`."""

from __future__ import annotations

from aotc.base.records import record

SCHEME = "oci://"


@record
class Reference:
    """A repository of a registry, and a tag or a digest (or both) in it."""

    registry: str
    """Host, and port where one is stated: `ghcr.io`, `127.0.0.1:5000`, `[::1]:5000`."""
    repository: str
    tag: str | None = None
    digest: str | None = None
    """`sha256:` and 64 hexadecimal digits."""

    @property
    def repository_name(self) -> str:
        """`HOST/REPOSITORY`, which policies pin."""
        return f"{self.registry}/{self.repository}"


def parse_reference(text: str) -> Reference:
    """A reference with or without `oci://`; raises AOTC-I196 with what is not valid in it."""
    raise NotImplementedError
