"""The plugin's own containers, joined: every partition is found in the one remaining file."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.providers.base import CompileRequest, Payload
from aotc.providers.openvino import OpenVinoBackend, join_containers
from aotc.session.sessions import create_session, run
from aotc.spec.variant import SessionSpec

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
WIDTH = 5
PAGE = 1 << 16


def info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH])


def weight(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH


def compiled(folder: Path, stem: str, seed: int) -> Payload:
    """`relu(x @ W)` from `c<seed>` to `v<seed + 1>`, compiled in the working directory."""
    read, made = f"c{seed}", f"v{seed + 1}"
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", [read, "W"], ["m"], name=f"product{seed}"),
            helper.make_node("Relu", ["m"], [made], name=f"relu{seed}"),
        ],
        stem,
        [info(read)],
        [info(made)],
        [numpy_helper.from_array(weight(seed), "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / f"{stem}.onnx").write_bytes(model.SerializeToString())
    request = CompileRequest(
        model=Path(f"{stem}.onnx"), weights=folder, stem=stem, target=probe(gpus=False)
    )
    return OpenVinoBackend().compile(request)


def chain_of(payloads: Sequence[Payload]) -> onnx.ModelProto:
    """A graph in which each payload reads the previous one's output, through a node of the CPU.

    Its input is not negative, so that the node is observed and changes nothing.
    """
    nodes, made = [], "c0"
    for index, payload in enumerate(payloads):
        context = helper.make_node(
            "EPContext", [made], [f"v{index + 1}"], name=f"context{index}", domain="com.microsoft"
        )
        context.attribute.extend(
            helper.make_attribute(name, value) for name, value in payload.attributes.items()
        )
        made = f"c{index + 1}"
        nodes += [context, helper.make_node("Abs", [f"v{index + 1}"], [made])]
    graph = helper.make_graph(nodes, "chain", [info("c0")], [info(made)])
    graph.value_info.extend(info(f"v{index + 1}") for index in range(len(payloads)))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run_chain(folder: Path, payloads: Sequence[Payload], x: np.ndarray[Any, Any]) -> Any:
    """The output of a session of the chain, with compiled parts next to `folder/model.onnx`."""
    session = create_session(
        chain_of(payloads).SerializeToString(),
        OpenVinoBackend().session("all"),
        providers=(OPENVINO, CPU),
        context_path=folder / "model.onnx",
        threads=1,
    )
    (found,) = run(session, {"c0": x})
    return found


def expected(count: int, x: np.ndarray[Any, Any]) -> Any:
    for seed in range(count):
        x = np.maximum(x @ weight(seed), 0)
    return x


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.openvino
@pytest.mark.parametrize("count", [2, 12])
def test_joined_partitions_answer_as_they_should(folder: Path, count: int) -> None:
    payloads = [compiled(folder, f"openvino-{seed}", seed) for seed in range(count)]
    joined = OpenVinoBackend().join(payloads, folder, "openvino")
    assert {item.files for item in joined} == {("openvino.bin",)}
    assert {item.attributes["ep_cache_context"] for item in joined} == {"openvino.bin"}
    assert [item.attributes["partition_name"] for item in joined] == [
        item.attributes["partition_name"] for item in payloads
    ]
    assert not any((folder / item.files[0]).exists() for item in payloads)
    x = np.random.default_rng(99).standard_normal((3, WIDTH)).astype(np.float32)
    np.testing.assert_allclose(run_chain(folder, joined, x), expected(count, x), atol=1e-5)


@pytest.mark.openvino
def test_one_payload_is_left_as_it_is(folder: Path) -> None:
    payload = compiled(folder, "only", 0)
    assert OpenVinoBackend().join([payload], folder, "openvino") == (payload,)
    assert (folder / payload.files[0]).is_file()
    assert not (folder / "openvino.bin").exists()


def test_no_payload_is_none(folder: Path) -> None:
    assert OpenVinoBackend().join([], folder, "openvino") == ()


def container(folder: Path, seed: int) -> bytes:
    return (folder / compiled(folder, f"part-{seed}", seed).files[0]).read_bytes()


def parts(data: bytes) -> Mapping[int, bytes]:
    """The content at every multiple of 64 KiB, read without the tested code."""
    return {at: data[at : at + 32] for at in range(PAGE, len(data), PAGE)}


@pytest.mark.openvino
def test_equal_containers_make_equal_files_and_parts_are_aligned(folder: Path) -> None:
    one, other = container(folder, 0), container(folder, 1)
    joined = join_containers([one, other])
    assert joined == join_containers([one, other])
    assert len(joined) % PAGE == 0
    beginnings = set(parts(joined).values())
    for data in (one, other):
        assert set(parts(data).values()) <= beginnings


@pytest.mark.openvino
def test_a_joined_file_of_one_says_what_it_said(folder: Path) -> None:
    """Joined alone a container is the plugin's own, byte for byte but for room at the end."""
    data = container(folder, 0)
    joined = join_containers([data])
    again = join_containers([joined])
    assert joined == again
    assert joined[:8] == data[:8] == b"OVEP_BIN"


def corrupted(data: bytes, what: str) -> bytes:
    changed = bytearray(data)
    if what == "magic":
        changed[:8] = b"OVEP_NEW"
    elif what == "version":
        struct.pack_into("<Q", changed, 8, 2)
    elif what == "empty":
        changed.clear()
    elif what == "header":
        del changed[16:]
    elif what == "document":
        offset = struct.unpack_from("<Q", changed, 24)[0]
        # An element of a type that no container of this version has: a regular expression.
        changed[offset + 4] = 0x0B
    elif what == "cut":
        offset = struct.unpack_from("<Q", changed, 24)[0]
        del changed[offset + 6 :]
    return bytes(changed)


@pytest.mark.openvino
@pytest.mark.parametrize("what", ["magic", "version", "document", "empty", "header", "cut"])
def test_an_unknown_form_is_refused(folder: Path, what: str) -> None:
    data = container(folder, 0)
    for first, second in ((data, corrupted(data, what)), (corrupted(data, what), data)):
        with pytest.raises(AotcError) as caught:
            join_containers([first, second])
        assert caught.value.code == "AOTC-P005"


@pytest.mark.openvino
def test_a_part_that_was_cut_off_is_refused(folder: Path) -> None:
    data = container(folder, 0)
    with pytest.raises(AotcError) as caught:
        join_containers([data, data[: PAGE + 8]])
    assert caught.value.code == "AOTC-P005"


@pytest.mark.openvino
def test_partitions_of_one_name_are_not_joined_in_silence(folder: Path) -> None:
    """One would answer for the other."""
    data = container(folder, 0)
    with pytest.raises(AotcError) as caught:
        join_containers([data, data])
    assert caught.value.code == "AOTC-P005"


def test_the_session_spec_pins_the_precision_by_its_one_spelling() -> None:
    hints = {"keep": "f32", "bfloat16": "bf16", "float16": "f16"}
    for precision in OpenVinoBackend.precisions:
        spec = OpenVinoBackend().session("all", precision)
        assert spec == SessionSpec(
            optimization="all",
            provider_options={
                OPENVINO: {
                    "load_config": '{"CPU":{"INFERENCE_PRECISION_HINT":"' + hints[precision] + '"}}'
                }
            },
        )
    with pytest.raises(AotcError) as caught:
        OpenVinoBackend().session("all", "tf32")
    assert caught.value.code == "AOTC-N008"
