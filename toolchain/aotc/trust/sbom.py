"""A CycloneDX 1.6 bill of materials of an artifact: model, data, libraries, licenses, hashes.

Source: cyclonedx.org/docs/1.6/json (ECMA-424).  It holds no time and no random numbers, so
equal inputs give equal documents.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.spec.codec import Json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Value
from aotc.spec.providers import PLUGIN_PACKAGES, RUNTIMES
from aotc.spec.versions import VERSION
from aotc.trust.provenance import Library, Materials

if TYPE_CHECKING:
    from cyclonedx.model import HashType
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License


# The serial number follows from the artifact's id, in the namespace of URLs (RFC 9562).
_NAMESPACE: Final = uuid.NAMESPACE_URL
# Libraries that load an artifact; the others only built it.
_AT_LOAD: Final = frozenset({*RUNTIMES, "numpy", *PLUGIN_PACKAGES})


def require_library() -> None:
    """Raise AOTC-I019 if the library that writes CycloneDX is not installed."""
    if find_spec("cyclonedx") is None:
        raise AotcError(
            "AOTC-I019",
            "a bill of materials needs the package cyclonedx-python-lib",
            fix="pip install cyclonedx-python-lib, or the extra cpu or gpu of aotc.",
        )


def import_library() -> None:
    """Import what `bill_of_materials` needs.

    That takes most of its time, so a build does it while its jobs run.
    """
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    del LicenseFactory, JsonV1Dot6, PackageURL


def bill_of_materials(
    manifest: Manifest, artifact_id: str, materials: Materials, libraries: Iterable[Library]
) -> Json:
    """The bill of materials of an artifact, as JSON-like data.

    `artifact_id` is the sha256 (hex) of its aotc.json.
    """
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
    source = _source_component(manifest, materials)
    parts = [
        source,
        *_data_components(manifest, materials),
        *(_library_component(library) for library in libraries),
        *_plugin_components(manifest),
        *_custom_op_components(manifest),
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
    # The library always writes the current time, without which equal inputs give equal bytes.
    del written["metadata"]["timestamp"]
    # The library does not support model cards yet.
    written["metadata"]["component"]["modelCard"] = {
        "bom-ref": f"model-card:{manifest.source.sha256}",
        "modelParameters": {
            "inputs": [{"format": _format(value)} for value in manifest.inputs],
            "outputs": [{"format": _format(value)} for value in manifest.outputs],
        },
    }
    return written


def merged_bill(
    manifest: Manifest, artifact_id: str, bills: Iterable[Json], hosts: Mapping[str, str]
) -> Json:
    """One bill of materials of an artifact that was merged from others, of which `bills` are those.

    Each component stands there once.  `hosts` say in words where each variant was proven.
    """
    bills = list(bills)
    found = {each["bom-ref"]: each for bill in bills for each in bill["components"]}
    components = [found[name] for name in sorted(found)]
    first = bills[0]
    about = first["metadata"]["component"]
    artifact = f"artifact:{artifact_id}"
    stated = {
        "aotc:payload-bytes": str(sum(entry.size for entry in manifest.files)),
        "aotc:profile-sha256": manifest.profile_sha256,
        "aotc:target": manifest.target,
        **{f"aotc:proven:{name}": text for name, text in hosts.items()},
    }
    return {
        **first,
        "serialNumber": uuid.uuid5(_NAMESPACE, f"urn:aotc:{artifact}").urn,
        "metadata": {
            **first["metadata"],
            "component": {
                **about,
                "bom-ref": artifact,
                "version": artifact_id,
                "hashes": [{"alg": "SHA-256", "content": artifact_id}],
                "properties": [{"name": name, "value": stated[name]} for name in sorted(stated)],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": artifact, "dependsOn": sorted(found)},
            *({"ref": name} for name in sorted(found)),
        ],
    }


def _source_component(manifest: Manifest, materials: Materials) -> Component:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType

    capture = manifest.source
    stated = {
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
        properties=[Property(name=name, value=text) for name, text in stated.items() if text],
    )


def _data_components(manifest: Manifest, materials: Materials) -> Iterable[Component]:
    from cyclonedx.model.component import Component, ComponentType

    inputs = [(file.location, file.sha256, "weights") for file in manifest.source.external_data]
    inputs += [(name, digest, "given") for name, digest in sorted(materials.given.items())]
    for name, digest, kind in inputs:
        yield Component(
            type=ComponentType.DATA,
            name=name,
            bom_ref=f"{kind}:{name}:{digest}",
            description="external data of the model" if kind == "weights" else "given to the build",
            hashes=_sha256(digest),
        )


def _library_component(library: Library) -> Component:
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
        # A hash would have to be that of the distribution file, which is not installed.
        properties=[Property(name="aotc:record-sha256", value=library.sha256)],
    )


def _plugin_components(manifest: Manifest) -> Iterable[Component]:
    from cyclonedx.model.component import Component, ComponentScope, ComponentType

    for plugin in manifest.toolchain.plugins:
        yield Component(
            type=ComponentType.LIBRARY,
            name=plugin.name,
            version=plugin.version or None,
            bom_ref=f"plugin:{plugin.name}:{plugin.sha256 or plugin.version}",
            description=f"libraries of {plugin.provider}" if plugin.provider else None,
            scope=ComponentScope.REQUIRED,
            hashes=_sha256(plugin.sha256) if plugin.sha256 else None,
        )


def _custom_op_components(manifest: Manifest) -> Iterable[Component]:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentScope, ComponentType

    for library in manifest.custom_ops:
        stated = {
            "aotc:payload-path": library.path or "",
            "aotc:operators": ", ".join(library.operators),
            "aotc:python": library.python,
        }
        yield Component(
            type=ComponentType.LIBRARY,
            name=library.name,
            bom_ref=f"custom-ops:{library.name}:{library.sha256}",
            description="custom operators, "
            + ("shipped" if library.path is not None else "required on the host"),
            scope=ComponentScope.REQUIRED,
            hashes=_sha256(library.sha256),
            properties=[Property(name=name, value=text) for name, text in stated.items() if text],
        )


def _format(value: Value) -> str:
    shape = "" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    kind = "" if value.kind == "tensor" else f"{value.kind} of "
    return f"{value.name}: {kind}{value.dtype}{shape}"


def _sha256(digest: str) -> Iterable[HashType]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]


def _licences(stated: tuple[str, ...]) -> Iterable[License]:
    """A single license as SPDX id, SPDX expression or name; several licenses by their names."""
    from cyclonedx.contrib.license.factories import LicenseFactory

    make = LicenseFactory()
    if len(stated) == 1:
        return [make.make_from_string(stated[0])]
    return [make.make_with_name(name) for name in stated]
