"""Exports for Triton: its own protobuf reads them, and their files answer as the artifact does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from built_artifact import BuiltArtifact
from google.protobuf import text_format
from made_profiles import small_profile
from onnx import TensorProto, helper
from plain_manifest import CPU, manifest, variant
from refusals import refusal
from third_party_models import MODELS, needs_models
from workbench import Workbench

from aotc import export, load
from aotc.base.records import replace
from aotc.spec.payload import FileEntry, Fixture, FixtureTensor, Value, ValueShapes
from aotc.spec.shapes import Dim, Domain, Relation
from aotc.spec.target import CustomOps, Plugin
from aotc.spec.variant import SessionSpec, Variant
from aotc.tools.export import ExportSource, Layout, describe
from aotc.tools.onnx_folder import layout as plain_layout
from aotc.tools.triton import layout
from aotc.trust.packing import pack

LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
# Elements of Triton's types in raw data; text has its length before it.
SIZES = {"BOOL": 1, "INT8": 1, "UINT8": 1, "INT32": 4, "INT64": 8, "FP16": 2, "FP32": 4, "FP64": 8}


def parsed(text: str, model_config: ModuleType) -> Any:
    """The text as Triton parses it: unknown fields and values of other types are errors."""
    return text_format.Parse(text, model_config.ModelConfig())


def opened(folder: Path, config: Any) -> ort.InferenceSession:
    """The model as Triton's backend opens it, with what the configuration says."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[config.optimization.graph.level]
    threads = config.parameters["intra_op_thread_count"].string_value
    options.intra_op_num_threads = int(threads or 0)
    place = folder / "1" / config.default_model_filename
    return ort.InferenceSession(str(place), options, providers=list(CPU))


def assert_shapes_fit(config: Any, session: ort.InferenceSession, types: ModuleType) -> None:
    """As Triton and the backend compare the configuration with the model.

    A size that the model leaves free may be stated of an input, and not of an output.  A tensor
    without dims has one of 1, and no reshape to none outside of batches.
    """
    for stated, own, exactly in (
        (config.input, session.get_inputs(), False),
        (config.output, session.get_outputs(), True),
    ):
        assert [each.name for each in stated] == [each.name for each in own]
        for one, value in zip(stated, own, strict=True):
            dims = list(one.dims) if not one.HasField("reshape") else list(one.reshape.shape)
            shape = [size if isinstance(size, int) else -1 for size in value.shape]
            if config.max_batch_size:
                assert shape[0] == -1
                dims = [-1, *dims]
            elif not shape:
                assert not one.HasField("reshape"), value.name
                assert dims == [1], value.name
                continue
            assert len(dims) == len(shape), value.name
            fits = all(
                size == dim or (size == -1 and not exactly)
                for size, dim in zip(shape, dims, strict=True)
            )
            assert fits, (value.name, shape, dims)
            assert types.DataType.Name(one.data_type) != "TYPE_INVALID"


def warm_up_calls(
    folder: Path, config: Any, session: ort.InferenceSession, types: ModuleType
) -> Iterable[dict[str, Any]]:
    """The requests that Triton makes of the warm-up data, with equal rows for a batch."""
    scalars = {each.name for each in session.get_inputs() if not each.shape}
    for each in config.model_warmup:
        call = {}
        for name, given in each.inputs.items():
            data = (folder / "warmup" / given.input_data_file).read_bytes()
            (value,) = (one for one in config.input if one.name == name)
            kind = types.DataType.Name(given.data_type).removeprefix("TYPE_")
            assert given.data_type == value.data_type
            if kind == "STRING":
                texts = []
                while data:
                    size = int.from_bytes(data[:4], "little")
                    texts.append(data[4 : 4 + size].decode("utf-8"))
                    data = data[4 + size :]
                array = np.array(texts, object)
            else:
                dtype = {"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8"}.get(kind)
                array = np.frombuffer(data, dtype or kind.lower())
                assert len(data) == SIZES[kind] * int(np.prod(given.dims, dtype=int))
            dims = [] if value.HasField("reshape") or name in scalars else list(given.dims)
            row = array.reshape(dims)
            call[name] = np.stack([row] * each.batch_size) if config.max_batch_size else row
        assert config.max_batch_size or each.batch_size == 1
        yield call


