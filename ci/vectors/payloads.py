"""The payloads of the manifests: a package with one variant, and its model."""

from __future__ import annotations

import json
from collections.abc import Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from vectors.values import Json, json_text, sha256

PROVIDER = "CPUExecutionProvider"
PACKAGE, MODEL_FILE = "manifest.json", "model/portable/model.onnx"


def weights_outside() -> bytes:
    """A model whose weights are in a file outside of what was signed."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../../weights.bin")
    node = NodeProto(op_type="MatMul", name="matmul", input=["x", "w"], output=["y"])
    return _model(GraphProto(name="outside", node=[node], initializer=[weights]))


def part_outside() -> bytes:
    """A model with a compiled part in a file outside of what was signed."""
    node = NodeProto(op_type="EPContext", domain="com.microsoft", input=["x"], output=["y"])
    node.attribute.add(name="embed_mode", type=AttributeProto.INT, i=0)
    node.attribute.add(name="ep_cache_context", type=AttributeProto.STRING, s=b"/tmp/part.bin")
    return _model(GraphProto(name="outside", node=[node]))


def _model(graph: GraphProto) -> bytes:
    for values, name in ((graph.input, "x"), (graph.output, "y")):
        tensor = values.add(name=name).type.tensor_type
        tensor.elem_type = TensorProto.FLOAT
        for size in (1, 4):
            tensor.shape.dim.add(dim_value=size)
    model = ModelProto(ir_version=9, graph=graph)
    model.opset_import.add(domain="", version=19)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model.SerializeToString(deterministic=True)


def package_of(options: Mapping[str, str]) -> bytes:
    """ORT's manifest.json of a package with one variant and further session options."""
    variant = {
        "variant_directory": "model/portable",
        "ep": PROVIDER,
        "executor_info": {
            "ort": {
                "model_file": "model.onnx",
                "session_options": {"session.graph_optimization_level": "enable_all", **options},
            }
        },
    }
    return json_text(
        {
            "schema_version": "1.0",
            "package_name": "vector",
            "layout": "portable",
            "components": {"model": {"variants": {"portable": variant}}},
        }
    )


def on_device(package: bytes, device: str) -> bytes:
    """ORT's manifest.json with a device for its only variant."""
    found = json.loads(package)
    found["components"]["model"]["variants"]["portable"]["device"] = device
    return json_text(found)


def manifest_of(data: bytes, options: Mapping[str, str]) -> dict[str, Json]:
    """The minimal aotc.json of that package with the model `data`."""
    package = package_of(options)
    session = {"optimization": "all", **({"config": dict(options)} if options else {})}
    files = [
        {
            "path": PACKAGE,
            "size": len(package),
            "sha256": sha256(package),
            "role": "package",
        },
        {"path": MODEL_FILE, "size": len(data), "sha256": sha256(data), "role": "model"},
    ]
    return {
        "schema": "aotc.manifest/1.0",
        "name": "vector",
        "source": {
            "sha256": sha256(data),
            "size": len(data),
            "ir_version": 9,
            "opsets": {"ai.onnx": 19},
            "nodes": 1,
            "nodes_total": 1,
            "op_types": {"Gemm": 1},
            "initializers": 0,
            "initializer_bytes": 0,
        },
        "profile": {},
        "profile_sha256": sha256(b"{}"),
        "target": "host",
        "target_sha256": sha256(b"{}"),
        "toolchain": {"aotc": "0.1.0", "python": "3.11", "onnx": "1", "onnxruntime": "1.31.1"},
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 4]}],
        "variants": [
            {
                "name": "portable",
                "component": "model",
                "providers": [PROVIDER],
                "model": MODEL_FILE,
                "files": [MODEL_FILE],
                "session": session,
                "placement": {"origin": "observed", "nodes": [], "share": {}},
                "memory": {"weights_bytes": 0},
                "parity": {"status": "passed"},
                "requirements": {
                    "os": "linux",
                    "architecture": "x86_64",
                    "onnxruntime_min": "1.31.0",
                    "onnxruntime_below": "1.32",
                    "providers": [PROVIDER],
                },
            }
        ],
        "files": files,
    }
