"""Weights of two artifacts, compared tensor by tensor."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from artifact_builder import build_artifact, sign_artifact
from onnx import helper, numpy_helper
from repository import TOOLCHAIN

from aotc.spec.diff_report import DiffReport, TensorChange, WeightsDiff
from aotc.tools.diff import weights as tensor_weights
from aotc.tools.diff.artifacts import diff
from aotc.tools.diff.opened_artifact import MAX_MODEL_BYTES
from aotc.trust.key_loading import PrivateKey
from aotc.trust.packing import pack

Edit = Callable[[onnx.ModelProto], None]


@pytest.fixture
def a(tmp_path: Path, key: PrivateKey) -> Path:
    return edited(tmp_path / "a.aotc", key)


def weights_file(folder: Path) -> Path:
    (found,) = (folder / "payload").rglob("weights.bin")
    return found


def edited(
    folder: Path, key: PrivateKey, data: bytes | None = None, edit: Edit | None = None
) -> Path:
    """A changed artifact whose manifest lists what is there now."""
    build_artifact(folder, key)
    if data is not None:
        weights_file(folder).write_bytes(data)
    if edit is not None:
        for path in (folder / "payload").rglob("model.onnx"):
            model = onnx.load(path, load_external_data=False)
            edit(model)
            path.write_bytes(model.SerializeToString())
    manifest = folder / "payload" / "aotc.json"
    document: Any = json.loads(manifest.read_bytes())
    for entry in document["files"]:
        content = (folder / "payload" / entry["path"]).read_bytes()
        entry.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest.write_text(json.dumps(document))
    sign_artifact(folder, key)
    # What is written as evidence there is none.
    (folder / "attestations" / "evidence.sigstore.json").unlink()
    return folder


def weights(report: DiffReport) -> WeightsDiff:
    assert report.problems == (), report.problems
    (found,) = report.weights
    assert found.variants == ("portable", "native")
    return found


def changed(report: DiffReport) -> dict[str, TensorChange]:
    return {each.a: each for each in weights(report).changed}


def values(folder: Path) -> np.ndarray[Any, Any]:
    return np.frombuffer(weights_file(folder).read_bytes(), np.float32).copy()


def test_one_number_that_differs(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    numbers = values(a)
    largest = float(np.abs(numbers[:16]).max())
    before = float(numbers[5])
    numbers[5] += 0.25
    b = edited(tmp_path / "b.aotc", key, numbers.tobytes())
    report = diff(a, b)
    assert report.area("weights").status == "changed"
    assert (weights(report).equal, list(changed(report))) == (1, ["W"])
    difference = changed(report)["W"]
    assert difference.max_abs == pytest.approx(abs(float(numbers[5]) - before), rel=1e-12)
    assert difference.max_rel == pytest.approx(0.25 / largest, rel=1e-5)
    assert (difference.dtype_a, difference.shape_a) == ("float32", (4, 4))


def test_blocks_that_are_smaller_than_a_tensor(
    a: Path, key: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest difference of all blocks, to the largest number of all blocks."""
    numbers = values(a)
    largest = float(np.abs(numbers[:16]).max())
    numbers[[1, 14]] += (0.5, 0.75)
    b = edited(tmp_path / "b.aotc", key, numbers.tobytes())
    whole = diff(a, b)
    monkeypatch.setattr(tensor_weights, "_BLOCK", 3)
    assert diff(a, b) == whole
    found = changed(whole)["W"].max_abs
    assert found == pytest.approx(0.75, rel=1e-6)
    assert changed(whole)["W"].max_rel == pytest.approx(0.75 / largest, rel=1e-6)


