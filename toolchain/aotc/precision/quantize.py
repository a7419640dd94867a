"""Compute with integers of 8 bits, or store weights in 8 or 4, where a float32 model gains by it.

Forms: `static` writes QuantizeLinear and DequantizeLinear with ranges that were observed,
`dynamic` has ONNX Runtime find the ranges of activations in each call, `weights` quantizes
weights alone, in blocks.  Tables of embeddings have 8 bits by row, or blocks as products have.
Inputs and outputs keep their types.  Which nodes are quantized is decided before, in
`quantized_nodes`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from aotc.base.records import field, record, replace
from aotc.graph.passes.base import Pass, all_names, drop_unread, set_nodes
from aotc.graph.view import (
    NodeLinks,
    attribute_of,
    declared_values,
    every_graph,
    every_node,
    made_values,
    subgraphs,
)
from aotc.spec.precision import AccuracyLevel, QuantizedForm, TableBits
from aotc.spec.providers import MICROSOFT, STANDARD

if TYPE_CHECKING:
    import onnx


Integers = Literal["int8", "uint8"]
Array = np.ndarray[Any, Any]

# Numbers of onnx.TensorProto.
TENSOR_TYPES: Final = {"int8": 3, "uint8": 2}
TENSOR_FLOAT: Final = 1
# Their kernels write float32 as quickly as integers, and it is more exact.
FLOAT_OUTPUTS: Final = ("MatMul", "Gemm")
# The first operator set in which scales may have an axis.
_AXIS_OPSET: Final = 13
_QUANTIZE: Final = "QuantizeLinear"
_DEQUANTIZE: Final = "DequantizeLinear"
# What the tool asks for, so that it does not infer the types of the graph again by way of a file.
_INFERRED: Final = ("onnx.infer", "onnxruntime.quant")
# What products of the dynamic form have become.
_DYNAMIC: Final = frozenset({"MatMulInteger", "DynamicQuantizeLSTM"})


@record(kw_only=False)
class Scheme:
    """How a model is quantized: types, a scale for each channel or one, weights in 7 bits or 8."""

    activations: Integers
    weights: Integers
    per_channel: bool
    reduce_range: bool


# Of tables.
_ROWS: Final = Scheme("uint8", "int8", True, False)


@record(kw_only=False)
class Quantized:
    """`values` have the shape of the constant; real value = (values - zero) * scale.

    `scale` (float32) and `zero` are scalars, or have one element for each channel.
    """

    values: Array
    scale: Array
    zero: Array


def quantized(values: Array, scheme: Scheme, axis: int | None) -> Quantized:
    """The float32 `values` with a scale for each index along `axis` (None: one for all).

    int8 is symmetric with zero point 0; uint8 spans the smallest to the largest value.
    """
    from onnxruntime.quantization.quant_utils import compute_data_quant_params, quantize_nparray

    kind = TENSOR_TYPES[scheme.weights]
    symmetric = scheme.weights == "int8"

    def of_slice(part: Array) -> tuple[Array, Array, Array]:
        zero, scale = compute_data_quant_params(part, kind, symmetric, scheme.reduce_range)
        return quantize_nparray(kind, part, scale, zero), scale, zero

    if axis is None:
        made, scale, zero = of_slice(values.ravel())
        return Quantized(made.reshape(values.shape), _scalar(scale), _scalar(zero))
    moved = np.moveaxis(values, axis, 0)
    parts = [of_slice(part.ravel()) for part in moved]
    made = np.stack([part[0] for part in parts]).reshape(moved.shape)
    return Quantized(
        np.ascontiguousarray(np.moveaxis(made, 0, axis)),
        np.array([_scalar(part[1]) for part in parts], np.float32),
        np.array([_scalar(part[2]) for part in parts], parts[0][0].dtype),
    )


def _scalar(value: Array) -> Array:
    return np.asarray(value).reshape(())


def add_constant(graph: onnx.GraphProto, name: str, values: Array) -> str:
    """Add an initializer to `graph`, unless it has one of that name; the name."""
    import onnx

    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return name


@record(kw_only=False)
class Scope:
    """A graph, and those around it, innermost first; `inner` is false for the main graph."""

    graph: onnx.GraphProto
    around: tuple[onnx.GraphProto, ...] = ()

    @property
    def inner(self) -> bool:
        """Whether it is the body of a control-flow node."""
        return bool(self.around)

    def constant(self, name: str) -> tuple[onnx.TensorProto, onnx.GraphProto] | None:
        """The initializer `name` that a node sees, and the graph that holds it; None if it is none.

        An initializer that is a graph input too has another value if a caller gives one.
        """
        for graph in (self.graph, *self.around):
            if any(value.name == name for value in graph.input):
                return None
            for tensor in graph.initializer:
                if tensor.name == name:
                    return tensor, graph
            sparse = (tensor.values.name for tensor in graph.sparse_initializer)
            if name in sparse or any(name in node.output for node in graph.node):
                return None
        return None


def scopes_of(graph: onnx.GraphProto, around: tuple[onnx.GraphProto, ...] = ()) -> Iterator[Scope]:
    """`graph`, then all bodies in it, outer ones before inner ones."""
    yield Scope(graph, around)
    for node in graph.node:
        for body in subgraphs(node):
            yield from scopes_of(body, (graph, *around))


def replace_nodes(graph: onnx.GraphProto, made: dict[str, list[onnx.NodeProto]]) -> None:
    """Put other nodes in the place of those named in `made`."""
    if not made:
        return
    set_nodes(graph, [new for node in graph.node for new in made.get(node.name, [node])])


def require_domain(model: onnx.ModelProto, domain: str) -> None:
    """Import `domain` at version 1, unless the model does."""
    import onnx

    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Sort the nodes of a main graph; those that are in order stay in the order they have."""
    nodes = list(graph.node)
    before = NodeLinks(nodes).before
    order: list[int] = []
    placed: set[int] = set()
    for first in range(len(nodes)):
        pending = [first]
        while pending:
            at = pending[-1]
            missing = [] if at in placed else [n for n in before[at][::-1] if n not in placed]
            if missing:
                pending += missing
                continue
            pending.pop()
            if at not in placed:
                placed.add(at)
                order.append(at)
    set_nodes(graph, [nodes[at] for at in order])


