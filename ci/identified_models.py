"""The models whose artifact ids are stored, and how each is built.

They are files of the repository, or generated here from fixed seeds: small, and different in what a
build does with them.  Ten are built on any CPU; the others need a provider that compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

ROOT: Final = Path(__file__).resolve().parents[1]
EXPORTS: Final = ROOT / "tests" / "data" / "exports"
DIGITS: Final = ROOT / "examples" / "digits" / "digits.onnx"
OPENVINO: Final = "OpenVINOExecutionProvider"
RTX: Final = "NvTensorRTRTXExecutionProvider"

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WIDTH, WORDS = 32, 64
Shape = Sequence[int | str]

_PORTABLE: Final = {"name": "portable", "isa": "baseline"}
_PACKED: Final = {"name": "packed", "isa": "host", "prepack": "saved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """One build: a model, the profile (a name, or the fields of a file), and further options."""

    name: str
    model: Path | Callable[[Path], onnx.ModelProto]
    profile: str | Mapping[str, Any]
    target: str = ""
    dims: Mapping[str, str] = field(default_factory=dict)
    # The provider that must be able to build here; empty if any host can build it.
    needs: str = ""

    def written(self, folder: Path) -> Path:
        """The model's file, written into `folder` if the repository does not contain it."""
        if isinstance(self.model, Path):
            return self.model
        path = folder / f"{self.name}.onnx"
        if not path.exists():
            model = self.model(path)
            # A function that writes external weights also writes the model.
            if not path.exists():
                path.write_bytes(model.SerializeToString())
        return path


