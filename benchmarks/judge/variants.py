"""Honest variants of a model: other orders of sums, half precision, 8 and 4 bits.

Half precision is what a provider computes that adds in float32 and stores each value in half
precision; ONNX Runtime's CPU has no such kernels, so casts stand after each node instead.  What
8 and 4 bits have is what a build writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.judge.graphs import HEAD

if TYPE_CHECKING:
    from aotc.spec.precision import Arithmetic

Answers = list[np.ndarray[Any, Any]]
_FULL: Final = "@full"
_CASTS_BFLOAT16: Final = 13
# What is multiplied by 2^16 + 1 stays in float32.
_LARGEST_SPLIT: Final = 1e33


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How a model is changed, the arithmetic whose limits judge it, and how it is run."""

    name: str
    arithmetic: Arithmetic
    good: bool = True
    """Whether an honest engineer would ship it; others are only written for tuning."""
    faulty: bool = True
    """Whether faults are put into its answers too; those of some are nearly another's."""
    optimized: bool = False
    threads: int = 1


PLAIN: Final = (
    Variant(name="optimized", arithmetic="float32", optimized=True),
    Variant(
        name="optimized_2_threads", arithmetic="float32", faulty=False, optimized=True, threads=2
    ),
    Variant(name="two_threads", arithmetic="float32", faulty=False, threads=2),
)
HALF: Final = (
    Variant(name="float16", arithmetic="float16"),
    Variant(name="bfloat16", arithmetic="bfloat16"),
)
INTEGERS: Final = (
    Variant(name="int8_static", arithmetic="int8", optimized=True),
    Variant(name="int8_dynamic", arithmetic="int8", optimized=True),
    Variant(name="int8_weights", arithmetic="int8", optimized=True),
    Variant(name="int4_weights", arithmetic="int4", optimized=True),
)
# One scale for what the head joins.
JOINED: Final = Variant(
    name="int8_static_joined", arithmetic="int8", good=False, faulty=False, optimized=True
)


def variants_of(model: onnx.ModelProto) -> tuple[Variant, ...]:
    """All that a model may have; some cannot be made of it."""
    joins = any(node.name.startswith(HEAD) for node in model.graph.node)
    return (*PLAIN, *HALF, *INTEGERS, *((JOINED,) if joins else ()))