class Placeholders:
    """Names that stand for a model's own while nodes are made: no made name is one of the model's.

    They are `<3>` for each name of a graph, and differ between graphs.  The quantizers of ONNX
    Runtime name what they make after what it is made for (`w` gives `w_scale`), and take what has
    such a name for their own.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._taken = all_names(model)
        mark = "<"
        while any(mark in name for name in self._taken):
            mark += "<"
        self._mark = mark
        self._pattern = re.compile(re.escape(mark) + r"(\d+)>")
        self._originals: list[str] = []
        self._nodes: dict[str, str] = {}
        self._final: dict[str, str] = {}
        self._values = self._replace_names(model.graph, {})
        self._left = all_names(model)

    def nodes(self, names: Collection[str]) -> frozenset[str]:
        """What stands for nodes of these names."""
        return frozenset(self._nodes[name] for name in names if name in self._nodes)

    def value(self, name: str) -> str:
        """What stands for a value of the main graph."""
        return self._values.get(name, name)

    def restore(self, model: onnx.ModelProto) -> None:
        """Give `model` its names again, and made names a number where they are in use."""
        for graph in every_graph(model):
            _rename(graph, self._restored, self._restored)

    def _fresh(self, name: str) -> str:
        self._originals.append(name)
        return f"{self._mark}{len(self._originals) - 1}>"

    def _replace_names(
        self, graph: onnx.GraphProto, around: Mapping[str, str]
    ) -> Mapping[str, str]:
        own: dict[str, str] = {}
        defined = [value.name for value in graph.input]
        defined += [tensor.name for tensor in graph.initializer]
        defined += made_values(graph)
        for name in defined:
            if name and name not in own:
                own[name] = self._fresh(name)
        seen = {**around, **own}
        for node in graph.node:
            if node.name and node.name not in self._nodes:
                self._nodes[node.name] = self._fresh(node.name)
            for body in subgraphs(node):
                self._replace_names(body, seen)
        _rename(graph, lambda name: seen.get(name, name), lambda name: self._nodes.get(name, name))
        return own

    def _restored(self, name: str) -> str:
        if exact := self._pattern.fullmatch(name):
            return self._originals[int(exact[1])]
        if not name or name in self._left:
            return name
        if name not in self._final:
            wanted = self._pattern.sub(lambda found: self._originals[int(found[1])], name)
            free, number = wanted, 0
            while free in self._taken:
                number += 1
                free = f"{wanted}_{number}"
            self._taken.add(free)
            self._final[name] = free
        return self._final[name]


@contextmanager
def placeholder_names(model: onnx.ModelProto) -> Iterator[Placeholders]:
    """Within, placeholders are the names of nodes and values of `model`, in its bodies too.

    Afterwards it has its names again, and what was made has names that nothing else has.
    """
    names = Placeholders(model)
    yield names
    names.restore(model)


def _rename(
    graph: onnx.GraphProto, value_name: Callable[[str], str], node_name: Callable[[str], str]
) -> None:
    """Rename in one graph, without its bodies."""
    for value in declared_values(graph):
        value.name = value_name(value.name)
    for tensor in graph.initializer:
        tensor.name = value_name(tensor.name)
    for node in graph.node:
        node.name = node_name(node.name)
        for names in (node.input, node.output):
            names[:] = [value_name(name) for name in names]


@record(kw_only=False)
class Chosen:
    """Names of the nodes that are quantized.

    `static` are those with observed ranges, `dynamic` those whose activations are quantized in
    each call, `weights` products whose weights alone are, and `tables` lookups of embeddings.
    `wide` are those of `weights` that have 8 bits though others have 4.
    """

    static: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """All of them."""
        return self.static | self.dynamic | self.weights | self.tables

    def __len__(self) -> int:
        return len(self.names())


@record
class Blocks:
    """How the form `weights` stores weights: `size` of them, along the summed axis, share a scale.

    Zero points are those of ONNX Runtime where they are `symmetric`, else each block has its own.
    `accuracy_level` is MatMulNBits'.  Tables have blocks of `table_bits` bits, None: rows of 8.
    """

    size: int = 32
    symmetric: bool = True
    accuracy_level: AccuracyLevel = 0
    table_bits: TableBits | None = None


@record
class Quantize(Pass):
    """Quantize the `chosen` nodes of a model whose weights are in memory.

    `ranges` are the smallest and the largest value of activations, by name; `method` is how they
    were found.  Weights of products have `bits` bits, in the form `weights` in `blocks`.
    """

    name = "quantize"

    form: QuantizedForm
    bits: Literal[4, 8]
    scheme: Scheme
    blocks: Blocks = Blocks()
    method: str = ""
    chosen: Chosen = field(default_factory=Chosen)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def options(self) -> dict[str, object]:
        """What decides the numbers, in this form."""
        found: dict[str, object] = {"form": self.form, "bits": self.bits}
        if self.form == "weights":
            blocks = self.blocks
            found |= {"block_size": blocks.size, "symmetric": blocks.symmetric}
            found |= {"accuracy_level": blocks.accuracy_level}
            found |= {"last_bits": 8} if self.chosen.wide else {}
            return {**found, "table_bits": blocks.table_bits or 8} if self.chosen.tables else found
        found |= {
            "activations": self.scheme.activations,
            "weights": self.scheme.weights,
            "per_channel": self.scheme.per_channel,
            "reduce_range": self.scheme.reduce_range,
        }
        return {**found, "method": self.method} if self.chosen.static else found

    def apply(self, model: onnx.ModelProto) -> None:
        chosen = self.chosen
        with placeholder_names(model) as names:
            ranges = {names.value(name): bounds for name, bounds in self.ranges.items()}
            quantize_static(model, names.nodes(chosen.static), ranges, self.scheme)
        # Constants of several forms differ, also where they are made of the same.
        with placeholder_names(model) as names:
            in_blocks = self.blocks if self.form == "weights" else Blocks()
            quantize_tables(model, names.nodes(chosen.tables), in_blocks)
            split_gemms(model, names.nodes(chosen.dynamic | chosen.weights - chosen.wide))
            quantize_dynamic(model, names.nodes(chosen.dynamic), self.scheme)
            narrow = names.nodes(chosen.weights - chosen.wide)
            quantize_blocks(model, narrow, self.bits, self.blocks)
        with placeholder_names(model) as names:
            split_gemms(model, names.nodes(chosen.wide))
            quantize_blocks(model, names.nodes(chosen.wide), 8, self.blocks)


def quantize_blocks(
    model: onnx.ModelProto, chosen: Collection[str], bits: Literal[4, 8], blocks: Blocks
) -> None:
    """Write the `chosen` MatMul nodes as MatMulNBits, also in bodies.

    Raises `ImportError` where a library of the quantizer is not installed.
    """
    import onnx

    for scope in scopes_of(model.graph):
        made = {}
        for node in scope.graph.node:
            if node.op_type != "MatMul" or node.name not in chosen:
                continue
            name = node.input[1]
            found = scope.constant(name)
            assert found is not None
            tensor, holder = found
            depth, columns = tensor.dims
            stored = [f"{name}_Q{bits}", f"{name}_scales"]
            stored += [] if blocks.symmetric else [f"{name}_zero_points"]
            # Products that share weights read the same blocks.
            if all(item.name != stored[0] for item in holder.initializer):
                parts = _blocks_of(onnx.numpy_helper.to_array(tensor), bits, blocks)
                for each, values in zip(stored, parts, strict=True):
                    add_constant(holder, each, values)
            product = onnx.helper.make_node(
                "MatMulNBits",
                [node.input[0], *stored],
                list(node.output),
                node.name,
                domain=MICROSOFT,
                K=depth,
                N=columns,
                bits=bits,
                block_size=blocks.size,
            )
            if blocks.accuracy_level:
                level = onnx.helper.make_attribute("accuracy_level", blocks.accuracy_level)
                product.attribute.append(level)
            made[node.name] = [product]
            require_domain(model, MICROSOFT)
        replace_nodes(scope.graph, made)
    drop_unread(model)


def _blocks_of(values: Array, bits: int, blocks: Blocks) -> list[Array]:
    """Blocks of `values` [depth, columns] as MatMulNBits reads them.

    Integers, uint8 [columns, blocks, bytes]; scales, float32 [columns, blocks]; and, unless they
    are symmetric, zero points, uint8 [columns, bytes].
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        DefaultWeightOnlyQuantConfig,
        DefaultWeightOnlyQuantizer,
    )

    quantizer = DefaultWeightOnlyQuantizer(
        DefaultWeightOnlyQuantConfig(blocks.size, blocks.symmetric, bits=bits)
    )
    packed, scales, zeros = quantizer.qbits_block_quant(np.ascontiguousarray(values))
    return [packed, scales] if blocks.symmetric else [packed, scales, zeros]


