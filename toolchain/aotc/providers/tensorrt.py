"""NVIDIA's TensorRT, as ONNX Runtime's own provider: engines for the GPU of the build host.

The provider is part of onnxruntime-gpu; NVIDIA's library is not, and could not be had: what is here
follows ONNX Runtime's documentation and was not run.  So it does no more than the generic plugin:
ONNX Runtime asks TensorRT's parser which nodes it takes, and writes EPContext nodes with engines.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.records import replace
from aotc.host.nvidia import DRIVER_MIN, missing_gpu
from aotc.host.probe import hidden_providers
from aotc.host.probe import probe as probe_host
from aotc.providers.base import (
    ANY_USE,
    BACKENDS,
    Capability,
    Claims,
    CompileRequest,
    Payload,
    Refusal,
    SessionUse,
    Shape,
    installed_version,
    package_folder,
)
from aotc.providers.ort import import_onnxruntime, ort_errors, ort_message
from aotc.providers.plugin import PluginBackend, unoptimized_options
from aotc.spec.manifest import WEIGHTS_OPTION
from aotc.spec.precision import Precision
from aotc.spec.providers import BY_NAME, PLUGIN_PACKAGES, RUNTIME_WHEELS, STANDARD, Rates
from aotc.spec.target import Plugin, Target
from aotc.spec.variant import NO_REQUIREMENTS, Optimization, Requirements, SessionSpec

if TYPE_CHECKING:
    import onnx


_KNOWN: Final = BY_NAME["tensorrt"]
(_LIBRARIES,) = _KNOWN.distributions
_PACKAGE: Final = PLUGIN_PACKAGES[_LIBRARIES].package
(_WHEEL,) = (w.distribution for w in RUNTIME_WHEELS if _KNOWN.ort_name in w.providers)
# The names that the provider in onnxruntime-gpu 1.31 is linked with; the first needs no other.
_NEEDED: Final = ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")
_CUDA_MAJOR: Final = 13
_FIX: Final = (
    f"Install NVIDIA's TensorRT 10 for CUDA {_CUDA_MAJOR} beside {_WHEEL}: pip install "
    f'"{_LIBRARIES}>=10,<11". Or build with server-cuda, which does without it.'
)
# TensorRT rounds factors of float32 products to TF32 unless NVIDIA's libraries are told not to.
_TF32_OVERRIDE: Final = "NVIDIA_TF32_OVERRIDE"
_PRECISION_OPTIONS: Final[Mapping[Precision, str]] = {
    "float16": "trt_fp16_enable",
    "bfloat16": "trt_bf16_enable",
}
# Operators for which NVIDIA's parser has no importer, by its list for TensorRT 10.
_UNSUPPORTED: Final = frozenset(
    {
        "BitShift", "CenterCropPad", "Col2Im", "ConcatFromSequence", "ConvInteger", "DFT", "Det",
        "ImageDecoder", "MatMulInteger", "MaxRoiPool", "MaxUnpool", "MelWeightMatrix",
        "Multinomial", "NegativeLogLikelihoodLoss", "Optional", "OptionalGetElement",
        "OptionalHasElement", "QLinearConv", "QLinearMatMul", "RegexFullMatch", "STFT",
        "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
        "SequenceLength", "SequenceMap", "SoftmaxCrossEntropyLoss", "SplitToSequence",
        "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Unique",
    }
)  # fmt: skip


class TensorRtBackend(PluginBackend):
    """`TensorrtExecutionProvider`: engines for one compute capability and one TensorRT."""

    device: ClassVar[str] = "gpu"
    precisions: ClassVar[tuple[Precision, ...]] = ("keep", "tf32", "float16", "bfloat16")
    quicker_precisions: ClassVar[tuple[Precision, ...]] = ("float16", "bfloat16", "tf32")
    # As CUDA on the same GPU, with about half of the intermediate values kept out of memory.
    rates: ClassVar[Rates] = Rates(
        flops=2e13, bytes=2e12, transfer_bytes=2e10, transfer_seconds=1e-5
    )

    def __init__(self) -> None:
        super().__init__(_KNOWN.name, _KNOWN.ort_name, None, {})

    def probe(self) -> Capability:
        """Available with NVIDIA's library, onnxruntime-gpu and a GPU; no library is loaded."""
        reason, fix = _missing()
        return self.capability(version=self.version(), reason=reason, fix=fix)

    def version(self) -> str:
        """TensorRT's version, or ""."""
        return installed_version(_LIBRARIES)

    def library(self) -> Path | None:
        """None: the provider is part of ONNX Runtime's wheel."""
        return None

    def prepare(self) -> None:
        """Load TensorRT's libraries, and those of CUDA that they need, from their packages."""
        BACKENDS.load("cuda")().prepare()
        _load_libraries()

    def predict(self, model: onnx.ModelProto) -> Claims:
        """By rule: standard operators that NVIDIA's parser lists, without float64 and text."""
        from aotc.graph.view import every_node

        unfit = _unfit_values(model.graph)
        nodes = list(every_node(model.graph))
        refusals = {node.name: why for node in nodes if (why := _refusal(node, unfit))}
        names = frozenset(node.name for node in nodes)
        return Claims(
            nodes=names - refusals.keys(),
            refusals=tuple(Refusal(node=name, reason=why) for name, why in refusals.items()),
            how="predicted",
        )

    def compile(self, request: CompileRequest) -> Payload:
        """An engine for this machine's GPU, written by ONNX Runtime beside an EPContext node.

        Raises AOTC-P005 with the provider's message, and AOTC-P010 for another GPU than this one.
        """
        import onnx

        self._require_own_gpu(request.target)
        graph = onnx.load(request.model, load_external_data=False).graph
        options = {
            **self.session("disable", request.precision).provider_options.get(self.ort_name, {}),
            **cache_options(request.stem),
            **profile_options(graph, request),
        }
        if request.precision != "tf32":
            # The worker process builds this engine only; the library reads it when it is loaded.
            os.environ[_TF32_OVERRIDE] = "0"
        made = Path(f"{request.stem}_ctx.onnx")
        made.unlink(missing_ok=True)
        try:
            session_options = self._options_with(options)
            session_options.add_session_config_entry(WEIGHTS_OPTION, str(request.weights))
            session_options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
            import_onnxruntime().InferenceSession(
                str(request.model), session_options, enable_fallback=0
            )
        except ort_errors() as error:
            raise _compile_error(
                request, "could not compile a partition", ort_message(error)
            ) from None
        if not made.is_file():
            raise _compile_error(request, "wrote no EPContext model", "")
        return self._moved(request, super()._payload(request, onnx.load(made)))

    def _moved(self, request: CompileRequest, payload: Payload) -> Payload:
        """The payload with its engine named after the partition, in the working directory."""
        (stated,) = payload.files
        engine = Path(stated)
        if engine.is_absolute() or ".." in engine.parts or not engine.is_file():
            raise _compile_error(request, "wrote its engine elsewhere", stated)
        name = f"{request.stem}.engine"
        engine.rename(name)
        return replace(
            payload, attributes={**payload.attributes, "ep_cache_context": name}, files=(name,)
        )

    def _require_own_gpu(self, target: Target) -> None:
        own, stated = _own_capabilities(), target.compute_capabilities
        if stated and set(stated) != set(own):
            raise AotcError(
                "AOTC-P010",
                "TensorRT builds engines for the GPU of the build host only",
                where="compute_capabilities",
                expected=", ".join(own),
                found=", ".join(stated),
                fix="Build on a host with that GPU, or leave compute_capabilities out.",
            )

    def _options_with(self, provider_options: Mapping[str, str]) -> Any:
        self.prepare()
        options = unoptimized_options()
        options.add_provider(self.ort_name, dict(provider_options))
        return options

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """The types that engines may compute in; raises AOTC-N008 if the precision is unknown."""
        self.require_precision(precision)
        option = _PRECISION_OPTIONS.get(precision)
        stated = {self.ort_name: {option: "1"}} if option else {}
        return SessionSpec(optimization=optimization, provider_options=stated)

    def options_excluding(
        self, options: Mapping[str, str], operators: Collection[str]
    ) -> dict[str, str]:
        """Excludes them by name: the provider would take nodes that it was not compiled for."""
        if not operators:
            return dict(options)
        return {**options, "trt_op_types_to_exclude": ",".join(sorted(operators))}

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """TensorRT by version, as an engine runs under its own only, CUDA, driver and GPU."""
        library = Plugin(name=_LIBRARIES, version=self.version(), provider=self.ort_name)
        return replace(
            NO_REQUIREMENTS,
            plugins=(library,),
            compute_capabilities=_own_capabilities(),
            cuda_major=_CUDA_MAJOR,
            nvidia_driver_min=DRIVER_MIN[_CUDA_MAJOR],
        )

    def fingerprint(self) -> str:
        """Versions of TensorRT and ONNX Runtime, and the GPU; raises AOTC-I019 without them."""
        if reason := _missing()[0]:
            raise AotcError("AOTC-I019", reason, fix=_FIX)
        host = probe_host()
        gpus = ", ".join(f"{gpu.name} {gpu.compute_capability}" for gpu in host.gpus[:1])
        runtime = import_onnxruntime().__version__
        return (
            f"{self.name} {self.version()}; onnxruntime {runtime}; "
            f"{gpus}, driver {host.nvidia_driver}"
        )


