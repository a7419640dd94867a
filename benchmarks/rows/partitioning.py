"""Dividing a graph of 10,000 nodes between two providers, without the providers' own work.

Measured is a build from claims to the hybrid graph: reading the graph, costing its nodes at the
optimal and at the maximum shape, assigning them, extracting every compiled part, replacing the
parts by nodes, and the report.  Claims alternate between the providers after a number of nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import onnx
from onnx import TensorProto, helper

from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

NODES, SMOKE_NODES = 10_000, 1_000
WIDTH = 512
ROUNDS = 3
LIMIT_SECONDS = 2.0
# Numbers of consecutive nodes claimed by one provider.
RUNS = (500, 50, 5)
FIRST, LAST = "OpenVINOExecutionProvider", "CPUExecutionProvider"
RULES = {"boundaries weighed": True, "every claim kept": False}


def run(workshop: Workshop) -> Result:
    """Each number of consecutive nodes, with and without weighing boundaries."""
    nodes = SMOKE_NODES if workshop.smoke else NODES
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for length in RUNS:
        for rule, weighed in RULES.items():
            workshop.progress(f"claims change every {length} nodes, {rule}")
            request = {"nodes": nodes, "length": length, "weighed": weighed}
            found = [
                run_fresh("rows.partitioning:divide", request)
                for _ in range(workshop.rounds(ROUNDS))
            ]
            name = f"{nodes} nodes, claims change every {length}, {rule}"
            totals = [sum(step_seconds["seconds"].values()) for step_seconds in found]
            samples[name] = totals
            rows.append(_row(name, totals, found[0]))
    return Result(rows=tuple(rows), samples=samples)


def _row(name: str, totals: list[float], found: dict[str, Any]) -> Row:
    longest = sorted(found["seconds"].items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in longest)
    return Row(
        what=f"{name}: beyond the providers' own answers and compiling",
        asked=f"< {LIMIT_SECONDS:g} s",
        measured=f"{median(totals):.2f} s ({found['partitions']} partitions; {parts})",
        held=median(totals) < LIMIT_SECONDS,
    )


def layered(nodes: int) -> onnx.ModelProto:
    """MatMul, Add of the value two layers before, Relu, Sigmoid; weights as external data."""
    made, weights = [], []
    values = ["input", "input"]
    for index in range(nodes):
        name, kind = f"node.{index}", index % 4
        if kind == 0:
            weight = TensorProto(
                name=f"weight.{index}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH]
            )
            weight.data_location = TensorProto.EXTERNAL
            size = 4 * WIDTH * WIDTH
            for key, entry in (
                ("location", "weights.bin"),
                ("offset", str(index * size)),
                ("length", str(size)),
            ):
                weight.external_data.add(key=key, value=entry)
            weights.append(weight)
            made.append(helper.make_node("MatMul", [values[-1], weight.name], [name], name))
        elif kind == 1:
            made.append(helper.make_node("Add", [values[-1], values[-2]], [name], name))
        else:
            made.append(helper.make_node(("Relu", "Sigmoid")[kind - 2], [values[-1]], [name], name))
        values = [values[-1], name]
    graph = helper.make_graph(
        made,
        "layered",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info(values[-1], TensorProto.FLOAT, ["batch", WIDTH])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    # Providers are asked with the types of all values.
    return onnx.shape_inference.infer_shapes(model)


def divide(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: seconds by step, and the number of partitions."""
    from aotc.graph.partition.assignment import Rules, assign, sizes_at
    from aotc.graph.partition.division import Extractor, hybrid_model, partition_report
    from aotc.graph.view import GraphView
    from aotc.providers.cpu import CpuBackend
    from aotc.providers.openvino import OpenVinoBackend

    model = layered(request["nodes"])
    names = [node.name for node in model.graph.node]
    all_nodes = frozenset(names)
    claimed = {name for i, name in enumerate(names) if i // request["length"] % 2 == 0}
    claims = [(FIRST, frozenset(claimed)), (LAST, all_nodes)]
    seconds: dict[str, float] = {}

    @contextmanager
    def step(name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - started

    with step("read"):
        graph = GraphView(model.graph)
    with step("cost"):
        sizes = sizes_at(model, {"batch": 1}), sizes_at(model, {"batch": 8})
    rates = {FIRST: OpenVinoBackend.rates, LAST: CpuBackend.rates}
    with step("assign"):
        rules = Rules(rates=rates if request["weighed"] else None, sizes=sizes[0])
        assignment, missing = assign(graph, claims, rules)
    assert not missing
    parts = assignment.parts
    compiled = [index for index, part in enumerate(parts) if part.provider == FIRST]
    with step("cut out"):
        extractor = Extractor(model, graph)
        for index in compiled:
            extractor.extract(parts[index].nodes, f"part{index}").SerializeToString()
    with step("put together"):
        contexts = {
            index: (f"part{index}", {"ep_cache_context": f"part{index}.bin"}) for index in compiled
        }
        hybrid_model(model, graph, parts, contexts, {}).SerializeToString()
    with step("report"):
        partition_report(
            graph,
            assignment,
            sizes,
            names=[f"part{index}" for index in range(len(parts))],
            compiled={index: f"part{index}.bin" for index in compiled},
            devices={FIRST: "cpu", LAST: "cpu"},
            refusals=(),
            how="observed",
        )
    return {"seconds": seconds, "partitions": len(parts)}
