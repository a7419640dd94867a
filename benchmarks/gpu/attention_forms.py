"""Forms of one grouped attention, and of a rotary embedding, timed by turns as CUDA graphs.

`python -m benchmarks.gpu.attention_forms [--out FILE]` on a machine with a GPU; a line of JSON for
each case.  `--cpu` compares the answers of the forms on the CPU in float32 instead, and times
nothing.  ADR 94 says what the forms are; `group operator` is GroupQueryAttention without the mask,
which computes something else: it shows what a kernel made for groups takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from aotc.providers.cuda import CudaBackend
from benchmarks.gpu.timing import blocks_by_turns

HEADS, KEYS, WIDTH = 16, 4, 64
GROUP, HIDDEN, SIDE = HEADS // KEYS, HEADS * WIDTH, KEYS * WIDTH
# Batch, queries, keys.
SIZES: Final = ((1, 1, 512), (8, 1, 512), (8, 1, 2048), (32, 1, 512), (1, 512, 512), (8, 512, 512))
SMALL: Final = ((2, 1, 5), (2, 3, 3))
OPSET = 23
OUTPUT = "y"
make = helper.make_node
Feeds = Mapping[str, Any]


def attention_forms(size: tuple[int, int, int], kind: int) -> dict[str, onnx.ModelProto]:
    """Attention of `q` over `k` and `v`, which are those of a cache, with `bias`."""
    batch, length, total = size
    inputs = {
        "q": [batch, length, HIDDEN],
        "k": [batch, KEYS, total, WIDTH],
        "v": [batch, KEYS, total, WIDTH],
        "bias": [batch, 1, length, total],
    }
    microsoft: dict[str, Any] = {"domain": "com.microsoft"}
    repeated = [
        node
        for name in "kv"
        for node in (
            make("Unsqueeze", [name, "two"], [f"{name}5"]),
            make("Expand", [f"{name}5", "wide"], [f"{name}6"]),
            make("Reshape", [f"{name}6", "all"], [f"{name}7"]),
        )
    ]
    many: dict[str, Any] = {"num_heads": HEADS, **microsoft}
    forms = {
        "repeated": [
            *repeated,
            make("MultiHeadAttention", ["q", "k7", "v7", "", "", "bias"], [OUTPUT], **many),
        ],
        "rows": [
            make("Reshape", ["q", "split"], ["q4"]),
            make("Transpose", ["q4"], ["q5"], perm=[0, 2, 1, 3]),
            make("Reshape", ["q5", "rows"], ["q6"]),
            make("Tile", ["bias", "times"], ["bias4"]),
            make(
                "MultiHeadAttention",
                ["q6", "k", "v", "", "", "bias4"],
                ["a"],
                num_heads=KEYS,
                **microsoft,
            ),
            make("Reshape", ["a", "unsplit"], ["a4"]),
            make("Transpose", ["a4"], ["a5"], perm=[0, 2, 1, 3]),
            make("Reshape", ["a5", "join"], [OUTPUT]),
        ],
        "standard": [
            make("Reshape", ["q", "heads"], ["q4"]),
            make("Transpose", ["q4"], ["q5"], perm=[0, 2, 1, 3]),
            make("Attention", ["q5", "k", "v", "bias"], ["a"]),
            make("Transpose", ["a"], ["a3"], perm=[0, 2, 1, 3]),
            make("Reshape", ["a3", "join"], [OUTPUT]),
        ],
    }
    constants = {
        "two": np.array([2]),
        "wide": np.array([batch, KEYS, GROUP, total, WIDTH]),
        "all": np.array([batch, HEADS, total, WIDTH]),
        "split": np.array([0, -1, GROUP, WIDTH]),
        "rows": np.array([0, -1, SIDE]),
        "times": np.array([1, 1, GROUP, 1]),
        "unsplit": np.array([0, GROUP, -1, WIDTH]),
        "heads": np.array([0, 0, HEADS, WIDTH]),
        "join": np.array([0, -1, HIDDEN]),
    }
    return {name: _model(nodes, inputs, kind, constants) for name, nodes in forms.items()}


def group_operator(size: tuple[int, int, int]) -> onnx.ModelProto:
    """GroupQueryAttention in half, over the keys before those of the call, without a mask."""
    batch, length, total = size
    inputs = {
        "q": [batch, length, HIDDEN],
        "new k": [batch, length, SIDE],
        "new v": [batch, length, SIDE],
        "past k": [batch, KEYS, total - length, WIDTH],
        "past v": [batch, KEYS, total - length, WIDTH],
    }
    node = make(
        "GroupQueryAttention",
        [*inputs, "lengths", "total"],
        [OUTPUT, "present k", "present v"],
        num_heads=HEADS,
        kv_num_heads=KEYS,
        domain="com.microsoft",
    )
    constants = {
        "lengths": np.full(batch, total - 1, np.int32),
        "total": np.array(total, np.int32),
    }
    return _model([node], inputs, TensorProto.FLOAT16, constants)


def rotary_forms(size: tuple[int, int, int], kind: int) -> dict[str, onnx.ModelProto]:
    """`x` turned by rows of `c` and `s`, by single operators and by the fused one."""
    batch, length, _ = size
    half = WIDTH // 2
    inputs = {
        "x": [batch, length, HIDDEN],
        "c": [1, 1, length, half],
        "s": [1, 1, length, half],
    }
    first = [
        make("Reshape", ["x", "heads"], ["x4"]),
        make("Transpose", ["x4"], ["q"], perm=[0, 2, 1, 3]),
        make("Concat", ["c", "c"], ["cc"], axis=-1),
        make("Concat", ["s", "s"], ["ss"], axis=-1),
        make("Slice", ["q", "zero", "half", "three"], ["q1"]),
        make("Slice", ["q", "half", "width", "three"], ["q2"]),
        make("Neg", ["q2"], ["n"]),
        make("Concat", ["n", "q1"], ["t"], axis=-1),
        make("Mul", ["q", "cc"], ["a"]),
        make("Mul", ["t", "ss"], ["b"]),
        make("Add", ["a", "b"], ["r"]),
        make("Transpose", ["r"], ["r3"], perm=[0, 2, 1, 3]),
        make("Reshape", ["r3", "join"], [OUTPUT]),
    ]
    fused = [
        make("Reshape", ["c", "table"], ["c2"]),
        make("Reshape", ["s", "table"], ["s2"]),
        make("RotaryEmbedding", ["x", "zero", "c2", "s2"], [OUTPUT], domain="com.microsoft"),
    ]
    constants = {
        "heads": np.array([0, 0, HEADS, WIDTH]),
        "join": np.array([0, 0, HIDDEN]),
        "table": np.array([-1, half]),
        "zero": np.array([0]),
        "half": np.array([half]),
        "width": np.array([WIDTH]),
        "three": np.array([3]),
    }
    return {
        name: _model(nodes, inputs, kind, constants)
        for name, nodes in {"single operators": first, "fused": fused}.items()
    }


def _model(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, list[int]],
    kind: int,
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "form",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(OUTPUT, kind, None)],
        [numpy_helper.from_array(item, name) for name, item in constants.items() if name in read],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds(model: onnx.ModelProto) -> dict[str, Any]:
    """The same numbers for inputs of the same name; half of a first item's keys are masked."""
    found: dict[str, Any] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        rng = np.random.default_rng([*value.name.encode(), *shape])
        numbers = rng.standard_normal(shape)
        if value.name == "bias":
            numbers = np.zeros(shape)
            numbers[0, ..., : shape[-1] // 2] = -6e4
        found[value.name] = numbers.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found


def call_of(model: onnx.ModelProto) -> Any:
    """A call that replays a CUDA graph of the model, its tensors on the device, and waits."""
    options = {**CudaBackend().session("all", "float16").provider_options[CudaBackend.ort_name]}
    options["enable_cuda_graph"] = "1"
    session = ort.InferenceSession(
        model.SerializeToString(), providers=[(CudaBackend.ort_name, options)]
    )
    assert session.get_providers()[0] == CudaBackend.ort_name
    given = feeds(model)
    binding = session.io_binding()
    for name, numbers in given.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(numbers, "cuda", 0))
    # A graph needs outputs of fixed addresses.
    first = next(iter(given.values()))
    answer = ort.OrtValue.ortvalue_from_shape_and_type(list(first.shape), first.dtype, "cuda", 0)
    binding.bind_ortvalue_output(OUTPUT, answer)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return answer

    for _ in range(3):
        call()
    return call