def test_numbers_that_are_none(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    numbers = values(a)
    numbers[0] = np.nan
    b = edited(tmp_path / "b.aotc", key, numbers.tobytes())
    assert changed(diff(a, b))["W"].max_abs == sys.float_info.max
    numbers[1] += 1
    c = edited(tmp_path / "c.aotc", key, numbers.tobytes())
    assert changed(diff(b, c))["W"].max_abs == pytest.approx(1, rel=1e-6)


def test_another_type_of_float(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    exact = values(a)[16:]

    def convert(model: onnx.ModelProto) -> None:
        bias = model.graph.initializer[1]
        bias.CopyFrom(numpy_helper.from_array(exact.astype(np.float16), "b_float16"))
        model.graph.node[0].input[2] = "b_float16"

    b = edited(tmp_path / "b.aotc", key, edit=convert)
    found = changed(diff(a, b))["b"]
    assert (found.b, found.dtype_b) == ("b_float16", "float16")
    wanted = np.abs(exact - exact.astype(np.float16).astype(np.float32)).max()
    assert found.max_abs == pytest.approx(float(wanted))


def test_bfloat16_is_read_as_the_numbers_it_holds(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    exact = values(a)[16:]
    cut = exact.view(np.uint32) >> 16

    def convert(model: onnx.ModelProto) -> None:
        data = cut.astype("<u2").tobytes()
        bias = helper.make_tensor("b", onnx.TensorProto.BFLOAT16, [4], data, raw=True)
        model.graph.initializer[1].CopyFrom(bias)

    found = changed(diff(a, edited(tmp_path / "b.aotc", key, edit=convert)))["b"]
    wanted = np.abs(exact - (cut.astype(np.uint32) << 16).view(np.float32)).max()
    assert found.max_abs == pytest.approx(float(wanted))


def test_a_renamed_weight_is_the_same(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    def rename(model: onnx.ModelProto) -> None:
        model.graph.initializer[1].name = model.graph.node[0].input[2] = "bias"

    found = weights(diff(a, edited(tmp_path / "b.aotc", key, edit=rename)))
    assert (found.equal, found.renamed, found.changed, found.added) == (1, 1, (), ())


def test_weights_that_came_and_went(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    def drop(model: onnx.ModelProto) -> None:
        del model.graph.node[0].input[2]
        model.graph.initializer[1].CopyFrom(
            numpy_helper.from_array(np.arange(3, dtype=np.int64), "n")
        )

    found = weights(diff(a, edited(tmp_path / "b.aotc", key, edit=drop)))
    assert [(each.a, each.shape_a) for each in found.removed] == [("b", (4,))]
    assert [(each.b, each.dtype_b) for each in found.added] == [("n", "int64")]


def quantized(model: onnx.ModelProto) -> None:
    """A quantized product: where the kernel and the bias stood are numbers of its input."""
    graph = model.graph
    made = {
        "x_scale": np.float32(0.5),
        "x_zero_point": np.uint8(7),
        "W_quantized": np.ones((4, 4), np.int8),
        "W_scale": np.ones(4, np.float32),
    }
    graph.node[0].input[1:] = list(made)
    del graph.initializer[:]
    for name, numbers in made.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(numbers), name))


def test_a_kernel_is_no_pair_of_a_scalar(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    """Weights are paired by name and shape: what has no other is told as one artifact's alone."""
    b = edited(tmp_path / "b.aotc", key, edit=quantized)
    for one, other in ((a, b), (b, a)):
        found = weights(diff(one, other))
        (pair,) = found.changed
        assert {pair.a, pair.b} == {"W", "W_quantized"}
        assert pair.shape_a == pair.shape_b == (4, 4)
        alone = {each.a for each in found.removed}, {each.b for each in found.added}
        numbers = {"x_scale", "x_zero_point", "W_scale"}
        assert alone == (({"b"}, numbers) if one == a else (numbers, {"b"}))


@pytest.mark.parametrize(("shape", "is_pair"), [((2, 8), True), ((1, 1), False), ((16,), False)])
def test_one_name_and_another_shape(
    shape: tuple[int, ...], is_pair: bool, a: Path, key: PrivateKey, tmp_path: Path
) -> None:
    """A layer that was made larger is the same; a number is not, nor what has other axes."""

    def reshaped(model: onnx.ModelProto) -> None:
        numbers = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(numbers, "W"))

    found = weights(diff(a, edited(tmp_path / "b.aotc", key, edit=reshaped)))
    assert ("W" in {each.a for each in found.changed}) is is_pair
    assert ("W" in {each.b for each in found.added}) is not is_pair


def test_another_name_at_the_same_input(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    """Trained anew and exported with other names: of one shape at the same input."""

    def trained_anew(model: onnx.ModelProto) -> None:
        numbers = values(a)
        for index, (name, part) in enumerate(
            (("kernel", numbers[:16].reshape(4, 4)), ("shift", numbers[16:]))
        ):
            model.graph.initializer[index].CopyFrom(numpy_helper.from_array(part + 1, name))
            model.graph.node[0].input[index + 1] = name

    found = changed(diff(a, edited(tmp_path / "b.aotc", key, edit=trained_anew)))
    assert {one: each.b for one, each in found.items()} == {"W": "kernel", "b": "shift"}


def test_a_packed_artifact_holds_the_same(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    numbers = values(a)
    numbers += 1e-3
    b = edited(tmp_path / "b.aotc", key, numbers.tobytes())
    packed = Path(pack(b, tmp_path / "b.aotc.zip").archive)
    assert diff(a, packed).weights == diff(a, b).weights
    assert diff(b, packed).same_id
    assert diff(b, packed).weights == ()


def outside(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].external_data[0].value = "../../../secret.bin"


def beyond(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].external_data[1].value = "4096"


def before(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].external_data[1].value = "-64"


def negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -4


def enormous(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 62, 1 << 62]


def unknown_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def too_short(model: onnx.ModelProto) -> None:
    tensor = onnx.TensorProto(name="W", data_type=onnx.TensorProto.FLOAT, dims=[4, 4])
    tensor.raw_data = b"abc"
    model.graph.initializer[0].CopyFrom(tensor)


@pytest.mark.parametrize(
    "edit", [outside, beyond, before, negative, enormous, unknown_type, too_short]
)
def test_a_model_that_is_not_as_described(
    edit: Edit, a: Path, key: PrivateKey, tmp_path: Path
) -> None:
    """Everything else is compared, and who must not have differences is told."""
    b = edited(tmp_path / "b.aotc", key, edit=edit)
    report = diff(a, b, fail_on=["weights"])
    assert {each.code for each in report.problems} == {"AOTC-I062"}
    assert report.area("weights").status == "not-compared"
    assert [each.code for each in report.failed] == ["AOTC-I061"]
    assert [each.by_structure for each in report.nodes] == [False, False]
    assert report.area("size").status in ("same", "changed")


def test_files_that_are_not_there_or_end_early(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    b = edited(tmp_path / "b.aotc", key, (values(a) + 1).tobytes())
    weights_file(b).write_bytes(b"short")
    assert {each.code for each in diff(a, b).problems} == {"AOTC-I062"}
    weights_file(b).unlink()
    assert {each.code for each in diff(a, b).problems} == {"AOTC-G006"}
    for path in (b / "payload").rglob("model.onnx"):
        path.write_bytes(b"no model")
    assert {each.code for each in diff(a, b).problems} == {"AOTC-I062"}


def test_an_attribute_that_differs(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    """Of a node with the same name and weights: it computes something else."""

    def doubled(model: onnx.ModelProto) -> None:
        model.graph.node[0].attribute.append(helper.make_attribute("alpha", 2.0))

    report = diff(a, edited(tmp_path / "b.aotc", key, edit=doubled), fail_on=["placement"])
    (altered,) = report.nodes[0].altered
    assert (altered.a, altered.b, altered.attributes) == ("gemm", "gemm", ("alpha",))
    assert report.area("placement").changes[0].what == "nodes altered"
    assert len(report.failed) == 1
    assert weights(report).changed == ()


_PARSED_HERE = """
import sys
from aotc.tools.diff.artifacts import diff
report = diff(*sys.argv[1:])
assert report.weights and report.nodes[0].by_structure and not report.problems
sys.exit("onnx" in sys.modules)
"""


def test_a_worker_parses_the_models(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    """They are foreign: this process has no parser, and reads none of a size that takes all."""
    b = edited(tmp_path / "b.aotc", key, (values(a) + 1).tobytes())
    done = subprocess.run(
        [sys.executable, "-c", _PARSED_HERE, a, b],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        check=False,
    )
    assert done.returncode == 0
    for path in (b / "payload").rglob("model.onnx"):
        with path.open("r+b") as file:
            file.truncate(MAX_MODEL_BYTES + 1)
    assert {each.code for each in diff(a, b).problems} == {"AOTC-G012"}


def test_weights_are_not_read_where_they_are_not_asked_for(
    a: Path, key: PrivateKey, tmp_path: Path
) -> None:
    b = edited(tmp_path / "b.aotc", key, (values(a) + 1).tobytes())
    report = diff(a, b, weights=False)
    assert (report.weights, report.area("weights").status) == ((), "not-compared")
    assert report.area("weights").reason == "it was not asked for"
    assert diff(a, b, weights=False, fail_on=["weights"]).weights != ()
