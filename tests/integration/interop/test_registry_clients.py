"""The image and the ModelPack form as programs of others pull and open them, from a real registry.

skopeo and umoci, buildah, and containerd for the image form; `modelpack-client` for ModelPack.
containerd and buildah mount: they need root, and a kernel that lets it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from registries import Registry, docker_registry

import aotc
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

# More than what is put together with other small files.
PADDING = 300_000


@dataclass(frozen=True)
class Pushed:
    """An artifact in a registry, in both forms: `shop/image:1` and `shop/model:1`."""

    artifact: Path
    public: Path
    registry: Registry
    artifact_id: str

    @property
    def image(self) -> str:
        return f"{self.registry.host}/shop/image:1"

    @property
    def model(self) -> str:
        return f"{self.registry.host}/shop/model:1"


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushed]:
    folder = tmp_path_factory.mktemp("outside")
    private, public = generate(folder / "release.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private), padding=PADDING)
    with docker_registry(folder / "registry") as registry:
        reports = [
            aotc.push(artifact, f"{registry.host}/shop/{name}:1", form=form)
            for name, form in (("image", "image"), ("model", "modelpack"))
        ]
        first, second = (report.artifact_id for report in reports)
        assert first == second
        yield Pushed(artifact, public, registry, first)


def _needs(*programs: str, root: bool = False) -> None:
    missing = [each for each in programs if shutil.which(each) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: what others make of the image form is not tried")
    if root and os.geteuid() != 0:
        pytest.skip(f"{programs[0]} mounts, which only root may: it is not tried")


def _run(*words: str | Path, environment: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert ended.returncode == 0, f"{words}: {ended.stderr}"
    return ended.stdout


def _is_the_artifact(folder: Path, pushed: Pushed) -> None:
    """Every byte of every file, and aotc verifies what lies there."""
    assert contents_of(folder) == contents_of(pushed.artifact)
    report = aotc.verify(folder, key=pushed.public)
    assert report.authentic
    assert report.artifact_id == pushed.artifact_id


def test_skopeo_copies_and_umoci_unpacks(pushed: Pushed, tmp_path: Path) -> None:
    _needs("skopeo", "umoci")
    layout = f"{tmp_path / 'layout'}:1"
    _run(
        *("skopeo", "copy", "--insecure-policy", "--src-tls-verify=false"),
        *(f"docker://{pushed.image}", f"oci:{layout}"),
    )
    _run("umoci", "raw", "unpack", "--rootless", "--image", layout, tmp_path / "files")
    _is_the_artifact(tmp_path / "files" / "models", pushed)


def test_the_layers_lie_over_those_of_a_base_image(pushed: Pushed, tmp_path: Path) -> None:
    """Which umoci made and skopeo pushed, with a compressed layer; aotc pulls its own alone."""
    _needs("skopeo", "umoci")
    base, layout = tmp_path / "base", f"{tmp_path / 'layout'}:1"
    (tmp_path / "hello").write_text("hello")
    _run("umoci", "init", "--layout", base)
    _run("umoci", "new", "--image", f"{base}:1")
    insert = ("umoci", "insert", "--rootless", "--image", f"{base}:1")
    _run(*insert, tmp_path / "hello", "/etc/hello")
    copy = ("skopeo", "copy", "--insecure-policy")
    plain = ("--src-tls-verify=false", "--dest-tls-verify=false")
    host = pushed.registry.host
    _run(*copy, *plain, f"oci:{base}:1", f"docker://{host}/base/image:1")

    reference = f"oci://{host}/shop/based:1"
    aotc.push(pushed.artifact, reference, form="image", base=f"oci://{host}/base/image:1")
    _run(*copy, *plain, f"docker://{host}/shop/based:1", f"oci:{layout}")
    _run("umoci", "raw", "unpack", "--rootless", "--image", layout, tmp_path / "files")
    assert (tmp_path / "files" / "etc" / "hello").read_text() == "hello"
    _is_the_artifact(tmp_path / "files" / "models", pushed)
    aotc.pull(reference, key=pushed.public, output=tmp_path / "pulled.aotc")
    assert contents_of(tmp_path / "pulled.aotc") == contents_of(pushed.artifact)


def test_skopeo_carries_the_image_to_another_registry(pushed: Pushed, tmp_path: Path) -> None:
    """Byte by byte, so that the digest stays."""
    _needs("skopeo")
    with docker_registry(tmp_path / "mirror") as mirror:
        target = f"{mirror.host}/mirrored/image:1"
        _run(
            *("skopeo", "copy", "--insecure-policy", "--preserve-digests"),
            *("--src-tls-verify=false", "--dest-tls-verify=false"),
            *(f"docker://{pushed.image}", f"docker://{target}"),
        )
        inspect = ("skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}")
        digests = [_run(*inspect, f"docker://{name}") for name in (pushed.image, target)]
    assert digests[0] == digests[1]


def test_buildah_mounts_a_container_of_the_image(pushed: Pushed, tmp_path: Path) -> None:
    _needs("buildah", root=True)
    environment = {**os.environ, "HOME": str(tmp_path)}
    buildah = (
        *("buildah", "--storage-driver", "vfs"),
        *("--root", str(tmp_path / "root"), "--runroot", str(tmp_path / "state")),
    )

    def run(*words: str) -> str:
        return _run(*buildah, *words, environment=environment).strip()

    container = run("from", "--tls-verify=false", f"docker://{pushed.image}").splitlines()[-1]
    try:
        _is_the_artifact(Path(run("mount", container)) / "models", pushed)
    finally:
        run("umount", container)
        run("rm", container)


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[list[str]]:
    """The words with which `ctr` asks a containerd of this test."""
    _needs("containerd", "ctr", root=True)
    # The name of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ctd-") as name:
        folder = Path(name)
        (folder / "config.toml").write_text(
            f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{folder}/socket"\n'
        )
        with (
            (tmp_path / "containerd.log").open("w") as log,
            subprocess.Popen(
                ["containerd", "--config", folder / "config.toml"], stdout=log, stderr=log
            ) as process,
        ):
            words = ["ctr", "--address", f"{folder}/socket"]
            try:
                for _ in range(300):
                    asked = subprocess.run([*words, "version"], capture_output=True, check=False)
                    if asked.returncode == 0 or process.poll() is not None:
                        break
                    time.sleep(0.1)
                assert asked.returncode == 0, (tmp_path / "containerd.log").read_text()
                yield words
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()


@pytest.mark.parametrize("snapshotter", ["overlayfs", "native"])
def test_containerd_mounts_the_image(
    pushed: Pushed, containerd: list[str], tmp_path: Path, snapshotter: str
) -> None:
    """As an image volume of Kubernetes is: layers one above the other, read-only."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    image = [*containerd, "image"]
    how = ("--snapshotter", snapshotter)
    _run(*image, "pull", "--plain-http", *how, pushed.image)
    ended = subprocess.run(
        [*image, "mount", *how, pushed.image, mounted], capture_output=True, text=True, check=False
    )
    if "operation not permitted" in ended.stderr or "no such device" in ended.stderr:
        pytest.skip(f"this kernel mounts no image with {snapshotter}: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    try:
        _is_the_artifact(mounted / "models", pushed)
    finally:
        _run(*image, "unmount", mounted)


def test_another_client_pulls_the_modelpack_form(pushed: Pushed, tmp_path: Path) -> None:
    """It holds the configuration to the schema of the specification, and digests to all bytes."""
    client = pytest.importorskip("modelpack_client", reason="needs modelpack-client")
    made = client.ModelPackClient(insecure=True)
    pulled = made.pull(pushed.model, tmp_path / "files")
    assert contents_of(tmp_path / "files" / "payload") == contents_of(pushed.artifact / "payload")
    assert len(pulled.config["modelfs"]["diffIds"]) == len(pulled.manifest["layers"])
