"""Variants in a lower precision beside the same ones in `keep`: told, gated, shown, repeated."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from integer_models import static
from made_profiles import profile_with
from onnx import TensorProto, helper, numpy_helper
from shared_workers import build
from workbench import Built, Workbench

from aotc import inspect
from aotc.base.errors import AotcError
from aotc.cli import terminal as render
from aotc.cli.main import main
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.host.probe import probe
from aotc.report.html.artifact_page import artifact_page
from aotc.report.sheets.artifact import inspect_view
from aotc.spec.evidence import AgainstKeep
from aotc.spec.profile import Profile
from aotc.spec.run_report import Journal

needs_exact_cpu = pytest.mark.skipif(
    not exact_feature(probe(gpus=False).isa), reason="this CPU has no VNNI"
)


def chain(width: int, count: int) -> onnx.ModelProto:
    """Products with rotations, which keep values as large as they are."""
    rng = np.random.default_rng(0)
    names = ["x", *(f"v{index}" for index in range(count - 1)), "y"]
    constants, nodes = [], []
    for index, (one, other) in enumerate(itertools.pairwise(names)):
        rotation, _ = np.linalg.qr(rng.standard_normal((width, width)))
        constants.append(numpy_helper.from_array(rotation.astype(np.float32), f"w{index}"))
        nodes.append(helper.make_node("MatMul", [one, f"w{index}"], [other], name=f"p{index}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# A block has 16 weights at least, and its kernel is no quicker for 4: the more so, the more rows.
SMALL, LARGE = chain(4, 24), chain(1024, 2)
ROWS, BLOCKS = 256, {"form": "weights"}


def lower(rows: int, **fields: Any) -> Profile:
    loose = {"int8": {"atol": 1.0, "rtol": 1.0, "max_slice": 10.0}}
    stated = {
        "precision": "int8",
        "quantization": {"form": "dynamic"},
        "dims": {"n": rows},
        "parity": {"random_shapes": 0, **loose},
    }
    return profile_with("edge", **{**stated, **fields})


def beside_keep(built: Built) -> AgainstKeep:
    (variant,) = built.report.variants
    assert variant.against_keep is not None
    return variant.against_keep


def told(built: Built) -> dict[str, str]:
    return {finding.code: finding.what for finding in built.report.findings}


@pytest.fixture(scope="module")
def slow(bench: Workbench) -> Built:
    return bench.build(SMALL, "slow", profile=lower(ROWS, quantization=BLOCKS))


def test_a_slower_variant_is_told_with_what_costs_it(slow: Built) -> None:
    found = beside_keep(slow)
    assert (found.precision, found.form, found.goal) == ("int8", "weights", "speed")
    assert (found.fixture, found.clock, found.why_not) == ("opt", "processor", "")
    assert found.ratio is not None
    assert found.ratio > 2
    assert [cost.op for cost in found.costs][:1] == ["MatMulNBits"]
    said = told(slow)["AOTC-N075"]
    assert said.startswith(f"int8 weights is slower than keep: {found.ratio:.2f} times its time")
    # Times are not reproducible, so that no payload holds them.
    assert "AOTC-N075" not in slow.codes()


def test_inspect_and_the_page_show_it(slow: Built) -> None:
    found, shown = beside_keep(slow), io.StringIO()
    render.show_sheet(inspect_view(inspect(slow.path)), file=shown)
    for text in (shown.getvalue(), artifact_page(slow.path)):
        assert "beside keep" in text
        assert f"{found.ratio:.2f} (" in text


def test_equal_builds_have_equal_payloads(bench: Workbench, slow: Built) -> None:
    again = bench.build(SMALL, "slow-again", profile=lower(ROWS, quantization=BLOCKS))
    assert again.report.artifact_id != ""
    assert again.manifest.variants == slow.manifest.variants


@needs_exact_cpu
def test_a_faster_variant_passes_its_gate(bench: Workbench) -> None:
    journal = Journal()
    profile = lower(8, budgets={"speedup": 1.5})
    built = bench.build(LARGE, "fast", profile=profile, journal=journal)
    found = beside_keep(built)
    assert found.speedup is not None
    assert found.speedup > 2
    assert not {"AOTC-N075", "AOTC-N076", "AOTC-N077"} & set(told(built))
    (gate,) = (gate for gate in journal.gates if gate.name == "budgets.speedup")
    assert (gate.subject, gate.status) == ("variant portable", "passed")
    assert gate.limit == ">= 1.5 times as fast as in keep"
    assert gate.measured.startswith(f"{found.speedup:.2f} times (")


def test_a_breach_of_the_gate_ends_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(SMALL, tmp_path / "small.onnx")
    (tmp_path / "gated.yaml").write_text(
        "schema: aotc.profile/1\nname: gated\nprecision: int8\n"
        "quantization: {form: weights}\ndims: {n: 256}\n"
        "parity: {int8: {atol: 1, rtol: 1, max_slice: 10}}\nbudgets: {speedup: 1.2}\n"
    )
    reports = [str(tmp_path / f"report.{form}") for form in ("json", "xml", "md")]
    status = main(
        ["build", str(tmp_path / "small.onnx"), "-o", str(tmp_path / "a.aotc")]
        + ["--profile", str(tmp_path / "gated.yaml"), "-q"]
        + [f"--report={path}" for path in reports]
    )
    assert status == 1
    assert not (tmp_path / "a.aotc").exists()
    shown = capsys.readouterr().err
    assert "AOTC-M005 lower precision is not as fast as its budget says" in shown
    assert "gated.yaml:7" in shown
    for path in reports:
        assert "AOTC-M005" in Path(path).read_text()
    measured = json.loads(Path(reports[0]).read_text())["measurements"]
    (ratio,) = (each["value"] for each in measured if each["name"] == "time / keep")
    assert ratio > 2


def test_a_budget_without_a_lower_precision_is_refused(bench: Workbench) -> None:
    profile = lower(4, precision="keep", quantization={}, budgets={"speedup": 1.2})
    with pytest.raises(AotcError) as raised:
        build(bench.save(SMALL, "none"), output=bench.folder / "none.aotc", profile=profile)
    assert (raised.value.code, raised.value.exit_status) == ("AOTC-M006", 3)


def test_so_is_one_of_a_model_that_is_quantized_already(bench: Workbench) -> None:
    profile = profile_with("edge", precision="int8", budgets={"speedup": 1.2})
    with pytest.raises(AotcError) as raised:
        build(bench.save(static(), "done"), output=bench.folder / "done.aotc", profile=profile)
    assert (raised.value.code, raised.value.exit_status) == ("AOTC-M006", 3)
    assert raised.value.found == "it computes in the model's own precision"


def test_auto_that_keeps_breaches_the_budget(bench: Workbench) -> None:
    # Whatever a busy machine times: no form is so quick, and each is exact enough.
    loose = {"atol": 1.0, "rtol": 1.0, "min_cosine": -1, "max_slice": 10.0}
    exact = dict.fromkeys(("float16", "bfloat16", "int8", "int4"), loose)
    fields = {"quantization": {}, "tune": {"rounds": 3}, "budgets": {"speedup": 1000}}
    fields["parity"] = {"random_shapes": 0, **exact}
    profile = lower(ROWS, precision="auto", **fields)
    with pytest.raises(AotcError) as raised:
        build(bench.save(SMALL, "auto"), output=bench.folder / "auto.aotc", profile=profile)
    assert (raised.value.code, raised.value.exit_status) == ("AOTC-M005", 1)


@needs_exact_cpu
def test_what_auto_timed_is_not_timed_again(bench: Workbench) -> None:
    profile = lower(8, precision="auto", quantization={}, tune={"rounds": 3})
    built = bench.build(LARGE, "auto-fast", profile=profile)
    found = beside_keep(built)
    (chosen,) = (row for row in built.report.tuning if row.chosen)
    assert (found.seconds, found.rounds) == (chosen.median_seconds, chosen.rounds)
    assert found.ratio_low is None


def test_goals_are_judged(bench: Workbench) -> None:
    built = bench.build(SMALL, "size", profile=lower(ROWS, quantization=BLOCKS, goal="size"))
    assert beside_keep(built).goal == "size"
    assert {"AOTC-N075", "AOTC-N077"} & set(told(built)) == {"AOTC-N077"}
    # Blocks of 16 and their scales take more than 4 weights do.
    assert beside_keep(built).meets("size") is False
    assert "goal: size is not met: int8 weights takes" in told(built)["AOTC-N076"]
    # On the CPU provider half precision is storage: memory has both.
    fields = {"precision": "float16", "quantization": {}, "goal": "memory"}
    half = bench.build(LARGE, "half", profile=lower(8, **fields))
    found = beside_keep(half)
    assert found.peak_memory_bytes is not None
    assert found.keep_peak_memory_bytes is not None
    assert found.weights_bytes < found.keep_weights_bytes
    assert ("AOTC-N076" in told(half)) is (found.meets("memory") is False)


def test_a_variant_has_a_goal_of_its_own(bench: Workbench) -> None:
    variants = [{"name": "portable", "goal": "size"}]
    built = bench.build(
        SMALL, "own-goal", profile=lower(ROWS, quantization=BLOCKS, variants=variants)
    )
    assert beside_keep(built).goal == "size"


def test_a_cached_build_says_it_again(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    first = bench.build(SMALL, "first", profile=lower(ROWS, quantization=BLOCKS))
    second = bench.build(SMALL, "first", profile=lower(ROWS, quantization=BLOCKS), force=True)
    assert second.report.cached
    assert told(second)["AOTC-N075"] == told(first)["AOTC-N075"]


def test_both_forms_have_one_baseline(bench: Workbench) -> None:
    """What hosts like this one do not run says nothing beside `keep`."""
    quantization = {"form": "dynamic", "reduce_range": False}
    built = bench.build(LARGE, "eight-bits", profile=lower(8, quantization=quantization))
    by_name = {variant.name: variant.against_keep for variant in built.report.variants}
    if len(by_name) == 1:
        pytest.skip("there is one form on this CPU")
    assert by_name["portable"] is not None
    assert by_name["portable"].why_not == "hosts like this one run portable-vnni"
    assert by_name["portable-vnni"] is not None
    assert by_name["portable-vnni"].ratio is not None
