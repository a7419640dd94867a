"""Sessions of small models: options, strictness, messages, types that numpy lacks, placement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.base.errors import INSTALL_RUNTIME, AotcError
from aotc.providers import ort
from aotc.providers.base import BACKENDS, Capability, ClaimRequest
from aotc.session import sessions
from aotc.session import sessions as session
from aotc.spec.providers import MANIFEST_KEYS
from aotc.spec.target import Target
from aotc.spec.variant import NodePlacement, SessionSpec

CPU = ("CPUExecutionProvider",)
PLAIN = SessionSpec(optimization="disable")


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=9,
    )


def identity(dtype: int, shape: Sequence[Any]) -> bytes:
    return model(
        [helper.make_node("Identity", ["x"], ["y"], name="same")],
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
    ).SerializeToString()


def add(folder: Path) -> bytes:
    """y = x + w, with w in an external file."""
    (folder / "w.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    weight = TensorProto(name="w", dims=[3], data_type=TensorProto.FLOAT)
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "12")):
        weight.external_data.add(key=key, value=value)
    return model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="plus")],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    ).SerializeToString()


def test_external_weights_are_found_in_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    content = add(folder)
    monkeypatch.chdir(tmp_path)
    opened = session.create_session(
        content, PLAIN, providers=CPU, weights_folder=Path("weights"), threads=1
    )
    found = session.run(opened, {"x": np.ones((1, 3), np.float32)}, ["y"])
    np.testing.assert_array_equal(found[0], [[1, 2, 3]])


def test_weights_that_are_packed_side_by_side_give_the_same_bits() -> None:
    """Enough products that several threads pack at once, as ONNX Runtime does it for two nodes."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for layer in range(8):
        weights.append(
            numpy_helper.from_array(rng.standard_normal((96, 96), np.float32), f"w{layer}")
        )
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x0", kind, ["n", 96])],
        [helper.make_tensor_value_info("x8", kind, ["n", 96])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    given = {"x0": rng.standard_normal((5, 96), np.float32)}
    answers = [
        session.run(
            session.create_session(
                model.SerializeToString(),
                PLAIN,
                providers=CPU,
                threads=4,
                parallel_packing=parallel,
            ),
            given,
        )[0].tobytes()
        for parallel in (False, True)
    ]
    assert answers[0] == answers[1]


def test_a_missing_provider_is_no_warning(tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        session.create_session(
            identity(TensorProto.FLOAT, [1]), PLAIN, providers=("NoSuchExecutionProvider", *CPU)
        )
    assert caught.value.code == "AOTC-P004"
    assert caught.value.what == "ONNX Runtime has no NoSuchExecutionProvider"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "No graph was found in the protobuf."),
        (b"not a model" * 9, "Failed to load model because protobuf parsing failed."),
    ],
)
def test_a_refused_model_gives_a_code(content: bytes, found: str) -> None:
    with pytest.raises(AotcError) as caught:
        session.create_session(content, PLAIN, providers=CPU)
    assert caught.value.code == "AOTC-R008"
    assert caught.value.found == found


def test_unknown_config_keys_are_our_bug() -> None:
    spec = SessionSpec(optimization="all", config={"session.no_such_key": "1"})
    with pytest.raises(ValueError, match=r"unknown session config keys: session\.no_such_key"):
        session.session_options(spec)
    assert MANIFEST_KEYS < session.CONFIG_KEYS
    assert not any("path" in key or "file" in key for key in MANIFEST_KEYS)


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "layout", "all"])
def test_options_are_what_the_spec_says(level: Any) -> None:
    spec = SessionSpec(optimization=level, config={"session.disable_prepacking": "1"})
    options = session.session_options(spec, threads=3)
    names = {"disable": "ORT_DISABLE_ALL"}
    assert options.graph_optimization_level.name == names.get(level, f"ORT_ENABLE_{level.upper()}")
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.get_session_config_entry("session.disable_prepacking") == "1"


def test_the_reference_runs_unoptimized_on_one_thread() -> None:
    options = session.reference_options()
    assert options.graph_optimization_level.name == "ORT_DISABLE_ALL"
    assert options.intra_op_num_threads == 1