def session(path: Path, *, optimized: bool = False, threads: int = 1) -> Any:
    """A session on the CPU; without optimization it is what answers are compared with."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def write(
    variant: Variant,
    source: Path,
    target: Path,
    samples: Callable[[], Sequence[Mapping[str, Any]]],
) -> Path:
    """The model of a variant: that of `source`, or a changed one in the folder of `target`.

    `samples` makes the inputs on which activations are observed.  Raises ValueError, with the
    reason, where the model has no such variant.
    """
    if variant.arithmetic == "float32":
        return source
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return target
    if variant.arithmetic in ("float16", "bfloat16"):
        model = onnx.load(source)
        onnx.save(rounded_to_half(model, variant.arithmetic, samples()), target)
    else:
        _write_integers(variant, source, target, samples)
    return target


# Half precision.


def rounded_to_half(
    model: onnx.ModelProto,
    half_name: str,
    samples: Sequence[Mapping[str, Any]],
) -> onnx.ModelProto:
    """A copy in which inputs, weights and the results of nodes are rounded to half precision.

    As in a build, what leaves the range of the type stays in float32, and what computes positions
    and logarithms.
    """
    from aotc.graph.passes.convert_opset import opset_of
    from aotc.precision.half_conversion import HALF_TYPES, TypedGraph, lift_constants
    from aotc.precision.half_ranges import logarithm_nodes, position_nodes
    from aotc.session.inference import with_types

    half = HALF_TYPES[half_name]
    if any("QuantizeLinear" in node.op_type for node in model.graph.node):
        raise ValueError("it is quantized")
    lift_constants(model)
    typed = with_types(model, Path())
    graph = TypedGraph(typed, half.tensor_name, "CUDAExecutionProvider")
    left = position_nodes(graph)
    if half_name == "float16":
        left |= logarithm_nodes(graph)
    exact = {name for index in left for name in graph.nodes[index].output}
    writer = _Rounding(half.onnx_type, splits=opset_of(model) < _CASTS_BFLOAT16)
    exact |= _wide(typed, samples, _LARGEST_SPLIT if writer.splits else half.largest)
    for tensor in typed.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            if half.holds(values):
                near = half.rounded(values).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(near, tensor.name))
    writer.round_graph(typed.graph, exact)
    del typed.graph.value_info[:]
    return typed


def _wide(
    model: onnx.ModelProto,
    samples: Sequence[Mapping[str, Any]],
    largest: float,
) -> set[str]:
    """The values that leave the range of a type on the samples."""
    from aotc.precision.half_ranges import can_observe, observing_graph

    if not can_observe(model):
        return set()
    observing, names = observing_graph(model)
    import onnxruntime as ort

    with TemporaryDirectory() as folder:
        place = Path(folder) / "observing.onnx"
        onnx.save(observing, place)
        try:
            watched = session(place)
        except _ort_errors(ort):
            return set()
        found: set[str] = set()
        for sample in samples:
            (sizes,) = watched.run(None, dict(sample))
            # Other inputs may reach somewhat further.
            found |= {n for n, size in zip(names, sizes, strict=True) if size > largest / 2}
    return found


def _ort_errors(ort: Any) -> tuple[type[Exception], ...]:
    state = ort.capi.onnxruntime_pybind11_state
    return (state.Fail, state.InvalidArgument, state.NotImplemented, state.RuntimeException)


@dataclass(frozen=True, slots=True)
class _Rounding:
    """How a value is rounded: cast there and back, or split where bfloat16 has no casts.

    T. J. Dekker, "A Floating-Point Technique for Extending the Available Precision" (1971): in
    float32, c - (c - x) with c = (2^16 + 1) x has the first 8 bits of x.
    """

    kind: int
    splits: bool

    def round_graph(self, graph: onnx.GraphProto, exact: Collection[str]) -> None:
        """Round what nodes of a graph and of its bodies make, and what they are given."""
        floats = {
            value.name
            for value in (*graph.value_info, *graph.output, *graph.input)
            if value.type.tensor_type.elem_type == TensorProto.FLOAT
        }
        constants = {tensor.name for tensor in graph.initializer}
        nodes: list[onnx.NodeProto] = []
        # An input keeps its name, so its readers read another one.
        renamed = {}
        for value in graph.input:
            if value.name in floats and value.name not in {*constants, *exact}:
                renamed[value.name] = f"{value.name}@near"
                nodes += self._nodes(value.name, renamed[value.name])
        for node in graph.node:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            _rename(made, renamed)
            for attribute in made.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self.round_graph(attribute.g, exact)
            nodes.append(made)
            for index, name in enumerate(node.output):
                if name in floats and name not in exact and node.op_type != "Constant":
                    made.output[index] = name + _FULL
                    nodes += self._nodes(name + _FULL, name)
        del graph.node[:]
        graph.node.extend(nodes)

    def _nodes(self, source: str, result: str) -> Iterator[onnx.NodeProto]:
        def node(op: str, given: list[str], made: str, **attributes: Any) -> onnx.NodeProto:
            return helper.make_node(op, given, [made], f"{made}@rounding", **attributes)

        half = f"{result}@half"
        if not (self.splits and self.kind == TensorProto.BFLOAT16):
            yield node("Cast", [source], half, to=self.kind)
            yield node("Cast", [half], result, to=TensorProto.FLOAT)
            return
        factor = helper.make_tensor("value", TensorProto.FLOAT, [], [65537.0])
        yield node("Constant", [], f"{half}@factor", value=factor)
        yield node("Mul", [source, f"{half}@factor"], f"{half}@large")
        yield node("Sub", [f"{half}@large", source], f"{half}@rest")
        yield node("Sub", [f"{half}@large", f"{half}@rest"], result)


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _rename(inner, names)


# Integers.


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """The working directory is `folder`: the functions of a build's worker write there."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _write_integers(
    variant: Variant,
    source: Path,
    target: Path,
    samples: Callable[[], Sequence[Mapping[str, Any]]],
) -> None:
    from aotc.base.errors import AotcError
    from aotc.graph import values
    from aotc.pipeline.integers import write_quantized
    from aotc.spec.codec import encode
    from aotc.spec.precision import QuantizationSpec

    graph = onnx.load(source, load_external_data=False).graph
    if any("QuantizeLinear" in node.op_type for node in graph.node):
        raise ValueError("it is quantized")
    head = [node.name for node in graph.node if node.name.startswith(HEAD)]
    form = variant.name.split("_")[1]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        kept: list[dict[str, Any]] = []
        for index, sample in enumerate(samples() if form == "static" else ()):
            place = folder / f"sample{index}"
            place.mkdir()
            files = {
                name: str(values.save(value, place / f"input_{number}"))
                for number, (name, value) in enumerate(sample.items())
            }
            kept.append({"inputs": files})
        request = {
            "graph": str(source),
            "graph_weights": str(source.parent),
            "source": str(source),
            "weights": str(source.parent),
            "folder": str(folder / "kept"),
            "form": form,
            "bits": 4 if variant.arithmetic == "int4" else 8,
            "quantization": encode(QuantizationSpec(), full=True),
            "reduce_range": False,
            "blocks": {},
            "method": "minmax",
            "percentile": 99.99,
            "samples": kept,
            "compared": [],
            "tolerance": {},
            "kept": head if variant.good and form == "static" else [],
            "unfused": [],
            "isa": [],
            "sizes": {},
            "goal": "size",
            "opset": "keep",
            "runs": [],
            "where": source.parent.name,
        }
        made = folder / "made"
        made.mkdir()
        with inside(folder):
            try:
                write_quantized(request, (), made / "model.onnx")
            except AotcError as error:
                raise ValueError(error.line()) from None
        onnx.save(onnx.load(made / "model.onnx"), target)