def assert_answers(
    built: Path, key: Path, place: Path, scratch: Path, types: ModuleType, **options: Any
) -> Any:
    """An export whose sessions answer bit for bit as the artifact, on fixtures and warm-ups."""
    report = export(built, place, key=key, format="triton", **options)
    (text,) = place.glob("*/config.pbtxt")
    folder = text.parent
    config = parsed(text.read_text(), types)
    assert config.name == folder.name
    session = opened(folder, config)
    assert_shapes_fit(config, session, types)
    calls = list(warm_up_calls(folder, config, session, types))
    assert calls
    with load(built, key=key, store=scratch / "store", variant=report.variant) as model:
        for call in calls:
            expected = model.run(call)
            found = dict(zip(expected, session.run(list(expected), call), strict=True))
            for name, value in expected.items():
                one, other = np.asarray(value), np.asarray(found[name])
                text = one.dtype == object
                assert one.shape == other.shape and one.dtype == other.dtype, name
                assert one.tolist() == other.tolist() if text else one.tobytes() == other.tobytes()
    return config


@pytest.mark.parametrize("name", ["portable", "native"])
def test_its_files_answer_as_the_artifact(
    digits: BuiltArtifact, name: str, tmp_path: Path, model_config: ModuleType
) -> None:
    config = assert_answers(
        digits.path, digits.public_key, tmp_path / "plain", tmp_path, model_config, variant=name
    )
    assert config.backend == "onnxruntime" and config.max_batch_size > 1
    assert config.HasField("dynamic_batching")
    assert list(config.version_policy.specific.versions) == [1]
    (group,) = config.instance_group
    assert (model_config.ModelInstanceGroup.Kind.Name(group.kind), group.count) == ("KIND_CPU", 1)
    assert config.optimization.graph.level == {"portable": 0, "native": 2}[name]
    rows = [each.batch_size for each in config.model_warmup]
    assert rows == sorted(set(rows)) and rows[0] == 1 and rows[-1] > 1
    # A request of the data has the values of the fixture's first row.
    fixture = np.load(digits.payload / "fixtures" / "opt" / "input_0.npy")
    data = (tmp_path / "plain" / "digits" / "warmup" / "opt-0.bin").read_bytes()
    assert data == fixture[:1].tobytes()