def random_weight(name: str, *shape: int) -> TensorProto:
    """Weights that depend only on the name and the shape."""
    rng = np.random.default_rng([*name.encode(), *shape])
    return numpy_helper.from_array(
        (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name
    )


def constant(name: str, value: Any) -> TensorProto:
    """A small constant."""
    return numpy_helper.from_array(np.asarray(value), name)


def node(op: str, read: str, written: str, domain: str = "", **attributes: Any) -> NodeProto:
    """A node; names of values are separated by spaces."""
    return helper.make_node(op, read.split(), written.split(), domain=domain, **attributes)


def values(of: Mapping[str, tuple[int, Shape | None]]) -> list[onnx.ValueInfoProto]:
    """Inputs or outputs by name: element type and shape."""
    return [helper.make_tensor_value_info(name, *described) for name, described in of.items()]


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Shape | None]],
    outputs: Mapping[str, tuple[int, Shape | None]],
    constants: Sequence[TensorProto],
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of one graph."""
    graph = helper.make_graph(nodes, "graph", values(inputs), values(outputs), constants)
    imports = [helper.make_opsetid(*entry) for entry in (opsets or {"": 18}).items()]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def branches(path: Path) -> onnx.ModelProto:
    """Weights in a separate file, a loop, and an If whose subgraphs read weights of their own."""
    body = helper.make_graph(
        [
            node("MatMul", "state turn", "turned"),
            node("Tanh", "turned", "next"),
            node("Identity", "going", "goes_on"),
        ],
        "body",
        values({"round": (INT64, []), "going": (BOOL, []), "state": (FLOAT, None)}),
        values({"goes_on": (BOOL, []), "next": (FLOAT, None)}),
    )
    then, otherwise = (
        helper.make_graph(nodes, name, [], values({name: (FLOAT, None)}))
        for name, nodes in {
            "large": [node("MatMul", "looped only_large", "large")],
            "small": [node("Mul", "looped only_small", "scaled"), node("Relu", "scaled", "small")],
        }.items()
    )
    model = model_of(
        [
            node("MatMul", "x first", "product", doc_string="exporter.py:7"),
            node("Relu", "product", "hidden"),
            node("Loop", "rounds yes hidden", "looped", body=body),
            node("ReduceSum", "looped", "sum", keepdims=0),
            node("Greater", "sum zero", "is_large"),
            node("If", "is_large", "y", then_branch=then, else_branch=otherwise),
        ],
        {"x": (FLOAT, ["batch", WIDTH])},
        {"y": (FLOAT, ["batch", WIDTH])},
        [
            *(random_weight(name, WIDTH, WIDTH) for name in ("first", "turn", "only_large")),
            random_weight("only_small", WIDTH),
            constant("rounds", np.int64(3)),
            constant("yes", np.True_),
            constant("zero", np.float32(0)),
        ],
    )
    helper.set_model_props(model, {"source": "exporter"})
    location = f"{path.stem}.data"
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=64)
    return model


def integers(path: Path) -> onnx.ModelProto:
    """An 8-bit integer product as written by dynamic quantization, and one between Q and DQ."""
    rng = np.random.default_rng(0)
    weights = [rng.integers(-128, 128, (256, columns)).astype(np.int8) for columns in (256, 16)]
    for matrix in weights:
        matrix[:, 0] = 127
    return model_of(
        [
            node("DynamicQuantizeLinear", "x", "q s z"),
            node("MatMulInteger", "q w z", "whole"),
            node("Cast", "whole", "float", to=FLOAT),
            node("Mul", "s ws", "both"),
            node("Mul", "float both", "hidden"),
            node("QuantizeLinear", "hidden hs hz", "hq"),
            node("DequantizeLinear", "hq hs hz", "hd"),
            node("DequantizeLinear", "v vs", "vd"),
            node("MatMul", "hd vd", "y"),
        ],
        {"x": (FLOAT, ["n", 256])},
        {"y": (FLOAT, ["n", 16])},
        [
            constant("w", weights[0]),
            constant("v", weights[1]),
            constant("ws", np.float32(0.01)),
            constant("vs", np.float32(0.01)),
            constant("hs", np.float32(0.5)),
            constant("hz", np.uint8(128)),
        ],
    )


def words(path: Path) -> onnx.ModelProto:
    """Token embeddings, and their mean over the tokens that the mask selects."""
    return model_of(
        [
            node("Gather", "table ids", "hidden"),
            node("Shape", "hidden", "shape"),
            node("Reshape", "hidden flat", "rows"),
            node("MatMul", "rows w", "product"),
            node("Tanh", "product", "activated"),
            node("Reshape", "activated shape", "back"),
            node("Unsqueeze", "mask last", "column"),
            node("Mul", "back column", "vectors"),
            node("ReduceSum", "vectors middle", "sum", keepdims=0),
            node("ReduceSum", "column middle", "count", keepdims=0),
            node("Div", "sum count", "mean"),
        ],
        {"ids": (INT64, ["batch", "seq"]), "mask": (FLOAT, ["batch", "seq"])},
        {"vectors": (FLOAT, ["batch", "seq", WIDTH]), "mean": (FLOAT, ["batch", WIDTH])},
        [
            random_weight("table", WORDS, WIDTH),
            random_weight("w", WIDTH, WIDTH),
            constant("flat", np.array([-1, WIDTH])),
            constant("last", np.array([-1])),
            constant("middle", np.array([1])),
        ],
    )


def functions(path: Path) -> onnx.ModelProto:
    """A function that calls a function, between two products."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    bend = helper.make_function(
        "own",
        "Bend",
        ["a"],
        ["b"],
        [node("Sigmoid", "a", "open"), node("Mul", "a open", "b")],
        imports,
    )
    twice = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["c"],
        [node("Bend", "a", "b", "own"), node("Bend", "b", "c", "own")],
        imports,
    )
    return model_of(
        [
            node("MatMul", "x first", "h"),
            node("Twice", "h", "bent", "own"),
            node("Gemm", "bent last", "y", transB=1),
        ],
        {"x": (FLOAT, ["rows", WIDTH])},
        {"y": (FLOAT, ["rows", 4])},
        [random_weight("first", WIDTH, WIDTH), random_weight("last", 4, WIDTH)],
        {"": 18, "own": 1},
        [bend, twice],
    )


