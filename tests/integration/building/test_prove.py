"""What a build proves, and what it refuses to publish: parity, budgets, fixtures, dims."""

from __future__ import annotations

import base64
import json
import platform
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from refusals import refusal
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import inspect, verify
from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.spec.codec import encode
from aotc.spec.profile_files import load_profile
from aotc.spec.target import ISA_FEATURES

model_of = partial(model_parts.model_of, opset=17, ir_version=8)

FLOAT = TensorProto.FLOAT


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def random_tensor(name: str, shape: tuple[int, ...], scale: float = 1.0) -> onnx.TensorProto:
    rng = np.random.default_rng(len(name))
    return numpy_helper.from_array(rng.normal(0, scale, shape).astype(np.float32), name)


def normalized() -> onnx.ModelProto:
    """A convolution and its batch normalization: fused, they are rounded otherwise."""
    return model_of(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node(
                "BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["y"], name="norm"
            ),
        ],
        {"x": ["batch", 4, 12, 12]},
        {"y": ["batch", 8, 12, 12]},
        [
            random_tensor("w", (8, 4, 3, 3)),
            *(
                random_tensor("scale", (8,)),
                random_tensor("shift", (8,)),
                random_tensor("mean", (8,)),
            ),
            numpy_helper.from_array(np.linspace(0.3, 7, 8, dtype=np.float32), "var"),
        ],
    )


def counted() -> onnx.ModelProto:
    """Adds its number to each row, with nodes that compute shapes, as exporters write them."""
    return model_of(
        [
            helper.make_node("Shape", ["x"], ["shape"], name="shape"),
            helper.make_node("Gather", ["shape", "zero"], ["rows"], name="gather"),
            helper.make_node("Range", ["zero", "rows", "one"], ["range"], name="range"),
            helper.make_node("Cast", ["range"], ["numbers"], name="cast", to=FLOAT),
            helper.make_node("Unsqueeze", ["numbers", "axes"], ["column"], name="unsqueeze"),
            helper.make_node("Add", ["x", "column"], ["added"], name="add"),
            helper.make_node("MatMul", ["added", "w"], ["y"], name="product"),
        ],
        {"x": ["batch", 3, 4]},
        {"y": ["batch", 3, 5]},
        [
            numpy_helper.from_array(np.array(0, np.int64), "zero"),
            numpy_helper.from_array(np.array(1, np.int64), "one"),
            numpy_helper.from_array(np.array([1, 2], np.int64), "axes"),
            random_tensor("w", (4, 5)),
        ],
    )


def profile(bench: Workbench, text: str) -> Path:
    """A profile file: the fields of `text` and those that every profile has."""
    path = bench.folder / "mine.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: mine\n{text}\n")
    return path


def refused(bench: Workbench, model: onnx.ModelProto, text: str, code: str) -> AotcError:
    """The refusal of a build; there is nothing at the output path afterwards."""
    wanted = profile(bench, text)
    before = sorted(bench.folder.iterdir())
    error = refusal(bench.build, bench.save(model, "gated"), "gated", profile=wanted)
    assert sorted(bench.folder.iterdir()) == sorted([*before, bench.folder / "gated.onnx"])
    assert (error.code, error.exit_status) == (code, 1), error
    return error


# -- parity

# Without a stated level, a lower one would be chosen, at which nothing differs.
FUSED = "variants: [{name: portable, optimization: extended}]"


def test_a_breach_names_output_shape_and_error(bench: Workbench) -> None:
    exact = f"parity: {{float32: {{atol: 0, rtol: 0, min_cosine: 0}}}}\ndims: {{batch: 3}}\n{FUSED}"
    error = refused(bench, normalized(), exact, "AOTC-N001")
    assert error.what == "output 'y' differs at batch=3"
    assert error.where == "variant portable, fixture opt"
    assert error.expected == (
        "error <= 0 + 0 * max|reference|, cosine >= 0, rms error of every slice <= 0.01 * its scale"
    )
    number = float(error.found.split()[1])
    assert error.found.startswith("error ") and error.found.endswith(" exceeds 0")
    assert 0 < number < 1e-4


