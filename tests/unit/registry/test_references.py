"""References: what is valid, and how what is not is told."""

from __future__ import annotations

import pytest

from aotc.base.errors import AotcError
from aotc.registry.references import Reference, parse_reference

DIGEST = "sha256:" + "0f" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://ghcr.io/acme/digits:1.2", ("ghcr.io", "acme/digits", "1.2", None)),
        ("ghcr.io/acme/digits", ("ghcr.io", "acme/digits", None, None)),
        (f"oci://127.0.0.1:5000/a@{DIGEST}", ("127.0.0.1:5000", "a", None, DIGEST)),
        (f"localhost/a/b__c-d.e/f:v_1@{DIGEST}", ("localhost", "a/b__c-d.e/f", "v_1", DIGEST)),
        ("[::1]:5000/a:b", ("[::1]:5000", "a", "b", None)),
        ("GHCR.io/a", ("ghcr.io", "a", None, None)),
        ("docker.io/busybox", ("docker.io", "library/busybox", None, None)),
        ("docker.io/acme/digits", ("docker.io", "acme/digits", None, None)),
    ],
)
def test_a_reference_is_read_and_written(
    text: str, expected: tuple[str, str, str | None, str | None]
) -> None:
    found = parse_reference(text)
    assert (found.registry, found.repository, found.tag, found.digest) == expected
    assert parse_reference(str(found)) == found
    assert isinstance(found, Reference)


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("", "a host first, with a dot or a port, and a repository", ""),
        ("oci://", "a host first, with a dot or a port, and a repository", ""),
        ("digits:1", "a host first, with a dot or a port, and a repository", "digits:1"),
        ("acme/digits", "a host first, with a dot or a port, and a repository", "acme/digits"),
        ("a.b:66000/x", "a host first, with a dot or a port, and a repository", "a.b:66000/x"),
        ("me:secret@a.b/x", "a host first, with a dot or a port, and a repository", "me:secret"),
        ("a.b/", "a repository of lower-case words, at most 255 characters", ""),
        ("a.b/X", "a repository of lower-case words, at most 255 characters", "X"),
        ("a.b/../x", "a repository of lower-case words, at most 255 characters", "../x"),
        ("a.b/x?y=1", "a repository of lower-case words, at most 255 characters", "x?y=1"),
        ("a.b/x\n", "a repository of lower-case words, at most 255 characters", "x\n"),
        (
            "a.b/" + "x" * 252,
            "a repository of lower-case words, at most 255 characters",
            "x" * 252,
        ),
        ("a.b/x:", "a tag of at most 128 letters, digits, '.', '_' and '-'", ""),
        ("a.b/x:a/b", "a tag of at most 128 letters, digits, '.', '_' and '-'", "a/b"),
        ("a.b/x@", "a digest sha256: with 64 hexadecimal digits", ""),
        ("a.b/x@sha512:00", "a digest sha256: with 64 hexadecimal digits", "sha512:00"),
    ],
)
def test_what_is_not_valid_is_told(text: str, expected: str, found: str) -> None:
    with pytest.raises(AotcError) as caught:
        parse_reference(text)
    error = caught.value
    assert (error.code, error.what) == ("AOTC-I196", "Not a reference to a registry")
    assert (error.where, error.expected, error.found) == (text, expected, found)