def quantize_dynamic(model: onnx.ModelProto, chosen: Collection[str], scheme: Scheme) -> None:
    """Quantize the `chosen` MatMul and LSTM nodes, whose weights are constants, also in bodies.

    Activations are quantized in each call, by nodes that ONNX Runtime fuses into
    `DynamicQuantizeMatMul` and `MatMulIntegerToFloat`.  Written here: the quantizer of ONNX Runtime
    rewrites every Gemm of a model, also those that are to stay, and takes weights that several of
    them share for one's own.
    """
    for scope in scopes_of(model.graph):
        made = {}
        ready: dict[str, tuple[str, str, str]] = {}
        for node in scope.graph.node:
            if node.name in chosen and node.op_type == "MatMul":
                made[node.name] = _product(node, scope, scheme, ready)
            elif node.name in chosen and node.op_type == "LSTM":
                made[node.name] = [_recurrence(node, scope, replace(scheme, weights="int8"))]
                require_domain(model, MICROSOFT)
        replace_nodes(scope.graph, made)
    drop_unread(model)


def _product(
    node: onnx.NodeProto, scope: Scope, scheme: Scheme, ready: dict[str, tuple[str, str, str]]
) -> list[onnx.NodeProto]:
    """The nodes that compute one product; `ready` is what earlier ones made of activations."""
    import onnx

    make = onnx.helper.make_node
    given, name, output = node.input[0], node.name, node.output[0]
    found = []
    if given not in ready:
        # A body may quantize what the graph around it quantizes too, under other names.
        ready[given] = (f"{output}_given", f"{output}_given_scale", f"{output}_given_zero")
        found.append(make("DynamicQuantizeLinear", [given], ready[given], f"{name}_quantize"))
    integers, scale, zero = ready[given]
    weights, weight_scale, weight_zero = _weights(node.input[1], scope, scheme)
    summed, cast, scales = (f"{output}_{what}" for what in ("integers", "float", "scales"))
    product = [integers, weights, zero, weight_zero]
    found += [
        make("MatMulInteger", product, [summed], name),
        make("Cast", [summed], [cast], f"{name}_cast", to=onnx.TensorProto.FLOAT),
        make("Mul", [scale, weight_scale], [scales], f"{name}_scales"),
        make("Mul", [cast, scales], [output], f"{name}_scaled"),
    ]
    return found


