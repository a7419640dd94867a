"""Wall time of a build, compared with what ONNX Runtime itself needs for the same work.

That work is: optimizing and writing each variant, creating the sessions of the reference and of
each variant, and running the parity shapes once in each, all in one process without any checks.
The same in processor time, which other work on the machine disturbs less, and the seconds for
which the finished artifact is verified and loaded before it is published, are reported too.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fresh import processor_seconds, run_fresh
from benchmarks.result import Result, Row, at_most, ratio_of_medians, unjudged
from benchmarks.workshop import Workshop

ROUNDS = 3
LIMIT = 1.25
CHECK_SECONDS = 0.7
MODELS = ("resnet50", "bert")


def run(workshop: Workshop) -> Result:
    """Measure builds and ONNX Runtime's own work alternately."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    output = workshop.folder / "timed.aotc"
    for name in MODELS:
        title = workshop.model(name).title
        builds, floors = [], []
        stages: dict[str, list[float]] = {}
        for index in range(workshop.rounds(ROUNDS)):
            workshop.progress(f"{title}, round {index + 1}")
            built = run_fresh("workshop:build", workshop.build_request(name, "server-cpu", output))
            builds.append(built)
            for stage, seconds in built["stages"].items():
                stages.setdefault(stage, []).append(seconds)
            floors.append(run_fresh("rows.build:floor", _floor_request(workshop, name, output)))
        shutil.rmtree(output)
        for side, runs in (("build", builds), ("floor", floors)):
            samples[f"{name} {side}"] = [sample["seconds"] for sample in runs]
            samples[f"{name} {side}, processor"] = [sample["cpu_seconds"] for sample in runs]
        samples[f"{name} check"] = stages["check"]
        rows += _rows(name, title, samples, {k: median(v) for k, v in stages.items()})
    return Result(rows=tuple(rows), samples=samples)


def _rows(
    name: str, title: str, samples: dict[str, list[float]], stages: dict[str, float]
) -> list[Row]:
    builds, floors = samples[f"{name} build"], samples[f"{name} floor"]
    longest = sorted(stages.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in longest[:5])
    our_processor, their_processor = (
        samples[f"{name} build, processor"],
        samples[f"{name} floor, processor"],
    )
    check = median(samples[f"{name} check"])
    asked = name == "resnet50"
    return [
        at_most(
            f"{title}: build with server-cpu to ONNX Runtime's own work",
            ratio_of_medians(builds, floors),
            LIMIT,
            f"{median(builds):.1f} s to {median(floors):.1f} s; {parts}",
        ),
        unjudged(
            f"{title}: the same, processor time",
            ratio_of_medians(our_processor, their_processor),
            f"{median(our_processor):.1f} s to {median(their_processor):.1f} s",
        ),
        Row(
            what=f"{title}: the artifact is verified and loaded before",
            asked=f"≤ {CHECK_SECONDS:g} s" if asked else "",
            measured=f"{check:.2f} s ({check / median(floors):.2f} of ONNX Runtime's own work)",
            held=round(check, 2) <= CHECK_SECONDS if asked else None,
        ),
    ]


def _floor_request(workshop: Workshop, name: str, artifact: Path) -> dict[str, Any]:
    return {
        "model": str(workshop.model(name).path),
        "artifact": str(artifact),
        "work": str(workshop.folder / "floor"),
    }


def floor(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: the time that ONNX Runtime needs; generating inputs is not counted."""
    import onnxruntime as ort

    manifest = json.loads((Path(request["artifact"]) / "payload" / "aotc.json").read_bytes())
    work = Path(request["work"])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    shapes = [_inputs(manifest, sizes) for sizes in _parity_shapes(manifest)]
    used = processor_seconds()
    # The reference runs on one thread, which makes its bits reproducible.
    seconds = _run(ort, request["model"], "disable", shapes, threads=1)
    for variant in manifest["variants"]:
        level = _optimizer_level(variant)
        seconds += _optimize(ort, request["model"], level, work / f"{variant['name']}.onnx")
        at_load = variant["session"]["optimization"]
        seconds += _run(ort, str(work / f"{variant['name']}.onnx"), at_load, shapes, threads=0)
    used = processor_seconds() - used
    shutil.rmtree(work)
    return {"seconds": seconds, "cpu_seconds": used}


def _parity_shapes(manifest: dict[str, Any]) -> list[dict[str, int]]:
    shapes: list[dict[str, int]] = manifest["variants"][0]["parity"]["shapes"]
    return shapes


def _optimizer_level(variant: dict[str, Any]) -> str:
    for record in variant["passes"]:
        if record["name"] == "onnxruntime-optimizer":
            return str(record["options"]["level"])
    raise LookupError(f"variant {variant['name']} names no level of the optimizer")


def _inputs(manifest: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    from benchmarks.networks.models import inputs_of

    shapes = {
        value["name"]: [size if isinstance(size, int) else sizes[size] for size in value["shape"]]
        for value in manifest["inputs"]
    }
    return inputs_of(shapes, {value["name"]: value["dtype"] for value in manifest["inputs"]})


def _options(ort: Any, level: str) -> Any:
    names = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC"}
    names |= {"extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, names[level])
    options.log_severity_level = 4
    return options


def _optimize(ort: Any, model: str, level: str, output: Path) -> float:
    options = _options(ort, level)
    options.optimized_model_filepath = str(output)
    prefix = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{prefix}_file_name", f"{output.stem}.bin")
    options.add_session_config_entry(f"{prefix}_min_size_in_bytes", "1024")
    started = time.perf_counter()
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return time.perf_counter() - started


def _run(ort: Any, model: str, level: str, shapes: list[dict[str, Any]], *, threads: int) -> float:
    options = _options(ort, level)
    options.intra_op_num_threads = threads
    started = time.perf_counter()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for inputs in shapes:
        session.run(None, inputs)
    return time.perf_counter() - started
