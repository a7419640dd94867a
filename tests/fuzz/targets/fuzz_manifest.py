"""aotc.json: strict JSON, and the record decoded from it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fuzz_target import Target
from repository import ROOT
from structured import json_number, mutated, words_of

from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.manifest import Manifest

VECTORS = ROOT / "manifests" / "vectors"


def check(data: bytes) -> bool:
    """Another parser reads the same, and what is accepted is written and read back unchanged."""
    try:
        value = strict_json(data)
    except ParseError:
        return False
    assert json.loads(data.decode("utf-8"), parse_int=json_number) == value
    assert strict_json(canonical_json(value)) == value
    try:
        newer = decode(Manifest, value, allow_unknown=True)
        manifest = decode(Manifest, value)
    except ParseError:
        return False
    assert newer == manifest
    text = canonical_json(encode(manifest))
    again = decode(Manifest, strict_json(text))
    assert again == manifest
    assert canonical_json(encode(again)) == text
    assert decode(Manifest, strict_json(canonical_json(encode(manifest, full=True)))) == manifest
    return True


def seeds() -> Iterator[bytes]:
    """The published vectors, and JSON's corner cases."""
    for path in sorted(VECTORS.glob("*/manifest*.json")):
        yield path.read_bytes()
    yield from (b"[123456789012345680000, -1e20]", b"[123456789012345680001]")
    yield from (b"{}", b"[1e17, 1E-7, -0, -0.0, 9007199254740991]", b'{"a": 1, "a": 2}')
    yield from (b'"\\ud83d\\ude00"', b'"\\ud83d"', b"\xef\xbb\xbf{}", b"[" * 70 + b"]" * 70)


TARGET = Target("manifest", check, seeds, words_of(Manifest), 16384, mutated)