def compared() -> int:
    """0 if all forms answer alike on the CPU."""
    worst = 0.0
    for size in SMALL:
        for forms in (
            attention_forms(size, TensorProto.FLOAT),
            rotary_forms(size, TensorProto.FLOAT),
        ):
            answers = [
                ort.InferenceSession(
                    model.SerializeToString(), providers=["CPUExecutionProvider"]
                ).run([OUTPUT], feeds(model))[0]
                for model in forms.values()
            ]
            worst = max(worst, *(float(np.abs(one - answers[0]).max()) for one in answers))
    print(f"largest difference {worst:.1e}")
    return int(worst > 1e-4)


def timed(size: tuple[int, int, int], models: Mapping[str, onnx.ModelProto]) -> dict[str, float]:
    """Microseconds of each form that runs; medians of blocks by turns."""
    calls = {}
    for name, model in models.items():
        try:
            calls[name] = call_of(model)
        except Exception as error:
            print(f"{size} {name}: {error}", file=sys.stderr)
    samples = blocks_by_turns(calls, blocks=20, size=50)
    return {name: statistics.median(found) * 1e6 for name, found in samples.items()}


def main() -> int:
    """0 if all was measured or compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.cpu:
        return compared()
    CudaBackend().prepare()
    half, lines = TensorProto.FLOAT16, []
    for size in SIZES:
        attention = {**attention_forms(size, half), "group operator": group_operator(size)}
        for what, models in (("attention", attention), ("rotary", rotary_forms(size, half))):
            found = timed(size, models)
            lines.append(json.dumps({"what": what, "size": size, "us": found}))
            print(lines[-1], flush=True)
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
