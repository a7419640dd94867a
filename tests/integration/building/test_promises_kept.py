"""Statements of a profile and promises of an artifact are kept, or the build is refused."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino_models as models
import pytest
from made_profiles import small_profile
from model_parts import constant, info
from onnx import helper
from refusals import refusal
from workbench import (
    Built,
    Workbench,
    assert_agree,
    only_variant,
    plain_answer,
    plain_session,
    tolerance_of,
)

import aotc.pipeline.build
from aotc import load
from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.spec.profile import Profile

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"


def profile(base: str = "edge-openvino", **fields: Any) -> Profile:
    """A built-in profile with other fields, quick to prove, its partitions kept."""
    return small_profile(base, **fields)


@pytest.fixture(scope="module")
def plain(bench: Workbench) -> Built:
    return bench.build(models.plain(), "plain", profile=profile())


def codes(error: AotcError) -> list[str]:
    return [error.code, *(other.code for other in error.also)]


def assert_answers(bench: Workbench, built: Built) -> None:
    """Loaded, it gives what the source model gives."""
    inputs = built.inputs({"batch": 2})
    expected = plain_answer(plain_session(built.source), inputs)
    with bench.load(built) as model:
        assert_agree(expected, dict(model.run(inputs)), tolerance_of(built), built.path.name)


# Parts with shared weights next to parts that do not support them.


def uneven(width: int) -> onnx.ModelProto:
    """A part with a number as its only constant, a refused node, and a part with a matrix."""
    return models.model_of(
        [
            helper.make_node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"], name="positive"),
            helper.make_node("Cast", ["positive"], ["one"], name="one", to=models.FLOAT),
            helper.make_node("Add", ["x", "one"], ["h"], name="add"),
            models.refused("h", "t", "odd"),
            helper.make_node("MatMul", ["t", "last"], ["y"], name="product"),
        ],
        [info("x", [32, width])],
        [info("y", [32, 16])],
        [models.weight("last", width, 16), constant("zero", np.float32(0))],
    )


def casts(kind: int) -> onnx.ModelProto:
    """Two parts without any constants, in another type, around a refused node."""
    return models.model_of(
        [
            helper.make_node("Cast", ["x"], ["d"], name="there", to=kind),
            models.refused("d", "t", "odd"),
            helper.make_node("Sin", ["t"], ["s"], name="sine"),
            helper.make_node("Mul", ["s", "s"], ["q"], name="square"),
            helper.make_node("Cast", ["q"], ["y"], name="back", to=models.FLOAT),
        ],
        [info("x", [32, 32])],
        [info("y", [32, 32])],
    )


@pytest.mark.openvino
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("narrow", uneven(32)),
        ("wide", uneven(512)),
        ("double", casts(onnx.TensorProto.DOUBLE)),
        ("half", casts(onnx.TensorProto.FLOAT16)),
    ],
)
def test_parts_with_and_without_weights_stay_with_their_provider(
    bench: Workbench, name: str, model: onnx.ModelProto
) -> None:
    built = bench.build(model, name, profile=profile(dims={}))
    assert [node.op_type for node in built.nodes()] == ["EPContext", "Trilu", "EPContext"]
    report = only_variant(built).partitioning
    assert report is not None
    assert [part.provider for part in report.partitions] == [OPENVINO, CPU, OPENVINO]
    assert [refusal.node for refusal in report.refusals] == ["odd"]
    assert "AOTC-P006" not in built.codes()
    assert_answers(bench, built)


# Tuning chooses among what the profile allows.


def test_tuning_does_not_pass_over_a_plugin_that_is_not_there(
    bench: Workbench, tmp_path: Path
) -> None:
    plugins = {"npu": {"provider": "NpuExecutionProvider", "library": str(tmp_path / "no.so")}}
    spec = profile(providers=["npu", "cpu"], plugins=plugins)
    error = refusal(lambda: bench.build(models.plain(), "no", profile=spec, tune=True))
    assert (error.code, error.exit_status) == ("AOTC-P004", 3)
    assert "no.so" in error.found and "plugins.npu.library" in error.fix
    assert not (bench.folder / "no.aotc").exists()


def test_tuning_does_not_pass_over_a_misspelt_provider(bench: Workbench) -> None:
    spec = profile(providers=["opnvino", "cpu"])
    error = refusal(lambda: bench.build(models.plain(), "misspelt", profile=spec, tune=True))
    assert (error.code, error.found) == ("AOTC-P007", "opnvino")
    assert "openvino" in error.fix
    assert not (bench.folder / "misspelt.aotc").exists()


BUDGETS: list[dict[str, Any]] = [
    {"providers": {"openvino": {"min_node_share": 0.9}}},
    {"cpu_share": 0.0},
]


@pytest.mark.openvino
@pytest.mark.parametrize("budgets", BUDGETS)
def test_tuning_does_not_pass_by_a_budget(bench: Workbench, budgets: dict[str, Any]) -> None:
    """Neither the profile's own order meets the budget, nor the CPU alone."""
    spec = profile(budgets=budgets)
    plainly = refusal(lambda: bench.build(models.divided(), "tight", profile=spec))
    assert plainly.code == "AOTC-P002"
    tuned = refusal(lambda: bench.build(models.divided(), "tight", profile=spec, tune=True))
    assert tuned.code == "AOTC-O006"
    assert tuned.found.count("AOTC-P002") == 2
    assert not (bench.folder / "tight.aotc").exists()


