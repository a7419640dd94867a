"""Values that are known once the sizes of the inputs are: what graphs compute of shapes.

ONNX's inference follows few of these computations, and no size behind a Slice or Reshape that is
given one is known.  Here small values are computed, with the onnx package's own evaluator, and the
shapes behind them inferred, in turns until nothing new is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aotc.contract.operator_domains import STANDARD
from aotc.partitioning.scopes import fix_sizes

if TYPE_CHECKING:
    import onnx

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

    tensors = [(tensor.name, tensor) for tensor in model.graph.initializer]
    tensors += [
        (node.output[0], attribute.t)
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    found = {}
    for name, tensor in tensors:
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
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            found[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
    for initializer in model.graph.initializer:
        found[initializer.name] = tuple(initializer.dims)
    return found
