"""An artifact with another model in its payload, as a wrong pass would have left it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx


def with_manifest(artifact: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of `artifact` whose manifest was changed; its signature is that of the old one."""
    shutil.copytree(artifact, target)
    place = target / "payload" / "aotc.json"
    manifest = json.loads(place.read_text("utf-8"))
    change(manifest)
    place.write_text(json.dumps(manifest), "utf-8")
    return target


def with_model(
    artifact: Path,
    target: Path,
    change: Callable[[onnx.ModelProto], onnx.ModelProto | None],
    variant: str = "portable",
    **fields: Any,
) -> Path:
    """A copy of `artifact` in which `change` was made to the model of a variant.

    `change` changes it in place or returns another; `fields` replace those of the variant's
    manifest.  Digests in the manifest are those of the new file.
    """

    def changed(manifest: dict[str, Any]) -> None:
        (entry,) = (each for each in manifest["variants"] if each["name"] == variant)
        entry.update(fields)
        path = target / "payload" / entry["model"]
        model = onnx.load(path, load_external_data=False)
        model = change(model) or model
        data = model.SerializeToString()
        path.write_bytes(data)
        for file in manifest["files"]:
            if file["path"] == entry["model"]:
                file.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))

    return with_manifest(artifact, target, changed)