def test_a_breach_is_reported_for_each_shape(bench: Workbench) -> None:
    exact = f"parity: {{float32: {{atol: 0, rtol: 0}}}}\ndims: {{batch: 1..4}}\n{FUSED}"
    error = refused(bench, normalized(), exact, "AOTC-N001")
    errors = [error, *error.also]
    assert {one.code for one in errors} == {"AOTC-N001"}
    assert {f"output 'y' differs at batch={size}" for size in (1, 2, 4)} <= {o.what for o in errors}


def test_errors_are_measured_on_every_shape(bench: Workbench) -> None:
    built = bench.build(normalized(), "normalized", profile="server-cpu", dims={"batch": "1..6"})
    for variant, evidence in zip(built.manifest.variants, built.report.variants, strict=True):
        sizes = [dict(comparison.sizes)["batch"] for comparison in evidence.comparisons]
        assert {1, 2, 6} <= set(sizes)
        assert [dict(shape)["batch"] for shape in variant.parity.shapes] == sizes
        for comparison in evidence.comparisons:
            (error,) = comparison.outputs
            assert (error.output, error.passed, error.reason) == ("y", True, "")
            assert 0 < error.max_abs < 1e-4
            assert 0 < error.max_rel < 1e-5
            assert error.cosine == pytest.approx(1, abs=1e-6)
        assert evidence.load_seconds is not None and evidence.load_seconds > 0
        assert evidence.peak_memory_bytes is not None and evidence.peak_memory_bytes > 1 << 20
        fixtures = {comparison.fixture for comparison in evidence.comparisons}
        assert "opt" in evidence.run_seconds
        assert set(evidence.run_seconds) == set(evidence.run_spread) <= fixtures


def test_times_are_medians_of_warm_calls(bench: Workbench) -> None:
    """With the calls that are repeated to compare their bytes, and without any."""
    for runs in (3, 0):
        wanted = profile(bench, f"dims: {{batch: 1..6}}\nrepeatability: {{runs: {runs}}}")
        built = bench.build(normalized(), f"timed{runs}", profile=wanted)
        (evidence,) = built.report.variants
        assert (evidence.repeats is None) == (runs == 0)
        for fixture, spread in evidence.run_spread.items():
            seconds = evidence.run_seconds[fixture]
            assert spread.calls >= (1 if fixture != "opt" else 5)
            assert 0 < spread.tenth_seconds <= spread.lower_seconds <= seconds
            assert seconds <= spread.upper_seconds <= spread.ninetieth_seconds
        # The first call is among none of them.
        assert evidence.first_run_seconds is not None
        summary = inspect(built.path).artifact
        assert summary is not None
        assert summary.variants[0].run_spread == evidence.run_spread


def test_the_evidence_attestation_holds_what_was_measured(bench: Workbench) -> None:
    built = bench.build(normalized(), "normalized", dims={"batch": 2})
    bundle = json.loads((built.path / "attestations" / "evidence.sigstore.json").read_text())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    (subject,) = statement["subject"]
    assert subject == {"name": "aotc.json", "digest": {"sha256": built.report.artifact_id}}
    (variant,) = statement["predicate"]["variants"]
    (comparison,) = variant["comparisons"]
    assert comparison["sizes"] == {"batch": 2}
    assert comparison["outputs"][0]["max_abs"] > 0
    (observed,) = variant["memory"]["at"]
    assert observed["sizes"] == {"batch": 2}
    # The answer, of 2 * 8 * 12 * 12 floats, is in the arena at the peak.
    assert observed["activation_bytes"] >= observed["output_bytes"] >= 2 * 8 * 12 * 12 * 4
    assert variant["memory"]["mixed"]["planned_calls"] == 1000
    # Measured figures differ from build to build, so the payload has none.
    assert b"max_abs" not in (built.payload / "aotc.json").read_bytes()


def test_values_that_are_not_finite_are_reported(bench: Workbench) -> None:
    model = model_of(
        [
            helper.make_node("Exp", ["x"], ["e"], name="exp"),
            helper.make_node("Mul", ["e", "huge"], ["y"], name="mul"),
        ],
        {"x": [64]},
        {"y": [64]},
        [numpy_helper.from_array(np.float32(3e38), "huge")],
    )
    built = bench.build(model, "huge", profile="server-cpu")
    assert built.codes() == ["AOTC-N005"]
    with bench.load(built) as loaded:
        assert loaded.report.fixtures == 1


