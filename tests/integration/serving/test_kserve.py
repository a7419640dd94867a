"""Exports for KServe: its API, Kubernetes' schemas, and their containers as a pod starts them.

No cluster is started, and no Triton: a session opens what the server would read.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import yaml
from confined_host import Host, why_not
from file_bytes import flip_bit
from refusals import refusal
from registries import docker_registry
from server_schemas import KServeModels

from aotc import export, load, push
from aotc.base.records import replace
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.tools.export import ExportSource, describe
from aotc.tools.kserve import layout

REFERENCE = f"registry.example.com/models/first@sha256:{'a' * 64}"
KINDS = {
    "inferenceservice.yaml": "V1beta1InferenceService",
    "servingruntime.yaml": "V1alpha1ServingRuntime",
    "clusterstoragecontainer.yaml": "V1alpha1ClusterStorageContainer",
}


def source_of(artifact: Path, name: str = "first", **fields: Any) -> ExportSource:
    data = strict_json((artifact / "payload" / "aotc.json").read_bytes())
    manifest = decode(Manifest, data)
    (variant, *_) = manifest.variants
    described = describe(manifest, "0" * 64, variant, format="kserve", model=name, unproven="")
    return ExportSource(
        manifest=manifest, variant=variant, described=described, name=name, **fields
    )


@pytest.fixture(params=["plain", "reverified", "of-registry"])
def manifests(request, artifacts) -> dict[str, Any]:
    """The documents of an export, by file."""
    asked = {
        "plain": {},
        "reverified": {"reverify": True},
        "of-registry": {"reference": REFERENCE},
    }[request.param]
    texts = layout(source_of(artifacts.first, **asked)).texts
    return {name: yaml.safe_load(text) for name, text in texts.items() if name.endswith(".yaml")}


def pod_of(documents: dict[str, Any]) -> dict[str, Any]:
    """The pod that KServe makes of a service and its runtime, before it mounts the model."""
    mode = documents["inferenceservice.yaml"]["metadata"]["annotations"]
    # Knative makes other pods, without volumes of images.
    assert mode == {"serving.kserve.io/deploymentMode": "Standard"}
    predictor = dict(documents["inferenceservice.yaml"]["spec"]["predictor"])
    (container,) = documents["servingruntime.yaml"]["spec"]["containers"]
    model = dict(predictor.pop("model"))
    for own in ("modelFormat", "protocolVersion", "runtime", "storageUri"):
        model.pop(own, None)
    args = [*container["args"], *model.pop("args")]
    spec = {**predictor, "containers": [{**container, **model, "args": args}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_kserve_and_kubernetes_take_them(manifests, server_packages: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    models = KServeModels(server_packages)
    for name, model in KINDS.items():
        assert list(models.problems(manifests[name], model)) == []
        assert f"V1{manifests[name]['apiVersion'].rpartition('/v1')[2]}" in model
        assert model.endswith(manifests[name]["kind"])
    storage = manifests["clusterstoragecontainer.yaml"]["spec"]["container"]
    assert storage["name"] == "storage-initializer"
    mounted = pod_of(manifests)
    mounted["spec"].setdefault("volumes", [{"name": "trust", "configMap": {"name": "x"}}])
    mounted["spec"].setdefault("initContainers", []).append(storage)
    documents = [mounted, *(each for name, each in manifests.items() if name == "trust.yaml")]
    for each in documents:
        validator.validate(each, validator.latest_version(), strict=True)
    # What is mounted is a volume of the pod, and the runtime is the one that the service names.
    volumes = {each["name"] for each in mounted["spec"]["volumes"]}
    containers = (*mounted["spec"]["initContainers"], *mounted["spec"]["containers"])
    assert {at["name"] for each in containers for at in each.get("volumeMounts", ())} <= volumes
    service = manifests["inferenceservice.yaml"]["spec"]["predictor"]["model"]
    runtime = manifests["servingruntime.yaml"]
    assert service["runtime"] == runtime["metadata"]["name"]
    formats = {each["name"] for each in runtime["spec"]["supportedModelFormats"]}
    assert service["modelFormat"]["name"] in formats
    assert service["protocolVersion"] in runtime["spec"]["protocolVersions"]
    # And both schemas refuse what is not theirs.
    service["storageURI"] = "x"
    mounted["spec"]["initContainers"][0]["arguments"] = []
    wrong = list(
        models.problems(manifests["inferenceservice.yaml"], KINDS["inferenceservice.yaml"])
    )
    assert wrong == ["V1beta1ModelSpec has no storageURI"]
    with pytest.raises(validator.ValidationError):
        validator.validate(mounted, validator.latest_version(), strict=True)


def test_what_verifies_can_change_nothing_else(manifests) -> None:
    spec = manifests["inferenceservice.yaml"]["spec"]["predictor"]
    storage = manifests["clusterstoragecontainer.yaml"]["spec"]["container"]
    for each in (*spec.get("initContainers", ()), storage):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        writable = [at["name"] for at in each["volumeMounts"] if not at.get("readOnly")]
        assert writable == (["repository"] if "export" in each.get("args", ()) else [])
    (server,) = pod_of(manifests)["spec"]["containers"]
    assert all(at["readOnly"] for at in server.get("volumeMounts", ()))


def test_the_same_image_is_verified_and_served(artifacts, tmp_path: Path) -> None:
    documents = layout(source_of(artifacts.first, reverify=True)).texts
    predictor = yaml.safe_load(documents["inferenceservice.yaml"])["spec"]["predictor"]
    (image,) = (each["image"]["reference"] for each in predictor["volumes"] if "image" in each)
    assert predictor["model"]["storageUri"] == f"oci+native://{image}"
    documents = layout(source_of(artifacts.first, reference=REFERENCE, reverify=True))
    # A registry has the weights once: the export of its artifact has none of them.
    assert documents.models is None and documents.payload_files() == {}
    predictor = yaml.safe_load(documents.texts["inferenceservice.yaml"])["spec"]["predictor"]
    (image,) = (each["image"]["reference"] for each in predictor["volumes"] if "image" in each)
    assert image == REFERENCE and "storageUri" not in predictor["model"]
    assert f"`{REFERENCE}`" in documents.texts["README.md"]


# Their containers, as a kubelet starts them.


@pytest.fixture
def host(artifacts, tmp_path: Path) -> Host:
    if reason := why_not():
        pytest.skip(reason)
    host = Host(tmp_path / "root", user=65532, directory="/work", writable=("/repository",))
    host.add_programs("/bin-of-the-image")
    shutil.copy2(artifacts.public_key, host.inside("/etc/aotc/release.pub"))
    return host


def started(host: Host, texts: Any) -> subprocess.CompletedProcess[str]:
    """The end of the init container, whose image's entry point is `aotc`."""
    predictor = yaml.safe_load(texts["inferenceservice.yaml"])["spec"]["predictor"]
    (container,) = predictor["initContainers"]
    assert "command" not in container
    return host.run("/bin-of-the-image/aotc", *container["args"])


