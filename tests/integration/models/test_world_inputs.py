"""Models that ONNX Runtime runs and exporters seldom write: built, or refused with a name."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import model_parts
import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper
from refusals import refusal
from shared_workers import build
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import inspect
from aotc.base.errors import AotcError
from aotc.spec.json import strict_json
from aotc.spec.profile import ProbeLimits, Profile, VariantSpec
from aotc.trust.gate import verify

FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8
MICROSOFT = "com.microsoft"

constant = partial(model_parts.constant, dtype=np.float32)
model_of = partial(model_parts.model_of, domains=(MICROSOFT,))


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def refused(bench: Workbench, model: onnx.ModelProto | Path, code: str) -> AotcError:
    error = refusal(bench.build, model, "refused")
    assert (error.code, error.exit_status) == (code, 3), error
    return error


def assert_works(bench: Workbench, built: Built, *calls: dict[str, Any]) -> None:
    session = plain_session(built.source)
    with bench.load(built) as ready:
        for inputs in calls:
            expected = plain_answer(session, inputs)
            assert_agree(expected, ready.run(inputs), tolerance_of(built))


# -- outputs without a type


def test_outputs_without_a_type(bench: Workbench) -> None:
    """Of ONNX's operators, of ONNX Runtime's, and a sequence."""
    model = model_of(
        [
            helper.make_node("Relu", ["x"], ["bent"]),
            helper.make_node("FusedMatMul", ["x", "w"], ["product"], domain=MICROSOFT, alpha=2.0),
            helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
        ],
        [info("x", ["batch", 4])],
        [onnx.ValueInfoProto(name=name) for name in ("bent", "product", "parts")],
        [constant("w", np.eye(4))],
    )
    built = bench.build(model, "untyped")
    kinds = {value.name: (value.kind, value.dtype) for value in built.manifest.outputs}
    assert kinds == {
        "bent": ("tensor", "float32"),
        "product": ("tensor", "float32"),
        "parts": ("sequence", "float32"),
    }
    assert_works(bench, built, {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)})
    with pytest.raises(AotcError) as caught:
        inspect(built.source)
    assert (caught.value.code, caught.value.where) == ("AOTC-I007", "product")
    del model.graph.node[1], model.graph.output[1]
    outputs = inspect(bench.save(model, "onnx-only")).outputs
    assert [(value.name, value.kind, value.dtype) for value in outputs] == [
        ("bent", "tensor", "float32"),
        ("parts", "sequence", "float32"),
    ]


@pytest.mark.parametrize("listed", [("y", "y"), ("x", "y", "x", "y")], ids=["twice", "mixed"])
def test_an_output_that_is_listed_twice(bench: Workbench, listed: tuple[str, ...]) -> None:
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])],
        [info("x", ["batch", 4])],
        [info(name, ["batch", 4]) for name in listed],
    )
    built = bench.build(model, "listed")
    names = list(dict.fromkeys(listed))
    assert [value.name for value in built.manifest.outputs] == names
    assert built.finding("AOTC-I094") == f"listed more than once: {', '.join(names)}"
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    with bench.load(built) as ready:
        found = ready.run({"x": x})
    assert list(found) == names
    assert np.array_equal(found["y"], np.maximum(x, 0))


def test_an_input_without_a_type(bench: Workbench) -> None:
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])],
        [onnx.ValueInfoProto(name="x")],
        [info("y", ["batch"])],
    )
    assert refused(bench, model, "AOTC-I007").where == "x"


# -- malformed and deeply nested


def test_a_constant_without_an_output(bench: Workbench) -> None:
    value = constant("", [1.0])
    model = model_of(
        [
            helper.make_node("Constant", [], [], value=value),
            helper.make_node("Relu", ["x"], ["y"]),
        ],
        [info("x", ["batch"])],
        [info("y", ["batch"])],
    )
    assert "Constant should have 1 output" in refused(bench, model, "AOTC-I012").found


def varint(number: int) -> bytes:
    more = number >> 7
    return bytes([number & 127 | 128]) + varint(more) if more else bytes([number])


def field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message that holds `data`, which may nest deeper than onnx writes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def nested(depth: int) -> bytes:
    """A model of `depth` Ifs within each other, the innermost of which gives x, others -x."""
    body = field(1, helper.make_node("Identity", ["x"], ["y"]).SerializeToString())
    output = field(12, info("y", ["batch"]).SerializeToString())
    negated = [helper.make_node("Neg", ["x"], ["no"])]
    other = helper.make_graph(negated, "no", [], [info("no", ["batch"])])
    otherwise = helper.make_attribute("else_branch", other).SerializeToString()
    for _ in range(depth):
        then = field(1, b"then_branch") + field(6, body + field(2, b"body") + output)
        node = field(1, b"choice") + field(2, b"y") + field(4, b"If") + field(5, otherwise)
        body = field(1, node + field(5, then + varint(20 << 3) + varint(5)))
    for value in (info("x", ["batch"]), info("choice", [], TensorProto.BOOL)):
        body += field(11, value.SerializeToString())
    graph = field(7, body + output + field(2, b"nested"))
    opset = field(8, helper.make_opsetid("", 17).SerializeToString())
    return varint(1 << 3) + varint(8) + graph + opset


def test_subgraphs_within_subgraphs(bench: Workbench) -> None:
    """As many as ONNX Runtime reads; its limit is 100 nested messages."""
    deepest = bench.folder / "deepest.onnx"
    deepest.write_bytes(nested(31))
    built = bench.build(deepest, "deepest")
    x = np.array([1.0, -2.0], np.float32)
    assert_works(bench, built, *({"x": x, "choice": np.array(way)} for way in (True, False)))
    too_deep = bench.folder / "too-deep.onnx"
    too_deep.write_bytes(nested(32))
    with pytest.raises(Exception, match="Protobuf parsing failed"):
        plain_session(too_deep)
    assert refused(bench, too_deep, "AOTC-I002").what == "the model is nested too deeply"


# -- kinds and types of inputs


@pytest.mark.parametrize(("bits", "opset", "ir_version"), [(4, 21, 10), (2, 25, 13)])
def test_integers_of_less_than_a_byte(
    bench: Workbench, bits: int, opset: int, ir_version: int
) -> None:
    names = [f"int{bits}", f"uint{bits}"]
    codes = [TensorProto.DataType.Value(name.upper()) for name in names]
    nodes, inputs, outputs = [], [info("x", ["batch", 3])], []
    for name, code in zip(names, codes, strict=True):
        nodes.append(helper.make_node("Cast", [f"{name}_in"], [f"{name}_wide"], to=FLOAT))
        nodes.append(helper.make_node("Cast", ["x"], [f"{name}_out"], to=code))
        inputs.append(info(f"{name}_in", ["batch", 3], code))
        outputs += [
            info(f"{name}_wide", ["batch", 3]),
            info(f"{name}_out", ["batch", 3], code),
        ]
    model = model_of(nodes, inputs, outputs, opset=opset, ir_version=ir_version)
    built = bench.build(model, "narrow")
    rng = np.random.default_rng(bits)
    for batch in (1, 2, 5):
        given: dict[str, Any] = {"x": np.arange(batch * 3, dtype=np.float32).reshape(batch, 3) % 2}
        for name in names:
            limits = ml_dtypes.iinfo(name)
            values = rng.integers(limits.min, limits.max + 1, (batch, 3))
            given[f"{name}_in"] = values.astype(np.int8).astype(name)
        with bench.load(built) as ready:
            found = ready.run(given)
        for name in names:
            wide = given[f"{name}_in"].astype(np.float32)
            assert np.array_equal(found[f"{name}_wide"], wide)
            assert found[f"{name}_out"].dtype == np.dtype(name)
            assert np.array_equal(found[f"{name}_out"].astype(np.float32), given["x"])


def test_an_optional_list(bench: Workbench) -> None:
    listed = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["batch", 4]))
    model = model_of(
        [
            helper.make_node("OptionalGetElement", ["x"], ["parts"]),
            helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0),
        ],
        [helper.make_value_info("x", helper.make_optional_type_proto(listed))],
        [info("y", ["rows", 4])],
    )
    built = bench.build(model, "optional")
    assert_works(bench, built, {"x": [np.full((2, 4), i, np.float32) for i in range(3)]})


def test_a_narrow_float_next_to_a_list(bench: Workbench) -> None:
    listed = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["batch", 4]))
    model = model_of(
        [
            helper.make_node("Cast", ["x"], ["wide"], to=FLOAT),
            helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0),
        ],
        [
            info("x", ["batch", 4], TensorProto.BFLOAT16),
            helper.make_value_info("parts", listed),
        ],
        [info("wide", ["batch", 4]), info("y", ["rows", 4])],
    )
    built = bench.build(model, "beside")
    x = np.arange(8).reshape(2, 4).astype(ml_dtypes.bfloat16)
    parts = [np.full((2, 4), i, np.float32) for i in range(3)]
    with bench.load(built) as ready:
        found = ready.run({"x": x, "parts": parts})
    assert np.array_equal(found["wide"], x.astype(np.float32))
    assert np.array_equal(found["y"], np.concatenate(parts))


def test_a_sparse_input(bench: Workbench) -> None:
    model = model_of(
        [helper.make_node("SparseToDenseMatMul", ["x", "w"], ["y"], domain=MICROSOFT)],
        [helper.make_value_info("x", helper.make_sparse_tensor_type_proto(FLOAT, [4, 4]))],
        [info("y", [4, 4])],
        [constant("w", np.eye(4))],
    )
    plain_session(bench.save(model, "sparse"))
    error = refused(bench, model, "AOTC-I042")
    assert (error.where, error.found) == ("x", "sparse_tensor(float32)")


# -- numbers


@pytest.mark.parametrize("power", [24, 38])
def test_errors_that_only_long_digits_can_write(bench: Workbench, power: int) -> None:
    """Outputs near 1e24 differ by some 1e18; with outputs near 1e38 some are infinite."""
    rng = np.random.default_rng(24)
    model = model_of(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("Mul", ["c", "scale"], ["y"]),
        ],
        [info("x", ["batch", 3, 16, 16])],
        [info("y", ["batch", 8, 14, 14])],
        [constant("w", rng.normal(size=(8, 3, 3, 3))), constant("scale", [[[10.0**power]]])],
        opset=17,
        ir_version=8,
    )
    built = bench.build(model, "large")
    errors = [
        error.max_abs
        for variant in built.report.variants
        for comparison in variant.comparisons
        for error in comparison.outputs
    ]
    if power == 24:
        # Otherwise this machine's kernels agree to the bit, and the test shows nothing.
        assert any(2**53 < error < 1e21 for error in errors)
    else:
        assert "AOTC-N005" in built.codes()
    assert verify(built.path, key=bench.public).authentic
    assert inspect(built.path).kind == "artifact"
    for file in built.path.rglob("*.json"):
        strict_json(file.read_bytes())


# -- sizes


def test_a_quantized_product_over_nothing(bench: Workbench) -> None:
    """ONNX Runtime returns memory that it never wrote: such a size is not in the domain.

    Without rows or columns there is nothing to write.
    """
    quantized = [constant("s", 0.1), constant("z", 128, dtype=np.uint8)]
    model = model_of(
        [helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "s", "z", "s", "z"], ["y"])],
        [info("x", ["rows", "inner"], UINT8), info("w", ["inner", "columns"], UINT8)],
        [info("y", ["rows", "columns"], UINT8)],
        quantized,
    )
    built = bench.build(model, "quantized")
    assert {name: dim.min for name, dim in built.manifest.domain.dims.items()} == {
        "rows": 0,
        "inner": 1,
        "columns": 0,
    }
    assert built.manifest.domain.not_empty == (("inner",),)
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 5), "w": (5, 2)}
    assert_works(
        bench, built, {name: rng.integers(0, 256, s, np.uint8) for name, s in shapes.items()}
    )


def test_a_plain_product_over_nothing(bench: Workbench) -> None:
    """ONNX Runtime answers zero: it is a size like others, requested or not."""
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [info("x", [2, "inner"]), info("w", ["inner", 3])],
        [info("y", [2, 3])],
    )
    assert bench.build(model, "plain").manifest.domain.dims["inner"].min == 0
    built = bench.build(model, "asked", dims={"inner": "0..8"})
    assert built.manifest.domain.dims["inner"].min == 0


@pytest.mark.parametrize("dims", [{}, {"batch": "1..3"}], ids=["free", "stated"])
def test_an_input_beyond_the_limits_of_the_search(bench: Workbench, dims: dict[str, str]) -> None:
    """They limit the tried sizes of a free dim, and not the model."""
    model = model_of(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[8, 8], strides=[8, 8])],
        [info("x", ["batch", 1, 64, 64]), info("z", ["other"])],
        [info("y", ["batch", 1, 8, 8]), info("z", ["other"])],
    )
    model.graph.output[1].name = "t"
    model.graph.node.append(helper.make_node("Relu", ["z"], ["t"]))
    profile = Profile(
        schema="aotc.profile/1",
        name="tight",
        variants=(VariantSpec(name="portable"),),
        probe=ProbeLimits(max_input_bytes=8192),
    )
    built = bench.build(model, "large", profile=profile, dims=dims)
    assert built.manifest.domain.dims["batch"].max == (3 if dims else 1)
    x = np.random.default_rng(1).normal(size=(1, 1, 64, 64)).astype(np.float32)
    assert_works(bench, built, {"x": x, "z": np.ones(1, np.float32)})


# -- external data


def external(tensor: onnx.TensorProto, path: Path) -> onnx.TensorProto:
    """`tensor` with its data in the file `path`."""
    path.write_bytes(tensor.raw_data)
    result = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    result.data_location = TensorProto.EXTERNAL
    result.external_data.add(key="location", value=path.name)
    return result


def linear(folder: Path) -> onnx.ModelProto:
    """`y = x @ w` with w in `folder`."""
    folder.mkdir()
    weight = constant("w", np.random.default_rng(2).normal(size=(32, 32)))
    return model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [info("x", ["batch", 32])],
        [info("y", ["batch", 32])],
        [external(weight, folder / "weights.bin")],
    )


@pytest.mark.parametrize("beside", ["link", "file"])
def test_a_link_to_a_model_with_external_data(bench: Workbench, beside: str) -> None:
    """Download caches: the model is a link, and its data is next to the target or to the link."""
    folders = {"link": bench.folder / "links", "file": bench.folder / "files"}
    model = linear(folders[beside])
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    file, link = folders["file"] / "0123", folders["link"] / "model.onnx"
    file.write_bytes(model.SerializeToString())
    link.symlink_to("../files/0123")
    built = bench.build(link, "linked")
    x = np.random.default_rng(3).normal(size=(2, 32)).astype(np.float32)
    weight = np.frombuffer((folders[beside] / "weights.bin").read_bytes(), np.float32)
    with bench.load(built) as ready:
        assert np.allclose(ready.run({"x": x})["y"], x @ weight.reshape(32, 32), atol=1e-4)


def hub(folder: Path, file: str, links: bool) -> Path:
    """The model `linear` as a cache of a hub lays it, in the snapshot's `file`."""
    plain = folder / "plain"
    model = linear(plain)
    (plain / "model").write_bytes(model.SerializeToString())
    blobs, snapshot = folder / "hub" / "blobs", folder / "hub" / "snapshots" / "r1"
    place = snapshot / file
    blobs.mkdir(parents=True)
    place.parent.mkdir(parents=True)
    for blob, name, at in (
        ("c0", "model", place),
        ("d0", "weights.bin", place.with_name("weights.bin")),
    ):
        (plain / name).rename(blobs / blob)
        up = "/".join([".."] * len(at.parent.relative_to(folder / "hub").parts))
        if links:
            at.symlink_to(f"{up}/blobs/{blob}")
        else:
            at.hardlink_to(blobs / blob)
    return place