# -- budgets


@pytest.mark.parametrize(
    ("budget", "code", "what"),
    [
        ("artifact_bytes: 2000", "AOTC-M001", "the payload is larger than its budget"),
        ("peak_memory_bytes: 1048576", "AOTC-M002", "peak memory exceeds its budget"),
        ("load_seconds: 0.0000001", "AOTC-M003", "load time exceeds its budget"),
    ],
)
def test_a_budget_that_is_exceeded(bench: Workbench, budget: str, code: str, what: str) -> None:
    error = refused(bench, counted(), f"budgets: {{{budget}}}", code)
    assert error.what == what
    assert error.expected.startswith("<= ")
    assert error.found


def test_a_share_of_nodes_out_of_its_budget(bench: Workbench) -> None:
    budget = "budgets: {providers: {cpu: {max_node_share: 0.5}}}"
    error = refused(bench, counted(), budget, "AOTC-P002")
    assert error.where == "variant portable"
    assert (error.expected, error.found) == ("0..0.5", "1")


def test_budgets_that_hold(bench: Workbench) -> None:
    text = (
        "budgets:\n  artifact_bytes: 1000000\n  load_seconds: 60\n"
        "  peak_memory_bytes: 4000000000\n  providers: {cpu: {min_node_share: 1.0}}"
    )
    built = bench.build(counted(), "within", profile=profile(bench, text))
    assert verify(built.path, key=bench.public).verdict == "optimal"


# -- fixtures


def user_data(folder: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """Private data of the user: one unusual number throughout."""
    data = np.full((2, 3, 4), 1234.5678, np.float32)
    path = folder / "private.npz"
    np.savez(path, x=data, label=np.array([1]))
    return path, data


def test_the_users_data_stays_the_users(bench: Workbench) -> None:
    path, data = user_data(bench.folder)
    built = bench.build(counted(), "kept", fixtures=path)
    names = [comparison.fixture for comparison in built.report.variants[0].comparisons]
    assert "user0" in names
    assert {fixture.origin for fixture in built.manifest.fixtures} == {"generated"}
    secret = data.tobytes()[:16]
    text = base64.b64encode(data.tobytes())[:16]
    for file in built.path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert secret not in content and text not in content, file


def test_the_users_data_is_embedded_if_requested(bench: Workbench) -> None:
    path, data = user_data(bench.folder)
    built = bench.build(counted(), "embedded", fixtures=path, embed_fixtures=True)
    first = built.manifest.fixtures[0]
    assert (first.name, first.origin, dict(first.sizes)) == ("user0", "user", {"batch": 2})
    np.testing.assert_array_equal(np.load(built.payload / first.inputs[0].path), data)
    expected = plain_answer(plain_session(built.source), {"x": data})
    golden = {tensor.name: np.load(built.payload / tensor.path) for tensor in first.outputs}
    assert_agree(expected, golden, tolerance_of(built))
    with bench.load(built) as model:
        assert model.report.fixtures == len(built.manifest.fixtures)


def test_many_files_are_many_fixtures(bench: Workbench) -> None:
    folder = bench.folder / "data"
    folder.mkdir()
    for size in (2, 5):
        np.savez(folder / f"{size}.npz", x=np.ones((size, 3, 4), np.float32))
    built = bench.build(counted(), "many", fixtures=folder, embed_fixtures=True)
    users = [fixture for fixture in built.manifest.fixtures if fixture.origin == "user"]
    assert [dict(fixture.sizes) for fixture in users] == [{"batch": 2}, {"batch": 5}]


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"z": np.ones((2, 3, 4), np.float32)}, "inputs are missing"),
        ({"x": np.ones((2, 3, 4), np.float64)}, "the fixture's type differs from the input's"),
        ({"x": np.ones((2, 3), np.float32)}, "the fixture's rank differs from the input's"),
        ({"x": np.ones((2, 3, 5), np.float32)}, "the fixture's size differs from the input's"),
    ],
)
def test_fixtures_that_do_not_fit(
    bench: Workbench, arrays: dict[str, np.ndarray[Any, Any]], what: str
) -> None:
    np.savez(bench.folder / "bad.npz", **arrays)
    with pytest.raises(AotcError) as caught:
        bench.build(counted(), "bad", fixtures=bench.folder / "bad.npz")
    assert (caught.value.code, caught.value.exit_status) == ("AOTC-I024", 3), caught.value
    assert caught.value.what == what


