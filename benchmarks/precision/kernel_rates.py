"""Seconds of ONNX Runtime's CPU kernels in float32 and in integers, for the table of rates.

Each kernel stands alone in a graph, at sizes of real layers, and runs on one thread.  What is
timed is the processor time of that thread, as others may use the machine.  To each kind of kernel
belong three numbers (seconds of a call, of an operation and of a byte of weights), which are fitted
to the medians with relative errors as weights; none of them is negative.

`python -m benchmarks.precision.kernel_rates` prints the rows of this kind of host for
`aotc/precision/kernel_rates.py`, and how far the fitted times are from the measured ones.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from aotc.precision.kernel_rates import FEW_CHANNELS

ROUNDS = 31
CHAIN = 4
MANY = 65


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel in a graph of its own: the kind, what it costs by, and the model."""

    kind: str
    operations: float
    weights: float
    model: onnx.ModelProto
    inputs: dict[str, Any]
    repeated: int = 1


def main() -> None:
    """Print the rows of this host."""
    measured: dict[str, list[tuple[float, float, float]]] = {}
    for case in cases():
        seconds = time_of(case)
        measured.setdefault(case.kind, []).append((case.operations, case.weights, seconds))
    for kind, found in measured.items():
        rates = fitted(found)
        off = [predicted(rates, row) / row[2] for row in found]
        numbers = ", ".join(f"{rate:.2g}" for rate in rates)
        spread = f"{min(off):.2f} to {max(off):.2f}, median {statistics.median(off):.2f}"
        print(f'    "{kind}": Rate({numbers}),  # fitted to measured: {spread}')


def predicted(rates: Any, row: tuple[float, float, float]) -> float:
    """Seconds by `rates`."""
    return float(rates[0] + rates[1] * row[0] + rates[2] * row[1])


def fitted(rows: list[tuple[float, float, float]]) -> Any:
    """Non-negative least squares of relative errors, by trying each set of terms."""
    table = np.array([[1.0, operations, weights] for operations, weights, _ in rows])
    seconds = np.array([row[2] for row in rows])
    scaled = table / seconds[:, None]
    best, least = np.zeros(3), np.inf
    for size in (1, 2, 3):
        for terms in itertools.combinations(range(3), size):
            found, *_ = np.linalg.lstsq(scaled[:, terms], np.ones(len(rows)), rcond=None)
            if (found < 0).any():
                continue
            rates = np.zeros(3)
            rates[list(terms)] = found
            error = float(((scaled @ rates - 1) ** 2).sum())
            if error < least - 1e-9:
                best, least = rates, error
    return best