def cache_options(stem: str) -> dict[str, str]:
    """Options that write engine, timing cache and EPContext model into the working directory."""
    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": ".",
        "trt_engine_cache_prefix": stem,
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": ".",
        "trt_dump_ep_context_model": "1",
        "trt_ep_context_embed_mode": "0",
        "trt_ep_context_file_path": f"{stem}_ctx.onnx",
    }


def profile_options(graph: onnx.GraphProto, request: CompileRequest) -> dict[str, str]:
    """The explicit optimization profile of a partition: `NAME:1x3,...`; {} if nothing is dynamic.

    Raises AOTC-P005 for a dynamic input of unknown range, or whose name the option cannot hold:
    without the profile TensorRT would build its engine on the first call.
    """
    constants = {tensor.name for tensor in graph.initializer}
    ranges: dict[str, tuple[Shape, Shape, Shape]] = {}
    for value in graph.input:
        tensor = value.type.tensor_type
        fixed = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
        if value.name in constants or fixed:
            continue
        if value.name not in request.shapes or any(mark in value.name for mark in ":,"):
            readers = [node.name for node in graph.node if value.name in node.input]
            raise _compile_error(
                request,
                "does not accept the range of an input",
                f"{value.name!r}; nodes {', '.join(map(repr, readers))}",
            )
        ranges[value.name] = request.shapes[value.name]
    if not ranges:
        return {}
    return {
        f"trt_profile_{kind}_shapes": ",".join(
            f"{name}:{'x'.join(map(str, shapes[at]))}" for name, shapes in ranges.items()
        )
        for at, kind in enumerate(("min", "opt", "max"))
    }