def _weights(name: str, scope: Scope, scheme: Scheme) -> tuple[str, str, str]:
    """The names of the integers, the scale and the zero point, in the graph that has `name`."""
    import onnx

    found = scope.constant(name)
    assert found is not None
    tensor, holder = found
    made = (f"{name}_quantized", f"{name}_scale", f"{name}_zero_point")
    if all(item.name != made[0] for item in holder.initializer):
        integers = _quantized_columns(onnx.numpy_helper.to_array(tensor), scheme)
        for each, values in zip(
            made, (integers.values, integers.scale, integers.zero), strict=True
        ):
            add_constant(holder, each, values)
    return made


def _quantized_columns(values: Array, scheme: Scheme) -> Quantized:
    """Weights of shape [..., summed, columns], with a scale for each column of each matrix.

    Scales of one matrix have the shape [columns], those of several [..., 1, columns].
    """
    if not scheme.per_channel:
        return quantized(values, scheme, None)
    *several, summed, columns = values.shape
    flat = np.moveaxis(values, -2, 0).reshape(summed, -1)
    found = quantized(flat, scheme, 1)
    shape = (*several, 1, columns) if several else (columns,)
    made = np.moveaxis(found.values.reshape(summed, *several, columns), 0, -2)
    return Quantized(
        np.ascontiguousarray(made), found.scale.reshape(shape), found.zero.reshape(shape)
    )


