"""NVIDIA's TensorRT for RTX: engines for named compute capabilities, built without a GPU.

The builder and its ONNX parser are a Python package; the engines are run by a plugin of ONNX
Runtime that comes with the same libraries.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.records import record, replace
from aotc.host.nvidia import DRIVER_MIN, missing_gpu
from aotc.host.plugin_libraries import libraries_digest, libraries_in
from aotc.providers.base import (
    ANY_USE,
    Backend,
    Capability,
    ClaimRequest,
    Claims,
    CompileRequest,
    Payload,
    Refusal,
    SessionUse,
    Shape,
    installed_version,
    package_folder,
)
from aotc.providers.ort import import_onnxruntime
from aotc.spec.precision import Precision
from aotc.spec.providers import BY_NAME, PLUGIN_PACKAGES, Rates
from aotc.spec.target import Plugin, Target
from aotc.spec.variant import NO_REQUIREMENTS, Optimization, Requirements, SessionSpec

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
# The plugin's own range for dims without a stated range.
_ANY_SIZE: Final = (0, 1, 32767)
_MAX_ERRORS: Final = 5
MODULE: Final = "tensorrt_rtx_bindings"
_MAX_ROUNDS: Final = 64
_MAX_MESSAGE: Final = 400
_MAX_PARSER_ERRORS: Final = 20
# Without a GPU every failure also mentions that; the other lines only frame the message.
_NOISE: Final = ("catchCudaError", "Begin node", "End node", "While parsing node")
# TensorRT's names of element types, by ONNX's.
_DATA_TYPES: Final = {
    "FLOAT": "FLOAT",
    "FLOAT16": "HALF",
    "BFLOAT16": "BF16",
    "BOOL": "BOOL",
    "INT4": "INT4",
    "INT8": "INT8",
    "UINT8": "UINT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "FLOAT8E4M3FN": "FP8",
    "FLOAT4E2M1": "FP4",
}


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
        why_not = "" if missing else _missing_for_sessions()
        return self.capability(
            version=installed_version(_BINDINGS), reason=missing, why_not=why_not
        )

    def claim(self, request: ClaimRequest) -> Claims:
        """What the parser accepts; a control-flow node with all its subgraphs, or not at all."""
        import onnx

        from aotc.graph.view import every_node

        model = onnx.load(request.model, load_external_data=False)
        unfit = _unfit_boundary(model)
        if unfit:
            refused, complete = {node.name: unfit for node in model.graph.node}, True
        else:
            refused, complete = refusals(model, request.weights)
        claimed: list[str] = []
        reasons: list[Refusal] = []
        for owner in model.graph.node:
            for node in every_node(owner):
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
        file = f"{request.stem}.engine"
        Path(file).write_bytes(engine)
        # The plugin (0.5.0) reads `embed_mode`, `ep_cache_context` (a path without `..` from the
        # model's folder) and, for its cache, `partition_name`; the rest is informative.  Inputs and
        # outputs of the node are matched with those of the engine by name.
        attributes: dict[str, str | int] = {
            "embed_mode": 0,
            "ep_cache_context": file,
            "ep_sdk_version": installed_version(_BINDINGS),
            "hardware_architecture": ",".join(stated_capabilities(request.target)),
            "main_context": 0,
            "onnx_model_filename": f"{request.stem}.onnx",
            "partition_name": request.stem,
            "source": self.ort_name,
        }
        header = engine[:_HEADER_BYTES].hex()
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
        folders = filter(None, map(package_folder, (MODULE, _LIBRARIES)))
        files = [file for folder in folders for file in libraries_in(folder)]
        plugin = _plugin_version()
        digest = libraries_digest(files)
        return f"{self.name} {installed_version(_BINDINGS)} {digest}; {_PLUGIN} {plugin}"


def _unfit_boundary(model: onnx.ModelProto) -> str:
    """Why the plugin accepts nothing of a model; "" if it accepts some.

    Asked which nodes of a graph it takes, subgraphs included, it fails if graph inputs or outputs
    have other types, and so does the session, whatever the nodes.
    """
    from aotc.graph.view import every_graph

    for graph in every_graph(model):
        constants = {tensor.name for tensor in graph.initializer}
        for value in (*graph.input, *graph.output):
            tensor = value.type.tensor_type
            # It does not check scalars and values of unknown rank.
            unchecked = value.type.HasField("tensor_type") and not tensor.shape.dim
            if value.name in constants or unchecked or value.type.WhichOneof("value") is None:
                continue
            if why := unfit_type(tensor.elem_type):
                return f"the plugin fails on graphs with {value.name!r}, which is {why}"
    return ""


def _plugin_version() -> str:
    """The installed plugin's version, else that of the plugin for the builder, else ""."""
    builder = ".".join(installed_version(_BINDINGS).split(".")[:3])
    return installed_version(_PLUGIN) or _PLUGIN_VERSIONS.get(builder, "")


