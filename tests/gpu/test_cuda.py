"""CUDA on a real GPU: predictions of another machine hold, builds here are proven."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pytest
from networks import residual
from on_gpu import CPU, CUDA, note

import aotc
from aotc.base.errors import AotcError
from aotc.host.nvidia_facts import nvidia_state
from aotc.runtime.model import Model
from aotc.session.sessions import observe
from aotc.tools.doctor import gpu_checks, gpu_packages

pytestmark = pytest.mark.gpu


def shares(model: Model) -> dict[str, float]:

    return {
        name: round(share, 4) for name, share in observe(model._runners[0].session).share.items()
    }


@pytest.mark.parametrize("name", ["tinybert", "magika", "ultraface", "residual"])
def test_a_prediction_holds(name: str, elsewhere: Path) -> None:
    path = elsewhere / f"{name}.aotc"
    report = aotc.verify(path, key=elsewhere / "key.pub")
    assert (report.authentic, report.verdict) == (True, "degraded")
    with aotc.load(path, key=elsewhere / "key.pub") as model:
        assert model.variant.placement.origin == "predicted"
        placed = shares(model)
        note(
            f"{name} placement",
            {"predicted": dict(model.variant.placement.share), "observed": placed},
        )
        assert placed[CUDA] > 0.5
        assert model.report.fixtures > 0


def test_the_opset_that_was_chosen_is_faster(elsewhere: Path) -> None:
    rng = np.random.default_rng(0)
    image = rng.standard_normal((8, 3, 224, 224)).astype(np.float16)
    key = elsewhere / "key.pub"
    with (
        aotc.load(elsewhere / "residual.aotc", key=key) as chosen,
        aotc.load(elsewhere / "residual-keep.aotc", key=key) as kept,
    ):
        here, there = shares(chosen), shares(kept)
        note("opset chosen", here)
        note("opset kept", there)
        assert here == {CUDA: 1.0}
        assert there[CPU] > 0
        one, other = (m.run({"image": image})["logits"] for m in (chosen, kept))
        assert np.abs(one - other).max() <= 2e-2 * np.abs(one).max()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(30):
            for model, found in zip((chosen, kept), times, strict=True):
                started = time.perf_counter()
                model.run({"image": image})
                found.append(time.perf_counter() - started)
        medians = [statistics.median(found) for found in times]
        note("opset seconds chosen, kept, ratio", [*medians, medians[0] / medians[1]])


def test_engines_for_rtx_give_way_to_the_alternate(elsewhere: Path, gpu: str) -> None:
    report = aotc.verify(elsewhere / "rtx.aotc", key=elsewhere / "key.pub")
    engine, alternate = report.variants
    found = [reason for reason in engine.reasons if reason.code == "AOTC-C008"]
    note("rtx verdict", [report.verdict, *(f"{one.expected}; {one.found}" for one in found)])
    if gpu in ("8.6", "8.9", "12.0"):
        assert not found
        return
    assert (report.verdict, engine.runs, alternate.runs) == ("degraded", False, True)
    assert "8.6 or 8.9 or 12.0" in found[0].expected
    assert f"({gpu})" in found[0].found
    with aotc.load(elsewhere / "rtx.aotc", key=elsewhere / "key.pub") as model:
        assert model.variant.name == "cuda"
        assert "AOTC-C010" in {finding.code for finding in model.report.findings}
        assert shares(model)[CUDA] > 0.5


def test_the_host_is_seen_as_it_is(gpu: str) -> None:
    state = nvidia_state()
    note("nvidia", [str(state)])
    first = state.gpus[0]
    assert (first.index, first.compute_capability) == (0, gpu)
    assert first.memory_bytes and first.free_bytes and first.free_bytes <= first.memory_bytes
    assert state.driver and state.cuda
    assert state.cudnn is not None and state.missing_libraries == ()
    found = gpu_checks(state, needed=True)
    assert {check.status for check in found if check.name != "torch"} == {"ok"}
    packages = gpu_packages(state)
    note("packages", [str(check) for check in packages])
    assert {check.status for check in packages} == {"ok"}


def test_a_build_here_is_observed_and_proven(tmp_path: Path) -> None:
    network = tmp_path / "residual.onnx"
    network.write_bytes(residual(20, np.float32))
    output = tmp_path / "residual.aotc"
    report = aotc.build(
        network, profile="server-cuda", output=output, dims={"batch": "1..8"}, cache=False
    )
    with aotc.load(output) as model:
        assert model.variant.parity.status == "passed"
        assert model.variant.placement.origin == "observed"
        note("build here", {"share": dict(model.variant.placement.share), "stages": report.stages})
    worst = max(e.max_rel for v in report.variants for c in v.comparisons for e in c.outputs)
    note("float32 error, TF32 off", worst)
    assert worst < 1e-3


def test_tf32_is_a_choice(tmp_path: Path) -> None:
    network = tmp_path / "residual.onnx"
    network.write_bytes(residual(20, np.float32))
    errors = {}
    for precision in ("keep", "tf32"):
        profile = tmp_path / f"{precision}.yaml"
        profile.write_text(
            f"schema: aotc.profile/1\nname: {precision}\nproviders: [cuda, cpu]\n"
            f"precision: {precision}\n"
        )
        report = aotc.build(
            network,
            profile=profile,
            output=tmp_path / f"{precision}.aotc",
            dims={"batch": 8},
            cache=False,
        )
        errors[precision] = max(
            e.max_rel for v in report.variants for c in v.comparisons for e in c.outputs
        )
    note("errors by precision", errors)
    assert errors["tf32"] > errors["keep"]


def test_a_placement_that_another_option_changes_is_refused(tmp_path: Path) -> None:
    """Without CUDA for its nodes, a promise that was observed is not kept."""
    network = tmp_path / "residual.onnx"
    network.write_bytes(residual(20, np.float32))
    profile = tmp_path / "only.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: only\nproviders: [cuda]\nopset: keep\n"
        "budgets: {providers: {cuda: {min_node_share: 1.0}}}\n"
    )
    network.write_bytes(residual(23))
    with pytest.raises(AotcError) as caught:
        aotc.build(network, profile=profile, output=tmp_path / "o.aotc", dims={"batch": 8})
    assert caught.value.code == "AOTC-P001"
    note("cuda alone at opset 23", caught.value.line())


def test_convolutions_are_searched_at_warm_up_where_the_profile_allows(tmp_path: Path) -> None:
    network, output = tmp_path / "residual.onnx", tmp_path / "searched.aotc"
    network.write_bytes(residual(20, np.float32))
    profile = tmp_path / "searched.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: searched\nproviders: [cuda, cpu]\n"
        "cuda: {conv_algo_search: exhaustive, graphs: {capture: sizes}}\n"
    )
    dims: dict[str, str | int] = {"batch": 4}
    aotc.build(network, profile=profile, output=output, dims=dims, cache=False)
    with aotc.load(output) as model:
        options = model._runners[0].session.get_provider_options()[CUDA]
        assert options["cudnn_conv_algo_search"] == "EXHAUSTIVE"
        assert model.ready and model._runners[0].captured
        image = np.random.default_rng(0).standard_normal((4, 3, 224, 224)).astype(np.float32)
        times = []
        for _ in range(20):
            started = time.perf_counter()
            model.run({"image": image})
            times.append(time.perf_counter() - started)
    note("searched: first call, median of later ones", [times[0], statistics.median(times[1:])])


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_is_proven_where_it_runs(tmp_path: Path, precision: str) -> None:
    """From a float32 model; no node is left to the CPU for its type."""
    network, output = tmp_path / "residual.onnx", tmp_path / "half.aotc"
    network.write_bytes(residual(20, np.float32))
    report = aotc.build(
        network,
        profile="server-cuda",
        precision=precision,
        output=output,
        dims={"batch": "1..8"},
        cache=False,
    )
    with aotc.load(output) as model:
        variant = model.variant
        assert (variant.parity.status, variant.parity.arithmetic) == ("passed", precision)
        assert variant.placement.share == {CUDA: 1.0}
        (made,) = (item for item in variant.passes if item.name == "half-precision")
        note(f"{precision} pass", {"matched": dict(made.matched), "kept": list(made.kept)})
    worst = max(e.max_rel for v in report.variants for c in v.comparisons for e in c.outputs)
    note(f"{precision} error", worst)
