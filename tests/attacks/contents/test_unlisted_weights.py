"""Models and their weights: ONNX Runtime gets what was signed, and nothing else.

All of it is signed by the trusted key itself, so that only the tested rule keeps such an artifact
from a session.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from artifact_builder import build_artifact, package_manifest
from attacked_artifact import Attacked

from aotc import load
from aotc.base.errors import AotcError
from aotc.runtime.store import user_store
from aotc.runtime.store.user_store import Store
from aotc.spec.codec import decode, encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import FileEntry
from aotc.spec.variant import SessionSpec
from aotc.trust.container import ArtifactFile, FolderContainer, RegularFile
from aotc.trust.gate import authenticate
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.packing import pack
from aotc.trust.policy.host_trust import resolve

CONTRADICTION = "AOTC-G014"
STATISTICS = "session.collect_node_memory_stats_to_file"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Attacked]:
    private, public = generate(tmp_path / "release.pem")
    key = load_private(private)
    path = build_artifact(tmp_path / "linear.aotc", key, native=False)
    yield Attacked(path, key, public, path)
    for place in tmp_path.glob("store*/**/*"):
        if place.is_dir():
            place.chmod(0o700)


def read(target: Attacked) -> Manifest:
    return decode(Manifest, strict_json((target.payload / "aotc.json").read_bytes()))


def sign(target: Attacked, manifest: Manifest) -> None:
    """List the files as they now are, write both manifests, and sign."""
    package = canonical_json(package_manifest(list(manifest.variants)))
    (target.payload / "manifest.json").write_bytes(package)
    roles = {entry.path: entry.role for entry in manifest.files}
    found = sorted(
        (path.relative_to(target.payload).as_posix(), path.read_bytes())
        for path in target.payload.rglob("*")
        if path.is_file() and path.name != "aotc.json"
    )
    files = tuple(
        FileEntry(
            path=name,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            role=roles.get(name, "weights"),
        )
        for name, data in found
    )
    target.sign_manifest(canonical_json(encode(replace(manifest, files=files))))


# Weights that are not a shared asset.


def next_to_the_model(target: Attacked, optimization: Any = "all") -> Path:
    """Move the variant's weights next to its model; no folder is stated for them."""
    manifest = read(target)
    (variant,) = manifest.variants
    weights = (target.payload / variant.model).with_name("weights.bin")
    (target.payload / str(variant.weights) / "weights.bin").rename(weights)
    shutil.rmtree(target.payload / "shared_assets")
    moved = replace(
        variant,
        weights=None,
        files=(variant.model, weights.relative_to(target.payload).as_posix()),
        session=SessionSpec(optimization=optimization),
    )
    sign(target, replace(manifest, variants=(moved,)))
    return weights


def answer(target: Attacked, **options: Any) -> Any:
    """What the model answers to the fixture's input."""
    store = target.path.with_name("store")
    with load(target.path, key=target.public, store=store, warm_up=False, **options) as model:
        return model.run({"x": np.load(target.payload / "fixtures" / "opt" / "x.npy")})["y"]


def expected(target: Attacked) -> Any:
    return np.load(target.payload / "fixtures" / "opt" / "y.npy")


def zeros_where_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with other weights under every name that could be tried."""
    folder.mkdir()
    for name in ("weights.bin", "portable/weights.bin", "model/portable/weights.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(4096))
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("optimization", ["disable", "all"])
def test_weights_come_from_the_payload_alone(
    optimization: str, target: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_to_the_model(target, optimization)
    assert target.verified() == []
    zeros_where_it_runs(tmp_path / "work", monkeypatch)
    # Once while it is copied into the store, and once from the store.
    for _ in range(2):
        np.testing.assert_allclose(answer(target), expected(target), rtol=1e-5)


def test_weights_that_are_nowhere_else(
    target: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_to_the_model(target)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    np.testing.assert_allclose(answer(target), expected(target), rtol=1e-5)


def test_weights_that_only_the_working_directory_has(
    target: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = next_to_the_model(target)
    weights.unlink()
    manifest = read(target)
    (variant,) = manifest.variants
    sign(target, replace(manifest, variants=(replace(variant, files=(variant.model,)),)))
    zeros_where_it_runs(tmp_path / "work", monkeypatch)
    target.refused(CONTRADICTION)


def test_weights_that_the_variant_does_not_list(
    target: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their digests are not checked when the variant is loaded from a store."""
    next_to_the_model(target)
    manifest = read(target)
    (variant,) = manifest.variants
    sign(target, replace(manifest, variants=(replace(variant, files=(variant.model,)),)))
    zeros_where_it_runs(tmp_path / "work", monkeypatch)
    target.refused(CONTRADICTION)