def _missing_builder() -> str:
    missing = [name for name in (MODULE, _LIBRARIES) if package_folder(name) is None]
    return f"TensorRT for RTX is not installed ({missing[0]}): {_INSTALL}" if missing else ""


def _plugin_folder() -> Path | None:
    return package_folder(_PLUGIN_PACKAGE) if installed_version(_PLUGIN) else None


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
    builder = installed_version(_BINDINGS).split(".")
    for file in folder.glob("libtensorrt_rtx.so.*.*"):
        version = file.name.partition(".so.")[2]
        if version.split(".") != builder[: version.count(".") + 1]:
            return f"{_PLUGIN} holds TensorRT {version}, and the builder is {'.'.join(builder)}"
    return missing_gpu()


def build_engine(request: CompileRequest) -> bytes:
    """The serialized engine of a partition; raises AOTC-P005, AOTC-P010 and AOTC-I019."""
    import onnx

    trt = tensorrt()
    chosen = _chosen_capabilities(request.target)
    listener().errors = []
    model = onnx.load(request.model, load_external_data=False)
    builder = trt.Builder(listener())
    network = new_network(builder)
    parser = parse_into(network, request.model.read_bytes(), request.weights)
    if errors := parser_errors(parser, model.graph):
        message = "; ".join(f"{name!r}: {why}" if name else why for name, why in errors.items())
        raise _compile_error(request, "TensorRT's parser refuses nodes of a partition", message)
    _require_same_boundary(request, network, model.graph)
    config = builder.create_builder_config()
    # Set by default; it rounds float32 factors to 10 bits of mantissa.  What a half-precision graph
    # keeps in float32 is kept for its range.
    if request.precision == "keep":
        config.clear_flag(trt.BuilderFlag.TF32)
    config.num_compute_capabilities = len(chosen)
    for index, member in enumerate(chosen.values()):
        config.set_compute_capability(member, index)
    _add_profile(request, builder, config, network, model.graph)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise _compile_error(request, "TensorRT could not build an engine")
    return bytes(engine)


def _chosen_capabilities(target: Target) -> dict[str, Any]:
    """The builder's values for the target's compute capabilities; raises AOTC-P010."""
    known = {
        f"{name[2:-1]}.{name[-1]}": member
        for name, member in tensorrt().ComputeCapability.__members__.items()
        if re.fullmatch(r"SM\d{2,}", name)
    }
    stated = stated_capabilities(target)
    unknown = [capability for capability in stated if capability not in known]
    if unknown or not stated:
        raise AotcError(
            "AOTC-P010",
            f"TensorRT for RTX builds no engines for {', '.join(unknown)}"
            if unknown
            else "no compute capability is given to build engines for",
            where="compute_capabilities",
            expected=", ".join(known),
            found=", ".join(stated),
            fix="" if unknown else "List some under compute_capabilities in the profile.",
        )
    return {capability: known[capability] for capability in stated}


def stated_capabilities(target: Target) -> tuple[str, ...]:
    """Compute capabilities of a target, in ascending order."""
    stated = target.compute_capabilities or tuple(gpu.compute_capability for gpu in target.gpus)
    return tuple(
        sorted(set(stated), key=lambda capability: [int(part) for part in capability.split(".")])
    )


