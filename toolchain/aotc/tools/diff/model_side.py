"""A plain model as one side of a comparison: seen as an artifact of one variant, unproven.

So graphs, weights and sizes of models are read as those of artifacts are.  What only a build knows
of an artifact is not there, and those areas are not compared.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.base.files.reading import open_plain
from aotc.base.records import replace
from aotc.spec.manifest import Capture, Manifest
from aotc.spec.payload import FileEntry
from aotc.spec.variant import (
    NO_REQUIREMENTS,
    MemoryPlan,
    Parity,
    Placement,
    SessionSpec,
    Toolchain,
    Variant,
)
from aotc.tools.inspect import ArtifactContents, inspect_model
from aotc.trust.container import ArtifactFile, Container, Listing, RegularFile

# How the one variant of a model is called.
MODEL: Final = "model"
# Protobuf knows no larger message.
MAX_PLAIN_BYTES: Final = 2 << 30


class ModelFiles(Container):
    """A model's file and its external data, by the paths that they would have in a payload."""

    def __init__(self, root: Path, places: Mapping[str, Path]) -> None:
        self.root = root
        self._descriptor = None
        self._places = places

    def listing(self, folder: str = "") -> Listing:
        """The files, none of which is a problem: they were read before."""
        found = {f"{PAYLOAD}/{path}": place.stat().st_size for path, place in self._places.items()}
        whole = Listing(files=found, folders=frozenset(), problems=())
        return replace(whole, files=whole.under(folder)) if folder else whole

    def open(self, path: str) -> ArtifactFile:
        """Open one of them, behind links too; raises AOTC-G006 if there is no such file."""
        place = self._places.get(path.removeprefix(f"{PAYLOAD}/"))
        try:
            if place is not None:
                with open_plain(place) as file:
                    return RegularFile(os.dup(file.fileno()))
        except FileNotFoundError:
            pass
        raise AotcError("AOTC-G006", "a file of the model is missing", where=path)


def is_model(side: ArtifactContents) -> bool:
    """Whether it is a plain model."""
    return isinstance(side.container, ModelFiles)


def open_model(path: Path) -> ArtifactContents:
    """The model in a file; raises AOTC-I001 to I007, I010, and I019 if onnx is not installed."""
    found = inspect_model(path)
    from aotc.graph.external_data import path_with_data

    source = found.source
    own = f"{MODEL}/{MODEL}.onnx"
    names = [each.location for each in source.external_data]
    folder = path_with_data(names, path.absolute()).parent
    places = {own: path}
    entries = [FileEntry(path=own, size=source.size, sha256=source.sha256, role="model")]
    for each in source.external_data:
        place = posixpath.join(MODEL, each.location)
        places[place] = folder / each.location
        entries.append(FileEntry(path=place, size=each.size, sha256=each.sha256, role="weights"))
    nobody = "0" * 64
    variant = Variant(
        name=MODEL,
        component=MODEL,
        providers=(),
        model=own,
        files=tuple(entry.path for entry in entries),
        session=SessionSpec(optimization="disable"),
        placement=Placement(origin="predicted", nodes=(), share={}),
        memory=MemoryPlan(weights_bytes=source.initializer_bytes),
        parity=Parity(status="not-run"),
        requirements=NO_REQUIREMENTS,
    )
    manifest = Manifest(
        schema="",
        name=path.stem,
        source=source,
        profile={},
        profile_sha256=nobody,
        target="",
        target_sha256=nobody,
        toolchain=Toolchain(aotc="", python="", onnx="", onnxruntime=""),
        inputs=found.inputs,
        outputs=found.outputs,
        variants=(variant,),
        files=tuple(entries),
    )
    return ArtifactContents(
        path=path,
        container=ModelFiles(path, places),
        manifest_json=b"",
        manifest=manifest,
        artifact_id=source_digest(source),
        claims=(),
        evidence=None,
        problems=(),
    )


def source_digest(source: Capture) -> str:
    """One digest of a model's file and its external data, equal for equal bytes of all."""
    lines = [source.sha256, *sorted(f"{e.sha256} {e.location}" for e in source.external_data)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
