"""The kernel table: known facts, the rule of versions, and agreement with ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import kernel_tables
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from aotc.graph import kernels as module
from aotc.graph.kernels import Kernel, KernelTable, signature_of

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
TABLE = KernelTable.load(CUDA)
OPERATORS = sorted({key for key in TABLE.kernels if key[0] == CUDA and key[1] == ""})


def reason_against(op: str, version: int, ep: str = CUDA, domain: str = "", **types: str) -> str:
    """The reason against a node; "" if it has a kernel."""
    return KernelTable.load(ep).kernel(ep, domain, op, version, types).reason


def table_file(version: str) -> Traversable:
    minor = ".".join(version.split(".")[:2])
    return files("aotc.graph").joinpath(f"ort_kernels_{minor}.json")


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> Iterator[None]:
    monkeypatch.setattr(module, "installed_versions", lambda names: {"onnxruntime": version})
    KernelTable.load.cache_clear()
    yield
    KernelTable.load.cache_clear()


@pytest.mark.parametrize(
    ("version", "cpu", "cuda"),
    [
        ("1.31.0", "1.31.1", "1.31.1"),
        ("1.31.9+cu13", "1.31.1", "1.31.1"),
        # There is no wheel with CUDA yet: its hosts have the former.
        ("1.32.0", "1.32.0", "1.31.1"),
        ("1.99.0", "1.32.0", "1.31.1"),
        ("1.9", "1.31.1", "1.31.1"),
    ],
)
def test_the_table_is_that_of_the_runtime_that_runs(
    monkeypatch: pytest.MonkeyPatch, version: str, cpu: str, cuda: str
) -> None:
    for _ in installed(monkeypatch, version):
        assert KernelTable.load().version == KernelTable.load(CPU).version == cpu
        assert KernelTable.load("OfAPlugin").version == cpu
        assert KernelTable.load(CUDA).version == cuda


def test_the_table_says_where_it_is_from() -> None:
    assert TABLE.version == "1.31.1"
    assert TABLE.source == "what onnxruntime-gpu 1.31.1 registers, by ci/kernel_tables.py"
    assert KernelTable.load(CUDA) is TABLE
    assert len(OPERATORS) > 140


def test_the_installed_runtime_registers_what_the_table_says() -> None:
    """`make kernels` changes nothing; only rows of the CPU where the table has CUDA's too."""
    listed = json.loads(
        subprocess.run(
            [sys.executable, "-c", kernel_tables.LISTING], check=True, capture_output=True
        ).stdout
    )
    made = kernel_tables.table_of(listed)
    kept = json.loads(table_file(onnxruntime.__version__).read_text("utf-8"))
    assert rows_of(made, CPU) == rows_of(kept, CPU)
    if kept["source"] == made["source"]:
        assert kernel_tables.text_of(made) == table_file(onnxruntime.__version__).read_text("utf-8")


def rows_of(table: dict[str, Any], ep: str) -> dict[tuple[str, str], Any]:
    return {
        (domain, op): [
            (since, until, {name: table["types"][index] for name, index in types.items()})
            for since, until, types in registered
        ]
        for domain, operators in table["kernels"][ep].items()
        for op, registered in operators.items()
    }


def test_every_kernel_is_well_formed() -> None:
    names = {str(name).lower() for name in TensorProto.DataType.keys()}  # noqa: SIM118
    for kernel in (item for group in TABLE.kernels.values() for item in group):
        assert kernel.until is None or kernel.since <= kernel.until
        for allowed in kernel.types.values():
            assert allowed
            for kind in allowed:
                inner = kind.rpartition("(")[2].rstrip(")").rpartition(",")[2]
                assert kind.count("(") == kind.count(")") > 0
                assert inner in names, kind


def test_types_are_of_the_schemas_own_variables() -> None:
    """Else no constraint of a kernel would ever be compared with anything."""
    for (_, domain, op), kernels in TABLE.kernels.items():
        if domain not in ("", "ai.onnx.ml"):
            continue
        for kernel in kernels:
            signature = signature_of(domain, op, kernel.since)
            if signature is None:
                continue
            formals = (*signature.inputs, *signature.outputs)
            known = {formal.name for formal in formals} | {formal.kind for formal in formals}
            assert kernel.types.keys() & known or not kernel.types, (op, kernel.since)


def test_known_kernels() -> None:
    half, double = "tensor(float16)", "tensor(double)"
    assert reason_against("Conv", 22, T=half) == ""
    assert reason_against("Conv", 11, T=half) == ""
    assert reason_against("If", 25) == ""
    assert reason_against("Attention", 1, domain="com.microsoft", T=half) == ""
    assert reason_against("MaxPool", 12, T=half) == ""
    assert reason_against("TreeEnsembleRegressor", 3, ep=CPU, domain="ai.onnx.ml", T=double) == ""


