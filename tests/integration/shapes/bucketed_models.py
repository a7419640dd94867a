"""Small models with free dims, profiles with buckets for them, and their artifacts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import onnxruntime as ort
from model_parts import info, node
from onnx import NodeProto, TensorProto
from refusals import refusal
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.spec.variant import Variant

# What exporters write for long.
model_of = partial(model_parts.model_of, opset=17, ir_version=8)

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WORDS, WIDTH = 4096, 256
Shape = list[int | str]


def random_values(*shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def encoder(layers: int = 2) -> onnx.ModelProto:
    """Words to vectors, some layers, and their mean over the words that the mask selects.

    Reshapes are written as exporters do: sizes are read from a tensor and combined again.
    """
    nodes = [
        node("Gather", "table ids", "hidden0"),
        node("Unsqueeze", "mask last", "column"),
    ]
    constants: dict[str, Any] = {
        "table": random_values(WORDS, WIDTH),
        "last": np.array([-1]),
        "middle": np.array([1]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "width": np.array([WIDTH]),
        "flat": np.array([-1, WIDTH]),
    }
    for index in range(layers):
        layer_input, build_bucketed = f"hidden{index}", f"hidden{index + 1}"
        constants[f"w{index}"] = random_values(WIDTH, WIDTH + index)[:, :WIDTH].copy()
        nodes += [
            node("Shape", layer_input, f"shape{index}"),
            node("Gather", f"shape{index} zero", f"batch{index}"),
            node("Gather", f"shape{index} one", f"seq{index}"),
            node("Concat", f"batch{index} seq{index} width", f"wanted{index}", axis=0),
            node("Reshape", f"{layer_input} flat", f"rows{index}"),
            node("MatMul", f"rows{index} w{index}", f"product{index}"),
            node("Tanh", f"product{index}", f"activated{index}"),
            node("Reshape", f"activated{index} wanted{index}", build_bucketed),
        ]
    nodes += [
        node("Mul", f"hidden{layers} column", "vectors"),
        node("ReduceSum", "vectors middle", "sum", keepdims=0),
        node("ReduceSum", "column middle", "count", keepdims=0),
        node("Div", "sum count", "mean"),
    ]
    return model_of(
        nodes,
        [info("ids", ["batch", "seq"], INT64), info("mask", ["batch", "seq"])],
        {"vectors": ["batch", "seq", WIDTH], "mean": ["batch", WIDTH]},
        constants,
    )


def rows(*outputs: str) -> onnx.ModelProto:
    """Of x [batch, seq, 8] and w: `each` by word, `mean` over the words, `pairs` [seq * seq]."""
    build_bucketed: dict[str, tuple[list[NodeProto], Shape | None]] = {
        "each": ([node("MatMul", "x w", "each")], ["batch", "seq", 8]),
        "mean": ([node("ReduceMean", "x", "mean", axes=[1], keepdims=0)], ["batch", 8]),
        "pairs": (
            [
                node("Transpose", "x", "turned", perm=[0, 2, 1]),
                node("MatMul", "x turned", "square"),
                node("Reshape", "square flat", "pairs"),
            ],
            None,
        ),
    }
    return model_of(
        [node for name in outputs for node in build_bucketed[name][0]],
        {"x": ["batch", "seq", 8]},
        {name: build_bucketed[name][1] for name in outputs},
        {"w": random_values(8, 8), "flat": np.array([-1])},
    )


def profile(bench: Workbench, text: str) -> Path:
    """A profile file: the fields of `text` and those that every profile has."""
    path = bench.folder / "mine.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: mine\n{text}\n")
    return path


def seq(spec: str, batch: str = "2") -> str:
    return f"dims: {{batch: {batch}, seq: {{{spec}}}}}"


def build_bucketed(bench: Workbench, model: onnx.ModelProto, text: str) -> Built:
    return bench.build(model, "made", profile=profile(bench, text))


def refused(bench: Workbench, model: onnx.ModelProto, text: str) -> AotcError:
    """The refusal of a build; there is nothing at the output path afterwards."""
    error = refusal(bench.build, model, "refused", profile=profile(bench, text))
    assert not (bench.folder / "refused.aotc").exists()
    return error


def by_name(built: Built) -> dict[str, Variant]:
    return {variant.name: variant for variant in built.manifest.variants}


def session_of(built: Built, variant: Variant) -> ort.InferenceSession:
    """A plain session on the variant's graph and the shared weights."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    assert variant.weights is not None
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path",
        str(built.payload / variant.weights),
    )
    # With bytes only: given a path, ONNX Runtime looks for the weights in the path's folder.
    data = (built.payload / variant.model).read_bytes()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def words(batch: int, length: int, shown: int) -> dict[str, Any]:
    """Inputs of the encoder; the mask selects the first `shown` words."""
    ids = np.random.default_rng(length).integers(1, WORDS, (batch, length))
    mask = np.zeros((batch, length), np.float32)
    mask[:, :shown] = 1
    ids[:, shown:] = 0
    return {"ids": ids, "mask": mask}