@pytest.mark.openvino
def test_budgets_hold_for_a_repeated_choice(bench: Workbench) -> None:
    """Measured without a budget, the CPU alone was chosen; a budget for another holds for it."""
    # The CPU is the quicker one here; a burst of other work may hide it from some measurements.
    for rounds in (5, 9, 13, 17):
        alone = {"tune": {"providers": [["cpu"]], "rounds": rounds}}
        free = bench.build(models.plain(), f"free-{rounds}", profile=profile(**alone), tune=True)
        if only_variant(free).providers == (CPU,):
            break
    assert only_variant(free).providers == (CPU,)
    again = bench.build(free.source, "again", profile=profile(**alone), tuned_from=free.path)
    assert again.report.artifact_id == free.report.artifact_id
    for budgets in BUDGETS:
        spec = profile(**alone, budgets=budgets)
        error = refusal(
            lambda spec=spec: bench.build(  # type: ignore[misc]
                free.source, "bound", profile=spec, tuned_from=free.path
            )
        )
        assert error.code == "AOTC-P002"
        assert not (bench.folder / "bound.aotc").exists()


# An entry of the cache was built from exactly the model in its key.


def test_a_model_that_changes_during_the_build_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    bench = Workbench.at(tmp_path)
    source = bench.save(models.plain(), "changing")
    other = bench.save(models.plain(seed=7), "other")
    given = source.read_bytes()

    def swap(words: str) -> None:
        if words.startswith("import"):
            shutil.copyfile(other, source)

    edge = profile("edge")
    first = bench.build(source, "first", profile=edge, progress=swap)
    source.write_bytes(given)
    second, third = (bench.build(source, name, profile=edge) for name in ("second", "third"))
    digests = [built.manifest.source.sha256 for built in (first, second, third)]
    assert digests[0] != digests[1] == digests[2]
    assert [built.report.cached for built in (first, second, third)] == [False, False, True]
    assert_answers(bench, third)


@pytest.mark.parametrize("external", [False, True])
def test_a_model_that_changes_after_it_was_read_is_refused(tmp_path: Path, external: bool) -> None:
    """It would be proven against another content than the one that the artifact names."""
    bench = Workbench.at(tmp_path)
    source = bench.save(models.plain(), "changing")
    changed = source
    if external:
        changed = source.with_name("weights.bin")
        onnx.save(
            onnx.load(source),
            source,
            save_as_external_data=True,
            location=changed.name,
            size_threshold=0,
        )

    def touched(words: str) -> None:
        if words.startswith("analyze"):
            content = changed.read_bytes()
            times = changed.stat()
            changed.write_bytes(content)
            os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))

    error = refusal(lambda: bench.build(source, "first", profile=profile("edge"), progress=touched))
    assert (error.code, Path(error.where).name) == ("AOTC-I086", changed.name)
    assert not (bench.folder / "first.aotc").exists()


# What is needed is stated.


@pytest.mark.openvino
def test_a_precision_that_the_target_lacks_is_refused(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO would silently compute in float32 on such a CPU."""
    host = probe()
    isa = tuple(feature for feature in host.isa or () if not feature.startswith(("avx512", "amx")))
    monkeypatch.setattr(aotc.pipeline.build, "probe", lambda: replace(host, isa=isa))
    spec = profile(precision="bfloat16")
    error = refusal(lambda: bench.build(models.plain(), "bf16", profile=spec))
    assert (error.code, error.expected) == ("AOTC-N008", "avx512_bf16")
    assert not (bench.folder / "bf16.aotc").exists()


# Where nodes may run.


@pytest.mark.openvino
def test_the_policy_gives_the_rest_to_the_cpu(bench: Workbench) -> None:
    """One node of five, although the CPU is not among the providers."""
    allowed = {"policy": "cpu", "max_node_share": 0.25}
    spec = profile(providers=["openvino"], fallback=allowed)
    built = bench.build(models.divided(), "rest", profile=spec)
    assert only_variant(built).placement.share[CPU] > 0
    report = only_variant(built).partitioning
    assert report is not None
    assert {provider.provider: provider.nodes for provider in report.providers} == {
        OPENVINO: 4,
        CPU: 1,
    }
    assert_answers(bench, built)
    tight = profile(providers=["openvino"], fallback={**allowed, "max_node_share": 0.1})
    error = refusal(lambda: bench.build(models.divided(), "rest-tight", profile=tight))
    assert error.code == "AOTC-P002"
    assert "max_node_share" in error.what and "max_node_share" in error.fix
    assert [row["node"] for row in error.rows] == ["odd0"]


@pytest.mark.openvino
def test_without_the_policy_every_node_is_in_the_table(bench: Workbench) -> None:
    spec = profile(providers=["openvino"], fallback={"policy": "fail"})
    error = refusal(lambda: bench.build(models.divided(2), "nowhere", profile=spec))
    assert codes(error) == ["AOTC-P001"]
    assert "odd0" in error.what
    assert [row["node"] for row in error.rows] == ["odd0", "odd1"]
    for row in error.rows:
        assert list(row) == ["node", "op", "domain", "refused by", "reason", "fix"]
        assert (row["op"], row["domain"], row["refused by"]) == ("Trilu", "com.microsoft", OPENVINO)
        assert "Trilu" in row["reason"] and row["fix"]


# Number of threads of a caller.


@pytest.mark.openvino
@pytest.mark.parametrize("threads", [1, 2, None])
def test_threads_of_a_caller_reach_openvino_and_change_no_answer(
    bench: Workbench, plain: Built, threads: int | None
) -> None:
    inputs = plain.inputs({"batch": 2})
    expected = plain_answer(plain_session(plain.source), inputs)
    store = bench.folder / "store"
    with load(plain.path, key=bench.public, store=store, threads=threads) as model:
        options = model._runners[0].session.get_provider_options()[OPENVINO]
        assert json.loads(options["load_config"])["CPU"].get("INFERENCE_NUM_THREADS") == threads
        assert_agree(expected, dict(model.run(inputs)), tolerance_of(plain), str(threads))
