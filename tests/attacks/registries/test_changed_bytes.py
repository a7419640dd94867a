"""A byte that a registry changed, anywhere in what it keeps: refused, with the name of the file.

The registry is a real one, whose files are changed on its disk: blobs, manifests, bundles, and the
index of referrers.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from registries import Registry, docker_registry
from shops import kept

import aotc
from aotc.base.errors import AotcError
from aotc.registry import connection
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

FORMS = ("modelpack", "image")
# How many bytes of each blob are changed by the quick test.
FEW = 2
TAR_BLOCK = 512


@dataclass(frozen=True)
class Kept:
    """An artifact in a registry, whose every blob is known."""

    registry: Registry
    reference: str
    public: Path
    names: dict[str, str]
    """What each digest is: a manifest, a configuration, a layer, a bundle …"""

    def refused(self, store: Path) -> AotcError:
        with pytest.raises(AotcError) as caught:
            aotc.pull(self.reference, key=self.public, store=store)
        assert kept(store) == []
        return caught.value

    def changed(self, digest: str, place: int, store: Path) -> AotcError:
        """How a pull is refused after a byte was changed; it is put back."""
        path = self.registry.blob_file(digest)
        good = path.read_bytes()
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bad)
        try:
            return self.refused(store)
        except BaseException as error:
            error.add_note(f"byte {place} of {self.names[digest]}")
            raise
        finally:
            path.write_bytes(good)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that cannot read its own manifest says so, and is asked again."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)


@pytest.fixture(scope="module", params=FORMS)
def pushed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    private, public = generate(folder / "release.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private), padding=70_000)
    with docker_registry(folder / "registry") as registry:
        report = aotc.push(artifact, f"oci://{registry.host}/shop/model:1", form=request.param)
        manifest = json.loads(registry.blob_file(report.digest).read_bytes())
        names = {report.digest: "the manifest", manifest["config"]["digest"]: "the configuration"}
        for layer in manifest["layers"]:
            names[layer["digest"]] = f"layer {layer.get('annotations', {})}"
        for digest in registry.blobs() - set(names):
            content = registry.blob_file(digest).read_bytes()
            if b'"dsseEnvelope"' in content:
                # An image has them in a layer as well, and that is read.
                if request.param != "image":
                    names[digest] = "a bundle"
            elif b'"subject"' in content:
                names[digest] = "a referrer"
        # Earlier ones are named by nobody, nor is the empty configuration of referrers read.
        tag = report.digest.replace(":", "-")
        (link,) = registry.folder.rglob(f"tags/{tag}/current/link")
        names[link.read_text()] = "the index of referrers"
        yield Kept(registry, f"oci://{registry.host}/shop/model:1", public, names)


def test_a_byte_of_each_blob(pushed: Kept, tmp_path: Path) -> None:
    for digest in sorted(pushed.names):
        size = pushed.registry.blob_file(digest).stat().st_size
        for number in range(FEW):
            pushed.changed(digest, (2 * number + 1) * size // (2 * FEW), tmp_path / "store")


def test_a_byte_of_each_file_is_told_by_its_name(pushed: Kept, tmp_path: Path) -> None:
    """Of the members of tars too, and of their headers and padding."""
    seen = set()
    for digest in sorted(pushed.names):
        path = pushed.registry.blob_file(digest)
        if not tarfile.is_tarfile(path):
            continue
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.isfile()]
        for member in members:
            error = pushed.changed(
                digest, member.offset_data + member.size // 2, tmp_path / "store"
            )
            name = member.name.removeprefix("models/")
            if "attestations/" not in name:
                assert name in f"{error.where}", (name, error)
            seen.add(name)
            pushed.changed(digest, member.offset, tmp_path / "store")
    assert "payload/aotc.json" in seen


@pytest.mark.slow
def test_many_bytes_of_each_blob(pushed: Kept, tmp_path: Path) -> None:
    """Each seventh of small documents, each hundredth of tars, each thousandth of weights."""
    for digest in sorted(pushed.names):
        size = pushed.registry.blob_file(digest).stat().st_size
        for place in range(0, size, 7 if size < 4096 else 101 if size < 60_000 else 1009):
            pushed.changed(digest, place, tmp_path / "store")
