"""JSON Schemas (draft 2020-12) of the wire formats, generated from the records.

`python -m aotc.contract.schema` compares the committed schemas with the records, and writes
them with `--write`.  What a record's `problems` demands beyond its types (rules that span
fields) is not expressed: the codec is the judge, and the schemas are for editors and consumers.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from aotc.contract import answers, attestations, report
from aotc.contract.cache import CacheListAnswer, PruneReport
from aotc.contract.costs import CostTable
from aotc.contract.documents import data_folder
from aotc.contract.manifest import Manifest
from aotc.contract.model_checks import CheckModelsAnswer
from aotc.contract.packing import PackAnswer, UnpackAnswer
from aotc.contract.parsing import Bounds, Json, Pattern, encode, hints_of
from aotc.contract.profile import Profile
from aotc.contract.shapes import DimRange, _StatedRange
from aotc.contract.signer import SignerFile
from aotc.contract.store import InstallReport, StoreListAnswer, StorePruneReport
from aotc.contract.target import Target
from aotc.contract.telemetry import TelemetryAnswer
from aotc.contract.trust_answers import RootAnswer, TrustAnswer
from aotc.contract.trust_policy import RootKeys, TrustPolicy

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

# Folder, file name, record.
SCHEMAS: Final[tuple[tuple[str, str, type], ...]] = (
    ("profiles", "profile", Profile),
    ("profiles", "target", Target),
    ("manifests", "manifest", Manifest),
    ("manifests", "signer", SignerFile),
    ("manifests", "build", report.BuildReport),
    ("manifests", "verify", report.VerifyReport),
    ("manifests", "costs", CostTable),
    ("manifests", "learn", answers.LearnAnswer),
    ("manifests", "load", report.LoadReport),
    ("manifests", "evidence", report.Evidence),
    ("manifests", "inspect", report.InspectReport),
    ("manifests", "error", answers.ErrorAnswer),
    ("manifests", "run", answers.RunAnswer),
    ("manifests", "telemetry", TelemetryAnswer),
    ("manifests", "bench", answers.BenchAnswer),
    ("manifests", "cache-list", CacheListAnswer),
    ("manifests", "cache-prune", PruneReport),
    ("manifests", "install", InstallReport),
    ("manifests", "store-list", StoreListAnswer),
    ("manifests", "store-prune", StorePruneReport),
    ("manifests", "explain", answers.ExplainAnswer),
    ("manifests", "trust", TrustPolicy),
    ("manifests", "root", RootKeys),
    ("manifests", "trust-answer", TrustAnswer),
    ("manifests", "root-answer", RootAnswer),
    ("manifests", "keygen", answers.KeygenAnswer),
    ("manifests", "list", answers.ListAnswer),
    ("manifests", "pack", PackAnswer),
    ("manifests", "unpack", UnpackAnswer),
    ("manifests", "attest", attestations.AttestAnswer),
    ("manifests", "approval", attestations.Approval),
    ("manifests", "qualification", attestations.Qualification),
    ("manifests", "check", answers.CheckAnswer),
    ("manifests", "check-models", CheckModelsAnswer),
    ("manifests", "doctor", answers.DoctorAnswer),
)

_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(cls: type) -> dict[str, Json]:
    """The schema of one record class, complete in itself."""
    definitions: dict[str, Json] = {}
    top = _record(cls, definitions)
    return {
        "$schema": DRAFT,
        "title": _identity(cls),
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text(cls: type) -> str:
    """The schema as it is committed."""
    return json.dumps(schema_of(cls), indent=2, ensure_ascii=False) + "\n"


def path_of(folder: str, name: str) -> Path:
    """Where a schema is committed."""
    return data_folder(folder) / f"{name}.schema.json"


def _identity(cls: type) -> str:
    """The value of the record's `schema` field, such as `aotc.profile/1`, or the class's name."""
    hint = hints_of(cls).get("schema")
    while get_origin(hint) is typing.Annotated:
        hint = get_args(hint)[0]
    return str(get_args(hint)[0]) if get_origin(hint) is Literal else cls.__name__


def _schema(kind: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _annotated(arguments[0], arguments[1:], definitions)
    if kind is Any:
        return {}
    if origin in (Union, types.UnionType):
        choices = [
            _schema(choice, definitions) for choice in arguments if choice is not types.NoneType
        ]
        if types.NoneType in arguments:
            choices.append({"type": "null"})
        return {"anyOf": choices}
    if origin is Literal:
        return {"enum": list(arguments)} if len(arguments) > 1 else {"const": arguments[0]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin in (Mapping, dict):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    name = kind.__name__.lstrip("_")
    if name not in definitions:
        definitions[name] = {}  # Holds the place while a record that holds itself is read.
        definitions[name] = (
            _dim_range(definitions) if kind is DimRange else _record(kind, definitions)
        )
    return {"$ref": f"#/$defs/{name}"}


def _record(cls: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    hints = hints_of(cls)
    properties: dict[str, Json] = {}
    required = []
    for field in dataclasses.fields(cls):
        made = _schema(hints[field.name], definitions)
        if field.default is not dataclasses.MISSING:
            made["default"] = encode(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            made["default"] = encode(field.default_factory())
        else:
            required.append(field.name)
        properties[field.name] = made
    return {
        "description": " ".join((cls.__doc__ or "").split()),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _dim_range(definitions: dict[str, Json]) -> dict[str, Json]:
    """The spellings that `DimRange.from_json` reads."""
    plain = _record(_StatedRange, definitions)
    plain["description"] = "every part by name"
    words = {"enum": ["reject", "pad", "route"]}
    several = {"type": "array", "items": {"enum": ["pad", "route"]}, "uniqueItems": True}
    plain["properties"]["outside"] = {
        "description": "what is done with other sizes; none: they are refused",
        "anyOf": [words, several],
    }
    plain["anyOf"] = [
        {"required": ["min", "max"]},
        {"required": ["buckets"]},
        {"not": {"anyOf": [{"required": ["min"]}, {"required": ["max"]}]}},
    ]
    return {
        "description": " ".join((DimRange.__doc__ or "").split()),
        "anyOf": [
            {"type": "integer", "minimum": 0, "description": "one size"},
            {
                "type": "string",
                "pattern": r"^\s*\d{1,15}\s*(\.\.\s*\d{1,15}\s*(:\s*\d{1,15}\s*)?)?$",
                "description": "SIZE, MIN..MAX or MIN..MAX:STEP",
            },
            plain,
        ],
    }


def _annotated(inner: Any, notes: tuple[Any, ...], definitions: dict[str, Json]) -> dict[str, Json]:
    made = _schema(inner, definitions)
    # Beside an anyOf, a bound holds for the choices it can apply to, as it does in the codec.
    for note in notes:
        if isinstance(note, str):
            made["description"] = note
        elif isinstance(note, Pattern):
            made["pattern"] = f"^(?:{note.regex})$"
        elif isinstance(note, Bounds):
            least, most = _bound_names(inner)
            if note.least is not None:
                made[least] = _number(note.least)
            if note.most is not None:
                made[most] = _number(note.most)
    return made


def _bound_names(kind: Any) -> tuple[str, str]:
    while get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _bound_names(next(c for c in get_args(kind) if c is not types.NoneType))
    if origin is tuple:
        return "minItems", "maxItems"
    if origin is None and kind is not str:
        return "minimum", "maximum"
    return ("minLength", "maxLength") if kind is str else ("minProperties", "maxProperties")


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` write, every schema; 1 where one is not current."""
    stale = 0
    for folder, name, cls in SCHEMAS:
        path, text = path_of(folder, name), schema_text(cls)
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        if "--write" in arguments:
            path.write_text(text, "utf-8")
        else:
            stale = 1
        sys.stdout.write(f"{'wrote' if '--write' in arguments else 'not current:'} {path}\n")
    return stale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