def test_it_verifies_what_the_server_reads(artifacts, host: Host, tmp_path: Path) -> None:
    place = tmp_path / "exported"
    export(artifacts.first, place, key=artifacts.public_key, format="kserve", reverify=True)
    texts = {path.name: path.read_text() for path in place.glob("*.yaml")}
    mounted = host.inside("/exported")
    shutil.copytree(place / "models", mounted)
    before = sorted((path, path.stat().st_mtime_ns) for path in mounted.rglob("*"))
    done = started(host, texts)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((path, path.stat().st_mtime_ns) for path in mounted.rglob("*")) == before
    flip_bit(mounted / "first" / "1" / "model.onnx")
    done = started(host, texts)
    assert done.returncode == 1
    assert "AOTC-G005  first/1/model.onnx" in done.stdout
    host.inside("/etc/aotc/release.pub").unlink()
    assert started(host, texts).returncode == 3


def test_it_writes_what_the_server_reads_of_a_verified_artifact(
    artifacts, inputs, host: Host, tmp_path: Path
) -> None:
    texts = layout(source_of(artifacts.first, reference=REFERENCE)).texts
    shutil.copytree(artifacts.first, host.inside("/artifact"))
    host.inside("/repository").chmod(0o777)
    # A kubelet that starts the pod's containers anew finds what they wrote before.
    for _ in range(2):
        done = started(host, texts)
        assert done.returncode == 0, done.stdout + done.stderr
    made = host.inside("/repository/models")
    args = yaml.safe_load(texts["inferenceservice.yaml"])["spec"]["predictor"]["model"]["args"]
    assert args == ["--model-repository=/mnt/repository/models"]
    export(
        artifacts.first,
        tmp_path / "same",
        key=artifacts.public_key,
        format="triton",
        variant=source_of(artifacts.first).variant.name,
    )
    same = {path.relative_to(tmp_path / "same") for path in (tmp_path / "same").rglob("*")}
    assert {path.relative_to(made) for path in made.rglob("*")} == same
    session = ort.InferenceSession(str(made / "first" / "1" / "model.onnx"))
    with load(artifacts.first, key=artifacts.public_key, store=tmp_path / "store") as model:
        expected = model.run({"x": inputs})
    (found,) = session.run(None, {"x": inputs})
    np.testing.assert_array_equal(found, next(iter(expected.values())))
    shutil.rmtree(made)
    flip_bit(host.inside(f"/artifact/payload/{source_of(artifacts.first).variant.model}"))
    done = started(host, texts)
    assert done.returncode == 1 and "AOTC-G005" in done.stdout + done.stderr
    assert not made.exists()


