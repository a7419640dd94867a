"""What `quantizers` does in processes of its own: quantize by either side, and measure calls."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.fresh import processor_seconds

# A sample is at least this long, and a side has this many, or as many as the seconds allow.
_SAMPLE_SECONDS: Final = 2e-3
_ROUNDS: Final = 60
_SECONDS: Final = 60.0
_PRODUCTS: Final = ("Conv", "Gemm", "MatMul")
# Above it, fewer of ONNX Runtime's settings are tried: each takes minutes.
_LARGE_BYTES: Final = 60e6


def theirs(request: dict[str, Any]) -> dict[str, str]:
    """Quantize `model` by ONNX Runtime with each of its settings: by label, what failed or ""."""
    import logging

    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.disable(logging.WARNING)
    model, folder = Path(request["model"]), Path(request["folder"])
    with np.load(request["data"]) as data:
        arrays = dict(data)
    prepared = folder / "prepared.onnx"
    if not prepared.exists():
        try:
            quant_pre_process(model, prepared)
        except Exception:
            quant_pre_process(model, prepared, skip_symbolic_shape=True)

    class Reader(CalibrationDataReader):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            self._at = iter(range(len(next(iter(arrays.values())))))

        def get_next(self) -> Any:
            at = next(self._at, None)
            return None if at is None else {n: a[at : at + 1] for n, a in arrays.items()}

    kinds = {"u": QuantType.QUInt8, "s": QuantType.QInt8}
    failed = {}
    for label, how in _settings(model, quick=request["quick"]).items():
        made = folder / f"{label}.onnx"
        failed[label] = ""
        if made.exists():
            continue
        started = time.monotonic()
        try:
            if how["static"]:
                options: dict[str, Any] = {"nodes_to_exclude": how["left"]}
                if how["products"]:
                    options["op_types_to_quantize"] = list(_PRODUCTS)
                quantize_static(
                    prepared,
                    made,
                    Reader(),
                    quant_format=QuantFormat.QDQ,
                    per_channel=how["per_channel"],
                    reduce_range=how["reduce_range"],
                    activation_type=kinds[how["activations"]],
                    weight_type=kinds[how["weights"]],
                    **options,
                )
            else:
                quantize_dynamic(
                    prepared,
                    made,
                    per_channel=how["per_channel"],
                    reduce_range=how["reduce_range"],
                    weight_type=kinds[how["weights"]],
                )
        except Exception as error:
            made.unlink(missing_ok=True)
            failed[label] = f"{type(error).__name__}: {error}"[:200]
        print(f"   … {label}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return failed


def _settings(model: Path, *, quick: bool) -> dict[str, dict[str, Any]]:
    """The settings of ONNX Runtime's quantizers, by label."""
    import onnx

    nodes = onnx.load(model, load_external_data=False).graph.node
    last = [node.name for node in nodes if node.op_type in _PRODUCTS][-1:]
    found: dict[str, dict[str, Any]] = {}

    def add(static: bool, types: str, per_channel: bool, reduce_range: bool, **more: Any) -> None:
        label = "-".join(
            [
                "static" if static else "dynamic",
                types,
                *(["channel"] if per_channel else []),
                *(["7bit"] if reduce_range else []),
                *(["products"] if more.get("products") else []),
                *(["without-last"] if more.get("left") else []),
            ]
        )
        given = {"products": False, "left": [], **more}
        found[label] = {
            "static": static,
            "activations": types[0],
            "weights": types[2],
            "per_channel": per_channel,
            "reduce_range": reduce_range,
            **given,
        }

    small = model.stat().st_size < _LARGE_BYTES and not quick
    add(True, "u8s8", True, False)
    add(True, "u8s8", True, False, products=True)
    add(True, "u8s8", True, False, products=True, left=last)
    add(False, "u8s8", True, False)
    add(False, "u8s8", False, False)
    if not quick:
        add(True, "u8s8", False, False)
        add(True, "s8s8", True, False)
        add(False, "u8u8", False, False)
    if small:
        add(True, "s8s8", False, False)
        add(True, "u8s8", True, True)
        add(True, "u8s8", False, True)
        add(True, "s8s8", True, True)
        add(True, "u8s8", False, False, products=True)
        add(False, "u8s8", True, True)
        add(False, "u8s8", False, True)
    return found


