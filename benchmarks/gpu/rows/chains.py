"""What kernels compiled at build for chains of pointwise nodes could bring: an estimate.

A chain is what one kernel could compute: pointwise nodes that are connected, with no other node on
any way between two of them.  Its time is that of its nodes in a profile of ONNX Runtime without a
captured graph, in a process that waits for each kernel (CUDA_LAUNCH_BLOCKING), less what a node
without work takes there.  Its floor are the bytes that it must read and write, at the speed of a
copy on this card, and at least what an empty kernel takes in a replayed graph.  Chains of one node
are told apart: they gain nothing.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.cases import Settings
from benchmarks.gpu.inputs import Inputs
from benchmarks.gpu.rows.calls import each_case
from benchmarks.gpu.run import Run

RUNS, FIRST, NAMED = 30, 5, 8
# What moves no element, and joins what is around it.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_OPERATORS = (
    "Abs Add And BiasGelu Cast Ceil Clip Concat Cos Div Elu Equal Erf Exp Expand FastGelu Floor "
    "Gelu Greater GreaterOrEqual HardSigmoid HardSwish LeakyRelu Less LessOrEqual Log Max Min Mish "
    "Mod Mul Neg Not Or PRelu Pow QuickGelu Reciprocal Relu Round Selu Sigmoid Sign Sin Slice "
    "Softplus Split Sqrt Sub Sum Swish Tan Tanh Transpose Where Xor"
)
POINTWISE = VIEWS | frozenset(_OPERATORS.split())
_BYTES = {"float": 4, "double": 8, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "bool": 1}
_BYTES |= {"float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1}
_TINY = 16


@dataclass(slots=True, kw_only=True)
class Node:
    """A node that ran: its values by name, its seconds, and the bytes of its outputs."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    seconds: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)


def run(run: Run) -> None:
    """Measure all wanted networks and precisions."""
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
    each_case(run, "chains", "rows.chains:profile_cases", blocking)


def chains(nodes: Sequence[Node]) -> list[list[Node]]:
    """The chains of topologically sorted nodes.

    Two connected pointwise nodes are of one chain if as many other nodes are on the longest way to
    each: then none is between them.
    """
    level: dict[str, int] = {}
    chain: dict[str, list[Node]] = {}
    for node in nodes:
        at = max((level.get(name, 0) for name in node.inputs), default=0)
        if node.op not in POINTWISE:
            level |= dict.fromkeys(node.outputs, at + 1)
            continue
        own = [node]
        joined = {id(chain[name]): chain[name] for name in node.inputs if name in chain}
        for other in joined.values():
            if level[other[0].outputs[0]] == at:
                own = other + own
        level |= dict.fromkeys(node.outputs, at)
        # What was joined belongs to the longer chain from now on.
        chain |= {name: own for each in own for name in each.outputs}
    return list({id(found): found for found in chain.values()}.values())


def moved_bytes(chain: Sequence[Node], nodes: Sequence[Node], sizes: Mapping[str, int]) -> int:
    """What one kernel for the chain reads from outside of it, and writes for what is outside."""
    inner = {name for node in chain for name in node.outputs}
    members = {id(node) for node in chain}
    read = {name for node in chain for name in node.inputs} - inner
    elsewhere = {name for node in nodes if id(node) not in members for name in node.inputs}
    consumed = {name for node in nodes for name in node.inputs}
    written = {name for name in inner if name in elsewhere or name not in consumed}
    return sum(sizes.get(name, 0) for name in read | written)


