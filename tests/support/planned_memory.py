"""A model's memory, planned and observed by this process, without a build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from aotc.graph.values import numpy_dtype, ort_type_to_value
from aotc.pipeline.memory_plan import planned
from aotc.session.observed_memory import SizedCall, observe_memory
from aotc.spec.codec import encode
from aotc.spec.evidence import ObservedMemory
from aotc.spec.memory import PlannedMemory, PlannedRun
from aotc.spec.payload import Value
from aotc.spec.providers import CPU
from aotc.spec.shapes import Dim, Domain, Relation
from aotc.spec.variant import Optimization, SessionSpec

Arrays = Mapping[str, npt.NDArray[Any]]


class BothWays(NamedTuple):
    """The plan, and what was observed of the same calls."""

    plan: PlannedMemory
    observed: ObservedMemory

    def pairs(self) -> list[tuple[PlannedRun, int, int]]:
        """Of each size: its plan, and the bytes observed at the peak and in the first call."""
        runs = {run.fixture: run for run in self.plan.at}
        return [
            (runs[found.fixture], found.activation_bytes, found.first_bytes)
            for found in self.observed.at
        ]


def name_nodes(graph: onnx.GraphProto, path: str = "") -> None:
    """Give every node a name, as an import does."""
    for at, node in enumerate(graph.node):
        node.name = f"{path}{node.name or node.op_type}_{at}"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                name_nodes(attribute.g, f"{node.name}/")


def both_ways(
    model: onnx.ModelProto,
    dims: Mapping[str, tuple[int, int, int]],
    folder: Path,
    *,
    given: Arrays | None = None,
    relations: Sequence[Relation] = (),
    level: Optimization = "all",
    limit: int | None = None,
    seen: Mapping[str, int] | None = None,
    shares: bool = True,
) -> BothWays:
    """Plan and observe `model`, with its weights in a file of `folder`.

    `dims` have their smallest, optimal and largest sizes.  Inputs are ones of a type of integers,
    else random; those of `given` are as they are.  With `shares` the plan is made of the calls that
    were observed, else of its own.
    """
    name_nodes(model.graph)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.bin", size_threshold=1024)
    inputs, outputs = _declared(path)
    domain = Domain(
        dims={
            name: Dim(min=low, opt=opt, max=high, origin="stated")
            for name, (low, opt, high) in dims.items()
        },
        relations=tuple(relations),
    )
    draw = np.random.default_rng(0)
    calls = []
    for which in ("min", "opt", "max") if dims else ("opt",):
        sizes = domain.corner(which)  # type: ignore[arg-type]
        arrays = {value.name: _array(value, sizes, draw, given or {}) for value in inputs}
        calls.append((str(which), sizes, arrays))
    spec = SessionSpec(optimization=level)
    request = {
        "providers": [CPU],
        "contexts": False,
        "session": encode(spec),
        "weights": str(folder),
        "model": str(path),
        "limit": limit,
        "seen": seen or {},
    }
    profiles = {name: folder / f"{name}.json" for name, _, _ in calls}
    observed = observe_memory(
        path.read_bytes(),
        spec,
        [SizedCall(*call) for call in calls],
        outputs,
        providers=[CPU],
        weights_folder=folder,
        profiles=profiles,
    )
    before = Path.cwd()
    os.chdir(folder)
    try:
        plan = planned(request, inputs, domain, calls, profiles if shares else {})
    finally:
        os.chdir(before)
    return BothWays(plan, observed)


def _declared(path: Path) -> tuple[list[Value], list[str]]:
    session = ort.InferenceSession(str(path), providers=[CPU])
    inputs = [ort_type_to_value(each) for each in session.get_inputs()]
    return inputs, [each.name for each in session.get_outputs()]


def _array(
    value: Value, sizes: Mapping[str, int], draw: np.random.Generator, given: Arrays
) -> npt.NDArray[Any]:
    if value.name in given:
        return given[value.name]
    dtype, shape = numpy_dtype(value.dtype), value.shape_at(sizes)
    if np.issubdtype(dtype, np.floating):
        return draw.random(shape).astype(dtype)
    return np.ones(shape, dtype)