def _refusal(node: onnx.NodeProto, unfit: Mapping[str, str]) -> str:
    """Why the rule gives a node to another provider; "" if it does not."""
    if node.domain not in STANDARD:
        return f"TensorRT's parser knows no operators of {node.domain}"
    if node.op_type in _UNSUPPORTED:
        return f"TensorRT's parser has no importer of {node.op_type}"
    found = next((name for name in (*node.input, *node.output) if name in unfit), "")
    return f"TensorRT has no {unfit[found]}: {found!r}" if found else ""


def _unfit_values(graph: onnx.GraphProto) -> dict[str, str]:
    """Values of types that TensorRT lacks, with the type; those of subgraphs are not looked at."""
    import onnx

    from aotc.graph.view import declared_values

    unfit: dict[int, str] = {onnx.TensorProto.DOUBLE: "float64", onnx.TensorProto.STRING: "text"}
    typed = {value.name: value.type.tensor_type.elem_type for value in declared_values(graph)}
    typed |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {name: unfit[kind] for name, kind in typed.items() if kind in unfit}


def _compile_error(request: CompileRequest, what: str, found: str) -> AotcError:
    return AotcError("AOTC-P005", f"tensorrt {what}", where=request.stem, found=found[:2000])


def _own_capabilities() -> tuple[str, ...]:
    """The compute capability of the GPU that ONNX Runtime takes: the first."""
    return tuple(gpu.compute_capability for gpu in probe_host().gpus[:1])


def _missing() -> tuple[str, str]:
    """What is missing to build and run here, and its fix; two "" if nothing is."""
    folder = package_folder(_PACKAGE)
    if folder is None or not (folder / _NEEDED[0]).is_file():
        return f"NVIDIA's TensorRT library is not installed ({_NEEDED[0]} of {_LIBRARIES})", _FIX
    if _KNOWN.ort_name in hidden_providers():
        return f"{_KNOWN.ort_name} is hidden", ""
    try:
        built_in = _KNOWN.ort_name in import_onnxruntime().get_available_providers()
    except AotcError as error:
        return error.line(), error.fix
    if not built_in:
        return f"{_WHEEL} is not installed", f"{install_extra('gpu')}, in place of the extra cpu."
    return missing_gpu(), "Build on the kind of GPU that will run it, or with server-cuda."


@cache
def _load_libraries() -> None:
    """What cannot be loaded shows when the session is created."""
    folder = package_folder(_PACKAGE)
    for name in _NEEDED:
        if folder is not None and (folder / name).is_file():
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
