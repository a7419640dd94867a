"""Exported models, written in parallel, each by a process of its own, and kept in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fresh import ROOT
from benchmarks.gpu.cases import Settings
from benchmarks.gpu.child import ChildFailedError, one_record

_HALF_SECONDS = 300


def export(settings: Settings, names: Sequence[str]) -> dict[str, str]:
    """Export what is not there yet; returns the last line of what failed, by name."""
    wanted = {name: settings.model(name) for name in names if not settings.model(name).exists()}
    # The exporter's arithmetic is small: its threads would only be in each other's way.
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    if not settings.cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    started = {}
    for name, path in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.gpu.networks", name, str(path)]
        command += [str(settings.opset), *(["--small"] if settings.small else [])]
        log = path.with_suffix(".log").open("w")
        started[name] = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        if len(wanted) > 1 and len(os.sched_getaffinity(0)) <= 2:
            started[name].wait()
    failed = {}
    for name, process in started.items():
        if process.wait():
            lines = wanted[name].with_suffix(".log").read_text(errors="replace").splitlines()
            failed[name] = lines[-1] if lines else f"status {process.returncode}"
    return failed


def in_type(model: Path, precision: str) -> Path | None:
    """The model for a plain session: in half precision as ONNX Runtime's own tool converts it.

    Inputs and outputs keep their types.  None if the tool fails: it is asked once.
    """
    if precision != "float16":
        return model
    path = model.with_name(f"{model.stem}-half.onnx")
    failed = path.with_suffix(".failed")
    if not path.exists() and not failed.exists():
        request = {"model": str(model), "path": str(path)}
        try:
            one_record("exporting:halve", request, seconds=_HALF_SECONDS)
        except ChildFailedError as error:
            failed.write_text(str(error))
            print(f"{path.stem}: {error}", flush=True)
    return path if path.exists() else None


def halve(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: convert."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    converted = convert_float_to_float16(onnx.load(request["model"]), keep_io_types=True)
    # The tool may add a cast twice, and give a name twice, which no session takes.
    nodes: list[onnx.NodeProto] = []
    casts: set[tuple[str, ...]] = set()
    for node in converted.graph.node:
        cast = (*node.input, *node.output, str(node.attribute)) if node.op_type == "Cast" else ()
        if not cast or cast not in casts:
            casts.add(cast)
            node.name = f"{node.name}_{len(nodes)}"
            nodes.append(node)
    del converted.graph.node[:]
    converted.graph.node.extend(nodes)
    partial = Path(request["path"]).with_suffix(".partial")
    onnx.save(converted, partial)
    partial.rename(request["path"])
    yield {"bytes": Path(request["path"]).stat().st_size}
