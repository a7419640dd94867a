"""Engines of TensorRT for RTX: one partition, built for named compute capabilities."""

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
    reads,
    tensorrt,
    unfit_type,
)
from aotc.contract.target import Target
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnx

# What the plugin takes for dims that nobody states.
_ANY_SIZE: Final = (0, 1, 32767)
_TOLD: Final = 5


def build_engine(request: CompileRequest) -> bytes:
    """The serialized engine of a partition; raises AOTC-P005, AOTC-P010 and AOTC-I019."""
    import onnx

    trt = tensorrt()
    chosen = _chosen(request.target)
    listener().errors = []
    model = onnx.load(request.model, load_external_data=False)
    builder = trt.Builder(listener())
    network = new_network(builder)
    parser = parse_into(network, request.model.read_bytes(), request.weights)
    if errors := parser_errors(parser, model.graph):
        said = "; ".join(f"{name!r}: {why}" if name else why for name, why in errors.items())
        raise _failed(request, "TensorRT's parser refuses nodes of a partition", said)
    _check_borders(request, network, model.graph)
    config = builder.create_builder_config()
    # It is set unless cleared, and float32 factors are cut to 10 bits of mantissa then.
    if request.precision == "keep":
        config.clear_flag(trt.BuilderFlag.TF32)
    config.num_compute_capabilities = len(chosen)
    for index, member in enumerate(chosen.values()):
        config.set_compute_capability(member, index)
    _add_profile(request, builder, config, network, model.graph)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise _failed(request, "TensorRT could not build an engine")
    return bytes(engine)


def _chosen(target: Target) -> dict[str, Any]:
    """The builder's names of the target's compute capabilities; raises AOTC-P010."""
    known = {
        f"{name[2:-1]}.{name[-1]}": member
        for name, member in tensorrt().ComputeCapability.__members__.items()
        if re.fullmatch(r"SM\d{2,}", name)
    }
    stated = stated_capabilities(target)
    unknown = [each for each in stated if each not in known]
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
    return {each: known[each] for each in stated}


def stated_capabilities(target: Target) -> tuple[str, ...]:
    """Compute capabilities of a target, in order."""
    stated = target.compute_capabilities or tuple(gpu.compute_capability for gpu in target.gpus)
    return tuple(sorted(set(stated), key=lambda each: [int(part) for part in each.split(".")]))


def _check_borders(request: CompileRequest, network: Any, graph: onnx.GraphProto) -> None:
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
            raise _failed(request, what, f"{', '.join(found)} instead of {', '.join(names)}")
        for value, tensor in zip(values, tensors, strict=True):
            element = value.type.tensor_type.elem_type
            if unfit_type(element) or tensor.dtype != data_type(element):
                what = f"TensorRT changes the type of the partition's {kind}"
                raise _failed(request, what, _of_value(graph, value.name, tensor.dtype.name))


def _of_value(graph: onnx.GraphProto, value: str, text: str) -> str:
    """A message on a value with the nodes that make or read it, so that they can be left out."""
    nodes = [node.name for node in graph.node if value in (*reads(node), *node.output)]
    return f"{value!r}: {text}; nodes {', '.join(repr(name) for name in nodes)}"


def _add_profile(
    request: CompileRequest, builder: Any, config: Any, network: Any, graph: onnx.GraphProto
) -> None:
    """State the range of each input that has dims of no fixed size.

    What nobody knows gets the range that the plugin takes, too; a call beyond it fails.
    """
    profile = builder.create_optimization_profile()
    ranges = _ranges(graph, request.shapes)
    dynamic = False
    values = {value.name: value for value in graph.input}
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            text = _of_value(graph, tensor.name, "its values decide shapes")
            raise _failed(request, "TensorRT wants to know a partition's input", text)
        if not values[tensor.name].type.tensor_type.HasField("shape"):
            text = _of_value(graph, tensor.name, "its rank is not known")
            raise _failed(request, "TensorRT wants to know a partition's input", text)
        if all(size >= 0 for size in tensor.shape):
            continue
        dynamic = True
        shapes = request.shapes.get(tensor.name) or _guessed(values[tensor.name], ranges)
        profile.set_shape(tensor.name, *shapes)
    if dynamic and config.add_optimization_profile(profile) < 0:
        raise _failed(request, "TensorRT refuses the shapes of a partition's inputs")


def _ranges(
    graph: onnx.GraphProto, shapes: Mapping[str, tuple[Shape, Shape, Shape]]
) -> dict[str, tuple[int, ...]]:
    """Minimum, optimum and maximum of dims by their names, of inputs whose shapes are known."""
    found: dict[str, tuple[int, ...]] = {}
    for value in graph.input:
        if value.name in shapes:
            sizes = zip(*shapes[value.name], strict=True)
            for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
                if dim.dim_param:
                    found.setdefault(dim.dim_param, size)
    return found


def _guessed(
    value: onnx.ValueInfoProto, ranges: Mapping[str, tuple[int, ...]]
) -> tuple[Shape, ...]:
    sizes = [
        (dim.dim_value,) * 3 if dim.HasField("dim_value") else ranges.get(dim.dim_param, _ANY_SIZE)
        for dim in value.type.tensor_type.shape.dim
    ]
    return tuple(zip(*sizes, strict=True))


def _failed(request: CompileRequest, what: str, said: str = "") -> AotcError:
    found = said or "; ".join(listener().errors[-_TOLD:])
    return AotcError("AOTC-P005", what, where=request.stem, found=found[:2000])
