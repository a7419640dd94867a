"""The committed JSON Schemas are the records', and agree with the codec."""

from __future__ import annotations

from typing import Any

import pytest
import schemas
from jsonschema import Draft202012Validator

from aotc.spec import json_schema
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.profile import Profile
from aotc.spec.profile_files import (
    builtin_profiles,
    builtin_targets,
    data_folder,
    load_profile,
    load_target,
)
from aotc.spec.target import Target
from aotc.spec.yaml import strict_yaml

PROFILE = {"schema": "aotc.profile/1", "name": "mine"}
TARGET = {"schema": "aotc.target/1", "name": "mine"}


@pytest.mark.parametrize(("folder", "name", "cls"), schemas.SCHEMAS, ids=lambda each: str(each))
def test_committed_schema_is_current_and_valid(folder: str, name: str, cls: type) -> None:
    text = schemas.path_of(folder, name).read_text("utf-8")
    assert text == json_schema.schema_text(cls), "run: python ci/schemas.py --write"
    Draft202012Validator.check_schema(json_schema.schema_of(cls))


def test_every_committed_schema_belongs_to_a_record() -> None:
    for folder in ("profiles", "manifests"):
        named = {f"{name}.schema.json" for place, name, _ in schemas.SCHEMAS if place == folder}
        assert {path.name for path in data_folder(folder).glob("*.schema.json")} == named


def test_built_ins_fit_their_schemas() -> None:
    profiles = Draft202012Validator(json_schema.schema_of(Profile))
    targets = Draft202012Validator(json_schema.schema_of(Target))
    folder = data_folder("profiles")
    for name in builtin_profiles():
        profiles.validate(strict_yaml((folder / f"{name}.yaml").read_bytes()))
        profiles.validate(encode(load_profile(name), full=True))
    for name in builtin_targets():
        targets.validate(strict_yaml((folder / "targets" / f"{name}.yaml").read_bytes()))
        targets.validate(encode(load_target(name), full=True))


@pytest.mark.parametrize(
    ("cls", "document", "good"),
    [
        (Profile, PROFILE, True),
        (Profile, {}, False),
        (Profile, [], False),
        (Profile, PROFILE | {"schema": "aotc.profile/2"}, False),
        (Profile, PROFILE | {"name": "a b"}, False),
        (Profile, PROFILE | {"nam": 1}, False),
        (Profile, PROFILE | {"dims": {"a": 8, "b": "1..8", "c": {"min": 1, "max": 8}}}, True),
        (Profile, PROFILE | {"dims": {"a": -1}}, False),
        (Profile, PROFILE | {"dims": {"a": True}}, False),
        (Profile, PROFILE | {"dims": {"a": "1-8"}}, False),
        (Profile, PROFILE | {"dims": {"a": {"min": 1}}}, False),
        (Profile, PROFILE | {"dims": {"a": {"min": 1, "max": 2, "step": 1}}}, False),
        (Profile, PROFILE | {"dims": {"a": None}}, False),
        (Profile, PROFILE | {"providers": []}, False),
        (Profile, PROFILE | {"providers": "cpu"}, False),
        (Profile, PROFILE | {"variants": [{"name": "a"}]}, True),
        (Profile, PROFILE | {"variants": [{"name": "a", "isa": "any"}]}, False),
        (Profile, PROFILE | {"strict": 1}, False),
        (Profile, PROFILE | {"budgets": {"artifact_bytes": None}}, True),
        (Profile, PROFILE | {"budgets": {"artifact_bytes": -1}}, False),
        (Profile, PROFILE | {"budgets": {"artifact_bytes": 1.5}}, False),
        (Profile, PROFILE | {"budgets": {"providers": {"cpu": {"min_node_share": 2}}}}, False),
        (Profile, PROFILE | {"parity": {"float32": {"atol": 0, "rtol": 0}}}, True),
        (Profile, PROFILE | {"parity": {"float32": {"atol": 0}}}, False),
        (Profile, PROFILE | {"inputs": {"x": {"shape": ["n", 3], "dtype": None}}}, True),
        (Profile, PROFILE | {"inputs": {"x": {"shape": [1.5]}}}, False),
        (Profile, PROFILE | {"parity": {"random_shapes": 65}}, False),
        (Target, TARGET, True),
        (Target, TARGET | {"os": "beos"}, False),
        (Target, TARGET | {"libc": {"name": "glibc", "version": "2.28"}}, True),
        (Target, TARGET | {"libc": {"name": "glibc", "version": 2.28}}, False),
        (Target, TARGET | {"gpus": [{"name": "x", "compute_capability": "9"}]}, False),
        (Target, TARGET | {"isa": None, "extra": {"a": "b"}}, True),
        (Target, TARGET | {"extra": {"a": 1}}, False),
    ],
)
def test_schema_and_codec_agree(cls: type, document: Any, good: bool) -> None:
    try:
        decode(cls, document)
        decoded = True
    except ParseError:
        decoded = False
    assert decoded == good
    assert Draft202012Validator(json_schema.schema_of(cls)).is_valid(document) == good