def test_text_and_sizes_of_their_own(
    bench: Workbench, tmp_path: Path, model_config: ModuleType
) -> None:
    """Text, numbers without a dim, dims that are no batch, and fixed sizes."""
    nodes = [
        helper.make_node("StringConcat", ["words", "words"], ["twice"]),
        helper.make_node("MatMul", ["a", "b"], ["product"]),
        helper.make_node("Mul", ["product", "scale"], ["scaled"]),
        helper.make_node("ReduceMax", ["scaled"], ["largest"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("words", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", 3]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [3, "columns"]),
            helper.make_tensor_value_info("scale", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("twice", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("scaled", TensorProto.FLOAT, ["rows", "columns"]),
            helper.make_tensor_value_info("largest", TensorProto.FLOAT, []),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    built = bench.build(
        model, "words and sizes", profile=small_profile("edge", dims={"rows": "1..4", "columns": 5})
    )
    error = refusal(lambda: export(built.path, tmp_path / "no", key=bench.public, format="triton"))
    assert (error.code, error.found, error.where) == ("AOTC-I226", built.manifest.name, "--name")
    config = assert_answers(
        built.path, bench.public, tmp_path / "plain", tmp_path, model_config, name="words.v1"
    )
    assert (config.name, config.max_batch_size) == ("words.v1", 0)
    assert not config.HasField("dynamic_batching")
    dims = {each.name: list(each.dims) for each in (*config.input, *config.output)}
    assert dims == {
        **{"words": [2], "a": [-1, 3], "b": [3, 5], "scale": [1]},
        **{"twice": [2], "scaled": [-1, 5], "largest": [1]},
    }
    text = " ".join((tmp_path / "plain" / "README.md").read_text().split())
    assert "`rows` 1..4, which nobody holds requests to." in text
    assert "No batches" in text


@needs_models
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "dims", "batch"),
    [
        ("silero_vad_v6", {"input.0": "1..2"}, 0),
        ("tract_bidi_lstm", {"batch": "1..4", "length": "8..16"}, 4),
        ("yunet_n_dynamic", {"batch": "1..2"}, 2),
    ],
)
def test_models_of_others(
    bench: Workbench,
    tmp_path: Path,
    model_config: ModuleType,
    model: str,
    dims: dict[str, str],
    batch: int,
) -> None:
    built = bench.build(MODELS / f"{model}.onnx", model, profile=small_profile("edge", dims=dims))
    config = assert_answers(built.path, bench.public, tmp_path / "x", tmp_path, model_config)
    assert config.max_batch_size == batch


def test_equal_bytes_from_a_folder_and_a_packed_file(digits: BuiltArtifact, tmp_path: Path) -> None:
    pack(digits.path, tmp_path / "packed.zip")
    for format in ("triton", "kserve"):
        reports = [
            export(
                source,
                tmp_path / name,
                key=digits.public_key,
                format=format,
                reverify=True,
                force=True,
            )
            for source, name in ((digits.path, "a"), (tmp_path / "packed.zip", "b"))
        ]
        assert reports[0].files == reports[1].files
        for name in reports[0].files:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        said = json.loads((tmp_path / "a" / "export.json").read_text())
        assert (said["format"], said["model"]) == (format, "digits")
        assert sorted([*said["files"], "export.json"]) == sorted(reports[0].files)
        shutil.rmtree(tmp_path / "a")
        shutil.rmtree(tmp_path / "b")


# What a configuration says of manifests that no build here makes.


def source_of(
    *inputs: Value,
    outputs: tuple[Value, ...] = (Value(name="y", dtype="float32", shape=("batch", 2)),),
    domain: Domain | None = None,
    name: str = "m",
    made: Variant | None = None,
    **fields: Any,
) -> ExportSource:
    made = made or variant("portable")
    stated = replace(manifest(*inputs, domain=domain, variants=(made,)), outputs=outputs, **fields)
    described = describe(stated, "0" * 64, made, format="triton", model=name, unproven="")
    return ExportSource(manifest=stated, variant=made, described=described, name=name)


def config_of(model_config: ModuleType, source: ExportSource) -> Any:
    return parsed(laid(source).texts[f"{source.name}/config.pbtxt"], model_config)


def laid(source: ExportSource) -> Layout:
    return layout(source)


def dims(**ranges: tuple[int, int]) -> Domain:
    return Domain(
        dims={name: Dim(min=low, max=high, opt=high) for name, (low, high) in ranges.items()}
    )


X = Value(name="x", dtype="float32", shape=("batch", 3))


def test_what_is_a_batch(model_config: ModuleType) -> None:
    def batch(source: ExportSource) -> int:
        config = config_of(model_config, source)
        assert config.HasField("dynamic_batching") == (config.max_batch_size > 0)
        return int(config.max_batch_size)

    free = dims(batch=(1, 8))
    assert batch(source_of(X, domain=free)) == 8
    assert batch(source_of(X, domain=dims(batch=(0, 2**31)))) == 2**31 - 1
    # Not from 1 on, not all sizes, one size alone.
    assert batch(source_of(X, domain=dims(batch=(2, 8)))) == 0
    steps = Domain(dims={"batch": Dim(min=4, max=8, opt=8, multiple_of=4)})
    assert batch(source_of(X, domain=steps)) == 0
    gaps = Domain(dims={"batch": Dim(min=1, max=8, opt=8, gaps=(3,))})
    assert batch(source_of(X, domain=gaps)) == 0
    assert batch(source_of(X, domain=dims(batch=(1, 1)))) == 0
    # An input or output without it, or with it in another place.
    other = Value(name="z", dtype="float32", shape=("n",))
    assert batch(source_of(X, other, domain=dims(batch=(1, 8), n=(1, 8)))) == 0
    assert batch(source_of(X, Value(name="z", dtype="float32", shape=()), domain=free)) == 0
    square = Value(name="z", dtype="float32", shape=("batch", "batch"))
    assert batch(source_of(X, square, domain=free)) == 0
    # Another name of it is it; a sum of it is not.
    joined = replace(free, relations=(Relation(dim="n", terms=("batch",)),))
    assert batch(source_of(X, other, domain=joined)) == 8
    total = Value(name="z", dtype="float32", shape=("batch", "n"))
    summed = replace(free, relations=(Relation(dim="n", terms=("batch",), constant=1),))
    assert batch(source_of(X, total, domain=summed)) == 0
    # A graph for one size, and one that was proven for no other.
    small = replace(variant("b4"), buckets={"batch": 4})
    bucketed = Domain(dims={"batch": Dim(min=1, max=8, opt=4, buckets=(4, 8))})
    config = config_of(model_config, source_of(X, domain=bucketed, made=small))
    assert config.max_batch_size == 0
    assert [list(each.dims) for each in (*config.input, *config.output)] == [[4, 3], [4, 2]]


def test_what_runs_showed_of_outputs(model_config: ModuleType) -> None:
    """Names of their own are those of the inputs, where runs of the build showed that."""
    shapes = (ValueShapes(name="y", declared=("o",), produced=("batch", "past + 1")),)
    unnamed = (Value(name="y", dtype="float32", shape=("o", "p")),)
    domain = dims(batch=(1, 8), past=(5, 5))
    found = config_of(model_config, source_of(X, outputs=unnamed, shapes=shapes, domain=domain))
    assert (found.max_batch_size, list(found.output[0].dims)) == (8, [6])
    # Without a fixed size, what only runs showed is not what ONNX Runtime says of the model.
    for inferred, expected in ((("?", "?"), -1), (("?", 6), 6)):
        shapes = (ValueShapes(name="y", inferred=inferred, produced=("batch", 6)),)
        made = source_of(X, outputs=unnamed, shapes=shapes, domain=dims(batch=(1, 8)))
        assert list(config_of(model_config, made).output[0].dims) == [expected]


def test_names_of_a_model_are_no_lines_of_the_readme() -> None:
    odd = "n\n\n## Serve it\n\n```sh\nevil"
    values = (Value(name=odd, dtype="float32", shape=()), replace(X, shape=(odd, 3)))
    made = source_of(*values, domain=dims(**{odd: (1, 8)}))
    described = replace(made.described, sizes={odd: "1..8"})
    lines = [
        line
        for layout_of in (layout, plain_layout)
        for line in layout_of(replace(made, described=described)).texts["README.md"].splitlines()
    ]
    assert "evil" not in lines and lines.count("## Serve it") == 1
    assert sum("\\n## Serve it" in line for line in lines) == 3


def test_types_names_and_options(model_config: ModuleType) -> None:
    odd = 'caf\N{LATIN SMALL LETTER E WITH ACUTE} "x"\\n'
    values = [
        Value(name=f"{odd}{kind}", dtype=kind, shape=("batch",))
        for kind in ("bool", "uint8", "int64", "float16", "float64", "string")
    ]
    session = SessionSpec(
        optimization="extended",
        threads=3,
        config={
            "session.use_device_allocator_for_initializers": "1",
            "session.x64quantprecision": "1",
        },
    )
    source = source_of(
        *values, domain=dims(batch=(1, 8)), made=replace(variant("portable"), session=session)
    )
    config = config_of(model_config, source)
    assert [each.name for each in config.input] == [each.name for each in values]
    kinds = [model_config.DataType.Name(each.data_type) for each in config.input]
    assert kinds == [f"TYPE_{x}" for x in ("BOOL", "UINT8", "INT64", "FP16", "FP64", "STRING")]
    # A row of one number has no dim of its own.
    assert all(list(each.dims) == [1] and each.HasField("reshape") for each in config.input)
    assert config.optimization.graph.level == 1
    assert {key: each.string_value for key, each in config.parameters.items()} == {
        "intra_op_thread_count": "3",
        "session.use_device_allocator_for_initializers": "1",
    }
    found = laid(source)
    (finding,) = found.findings
    assert finding.code == "AOTC-I227" and "session.x64quantprecision" in finding.what
    assert "does not set**: `session.x64quantprecision`" in found.texts["README.md"]


def test_on_a_gpu(model_config: ModuleType) -> None:
    cuda = "CUDAExecutionProvider"
    session = SessionSpec(
        optimization="all",
        provider_options={cuda: {"enable_cuda_graph": "1", "prefer_nhwc": "1"}},
    )
    made = replace(variant("cuda"), providers=(cuda, *CPU), session=session)
    config = config_of(model_config, source_of(X, domain=dims(batch=(1, 8)), made=made))
    (group,) = config.instance_group
    assert model_config.ModelInstanceGroup.Kind.Name(group.kind) == "KIND_GPU"
    (own,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    # What only who names a captured graph may use stays behind.
    assert (own.name, dict(own.parameters)) == ("cuda", {"prefer_nhwc": "1"})


def test_warm_up_takes_what_the_graph_takes(model_config: ModuleType) -> None:
    """Fixtures of sizes that it runs as they are, one for each, and not too much of them."""

    def fixture(name: str, size: int, bytes_: int = 100, **more: Any) -> tuple[Fixture, FileEntry]:
        path = f"fixtures/{name}/input_0.npy"
        return (
            Fixture(
                name=name,
                origin="generated",
                sizes={"batch": size},
                inputs=(FixtureTensor(name="x", path=path),),
                outputs=(FixtureTensor(name="y", path=path),),
                **more,
            ),
            FileEntry(path=path, size=bytes_, sha256="0" * 64, role="fixture"),
        )

    pairs = [
        fixture("empty", 0),
        fixture("one", 1),
        fixture("again", 1),
        fixture("huge", 2, 17 << 20),
        fixture("excluded", 3, excluded_variants=("portable",)),
        fixture("large", 9),
        fixture("last", 8),
    ]
    made = source_of(
        X,
        domain=dims(batch=(0, 8)),
        fixtures=tuple(one for one, _ in pairs),
        files=tuple(sorted((entry for _, entry in pairs), key=lambda each: each.path)),
    )
    config = config_of(model_config, made)
    assert [(each.name, each.batch_size) for each in config.model_warmup] == [
        ("one", 1),
        ("last", 8),
    ]
    assert sorted(laid(made).taken) == ["m/warmup/last-0.bin", "m/warmup/one-0.bin"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Value(name="x", dtype="bfloat16", shape=("batch", 3)), "bfloat16"),
        (Value(name="x", dtype="complex64", shape=("batch", 3)), "complex64"),
        (Value(name="x", kind="sequence", dtype="float32"), "sequence of float32"),
        (Value(name="x", kind="optional", dtype="int64", shape=(1,)), "optional of int64"),
        (Value(name="x", dtype="float32"), "none"),
        (Value(name="x", dtype="float32", shape=("batch", 0)), "a size of 0"),
        (Value(name="x", dtype="float32", shape=("batch", "none")), "a size of 0"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_values_that_its_backend_does_not_take(value: Value, found: str) -> None:
    error = refusal(lambda: laid(source_of(value, domain=dims(batch=(1, 8), none=(0, 0)))))
    assert (error.code, error.where, error.found) == (
        "AOTC-I225",
        "variant portable: value x",
        found,
    )


def test_an_output_of_a_rank_that_only_runs_showed() -> None:
    """The backend takes it for one without dims."""
    outputs = (Value(name="y", dtype="float32"),)
    shapes = (ValueShapes(name="y", produced=("batch", 6)),)
    made = source_of(X, outputs=outputs, shapes=shapes, domain=dims(batch=(1, 8)))
    error = refusal(lambda: laid(made))
    assert (error.code, error.where) == ("AOTC-I225", "variant portable: value y")


def test_variants_that_its_backend_does_not_run() -> None:
    plain = variant("portable")
    library = CustomOps(name="ops.so", sha256="0" * 64, size=1, path="custom_ops/ops.so")
    plugin = Plugin(name="onnxruntime-ep-own", version="1.0", provider="OwnExecutionProvider")
    for made, found in (
        (
            replace(plain, providers=("OpenVINOExecutionProvider", *CPU)),
            "OpenVINOExecutionProvider",
        ),
        (
            replace(plain, requirements=replace(plain.requirements, plugins=(plugin,))),
            "OwnExecutionProvider",
        ),
        (
            replace(plain, requirements=replace(plain.requirements, custom_ops=(library,))),
            "ops.so",
        ),
        (replace(plain, session=SessionSpec(optimization="layout")), "layout"),
    ):
        source = source_of(X, domain=dims(batch=(1, 8)), made=made)
        error = refusal(lambda source=source: laid(source))
        assert (error.code, error.found) == ("AOTC-I225", found)


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "a b", "é", "x" * 256, "README.md", "export.json"]
)
def test_names_that_it_does_not_serve(name: str) -> None:
    error = refusal(lambda: laid(source_of(X, domain=dims(batch=(1, 8)), name=name)))
    assert (error.code, error.found) == ("AOTC-I226", name)


def test_no_file_leaves_the_folder_of_the_model() -> None:
    plain = variant("portable")
    made = replace(plain, model="a/b/c/model.onnx", files=("a/b/c/model.onnx", "out.bin"))
    source = source_of(X, domain=dims(batch=(1, 8)), made=made)
    for layout_of in (layout, plain_layout):
        error = refusal(lambda layout_of=layout_of: layout_of(source))
        assert (error.code, error.found) == ("AOTC-I119", "out.bin")


def test_a_plain_model_has_no_name(digits: BuiltArtifact, tmp_path: Path) -> None:
    error = refusal(lambda: export(digits.path, tmp_path / "x", key=digits.public_key, name="n"))
    assert (error.code, error.where) == ("AOTC-I229", "--name")
    assert not (tmp_path / "x").exists()