def time_of(case: Case) -> float:
    """The median of the thread's processor time of a call, less that of one that does nothing."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, value in case.inputs.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    run = ort.RunOptions()
    for _ in range(3):
        session.run_with_iobinding(binding, run)
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        session.run_with_iobinding(binding, run)
        session.run_with_iobinding(binding, run)
        times.append((time.thread_time() - began) / 2)
    return max(statistics.median(times) - EMPTY, 2e-7) / case.repeated


def cases() -> Iterator[Case]:
    """All kernels that are timed."""
    rng = np.random.default_rng(1)
    for rows, inner, outer in itertools.product((1, 16, 128), (64, 384, 1024), (64, 384, 1536)):
        yield from products(rng, rows, inner, outer)
    for channels, filters, side, kernel, group in (
        *itertools.product((1, 3, 32, 128), (16, 32, 128), (14, 56), (1, 3), (1,)),
        (3, 64, 112, 7, 1),
        *((n, n, side, 3, n) for n in (32, 128, 480) for side in (7, 28, 56)),
        *((n, n, side, 5, n) for n in (72, 240) for side in (7, 28)),
        *((n, n, side, 3, 32) for n in (64, 128, 256) for side in (14, 28)),
    ):  # fmt: skip
        yield from convolutions(rng, channels, filters, side, kernel, group)
    for count in (64, 1024, 16384, 131072, 802816):
        yield from elementwise(rng, count)


def initializer(values: Any, name: str) -> onnx.TensorProto:
    """A constant."""
    return numpy_helper.from_array(np.asarray(values), name)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: Mapping[str, int],
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model of nodes; `outputs` are their types."""
    kinds = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int64": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "kernel",
        [
            helper.make_tensor_value_info(name, kinds[value.dtype.name], value.shape)
            for name, value in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def products(rng: Any, rows: int, inner: int, outer: int) -> Iterator[Case]:
    """MatMul in float32, after a quantized activation, and with one quantized in the call."""
    operations, weights = 2.0 * rows * inner * outer, float(inner * outer)
    given = {"x": rng.standard_normal((rows, inner)).astype(np.float32)}
    integers = {"x": rng.integers(0, 255, (rows, inner)).astype(np.uint8)}
    floats = rng.standard_normal((inner, outer)).astype(np.float32)
    node = helper.make_node
    real = {"y": TensorProto.FLOAT}
    yield Case("product float32", operations, 4 * weights,
               model([node("MatMul", ["x", "w"], ["y"])], given, real, [initializer(floats, "w")]),
               given)  # fmt: skip
    quantized = [
        initializer(np.clip(floats * 20, -64, 63).astype(np.int8), "w"),
        initializer(np.full(outer, 0.05, np.float32), "ws"),
        initializer(np.zeros(outer, np.int8), "wz"),
        initializer(np.float32(0.03), "xs"),
        initializer(np.uint8(128), "xz"),
    ]
    domain = "com.microsoft"
    yield Case("product static", operations, weights,
               model([node("MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz", "wz"], ["y"],
                           domain=domain)], integers, real, quantized), integers)  # fmt: skip
    yield Case("product dynamic", operations, weights,
               model([node("DynamicQuantizeMatMul", ["x", "w", "ws", "wz"], ["y"], domain=domain)],
                     given, real, quantized[:3]), given)  # fmt: skip


