"""Artifacts whose manifest says another thing, signed by another key."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from built_artifact import BuiltArtifact

from aotc.graph import values
from aotc.spec.codec import decode, encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.manifest import Manifest
from aotc.trust import key_files, oms
from aotc.trust.key_loading import load_private


def promised(digits: BuiltArtifact) -> Manifest:
    """The manifest of the artifact as it was built."""
    return decode(Manifest, strict_json((digits.payload / "aotc.json").read_bytes()))


def reforged(
    digits: BuiltArtifact, folder: Path, change: Callable[[Manifest], Manifest]
) -> tuple[Path, Path]:
    """A copy with another manifest, signed by another key; with that key's public half."""
    private, public = key_files.generate(folder / "other.pem")
    artifact = folder / "other.aotc"
    shutil.copytree(digits.path, artifact)
    place = artifact / "payload" / "aotc.json"
    manifest = change(decode(Manifest, strict_json(place.read_bytes())))
    place.write_bytes(canonical_json(encode(manifest)))
    digests = {entry.path: entry.sha256 for entry in manifest.files}
    digests["aotc.json"] = hashlib.sha256(place.read_bytes()).hexdigest()
    for bundle in (artifact / "attestations").iterdir():
        bundle.unlink()
    signed = oms.sign(digests, load_private(private))
    (artifact / "attestations" / "oms.sigstore.json").write_bytes(signed)
    return artifact, public


def with_other_golden(digits: BuiltArtifact, folder: Path, *, fixture: int) -> tuple[Path, Path]:
    """A copy of which one fixture promises another answer than the model's."""

    def change(made: Manifest) -> Manifest:
        output = made.fixtures[fixture].outputs[0].path
        place = values.save(
            values.load(digits.payload / output) + np.float32(1), folder / "golden.npy"
        )
        content = place.read_bytes()
        (folder / "other.aotc" / "payload" / output).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return replace(
            made,
            files=tuple(
                replace(entry, sha256=digest, size=len(content)) if entry.path == output else entry
                for entry in made.files
            ),
        )

    return reforged(digits, folder, change)