def test_the_storage_container_verifies_what_it_fetches(artifacts, tmp_path: Path) -> None:
    """Its command, as KServe appends the URI and the folder, here for an artifact in a folder."""
    texts = layout(source_of(artifacts.first)).texts
    container = yaml.safe_load(texts["clusterstoragecontainer.yaml"])["spec"]["container"]
    program, *words = container["command"]
    assert program == "/usr/bin/python3"
    words = [word.replace("/etc/aotc/release.pub", str(artifacts.public_key)) for word in words]
    folder = tmp_path / "models"
    folder.mkdir()
    for artifact, status in ((artifacts.first, 0), (artifacts.damaged(tmp_path / "bad"), 1)):
        command = [sys.executable, *words, f"aotc+{artifact}", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert (folder / "repository").exists() == (status == 0)
        shutil.rmtree(folder / "repository", ignore_errors=True)


def test_an_artifact_of_a_registry(artifacts, tmp_path: Path) -> None:
    """Named by its digest, though asked for by a tag; and fetched by the storage container."""
    with docker_registry(tmp_path / "registry") as registry:
        reference = f"oci://{registry.host}/models/first:1"
        push(artifacts.first, reference)
        report = export(reference, tmp_path / "pack", key=artifacts.public_key, format="kserve")
        assert "AOTC-I230" in [each.code for each in report.findings]
        pushed = push(artifacts.first, reference, form="image")
        place = tmp_path / "exported"
        report = export(reference, place, key=artifacts.public_key, format="kserve")
        assert "AOTC-I230" not in [each.code for each in report.findings]
        assert not [name for name in report.files if name.endswith((".onnx", ".bin"))]
        texts = {path.name: path.read_text() for path in place.glob("*.yaml")}
        predictor = yaml.safe_load(texts["inferenceservice.yaml"])["spec"]["predictor"]
        (image,) = (each["image"]["reference"] for each in predictor["volumes"] if "image" in each)
        assert image == f"{registry.host}/models/first@{pushed.digest}"
        # What the volume has, as the image is laid out.
        container = yaml.safe_load(texts["clusterstoragecontainer.yaml"])["spec"]["container"]
        _, *words = container["command"]
        words = [word.replace("/etc/aotc/release.pub", str(artifacts.public_key)) for word in words]
        folder = tmp_path / "fetched"
        folder.mkdir()
        command = [sys.executable, *words, f"aotc+oci://{image}", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    made = next(folder.glob("repository/first/1/model.onnx"))
    variant = json.loads((folder / "repository" / "export.json").read_text())["variant"]
    (model,) = (
        each.model for each in source_of(artifacts.first).manifest.variants if each.name == variant
    )
    assert made.read_bytes() == (artifacts.first / "payload" / model).read_bytes()


# Names, and what is said.


def test_names_that_no_service_has(artifacts) -> None:
    for name, better in (("ResNet50", "resnet50"), ("my_model.v1", "my-model-v1"), ("9", "")):
        error = refusal(lambda name=name: layout(source_of(artifacts.first, name)))
        assert (error.code, error.found) == ("AOTC-I226", name)
        assert error.fix == (f"--name {better}" if better else error.fix)
    assert layout(source_of(artifacts.first, "a" * 53)).texts
    # Names that YAML has a meaning for stay names.
    source = source_of(artifacts.first, "no", reference=REFERENCE)
    source = replace(source, variant=replace(source.variant, name="1.50"))
    service = yaml.safe_load(layout(source).texts["inferenceservice.yaml"])
    assert service["metadata"]["name"] == "no"
    (container,) = service["spec"]["predictor"]["initContainers"]
    assert container["args"][2:7] == ["triton", "--name", "no", "--variant", "1.50"]
    assert refusal(lambda: layout(source_of(artifacts.first, "a" * 54))).code == "AOTC-I226"


def test_a_runtime_of_its_own_has_what_the_model_needs(artifacts) -> None:
    source = source_of(artifacts.first)
    cuda = replace(source.variant, providers=("CUDAExecutionProvider", "CPUExecutionProvider"))
    files = [
        replace(each, size=4 * 10**9) if each.path == source.variant.model else each
        for each in source.manifest.files
    ]
    large = replace(source.manifest, files=tuple(files))
    for made, limits in (
        (source, {"memory": "2Gi"}),
        (replace(source, variant=cuda), {"memory": "2Gi", "nvidia.com/gpu": 1}),
        (replace(source, manifest=large), {"memory": "9Gi"}),
    ):
        runtime = yaml.safe_load(layout(made).texts["servingruntime.yaml"])
        (container,) = runtime["spec"]["containers"]
        assert container["resources"]["limits"] == limits
    # Applied after that of another service, it changes nothing for that one.
    first, other = (
        yaml.safe_load(layout(source_of(artifacts.first, name)).texts["servingruntime.yaml"])
        for name in ("first", "other")
    )
    assert first["metadata"]["name"] != other["metadata"]["name"]


@pytest.mark.parametrize("reverify", [False, True])
def test_the_readme_says_what_is_checked_no_longer(artifacts, reverify: bool) -> None:
    found = layout(source_of(artifacts.first, reverify=reverify))
    text = " ".join(found.texts["README.md"].split())
    assert ("the signature, and the digests of the files" in text) != reverify
    assert ("Checked before each start" in text) == reverify
    for word in ("whether the node fits", "ONNX Runtime", "which provider", "golden answers"):
        assert word in text
    applied = re.findall(r"-f (\S+)", text)
    assert set(applied) <= found.texts.keys()
    assert ("trust.yaml" in applied) == reverify
