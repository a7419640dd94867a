"""Small models whose CUDA graphs ONNX Runtime replays wrongly after its session ran another size.

    python benchmarks/gpu/ort_graphs.py [--cpu] [--out FOLDER] [--only NAME ...] [--types TYPE ...]

Needs onnxruntime-gpu, onnx and numpy, and nothing of this project.  Each model goes through all
scenarios in a process of its own, and on after a crash in a further one; then the options of ONNX
Runtime are changed one by one for the smallest models that failed, in the scenario that did.
`--out` keeps models that failed, to be attached to a report (`reports`).  With `--cpu`
nothing is captured: it shows that the script itself works.  What `--seconds` leave no time for is
told as not tried.

What the scenarios tell apart:

plan     The kernel of a convolution keeps cuDNN's execution plan for the last shape only
         (`CudnnConvState::cudnn_fe_graph`, created anew by `UpdateState` where `last_x_dims`
         differ).  If the plan that it frees has a kernel compiled at run time, the code that a
         captured graph launches is gone: error 700 or 715 in `other`, `back` and `turns`, whether
         or not a second graph is captured; not in `alone` and `sessions`.
arena    Memory that one graph has captured serves the other: `turns` fails, and `other` does not;
         or `arena_extend_strategy`, memory patterns or the workspace's limit change it.
memset   What a kernel does outside the stream is no part of the graph (`cudaMemset` of the sum's
         operand in front of a fused convolution): `dirty` differs, without any second size.
host     What the CPU computed from shapes, or the addresses of what is joined, is copied from host
         memory that another size overwrote: models `reshape`, `roll`, `expand` differ in `turns`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHANNELS, HIGH = 32, 28
SIZES: Final = (4, 1)
REPLAYS: Final = 20
# One process; then all of it, and the share of it that models may take.
SECONDS: Final = 20
ALL_SECONDS: Final = 100
_FOR_MODELS: Final = 0.6
_NOT_TRIED: Final = "not tried"
# How many models' options are changed.
_CHANGED: Final = 3
CUDA: Final = "CUDAExecutionProvider"
Answers = list[np.ndarray[Any, Any]]


class _Network:
    """One model that is being written: values of [batch, channels, height, width]."""

    def __init__(self, dtype: type) -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], output, **attributes))
        return output

    def weight(self, *shape: int) -> str:
        fan = max(1.0, float(np.prod(shape[1:])))
        return self.constant((self._random.standard_normal(shape) / fan**0.5).astype(self.dtype))

    def conv(self, x: str, out: int, within: int, kernel: int = 1, group: int = 1) -> str:
        weight = self.weight(out, within // group, kernel, kernel)
        pads = [kernel // 2] * 4
        return self.node("Conv", x, weight, self.weight(out), group=group, pads=pads)

    def model(self, last: str) -> bytes:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [last], ["y"])],
            "small",
            [helper.make_tensor_value_info("x", kind, ["batch", CHANNELS, HIGH, HIGH])],
            [helper.make_tensor_value_info("y", kind, None)],
            self.constants,
        )
        imports = [helper.make_opsetid("", 17)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=9)
        # With the shape of the output, which checkers ask for.
        return bytes(onnx.shape_inference.infer_shapes(made, data_prop=True).SerializeToString())


# One kind of operator each, from what MobileNetV3 and EfficientNet have and ResNet has not.


def _pointwise(n: _Network) -> str:
    return n.conv("x", 2 * CHANNELS, CHANNELS)


def _square(n: _Network) -> str:
    return n.conv("x", CHANNELS, CHANNELS, 3)


def _depthwise(n: _Network) -> str:
    return n.conv("x", CHANNELS, CHANNELS, 3, CHANNELS)


def _depthwise_5(n: _Network) -> str:
    return n.conv("x", CHANNELS, CHANNELS, 5, CHANNELS)


def _without_bias(n: _Network) -> str:
    return n.node("Conv", "x", n.weight(CHANNELS, 1, 3, 3), group=CHANNELS, pads=[1] * 4)


def _conv_relu(n: _Network) -> str:
    return n.node("Relu", n.conv("x", CHANNELS, CHANNELS, 3))


def _conv_add_relu(n: _Network) -> str:
    return n.node("Relu", n.node("Add", n.conv("x", CHANNELS, CHANNELS, 3), "x"))


def _depthwise_relu(n: _Network) -> str:
    return n.node("Relu", n.conv("x", CHANNELS, CHANNELS, 3, CHANNELS))


def _hard_swish(n: _Network) -> str:
    return n.node("HardSwish", "x")


def _swish(n: _Network) -> str:
    return n.node("Mul", "x", n.node("Sigmoid", "x"))


def _pool(n: _Network) -> str:
    return n.node("GlobalAveragePool", "x")


def _mean(n: _Network) -> str:
    return n.node("ReduceMean", "x", axes=[2, 3], keepdims=1)


def _squeeze(n: _Network, x: str = "x", channels: int = CHANNELS) -> str:
    inner = n.node("Relu", n.conv(n.node("GlobalAveragePool", x), channels // 4, channels))
    gate = n.node("HardSigmoid", n.conv(inner, channels, channels // 4))
    return n.node("Mul", x, gate)


def _block(n: _Network, x: str = "x") -> str:
    wide = 4 * CHANNELS
    inner = n.node("HardSwish", n.conv(x, wide, CHANNELS))
    inner = n.node("HardSwish", n.conv(inner, wide, wide, 5, wide))
    return n.node("Add", n.conv(_squeeze(n, inner, wide), CHANNELS, wide), x)


def _blocks(n: _Network) -> str:
    value = "x"
    for _ in range(4):
        value = _block(n, value)
    return value


def _product(n: _Network) -> str:
    flat = n.node("Flatten", n.node("GlobalAveragePool", "x"))
    return n.node("Gemm", flat, n.weight(CHANNELS, 64), n.weight(64))


def _reshape(n: _Network) -> str:
    """Rows whose sizes the CPU computes, as exporters of attention write them."""
    batch = n.node("Gather", n.node("Shape", "x"), n.constant(np.array([0], np.int64)))
    sizes = n.node("Concat", batch, n.constant(np.array([4, -1], np.int64)), axis=0)
    return n.node("Softmax", n.node("Reshape", "x", sizes))


def _roll(n: _Network) -> str:
    """Parts of several lengths, whose addresses ONNX Runtime copies from page-locked memory."""
    axis, three = n.constant(np.array([2], np.int64)), n.constant(np.array([3], np.int64))
    start, end = n.constant(np.array([0], np.int64)), n.constant(np.array([HIGH], np.int64))
    below, above = n.node("Slice", "x", three, end, axis), n.node("Slice", "x", start, three, axis)
    return n.node("Concat", below, above, axis=2)


def _expand(n: _Network) -> str:
    sizes = n.node("Shape", "x")
    return n.node("Add", "x", n.node("Expand", n.weight(1, CHANNELS, 1, 1), sizes))


MODELS: Final[Mapping[str, Callable[[_Network], str]]] = {
    each.__name__.removeprefix("_"): each
    for each in (
        _pointwise, _square, _depthwise, _depthwise_5, _without_bias, _conv_relu, _conv_add_relu,
        _depthwise_relu, _hard_swish, _swish, _pool, _mean, _squeeze, _block, _blocks, _product,
        _reshape, _roll, _expand,
    )
}  # fmt: skip
TYPES: Final = {"float32": np.float32, "float16": np.float16}
LAYOUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "first": {},
    "last": {"prefer_nhwc": "1", "fuse_conv_bias": "1"},
}
# What is changed for models that failed: options of the provider, `session:` ones, variables `$`.
CHANGES: Final[Mapping[str, Mapping[str, str]]] = {
    "no bias in the convolution": {"fuse_conv_bias": "0"},
    "bias in the convolution": {"fuse_conv_bias": "1"},
    "little workspace": {"cudnn_conv_use_max_workspace": "0"},
    "algorithm by heuristic": {"cudnn_conv_algo_search": "HEURISTIC"},
    "algorithm by default": {"cudnn_conv_algo_search": "DEFAULT"},
    "float32 without TF32": {"use_tf32": "0"},
    "arena as requested": {"arena_extend_strategy": "kSameAsRequested"},
    "arena of 1 GiB": {"gpu_mem_limit": str(1 << 30)},
    "tunable operators": {"tunable_op_enable": "1", "tunable_op_tuning_enable": "1"},
    "no memory patterns": {"session:mem_pattern": "0"},
    "no fusion": {"session:optimization": "0"},
    "modules loaded at once": {"$CUDA_MODULE_LOADING": "EAGER"},
}


# In the child: one model through scenarios, each told when it begins and when it ends.


class Session:
    """A session with tensors that stay where they are, one set for each batch."""

    def __init__(self, model: bytes, case: Mapping[str, Any]) -> None:
        import onnxruntime as ort

        self._ort, self._device = ort, "cpu" if case["cpu"] else "cuda"
        stated = case["options"]
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.enable_mem_pattern = stated.get("session:mem_pattern") != "0"
        if stated.get("session:optimization") == "0":
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        own = {key: value for key, value in stated.items() if ":" not in key and "$" not in key}
        providers: list[Any] = [(CUDA, {"enable_cuda_graph": "1", **own})]
        self._session = ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"] if case["cpu"] else providers
        )
        self._bound: dict[int, tuple[Any, Any]] = {}
        self._dtype = TYPES[case["type"]]

    def run(self, batch: int, turn: int, graph: int = -1) -> Answers:
        """The answer for the inputs of `turn`; by the `graph` of this id, -1: by none."""
        given = inputs(batch, turn, self._dtype)
        if batch not in self._bound:
            value = self._ort.OrtValue.ortvalue_from_numpy(given, self._device, 0)
            binding = self._session.io_binding()
            binding.bind_ortvalue_input("x", value)
            binding.bind_output("y", self._device, 0)
            self._run(binding, -1)
            binding.bind_ortvalue_output("y", binding.get_outputs()[0])
            self._bound[batch] = (value, binding)
        value, binding = self._bound[batch]
        value.update_inplace(given)
        self._run(binding, graph)
        return [output.numpy() for output in binding.get_outputs()]

    def _run(self, binding: Any, graph: int) -> None:
        options = self._ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(graph))
        self._session.run_with_iobinding(binding, options)


def inputs(batch: int, turn: int, dtype: type) -> np.ndarray[Any, Any]:
    """Other values at each turn; large ones at turn 9."""
    made = np.random.default_rng([batch, turn]).standard_normal((batch, CHANNELS, HIGH, HIGH))
    return (made * (50 if turn == 9 else 1)).astype(dtype)


def alone(make: Callable[[], Session]) -> Iterator[str]:
    """Capture one size and replay it."""
    yield from _replayed(make(), [SIZES[0]])


def dirty(make: Callable[[], Session]) -> Iterator[str]:
    """Between the replays, run the same size without a graph on large values."""
    session, large = make(), SIZES[0]
    yield from _replayed(session, [large], lambda: session.run(large, 9))


def other(make: Callable[[], Session]) -> Iterator[str]:
    """Between the replays, run another size without a graph."""
    session = make()
    yield from _replayed(session, SIZES[:1], lambda: session.run(SIZES[1], 0))


def back(make: Callable[[], Session]) -> Iterator[str]:
    """The same, and then the captured size without a graph."""
    session = make()

    def between() -> None:
        session.run(SIZES[1], 0)
        session.run(SIZES[0], 0)

    yield from _replayed(session, SIZES[:1], between)


def turns(make: Callable[[], Session]) -> Iterator[str]:
    """Capture two sizes, and replay them by turns."""
    yield from _replayed(make(), SIZES)


def sessions(make: Callable[[], Session]) -> Iterator[str]:
    """The same with a session for each size."""
    both = [make(), make()]
    expected = [each.run(size, 1) for each, size in zip(both, SIZES, strict=True)]
    for each, size in zip(both, SIZES, strict=True):
        each.run(size, 0, 1)
    for number in range(REPLAYS):
        which = number % 2
        yield from _compared(both[which].run(SIZES[which], 1, 1), expected[which], SIZES[which])


SCENARIOS: Final[Mapping[str, Callable[[Callable[[], Session]], Iterator[str]]]] = {
    each.__name__: each for each in (alone, sessions, dirty, other, back, turns)
}


def _replayed(
    session: Session, batches: Sequence[int], between: Callable[[], object] | None = None
) -> Iterator[str]:
    # Without a graph first, when each kernel has seen no other size since.
    expected: dict[tuple[int, int], Answers] = {}
    for number, batch in enumerate(batches):
        expected |= {(batch, turn): session.run(batch, turn) for turn in range(3)}
        session.run(batch, 0, number + 1)
    firsts: dict[tuple[int, int], Answers] = {}
    for number in range(REPLAYS):
        which, turn = number % len(batches), number % 3
        key = (batches[which], turn)
        found = session.run(*key, which + 1)
        yield from _compared(found, expected[key], key[0])
        yield from _compared(found, firsts.setdefault(key, found), key[0], exactly=True)
        if between is not None:
            between()


def _compared(
    found: Answers, expected: Answers, batch: int, *, exactly: bool = False
) -> Iterator[str]:
    for one, two in zip(found, expected, strict=True):
        apart = np.abs(one.astype(np.float64) - two.astype(np.float64)).max(initial=0.0)
        most = np.abs(two.astype(np.float64)).max(initial=0.0)
        if exactly and one.tobytes() != two.tobytes():
            yield f"batch {batch}: bits differ from the first replay by {apart:.3g}"
        elif not exactly and not apart <= 0.01 * most:
            yield f"batch {batch}: off by {apart:.3g} of {most:.3g}"


def child(case: Mapping[str, Any]) -> None:
    """Print a JSON line when a scenario begins, and one with its verdict."""
    model = written(case["model"], case["type"])
    for name in case["scenarios"]:
        print(json.dumps({"begun": name}), flush=True)
        if case.get("crashes") == name:
            os.abort()
        try:
            wrong = next(SCENARIOS[name](lambda: Session(model, case)), "")
        except Exception as error:
            # The context is lost: this process can show no more.
            print(json.dumps({"ended": name, "error": _short(str(error))}), flush=True)
            os._exit(1)
        print(json.dumps({"ended": name, "wrong": wrong}), flush=True)
    # What a destructor does after all is no scenario.
    os._exit(0)


def written(model: str, dtype: str) -> bytes:
    """The bytes of a model."""
    network = _Network(TYPES[dtype])
    return network.model(MODELS[model](network))


def _short(text: str) -> str:
    start = max(text.find("CUDA failure"), text.find("CUDNN"), 0)
    return " ".join(text[start:].split())[:160]


# In the parent: all cases side by side, and what follows from them.


def verdicts(case: dict[str, Any]) -> dict[str, str]:
    """By scenario "ok", or what happened; further processes take up what a crash left.

    `case` may name its `scenarios`, for how many seconds each process is awaited (`patience`), and
    the time of `time.monotonic` that ends it, `until`.
    """
    patience = case.get("patience", SECONDS)
    wanted = case.get("scenarios") or list(SCENARIOS)
    found: dict[str, str] = {}
    while left := [name for name in wanted if name not in found]:
        seconds = min(patience, case.get("until", math.inf) - time.monotonic())
        if seconds <= 0:
            return found | dict.fromkeys(left, _NOT_TRIED)
        begun = ""
        request = json.dumps({**case, "scenarios": left})
        stated = {k[1:]: v for k, v in case["options"].items() if k.startswith("$")}
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", request],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ORT_DISABLE_TELEMETRY": "1", **stated},
        )
        over = False
        try:
            output, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            over = seconds < patience
            process.kill()
            output, complaint = process.communicate()
            complaint = f"longer than {patience:g} s"
        for line in output.splitlines():
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            begun = told.get("begun", begun)
            if "ended" in told:
                found[told["ended"]] = told.get("error") or told["wrong"] or "ok"
        if begun not in found and not over:
            status = f"exit status {process.returncode}: {complaint.strip()[-120:]}"
            if not begun:
                return dict.fromkeys(wanted, status)
            found[begun] = status
    return found


def failed(found: Mapping[str, str]) -> list[str]:
    """The scenarios that did not go well."""
    return [name for name in found if found[name] not in ("ok", _NOT_TRIED)]


def hypotheses(name: str, found: Mapping[str, str]) -> str:
    """Which of the explanations the outcome of a model fits."""
    wrong = set(failed(found))
    if not wrong:
        return ""
    if wrong & {"alone", "sessions"}:
        return "fails without another size as well"
    if "dirty" in wrong:
        return "memset: it depends on memory that the graph does not set"
    if name in ("reshape", "roll", "expand") and "turns" in wrong:
        return "host: what it copies from the host's memory is stale"
    if {"other", "turns"} <= wrong:
        return "plan: what it captured is gone once its session ran another size"
    return "arena: only graphs of two sizes disturb each other"


def main(arguments: argparse.Namespace) -> int:
    """Try all models, then options for those that failed; the exit status is 1 if any did."""
    import onnxruntime as ort

    machine = "" if arguments.cpu else _gpu()
    build = getattr(ort, "get_build_info", lambda: "")()
    print(f"onnxruntime {ort.__version__}, {build}\n{machine}", flush=True)
    begun = time.monotonic()
    cases = [
        {
            "model": name,
            "type": dtype,
            "layout": layout,
            "options": dict(options),
            "cpu": arguments.cpu,
            "crashes": arguments.crash,
            "patience": arguments.patience,
            "until": begun + _FOR_MODELS * arguments.seconds,
        }
        for name in arguments.only or MODELS
        for dtype in arguments.types
        for layout, options in LAYOUTS.items()
    ]
    bad: dict[str, tuple[dict[str, Any], str]] = {}
    with ThreadPoolExecutor(arguments.workers) as pool:
        for case, found in zip(cases, pool.map(verdicts, cases), strict=True):
            title = _title(case)
            missing = sum(each == _NOT_TRIED for each in found.values())
            why = hypotheses(case["model"], found)
            rest = f"; {missing} of {len(found)} scenarios {_NOT_TRIED}" if missing else ""
            print(f"{title}: {why or 'ok'}{rest}", flush=True)
            for scenario in failed(found):
                print(f"    {scenario}: {found[scenario]}", flush=True)
            if why:
                # The smallest model of each explanation and layout comes first.
                key = f"{case['layout']}, {why}"
                bad.setdefault(key, (case, failed(found)[0]))
        until = begun + arguments.seconds
        chosen = [
            {**case, "scenarios": [scenario], "until": until}
            for case, scenario in list(bad.values())[:_CHANGED]
        ]
        changed = [
            {**case, "options": {**case["options"], **change}}
            for change in CHANGES.values()
            for case in chosen
        ]
        outcomes = [found[s] for found in pool.map(verdicts, changed) for s in found]
    if chosen:
        print_table(chosen, outcomes)
    if arguments.out is not None:
        for case, _ in bad.values():
            path = arguments.out / f"{case['model']}-{case['type']}.onnx"
            path.write_bytes(written(case["model"], case["type"]))
    print(f"{len(bad)} kinds of failure in {len(cases)} cases")
    return 1 if bad else 0


def print_table(chosen: Sequence[Mapping[str, Any]], outcomes: Sequence[str]) -> None:
    """Options by lines, models by columns; `outcomes` line by line."""
    print("| option | " + " | ".join(f"{_title(c)}: {c['scenarios'][0]}" for c in chosen) + " |")
    print("|---" * (len(chosen) + 1) + "|")
    for number, change in enumerate(CHANGES):
        line = outcomes[number * len(chosen) : (number + 1) * len(chosen)]
        print(f"| {change} | " + " | ".join(line) + " |")


def _title(case: Mapping[str, Any]) -> str:
    return f"{case['model']}, {case['type']}, channels {case['layout']}"


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cpu", action="store_true", help="run on the CPU, without graphs")
    parser.add_argument("--out", type=Path, help="an existing folder for the models that fail")
    parser.add_argument("--only", nargs="*", choices=list(MODELS), help="these models")
    parser.add_argument(
        "--types", nargs="*", choices=list(TYPES), default=["float16"], help="these types"
    )
    parser.add_argument("--patience", type=float, default=SECONDS, help="seconds of a process")
    parser.add_argument("--seconds", type=float, default=ALL_SECONDS, help="for all of it")
    parser.add_argument("--workers", type=int, default=8, help="processes side by side")
    parser.add_argument("--crash", choices=list(SCENARIOS), help="abort there, to try the report")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(json.loads(given.child))
    sys.exit(main(given))
