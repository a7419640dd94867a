"""References to what a registry holds: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`."""

from __future__ import annotations

import re
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record

SCHEME = "oci://"

_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:\d{1,5})?"
)
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST: Final = 255
_DOCKER_HUB: Final = "docker.io"


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

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{SCHEME}{self.repository_name}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """A reference with or without `oci://`; raises AOTC-I196 with what is not valid in it.

    The host is always stated: a word without a dot, a port or `localhost` is none.  Of Docker's own
    registry, a repository of one word is in `library/`, as docker has it.
    """
    rest, at, digest = text.removeprefix(SCHEME).partition("@")
    registry, slash, path = rest.partition("/")
    repository, colon, tag = path.partition(":")
    if not (
        slash and _HOST.fullmatch(registry) and (registry == "localhost" or _is_host(registry))
    ):
        raise _invalid(text, "a host first, with a dot or a port, and a repository", rest)
    registry = registry.lower()
    if registry == _DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository) or len(f"{registry}/{repository}") > _LONGEST:
        raise _invalid(text, "a repository of lower-case words, at most 255 characters", repository)
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, "a tag of at most 128 letters, digits, '.', '_' and '-'", tag)
    if at and not _DIGEST.fullmatch(digest):
        raise _invalid(text, "a digest sha256: with 64 hexadecimal digits", digest)
    return Reference(
        registry=registry, repository=repository, tag=tag or None, digest=digest or None
    )


def is_digest(text: object) -> bool:
    """Whether a text is a sha256 digest as registries write it."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def is_fallback_tag(tag: str) -> bool:
    """Whether a tag, `sha256-…`, is that of referrers, where a registry has no API for them."""
    return is_digest(tag.replace("-", ":", 1))


def _is_host(text: str) -> bool:
    port = text.rpartition(":")[2]
    return ("." in text or ":" in text) and (not port.isdigit() or int(port) < 1 << 16)


def _invalid(text: str, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I196", "Not a reference to a registry", where=text, expected=expected, found=found
    )