def _recurrence(node: onnx.NodeProto, scope: Scope, scheme: Scheme) -> onnx.NodeProto:
    """`DynamicQuantizeLSTM`, whose weights are transposed: [directions, inputs, 4 * hidden].

    Its kernel wants one zero point for all columns, so weights are symmetric: int8.
    """
    import onnx

    given = [*node.input, *[""] * (8 - len(node.input))]
    quantization = []
    for at in (1, 2):
        name = given[at]
        found = scope.constant(name)
        assert found is not None
        tensor, holder = found
        values = onnx.numpy_helper.to_array(tensor)
        rows = [
            quantized(np.ascontiguousarray(part.T), scheme, 1 if scheme.per_channel else None)
            for part in values
        ]
        integers = np.stack([row.values for row in rows])
        given[at] = add_constant(holder, f"{name}_lstm", integers)
        scale = np.stack([row.scale for row in rows])
        zero = np.stack([row.zero for row in rows])
        quantization += [
            add_constant(holder, f"{name}_lstm_scale", scale),
            add_constant(holder, f"{name}_lstm_zero_point", zero),
        ]
    made = onnx.helper.make_node(
        "DynamicQuantizeLSTM",
        [*given, *quantization],
        list(node.output),
        node.name,
        domain=MICROSOFT,
    )
    made.attribute.extend(item for item in node.attribute if item.name != "layout")
    return made