# A payload without the manifest that ONNX Runtime reads.


def without_package(target: Attacked, **config: str) -> None:
    """Sign the artifact without it: nothing states the session options a second time."""
    (target.payload / "manifest.json").unlink()
    manifest = target.manifest
    manifest["files"] = [file for file in manifest["files"] if file["path"] != "manifest.json"]
    for variant in manifest["variants"]:
        variant["session"]["config"] = dict(config)
    target.sign_manifest(canonical_json(manifest))


def test_a_payload_without_manifest(target: Attacked) -> None:
    without_package(target)
    target.refused(CONTRADICTION)


def test_a_payload_without_manifest_has_no_free_option(target: Attacked, tmp_path: Path) -> None:
    written = tmp_path / "written.txt"
    without_package(target, **{STATISTICS: str(written)})
    target.refused(CONTRADICTION)
    assert not list(tmp_path.glob("written*"))


def test_both_manifests_state_an_option_that_writes(target: Attacked, tmp_path: Path) -> None:
    written = tmp_path / "written.txt"
    manifest = read(target)
    (variant,) = manifest.variants
    spec = SessionSpec(optimization="all", config={STATISTICS: str(written)})
    sign(target, replace(manifest, variants=(replace(variant, session=spec),)))
    target.refused(CONTRADICTION)
    assert not list(tmp_path.glob("written*"))


def test_a_manifest_that_was_not_signed(target: Attacked) -> None:
    kept = (target.payload / "manifest.json").read_bytes()
    without_package(target)
    (target.payload / "manifest.json").write_bytes(kept)
    target.refused("AOTC-G007", CONTRADICTION)


# A model that is harmless only while it is checked.


class _Watched(RegularFile):
    """A file that is replaced by another one once its bytes were read."""

    def __init__(self, descriptor: int, swap: Callable[[], object]) -> None:
        super().__init__(descriptor)
        self._swap = swap

    def close(self) -> None:
        """Close the file; a caller that only asked for its descriptor has read nothing."""
        if not self.closed and self.tell():
            self._swap()
        super().close()


class Swapping(FolderContainer):
    """A source whose models are the signed ones at the first read, and harmless afterwards."""

    harmless: bytes = b""
    reads: int = 0

    def open(self, path: str) -> ArtifactFile:
        """The file as it is now."""
        file = super().open(path)
        if not path.endswith(".onnx"):
            return file
        with file:
            return _Watched(os.dup(file.fileno()), lambda: self._swap(self.root / path))

    def _swap(self, path: Path) -> None:
        type(self).reads += 1
        draft = self.root.with_name("draft")
        draft.write_bytes(self.harmless)
        draft.rename(path)


def points_outside(target: Attacked) -> bytes:
    """Sign a model whose weights lie outside; return the harmless bytes that it had."""
    harmless = target.model.read_bytes()
    model = onnx.load_model_from_string(harmless)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../../outside.bin"
    target.model.write_bytes(model.SerializeToString())
    target.sign_files()
    return harmless


@pytest.fixture
def swapping(target: Attacked, monkeypatch: pytest.MonkeyPatch) -> type[Swapping]:
    (target.path.parent / "outside.bin").write_bytes(bytes(4096))
    harmless = points_outside(target)
    assert target.verified() == [CONTRADICTION]
    kind = type("Swapping", (Swapping,), {"harmless": harmless, "reads": 0})
    monkeypatch.setattr(user_store, "open_container", kind)
    return kind


def test_a_model_swapped_before_it_is_looked_into(
    target: Attacked, swapping: type[Swapping], tmp_path: Path
) -> None:
    signed = target.model.read_bytes()
    # The gate alone sees the signed bytes first, and harmless ones later.
    with swapping(target.path) as source:
        assert authenticate(source, resolve(key=target.public)).id
    assert swapping.reads > 1
    target.model.write_bytes(signed)
    with pytest.raises(AotcError) as caught:
        Store(tmp_path / "store").install(target.path, resolve(key=target.public))
    assert caught.value.code == CONTRADICTION
    assert not list((tmp_path / "store").glob("sha256-*"))
    target.model.write_bytes(signed)
    assert target.loaded() == CONTRADICTION


def test_a_packed_model_that_points_outside(target: Attacked, tmp_path: Path) -> None:
    points_outside(target)
    packed = tmp_path / "linear.zip"
    with pytest.raises(AotcError) as caught:
        pack(target.path, packed)
        load(packed, key=target.public, store=tmp_path / "store").close()
    assert caught.value.code == CONTRADICTION
    assert not list((tmp_path / "store").glob("sha256-*"))
