"""Intel's OpenVINO as a plugin of ONNX Runtime: it compiles for and runs on Intel CPUs.

Its precision depends on the options at load, not on what was compiled, and it ignores unknown
options silently: so the options are fixed here, in the only spelling that works, and repeated at
load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.backends.base import ANY_USE, Capability, CompileRequest, Payload, SessionUse
from aotc.backends.offered_devices import offered_devices
from aotc.backends.onnxruntime_import import import_onnxruntime, ort_errors
from aotc.backends.openvino_container import join_containers
from aotc.backends.plugin import PluginBackend, registered_devices
from aotc.contract.known_providers import BY_NAME
from aotc.contract.manifest.requirements import NO_REQUIREMENTS, Requirements
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.contract.precision.quantization import QuantizedForm
from aotc.contract.profile_terms import Precision, WantedPrecision
from aotc.contract.target import Plugin, Target
from aotc.errors import AotcError, install_extra
from aotc.host.lesser_host import WITHOUT_VARIABLE, hidden_providers
from aotc.host.plugin_libraries import libraries_digest, libraries_in
from aotc.partitioning.rates import Rates
from aotc.records import replace

if TYPE_CHECKING:
    import onnx

_KNOWN: Final = BY_NAME["openvino"]
(_DISTRIBUTION,) = _KNOWN.distributions
_HINTS: Final[dict[Precision, str]] = {"keep": "f32", "bfloat16": "bf16", "float16": "f16"}
_SHARED_WEIGHTS: Final = "weights.bin"
_CPU: Final = "CPU"
# The plugin only offers a device for Intel processors.
_SERVES: Final = "of CPUs, OpenVINO serves Intel's only"
_OTHER_PROFILE: Final = (
    "Build with a profile that does without it, such as edge, or leave openvino out of the "
    "profile's providers."
)
_OTHER_HOST: Final = (
    "Load it on a host with an Intel CPU, or build it for this one with a profile such as edge."
)
# CPU features that a precision needs: without them it is emulated or refused.
_ISA: Final[dict[Precision, tuple[str, ...]]] = {
    "bfloat16": ("avx512_bf16",),
    "float16": ("avx512_fp16",),
}


class OpenVinoBackend(PluginBackend):
    """OpenVINO's CPU device, through `onnxruntime-ep-openvino`."""

    precisions: ClassVar[tuple[Precision, ...]] = ("keep", "bfloat16", "float16")
    quicker_precisions: ClassVar[tuple[Precision, ...]] = ("int8", "bfloat16", "float16")
    quantized: ClassVar[Mapping[WantedPrecision, tuple[QuantizedForm, ...]]] = {
        "int8": ("static", "dynamic", "weights"),
        "int4": ("weights",),
    }
    # Slightly faster than ONNX Runtime's CPU provider in f32.
    rates: ClassVar[Rates] = Rates(
        flops=1.2e11, bytes=1.2e10, transfer_bytes=1e10, transfer_seconds=1e-5
    )

    def __init__(self) -> None:
        super().__init__(_KNOWN.name, _KNOWN.ort_name, None, {})

    def probe(self) -> Capability:
        """Available if the plugin's distribution is installed and offers its CPU device.

        The library is loaded in a separate process, once per process that asks.
        """
        library = self.library()
        if library is None:
            reason = (
                f"{_DISTRIBUTION} is not installed (of CPUs, it serves Intel's only): "
                f"{install_extra('openvino')}"
            )
            return self._unavailable(reason)
        found = super().probe()
        if not found.available:
            return found
        types, failure = (
            ((), "")
            if self.ort_name in hidden_providers()
            else offered_devices(self.ort_name, library)
        )
        if failure:
            return self._unavailable(f"{_DISTRIBUTION} {self.version()} is installed: {failure}")
        if _CPU not in types:
            return self._unavailable(self._no_device_reason(), _OTHER_PROFILE)
        return found

    def _unavailable(self, reason: str, fix: str = "") -> Capability:
        return Capability(
            name=self.name,
            ort_name=self.ort_name,
            available=False,
            reason=reason,
            runs=False,
            why_not=reason,
            fix=fix,
        )

    def _no_device_reason(self) -> str:
        name = f"{_DISTRIBUTION} {self.version()}".strip()
        hidden = f" (${WITHOUT_VARIABLE} hides it)" if self.ort_name in hidden_providers() else ""
        return f"{name} is installed, and offers no device on this CPU{hidden}: {_SERVES}"

    def version(self) -> str:
        """The version of the distribution, or ""."""
        try:
            return metadata.version(_DISTRIBUTION)
        except metadata.PackageNotFoundError:
            return ""

    def library(self) -> Path | None:
        """The plugin's library in the installed distribution."""
        return _library()

    def digest(self) -> str:
        """The digest of the plugin with OpenVINO's libraries in the same folder."""
        library = self.library()
        return libraries_digest(libraries_in(library.parent)) if library is not None else ""

    def devices(self, library: Path) -> list[Any]:
        """Its CPU device: the provider's name also covers GPU and NPU devices.

        Raises AOTC-P004 if it offers none.
        """
        found = registered_devices(self.ort_name, library)
        chosen = [device for device in found if device.device.type.name == _CPU][:1]
        if not chosen:
            raise AotcError(
                "AOTC-P004",
                self._no_device_reason(),
                where=str(library),
                expected=f"a CPU device of {self.ort_name}",
                found=", ".join(device.device.type.name for device in found) or "none",
                fix=_OTHER_HOST,
            )
        return chosen

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """With the precision fixed; raises AOTC-N008 if OpenVINO lacks it."""
        options = {"load_config": _config(precision)}
        return SessionSpec(optimization=optimization, provider_options={self.ort_name: options})

    def with_threads(self, options: Mapping[str, str], threads: int) -> dict[str, str]:
        """OpenVINO has threads of its own."""
        config = json.loads(options.get("load_config", "{}"))
        config.setdefault("CPU", {})["INFERENCE_NUM_THREADS"] = threads
        return {**options, "load_config": _text(config)}

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """The plugin by version and digest, and all features of the CPU that it compiles for."""
        plugin = Plugin(
            name=_DISTRIBUTION,
            version=self.version(),
            sha256=self.digest() or None,
            provider=self.ort_name,
        )
        features = {*(target.isa or ()), *_ISA.get(precision, ())}
        return replace(NO_REQUIREMENTS, plugins=(plugin,), isa=tuple(sorted(features)))

    def compile(self, request: CompileRequest) -> Payload:
        """Compile without the constants in the shared weights file, if the result can be loaded.

        The compiled part then refers to that file by offsets, and reads it at load.  If the plugin
        cannot load its own output that way, all constants are compiled in.
        """
        shared = request.weights / _SHARED_WEIGHTS
        if not request.share or not shared.is_file():
            return super().compile(request)
        options = {"CACHE_MODE": "OPTIMIZE_SIZE"}
        sharing = {**options, "WEIGHTS_PATH": str(shared.resolve())}
        if _inline_other_constants(request):
            context = self._compile_model(request, self._options_with(request.precision, options))
            payload = self._payload(request, context)
            if self._loads(request, sharing):
                stated = {**options, "WEIGHTS_PATH": "${weights}/" + _SHARED_WEIGHTS}
                config = _config(request.precision, stated)
                return replace(payload, options={"load_config": config})
        payload = super().compile(request)
        # The option applies to the whole session.
        return replace(payload, mixes_with_shared=self._loads(request, sharing))

    def _options_with(self, precision: Precision, entries: Mapping[str, str]) -> Any:
        runtime = import_onnxruntime()
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        library = self.library()
        assert library is not None
        config = {"load_config": _config(precision, entries)}
        options.add_provider_for_devices(self.devices(library), config)
        return options

    def _loads(self, request: CompileRequest, entries: Mapping[str, str]) -> bool:
        options = self._options_with(request.precision, entries)
        options.add_session_config_entry("session.disable_model_compile", "1")
        try:
            import_onnxruntime().InferenceSession(
                f"{request.stem}_ctx.onnx", options, enable_fallback=0
            )
        except ort_errors():
            return False
        return True

    def join(self, payloads: Sequence[Payload], folder: Path, stem: str) -> tuple[Payload, ...]:
        """One container for all partitions: the plugin reads only one file in a session."""
        if len(payloads) < 2:
            return tuple(payloads)
        name = f"{stem}.bin"
        texts = [(folder / payload.files[0]).read_bytes() for payload in payloads]
        (folder / name).write_bytes(join_containers(texts))
        for payload in payloads:
            (folder / payload.files[0]).unlink()
        return tuple(
            replace(
                payload,
                attributes={**payload.attributes, "ep_cache_context": name},
                files=(name,),
            )
            for payload in payloads
        )


