"""The measured models, generated from a seed: nothing is downloaded.

ResNet-50 is the architecture that the onnx package ships without weights; BERT-base is written
node by node as exporters write it; the large model is a stack of dense layers with external data.
Weights are generated so that values stay finite and of normal size through all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

from benchmarks.networks.bert import write_bert
from benchmarks.networks.encoder import Plant
from benchmarks.networks.llama import write_llama
from benchmarks.networks.vit import write_vit

SEED = 20261121


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model: how it is written, the bounds of its dims, and the sizes at which it is timed."""

    title: str
    folder: str
    write: Callable[[Path], None]
    dims: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    path: Path = Path()

    def at(self, path: Path) -> Model:
        """This model, written at `path`."""
        return replace(self, path=path)

    def inputs(self) -> dict[str, npt.NDArray[Any]]:
        """Inputs at `sizes`: images, or token ids with a full mask."""
        described = input_shapes(self.path)
        shapes = {
            name: [size if isinstance(size, int) else self.sizes[size] for size in shape]
            for name, (shape, _) in described.items()
        }
        return inputs_of(shapes, {name: dtype for name, (_, dtype) in described.items()})


def input_shapes(path: Path) -> dict[str, tuple[list[int | str], str]]:
    """By input: sizes or names of dims, and numpy's name of the element type."""
    graph = onnx.load(path, load_external_data=False).graph
    return {
        value.name: (
            [dim.dim_param or dim.dim_value for dim in _dims(value)],
            _numpy_name(value.type.tensor_type.elem_type),
        )
        for value in graph.input
    }


def inputs_of(
    shapes: Mapping[str, list[int]], dtypes: Mapping[str, str]
) -> dict[str, npt.NDArray[Any]]:
    """Arrays by input name: floats are normal; integers are small ids, masks ones, types zeros."""
    rng = np.random.default_rng(SEED)
    result: dict[str, npt.NDArray[Any]] = {}
    for name, shape in shapes.items():
        if dtypes[name].startswith("float"):
            result[name] = rng.standard_normal(shape).astype(dtypes[name])
        elif "mask" in name:
            result[name] = np.ones(shape, dtypes[name])
        elif "type" in name:
            result[name] = np.zeros(shape, dtypes[name])
        else:
            result[name] = rng.integers(0, 100, shape).astype(dtypes[name])
    return result


def _dims(value: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    return list(value.type.tensor_type.shape.dim)


def _numpy_name(kind: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(kind).name)


def write_light(name: str, path: Path, opset: int | None = None) -> None:
    """Write a network of the onnx package, with random weights instead of constant ones.

    It is converted to `opset`, if one is given.
    """
    import onnx.backend.test

    data = Path(onnx.backend.test.__file__).parent / "data" / "light"
    model = onnx.load(data / f"{name}.onnx")
    rng = np.random.default_rng(SEED)
    initial = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    roles = {
        tensor: role
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for role, tensor in zip(("scale", "bias", "mean", "variance"), node.input[1:], strict=True)
    }
    nodes, random_weights = [], []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(size) for size in initial[node.input[0]])
            weights = _draw(roles.get(node.output[0], ""), shape, rng)
            random_weights.append(
                numpy_helper.from_array(weights.astype(np.float32), node.output[0])
            )
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        name,
        [value for value in model.graph.input if value.name not in initial],
        list(model.graph.output),
        [*(tensor for tensor in model.graph.initializer if tensor.name in read), *random_weights],
    )
    opsets = [helper.make_opsetid("", model.opset_import[0].version)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=4)
    if opset is not None:
        made = onnx.version_converter.convert_version(made, opset)
        made.ir_version = 8
    onnx.save(made, path)


