"""NVIDIA's TensorRT for RTX: engines for named compute capabilities, built without a GPU.

The builder and its ONNX parser are a Python package; the engines are run by a plugin of ONNX
Runtime that comes with the same libraries.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from aotc.backends.base import (
    ANY_USE,
    Backend,
    Capability,
    ClaimRequest,
    Claims,
    CompileRequest,
    Payload,
    Refusal,
    SessionUse,
)
from aotc.backends.onnxruntime_import import import_onnxruntime
from aotc.backends.tensorrt_rtx_engine import build_engine, stated_capabilities
from aotc.backends.tensorrt_rtx_parser import (
    MODULE,
    refusals,
    subgraphs,
    unfit_type,
    with_inner_nodes,
)
from aotc.contract.known_providers import BY_NAME, PLUGIN_PACKAGES
from aotc.contract.manifest.requirements import NO_REQUIREMENTS, Requirements
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.contract.profile_terms import Precision
from aotc.contract.target import Plugin, Target
from aotc.errors import AotcError, install_extra
from aotc.host.nvidia import DRIVER_MIN, missing_gpu
from aotc.host.plugin_libraries import libraries_digest, libraries_in
from aotc.partitioning.rates import Rates
from aotc.records import replace

if TYPE_CHECKING:
    import onnx

_KNOWN: Final = BY_NAME["tensorrt_rtx"]
# The distributions that run engines and that build them.
_PLUGIN, _BINDINGS, _ = _KNOWN.distributions
# The plugin's version by that of TensorRT in it: an engine only runs under its own TensorRT.
_PLUGIN_VERSIONS: Final = {"1.7.1": "0.5.0"}
_PLUGIN_PACKAGE: Final = PLUGIN_PACKAGES[_PLUGIN].package
_PLUGIN_LIBRARIES: Final = (
    "libonnxruntime_providers_nv_tensorrt_rtx.so",
    "onnxruntime_providers_nv_tensorrt_rtx.dll",
)
_LIBRARIES: Final = "tensorrt_rtx_libs"
_INSTALL: Final = install_extra("rtx")
# The plugin is linked with this CUDA and needs its driver; TensorRT for RTX itself would run with
# 555 or 570.
_CUDA_MAJOR: Final = 13
_NOT_ALL: Final = "TensorRT's parser refused further nodes each time that it was asked"
# The part of an engine with TensorRT's version and the compute capabilities, kept in hexadecimal:
# from it the plugin tells whether a GPU can run the engine.
_HEADER_BYTES: Final = 64


class TensorRtRtxBackend(Backend):
    """TensorRT for RTX, run by `onnxruntime-ep-nv-tensorrt-rtx` on an RTX GPU."""

    name = _KNOWN.name
    ort_name = _KNOWN.ort_name
    device: ClassVar[str] = "gpu"
    compiles: ClassVar[bool] = True
    precisions: ClassVar[tuple[Precision, ...]] = ("keep", "tf32", "float16", "bfloat16")
    # Engines in half precision were built, and not run: they are not offered by themselves.
    quicker_precisions: ClassVar[tuple[Precision, ...]] = ("tf32",)
    half_by_types: ClassVar[bool] = True
    # A GeForce in float32 on PCIe 4; a transfer costs a synchronization.  Compared with CUDA on the
    # same GPU, fused operators keep about half of their intermediate values out of memory.
    rates: ClassVar[Rates] = Rates(
        flops=4e13, bytes=2e12, transfer_bytes=2e10, transfer_seconds=1e-5
    )

    def probe(self) -> Capability:
        """Available if the builder is installed; `runs` is about the plugin and a GPU."""
        missing = _missing_builder()
        why_not = missing or _missing_for_sessions()
        return Capability(
            name=self.name,
            ort_name=self.ort_name,
            available=not missing,
            reason=missing,
            version=_version(_BINDINGS),
            runs=not why_not,
            why_not=why_not,
        )

    def claim(self, request: ClaimRequest) -> Claims:
        """What the parser accepts; a control-flow node with all its subgraphs, or not at all."""
        import onnx

        model = onnx.load(request.model, load_external_data=False)
        unfit = _unfit_boundary(model.graph)
        if unfit:
            refused, complete = {node.name: unfit for node in model.graph.node}, True
        else:
            refused, complete = refusals(model, request.weights)
        claimed: list[str] = []
        reasons: list[Refusal] = []
        for owner in model.graph.node:
            for node in with_inner_nodes(owner):
                if owner.name not in refused:
                    claimed.append(node.name)
                elif node is owner:
                    reasons.append(Refusal(node=node.name, reason=refused[owner.name]))
                else:
                    why = f"an engine cannot stand inside of {owner.name!r}, which is refused: "
                    reasons.append(Refusal(node=node.name, reason=why + refused[owner.name]))
        return Claims(
            nodes=frozenset(claimed),
            refusals=tuple(reasons),
            notes=() if complete else (_NOT_ALL,),
        )

    def compile(self, request: CompileRequest) -> Payload:
        """An engine for the target's compute capabilities.

        The same request gives the same bytes in any process.  Raises AOTC-P005 if TensorRT fails,
        AOTC-P010 if a compute capability is unknown, AOTC-I019 and AOTC-N008.
        """
        self.require_precision(request.precision)
        engine = build_engine(request)
        name = f"{request.stem}.engine"
        Path(name).write_bytes(engine)
        return self._payload(request, name, engine[:_HEADER_BYTES].hex())

    def _payload(self, request: CompileRequest, file: str, header: str) -> Payload:
        # The plugin (0.5.0) reads `embed_mode`, `ep_cache_context` (a path without `..` from the
        # model's folder) and, for its cache, `partition_name`; the rest is informative.  Inputs and
        # outputs of the node are matched with those of the engine by name.
        attributes: dict[str, str | int] = {
            "embed_mode": 0,
            "ep_cache_context": file,
            "ep_sdk_version": _version(_BINDINGS),
            "hardware_architecture": ",".join(stated_capabilities(request.target)),
            "main_context": 0,
            "onnx_model_filename": f"{request.stem}.onnx",
            "partition_name": request.stem,
            "source": self.ort_name,
        }
        return Payload(attributes=attributes, files=(file,), compatibility=header)

    def join(self, payloads: Sequence[Payload], folder: Path, stem: str) -> tuple[Payload, ...]:
        """One compatibility string: engines of one build differ only in their sizes."""
        return tuple(
            replace(payload, compatibility=payloads[0].compatibility) for payload in payloads
        )

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """No options: the precision is part of the engine; raises AOTC-N008 if it is unknown."""
        self.require_precision(precision)
        return SessionSpec(optimization=optimization)

    def options_excluding(
        self, options: Mapping[str, str], operators: Collection[str]
    ) -> dict[str, str]:
        """Excludes them by name: the plugin would take nodes that it was not compiled for."""
        if not operators:
            return dict(options)
        return {**options, "nv_op_types_to_exclude": ",".join(sorted(operators))}

    def library(self) -> Path | None:
        """The plugin's library, after loading those that it needs into this process."""
        folder = _plugin_folder()
        if folder is None:
            return None
        # It is linked with names of libraries that the package creates on import.
        importlib.import_module(_PLUGIN_PACKAGE)
        found = [folder / name for name in _PLUGIN_LIBRARIES if (folder / name).is_file()]
        return found[0] if found else None

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """The plugin by version, by digest if it is installed, and the kind of GPU."""
        folder = _plugin_folder()
        plugin = Plugin(
            name=_PLUGIN,
            version=_plugin_version(),
            sha256=libraries_digest(libraries_in(folder)) if folder is not None else None,
            provider=self.ort_name,
        )
        return replace(
            NO_REQUIREMENTS,
            plugins=(plugin,),
            compute_capabilities=stated_capabilities(target),
            cuda_major=_CUDA_MAJOR,
            nvidia_driver_min=DRIVER_MIN[_CUDA_MAJOR],
        )

    def fingerprint(self) -> str:
        """Version and digest of the builder with its libraries, and version of the plugin."""
        if missing := _missing_builder():
            raise AotcError("AOTC-I019", missing, fix=_INSTALL)
        files = [file for name in (MODULE, _LIBRARIES) for file in libraries_in(_folder(name))]
        plugin = _plugin_version()
        digest = libraries_digest(files)
        return f"{self.name} {_version(_BINDINGS)} {digest}; {_PLUGIN} {plugin}"


