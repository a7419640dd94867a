"""Artifacts that OpenVINO's plugin compiled, built once by the sources as they are."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fresh import ROOT, fresh
from benchmarks.workshop import Workshop, sources_digest

OPENVINO = "edge-openvino"


class Unbuilt(Exception):
    """A build that was refused; the message is the refusal's first line."""


def built_in(profile: str, **fields: Any) -> dict[str, Any]:
    """The fields of a built-in profile, some of them replaced."""
    text = (ROOT / "profiles" / f"{profile}.yaml").read_text()
    found: dict[str, Any] = {**yaml.safe_load(text), **fields}
    return {name: value for name, value in found.items() if name not in ("schema", "name")}


def artifact(
    workshop: Workshop, name: str, label: str, fields: Mapping[str, Any], *, tune: bool = False
) -> Path:
    """The artifact of a model with a profile of `fields`; raises `Unbuilt`."""
    model = workshop.model(name)
    content = json.dumps([sources_digest(), fields, tune], sort_keys=True)
    stem = f"{model.folder}-{label}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    path = workshop.folder / "artifacts" / f"{stem}-{digest}.aotc"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{stem}-{'[0-9a-f]' * 12}.aotc"):
        shutil.rmtree(other)
    workshop.progress(f"build {model.title}, {label}")
    request = {
        "model": str(model.path),
        "profile": str(workshop.profile(stem, dict(fields))),
        "dims": {},
        "key": str(workshop.key()[0]),
        "output": str(path),
        "tune": tune,
    }
    refused = fresh("compiled:build", request)["refused"]
    if refused:
        raise Unbuilt(refused)
    return path


def build(request: dict[str, Any]) -> dict[str, str]:
    """In a fresh process: build, or the line of the refusal."""
    from aotc.errors import AotcError
    from benchmarks.workshop import build as timed

    try:
        timed(request)
    except AotcError as error:
        return {"refused": error.line()}
    return {"refused": ""}