def data_of(place: Path) -> bytes:
    return place.with_name("weights.bin").read_bytes()


def assert_multiplies(bench: Workbench, built: Built, weights: bytes) -> None:
    x = np.random.default_rng(3).normal(size=(2, 32)).astype(np.float32)
    weight = np.frombuffer(weights, np.float32)[: 32 * 32].reshape(32, 32)
    with bench.load(built) as ready:
        assert np.allclose(ready.run({"x": x})["y"], x @ weight, atol=1e-4)


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx"])
@pytest.mark.parametrize("links", [True, False], ids=["links", "hardlinks"])
def test_a_cache_of_a_hub(bench: Workbench, file: str, links: bool) -> None:
    place = hub(bench.folder, file, links)
    for folder in (place.parent, bench.folder / "hub" / "blobs"):
        folder.chmod(0o555)
    built = bench.build(place, "hub")
    assert_multiplies(bench, built, data_of(place))
    (data,) = built.manifest.source.external_data
    assert (data.location, data.sha256) == ("weights.bin", sha256(data_of(place)).hexdigest())
    assert "AOTC-I030" not in built.codes()
    # It is the model's bytes that count, not how they lie.
    plain = bench.folder / "copy"
    plain.mkdir()
    for name in ("model.onnx", "weights.bin"):
        (plain / name).write_bytes((place.parent / name).read_bytes())
    again = bench.build(plain / "model.onnx", "again")
    assert again.report.artifact_id == built.report.artifact_id
    found = inspect(place).source.external_data
    assert found == built.manifest.source.external_data