def test_reasons_name_what_there_is() -> None:
    assert reason_against("MaxPool", 22) == (
        "CUDA has no kernel of MaxPool-22 (it has: 1..7, 8..9, 10, 11, 12)"
    )
    assert reason_against("Conv", 11, T="tensor(bfloat16)") == (
        "CUDA has no kernel of Conv-11 for bfloat16 as T (it has: double, float, float16)"
    )
    assert reason_against("Celu", 12) == "CUDA has no kernel of Celu"
    assert reason_against("Normalizer", 1, domain="ai.onnx.ml") == (
        "CUDA has no kernel of ai.onnx.ml::Normalizer"
    )


def test_a_registration_without_an_end_vouches_for_one_version() -> None:
    kernel = Kernel(ep=CUDA, domain="", op="Op", since=12, until=None, types={})
    assert kernel.serves(12)
    assert not kernel.serves(13)
    ended = Kernel(ep=CUDA, domain="", op="Op", since=1, until=11, types={})
    assert [ended.serves(version) for version in (1, 5, 11, 12)] == [True, True, True, False]


def test_the_two_spellings_of_the_standard_domain() -> None:
    assert TABLE.registered(CUDA, "ai.onnx", "Conv") == TABLE.registered(CUDA, "", "Conv") != ()


def test_what_opset_23_costs_on_cuda() -> None:
    """MaxPool-22 is why a ResNet of opset 22 and above leaves a node on the CPU."""

    def missing(opset: int) -> set[str]:
        found = set()
        for _, _, op in OPERATORS:
            signature = signature_of("", op, opset)
            if signature is not None and reason_against(op, signature.version):
                found.add(op)
        return found

    assert missing(21) == set()
    assert missing(20) == set()
    assert missing(23) - missing(21) == {
        "Dropout", "Elu", "EyeLike", "InstanceNormalization", "MaxPool", "Selu", "ThresholdedRelu",
    }  # fmt: skip


KEPT = json.loads(table_file(TABLE.version).read_text("utf-8"))
ROWS = {ep: rows_of(KEPT, ep) for ep in (CPU, CUDA)}


@settings(max_examples=200, derandomize=True)
@given(
    key=st.sampled_from(sorted(TABLE.kernels)),
    version=st.integers(1, 28),
    kind=st.sampled_from(("tensor(float)", "tensor(float16)", "tensor(int64)", "tensor(string)")),
)
def test_an_answer_is_that_of_the_rows(key: tuple[str, str, str], version: int, kind: str) -> None:
    ep, domain, op = key
    data = rows_of(json.loads(table_file(TABLE.version).read_text("utf-8")), ep)
    rows = [
        types for since, until, types in data[domain, op] if since <= version <= (until or since)
    ]
    short = kind[len("tensor(") : -1]
    fits = any(short in types.get("T", short).split() for types in rows)
    found = TABLE.kernel(ep, domain, op, version, {"T": kind})
    assert (found.kernel is not None) == fits
    assert bool(found.reason) != fits


ONE_OPERATOR = (
    ("Conv", 11, "double", 2), ("Conv", 22, "float", 2), ("Elu", 22, "double", 1),
    ("Elu", 6, "float", 1), ("Selu", 22, "float", 1),
    ("Celu", 12, "float", 1), ("Gemm", 13, "double", 2), ("Gemm", 13, "int32", 2),
    ("Softplus", 22, "double", 1), ("Erf", 13, "double", 1), ("Erf", 13, "float", 1),
    ("Floor", 13, "double", 1), ("Sinh", 22, "double", 1), ("HardSigmoid", 22, "double", 1),
    ("Round", 22, "double", 1), ("Softsign", 22, "double", 1), ("Atan", 22, "double", 1),
    ("Mod", 13, "int8", 2), ("BitShift", 11, "uint16", 2), ("LRN", 13, "double", 1),
)  # fmt: skip


@pytest.mark.parametrize(("op", "opset", "kind", "arity"), ONE_OPERATOR)
def test_the_cpu_table_agrees_with_onnx_runtime(op: str, opset: int, kind: str, arity: int) -> None:
    element = TensorProto.DataType.Value(kind.upper())
    attributes = {"LRN": {"size": 3}, "BitShift": {"direction": "LEFT"}}.get(op, {})
    dims = [2, 2] if op == "Gemm" else [1, 1, 4, 4]
    node = helper.make_node(op, ["x", "w"][:arity], ["y"], name="n", **attributes)
    inputs = [helper.make_tensor_value_info(name, element, dims) for name in ["x", "w"][:arity]]
    output = helper.make_tensor_value_info("y", element, None)
    graph = helper.make_graph([node], "graph", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    signature = signature_of("", op, opset)
    assert signature is not None
    reason = reason_against(op, signature.version, ep=CPU, T=f"tensor({kind})")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        runs = True
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        runs = False
    assert runs == (reason == ""), reason


def test_versions_of_nodes_are_those_of_their_schemas() -> None:
    signature = signature_of("", "MaxPool", 23)
    assert signature is not None and signature.version == 22
    assert signature_of("com.microsoft", "FusedConv", 1) is None
    assert signature_of("", "Upsample", 13) is None, "deprecated"
    assert signature_of("com.ms.internal.nhwc", "Conv", 21) == signature_of("", "Conv", 21)
    assert onnx.defs.get_schema("MaxPool", 23).since_version == 22