def _unfit_boundary(graph: onnx.GraphProto) -> str:
    """Why the plugin accepts nothing of a model; "" if it accepts some.

    Asked which nodes of a graph it takes, subgraphs included, it fails if graph inputs or outputs
    have other types, and so does the session, whatever the nodes.
    """
    constants = {tensor.name for tensor in graph.initializer}
    for value in (*graph.input, *graph.output):
        tensor = value.type.tensor_type
        # It does not check scalars and values of unknown rank.
        unchecked = value.type.HasField("tensor_type") and not tensor.shape.dim
        if value.name in constants or unchecked or value.type.WhichOneof("value") is None:
            continue
        if why := unfit_type(tensor.elem_type):
            return f"the plugin fails on graphs with {value.name!r}, which is {why}"
    inner = (subgraph for node in graph.node for subgraph in subgraphs(node))
    return next(filter(None, map(_unfit_boundary, inner)), "")


@cache
def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _plugin_version() -> str:
    """The installed plugin's version, else that of the plugin for the builder, else ""."""
    builder = ".".join(_version(_BINDINGS).split(".")[:3])
    return _version(_PLUGIN) or _PLUGIN_VERSIONS.get(builder, "")


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _missing_builder() -> str:
    missing = [name for name in (MODULE, _LIBRARIES) if importlib.util.find_spec(name) is None]
    return f"TensorRT for RTX is not installed ({missing[0]}): {_INSTALL}" if missing else ""


def _plugin_folder() -> Path | None:
    if not _version(_PLUGIN) or importlib.util.find_spec(_PLUGIN_PACKAGE) is None:
        return None
    return _folder(_PLUGIN_PACKAGE)


def _missing_for_sessions() -> str:
    """What prevents running engines here; "" if nothing does."""
    folder = _plugin_folder()
    if folder is None:
        return f"{_PLUGIN} is not installed: pip install {_PLUGIN}"
    try:
        import_onnxruntime()
    except AotcError as error:
        return error.line()
    # An engine only runs under the version of TensorRT that built it.
    builder = _version(_BINDINGS).split(".")
    for file in folder.glob("libtensorrt_rtx.so.*.*"):
        version = file.name.partition(".so.")[2]
        if version.split(".") != builder[: version.count(".") + 1]:
            return f"{_PLUGIN} holds TensorRT {version}, and the builder is {'.'.join(builder)}"
    return missing_gpu()