def test_a_changed_model_in_a_snapshot_reads_the_blobs_of_its_hub(bench: Workbench) -> None:
    place = hub(bench.folder, "model.onnx", links=True)
    content = place.read_bytes()
    place.unlink()
    place.write_bytes(content)
    assert_multiplies(bench, bench.build(place, "edited"), data_of(place))


@pytest.mark.parametrize("link", ["file", "folder"])
def test_links_within_the_folder_of_the_model(bench: Workbench, link: str) -> None:
    model = linear(bench.folder / "model")
    data = bench.folder / "model" / "weights.bin"
    if link == "file":
        data.rename(data.with_name("held.bin"))
        data.symlink_to("held.bin")
    else:
        model.graph.initializer[0].external_data[0].value = "link/weights.bin"
        (data.parent / "held").mkdir()
        data = data.rename(data.parent / "held" / "weights.bin")
        (bench.folder / "model" / "link").symlink_to("held")
    source = bench.folder / "model" / "model.onnx"
    source.write_bytes(model.SerializeToString())
    assert_multiplies(bench, bench.build(source, "within"), data.read_bytes())


def test_data_that_is_a_link_elsewhere(bench: Workbench) -> None:
    model = linear(bench.folder / "model")
    data = bench.folder / "model" / "weights.bin"
    data.rename(bench.folder / "data")
    data.symlink_to("../data")
    source = bench.folder / "model" / "model.onnx"
    source.write_bytes(model.SerializeToString())
    assert refused(bench, source, "AOTC-I006").where == str(data)


def test_bytes_of_a_model_with_external_data(bench: Workbench) -> None:
    model = linear(bench.folder / "model")
    with pytest.raises(AotcError) as caught:
        build(model.SerializeToString(), output=bench.folder / "out.aotc", key=bench.private)
    error = caught.value
    assert (error.code, error.where) == ("AOTC-I003", "weights.bin")
    assert error.fix.startswith("Give the path of the model")


def test_a_shape_in_an_external_file(bench: Workbench) -> None:
    """ONNX Runtime accepts none; its message is quoted."""
    folder = bench.folder / "model"
    folder.mkdir()
    shape = external(constant("shape", [-1, 4], dtype=np.int64), folder / "shape.bin")
    model = model_of(
        [
            helper.make_node("Constant", [], ["shape"], value=shape),
            helper.make_node("Reshape", ["x", "shape"], ["y"]),
        ],
        [info("x", ["batch", 2, 2])],
        [info("y", ["batch", 4])],
    )
    source = folder / "model.onnx"
    source.write_bytes(model.SerializeToString())
    assert "external tensors" in refused(bench, source, "AOTC-I012").found