def _draw(role: str, shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[Any]:
    """Statistics of a batch normalization, or weights of variance 1 / fan-in."""
    match role:
        case "scale":
            return rng.uniform(0.5, 1.0, shape)
        case "variance":
            return rng.uniform(0.5, 1.5, shape)
        case "bias" | "mean":
            return rng.normal(0.0, 0.1, shape)
    return rng.normal(0.0, max(1, int(np.prod(shape[1:]))) ** -0.5, shape)


def write_dense(width: int, layers: int, path: Path) -> None:
    """Write `layers` of MatMul, Add and Relu on float32 [batch, width]; weights in weights.bin."""
    rng = np.random.default_rng(SEED)
    nodes, weights = [], []
    value = "input"
    with path.with_name("weights.bin").open("wb") as data:
        for layer in range(layers):
            weight = TensorProto(
                name=f"weight.{layer}", data_type=TensorProto.FLOAT, dims=[width, width]
            )
            # He's initialization keeps the magnitude of values through Relu.
            matrix = rng.standard_normal((width, width), np.float32)
            matrix *= np.float32((2.0 / width) ** 0.5)
            weight.data_location = TensorProto.EXTERNAL
            for key, entry in (
                ("location", "weights.bin"),
                ("offset", str(data.tell())),
                ("length", str(matrix.nbytes)),
            ):
                weight.external_data.add(key=key, value=entry)
            matrix.tofile(data)
            data.seek(0, 2)
            bias = numpy_helper.from_array(np.zeros(width, np.float32), f"bias.{layer}")
            weights += [weight, bias]
            product, total, result = f"product.{layer}", f"sum.{layer}", f"layer.{layer}"
            nodes += [
                helper.make_node("MatMul", [value, weight.name], [product], f"matmul.{layer}"),
                helper.make_node("Add", [product, bias.name], [total], f"add.{layer}"),
                helper.make_node("Relu", [total], [result], f"relu.{layer}"),
            ]
            value = result
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", width])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


BERT_LAYERS, SMOKE_LAYERS = 12, 2
# Numbers beyond 65504, the largest of float16.
OVERFLOWS = tuple(Plant(product=f"layer.{at}.up", factor=2.0**20) for at in (0, 1))


def outlier(layers: int) -> Plant:
    """One channel of a thousand times the others': 8 bits with one scale for all hold it alone."""
    return Plant(product=f"layer.{layers - 1}.up", factor=2.0**10, channels=1)


FULL: Mapping[str, Model] = {
    "resnet50": Model(
        title="ResNet-50", folder="resnet50", write=partial(write_light, "light_resnet50")
    ),
    # The operator set above has no integers.
    "resnet50_17": Model(
        title="ResNet-50, opset 17",
        folder="resnet50-17",
        write=partial(write_light, "light_resnet50", opset=17),
    ),
    "bert": Model(
        title="BERT-base",
        folder="bert-base",
        write=partial(write_bert, layers=12, hidden=768, heads=12, vocabulary=30522, seed=SEED),
        dims={"batch": "1..4", "sequence": "1..256"},
        sizes={"batch": 1, "sequence": 128},
    ),
    "bert_planted": Model(
        title="BERT-base with a planted outlier",
        folder="bert-base-planted",
        write=partial(
            write_bert,
            layers=BERT_LAYERS,
            hidden=768,
            heads=12,
            vocabulary=30522,
            seed=SEED,
            plants=(outlier(BERT_LAYERS),),
        ),
        dims={"batch": "1..4", "sequence": "1..256"},
        sizes={"batch": 1, "sequence": 128},
    ),
    "vit_planted": Model(
        title="ViT-B/16 with two planted overflows",
        folder="vit-b-planted",
        write=partial(
            write_vit,
            layers=12,
            hidden=768,
            heads=12,
            size=224,
            classes=1000,
            seed=SEED,
            plants=OVERFLOWS,
        ),
        dims={"batch": "1..4"},
        sizes={"batch": 1},
    ),
    **{
        name: Model(
            title=f"Llama of 4 layers of 512, vocabulary {vocabulary}{', tied' * tied}",
            folder=name.replace("_", "-"),
            write=partial(
                write_llama,
                layers=4,
                hidden=512,
                inner=1376,
                heads=8,
                vocabulary=vocabulary,
                tied=tied,
                seed=SEED,
            ),
            dims={"batch": "1", "past": "1..128"},
            sizes={"batch": 1, "past": 32},
        )
        for name, vocabulary, tied in (
            ("llama", 8000, False),
            ("llama_32000", 32000, False),
            ("llama_tied", 32000, True),
        )
    },
    "dense": Model(
        title="Dense, 2.2 GB",
        folder="dense",
        # 33 matrices of 64 MiB.
        write=partial(write_dense, 4096, 33),
        dims={"batch": "1..8"},
        sizes={"batch": 1},
    ),
    "dense4": Model(
        title="Dense, 4.3 GB",
        folder="dense4",
        # 64 matrices of 64 MiB.
        write=partial(write_dense, 4096, 64),
        dims={"batch": "1..8"},
        sizes={"batch": 1},
    ),
    "squeezenet": Model(
        title="SqueezeNet", folder="squeezenet", write=partial(write_light, "light_squeezenet")
    ),
    "densenet": Model(
        title="DenseNet-121", folder="densenet121", write=partial(write_light, "light_densenet121")
    ),
}

SMOKE: Mapping[str, Model] = {
    "resnet50": replace(
        FULL["squeezenet"], title="SqueezeNet for ResNet-50", folder="smoke-squeezenet"
    ),
    "resnet50_17": replace(
        FULL["squeezenet"],
        title="SqueezeNet for ResNet-50, opset 17",
        folder="smoke-squeezenet-17",
        write=partial(write_light, "light_squeezenet", opset=17),
    ),
    "bert": replace(
        FULL["bert"],
        title="small BERT",
        folder="smoke-bert",
        write=partial(write_bert, layers=2, hidden=64, heads=4, vocabulary=500, seed=SEED),
    ),
    "bert_planted": replace(
        FULL["bert_planted"],
        title="small BERT with a planted outlier",
        folder="smoke-bert-planted",
        write=partial(
            write_bert,
            layers=SMOKE_LAYERS,
            hidden=64,
            heads=4,
            vocabulary=500,
            seed=SEED,
            plants=(outlier(SMOKE_LAYERS),),
        ),
    ),
    "vit_planted": replace(
        FULL["vit_planted"],
        title="small ViT with two planted overflows",
        folder="smoke-vit-planted",
        write=partial(
            write_vit,
            layers=2,
            hidden=64,
            heads=4,
            size=64,
            classes=10,
            seed=SEED,
            plants=OVERFLOWS,
        ),
    ),
    **{
        name: replace(
            FULL[name],
            title="small Llama",
            folder=f"smoke-{FULL[name].folder}",
            write=partial(
                write_llama,
                layers=1,
                hidden=64,
                inner=96,
                heads=2,
                vocabulary=500,
                tied=name == "llama_tied",
                seed=SEED,
            ),
        )
        for name in ("llama", "llama_32000", "llama_tied")
    },
    "dense": replace(
        FULL["dense"],
        title="Dense, 40 MB",
        folder="smoke-dense",
        write=partial(write_dense, 1024, 10),
    ),
    "dense4": replace(
        FULL["dense4"],
        title="Dense, 80 MB",
        folder="smoke-dense4",
        write=partial(write_dense, 1024, 20),
    ),
    "squeezenet": FULL["squeezenet"],
    "densenet": replace(
        FULL["squeezenet"], title="SqueezeNet for DenseNet-121", folder="smoke-squeezenet"
    ),
}
