"""A network of one Relu, whose calls cost nothing but the call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTH = 16


def write(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a process that may import onnx: float32 [batch, 16] to the same shape."""
    from onnx import TensorProto, helper

    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH])
        for name in ("x", "y")
    ]
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    graph = helper.make_graph([node], "relu", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    path = Path(request["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    yield {"bytes": path.stat().st_size}