def residual(path: Path) -> onnx.ModelProto:
    """A residual CNN of opset 23 behind a MaxPool, which CUDA lacks at that opset."""
    width, around = 8, [1, 1, 1, 1]
    nodes = [
        node("Conv", "image stem", "wide", pads=around),
        node("MaxPool", "wide", "pooled", kernel_shape=[3, 3], strides=[2, 2], pads=around),
        node("Conv", "pooled inner", "a", pads=around),
        node("Relu", "a", "b"),
        node("Conv", "b outer", "c", pads=around),
        node("Add", "c pooled", "d"),
        node("Relu", "d", "e"),
        node("GlobalAveragePool", "e", "mean"),
        node("Flatten", "mean", "flat"),
        node("Gemm", "flat head", "logits", transB=1),
    ]
    return model_of(
        nodes,
        {"image": (FLOAT, ["batch", 3, 32, 32])},
        {"logits": (FLOAT, ["batch", 10])},
        [
            random_weight("stem", width, 3, 3, 3),
            random_weight("inner", width, width, 3, 3),
            random_weight("outer", width, width, 3, 3),
            random_weight("head", 10, width),
        ],
        {"": 23},
    )


def divided(path: Path) -> onnx.ModelProto:
    """Dense layers around an operator of ONNX Runtime's own, which compilers leave to the CPU."""
    return model_of(
        [
            node("MatMul", "x first", "a"),
            node("Tanh", "a", "b"),
            node("Trilu", "b", "c", "com.microsoft"),
            node("MatMul", "c last", "d"),
            node("Tanh", "d", "y"),
        ],
        {"x": (FLOAT, ["batch", 4, WIDTH])},
        {"y": (FLOAT, ["batch", 4, WIDTH])},
        [random_weight("first", WIDTH, WIDTH), random_weight("last", WIDTH, WIDTH)],
        {"": 18, "com.microsoft": 1},
    )


def profile_of(name: str, **fields: Any) -> dict[str, Any]:
    """The fields of a profile file."""
    return {"schema": "aotc.profile/1", "name": name, **fields}


_BUCKETS: Final = profile_of(
    "buckets",
    dims={
        "batch": {"min": 1, "max": 4},
        "seq": {"buckets": [4, 16], "max": 40, "outside": ["pad", "route"]},
    },
    inputs={"mask": {"pad": {"value": 0}}},
)
_STRICT: Final = profile_of(
    "strict",
    strict=True,
    dims={"rows": {"multiple_of": 2}},
    variants=[_PORTABLE, {"name": "basic", "isa": "baseline", "optimization": "basic"}, _PACKED],
    budgets={"artifact_bytes": 1 << 22},
)

IDENTIFIED: Final = (
    Identified(name="digits", model=DIGITS, profile="edge"),
    Identified(
        name="bert", model=EXPORTS / "bert.onnx", profile="server-cpu", dims={"batch": "1..4"}
    ),
    # Not for the host's ISA: there ORT chooses random names for what it inserts at convolutions.
    Identified(name="resnet50", model=EXPORTS / "resnet50.onnx", profile="edge"),
    # Nothing is stated for these: ranges and relations are found, unnamed dims get names.
    Identified(name="gpt2", model=EXPORTS / "gpt2.onnx", profile="edge"),
    Identified(name="style", model=EXPORTS / "style.onnx", profile="edge"),
    Identified(name="branches", model=branches, profile="server-cpu", target="linux-x86-64"),
    Identified(name="integers", model=integers, profile="edge"),
    Identified(name="buckets", model=words, profile=_BUCKETS),
    Identified(name="functions", model=functions, profile=_STRICT),
    # Converted to an older opset, and placed by prediction if no GPU runs it.
    Identified(name="cuda", model=residual, profile="server-cuda", dims={"batch": "1..4"}),
    Identified(name="openvino", model=divided, profile="edge-openvino", needs=OPENVINO),
    Identified(name="rtx", model=divided, profile="edge-rtx", dims={"batch": "1..512"}, needs=RTX),
)
