"""Products and convolutions between QuantizeLinear and DequantizeLinear, by ONNX Runtime's tool."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from aotc.passes.quantize.integers import Scheme
from aotc.passes.quantize.scoped_constants import drop_unread

if TYPE_CHECKING:
    import onnx

# Their kernels write float32 as quickly as integers, and it is more exact.
FLOAT_OUTPUTS: Final = ("MatMul", "Gemm")
# The first operator set in which scales may have an axis.
_AXIS_OPSET: Final = 13
_QUANTIZE: Final = "QuantizeLinear"
_DEQUANTIZE: Final = "DequantizeLinear"
# What the tool asks for, so that it does not infer the types of the graph again by way of a file.
_INFERRED: Final = ("onnx.infer", "onnxruntime.quant")


def quantize_static(
    model: onnx.ModelProto,
    chosen: Collection[str],
    ranges: Mapping[str, tuple[float, float]],
    scheme: Scheme,
) -> None:
    """Quantize the `chosen` nodes of the main graph, whose values have declared types."""
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.calibrate import TensorData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    if not chosen:
        return
    nodes = [node for node in model.graph.node if node.name in chosen]
    types = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    model.metadata_props.add(key=_INFERRED[0], value=_INFERRED[1])
    quantizer = QDQQuantizer(
        model,
        scheme.per_channel and opset >= _AXIS_OPSET,
        scheme.reduce_range,
        types[scheme.weights],
        types[scheme.activations],
        {
            name: TensorData(lowest=np.float32(low), highest=np.float32(high))
            for name, (low, high) in ranges.items()
        },
        [node.name for node in nodes],
        [],
        sorted({node.op_type for node in nodes}),
        {
            "OpTypesToExcludeOutputQuantization": list(FLOAT_OUTPUTS),
            # ONNX Runtime has its quickest kernels for signed activations if both are symmetric.
            "ActivationSymmetric": scheme.activations == "int8",
            "WeightSymmetric": scheme.weights == "int8",
        },
    )
    before = {name for node in model.graph.node for name in node.output}
    logger = logging.getLogger()
    level = logger.level
    # It warns of weights that several nodes share, and of values without a type.
    logger.setLevel(logging.ERROR)
    try:
        quantizer.quantize_model()
    finally:
        logger.setLevel(level)
    del model.metadata_props[-1]
    _read_exact(model, chosen, before)
    drop_unread(model)


def _read_exact(model: onnx.ModelProto, chosen: Collection[str], before: Collection[str]) -> None:
    """Nodes in float32 read what was computed in float32, rather than what was rounded for others.

    A product writes float32 even if its result is quantized for another.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    quantizes = {node.output[0]: node for node in model.graph.node if node.op_type == _QUANTIZE}
    exact = {}
    for node in model.graph.node:
        if node.op_type != _DEQUANTIZE or node.input[0] not in quantizes:
            continue
        value = quantizes[node.input[0]].input[0]
        maker = makers.get(value)
        if maker is None or maker.name not in chosen or maker.op_type in FLOAT_OUTPUTS:
            exact[node.output[0]] = value
    for node in model.graph.node:
        if node.name in chosen or node.op_type in (_QUANTIZE, _DEQUANTIZE):
            continue
        for at, name in enumerate(node.input):
            if name in exact and name not in before:
                node.input[at] = exact[name]
