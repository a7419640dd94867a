"""A CycloneDX 1.6 bill of materials of an artifact: model, data, libraries, licences, hashes.

Source: cyclonedx.org/docs/1.6/json (ECMA-424).  It holds no time and no random number, so that
equal inputs give equal documents.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from aotc.contract.codec.parsing import Json
from aotc.contract.known_providers import PLUGIN_PACKAGES, RUNTIMES
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.interface import Value
from aotc.contract.versions import VERSION
from aotc.errors import AotcError
from aotc.signing.provenance import Library, Materials

if TYPE_CHECKING:
    from cyclonedx.model import HashType
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

# RFC 9562, namespace of URLs: the serial number follows from the artifact's id.
_NAMESPACE: Final = uuid.NAMESPACE_URL
# What loads an artifact; the other libraries only made it.
_AT_LOAD: Final = frozenset({*RUNTIMES, "numpy", *PLUGIN_PACKAGES})


def require_library() -> None:
    """Raise I019 where the library that writes CycloneDX is not installed."""
    if find_spec("cyclonedx") is None:
        raise AotcError(
            "AOTC-I019",
            "a bill of materials needs the package cyclonedx-python-lib",
            fix="pip install cyclonedx-python-lib, or the extra cpu or gpu of aotc.",
        )


def import_library() -> None:
    """Import what `document` will: most of its time, which a build has while its jobs run."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    del LicenseFactory, JsonV1Dot6, PackageURL


def document(
    manifest: Manifest, artifact_id: str, materials: Materials, libraries: Iterable[Library]
) -> Json:
    """The bill of materials of the artifact with this manifest, whose sha256 is `artifact_id`."""
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    artifact = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=manifest.name,
        version=artifact_id,
        bom_ref=f"artifact:{artifact_id}",
        description="ONNX Runtime model package; the hash is that of its aotc.json",
        hashes=_sha256(artifact_id),
        licenses=_licences((materials.licence,) if materials.licence else ()),
        properties=[
            Property(name="aotc:profile-sha256", value=manifest.profile_sha256),
            Property(name="aotc:target", value=manifest.target),
            Property(name="aotc:payload-bytes", value=str(sum(e.size for e in manifest.files))),
        ],
    )
    source = _source(manifest, materials)
    parts = [
        source,
        *_data(manifest, materials),
        *(_library(each) for each in libraries),
        *_plugins(manifest),
    ]
    tool = Component(
        type=ComponentType.APPLICATION, name="aotc", version=VERSION, bom_ref=f"tool:aotc@{VERSION}"
    )
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, f"urn:aotc:artifact:{artifact_id}"),
        metadata=BomMetaData(component=artifact, tools=ToolRepository(components=[tool])),
        components=parts,
    )
    bom.register_dependency(artifact, parts)
    written = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library always notes the present time; a bill that holds none repeats.
    del written["metadata"]["timestamp"]
    # It has no model cards yet; this is that of the schema.
    written["metadata"]["component"]["modelCard"] = _model_card(manifest)
    return written


def _source(manifest: Manifest, materials: Materials) -> Component:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType

    capture = manifest.source
    told = {
        "onnx:producer": f"{capture.producer_name} {capture.producer_version}".strip(),
        "onnx:ir-version": str(capture.ir_version),
        "onnx:opsets": ", ".join(f"{k or 'ai.onnx'} {v}" for k, v in capture.opsets.items()),
        "aotc:bytes": str(capture.size),
    }
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=materials.model,
        version=str(capture.model_version) if capture.model_version else None,
        bom_ref=f"source:{capture.sha256}",
        description="the ONNX model that the artifact was built from",
        hashes=_sha256(capture.sha256),
        licenses=_licences((materials.licence,) if materials.licence else ()),
        properties=[Property(name=name, value=text) for name, text in told.items() if text],
    )


def _data(manifest: Manifest, materials: Materials) -> Iterable[Component]:
    from cyclonedx.model.component import Component, ComponentType

    named = [(each.location, each.sha256, "weights") for each in manifest.source.external_data]
    named += [(name, digest, "given") for name, digest in sorted(materials.given.items())]
    for name, digest, kind in named:
        yield Component(
            type=ComponentType.DATA,
            name=name,
            bom_ref=f"{kind}:{name}:{digest}",
            description="external data of the model" if kind == "weights" else "given to the build",
            hashes=_sha256(digest),
        )


def _library(library: Library) -> Component:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from packageurl import PackageURL

    needed = library.name.lower().replace("_", "-") in _AT_LOAD
    return Component(
        type=ComponentType.LIBRARY,
        name=library.name,
        version=library.version,
        bom_ref=library.purl,
        purl=PackageURL.from_string(library.purl),
        scope=ComponentScope.REQUIRED if needed else ComponentScope.EXCLUDED,
        licenses=_licences(library.licences),
        # A hash would be that of the distributed file, which is no longer there.
        properties=[Property(name="aotc:record-sha256", value=library.sha256)],
    )


def _plugins(manifest: Manifest) -> Iterable[Component]:
    from cyclonedx.model.component import Component, ComponentScope, ComponentType

    for each in manifest.toolchain.plugins:
        yield Component(
            type=ComponentType.LIBRARY,
            name=each.name,
            version=each.version or None,
            bom_ref=f"plugin:{each.name}:{each.sha256 or each.version}",
            description=f"libraries of {each.provider}" if each.provider else None,
            scope=ComponentScope.REQUIRED,
            hashes=_sha256(each.sha256) if each.sha256 else None,
        )


def _model_card(manifest: Manifest) -> Json:
    """The schema's `modelCard`: what the manifest knows of the model."""
    return {
        "bom-ref": f"model-card:{manifest.source.sha256}",
        "modelParameters": {
            "inputs": [{"format": _format(each)} for each in manifest.inputs],
            "outputs": [{"format": _format(each)} for each in manifest.outputs],
        },
    }


def _format(value: Value) -> str:
    shape = "" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    kind = "" if value.kind == "tensor" else f"{value.kind} of "
    return f"{value.name}: {kind}{value.dtype}{shape}"


def _sha256(digest: str) -> Iterable[HashType]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]


def _licences(stated: tuple[str, ...]) -> Iterable[License]:
    """An SPDX id or expression where it is one; else a name, and of several each by its name."""
    from cyclonedx.contrib.license.factories import LicenseFactory

    make = LicenseFactory()
    if len(stated) == 1:
        return [make.make_from_string(stated[0])]
    return [make.make_with_name(each) for each in stated]
