"""The export format `onnx`: a model with its files beside it, as a plain session opens it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import EXPORTED
from aotc.base.text import printable
from aotc.spec.providers import BY_ORT_NAME, CAPTURING, CPU, RUNTIME_WHEELS, RUNTIMES
from aotc.spec.target import CustomOps
from aotc.spec.variant import LEVEL_NAMES, Requirements, Variant
from aotc.tools.export import ExportSource, Layout

MODEL: Final = "model.onnx"
README: Final = "README.md"
# The folder of what verifies an export in place.
EVIDENCE: Final = "aotc"
_CUSTOM_OPS: Final = "custom_ops"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:;/ +-]*")
_UNCHECKED: Final = """\
**No longer checked**, as `aotc.load` does it with the artifact: the signature, and the digests of
these files; whether the host fits (operating system, CPU features, the version of ONNX Runtime,
plugins and drivers); on which provider each node runs; sizes and values outside of those that were
proven; and, before the first call, the golden answers.
"""
_REVERIFIED: Final = """\
The signature of the artifact is checked, or a trust policy in place of the key. Every file must be
one that was signed, or just what the same version of aotc makes of the signed manifest; and nothing
else may be here. What else stands above is not checked by that."""


def layout(source: ExportSource) -> Layout:
    """`model.onnx`, what it refers to, and a README.md.

    References stay as they are, as weights and compiled parts lie in the model's own folder here.
    Raises AOTC-I119 if two files would have one name.
    """
    return Layout(
        files=places(source.variant, (README, EXPORTED)),
        texts={README: "\n".join(_readme(source))},
        evidence=EVIDENCE,
    )


def places(variant: Variant, taken: Collection[str] = ()) -> dict[str, str]:
    """The files of a variant by their places beside its model.

    Raises AOTC-I119 if two would have one place, or one of those that are `taken`, and if one would
    lie outside.
    """
    own = posixpath.dirname(variant.model)
    libraries = {each.path for each in variant.requirements.custom_ops}
    found: dict[str, str] = {}
    for path in variant.files:
        if path == variant.model:
            target = MODEL
        elif path in libraries:
            target = f"{_CUSTOM_OPS}/{posixpath.basename(path)}"
        else:
            in_weights = variant.weights is not None and path.startswith(f"{variant.weights}/")
            target = posixpath.relpath(path, variant.weights if in_weights else own)
        if target.startswith("../"):
            what = "a file of the variant is neither beside its model nor among its weights"
            raise AotcError("AOTC-I119", what, where=f"variant {variant.name}", found=path)
        if target in found or target in taken:
            what = "two files of the variant would have one name in the folder"
            raise AotcError("AOTC-I119", what, where=f"variant {variant.name}", found=target)
        found[target] = path
    return found


def _readme(source: ExportSource) -> Iterator[str]:
    manifest, variant, described = source.manifest, source.variant, source.described
    yield f"# {manifest.name}"
    yield ""
    yield f"Variant `{variant.name}` of an artifact of aotc, exported for ONNX Runtime alone."
    yield f"The artifact is `sha256-{described.artifact_id}`."
    yield ""
    yield _UNCHECKED
    if described.unproven:
        why = printable(described.unproven)
        yield f"**Its answers were not compared with the original model's**: {why}."
        yield ""
    yield "## It was proven with"
    yield ""
    yield from (f"- {line}" for line in needs_in_words(variant.requirements))
    sizes = [f"`{printable(name)}` {text}" for name, text in described.sizes.items()]
    yield f"- Sizes: {', '.join(sizes) if sizes else 'those of the model, which are fixed'}."
    if manifest.random is not None and manifest.random.policy == "seed" and manifest.random.draws:
        yield "- Random numbers drawn anew by each call; a session alone goes on from call to call."
    yield f"- The options below, which `{EXPORTED}` holds for programs."
    yield ""
    yield "```python"
    yield from _python(source)
    yield "```"
    yield ""
    if source.reverify:
        yield from reverified()


def needs_in_words(needs: Requirements) -> Iterator[str]:
    """What a host needs, a line each."""
    built_in = {*needs.providers} - {each.provider for each in needs.plugins}
    wheels = (each for each in RUNTIME_WHEELS if built_in <= {*each.providers, CPU})
    runtime = next((each.distribution for each in wheels), RUNTIMES[0])
    packages = [f'"{runtime}>={needs.onnxruntime_min},<{needs.onnxruntime_below}"']
    packages += [f'"{each.name}=={each.version}"' for each in needs.plugins if each.version]
    yield f"`pip install {' '.join(packages)}`."
    exactly = " exactly" if needs.isa_exact else ""
    isa = f", CPU with{exactly} {', '.join(needs.isa)}" if needs.isa else ""
    yield f"{needs.os} on {needs.architecture}{isa}."
    if needs.cuda_major is not None:
        yield f"CUDA {needs.cuda_major}, driver {needs.nvidia_driver_min or 'of it'} or later."
    if needs.compute_capabilities:
        yield f"Compute capability {' or '.join(needs.compute_capabilities)}."
    for each in needs.custom_ops:
        if each.path is None:
            yield f"The library of custom operators `{each.name}`, sha256 `{each.sha256}`."


def _python(source: ExportSource) -> Iterator[str]:
    """What opens the model as it was proven, run in its folder or with `folder` set to it."""
    session, described = source.variant.session, source.described
    own = [name for name in described.providers if name != CPU]
    plugins = [name for name in own if _is_plugin(name, source.variant)]
    yield "from pathlib import Path"
    yield ""
    for name in plugins:
        if name in BY_ORT_NAME:
            yield f"import {_package(name)}"
    yield "import onnxruntime as ort"
    yield ""
    yield "folder = Path().resolve()  # of model.onnx"
    if CAPTURING.ort_name in own:
        yield "ort.preload_dlls()"
    yield "options = ort.SessionOptions()"
    level = LEVEL_NAMES[session.optimization]
    yield f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}"
    if session.threads is not None:
        yield f"options.intra_op_num_threads = {session.threads}"
    for key, value in session.config.items():
        yield f"options.add_session_config_entry({_text(key)}, {_text(value)})"
    for library in source.variant.requirements.custom_ops:
        yield f"options.register_custom_ops_library({_library(library)})"
    for name in plugins:
        yield from _plugin(name, source.variant.device, described.session.provider_options)
    if plugins:
        yield 'session = ort.InferenceSession(str(folder / "model.onnx"), options)'
        return
    pairs = [
        f"({_text(name)}, {_options(described.session.provider_options.get(name, {}))})"
        for name in own
    ]
    listed_providers = ", ".join([*pairs, _text(CPU)])
    yield "session = ort.InferenceSession("
    yield f'    str(folder / "model.onnx"), options, providers=[{listed_providers}]'
    yield ")"


def _plugin(name: str, device: str, options: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    library = f"{_package(name)}.get_library_path()" if name in BY_ORT_NAME else '"PLUGIN.so"'
    yield "ort.register_execution_provider_library("
    yield f"    {_text(name)}, {library}"
    yield ")"
    yield "devices = ["
    yield "    device"
    yield "    for device in ort.get_ep_devices()"
    yield f"    if device.ep_name == {_text(name)}"
    yield f"    and device.device.type.name == {_text(device.upper())}"
    yield "]"
    yield "options.add_provider_for_devices("
    yield f"    devices[:1], {_options(options.get(name, {}))}"
    yield ")"


def _is_plugin(name: str, variant: Variant) -> bool:
    return any(each.provider == name for each in variant.requirements.plugins)


def _package(name: str) -> str:
    plugin = BY_ORT_NAME[name].plugin
    return plugin.package if plugin is not None else ""


def _options(options: Mapping[str, str]) -> str:
    """A mapping in Python, in which the folder of the weights stands as that of the model."""
    pairs = []
    for key, value in options.items():
        text = _text(value)
        if "${weights}" in value:
            text += '.replace("${weights}", folder.as_posix())'
        pairs.append(f"{_text(key)}: {text}")
    return "{" + ", ".join(pairs) + "}"


def _library(library: CustomOps) -> str:
    if library.path is None:
        return _text(f"PATH OF {library.name}")
    return f'str(folder / "{_CUSTOM_OPS}" / {_text(posixpath.basename(library.path))})'


def _text(text: str) -> str:
    """A text as a literal of Python, in double quotes unless it holds some."""
    return f'"{text}"' if _PLAIN.fullmatch(text) else ascii(text)


def reverified() -> Iterator[str]:
    """How an export that has what verifies it is verified in place."""
    yield "## Verify it in place"
    yield ""
    yield "Before a server opens it, as often as wanted, and as a user who may only read:"
    yield ""
    yield "```sh"
    yield "aotc verify --exported . --key release.pub"
    yield "```"
    yield ""
    yield _REVERIFIED
    yield ""