def quantize_tables(model: onnx.ModelProto, chosen: Collection[str], blocks: Blocks) -> None:
    """Quantize the constant tables of the `chosen` Gather nodes, of shape [rows, columns].

    In `blocks` along its columns if they are whole bytes, else each row has 8 bits and a scale.
    Raises `ImportError` where a library of the quantizer is not installed.
    """
    import onnx

    for scope in scopes_of(model.graph):
        made = {}
        for node in scope.graph.node:
            if node.op_type != "Gather" or node.name not in chosen:
                continue
            found = scope.constant(node.input[0])
            assert found is not None
            tensor, holder = found
            values = onnx.numpy_helper.to_array(tensor)
            bits = blocks.table_bits
            if bits is None or values.shape[1] * bits % 8:
                made[node.name] = _rows_read(node, values, holder)
            else:
                made[node.name] = _blocks_read(node, values, holder, bits, blocks)
                require_domain(model, MICROSOFT)
        replace_nodes(scope.graph, made)
    drop_unread(model)


def _rows_read(
    node: onnx.NodeProto, values: Array, holder: onnx.GraphProto
) -> list[onnx.NodeProto]:
    import onnx

    make = onnx.helper.make_node
    table, places, output = node.input[0], node.input[1], node.output[0]
    rows = quantized(values, _ROWS, 0)
    add_constant(holder, f"{table}_rows", rows.values)
    add_constant(holder, f"{table}_row_scales", rows.scale.reshape(-1, 1))
    integers, cast, scale = (f"{output}_{what}" for what in ("rows", "float", "scales"))
    return [
        make("Gather", [f"{table}_rows", places], [integers], node.name, axis=0),
        make("Gather", [f"{table}_row_scales", places], [scale], f"{node.name}_s", axis=0),
        make("Cast", [integers], [cast], f"{node.name}_cast", to=onnx.TensorProto.FLOAT),
        make("Mul", [cast, scale], [output], f"{node.name}_scaled"),
    ]