@pytest.mark.parametrize(("dims", "expected"), [("4", "4"), ("4..8", "4..8")])
def test_a_fixture_that_the_stated_dims_rule_out(
    bench: Workbench, dims: str, expected: str
) -> None:
    path, _ = user_data(bench.folder)
    with pytest.raises(AotcError) as caught:
        bench.build(counted(), "bad", fixtures=path, dims={"batch": dims})
    assert caught.value.exit_status == 3
    assert caught.value.line() == (
        "AOTC-I024 the fixture's size is outside the stated range [private: batch]"
        f" (expected {expected}; found 2)"
    )


@pytest.mark.parametrize(("count", "size"), [(0, 1 << 20), (1, 1 << 20), (5, 1000), (5, 1 << 20)])
def test_fixtures_are_few_and_small(bench: Workbench, count: int, size: int) -> None:
    text = f"dims: {{batch: 1..64}}\nfixtures: {{max_count: {count}, max_bytes: {size}}}"
    built = bench.build(counted(), "few", profile=profile(bench, text))
    entries = [entry for entry in built.manifest.files if entry.role == "fixture"]
    assert len(built.manifest.fixtures) <= count
    assert sum(entry.size for entry in entries) <= size
    assert len(entries) == 2 * len(built.manifest.fixtures)
    # The optimal shape is the first to be kept.
    if count and size > 1000:
        assert built.manifest.fixtures[0].name == "opt"


@pytest.mark.parametrize("dims", [{"size": "1..400"}, {"size": 200}], ids=["free", "fixed"])
def test_generated_fixtures_are_no_larger_than_the_model(
    bench: Workbench, dims: dict[str, str | int]
) -> None:
    """Or than 256 kB; the smallest ships alone where none is."""
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": ["batch", "size", "size"]},
        {"y": ["batch", "size", "size"]},
    )
    built = bench.build(model, "small", dims={"batch": "1..8", **dims})
    sizes = [
        sum((built.payload / each.path).stat().st_size for each in (*one.inputs, *one.outputs))
        for one in built.manifest.fixtures
    ]
    if dims["size"] == 200:
        assert sizes == [2 * (128 + 4 * 200 * 200)]
    else:
        assert sizes
        assert sum(sizes) <= 256_000
    with bench.load(built) as ready:
        assert ready.report.variants[0].fixtures == len(sizes)


# -- dims


def test_a_stated_range(bench: Workbench) -> None:
    built = bench.build(counted(), "range", dims={"batch": "1..8"})
    dim = built.manifest.domain.dims["batch"]
    assert (dim.min, dim.opt, dim.max, dim.origin, dim.tested) == (1, 3, 8, "stated", (1, 3, 8))
    assert "AOTC-S008" not in built.codes()
    assert json.loads((built.payload / "aotc.json").read_bytes())["profile"]["dims"]["batch"] == {
        "min": 1,
        "max": 8,
        "multiple_of": 1,
        "opt": None,
        "buckets": [],
        "outside": [],
        "bounded": True,
    }


@pytest.mark.parametrize("size", [4, "4"])
def test_a_stated_size_folds_what_computes_shapes(bench: Workbench, size: int | str) -> None:
    free = bench.build(counted(), "free")
    fixed = bench.build(counted(), "fixed", dims={"batch": size})
    dim = fixed.manifest.domain.dims["batch"]
    assert (dim.min, dim.max, dim.origin) == (4, 4, "stated")
    assert len(fixed.nodes()) < len(free.nodes())
    assert {node.op_type for node in fixed.nodes()}.isdisjoint(
        {"Shape", "Gather", "Range", "Cast", "Unsqueeze"}
    )
    names = [record.name for record in fixed.manifest.variants[0].passes]
    assert "fix-dims" in names
    with bench.load(fixed) as model:
        inputs = fixed.inputs({"batch": 4})
        expected = plain_answer(plain_session(fixed.source), inputs)
        assert_agree(expected, model.run(inputs), tolerance_of(fixed))