def _require_same_boundary(request: CompileRequest, network: Any, graph: onnx.GraphProto) -> None:
    """Inputs and outputs of the engine must be those of the graph, by name, order and type."""
    constants = {tensor.name for tensor in graph.initializer}
    stated = [value for value in graph.input if value.name not in constants]
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    for kind, values, tensors in (
        ("inputs", stated, inputs),
        ("outputs", list(graph.output), outputs),
    ):
        names = [value.name for value in values]
        found = [tensor.name for tensor in tensors]
        if names != found:
            what = f"TensorRT gives a partition other {kind}"
            raise _compile_error(request, what, f"{', '.join(found)} instead of {', '.join(names)}")
        for value, tensor in zip(values, tensors, strict=True):
            element = value.type.tensor_type.elem_type
            if unfit_type(element) or tensor.dtype != data_type(element):
                what = f"TensorRT changes the type of the partition's {kind}"
                raise _compile_error(
                    request, what, _value_text(graph, value.name, tensor.dtype.name)
                )


def _value_text(graph: onnx.GraphProto, value: str, text: str) -> str:
    """A message on a value with the nodes that produce or read it, so that they can be left out."""
    from aotc.graph.view import read_values

    nodes = [node.name for node in graph.node if value in (*read_values(node), *node.output)]
    return f"{value!r}: {text}; nodes {', '.join(repr(name) for name in nodes)}"


def _add_profile(
    request: CompileRequest, builder: Any, config: Any, network: Any, graph: onnx.GraphProto
) -> None:
    """State the range of each input with dims of no fixed size.

    Unknown ranges are those of the plugin; a call outside them fails.
    """
    profile = builder.create_optimization_profile()
    ranges = _ranges(graph, request.shapes)
    dynamic = False
    values = {value.name: value for value in graph.input}
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            text = _value_text(graph, tensor.name, "its values decide shapes")
            raise _compile_error(request, "TensorRT wants to know a partition's input", text)
        if not values[tensor.name].type.tensor_type.HasField("shape"):
            text = _value_text(graph, tensor.name, "its rank is not known")
            raise _compile_error(request, "TensorRT wants to know a partition's input", text)
        if all(size >= 0 for size in tensor.shape):
            continue
        dynamic = True
        shapes = request.shapes.get(tensor.name) or _default_shapes(values[tensor.name], ranges)
        profile.set_shape(tensor.name, *shapes)
    if dynamic and config.add_optimization_profile(profile) < 0:
        raise _compile_error(request, "TensorRT refuses the shapes of a partition's inputs")


def _ranges(
    graph: onnx.GraphProto, shapes: Mapping[str, tuple[Shape, Shape, Shape]]
) -> dict[str, tuple[int, ...]]:
    """Minimum, optimum and maximum by name of dim, from inputs whose shapes are known."""
    found: dict[str, tuple[int, ...]] = {}
    for value in graph.input:
        if value.name in shapes:
            sizes = zip(*shapes[value.name], strict=True)
            for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
                if dim.dim_param:
                    found.setdefault(dim.dim_param, size)
    return found


def _default_shapes(
    value: onnx.ValueInfoProto, ranges: Mapping[str, tuple[int, ...]]
) -> tuple[Shape, ...]:
    sizes = [
        (dim.dim_value,) * 3 if dim.HasField("dim_value") else ranges.get(dim.dim_param, _ANY_SIZE)
        for dim in value.type.tensor_type.shape.dim
    ]
    return tuple(zip(*sizes, strict=True))


def _compile_error(request: CompileRequest, what: str, message: str = "") -> AotcError:
    found = message or "; ".join(listener().errors[-_MAX_ERRORS:])
    return AotcError("AOTC-P005", what, where=request.stem, found=found[:2000])


@record(kw_only=False)
class ParserResult:
    """The parser's result for a model: main-graph nodes by index, refusals by name of node."""

    supported: bool
    listed: frozenset[int]
    refused: Mapping[str, str]


@cache
def tensorrt() -> Any:
    """The module of TensorRT for RTX; raises AOTC-I019."""
    try:
        return importlib.import_module(MODULE)
    except (ImportError, OSError) as error:
        raise AotcError(
            "AOTC-I019",
            "TensorRT for RTX cannot be imported",
            found=str(error),
            fix=_INSTALL,
        ) from None