def _blocks_read(
    node: onnx.NodeProto, values: Array, holder: onnx.GraphProto, bits: int, blocks: Blocks
) -> list[onnx.NodeProto]:
    """A table's bytes are those of a product with its transpose: an artifact stores them once."""
    import onnx

    make = onnx.helper.make_node
    table, output = node.input[0], node.output[0]
    packed, *others = _blocks_of(values.T, bits, blocks)
    rows = packed.reshape(len(values), -1)[:, : values.shape[1] * bits // 8]
    stored = [f"{table}_table_{what}" for what in (f"Q{bits}", "scales", "zero_points")]
    for each, part in zip(stored, (rows, *others), strict=False):
        add_constant(holder, each, part)
    # The kernel gives zeros for an index outside of the table, where Gather is an error.
    numbers = add_constant(holder, f"{table}_numbers", np.arange(len(values), dtype=np.int32))
    places = f"{output}_places"
    return [
        make("Gather", [numbers, node.input[1]], [places], f"{node.name}_places", axis=0),
        make(
            "GatherBlockQuantized",
            [stored[0], places, *stored[1 : 1 + len(others)]],
            [output],
            node.name,
            domain=MICROSOFT,
            bits=bits,
            block_size=blocks.size,
            gather_axis=0,
            quantize_axis=1,
        ),
    ]


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
    if scheme.per_channel:
        _part_by_axes(model.graph, nodes)
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
    before = set(made_values(model.graph))
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
    _part_from_clips(model, chosen)
    # The tool writes its nodes behind the others.
    sort_nodes(model.graph)
    drop_unread(model)


def _part_by_axes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Copy weights that products read along two axes, as those that a Gemm transposes.

    A scale belongs to an index of one axis.  ONNX Runtime takes it for that of the columns in both.
    """
    axes: dict[str, dict[int, str]] = {}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in nodes:
        if node.op_type not in ("Conv", "Gemm", "MatMul") or node.input[1] not in constants:
            continue
        name = node.input[1]
        axis = 0 if node.op_type == "Conv" or attribute_of(node, "transB", 0) else 1
        copies = axes.setdefault(name, {axis: name})
        if axis not in copies:
            copy = graph.initializer.add()
            copy.CopyFrom(constants[name])
            copy.name = copies[axis] = f"{name}_along_{axis}"
        node.input[1] = copies[axis]


def _read_exact(model: onnx.ModelProto, chosen: Collection[str], before: Collection[str]) -> None:
    """Nodes in float32 read what was computed in float32, rather than what was rounded for others.

    A product writes float32 even if its result is quantized for another.
    """
    links = NodeLinks(model.graph.node)
    exact = {}
    for node in links.nodes:
        quantizer = links.maker(node.input[0]) if node.op_type == _DEQUANTIZE else None
        if quantizer is None or quantizer.op_type != _QUANTIZE:
            continue
        value = quantizer.input[0]
        maker = links.maker(value)
        if maker is None or maker.name not in chosen or maker.op_type in FLOAT_OUTPUTS:
            exact[node.output[0]] = value
    for node in links.nodes:
        if node.name in chosen or node.op_type in (_QUANTIZE, _DEQUANTIZE):
            continue
        for at, name in enumerate(node.input):
            if name in exact and name not in before:
                node.input[at] = exact[name]


def _part_from_clips(model: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Write a Relu or Clip of a `chosen` product's float32 as Max and Min.

    ONNX Runtime fuses no product into integers whose result a Relu or Clip limits without that a
    QuantizeLinear follows: it would dequantize the weights in each call.
    """
    links = NodeLinks(model.graph.node)
    outputs = {value.name for value in model.graph.output}
    made = {}
    for node in links.nodes:
        maker = links.maker(node.input[0]) if node.op_type in ("Clip", "Relu") else None
        if maker is None or maker.name not in chosen or maker.op_type not in FLOAT_OUTPUTS:
            continue
        readers = [links.nodes[at] for at in links.readers.get(node.output[0], ())]
        if node.output[0] not in outputs and [reader.op_type for reader in readers] == [_QUANTIZE]:
            continue
        made[node.name] = _limits(node, model.graph)
    replace_nodes(model.graph, made)


def _limits(node: onnx.NodeProto, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Max and Min in place of a Relu or Clip, whose limits are inputs or attributes."""
    import onnx

    stated: dict[str, str] = {}
    if node.op_type == "Relu":
        stated["Max"] = add_constant(graph, f"{node.output[0]}_least", np.zeros((), np.float32))
    for place, (op, attribute) in enumerate((("Max", "min"), ("Min", "max")), start=1):
        if len(node.input) > place and node.input[place]:
            stated[op] = node.input[place]
        elif any(item.name == attribute for item in node.attribute):
            limit = np.asarray(attribute_of(node, attribute, 0.0), np.float32)
            stated[op] = add_constant(graph, f"{node.output[0]}_{attribute}", limit)
    given, found = node.input[0], []
    for number, (op, limit_name) in enumerate(stated.items(), start=1):
        output = node.output[0] if number == len(stated) else f"{node.output[0]}_limited"
        name = node.name if number == len(stated) else f"{node.name}_limited"
        found.append(onnx.helper.make_node(op, [given, limit_name], [output], name))
        given = output
    return found or [onnx.helper.make_node("Identity", [given], [node.output[0]], node.name)]


def fold_factors(model: onnx.ModelProto) -> None:
    """Multiply `alpha` and `beta` of Gemm nodes into their constants, whose values are in memory.

    No form has integers for a product with factors.
    """
    import onnx

    for scope in scopes_of(model.graph):
        for node in scope.graph.node:
            if node.op_type != "Gemm" or node.domain not in STANDARD:
                continue
            for place, factor in ((1, "alpha"), (2, "beta")):
                value = attribute_of(node, factor, 1.0)
                constant = scope.constant(node.input[place]) if len(node.input) > place else None
                if value == 1.0 or constant is None or constant[0].data_type != TENSOR_FLOAT:
                    continue
                tensor, holder = constant
                scaled = onnx.numpy_helper.to_array(tensor) * np.float32(value)
                node.input[place] = add_constant(holder, f"{tensor.name}_times_{value:g}", scaled)
                left = [item for item in node.attribute if item.name != factor]
                del node.attribute[:]
                node.attribute.extend(left)
    drop_unread(model)


def split_gemms(model: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Write the `chosen` Gemm nodes as MatMul, of the same name, and Add.

    They have a constant second operand, and `alpha` and `beta` of 1.
    """
    import onnx

    for scope in scopes_of(model.graph):
        made = {}
        for node in scope.graph.node:
            if node.op_type != "Gemm" or node.name not in chosen:
                continue
            weights = node.input[1]
            if attribute_of(node, "transB", 0):
                found = scope.constant(weights)
                assert found is not None
                tensor, holder = found
                values = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor).T)
                weights = add_constant(holder, f"{weights}_transposed", values)
            biased = len(node.input) > 2 and bool(node.input[2])
            product = f"{node.output[0]}_product" if biased else node.output[0]
            make = onnx.helper.make_node
            given, before = node.input[0], []
            if attribute_of(node, "transA", 0):
                turned = f"{node.output[0]}_turned"
                before = [make("Transpose", [given], [turned], f"{node.name}_turn", perm=[1, 0])]
                given = turned
            product_node = make("MatMul", [given, weights], [product], node.name)
            made[node.name] = [*before, product_node]
            if biased:
                bias = make("Add", [product, node.input[2]], [node.output[0]], f"{node.name}_bias")
                made[node.name].append(bias)
        replace_nodes(scope.graph, made)
    drop_unread(model)


def written_nodes(model: onnx.ModelProto, chosen: Chosen) -> Chosen:
    """The `chosen` nodes that were quantized: the tools pass over some, and say nothing.

    A node of the static form reads or makes what is quantized, or is part of another and gone.
    """
    left = {node.name: node for node in every_node(model)}
    quantized = {
        name
        for node in model.graph.node
        for name in (node.input[:1] if node.op_type == "QuantizeLinear" else node.output)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }
    read_in_blocks = ("MatMulNBits", "GatherBlockQuantized")
    blocks = {name for name, node in left.items() if node.op_type in read_in_blocks}
    static = {
        name
        for name in chosen.static
        if name not in left or quantized.intersection((*left[name].input, *left[name].output))
    }
    return Chosen(
        frozenset(static),
        frozenset(n for n in chosen.dynamic if n in left and left[n].op_type in _DYNAMIC),
        chosen.weights & blocks,
        frozenset(n for n in chosen.tables if n in blocks or f"{n}_scaled" in left),
        chosen.wide & blocks,
    )
