"""A signed artifact in the registry of the tests, and who rewrites there what describes it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact
from referrers_registry import ReferrersRegistry, digest_of, referrers_registry

import aotc
from aotc.base.errors import AotcError
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

Json = Any
# More than what is put together with other small files.
PADDING = 300_000
NAME = "shop/model"
# After these, a pull goes on from where it was.
RESUMED = ("AOTC-I197", "AOTC-I202", "AOTC-I204")


@dataclass(frozen=True)
class Shop:
    """An artifact at `NAME:1` of a registry, whose signer a host trusts."""

    registry: ReferrersRegistry
    artifact: Path
    public: Path
    folder: Path
    digest: str
    """Of its manifest."""

    def reference(self, tag: str = "1") -> str:
        return f"oci://{self.registry.host}/{NAME}:{tag}"

    def manifest(self, tag: str = "1") -> Json:
        repo = self.registry.repo(NAME)
        return json.loads(repo.manifests[repo.tags[tag]][1])

    def layer(self, ending: str) -> Json:
        """The descriptor of the layer of one file, whose path ends so."""
        (found,) = (
            each
            for each in self.manifest()["layers"]
            if any(str(value).endswith(ending) for value in each.get("annotations", {}).values())
        )
        return found

    def rewritten(self, change: Callable[[Json], object], tag: str = "bad") -> str:
        """A changed manifest at `tag`, with all referrers of the first one; its reference."""
        repo = self.registry.repo(NAME)
        document = copy.deepcopy(self.manifest())
        changed = change(document)
        content = changed if isinstance(changed, bytes) else json.dumps(document).encode()
        media_type = repo.manifests[self.digest][0]
        digest = digest_of(content)
        stated = re.search(rb'"mediaType": "([^"]*index[^"]*)"', content)
        repo.manifests[digest] = (stated[1].decode() if stated else media_type, content)
        repo.tags[tag] = digest
        for kind, other in list(repo.manifests.values()):
            referrer = json.loads(other) if kind == media_type and other != content else {}
            if referrer.get("subject", {}).get("digest") == self.digest:
                referrer["subject"].update(digest=digest, size=len(content))
                self.add_manifest(kind, referrer)
        return self.reference(tag)

    def add_manifest(self, media_type: str, document: Json) -> str:
        content = json.dumps(document).encode()
        self.registry.repo(NAME).manifests[digest_of(content)] = (media_type, content)
        return digest_of(content)

    def add_blob(self, content: bytes) -> Json:
        """The digest and size of a blob that the registry has from now on."""
        digest = digest_of(content)
        self.registry.blobs[digest] = content
        self.registry.repo(NAME).blobs.add(digest)
        return {"digest": digest, "size": len(content)}

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def pull(self, tag: str = "1", **options: Any) -> Any:
        return aotc.pull(self.reference(tag), key=self.public, store=self.store, **options)

    def refused(self, tag: str = "bad") -> AotcError:
        """How a pull refuses; nothing of what it refuses is in the store."""
        with pytest.raises(AotcError) as caught:
            self.pull(tag)
        left = kept(self.store)
        if caught.value.code in RESUMED:
            # Parts for the next pull, which takes of them what has a signed digest.
            left = [name for name in left if not name.startswith(".new-")]
        assert left == []
        return caught.value


@contextmanager
def as_before(opened: Shop, folder: Path) -> Iterator[Shop]:
    """A shop with a store of its own in `folder`; its registry is put back as it was."""
    registry = opened.registry
    before = copy.deepcopy(registry.repositories)
    yield replace(opened, folder=folder)
    registry.repositories = before
    registry.faults.clear()
    registry.asked.clear()
    registry.auth, registry.ranges, registry.referrers_api = "", True, True


def kept(store: Path) -> list[str]:
    """What a store has besides files of locks."""
    return sorted(
        path.relative_to(store).as_posix()
        for path in store.rglob("*")
        if path.is_file() and path.name != ".lock"
    )


@contextmanager
def shop(folder: Path, **options: Any) -> Iterator[Shop]:
    """A registry with an artifact; `options` are those of the push."""
    private, public = generate(folder / "release.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private), padding=PADDING)
    with referrers_registry() as registry:
        report = aotc.push(artifact, f"oci://{registry.host}/{NAME}:1", **options)
        yield Shop(registry, artifact, public, folder, report.digest)
