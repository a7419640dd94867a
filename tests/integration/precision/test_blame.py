"""Where a lower precision breaches its gates, a build names the nodes to blame, and is right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from planted_models import residual_network, with_outliers
from refusals import refusal
from workbench import Workbench

import aotc
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.session.worker_pool import JobResult, Workers
from aotc.spec.codec import Json
from aotc.spec.evidence import Blamed
from aotc.spec.precision import (
    BlameSpec,
    CalibrationSpec,
    GateSpec,
    OutputGate,
    ParitySpec,
    QuantizationSpec,
    Tolerance,
)
from aotc.spec.profile import Profile, TuneSpec, WorkerLimits
from aotc.spec.profile_files import load_profile
from aotc.spec.run_report import Journal

LAYERS, WIDTH = 6, 512


def network(*planted: str) -> onnx.ModelProto:
    model = residual_network(LAYERS, WIDTH, scale=0.04)
    for name in planted:
        model = with_outliers(model, name)
    return model


def profile(form: Any = "dynamic", **fields: Any) -> Profile:
    stated = {"precision": "int8", "quantization": QuantizationSpec(form=form), **fields}
    return replace(load_profile("edge"), **stated)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibration") / "data.npz"
    np.savez(path, x=np.random.default_rng(0).standard_normal((64, WIDTH)).astype(np.float32))
    return path


def refused(
    bench: Workbench, model: onnx.ModelProto, wanted: Profile, **options: Any
) -> tuple[AotcError, Journal]:
    journal = Journal()
    stated = {"profile": wanted, "dims": {"n": "1..64"}, "journal": journal, **options}
    return refusal(bench.build, model, "blamed", **stated), journal


class _Watched(Workers):
    """Workers that write down their jobs; with `starved`, the search has next to no memory."""

    def __init__(self, *, starved: bool = False) -> None:
        super().__init__(WorkerLimits())
        self.starved = starved
        self.jobs: list[str] = []
        self.trials: list[int] = []

    def run(self, job: str, request: Json, *, folder: Path, where: str = "") -> JobResult:
        """Run a job as ever, or in too little memory."""
        self.jobs.append(f"{job.partition(':')[2]} {folder.name}")
        if not (self.starved and job.endswith(":blame_job")):
            found = super().run(job, request, folder=folder, where=where)
            if job.endswith(":blame_job"):
                self.trials.append(found.value["found"]["trials"])
            return found
        with Workers(WorkerLimits(memory_bytes=1 << 20)) as starved:
            return starved.run(job, request, folder=folder, where=where)


def watched(
    bench: Workbench, wanted: Profile, *, starved: bool = False
) -> tuple[AotcError, Journal, list[str]]:
    """What a build of a planted network ends with, and the jobs that it ran."""
    journal = Journal()
    with _Watched(starved=starved) as workers, pytest.raises(AotcError) as found:
        aotc.build(
            bench.save(network("product 1"), "watched"),
            profile=wanted,
            dims={"n": "1..64"},
            output=bench.folder / "watched.aotc",
            key=bench.private,
            journal=journal,
            workers=workers,
            cache=False,
        )
    return found.value, journal, workers.jobs


def only(journal: Journal) -> Blamed:
    (blamed,) = journal.blamed
    return blamed


@pytest.mark.parametrize("form", ["static", "dynamic"])
def test_the_planted_node_is_named_and_keeping_it_passes(
    bench: Workbench, calibration: Path, form: str
) -> None:
    options = {"calibration": str(calibration)} if form == "static" else {}
    # With ranges by this method nothing is smoothed, which would mend it.
    ranges = {"calibration": CalibrationSpec(method="percentile", percentile=100.0)}
    model = network("product 1")
    error, journal = refused(bench, model, profile(form, **ranges), **options)
    blamed = only(journal)
    assert blamed.keep_float32 == ("product 1",)
    assert blamed.minimal
    assert blamed.trials <= 15
    assert (blamed.first, blamed.worst) == ("product 1", "product 1")
    assert blamed.limit_ratio_before > 1 >= (blamed.limit_ratio_after or 2)
    assert error.exit_status == 1
    assert error.code == "AOTC-N001"
    (told,) = [each for each in error.every() if each.code == "AOTC-N031"]
    assert told.rows[0]["node"] == "product 1"
    assert error.fix == told.fix
    _, _, line = error.fix.partition(": ")
    kept: Mapping[str, Json] = yaml.safe_load(line)
    wanted = profile(form, keep_float32=tuple(kept["keep_float32"]), **ranges)
    built = bench.build(
        model, f"kept-{form}", profile=wanted, dims={"n": "1..64"}, journal=Journal(), **options
    )
    (portable,) = [each for each in built.manifest.variants if each.name == "portable"]
    assert portable.parity.status == "passed"
    assert not [each for each in built.codes() if each == "AOTC-O003"], "no lower level was tried"
    names = [node.name for node in built.nodes()]
    assert any("product 1" in name for name in names)


def test_a_method_that_cuts_off_values_is_named_beside_the_nodes(
    bench: Workbench, calibration: Path
) -> None:
    ranges = CalibrationSpec(method="percentile", percentile=96.0)
    options = {"calibration": str(calibration)}
    wanted = profile("static", calibration=ranges, parity=ParitySpec(random_shapes=0))
    error, _ = refused(bench, network(), wanted, **options)
    assert error.code == "AOTC-N001"
    assert "Or try calibration: {method: auto} first: percentile cuts off" in error.fix
    mended = replace(wanted, calibration=CalibrationSpec())
    assert bench.build(network(), "mended", profile=mended, dims={"n": "1..64"}, **options)


def test_two_planted_nodes_are_both_named(bench: Workbench) -> None:
    error, journal = refused(bench, network("product 0", "product 4"), profile())
    assert only(journal).keep_float32 == ("product 0", "product 4")
    assert only(journal).minimal
    assert '["product 0", "product 4"]' in error.fix


def test_what_the_profile_keeps_already_stays_in_the_line(bench: Workbench) -> None:
    wanted = profile(keep_float32=("product 0",))
    error, journal = refused(bench, network("product 0", "product 4"), wanted)
    assert only(journal).keep_float32 == ("product 4",)
    assert only(journal).keep_float32_before == ("product 0",)
    assert '["product 0", "product 4"]' in error.fix


def test_a_gate_of_an_output_is_searched_as_well(bench: Workbench) -> None:
    gates = GateSpec(outputs={"y": OutputGate(min_sqnr_db=25.0, replaces_tolerance=True)})
    error, journal = refused(bench, network("product 2"), profile(gates=gates))
    assert error.code == "AOTC-N020"
    assert only(journal).keep_float32 == ("product 2",)


def test_no_lower_level_is_tried_where_precision_is_to_blame(bench: Workbench) -> None:
    _, journal, jobs = watched(bench, profile())
    assert only(journal).keep_float32 == ("product 1",)
    assert jobs.count("optimize_job optimize-portable") == 1
    assert jobs.count("blame_job blame-portable-0") == 1


def test_without_trials_nothing_is_searched_and_lower_levels_are_tried(bench: Workbench) -> None:
    error, journal, jobs = watched(bench, profile(blame=BlameSpec(trials=0)))
    assert journal.blamed == ()
    assert "AOTC-N031" not in {each.code for each in error.every()}
    assert jobs.count("optimize_job optimize-portable") > 1
    assert not [each for each in jobs if "blame" in each]


def test_searches_for_a_candidate_of_auto_share_the_trials_of_the_profile(
    bench: Workbench,
) -> None:
    """No few nodes make it inexact: it fails, and is searched once."""
    parity = ParitySpec(int8=Tolerance(atol=1e-4, rtol=1e-4), random_shapes=0)
    # By size, as a CPU need not be faster in it.
    wanted = profile(
        precision="auto",
        goal="size",
        parity=parity,
        blame=BlameSpec(trials=5),
        tune=TuneSpec(seconds=600),
    )
    with _Watched() as workers:
        report = aotc.build(
            bench.save(network(), "shared"),
            profile=wanted,
            dims={"n": "1..64"},
            output=bench.folder / "shared.aotc",
            key=bench.private,
            workers=workers,
            cache=False,
        )
    keep, dynamic, *_ = report.tuning
    assert keep.chosen or report.tuning[-1].chosen
    assert not dynamic.passed
    assert workers.trials == [5]
    assert dynamic.trials == 5
    # It is lowered once: lower levels are no exacter.
    assert len([each for each in workers.jobs if each.startswith("quantize_job")]) == 1


def test_where_all_nodes_add_alike_no_few_are_named(bench: Workbench) -> None:
    """Each of the products alone has more error than is allowed."""
    parity = ParitySpec(int8=Tolerance(atol=1e-4, rtol=1e-4), random_shapes=0)
    error, journal = refused(bench, network(), profile(parity=parity))
    blamed = only(journal)
    assert blamed.all_pass
    (told,) = [each for each in error.every() if each.code == "AOTC-N034"]
    assert ("blame.trials were spent" in told.found) == (blamed.search_ended == "trials")
    assert "15 trials" in told.found or f"{blamed.trials} trials" in told.found
    assert "keep_float32" not in error.fix


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_is_searched_too(bench: Workbench, precision: Any) -> None:
    """What a CPU stores in half precision loses by the rounding of weights."""
    tight = Tolerance(atol=1e-7, rtol=1e-6)
    parity = ParitySpec(float16=tight, bfloat16=tight, random_shapes=0)
    error, journal = refused(bench, network(), profile(precision=precision, parity=parity))
    blamed = only(journal)
    assert blamed.precision == precision
    assert blamed.all_pass
    assert {"AOTC-N031", "AOTC-N034"} & {each.code for each in error.every()}


def test_int4_is_searched_too(bench: Workbench) -> None:
    parity = ParitySpec(int4=Tolerance(atol=1e-3, rtol=1e-3), random_shapes=0)
    wanted = profile("weights", precision="int4", parity=parity)
    _, journal = refused(bench, network(), wanted)
    assert only(journal).precision == "int4"
    assert only(journal).all_pass


def test_a_search_that_breaks_off_is_told_and_the_refusal_stands(bench: Workbench) -> None:
    error, journal, jobs = watched(bench, profile(), starved=True)
    assert error.code == "AOTC-N001"
    assert {each.code for each in journal.findings if each.where == "variant portable"} >= {
        "AOTC-N033"
    }
    assert journal.blamed == ()
    assert len([each for each in jobs if each.startswith("blame_job")]) == 1, "not at each level"


@pytest.mark.parametrize("name", ["node_MatMul_98", "node_MatMul_219", "node_Gemm_304"])
def test_one_bad_node_of_an_exported_bert_is_found_exactly(bench: Workbench, name: str) -> None:
    model = with_outliers(onnx.load("tests/data/exports/bert.onnx"), name)
    gates = GateSpec(
        outputs={
            "last_hidden_state": OutputGate(min_sqnr_db=65.0),
            "pooler_output": OutputGate(min_sqnr_db=30.0),
        }
    )
    parity = ParitySpec(random_shapes=0)
    _, journal = refused(
        bench,
        model,
        # All products, though the last one is no faster for it.
        profile(gates=gates, parity=parity, goal="size"),
        dims={"batch": "1..4", "sequence": "4..32"},
    )
    blamed = only(journal)
    assert blamed.keep_float32 == (name,)
    assert blamed.worst == name
    assert blamed.minimal
    assert blamed.trials <= 15
