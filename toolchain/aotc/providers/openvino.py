"""Intel's OpenVINO as a plugin of ONNX Runtime: it compiles for and runs on Intel CPUs.

Its precision depends on the options at load, not on what was compiled, and it ignores unknown
options silently: so the options are fixed here, in the only spelling that works, and repeated at
load.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.files.reading import open_plain
from aotc.base.records import replace
from aotc.host.plugin_libraries import libraries_digest, libraries_in
from aotc.host.probe import WITHOUT_VARIABLE, hidden_providers
from aotc.providers.base import (
    ANY_USE,
    Capability,
    CompileRequest,
    Payload,
    SessionUse,
    installed_version,
)
from aotc.providers.ort import import_onnxruntime, ort_errors
from aotc.providers.plugin import PluginBackend, registered_devices
from aotc.spec.precision import Precision, QuantizedForm, WantedPrecision
from aotc.spec.providers import BY_NAME, Rates
from aotc.spec.target import Plugin, Target
from aotc.spec.variant import NO_REQUIREMENTS, Optimization, Requirements, SessionSpec

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
# The plugin writes "OVEP_BIN", then four 64-bit integers (version, size of the header, offset and
# size of a BSON document), the document, and the compiled parts, each at a multiple of 64 KiB; the
# document has offset and size of each part by its name.
_MAGIC: Final = b"OVEP_BIN"
_HEADER: Final = "<8sQQQQ"
_ALIGN: Final = 1 << 16
_VERSION: Final = 1
# For asking a library for its devices, which takes a third of a second on an idle machine.
_SECONDS: Final = 120.0


class OpenVinoBackend(PluginBackend):
    """OpenVINO's CPU device, through `onnxruntime-ep-openvino`."""

    precisions: ClassVar[tuple[Precision, ...]] = tuple(_HINTS)
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
            return self.capability(reason=reason)
        found = super().probe()
        if not found.available:
            return found
        types, failure = (
            ((), "")
            if self.ort_name in hidden_providers()
            else offered_devices(self.ort_name, library)
        )
        if failure:
            reason = f"{_DISTRIBUTION} {self.version()} is installed: {failure}"
            return self.capability(reason=reason)
        if _CPU not in types:
            return self.capability(reason=self._no_device_reason(), fix=_OTHER_PROFILE)
        return found

    def _no_device_reason(self) -> str:
        name = f"{_DISTRIBUTION} {self.version()}".strip()
        hidden = f" (${WITHOUT_VARIABLE} hides it)" if self.ort_name in hidden_providers() else ""
        return f"{name} is installed, and offers no device on this CPU{hidden}: {_SERVES}"

    def version(self) -> str:
        """The version of the distribution, or ""."""
        return installed_version(_DISTRIBUTION)

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
        self.require_precision(precision)
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
        self.require_precision(request.precision)
        shared = request.weights / _SHARED_WEIGHTS
        if not request.share or not shared.is_file():
            return super().compile(request)
        options = {"CACHE_MODE": "OPTIMIZE_SIZE"}
        sharing = {**options, "WEIGHTS_PATH": str(shared.resolve())}
        if _inline_other_constants(request):
            stated = {"load_config": _config(request.precision, options)}
            context = self._compile_model(request, self._options_with(stated))
            payload = self._payload(request, context)
            if self._loads(request, sharing):
                at_load = {**options, "WEIGHTS_PATH": "${weights}/" + _SHARED_WEIGHTS}
                config = _config(request.precision, at_load)
                return replace(payload, options={"load_config": config})
        payload = super().compile(request)
        # The option applies to the whole session.
        return replace(payload, mixes_with_shared=self._loads(request, sharing))

    def _loads(self, request: CompileRequest, entries: Mapping[str, str]) -> bool:
        options = self._options_with({"load_config": _config(request.precision, entries)})
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
    cpu = {"INFERENCE_PRECISION_HINT": _HINTS[precision], **(entries or {})}
    return _text({"CPU": cpu})


def _text(config: Mapping[str, Mapping[str, object]]) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _inline_other_constants(request: CompileRequest) -> bool:
    """Whether the partition has constants in the shared file; others are moved into the graph.

    `WEIGHTS_PATH` names one file, and the plugin would read all constants there by their offsets.
    """
    import onnx

    from aotc.graph.view import every_graph

    model = onnx.load(request.model, load_external_data=False)
    shared, inlined = False, False
    for tensor in (tensor for graph in every_graph(model) for tensor in graph.initializer):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        if "location" not in entry:
            continue
        if entry["location"] == _SHARED_WEIGHTS:
            shared = True
            continue
        with open_plain(request.weights / entry["location"]) as file:
            file.seek(int(entry.get("offset", "0")))
            tensor.raw_data = file.read(int(entry["length"]))
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.DEFAULT
        inlined = True
    if inlined:
        request.model.write_bytes(model.SerializeToString(deterministic=True))
    return shared


