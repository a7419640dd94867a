"""Statements on quantization that a profile may not make, and where data of a profile lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from aotc.base.errors import AotcError
from aotc.spec.profile_files import load_profile, without_folders


def write(folder: Path, **fields: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"schema": "aotc.profile/1", "name": "mine", **fields}))
    return path


STATIC = {"form": "static"}


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        (
            {"quantization": STATIC},
            "quantization",
            "has no effect: no variant has the precision int8, int4 or auto",
        ),
        (
            {"precision": "int4", "quantization": STATIC},
            "quantization.form",
            "int4 is of weights alone: static is a form of int8",
        ),
        (
            {"variants": [{"name": "a", "precision": "int4", "quantization": {"form": "dynamic"}}]},
            "variants[0].quantization.form",
            "int4 is of weights alone: dynamic is a form of int8",
        ),
        (
            {
                "precision": "int8",
                "variants": [
                    {"name": "a"},
                    {"name": "b", "precision": "keep", "quantization": STATIC},
                ],
            },
            "variants[1].quantization",
            "has no effect: its precision is keep",
        ),
        (
            {"precision": "int8", "quantization": {"form": "dynamic", "accuracy_level": 4}},
            "quantization.accuracy_level",
            "has no effect: it is of the form weights, not of dynamic",
        ),
        (
            {"precision": "int8", "quantization": {"form": "weights", "accuracy_level": 1}},
            "quantization.accuracy_level",
            "1 is none of: 0, 4",
        ),
        (
            {"precision": "int4", "quantization": {"block_size": 24}},
            "quantization.block_size",
            "24 is none of: 16, 32, 64, 128, 256",
        ),
        (
            {"calibration": {"percentile": 49.0}},
            "calibration.percentile",
            "49.0 is less than 50",
        ),
    ],
)
def test_contradictions(tmp_path: Path, fields: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(AotcError) as caught:
        load_profile(write(tmp_path, **fields))
    assert caught.value.code == "AOTC-I022"
    assert caught.value.where.endswith(f": {where}")
    assert caught.value.what == what
    assert caught.value.place is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "int8", "quantization": STATIC},
        {"precision": "auto", "quantization": STATIC},
        {"quantization": STATIC, "tune": {"precision": ["int8"]}},
        {"precision": "int8", "calibration": {"percentile": 99.0}},
        {"calibration": {"data": "set.npz", "method": "entropy"}},
        {"precision": "int4", "quantization": {"form": "weights", "block_size": 64}},
        {"precision": "int4", "quantization": {"symmetric": False, "table_bits": 8}},
        {
            "precision": "int8",
            "quantization": {"form": "static", "accuracy_level": 4},
            "tune": {"precision": ["int4"]},
        },
    ],
)
def test_what_may_be_stated(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert load_profile(write(tmp_path, **fields)).name == "mine"


def test_data_is_found_next_to_the_profile(tmp_path: Path) -> None:
    fields = {
        "calibration": {"data": "data/set.npz"},
        "gates": {"task": {"data": "../labelled"}},
    }
    found = load_profile(write(tmp_path, **fields))
    assert found.calibration.data == str(tmp_path / "data" / "set.npz")
    assert found.gates.task is not None
    assert Path(found.gates.task.data).resolve() == tmp_path.parent / "labelled"
    named = without_folders(found)
    assert named.calibration.data == "set.npz"
    assert named.gates.task is not None and named.gates.task.data == "labelled"


def test_a_home_folder_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        load_profile(write(tmp_path, calibration={"data": "~nobody-of-this-name/set.npz"}))
    assert (caught.value.code, caught.value.where) == ("AOTC-I022", "calibration.data")
