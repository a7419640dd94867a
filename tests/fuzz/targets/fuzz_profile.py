"""Profiles and targets: YAML about what to build, and for which host."""

from __future__ import annotations

import json
from collections.abc import Iterator

from edited_artifact import make_place
from fuzz_target import Target
from repository import ROOT
from structured import mutated, words_of

from aotc.base.errors import AotcError
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile, load_target
from aotc.spec.target import Target as Host
from aotc.spec.yaml import strict_yaml, yaml_text

OF_SHAPES = {"AOTC-S003"}
FILE = make_place() / "file.yaml"
PROFILES = ROOT / "profiles"


def check(data: bytes) -> bool:
    """What is accepted is written, as YAML and as JSON, and read back unchanged."""
    FILE.write_bytes(data)
    for load in (load_profile, load_target):
        try:
            load(FILE)
        except AotcError as error:
            codes = {refusal.code for refusal in (error, *error.also)}
            assert codes <= {"AOTC-I022", "AOTC-I046", "AOTC-S015", "AOTC-S017"} | OF_SHAPES, codes
    try:
        value = strict_yaml(data)
    except ParseError:
        return False
    return _keeps(Profile, value) or _keeps(Host, value)


def _keeps(record: type[Profile] | type[Host], value: Json) -> bool:
    try:
        made = decode(record, value)
    except ParseError:
        return False
    for full in (True, False):
        assert decode(record, strict_yaml(yaml_text(made, full=full).encode("utf-8"))) == made
    assert decode(record, strict_json(canonical_json(encode(made)))) == made
    return True


def seeds() -> Iterator[bytes]:
    """The built-in ones, as YAML and as JSON, and one with shapes."""
    for path in sorted(PROFILES.rglob("*.yaml")):
        yield path.read_bytes()
    with_shapes = {
        "schema": "aotc.profile/1",
        "name": "shapes",
        "dims": {"batch": "1..8", "seq": {"min": 1, "opt": 16, "max": 64, "buckets": [16, 64]}},
        "inputs": {"ids": {"shape": ["batch", "seq"], "dtype": "int64", "pad": {"value": 0}}},
        "relations": ["batch = ids.0 = mask.0", "total = past + seq"],
        "outputs": {"y": {"crop": {"seq": "1"}}},
        "budgets": {"load_seconds": 1.5, "artifact_bytes": 1000},
        "parity": {"float32": {"atol": 1e-5, "rtol": 0.001}},
        "waivers": [{"code": "AOTC-P003", "reason": "known"}],
        "tune": {"threads": [1, 2], "isa": ["host"], "rounds": 3},
    }
    yield json.dumps(with_shapes).encode()
    yield json.dumps(strict_yaml((PROFILES / "edge.yaml").read_bytes())).encode()
    yield b"a: no\nb: 1e-3\nc: .inf\nd: ~\ne: 0o7\n'f': \"\\u00e9\"\n"


TARGET = Target("profile", check, seeds, words_of(Profile, Host), 4096, mutated)
