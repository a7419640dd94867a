"""The export format `kserve`: a service of KServe that Triton runs, and its manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from aotc.base.errors import AotcError
from aotc.spec.payload import Finding
from aotc.spec.profile_files import data_folder
from aotc.spec.providers import CAPTURING
from aotc.spec.versions import VERSION
from aotc.tools import triton
from aotc.tools.export import ExportSource, Layout
from aotc.tools.onnx_folder import README

# A service's name becomes part of labels of at most 63 characters, as `NAME-predictor`.
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")
# Beside the files, what the folder of a pod may hold: texts, and what the file system adds.
_SPARE_BYTES: Final = 64 << 20
_OF_REGISTRY: Final = """\
It is in a registry, as `@`. Each pod takes it from there, verifies it, and
writes what its server reads, which the server cannot change."""
_OF_MODELS: Final = """\
`models` is what the server reads: an export of the format `triton`, whose README.md says more. It
goes into an image, as `inferenceservice.yaml` says."""
_CHECKED: Final = """\
**Checked before each start**, by the init container `verify`: the signature of the artifact, by the
key or policy in `trust.yaml`, and every file that the server reads. It runs as a user without
rights, and may write nothing but what the server reads, where it makes that."""
_UNVERIFIED: Final = """\
**No longer checked**: the signature, and the digests of the files. An export with `--reverify` has
an init container that does so, and what it needs."""
_UNCHECKED: Final = """\
**No longer checked**, as `aotc.load` does it: whether the node fits (CPU features, drivers, and the
version of ONNX Runtime, which is that of Triton's image); on which provider each node runs; sizes
and values outside of those that were proven; the golden answers before the first call; and what
happens to the files while the server runs."""
_STORAGE: Final = """\
`clusterstoragecontainer.yaml` is an example for clusters without image volumes, and for their
administrator: it lets any service fetch and verify artifacts by `aotc+oci://`."""


def layout(source: ExportSource) -> Layout:
    """The manifests of a service, and in `models` what Triton serves.

    Of an artifact in a registry the manifests alone: a pod takes what it serves from there.
    Raises AOTC-I226 for a name that no service can have, and what the format `triton` does.
    """
    name = source.name
    if _NAME.fullmatch(name) is None:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:53].strip("-")
        raise AotcError(
            "AOTC-I226",
            "the name of the model is not one of a service of KServe",
            where="--name",
            expected="lower-case letters, digits and '-', at most 53, and a letter first",
            found=name,
            fix=f"--name {plain}" if _NAME.fullmatch(plain) else "",
        )
    models = triton.layout(source)
    reverified = source.reverify or bool(source.reference)
    form = "service-of-registry" if source.reference else "service"
    service = "service-reverified" if source.reverify and not source.reference else form
    image = source.reference or f"registry.example.com/models/{name}:PUT-THE-VERSION-HERE"
    size = sum(
        entry.size for entry in source.manifest.files if entry.path in models.payload_files()
    )
    needs = source.variant.requirements
    gpu = CAPTURING.ort_name in source.variant.providers
    marks = {
        "NAME": name,
        "IMAGE": image,
        # Its own, as it has what this model needs.
        "RUNTIME": f"{name}-triton",
        "VARIANT": source.variant.name,
        "VERSION": VERSION,
        "SIZE": f"{-(-(size + _SPARE_BYTES) // (1 << 20))}Mi",
        # The server, and the weights twice, as ONNX Runtime lays some out anew.
        "MEMORY": f"{1 - (-2 * size // (1 << 30))}Gi",
        "NEEDS": f">={needs.onnxruntime_min}, <{needs.onnxruntime_below}",
        "GPUS": ", nvidia.com/gpu: 1" if gpu else "",
    }
    texts = {
        "inferenceservice.yaml": _filled(service, marks),
        "servingruntime.yaml": _filled("runtime", marks),
        "clusterstoragecontainer.yaml": _filled("storage", marks),
        README: "".join(f"{line}\n" for line in _readme(source, reverified=reverified)),
    }
    if reverified:
        texts["trust.yaml"] = _filled("trust", marks)
    findings = models.findings
    if source.reference and source.form != "image":
        what = f"the artifact is in its registry as {source.form}, which no pod can mount"
        findings = (*findings, Finding(code="AOTC-I230", what=what, where=source.reference))
    return Layout(texts=texts, models=None if source.reference else models, findings=findings)


def _filled(template: str, marks: dict[str, str]) -> str:
    """A template of `ci/templates/kserve` with each `@MARK@` replaced."""
    text = (data_folder("ci/templates") / "kserve" / f"{template}.yaml").read_text("utf-8")
    for mark, value in marks.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _readme(source: ExportSource, *, reverified: bool) -> Iterator[str]:
    yield f"# {source.name}"
    yield ""
    yield f"Variant `{source.variant.name}` of an artifact of aotc, as a service of KServe."
    yield f"The artifact is `sha256-{source.described.artifact_id}`."
    yield ""
    yield (_OF_REGISTRY if source.reference else _OF_MODELS).replace("@", source.reference)
    yield ""
    yield _CHECKED if reverified else _UNVERIFIED
    yield ""
    yield _UNCHECKED
    yield ""
    yield "## Deploy it"
    yield ""
    yield "Put in images by digest and, where there is one, your key; each file says where. Then:"
    yield ""
    yield "```sh"
    trust = ("trust.yaml",) if reverified else ()
    files = ("servingruntime.yaml", *trust, "inferenceservice.yaml")
    yield f"kubectl apply {' '.join(f'-f {file}' for file in files)}"
    yield "```"
    yield ""
    yield f"Requests are those of the open inference protocol v2: `/v2/models/{source.name}/infer`."
    yield _STORAGE
    yield ""
