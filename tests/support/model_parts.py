"""Nodes, types of values, constants and whole models of ONNX, each in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
IR_VERSION = 10

Names: TypeAlias = str | Sequence[str]
Dims: TypeAlias = Sequence[int | str | None] | None
Infos: TypeAlias = Sequence[onnx.ValueInfoProto] | Mapping[str, Dims]
Constants: TypeAlias = Sequence[onnx.TensorProto] | Mapping[str, Any]


def _split(names: Names) -> Sequence[str]:
    return names.split() if isinstance(names, str) else names


def node(
    op: str, inputs: Names, outputs: Names = "y", name: str = "", **attributes: Any
) -> onnx.NodeProto:
    """A node of an operator.

    Inputs and outputs are sequences of names, or names in one text with blanks between them, where
    `-` is an input that is left out. In the node's own name, `{op}` is the operator in lower case
    and `{output}` the first output.
    """
    given = ["" if each == "-" else each for each in _split(inputs)]
    made = list(_split(outputs))
    called = name.format(op=op.lower(), output=made[0]) if made else name
    return helper.make_node(op, given, made, called, **attributes)


def info(name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """The name, the element type and the dims of a value; no dims at all where they are None."""
    return helper.make_tensor_value_info(name, kind, dims)


def constant(name: str, value: Any, dtype: Any = None) -> onnx.TensorProto:
    """A tensor of an array, of numbers in lists or of one number, in numpy's type or in `dtype`."""
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def _infos(values: Infos) -> list[onnx.ValueInfoProto]:
    if isinstance(values, Mapping):
        return [info(name, dims) for name, dims in values.items()]
    return list(values)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Infos = (),
    outputs: Infos = (),
    initializers: Constants = (),
    *,
    opset: int = OPSET,
    domains: Sequence[str] | Mapping[str, int] = (),
    ir_version: int = IR_VERSION,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of one graph.

    Inputs and outputs are value infos, or the dims of float32 values by their names; initializers
    are tensors, or arrays by their names. `opset` is the version of the standard operators;
    `domains` are further ones, in version 1 unless their versions are given.
    """
    if isinstance(initializers, Mapping):
        initializers = [constant(name, array) for name, array in initializers.items()]
    further = domains if isinstance(domains, Mapping) else dict.fromkeys(domains, 1)
    return helper.make_model(
        helper.make_graph(nodes, "made", _infos(inputs), _infos(outputs), initializers),
        opset_imports=[helper.make_opsetid(*each) for each in {"": opset, **further}.items()],
        ir_version=ir_version,
        functions=functions,
    )
