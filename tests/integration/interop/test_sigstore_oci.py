"""sigstore's client of registries for Node, against a real registry and that of the tests.

It finds what aotc pushed by its own means, and attaches bundles, which aotc finds: by the API for
referrers where there is one, else by the tag in its place, to which both write.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact
from referrers_registry import referrers_registry
from registries import PASSWORD, USER, docker_registry, log_in
from sigstore_js import PINNED, SigstoreJs, install

import aotc
from aotc.cli.main import main
from aotc.spec.attestation_kinds import KINDS
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

NAME = "shop/model"
SCRIPT = PINNED / "attach.mjs"


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> SigstoreJs:
    return install(tmp_path_factory.mktemp("node"))


def approve(artifact: Path | str, key: Path, channel: str = "prod", *more: str) -> None:
    words = ("--approve", "--channel", channel, "--expires", "2090-01-01", "--key", str(key))
    assert (
        main(["attest", str(artifact), *words, "--trust", str(key.with_suffix(".pub")), *more]) == 0
    )


@dataclass(frozen=True)
class Scene:
    host: str
    digest: str
    artifact: Path
    public: Path
    approval: Path
    """A bundle that approves the artifact, which is not in the registry yet."""
    credentials: tuple[str, ...]

    @property
    def reference(self) -> str:
        return f"oci://{self.host}/{NAME}:1"

    def bundles(self) -> int:
        """How many attestations aotc finds."""
        pulled = self.artifact.with_name("pulled.aotc")
        shutil.rmtree(pulled, ignore_errors=True)
        aotc.pull(self.reference, key=self.public, output=pulled)
        return len(list((pulled / "attestations").iterdir()))


@pytest.fixture(params=["docker-registry", "docker-registry with users", "the referrers API"])
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    private, public = generate(tmp_path / "release.pem")
    artifact = build_artifact(tmp_path / "a.aotc", load_private(private))
    approved = Path(shutil.copytree(artifact, tmp_path / "approved.aotc"))
    approve(approved, private)
    (added,) = {path.name for path in (approved / "attestations").iterdir()} - {
        path.name for path in (artifact / "attestations").iterdir()
    }
    users = request.param.endswith("users")
    opened: Any = (
        referrers_registry()
        if request.param.startswith("the")
        else docker_registry(tmp_path / "registry", users=users)
    )
    with opened as registry:
        if users:
            monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", registry.host)))
        pushed = aotc.push(artifact, f"oci://{registry.host}/{NAME}:1")
        yield Scene(
            registry.host,
            pushed.digest,
            artifact,
            public,
            approved / "attestations" / added,
            (USER, PASSWORD) if users else (),
        )


def test_it_attaches_what_aotc_finds(js: SigstoreJs, scene: Scene) -> None:
    before = scene.bundles()
    done = js.run(
        SCRIPT,
        *(f"{scene.host}/{NAME}", "1", scene.approval, KINDS["approval"].predicate_type),
        *scene.credentials,
    )
    assert (done.returncode, done.stderr) == (0, "")
    digest, attached = done.stdout.split()
    assert digest == scene.digest
    assert attached.startswith("sha256:")
    assert scene.bundles() == before + 1
    report = aotc.verify(scene.reference, key=scene.public)
    assert report.authentic


def test_the_registry_of_the_tests_has_the_api(js: SigstoreJs, tmp_path: Path) -> None:
    """To this client too: it makes no tag in its place."""
    private, _ = generate(tmp_path / "release.pem")
    artifact = build_artifact(tmp_path / "a.aotc", load_private(private))
    with referrers_registry() as registry:
        pushed = aotc.push(artifact, f"oci://{registry.host}/{NAME}:1")
        bundle = next((artifact / "attestations").iterdir())
        done = js.run(SCRIPT, f"{registry.host}/{NAME}", "1", bundle, "urn:other")
        assert (done.returncode, done.stderr) == (0, "")
        assert set(registry.repo(NAME).tags) == {"1"}
        assert done.stdout.split()[0] == pushed.digest


def test_both_add_to_one_index(js: SigstoreJs, tmp_path: Path) -> None:
    """By turns, at a registry without the API: none loses what the other added."""
    private, public = generate(tmp_path / "release.pem")
    artifact = build_artifact(tmp_path / "a.aotc", load_private(private))
    with docker_registry(tmp_path / "registry") as registry:
        reference = f"oci://{registry.host}/{NAME}:1"
        pushed = aotc.push(artifact, reference)

        def listed() -> int:
            tag = pushed.digest.replace(":", "-")
            request = urllib.request.Request(
                f"http://{registry.host}/v2/{NAME}/manifests/{tag}",
                headers={"Accept": "application/vnd.oci.image.index.v1+json"},
            )
            with urllib.request.urlopen(request) as answer:
                return len(json.loads(answer.read())["manifests"])

        first = listed()
        assert first == len(list((artifact / "attestations").iterdir()))
        bundle = next((artifact / "attestations").iterdir())
        done = js.run(SCRIPT, f"{registry.host}/{NAME}", "1", bundle, "urn:other")
        assert (done.returncode, done.stderr) == (0, "")
        assert listed() == first + 1
        # As is: what is there already is not added again.
        aotc.push(artifact, reference)
        assert listed() == first + 1
        for channel in ("prod", "staging"):
            approve(reference, private, channel, "--push")
        assert listed() == first + 3
        assert aotc.verify(reference, key=public).authentic