def convolutions(
    rng: Any, channels: int, filters: int, side: int, kernel: int, group: int
) -> Iterator[Case]:
    """Conv in float32 with Relu, and in integers.

    Where shapes allow, a chain: what turns images around for the kernels stands at its ends alone.
    """
    inner = channels // group
    length = CHAIN if channels == filters else 1
    operations = 2.0 * filters * side * side * inner * kernel * kernel
    kind = "convolution" if group == 1 else ("depthwise" if group == channels else "grouped")
    kind = "first convolution" if channels <= FEW_CHANNELS else kind
    given = {"x0": rng.standard_normal((1, channels, side, side)).astype(np.float32)}
    integers = {"x0": rng.integers(0, 255, (1, side, side, channels)).astype(np.uint8)}
    floats = rng.standard_normal((filters, inner, kernel, kernel)).astype(np.float32)
    attributes: dict[str, Any] = {
        "group": group,
        "pads": [kernel // 2] * 4,
        "kernel_shape": [kernel, kernel],
    }
    weights = float(floats.size)
    exact, whole = [], []
    names = ["xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    for at in range(length):
        exact += [
            helper.make_node("Conv", [f"x{at}", "w", "b"], [f"c{at}"], **attributes),
            helper.make_node("Relu", [f"c{at}"], [f"x{at + 1}"]),
        ]
        whole.append(
            helper.make_node(
                "QLinearConv",
                [f"x{at}", *names],
                [f"x{at + 1}"],
                domain="com.microsoft",
                channels_last=1,
                **attributes,
            )
        )
    last = f"x{length}"
    constants = [initializer(floats, "w"), initializer(np.zeros(filters, np.float32), "b")]
    made = model(exact, given, {last: TensorProto.FLOAT}, constants)
    yield Case(f"{kind} float32", operations, 4 * weights, made, given, length)
    constants = [
        initializer(np.float32(0.03), "xs"),
        initializer(np.uint8(128), "xz"),
        initializer(np.clip(floats * 20, -64, 63).astype(np.int8), "w"),
        initializer(np.full(filters, 0.05, np.float32), "ws"),
        initializer(np.zeros(filters, np.int8), "wz"),
        initializer(np.float32(0.06), "ys"),
        initializer(np.uint8(0), "yz"),
        initializer(np.zeros(filters, np.int32), "b"),
    ]
    made = model(whole, integers, {last: TensorProto.UINT8}, constants)
    yield Case(f"{kind} static", operations, weights, made, integers, length)


def elementwise(rng: Any, count: int) -> Iterator[Case]:
    """Conversions, and operators on values without weights, in both."""
    node = helper.make_node
    real = {"x": rng.standard_normal((1, count // 16, 4, 4)).astype(np.float32)}
    whole = {"x": rng.integers(0, 255, (1, count // 16, 4, 4)).astype(np.uint8)}
    both = {**real, "z": real["x"] + 1}
    integers = {**whole, "z": whole["x"] // 2}
    scale = [initializer(np.float32(0.03), "s"), initializer(np.uint8(100), "p")]
    float_, byte = {"y": TensorProto.FLOAT}, {"y": TensorProto.UINT8}

    def case(kind: str, made: Any, given: Any, output: Any, constants: Any = ()) -> Case:
        return Case(kind, float(count), 0.0, model([made], given, output, list(constants)), given)

    yield case("quantize", node("QuantizeLinear", ["x", "s", "p"], ["y"]), real, byte, scale)
    yield case("dequantize", node("DequantizeLinear", ["x", "s", "p"], ["y"]), whole, float_, scale)
    for op in ("Add", "Mul"):
        yield case(f"{op} float32", node(op, ["x", "z"], ["y"]), both, float_)
        names = ["x", "s", "p", "z", "s", "p", "s", "p"]
        yield case(f"{op} static", node(f"QLinear{op}", names, ["y"], domain="com.microsoft"),
                   integers, byte, scale)  # fmt: skip
    for op in ("Sigmoid", "LeakyRelu"):
        yield case(f"{op} float32", node(op, ["x"], ["y"]), real, float_)
        yield case(f"{op} static", node(f"QLinear{op}", ["x", "s", "p", "s", "p"], ["y"],
                                        domain="com.microsoft"), whole, byte, scale)  # fmt: skip
    yield case("GlobalAveragePool float32", node("GlobalAveragePool", ["x"], ["y"]), real, float_)
    names = ["x", "s", "p", "s", "p"]
    yield case("GlobalAveragePool static",
               node("QLinearGlobalAveragePool", names, ["y"], domain="com.microsoft",
                    channels_last=0), whole, byte, scale)  # fmt: skip
    yield case("MaxPool float32", node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), real, float_)
    # Beside convolutions in integers, whose channels come last.
    made = node("NhwcMaxPool", ["x"], ["y"], domain="com.microsoft", kernel_shape=[2, 2])
    last = {"x": whole["x"].transpose(0, 2, 3, 1).copy()}
    yield case("MaxPool static", made, last, byte)
    yield case(
        "Transpose float32", node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]), real, float_
    )
    yield case("Transpose static", node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]), whole, byte)
    yield case("Relu float32", node("Relu", ["x"], ["y"]), real, float_)


def _empty() -> float:
    """Seconds of a call without its nodes: those of one node, less what each of many takes."""

    def chain(length: int) -> float:
        given = {"x0": np.zeros((1,), np.float32)}
        nodes = [helper.make_node("Neg", [f"x{at}"], [f"x{at + 1}"]) for at in range(length)]
        made = model(nodes, given, {f"x{length}": TensorProto.FLOAT}, [])
        return time_of(Case("empty", 0, 0, made, given))

    one, many = chain(1), chain(MANY)
    return one - (many - one) / (MANY - 1)


EMPTY = 0.0

if __name__ == "__main__":
    EMPTY = _empty()
    print(f"    # a call alone: {EMPTY:.2g} s")
    main()