@cache
def _library() -> Path | None:
    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "libonnxruntime_providers_openvino_plugin.so":
            return Path(str(file.locate()))
    return None


def _config(precision: Precision, entries: Mapping[str, str] | None = None) -> str:
    if precision not in _HINTS:
        raise AotcError(
            "AOTC-N008",
            f"openvino does not compute in {precision}",
            where="precision",
            expected=", ".join(_HINTS),
            found=precision,
        )
    cpu = {"INFERENCE_PRECISION_HINT": _HINTS[precision], **(entries or {})}
    return _text({"CPU": cpu})


def _text(config: Mapping[str, Mapping[str, object]]) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _inline_other_constants(request: CompileRequest) -> bool:
    """Whether the partition has constants in the shared file; others are moved into the graph.

    `WEIGHTS_PATH` names one file, and the plugin would read all constants there by their offsets.
    """
    import onnx

    model = onnx.load(request.model, load_external_data=False)
    shared, inlined = False, False
    for tensor in _constants(model.graph):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        if "location" not in entry:
            continue
        if entry["location"] == _SHARED_WEIGHTS:
            shared = True
            continue
        with (request.weights / entry["location"]).open("rb") as file:
            file.seek(int(entry.get("offset", "0")))
            tensor.raw_data = file.read(int(entry["length"]))
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.DEFAULT
        inlined = True
    if inlined:
        request.model.write_bytes(model.SerializeToString(deterministic=True))
    return shared


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers of a graph and of its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _constants(subgraph)
