"""The graph of a variant, read from its model in the payload; weights are not loaded.

The model is foreign and not verified, so a sandboxed worker parses it and infers its shapes: a file
that crashes or hangs the parser gives a reason code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from xml.etree.ElementTree import Element

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.graph.types import fix_sizes
from aotc.graph.view import Links, constant_tensors, declared_values
from aotc.report.html.page import swatch, tag
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import NodeError, NodeErrors
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx


@record
class DrawnNode:
    """A node of a main graph, in the order of execution."""

    name: str
    op: Annotated[str, "domain::op_type; without domain for ONNX's own"]
    inputs: Annotated[tuple[str, ...], "values that are no weights"] = ()
    outputs: tuple[str, ...] = ()
    weights: Annotated[tuple[str, ...], "initializers that it reads"] = ()
    flops: Annotated[int, "at the optimal sizes, by the formulas of `partitioning.compute`"] = 0
    inner: Annotated[tuple[str, ...], "names of the nodes of its subgraphs"] = ()


@record
class DrawnPart:
    """A partition: nodes of one provider, by their indices."""

    provider: str
    nodes: tuple[int, ...]


@record(slots=False)
class DrawnGraph:
    """A main graph; sizes are in bytes by value, those that shape inference finds."""

    nodes: tuple[DrawnNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[DrawnPart, ...] = ()
    sizes: Annotated[Mapping[str, int], "at the optimal sizes"] = field(default_factory=dict)
    sizes_max: Annotated[Mapping[str, int], "at the largest sizes"] = field(default_factory=dict)
    shapes: Annotated[Mapping[str, tuple[int, ...]], "at the optimal sizes"] = field(
        default_factory=dict
    )

    @cached_property
    def links(self) -> Links:
        """Who makes and reads its values."""
        return links_of(self.nodes)


def links_of(nodes: Sequence[DrawnNode]) -> Links:
    """Who makes and reads the values of drawn nodes."""
    return Links((node.inputs for node in nodes), (node.outputs for node in nodes))


@record
class GraphRequest:
    """A model to read: its bytes, the sizes of its dims, and the provider of each node by name."""

    model: bytes
    optimal: Mapping[str, int] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)


def read_graphs(requests: Sequence[GraphRequest]) -> list[DrawnGraph | AotcError]:
    """The graph of each model, or why it cannot be drawn (AOTC-I056).

    Raises AOTC-I018 and I043 where the operating system refuses the worker's files.
    """
    from aotc.base.files.work_folders import temporary_folder
    from aotc.session.worker_pool import Workers
    from aotc.tools.diff.opened_artifact import LIMITS

    found: list[DrawnGraph | AotcError] = []
    with temporary_folder("drawing") as folder, Workers(LIMITS) as workers:
        for index, request in enumerate(requests):
            place = folder / f"graph-{index}"
            place.mkdir()
            (place / "model.onnx").write_bytes(request.model)
            try:
                sizes = {"optimal": dict(request.optimal), "largest": dict(request.largest)}
                asked: Json = {**sizes, "providers": dict(request.providers)}
                done = workers.run(f"{__name__}:read_graph_job", asked, folder=place)
                found.append(decode(DrawnGraph, done.value))
            except AotcError as error:
                found.append(AotcError("AOTC-I056", "the graph cannot be read", found=error.line()))
    return found


def read_graph_job(request: Json) -> Json:
    """In the worker: the graph of `model.onnx` as JSON; see `read_graphs`."""
    import onnx

    from aotc.graph.partition.assignment import Rules, assign, flops_of, sizes_at
    from aotc.graph.view import GraphView, op_of
    from aotc.graph.wire_count import refuse_costly

    assert isinstance(request, dict)
    content = Path("model.onnx").read_bytes()
    refuse_costly(content, "model.onnx")
    model = onnx.ModelProto.FromString(content)
    graph = GraphView(model.graph)
    inferred = with_standard_operators(model)
    optimal: Any = request["optimal"]
    largest: Any = request["largest"]
    sizes = sizes_at(with_known_values(inferred, optimal), {})
    sizes_max = sizes
    if largest != optimal:
        sizes_max = sizes_at(with_known_values(inferred, largest), {})
    stated: Any = request["providers"]
    providers = {node.name: stated.get(node.name, "") for node in graph.nodes}
    names = dict.fromkeys((*stated.values(), *providers.values()))
    inner = frozenset(node.name for body in graph.bodies for node in body.nodes)
    claims = [
        (name, frozenset(node for node, found in providers.items() if found == name) | inner)
        for name in names
    ]
    assignment, _ = assign(graph, claims, Rules())
    values = {*graph.producers, *graph.inputs} - graph.initializers
    nodes = []
    for node, read in zip(graph.nodes, graph.reads, strict=True):
        shapes = [sizes.shapes.get(name) if name else None for name in node.input]
        outputs = [sizes.shapes[name] for name in node.output if name in sizes.shapes]
        nodes.append(
            DrawnNode(
                name=node.name,
                op=op_of(node),
                inputs=tuple(name for name in read if name not in graph.initializers),
                outputs=tuple(name for name in node.output if name),
                weights=tuple(name for name in node.input if name in graph.initializers),
                flops=flops_of(node.op_type, shapes, outputs) if outputs else 0,
                inner=tuple(graph.inside.get(node.name, [])),
            )
        )
    parts = assignment.parts
    return encode(
        DrawnGraph(
            nodes=tuple(nodes),
            inputs=tuple(graph.inputs),
            outputs=tuple(graph.outputs),
            parts=tuple(
                DrawnPart(provider=each.provider, nodes=tuple(each.nodes)) for each in parts
            ),
            sizes={name: size for name, size in sizes.values.items() if name in values},
            sizes_max={name: size for name, size in sizes_max.values.items() if name in values},
            shapes={name: tuple(size) for name, size in sizes.shapes.items() if name in values},
        )
    )


# Values that are known once the sizes of the inputs are: what graphs compute of shapes.
#
# ONNX's inference follows few of these computations, and no size behind a Slice or Reshape that is
# given one is known. Here small values are computed, with the onnx package's own evaluator, and the
# shapes behind them inferred, in turns until nothing new is known.


# Larger values are no shapes.
_MAX_ELEMENTS: Final = 1 << 14
_MAX_ROUNDS: Final = 12
_COMPUTED: Final = frozenset(
    (
        *("Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand"),
        *("Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max"),
        *("Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "Reshape", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub"),
        *("Transpose", "Unsqueeze", "Where"),
    )
)
# What the evaluator raises for a node that it cannot run.
_FAILURES: Final = (
    *(ValueError, TypeError, RuntimeError, LookupError, ArithmeticError, AttributeError),
    *(NotImplementedError, AssertionError),
)


def with_known_values(model: onnx.ModelProto, dims: Mapping[str, int]) -> onnx.ModelProto:
    """A copy with inputs of the sizes `dims` and constants for what is computed of them alone.

    Names of nodes and values stay.  It is for inference only: constants in it may be of other
    element types than the model's where the evaluator's are.
    """
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.value_info[:]
    fix_sizes(fixed.graph, dims)
    constants = _constants(fixed)
    for _ in range(_MAX_ROUNDS):
        shapes = _shapes(fixed)
        if not _compute(fixed, shapes, constants):
            break
    return fixed


def _compute(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], constants: dict[str, Any]
) -> bool:
    """Replace nodes whose values are known by constants; whether there was any."""
    import numpy as np
    from onnx import helper, numpy_helper

    found = False
    for node in model.graph.node:
        if node.domain not in STANDARD or len(node.output) != 1 or node.op_type == "Constant":
            continue
        value: Any = None
        if node.op_type == "Shape" and node.input[0] in shapes:
            bounds = {attribute.name: attribute.i for attribute in node.attribute}
            dims = shapes[node.input[0]]
            part = dims[bounds.get("start", 0) : bounds.get("end", len(dims))]
            value = np.array(part, np.int64)
        elif node.op_type in _COMPUTED and all(
            not name or name in constants for name in node.input
        ):
            value = _evaluated(node, constants, model)
        if value is None or value.size > _MAX_ELEMENTS:
            continue
        constants[node.output[0]] = value
        made = helper.make_node(
            "Constant",
            [],
            list(node.output),
            name=node.name,
            value=numpy_helper.from_array(np.asarray(value)),
        )
        node.CopyFrom(made)
        found = True
    return found


def _evaluated(node: onnx.NodeProto, constants: Mapping[str, Any], model: onnx.ModelProto) -> Any:
    import numpy as np

    names = [name for name in dict.fromkeys(node.input) if name]
    if sum(constants[name].size for name in names) > _MAX_ELEMENTS:
        return None
    try:
        # A division by zero warns, and is as little a shape as what fails.
        with np.errstate(all="raise"):
            return _run_alone(node, {name: constants[name] for name in names}, model)
    except _FAILURES:
        return None


def _run_alone(node: onnx.NodeProto, given: Mapping[str, Any], model: onnx.ModelProto) -> Any:
    """The one output of a node whose inputs are `given`; raises what the evaluator does."""
    import numpy as np
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in given.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    opsets = [opset for opset in model.opset_import if opset.domain in STANDARD]
    graph = helper.make_graph([node], "one", values, results)
    one = helper.make_model(graph, opset_imports=opsets)
    (value,) = ReferenceEvaluator(one).run(None, dict(given))
    return np.asarray(value)


def _constants(model: onnx.ModelProto) -> dict[str, Any]:
    """Small initializers and constants that are in the model's own file, by name."""
    import math

    from onnx import TensorProto, numpy_helper

    found = {}
    for name, tensor in constant_tensors(model.graph).items():
        small = math.prod(tensor.dims) <= _MAX_ELEMENTS
        if small and tensor.data_location != TensorProto.EXTERNAL:
            try:
                found[name] = numpy_helper.to_array(tensor)
            except _FAILURES:
                continue
    return found


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Fully known shapes by value; none if inference fails."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    found = {}
    for value in declared_values(inferred.graph):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            found[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
    for initializer in model.graph.initializer:
        found[initializer.name] = tuple(initializer.dims)
    return found


# Replacements of ONNX Runtime's fused operators, so that ONNX's shape inference goes through them.
#
# ONNX infers no shape of an operator of another domain, and of nothing after it. In a copy that is
# only inferred, such a node is replaced by one of ONNX's own whose outputs have the same shapes and
# types: a fused product by the product, what works element by element by Identity. What has no
# replacement stays unknown.


# By operator: the one of ONNX that replaces it, and which inputs it takes; () are all.
_REPLACEMENTS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    **dict.fromkeys(
        (
            *("Attention", "MultiHeadAttention", "QAttention", "GroupQueryAttention"),
            *("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "BiasSoftmax", "SkipLayerNormalization"),
            *("SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization", "BiasAdd"),
            *("LayerNormalization", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"),
            *("RotaryEmbedding", "ReorderInput", "GroupNorm", "SkipGroupNorm"),
        ),
        ("Identity", (0,)),
    ),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ("Add", (0, 3))),
    "FusedConv": ("Conv", ()),
    "FusedGemm": ("Gemm", ()),
    "FusedMatMul": ("MatMul", (0, 1)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "Conv": ("Conv", (0, 1)),
    "MaxPool": ("MaxPool", (0,)),
    "AveragePool": ("AveragePool", (0,)),
    "GlobalAveragePool": ("GlobalAveragePool", (0,)),
    "GlobalMaxPool": ("GlobalMaxPool", (0,)),
    "Upsample": ("Upsample", (0,)),
}
_UNDATED: Final = ("LayerNormalization", "SimplifiedLayerNormalization")
_DOMAINS: Final = ("com.microsoft", "com.microsoft.nchwc")
# From this opset on, Slice takes its bounds as inputs.
_SLICE_INPUTS: Final = 10
# Attributes that the operators of ONNX have too; the others would make them invalid.
_KEPT: Final = frozenset(
    (
        *("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode"),
        *("storage_order", "count_include_pad", "alpha", "beta", "transA", "transB"),
    )
)


def with_standard_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for shape inference alone; its nodes have the same names and outputs."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    sums: list[onnx.NodeProto] = []
    for node in copied.graph.node:
        # ONNX Runtime writes these without a domain into models of any opset.
        if node.domain not in _DOMAINS and node.op_type not in _UNDATED:
            continue
        if node.op_type == "ReorderOutput":
            _cut_channels(node, copied)
            continue
        op, taken = _REPLACEMENTS.get(node.op_type, ("", ()))
        if not op or any(index >= len(node.input) for index in taken):
            continue
        transposed = {a.name for a in node.attribute if a.name.startswith("trans") and (a.i or a.f)}
        if op == "MatMul" and transposed:
            continue  # Its product has other sizes than that of the inputs as they are.
        inputs = [node.input[index] for index in taken] or list(node.input)
        kept = [a for a in node.attribute if a.name in _KEPT and op != "Identity"]
        del node.attribute[:]
        node.attribute.extend(kept)
        if "Skip" in node.op_type and len(node.output) > 3 and node.output[3]:
            # What is normalized, for the next node to add to.
            sums.append(onnx.helper.make_node("Identity", [node.input[0]], [node.output[3]]))
        node.op_type, node.domain = op, ""
        node.input[:] = inputs
        if op == "Conv":
            node.input[:] = inputs[:3]
        del node.output[1:]
    nodes = list(copied.graph.node)
    made = {node.input[0]: node for node in sums}
    del copied.graph.node[:]
    # Each behind the node that it reads from, as inference follows the order of nodes.
    inputs_of_graph = {value.name for value in copied.graph.input}
    copied.graph.node.extend(made[value] for value in inputs_of_graph & made.keys())
    for node in nodes:
        copied.graph.node.append(node)
        copied.graph.node.extend(made[value] for value in node.output if value in made)
    return copied


def _cut_channels(node: onnx.NodeProto, model: onnx.ModelProto) -> None:
    """Blocked channels are rounded up; behind them the graph has as many as it had."""
    import numpy as np
    from onnx import helper, numpy_helper

    stated = {attribute.name: attribute.i for attribute in node.attribute}
    channels = stated.get("channels", 0)
    if channels <= 0 or stated.get("channels_last"):
        return
    bounds = {"starts": [0], "ends": [channels], "axes": [1]}
    names = [node.input[0]]
    opset = max((o.version for o in model.opset_import if o.domain in STANDARD), default=1)
    if opset >= _SLICE_INPUTS:
        for name, value in bounds.items():
            names.append(f"{node.output[0]}/{name}")
            tensor = numpy_helper.from_array(np.array(value, np.int64), names[-1])
            model.graph.initializer.append(tensor)
        bounds = {}
    node.CopyFrom(helper.make_node("Slice", names, list(node.output), name=node.name))
    node.attribute.extend(helper.make_attribute(name, value) for name, value in bounds.items())


# Errors of nodes as colours and words of a page.


# From the least to the largest error: the class, its lower bound in decibels, and its words.
CLASSES: Final = (
    ("e0", 120.0, "exact to rounding"),
    ("e1", 60.0, "60 dB and more"),
    ("e2", 30.0, "30 to 60 dB"),
    ("e3", -1e9, "below 30 dB"),
)
OUT: Final = ("e4", "out of tolerance")
# What stands for an error that cannot be measured.
_LARGEST: Final = 1e300


def error_class(error: NodeError) -> str:
    """The class of a node: by its ratio of signal to error, or that of nodes out of tolerance."""
    if not error.passed:
        return OUT[0]
    if error.max_abs == 0.0 or error.sqnr_db is None:
        return CLASSES[0][0]
    return next(name for name, bound, _ in CLASSES if error.sqnr_db >= bound)


def error_text(error: NodeError) -> str:
    """The error of a node in words."""
    if error.max_abs == 0.0 and error.passed:
        return "no error"
    if error.max_abs > _LARGEST:
        return f"error: {error.reason}"
    ratio = "" if error.sqnr_db is None else f", {error.sqnr_db:.0f} dB"
    out = "" if error.passed else ", out of tolerance"
    return f"relative error {error.max_rel:.2g}{ratio}{out}"


def errors_by_index(graph: DrawnGraph, errors: NodeErrors) -> dict[int, NodeError]:
    """The errors of drawn nodes, by index: of what they make, or of what they are part of.

    Where ONNX Runtime fuses at load, several drawn nodes have the error of one value.
    """
    values = {error.value: error for error in errors.nodes}
    names = {error.variant_node: error for error in errors.nodes}
    covered: dict[str, NodeError] = {}
    for error in errors.nodes:
        for name in error.covers:
            covered.setdefault(name, error)
    found: dict[int, NodeError] = {}
    for index, node in enumerate(graph.nodes):
        own = next((values[value] for value in node.outputs if value in values), None)
        own = own or names.get(node.name) or covered.get(node.name)
        if own is not None:
            found[index] = own
    return found


def error_key(found: Mapping[int, NodeError]) -> Element:
    """The switch that colours the graph by error, and what the colours mean."""
    present = {error_class(error) for error in found.values()}
    words = [*((name, text) for name, _, text in CLASSES), OUT]
    return tag(
        "p",
        tag(
            "label",
            tag("input", type="checkbox", class_="by-error", checked=""),
            " colour by error: ",
        ),
        *(swatch(f"{name}s", text) for name, text in words if name in present),
        tag("span", "grey: not compared", class_="key quiet"),
        class_="legend",
    )