def test_every_allowed_key_is_one_that_onnxruntime_knows() -> None:
    """Its library holds the text of every key that it reads."""
    runtime = session.import_onnxruntime()
    library = next(Path(runtime.__file__).parent.glob("capi/onnxruntime_pybind11_state*"))
    content = library.read_bytes()
    # A compiler may fold the last bytes of a text into instructions.
    unknown = {key for key in session.CONFIG_KEYS if key.encode()[:-6] not in content}
    # Known on Arm alone.
    assert unknown <= {"mlas.enable_gemm_fastmath_arm64_bfloat16"}


def test_a_failing_run_gives_a_code_and_no_source_path() -> None:
    content = model(
        [helper.make_node("Add", ["a", "b"], ["y"], name="plus")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"n{n}"]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    ).SerializeToString()
    opened = session.create_session(content, PLAIN, providers=CPU)
    with pytest.raises(AotcError) as caught:
        session.run(opened, {"a": np.ones(2, np.float32), "b": np.ones(3, np.float32)})
    error = caught.value
    assert error.code == "AOTC-R005"
    assert "running Add node. Name:'plus'" in error.found
    assert "broadcast" in error.found
    assert ".h:" not in error.found
    assert error.__suppress_context__


@pytest.mark.parametrize(
    ("code", "name"),
    [(TensorProto.BFLOAT16, "bfloat16"), (TensorProto.FLOAT8E4M3FN, "float8_e4m3fn")],
)
def test_narrow_floats_go_in_and_come_out(code: int, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    opened = session.create_session(identity(code, ["n", 2]), PLAIN, providers=CPU)
    for rows in (0, 3):
        array = np.arange(rows * 2).reshape(rows, 2).astype(getattr(ml_dtypes, name))
        (found,) = session.run(opened, {"x": array})
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_a_session_is_silent() -> None:
    """In a fresh process, as ONNX Runtime logs to the real standard error."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_session import *\n"
        "for content in (b'rubbish' * 9, identity(1, [1])):\n"
        "    try:\n"
        "        opened = session.create_session(content, PLAIN, providers=CPU)\n"
        "        session.run(opened, {'x': np.ones((2, 2), np.float32)})\n"
        "    except AotcError as error:\n"
        "        print(error.code)\n"
    )
    here = Path(__file__).resolve().parent
    toolchain = Path(ort.__file__).resolve().parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code, str(here), str(toolchain)], capture_output=True, check=True
    )
    assert result.stdout.split() == [b"AOTC-R008", b"AOTC-R005"]
    assert result.stderr == b""


def test_two_distributions_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("onnxruntime", "onnxruntime_gpu"):
        (tmp_path / f"{name}-1.31.1.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    ort.import_onnxruntime.cache_clear()
    try:
        with pytest.raises(AotcError) as caught:
            ort.import_onnxruntime()
    finally:
        ort.import_onnxruntime.cache_clear()
    assert caught.value.code == "AOTC-I020"
    assert caught.value.found == "onnxruntime 1.31.1 and onnxruntime-gpu 1.31.1"


def test_a_missing_onnxruntime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ort.import_onnxruntime.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    try:
        with pytest.raises(AotcError) as caught:
            ort.import_onnxruntime()
        probed = BACKENDS.load("cpu")().probe()
    finally:
        ort.import_onnxruntime.cache_clear()
    assert (caught.value.code, caught.value.fix) == ("AOTC-I019", INSTALL_RUNTIME)
    assert not probed.available
    assert probed.reason == caught.value.line()


def test_options_in_a_model_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    ort.import_onnxruntime.cache_clear()
    ort.import_onnxruntime()
    assert "ORT_LOAD_CONFIG_FROM_MODEL" not in os.environ


def test_the_cpu_backend_claims_everything(tmp_path: Path) -> None:
    backend = BACKENDS.load("cpu")()
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], name="c")], "b", [], [])
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"], name="a"),
        helper.make_node("If", ["z"], ["w"], name="b", then_branch=body, else_branch=body),
    ]
    graph = helper.make_graph(nodes, "g", [], [])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    claims = backend.claim(
        ClaimRequest(
            model=tmp_path / "m.onnx",
            weights=tmp_path,
            target=Target(schema="aotc.target/1", name="host"),
        )
    )
    assert (claims.nodes, claims.refusals, claims.how) == ({"a", "b", "c"}, (), "observed")
    assert backend.session("layout") == SessionSpec(optimization="layout")
    version = session.import_onnxruntime().__version__
    assert backend.probe() == Capability(
        name="cpu", ort_name=CPU[0], available=True, version=version
    )
    assert backend.fingerprint().startswith(f"onnxruntime {version}; ")


def test_placement_is_observed_in_bodies_as_well() -> None:
    then, other = (
        helper.make_graph(
            [helper.make_node(op, ["x"], [f"{op}_out"], name=op.lower())],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, None)],
        )
        for op in ("Abs", "Neg")
    )
    content = model(
        [helper.make_node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)],
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    ).SerializeToString()
    opened = session.create_session(content, PLAIN, providers=CPU, record_placement=True)
    observed = sessions.observe(opened)
    assert {(node.name, node.op) for node in observed.nodes} == {
        ("if", "If"),
        ("abs", "Abs"),
        ("neg", "Neg"),
    }
    assert (observed.origin, observed.partitions) == ("observed", 1)
    assert observed.share == {CPU[0]: 1.0}


def test_differences_name_nodes() -> None:
    def at(*rows: tuple[str, str, str]) -> Any:
        nodes = tuple(NodePlacement(name=n, op=o, provider=p) for n, o, p in rows)
        return sessions.placement_of(nodes, observed=True)

    promised = at(("a", "Add", "X"), ("b", "Mul", "X"), ("c", "Abs", "CPU"))
    assert promised.share == {"CPU": 0.3333, "X": 0.6667}
    assert promised.partitions == 2
    assert sessions.differences(promised, promised) == ()
    reordered = at(("b", "Mul", "X"), ("a", "Add", "X"), ("c", "Abs", "CPU"))
    assert sessions.differences(promised, reordered) == ()
    found = sessions.differences(
        promised, at(("a", "Add", "CPU"), ("b", "Mul", "X"), ("d", "Neg", "X"))
    )
    assert found == (
        "node 'a' (Add) runs on CPU, promised X",
        "node 'c' (Abs) no longer exists, promised on CPU",
        "node 'd' (Neg) runs on X, and was not promised",
    )
    assert sessions.summary(found * 2).endswith(
        "promised X; node 'c' (Abs) no longer exists, promised on CPU; and 1 more"
    )


# -- random numbers that each run draws anew


def drawing(**metadata: str) -> bytes:
    made = model(
        [helper.make_node("RandomNormalLike", ["x"], ["y"], name="dice", seed=5.0)],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    helper.set_model_props(made, metadata)
    return made.SerializeToString()


def test_a_graph_that_says_so_draws_anew_in_each_run() -> None:
    """Whatever ran before, and on whichever thread."""
    inputs = {"x": np.zeros(6, np.float32)}
    plain = session.create_session(drawing(), PLAIN, providers=CPU)
    first, second = (session.run(plain, inputs)[0] for _ in range(2))
    assert not np.array_equal(first, second)
    opened = session.create_session(drawing(**{"aotc.random": "seed"}), PLAIN, providers=CPU)
    assert [value.name for value in opened.get_inputs()] == ["x"]
    session.run(opened, {"x": np.zeros(3, np.float32)})
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: session.run(opened, inputs)[0], range(8)))
    assert all(np.array_equal(each, first) for each in found)


def test_metadata_that_is_not_utf8_says_nothing() -> None:
    text = drawing(**{"aotc.random": "anew"}).replace(b"anew", b"\xff\xfe\xfd\xfc")
    opened = session.create_session(text, PLAIN, providers=CPU)
    assert isinstance(opened, sessions.import_onnxruntime().InferenceSession)


def test_what_only_reads_a_value_runs_beside_what_makes_it(tmp_path: Path) -> None:
    names = [f"v{index}" for index in range(6)]
    nodes = [
        helper.make_node("Neg", [given], [made], name=made)
        for given, made in pairwise(["x", *names])
    ]
    readers = [
        helper.make_node("ReduceMax", [name], [f"most_{name}"], name=f"most_{name}", keepdims=0)
        for name in names
    ]
    listed = [node for pair in zip(nodes, readers, strict=True) for node in pair]
    content = model(
        listed,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info(one.output[0], TensorProto.FLOAT, []) for one in readers],
    ).SerializeToString()
    opened = session.create_session(
        content, PLAIN, providers=CPU, profile=tmp_path / "run", as_listed=True
    )
    opened.run(None, {"x": np.ones(3, np.float32)})
    events = json.loads(Path(opened.end_profiling()).read_text())
    ran = [each["name"] for each in events if each["name"].endswith("_kernel_time")]
    assert ran == [f"{node.name}_kernel_time" for node in listed]
