"""Models of a few bytes that would take minutes and gigabytes: refused before they are parsed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from refusals import refusal

from aotc.base.errors import AotcError
from aotc.graph import external_data, wire_count
from aotc.pipeline.reuse import model_digest
from aotc.tools.inspect import inspect

PARTS = 1_000_000
# What a process may hold besides what it maps of the libraries that it imports.
MEMORY = 300 << 20


def varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def empty(number: int, count: int = PARTS) -> bytes:
    return field(number, b"") * count


def graph(content: bytes) -> bytes:
    return field(7, content)


def attribute(content: bytes) -> bytes:
    return graph(field(1, field(5, content)))


def small() -> bytes:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    made = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()


# What is repeated, all of it in a second graph field, which protobuf adds to the first.
REPEATED: dict[str, bytes] = {
    "nodes": graph(empty(1)),
    "attributes": graph(field(1, empty(5))),
    "initializers": graph(empty(5)),
    "sparse initializers": graph(empty(15)),
    "inputs": graph(empty(11)),
    "outputs": graph(empty(12)),
    "values": graph(empty(13)),
    "annotations": graph(empty(14)),
    "entries": empty(14),
    "operator sets": empty(8),
    "functions": empty(25),
    "training": empty(20),
    "graphs of a node": attribute(empty(11)),
    "tensors of a node": attribute(empty(10)),
    "external data": graph(field(5, empty(13))),
    "dims": graph(field(5, b"\x08\x7f" * PARTS)),
    "packed dims": graph(field(5, field(1, b"\xff\x7f" * PARTS))),
    "bodies in bodies": attribute(b"".join(field(6, b"") for _ in range(PARTS))),
}


def test_dims_in_very_many_pieces_of_a_tensor(tmp_path: Path) -> None:
    """protobuf adds the pieces of a message that occurs again."""
    largest = b"\x08" + b"\xff" * 8 + b"\x7f"
    piece = field(5, b"\x10\x01\x70\x01" + largest * 60)
    location = field(5, field(13, field(1, b"location") + field(2, b"w.bin")))
    path = tmp_path / "m.onnx"
    path.write_bytes(small() + graph(field(1, field(5, piece * 3000 + location))))
    error = refusal(inspect, path)
    assert (error.code, error.what) == ("AOTC-I002", "the model has too many dims of a tensor")


def test_external_data_that_is_written_in_many_ways_is_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    model = onnx.ModelProto.FromString(small())
    for number in range(1000):
        tensor = model.graph.initializer.add(name=f"w{number}", data_type=1, dims=[4])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="./" * number + "w.bin")
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    hashed: list[object] = []
    plain = external_data._digest
    monkeypatch.setattr(external_data, "_digest", lambda *a: hashed.append(a) or plain(*a))
    assert len(inspect(path).source.external_data) == 1000
    assert len(hashed) == 1


@pytest.mark.parametrize("kind", REPEATED)
def test_very_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(small() + REPEATED[kind])
    monkeypatch.setattr("aotc.graph.model.onnx.ModelProto", NotParsed)
    error = refusal(inspect, path)
    assert (error.code, error.where) == ("AOTC-I002", str(path))
    assert error.expected.startswith("at ")
    assert error.found
    assert model_digest(path) is None
    assert model_digest(path.read_bytes()) is None


class NotParsed:
    """Stands for a message that nobody may fill."""

    def ParseFromString(self, data: bytes) -> None:
        raise AssertionError("it is parsed")


# A program that says how it ended, within the memory that it may take.
INSPECT = """
import sys
from aotc.base.errors import AotcError
from aotc.tools.inspect import inspect
try:
    print(inspect(sys.argv[1]).source.nodes_total)
except AotcError as error:
    print(error.code)
# Not of the process that it was forked from.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def inspected(path: Path) -> tuple[str, int]:
    """What `inspect` ends with in a process of its own, and the most memory that it held."""
    ended = subprocess.run(
        [sys.executable, "-c", INSPECT, str(path)], capture_output=True, text=True, check=True
    )
    said, memory = ended.stdout.split()
    return said, int(memory) << 10


LIMITS: dict[str, Callable[[], bytes]] = {
    "empty nodes": lambda: graph(empty(1, wire_count.FEW_PARTS - 100)),
    "named nodes": lambda: graph(b"".join(chained(wire_count.MAX_NODES - 1))),
    "inputs": lambda: graph(b"".join(field(11, b"\x0a\x08%08d" % i) for i in range(100_000))),
    "texts": lambda: graph(field(1, empty(1))),
    "sizes": lambda: graph(field(13, field(2, field(1, field(2, empty(1)))))),
}


def chained(count: int) -> list[bytes]:
    return [
        field(1, field(1, b"v%06d" % at) + field(2, b"v%06d" % (at + 1)) + field(4, b"Neg"))
        for at in range(count)
    ]


@pytest.mark.parametrize("kind", LIMITS)
def test_what_is_just_within_the_limits_takes_no_more_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(small() + LIMITS[kind]())
    said, memory = inspected(path)
    assert said.isdecimal() or said == "AOTC-I007"
    assert memory < MEMORY


def nested(levels: int, calls: int) -> bytes:
    """Functions that each call the one before a few times."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("l", 1)]
    functions, called, domain = [], "Neg", ""
    for level in range(levels):
        names = ["a", *(f"t{at}" for at in range(calls - 1)), "b"]
        body = [
            helper.make_node(called, [names[at]], [names[at + 1]], domain=domain)
            for at in range(calls)
        ]
        functions.append(helper.make_function("l", f"F{level}", ["a"], ["b"], body, opsets))
        called, domain = f"F{level}", "l"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    made = helper.make_graph([helper.make_node(called, ["x"], ["y"], domain="l")], "g", [x], [y])
    model: onnx.ModelProto = helper.make_model(
        made, functions=functions, opset_imports=opsets, ir_version=10
    )
    return model.SerializeToString()


@pytest.mark.parametrize(("levels", "calls"), [(14, 2), (30, 2), (400, 2), (4, 40), (3, 1000)])
def test_functions_that_stand_for_very_many_nodes(tmp_path: Path, levels: int, calls: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(nested(levels, calls))
    error = refusal(inspect, path)
    assert (error.code, error.what) == (
        "AOTC-I002",
        "calls of the model's functions stand for too many nodes",
    )
    assert model_digest(path) is None


@pytest.mark.parametrize(("levels", "calls"), [(10, 2), (2, 24), (1, 900)])
def test_functions_as_exporters_write_them(tmp_path: Path, levels: int, calls: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(nested(levels, calls))
    assert inspect(path).source.functions


def test_the_error_names_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(small() + graph(empty(1)))
    with pytest.raises(AotcError, match=str(wire_count.MAX_NODES)):
        inspect(path)