# OpenVINO's compiled parts: a session reads one file, while each partition is compiled in a
# separate process, so their files are joined.


def join_containers(containers: Sequence[bytes]) -> bytes:
    """One container with the parts of all; raises AOTC-P005 for an unknown format."""
    parts: dict[str, bytes] = {}
    rest: dict[str, Any] = {}
    for data in containers:
        try:
            document, found = _read_container(data)
        except (struct.error, ValueError, LookupError, TypeError) as error:
            raise _unknown_form(str(error)) from None
        rest = rest or document
        if parts.keys() & found.keys():
            raise _unknown_form("two partitions of one name")
        parts |= found
    size = struct.calcsize(_HEADER)
    # The entry of a name takes its length and fewer than 64 bytes.
    start = _aligned(size + sum(len(name.encode()) + 64 for name in parts) + 1024)
    places: dict[str, Any] = {}
    end = start
    for name, part in parts.items():
        places[name] = {"data_offset": end, "size": len(part)}
        end = _aligned(end + len(part))
    text = _write_bson({**rest, "blob_metadata_map": places})
    result = bytearray(end)
    struct.pack_into(_HEADER, result, 0, _MAGIC, _VERSION, size, size, len(text))
    result[size : size + len(text)] = text
    for name, part in parts.items():
        start = places[name]["data_offset"]
        result[start : start + len(part)] = part
    return bytes(result)


def _read_container(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document of a container, and its parts by name."""
    magic, version, _, offset, _ = struct.unpack_from(_HEADER, data)
    if magic != _MAGIC or version != _VERSION:
        raise _unknown_form(f"{magic!r} version {version}")
    document, _ = _read_bson(data, offset)
    parts = {}
    for name, place in document["blob_metadata_map"].items():
        start, size = place["data_offset"], place["size"]
        if start + size > len(data):
            raise _unknown_form(f"{len(data)} bytes")
        parts[name] = data[start : start + size]
    return document, parts


def _unknown_form(found: str) -> AotcError:
    return AotcError(
        "AOTC-P005",
        "the plugin's compiled files have an unknown format",
        where="openvino",
        expected=f"version {_VERSION}",
        found=found,
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _read_bson(data: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """A BSON document of strings, integers and documents, and its end (bsonspec.org 1.1)."""
    end = offset + struct.unpack_from("<i", data, offset)[0] - 1
    offset += 4
    found: dict[str, Any] = {}
    while offset < end:
        kind = data[offset]
        stop = data.index(b"\0", offset + 1)
        name = data[offset + 1 : stop].decode()
        offset = stop + 1
        if kind == 3:
            found[name], offset = _read_bson(data, offset)
        elif kind == 2:
            length = struct.unpack_from("<i", data, offset)[0]
            found[name] = data[offset + 4 : offset + 3 + length].decode()
            offset += 4 + length
        elif kind in (0x10, 0x12):
            form = "<i" if kind == 0x10 else "<q"
            found[name] = struct.unpack_from(form, data, offset)[0]
            offset += struct.calcsize(form)
        else:
            raise _unknown_form(f"type {kind}")
    return found, end + 1


def _write_bson(document: Mapping[str, Any]) -> bytes:
    content = b""
    for name, value in document.items():
        key = name.encode() + b"\0"
        if isinstance(value, Mapping):
            content += b"\x03" + key + _write_bson(value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            content += b"\x02" + key + struct.pack("<i", len(text)) + text
        else:
            content += b"\x12" + key + struct.pack("<q", value)
    return struct.pack("<i", len(content) + 5) + content + b"\0"


@cache
def offered_devices(ort_name: str, library: Path) -> tuple[tuple[str, ...], str]:
    """Types of the provider's devices, such as CPU; and why none could be listed, or "".

    They are asked for in a separate process: a library stays registered as long as its process
    lives, and may crash it.  The result is cached for the life of this one.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "aotc.providers.openvino", ort_name, str(library)],
            env={"ORT_DISABLE_TELEMETRY": "1", **os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (), f"the library did not load within {_SECONDS:g} s"
    except OSError as error:
        return (), f"no process could be started to ask it: {error}"
    if done.returncode < 0:
        number = -done.returncode
        known = signal.valid_signals()
        name = signal.Signals(number).name if number in known else f"signal {number}"
        return (), f"loading the library ended by {name}"
    last = " ".join(done.stderr.split())[-500:]
    ended = last or f"asking it ended with exit status {done.returncode}"
    try:
        types = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return (), ended
    is_valid = isinstance(types, list) and all(isinstance(name, str) for name in types)
    return (tuple(types), "") if is_valid and not done.returncode else ((), ended)


def _main(ort_name: str, library: str) -> int:
    try:
        found = registered_devices(ort_name, Path(library))
    except AotcError as error:
        sys.stderr.write(f"{error.what}: {error.found}\n")
        return 1
    sys.stdout.write(json.dumps([item.device.type.name for item in found]) + "\n")
    sys.stdout.flush()
    # Skips native destructors.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
