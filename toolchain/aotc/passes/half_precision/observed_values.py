"""A graph that counts, for each of its float32 values, the numbers that leave a type's range.

The counts are its outputs, so that a run needs little memory beside that of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.contract.operator_domains import STANDARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

_FLOAT_MAX: Final = 3.4028234663852886e38
_LIMIT, _MAX, _COUNT = "aotc_limit", "aotc_max", "aotc_count_of_"
# Below this opset, the axes of ReduceSum are an attribute; here none are given.
_MIN_OPSET: Final = 13


def counting_graph(
    model: onnx.ModelProto, names: Sequence[str], largest: float
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A copy of `model` with the counts as its outputs; their names by value.

    Infinities are not counted, as every floating-point type has them.
    """
    import numpy as np
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for name, value in ((_LIMIT, largest), (_MAX, _FLOAT_MAX)):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.float32), name))
    del graph.output[:]
    counts = {}
    for index, name in enumerate(names):
        count = f"{_COUNT}{index}"
        step = [f"{count}_{part}" for part in ("size", "beyond", "infinite", "finite", "both")]
        size, beyond, infinite, finite, both = step
        for op, given, result, attributes in (
            ("Abs", [name], size, {}),
            ("Greater", [size, _LIMIT], beyond, {}),
            ("Greater", [size, _MAX], infinite, {}),
            ("Not", [infinite], finite, {}),
            ("And", [beyond, finite], both, {}),
            ("Cast", [both], f"{count}_number", {"to": onnx.TensorProto.FLOAT}),
            ("ReduceSum", [f"{count}_number"], count, {"keepdims": 0}),
        ):
            graph.node.append(
                onnx.helper.make_node(op, given, [result], name=f"make_{result}", **attributes)
            )
        graph.output.append(onnx.helper.make_tensor_value_info(count, onnx.TensorProto.FLOAT, []))
        counts[name] = count
    made.ir_version = max(made.ir_version, 4)
    return made, counts


def can_count(model: onnx.ModelProto) -> bool:
    """Whether the model's operator set has what counts."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    return max((opsets.get(domain, 0) for domain in STANDARD), default=0) >= 9