def test_an_unnamed_dim_is_probed(bench: Workbench) -> None:
    built = bench.build(counted(), "probed")
    dim = built.manifest.domain.dims["batch"]
    assert (dim.min, dim.max, dim.origin, dim.stopped_by) == (0, 1024, "probed", "size")
    assert built.finding("AOTC-S008") == (
        "batch: proven for 0..1024; a larger size, with the other dims at their maximum, exceeds "
        "probe.max_size, of a batch 1024, or of an image 4096"
    )


def test_a_call_outside_is_counted(bench: Workbench) -> None:
    built = bench.build(counted(), "counted", profile=profile(bench, "probe: {max_size: 8}"))
    assert not built.manifest.strict
    assert built.manifest.domain.dims["batch"].max == 8
    inputs = built.inputs({"batch": 9})
    expected = plain_answer(plain_session(built.source), inputs)
    with bench.load(built) as model:
        assert_agree(expected, model.run(inputs), tolerance_of(built))
        telemetry = model.telemetry.to_dict()
    assert (telemetry["calls"], telemetry["out_of_domain"]) == (1, 1)
    assert telemetry["out_of_domain_by_dim"] == {"batch": 1}


@pytest.mark.parametrize("text", ["dims: {batch: 1..8}", "strict: true\nprobe: {max_size: 8}"])
def test_a_call_outside_of_what_is_stated_or_strict_is_refused(bench: Workbench, text: str) -> None:
    built = bench.build(counted(), f"strict{len(text)}", profile=profile(bench, text))
    with bench.load(built) as model:
        model.run(built.inputs({"batch": 8}))
        with pytest.raises(AotcError) as caught:
            model.run(built.inputs({"batch": 9}))
        assert model.telemetry.to_dict()["refusals"] == {"AOTC-S010": 1}
    least = 1 if text.startswith("dims") else 0
    where = "AOTC-S010 dim 'batch' is outside the proven range [dim batch]"
    assert caught.value.line() == f"{where} (expected {least}..8; found 9)"


def test_steps_of_a_dim(bench: Workbench) -> None:
    text = "strict: true\ndims: {batch: {min: 4, max: 32, opt: 16, multiple_of: 4}}"
    built = bench.build(counted(), "steps", profile=profile(bench, text))
    dim = built.manifest.domain.dims["batch"]
    assert (dim.min, dim.opt, dim.max, dim.multiple_of) == (4, 16, 32, 4)
    sizes = [dict(shape)["batch"] for shape in built.manifest.variants[0].parity.shapes]
    assert all(size % 4 == 0 for size in sizes)
    with bench.load(built) as model, pytest.raises(AotcError) as caught:
        model.run(built.inputs({"batch": 6}))
    assert (caught.value.code, caught.value.expected) == ("AOTC-S010", "4..32 in steps of 4")


@pytest.mark.parametrize(
    ("dims", "code", "what"),
    [
        ({"bach": 4}, "AOTC-S002", "the model has no dim 'bach'"),
        ({"batch": "8..1"}, "AOTC-S003", "8 is more than max 1"),
        ({"batch": "few"}, "AOTC-I027", "'few' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
        (
            {"batch": "8..64:3"},
            "AOTC-S003",
            "the ends of 8..64 are not multiples of 3",
        ),
        ({"batch": "8..64:0"}, "AOTC-S003", "the step of '8..64:0' is less than 1"),
        ({"x.1": 4}, "AOTC-S004", "the model fixes this dim"),
    ],
)
def test_dims_that_the_model_has_not(
    bench: Workbench, dims: dict[str, str | int], code: str, what: str
) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(counted(), "bad", dims=dims)
    assert caught.value.code == code
    assert caught.value.exit_status == (2 if code == "AOTC-I027" else 3)
    assert caught.value.what == what


def test_a_stated_size_at_which_the_model_fails(bench: Workbench) -> None:
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        {"x": ["n", "width"]},
        {"y": ["n", 2]},
        [random_tensor("w", (7, 2))],
    )
    with pytest.raises(AotcError) as caught:
        bench.build(model, "bad", dims={"width": "6..7"})
    assert (caught.value.code, caught.value.exit_status) == ("AOTC-S016", 3)
    assert (caught.value.expected, caught.value.found) == ("7", "6..7")


