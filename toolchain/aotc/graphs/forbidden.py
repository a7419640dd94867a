"""Operators that no artifact may contain: compiled parts, and sources of random numbers."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from aotc.contract.operator_domains import EP_CONTEXT, MICROSOFT, STANDARD
from aotc.errors import AotcError

RANDOM_OPS = frozenset(
    (
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    )
)


def refuse_operators(
    nodes: Iterable[onnx.NodeProto], initializers: Iterable[onnx.TensorProto]
) -> None:
    """Check all nodes and initializers of a model, those of subgraphs and functions included.

    Raises AOTC-I010 (EPContext) and I011 (random numbers).
    """
    all_nodes = tuple(nodes)
    true = _true_constants(all_nodes, initializers)
    for node in all_nodes:
        where = f"node {node.name or node.op_type}"
        if node.domain == MICROSOFT and node.op_type == EP_CONTEXT:
            raise AotcError("AOTC-I010", "the model holds an EPContext node", where=where)
        if node.domain not in STANDARD:
            continue
        if node.op_type in RANDOM_OPS:
            raise AotcError("AOTC-I011", f"{node.op_type} draws random numbers", where=where)
        # The third input of Dropout is `training_mode`.
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in true:
            raise AotcError(
                "AOTC-I011", "Dropout in training mode draws random numbers", where=where
            )


def _true_constants(
    nodes: Iterable[onnx.NodeProto], initializers: Iterable[onnx.TensorProto]
) -> frozenset[str]:
    """Names of constants with the boolean value true."""
    flags = {tensor.name: tensor for tensor in initializers}
    for node in nodes:
        # ONNX Runtime refuses a Constant without an output.
        if node.op_type == "Constant" and node.output:
            flags.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return frozenset(
        name
        for name, tensor in flags.items()
        if tensor.data_type == onnx.TensorProto.BOOL
        and (any(tensor.raw_data) or any(tensor.int32_data))
    )
