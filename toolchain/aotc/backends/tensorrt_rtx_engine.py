"""Builds engines of TensorRT for RTX: one partition, for named compute capabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aotc.backends.base import CompileRequest, Shape
from aotc.backends.tensorrt_rtx_parser import (
    data_type,
    listener,
    new_network,
    parse_into,
    parser_errors,
    read_values,
    tensorrt,
    unfit_type,
)
from aotc.contract.target import Target
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnx

# The plugin's own range for dims without a stated range.
_ANY_SIZE: Final = (0, 1, 32767)
_MAX_ERRORS: Final = 5


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
            else "no compute capability is named to build engines for",
            where="compute_capabilities",
            expected=", ".join(known),
            found=", ".join(stated),
            fix="" if unknown else "Name some under compute_capabilities of the profile.",
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
