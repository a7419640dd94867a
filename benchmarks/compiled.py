"""Artifacts compiled by OpenVINO's plugin, built once for the current sources."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fresh import ROOT, run_fresh
from benchmarks.workshop import Workshop, sources_digest

OPENVINO = "edge-openvino"


class BuildRefusedError(Exception):
    """A refused build; the message is the refusal's first line."""


def profile_fields(profile: str, **fields: Any) -> dict[str, Any]:
    """The fields of a built-in profile, some of them replaced."""
    text = (ROOT / "profiles" / f"{profile}.yaml").read_text()
    found: dict[str, Any] = {**yaml.safe_load(text), **fields}
    return {name: value for name, value in found.items() if name not in ("schema", "name")}


def artifact(
    workshop: Workshop, name: str, label: str, fields: Mapping[str, Any], *, tune: bool = False
) -> Path:
    """The artifact of a model with a profile of `fields`; raises `BuildRefusedError`."""
    model = workshop.model(name)
    content = json.dumps([sources_digest(), fields, tune], sort_keys=True)
    stem = f"{model.folder}-{label}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    path = workshop.folder / "artifacts" / f"{stem}-{digest}.aotc"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    for outdated in path.parent.glob(f"{stem}-{'[0-9a-f]' * 12}.aotc"):
        shutil.rmtree(outdated)
    workshop.progress(f"build {model.title}, {label}")
    request = {
        "model": str(model.path),
        "profile": str(workshop.profile(stem, dict(fields))),
        "dims": {},
        "key": str(workshop.key()[0]),
        "output": str(path),
        "tune": tune,
    }
    refused = run_fresh("compiled:build", request)["refused"]
    if refused:
        raise BuildRefusedError(refused)
    return path


def build(request: dict[str, Any]) -> dict[str, str]:
    """In a fresh process: build, and return the line of a refusal."""
    from aotc.base.errors import AotcError
    from benchmarks.workshop import build as timed

    try:
        timed(request)
    except AotcError as error:
        return {"refused": error.line()}
    return {"refused": ""}