def ours(request: dict[str, Any]) -> dict[str, Any]:
    """Build; a form that is refused is built again with gates that let anything pass, to time it.

    `refused` is the refusal's code and `findings` have code and text; `seconds` are those of all
    processors that it took.
    """
    import aotc
    from aotc.base.errors import AotcError

    def built(profile: Mapping[str, Any]) -> dict[str, Any]:
        path = Path(request["profile"])
        path.write_text(json.dumps(profile), encoding="utf-8")
        started = processor_seconds()
        report = aotc.build(
            request["model"],
            profile=path,
            key=request["key"],
            output=request["output"],
            cache=False,
            force=True,
        )
        return {
            "refused": "",
            "seconds": processor_seconds() - started,
            "findings": [[f.code, f"{f.where}: {f.what}"] for f in report.findings],
        }

    profile = {"schema": "aotc.profile/1", "name": "lowered", **request["fields"]}
    try:
        return built(profile)
    except AotcError as error:
        refused = f"{error.code} {error.found}"
    loose = {"atol": 1e9, "rtol": 1e9, "min_cosine": -1, "max_slice": 1e9}
    try:
        return {
            **built({**profile, "parity": {"int8": loose, "int4": loose}}),
            "refused": refused,
        }
    except AotcError as error:
        return {"refused": f"{error.code} {error.what}", "seconds": 0.0, "findings": [], "no": True}


def timed(request: dict[str, Any]) -> dict[str, Any]:
    """Processor seconds of calls of each of `sides` by turns, and its error on `data`.

    Each call has the next sample.  The error is the largest of an answer's, by the largest value of
    float32's, the first side.
    """
    with np.load(request["data"]) as data:
        count = len(next(iter(data.values())))
        samples = [{n: a[at : at + 1] for n, a in data.items()} for at in range(count)]
    calls = {name: _call(side, samples[0]) for name, side in request["sides"].items()}
    expected: list[list[Any]] = []
    errors = {}
    for name, (_, answer) in calls.items():
        found = [answer(sample) for sample in samples]
        expected = expected or found
        errors[name] = max(
            float(np.abs(np.asarray(f, float) - e).max() / max(np.abs(e).max(), 1e-30))
            for each, right in zip(found, expected, strict=True)
            for f, e in zip(each, right, strict=True)
        )
    repeats = {}
    cost = 0.0
    for name, (call, _) in calls.items():
        for _ in range(3):
            call()
        once = min(_processor(call, 1) for _ in range(3))
        repeats[name] = max(1, int(_SAMPLE_SECONDS / max(once, 1e-6)))
        cost += once * repeats[name]
    rounds = request["rounds"] or int(min(_ROUNDS, max(12, _SECONDS / cost)))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        names = list(calls)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call, times = calls[name][0], repeats[name]
            if times > 1:
                # What other sides left in the caches would be most of a short sample.
                call()
            seconds[name].append(_processor(call, times) / times)
    return {"seconds": seconds, "errors": errors}


def _processor(call: Callable[[], object], times: int) -> float:
    started = time.thread_time()
    for _ in range(times):
        call()
    return time.thread_time() - started


def _call(
    side: Mapping[str, str], first: Mapping[str, Any]
) -> tuple[Callable[[], object], Callable[[Mapping[str, Any]], list[Any]]]:
    """A call with the first sample, which is timed, and one with any, for its answers in order."""
    if side["kind"] == "session":
        session = one_thread(Path(side["path"]))
        return lambda: session.run(None, first), lambda inputs: list(session.run(None, inputs))
    model = _loaded(side["path"], side["key"])
    names = [output.name for output in model.outputs]

    def answers(inputs: Mapping[str, Any]) -> list[Any]:
        found = model.run(inputs)
        return [found[name] for name in names]

    return (model.bind(first) if side["kind"] == "bound" else lambda: model.run(first)), answers


@cache
def _loaded(path: str, key: str) -> Any:
    import aotc

    return aotc.load(path, key=key, threads=1)


def one_thread(model: Path, optimized: Path | None = None) -> Any:
    """A session with all optimizations and one thread; the graph that runs is written on demand."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def graphs(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By side, of the graph that runs: how often it has each operator, and `unpacked`.

    These are the nodes that read weights in float which are dequantized in each call.
    """
    import onnx

    found = {}
    for name, path in request["models"].items():
        written = Path(path).with_name("optimized.onnx")
        one_thread(Path(path), written)
        graph = onnx.load(written, load_external_data=False).graph
        written.unlink()
        constants = {tensor.name for tensor in graph.initializer}
        unpacked = {
            node.output[0]
            for node in graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] in constants
        }
        found[name] = {
            "operators": dict(Counter(node.op_type for node in graph.node).most_common()),
            "unpacked": [node.name for node in graph.node if unpacked & set(node.input)],
        }
    return found