@cache
def listener() -> Any:
    """TensorRT's logger, one per process; its `errors` are the last error messages."""
    trt = tensorrt()

    class Listener(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR and not any(noise in message for noise in _NOISE):
                self.errors = [*self.errors, one_line(message)][-_MAX_PARSER_ERRORS:]

    return Listener()


def one_line(text: str) -> str:
    """A message of TensorRT without line breaks, truncated."""
    lines = [line for line in text.splitlines() if not any(noise in line for noise in _NOISE)]
    return " ".join(" ".join(lines).split())[:_MAX_MESSAGE]


def parse_into(network: Any, text: bytes, weights: Path) -> Any:
    """A parser that has read a serialized model with external data in the folder `weights`.

    Its errors tell what it refused.
    """
    parser = tensorrt().OnnxParser(network, listener())
    parser.parse(text, str(weights / "model.onnx"))
    return parser


def new_network(builder: Any) -> Any:
    """An empty network that computes in the types that the model declares."""
    flag = tensorrt().NetworkDefinitionCreationFlag.STRONGLY_TYPED
    return builder.create_network(1 << int(flag))


def parser_errors(parser: Any, graph: onnx.GraphProto) -> dict[str, str]:
    """Reasons by name of the main-graph node that they concern; "": not a single node."""
    from aotc.graph.view import NodeLinks, every_node

    owners = {node.name: owner.name for owner in graph.node for node in every_node(owner)}
    links = NodeLinks(graph.node)
    found: dict[str, str] = {}
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, message = error.node_name(), one_line(error.desc())
        if name not in owners and 0 <= error.node() < len(graph.node):
            name = graph.node[error.node()].name
        if name not in owners:
            words = [word.rstrip(".") for word in re.split(r"[\s'\",]+", error.desc())]
            name = next((maker.name for maker in map(links.maker, words) if maker is not None), "")
        inside = f" in its body, {name!r}" if owners.get(name, name) != name else ""
        what = f"the parser refuses {error.node_operator() or 'it'}{inside}"
        reason = f"{what} ({error.code().name}, {error.func()}): {message}"
        found.setdefault(owners.get(name, ""), reason)
    return found


def _check_model(builder: Any, model: onnx.ModelProto, weights: Path) -> ParserResult:
    """The parser's result for a whole model."""
    listener().errors = []
    # The parser does not keep its network alive.
    network = new_network(builder)
    parser = tensorrt().OnnxParser(network, listener())
    supported = parser.supports_model_v2(model.SerializeToString(), str(weights / "model.onnx"))
    groups = [parser.get_subgraph_nodes(index) for index in range(parser.num_subgraphs)]
    return ParserResult(
        bool(supported),
        frozenset(index for group in groups for index in group),
        parser_errors(parser, model.graph),
    )


def refusals(model: onnx.ModelProto, weights: Path) -> tuple[dict[str, str], bool]:
    """Main-graph nodes that the parser refuses, with its reasons, and whether these are all.

    The parser only checks nodes whose inputs it could compute, so nodes behind a refused one are
    checked in another round without it; they are not all if it refused further nodes in every
    round.  Types are checked here: the parser silently computes float64 as float32.
    """
    nodes = list(model.graph.node)
    source, types = _Source(model), _types(model)
    refused = {node.name: why for node in nodes if (why := _unfit(node, types))}
    builder = tensorrt().Builder(listener())
    refused_alone: dict[int, str] = {}
    for _ in range(_MAX_ROUNDS):
        remaining = [index for index, node in enumerate(nodes) if node.name not in refused]
        extract, untyped = source.extract(remaining)
        if untyped:
            refused |= untyped
            continue
        result = _check_model(builder, extract, weights) if remaining else None
        if result is None or result.supported:
            return refused, True
        new = _refused_nodes(extract.graph, result)
        refused |= new
        kinds = {nodes[index].op_type for index in remaining if nodes[index].name in new}
        for index in remaining:
            if nodes[index].op_type in kinds and index not in refused_alone:
                single, untyped = source.extract([index])
                found = {} if untyped else _check_model(builder, single, weights).refused
                refused_alone[index] = found.get(nodes[index].name, "")
        refused |= _twins(nodes, refused_alone, new)
    return refused, False


def _refused_nodes(graph: onnx.GraphProto, result: ParserResult) -> dict[str, str]:
    """Nodes of a graph that a result refuses; all of them if it names none."""
    new = {name: why for name, why in result.refused.items() if name}
    for index, node in enumerate(graph.node):
        if index not in result.listed:
            new.setdefault(node.name, "the parser lists it in no subgraph")
    if new:
        return new
    message = result.refused.get("") or "; ".join(listener().errors) or "it gives no reason"
    why = f"the parser refuses the graph: {message}"[:_MAX_MESSAGE]
    return {node.name: why for node in graph.node}


def _twins(
    nodes: Sequence[onnx.NodeProto], refused_alone: Mapping[int, str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Nodes that, checked alone, are refused in the same words as one that was just refused.

    The parser stops at the first node that it cannot translate, so a graph with a hundred of them
    would take a hundred rounds.
    """
    words = {_without_names(refused[node.name], node) for node in nodes if node.name in refused}
    return {
        nodes[index].name: why
        for index, why in refused_alone.items()
        if why and _without_names(why, nodes[index]) in words
    }


def _without_names(why: str, node: onnx.NodeProto) -> str:
    """A reason without the node's own names."""
    for name in sorted({node.name, *node.input, *node.output}, key=len, reverse=True):
        why = why.replace(name, "") if name else why
    return why


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types by value, 0 for what is no tensor; those of outer graphs count first."""
    from aotc.graph.view import declared_values, every_graph

    types: dict[str, int] = {}
    for graph in every_graph(model):
        own = {
            value.name: value.type.tensor_type.elem_type
            for value in declared_values(graph)
            if value.type.WhichOneof("value") is not None
        }
        sparse = (tensor.values for tensor in graph.sparse_initializer)
        own |= {tensor.name: tensor.data_type for tensor in (*graph.initializer, *sparse)}
        types = own | types
    return types


def unfit_type(element: int) -> str:
    """Why TensorRT has no tensors of an ONNX element type; "" if it has."""
    import onnx

    if not element:
        return "no tensor"
    name = onnx.TensorProto.DataType.Name(element)
    members = tensorrt().DataType.__members__
    return "" if _DATA_TYPES.get(name) in members else f"of type {name.lower()}"


def data_type(element: int) -> Any:
    """TensorRT's type for an ONNX element type that is not unfit."""
    import onnx

    name = onnx.TensorProto.DataType.Name(element)
    return tensorrt().DataType.__members__[_DATA_TYPES[name]]


def _unfit(owner: onnx.NodeProto, types: Mapping[str, int]) -> str:
    from aotc.graph.view import every_node

    for node in every_node(owner):
        for value in (*node.input, *node.output):
            if value in types and (why := unfit_type(types[value])):
                return f"TensorRT has no such values: {value!r} is {why}"
    return ""


class _Source:
    """A model from which models of some main-graph nodes are extracted."""

    def __init__(self, model: onnx.ModelProto) -> None:
        from aotc.graph.view import GraphView, declared_values

        self.model = model
        self.graph = GraphView(model.graph)
        self.infos = {value.name: value for value in declared_values(model.graph)}

    def extract(self, indices: Sequence[int]) -> tuple[onnx.ModelProto, dict[str, str]]:
        """The model of some nodes, and those nodes that read a value of unknown type."""
        import onnx

        from aotc.graph.partition.division import boundary_values, keep_constants

        inputs, outputs = boundary_values(self.graph, indices)
        unknown = frozenset(inputs) - self.infos.keys()
        untyped = {
            self.graph.nodes[index].name: f"the type of {value!r} is not known"
            for index in indices
            for value in self.graph.reads[index]
            if value in unknown
        }
        extract = onnx.ModelProto()
        extract.ir_version = self.model.ir_version
        extract.opset_import.extend(self.model.opset_import)
        extract.functions.extend(self.model.functions)
        extract.graph.name = self.model.graph.name
        extract.graph.node.extend(self.graph.nodes[index] for index in indices)
        extract.graph.input.extend(self.infos[value] for value in inputs if value not in unknown)
        # TensorRT infers types itself, so outputs need none.
        extract.graph.output.extend(
            self.infos.get(value, onnx.ValueInfoProto(name=value)) for value in outputs
        )
        keep_constants(extract.graph, self.graph)
        return extract, untyped