def test_an_input_that_only_the_profile_names(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(counted(), "bad", profile=profile(bench, "inputs: {image: {dtype: float32}}"))
    assert caught.value.line() == (
        "AOTC-S002 the model has no input 'image' [inputs.image] (expected x)"
    )


# -- variants


def test_the_native_variant_is_left_out_for_another_host(bench: Workbench) -> None:
    """A host whose CPU lacks a feature; or has one more if this CPU has no known feature."""
    host = probe(gpus=False)
    isa = (host.isa or ())[1:] if host.isa else ISA_FEATURES[host.architecture][:1]
    target = bench.folder / "cousin.json"
    target.write_text(json.dumps(encode(replace(host, name="cousin", isa=isa, probed=False))))
    built = bench.build(normalized(), "cross", profile="server-cpu", target=target)
    assert [variant.name for variant in built.manifest.variants] == ["portable"]
    assert "AOTC-O002" in built.codes()


def other_architecture() -> str:
    return "linux-x86-64" if platform.machine() == "aarch64" else "linux-arm64"


def test_what_this_host_cannot_run_is_not_proven(bench: Workbench) -> None:
    target = other_architecture()
    with pytest.raises(AotcError) as caught:
        bench.build(normalized(), "foreign", profile="edge", target=target)
    error = caught.value
    assert (error.code, error.exit_status, error.where) == ("AOTC-N002", 1, "variant portable")
    assert error.what.startswith(f"built on linux on {platform.machine()}")
    assert not (bench.folder / "foreign.aotc").exists()


def test_unproven_variants_are_built_if_the_profile_allows_it(bench: Workbench) -> None:
    target = other_architecture()
    wanted = profile(bench, "unproven: allow")
    built = bench.build(normalized(), "foreign", profile=wanted, target=target)
    (variant,) = built.manifest.variants
    assert (variant.parity.status, variant.placement.origin) == ("not-run", "predicted")
    assert variant.parity.reason
    assert variant.parity.shapes == ()
    assert variant.requirements.architecture != platform.machine()
    # On other hosts it is degraded at most, and on this one it is not even that.
    there = verify(built.path, key=bench.public, target=target)
    assert (there.authentic, there.verdict, there.best) == (True, "degraded", "portable")
    (why,) = (finding for finding in there.findings if finding.code == "AOTC-N002")
    assert why in built.report.findings
    assert why.what == (
        f"portable was not proven: {variant.parity.reason}; "
        "on the device, 'aotc attest foreign.aotc --qualify' proves it"
    )
    here = verify(built.path, key=bench.public)
    assert (here.authentic, here.verdict) == (True, "incompatible")


def test_variants_say_what_they_need(bench: Workbench) -> None:
    built = bench.build(normalized(), "both", profile="server-cpu", dims={"batch": 2})
    portable, native = built.manifest.variants
    assert (portable.component, portable.requirements.isa_exact) == ("model", False)
    assert portable.requirements.isa == ()
    assert native.component != "model"
    assert native.requirements.isa_exact
    assert native.requirements.isa
    assert (portable.session.optimization, native.session.optimization) == ("all", "disable")
    # Only the host's variant contains its layout.
    domains = {v.name: {n.domain for n in built.nodes(v.name)} for v in (portable, native)}
    assert "com.microsoft.nchwc" in domains["native"]
    assert "com.microsoft.nchwc" not in domains["portable"]
    for variant in (portable, native):
        optimizer = next(p for p in variant.passes if p.name == "onnxruntime-optimizer")
        assert optimizer.nodes_before == 2
        assert optimizer.nodes_after == len(built.nodes(variant.name))


def test_fused_arithmetic_is_what_the_breach_was_about(bench: Workbench) -> None:
    """Without this the first test here could pass on a model that no pass touches."""
    built: Built = bench.build(normalized(), "fused", dims={"batch": 2})
    assert "BatchNormalization" not in {node.op_type for node in built.nodes()}


def test_a_profile_object_is_taken_as_it_is(bench: Workbench) -> None:
    wanted = replace(load_profile("edge"), strict=True)
    built = bench.build(counted(), "object", profile=wanted)
    assert built.manifest.strict
