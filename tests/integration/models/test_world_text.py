"""Models whose text is in GBK or Latin-1: they are built, or refused by the field's name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from shared_workers import build
from workbench import Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import inspect
from aotc.base.errors import AotcError
from aotc.trust.gate import verify

AOTC = Path(sys.executable).with_name("aotc")
# Replaced by text that onnx refuses, of as many bytes, so that the file stays well formed.
MARK = "QqZz"
ENCODED = {"gbk": "节点".encode("gbk"), "latin-1": "Überß".encode("latin-1")[:4]}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def tensor(name: str, dim: str = "batch") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, 4])


def model(
    word: str = "", *, x: str = "x", y: str = "y", op: str = "Relu", domain: str = ""
) -> onnx.ModelProto:
    """`y = op(x @ w)` through a function; `word` begins every name that no caller needs."""
    weight = np.arange(16, dtype=np.float32).reshape(4, 4) - 7
    bend = helper.make_function(
        f"{word}own", f"{word}Bend", ["a"], ["b"],
        [helper.make_node(op, ["a"], ["b"], domain=domain)],
        [helper.make_opsetid("", 17), helper.make_opsetid("other", 1)],
    )  # fmt: skip
    product = helper.make_node(
        "MatMul", [x, f"{word}w"], [f"{word}h"], name=f"{word}product", doc_string=f"{word} doc"
    )
    product.metadata_props.add(key=f"{word}key", value=f"{word} value")
    graph = helper.make_graph(
        [product, helper.make_node(f"{word}Bend", [f"{word}h"], [y], domain=f"{word}own")],
        f"{word}graph",
        [tensor(x, f"{word}batch")],
        [tensor(y, f"{word}batch")],
        [numpy_helper.from_array(weight, f"{word}w")],
        doc_string=f"{word} doc",
        value_info=[tensor(f"{word}h", f"{word}batch")],
    )
    graph.input[0].type.denotation = f"{word}kind"
    proto = helper.make_model(
        graph,
        opset_imports=[
            helper.make_opsetid("", 17),
            helper.make_opsetid(f"{word}own", 1),
            helper.make_opsetid("other", 1),
        ],
        ir_version=8,
        functions=[bend],
        producer_name=f"{word}producer",
        producer_version=f"{word}1",
        domain=f"{word}.domain",
        doc_string=f"{word} doc",
    )
    helper.set_model_props(proto, {f"{word}key": f"{word} value"})
    return proto


def encoded(proto: onnx.ModelProto, encoding: str, path: Path) -> Path:
    """Write a model with its marked text in `encoding`."""
    data = proto.SerializeToString()
    assert MARK.encode() in data
    path.write_bytes(data.replace(MARK.encode(), ENCODED[encoding]))
    return path


@pytest.mark.parametrize("encoding", list(ENCODED))
def test_names_and_documentation_in_another_encoding(bench: Workbench, encoding: str) -> None:
    source = encoded(model(MARK), encoding, bench.folder / "other.onnx")
    built = bench.build(source, "other")
    escaped = ENCODED[encoding].decode("utf-8", "backslashreplace")
    assert "\\x" in escaped
    captured = built.manifest.source
    assert captured.producer_name == f"{escaped}producer"
    assert captured.graph_name == f"{escaped}graph"
    assert list(built.manifest.domain.dims) == [f"{escaped}batch"]
    finding = built.finding("AOTC-I041")
    assert "ModelProto.producer_name" in finding
    assert escaped in finding
    inputs = {"x": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)}
    expected = plain_answer(plain_session(source), inputs)
    assert verify(built.path, key=bench.public).authentic
    with bench.load(built) as ready:
        assert_agree(expected, ready.run(inputs), tolerance_of(built))


@pytest.mark.parametrize(("kind", "names"), [("input", {"x": MARK}), ("output", {"y": MARK})])
def test_the_name_of_an_input_or_output_is_the_callers(
    bench: Workbench, kind: str, names: dict[str, str]
) -> None:
    source = encoded(model(**names), "gbk", bench.folder / "named.onnx")
    with pytest.raises(AotcError) as caught:
        bench.build(source, "named")
    error = caught.value
    assert (error.code, error.where) == ("AOTC-I002", f"graph.{kind}[0].name")
    assert (error.what, error.exit_status) == ("a name is not UTF-8", 3)


def test_the_file_is_inspected(bench: Workbench) -> None:
    source = encoded(model(MARK), "gbk", bench.folder / "other.onnx")
    report = inspect(source)
    assert [finding.code for finding in report.findings].count("AOTC-I041") == 1
    assert report.source is not None
    assert report.source.domain == "\\xbdڵ\\xe3.domain"


def test_the_message_of_onnx_runtime_about_such_a_name_is_quoted(bench: Workbench) -> None:
    """Its message is not UTF-8 either."""
    source = encoded(model(op=f"{MARK}Foo", domain="other"), "gbk", bench.folder / "unknown.onnx")
    with pytest.raises(AotcError) as caught:
        bench.build(source, "unknown")
    assert caught.value.code == "AOTC-I009"
    assert "\\xbdڵ\\xe3Foo" in caught.value.found


def test_text_that_a_model_answers_with(bench: Workbench) -> None:
    graph = helper.make_graph(
        [
            helper.make_node(
                "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml",
                keys_int64s=[1, 2], values_strings=[MARK, "b"],
            )
        ],
        "labels",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, ["batch"])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    source = encoded(proto, "gbk", bench.folder / "labels.onnx")
    with pytest.raises(AotcError) as caught:
        bench.build(source, "labels")
    assert caught.value.line() == (
        "AOTC-I002 an output is text that is not UTF-8 [labels.onnx] (found '\\\\xbdڵ\\\\xe3')"
    )


def test_a_location_of_external_data_and_a_path(bench: Workbench) -> None:
    """With the cache, which looks for the files first; and a path that ONNX Runtime cannot open."""
    proto = model()
    (weight,) = proto.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=MARK)
    source = encoded(proto, "gbk", bench.folder / "external.onnx")
    elsewhere = os.fsencode(bench.folder) + b"/" + ENCODED["gbk"] + b".onnx"
    Path(os.fsdecode(elsewhere)).write_bytes(model().SerializeToString())
    environment = {**os.environ, "HOME": str(bench.folder), "AOTC_CACHE": str(bench.folder / "c")}
    for path, status, code in ((os.fsencode(source), 3, "AOTC-I002"), (elsewhere, 2, "AOTC-I027")):
        words = [os.fsencode(AOTC), b"build", path, b"--json"]
        done = subprocess.run(words, capture_output=True, env=environment, cwd=bench.folder)
        assert done.returncode == status, done
        (error,) = json.loads(done.stdout)["errors"]
        assert error["code"] == code
        assert b"Traceback" not in done.stderr


def test_two_names_that_would_be_one(tmp_path: Path) -> None:
    proto = model(MARK)
    proto.graph.doc_string = "\\xbdڵ\\xe3w"
    source = encoded(proto, "gbk", tmp_path / "same.onnx")
    with pytest.raises(AotcError, match="AOTC-I002 a name is not UTF-8"):
        build(source, output=tmp_path / "same.aotc")