def profile_cases(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a record for each batch."""
    import aotc
    from benchmarks.gpu.cases import NETWORKS
    from benchmarks.gpu.inputs import as_taken, inputs_at

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    model = aotc.load(request["artifact"], store=settings.store)
    variants = {variant.name: variant for variant in model.variants}
    speed, least = _card(settings)
    idle = _idle_node(settings)
    for case, batch in request["cases"].items():
        inputs = inputs_at(settings.model(network.name), network.sizes(batch))
        given = as_taken(model, inputs)
        variant = variants[model.route(given).variant]
        nodes, sizes, whole = _profiled(settings, model.payload, variant, given, idle)
        yield {"case": case, **estimate(nodes, sizes, speed, least), "whole_seconds": whole}


def estimate(
    nodes: Sequence[Node], sizes: Mapping[str, int], speed: float, least: float
) -> dict[str, Any]:
    """Seconds of pointwise nodes, of chains of several and their floor, and the longest chains.

    `speed` is in bytes a second, `least` in seconds of a kernel.
    """
    found = []
    single = 0.0
    for chain in chains(nodes):
        working = [node for node in chain if node.op not in VIEWS]
        seconds = sum(node.seconds for node in working)
        if len(working) < 2:
            single += seconds
            continue
        floor = max(moved_bytes(chain, nodes, sizes) / speed, least)
        ops = " ".join(node.op for node in working)
        found.append((seconds, floor, ops, len(working)))
    found.sort(reverse=True)
    return {
        "nodes_seconds": sum(node.seconds for node in nodes),
        "single_seconds": single,
        "chains_seconds": sum(seconds for seconds, *_ in found),
        "floor_seconds": sum(floor for _, floor, *_ in found),
        # A chain that is at its floor gains nothing, and loses nothing.
        "gain_seconds": sum(max(seconds - floor, 0) for seconds, floor, *_ in found),
        "chains": len(found),
        "chained_nodes": sum(count for *_, count in found),
        "longest": [[seconds, floor, ops[:160]] for seconds, floor, ops, _ in found[:NAMED]],
        "bytes_a_second": speed,
    }


def _profiled(
    settings: Settings, payload: Path, variant: Any, given: Inputs, idle: float
) -> tuple[list[Node], dict[str, int], float]:
    """The nodes of a variant that ran, the bytes of all values, and the seconds of a run."""
    import numpy as np
    import onnx

    from aotc.runtime.warmup import open_variant
    from aotc.session.node_times import faster_half, profiled_runs, read_events, seconds_by_node
    from aotc.tools.bench_nodes import PayloadNodes

    prefix = settings.folder / "chains"
    session = open_variant(payload, variant, profile=prefix)
    for _ in range(settings.rounds(RUNS) + FIRST):
        session.run(None, given)
    path = Path(session.end_profiling())
    events = read_events(path)
    names = PayloadNodes(payload / variant.model, variant.placement.nodes)
    seconds: dict[str, float] = defaultdict(float)
    for (op, profiled), spent in seconds_by_node(path, FIRST).items():
        seconds[names.name_of(profiled, op) or profiled] += max(spent - idle, 0.0)
    whole = median(run.duration for run in faster_half(profiled_runs(events, path)[FIRST:])) * 1e-6
    graph = onnx.load(payload / variant.model, load_external_data=False).graph
    sizes = {
        tensor.name: math.prod(tensor.dims)
        * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        for tensor in graph.initializer
    }
    sizes |= {name: array.nbytes for name, array in given.items()}
    nodes = {
        node.name: Node(
            name=node.name,
            op=node.op_type,
            inputs=tuple(filter(None, node.input)),
            outputs=tuple(filter(None, node.output)),
            seconds=seconds.get(node.name, 0.0),
        )
        for node in graph.node
    }
    for event in events:
        shapes = event.args.get("output_type_shape")
        profiled = event.name.removesuffix("_kernel_time")
        node = nodes.get(names.name_of(profiled, str(event.args.get("op_name"))) or profiled)
        if node is not None and isinstance(shapes, list):
            for name, shape in zip(node.outputs, shapes, strict=False):
                ((kind, dims),) = shape.items()
                sizes[name] = math.prod(dims) * _BYTES.get(kind, 4)
    path.unlink()
    # What ONNX Runtime makes at load is in no chain: Transposes around convolutions, and these.
    others = [
        Node(name=name, op="", inputs=(), outputs=(), seconds=spent)
        for name, spent in seconds.items()
        if name not in nodes
    ]
    return [*nodes.values(), *others], sizes, whole


def _idle_node(settings: Settings) -> float:
    """Seconds of a node of 16 elements, as a profile tells them."""
    import numpy as np
    import onnxruntime as ort

    from aotc.session.node_times import seconds_by_node
    from benchmarks.gpu.tiny import WIDTH, write

    path = settings.folder / "models" / "relu.onnx"
    if not path.exists():
        list(write({"path": str(path)}))
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(settings.folder / "idle")
    own = [] if settings.cpu else ["CUDAExecutionProvider"]
    session = ort.InferenceSession(path, options, providers=[*own, "CPUExecutionProvider"])
    for _ in range(settings.rounds(RUNS) + FIRST):
        session.run(None, {"x": np.zeros((1, WIDTH), np.float32)})
    profile = Path(session.end_profiling())
    found = seconds_by_node(profile, FIRST)
    profile.unlink()
    return next(spent for (op, _), spent in found.items() if op == "Relu")


def _card(settings: Settings) -> tuple[float, float]:
    """Bytes a second that a copy reads and writes, and seconds of an empty kernel in a graph."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    count = 1 << (20 if settings.small else 30)
    source = torch.zeros(count, dtype=torch.uint8, device=settings.device)
    target, tiny = torch.empty_like(source), torch.zeros(_TINY, device=settings.device)
    spent = _timed(settings, lambda: target.copy_(source))
    if settings.cpu:
        return 2 * count / spent, _timed(settings, lambda: tiny.add_(1))
    graph, kernels = torch.cuda.CUDAGraph(), 1000
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            tiny.add_(1)
    return 2 * count / spent, _timed(settings, graph.replay) / kernels


def _timed(settings: Settings, call: Callable[[], Any]) -> float:
    """The median seconds of some calls."""
    from benchmarks.gpu.contenders import wait

    found = []
    for _ in range(10):
        wait(settings)
        started = time.perf_counter()
        call()
        wait(settings)
        found.append(time.perf_counter() - started)
    return median(found)
