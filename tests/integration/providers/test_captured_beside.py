"""Captured sizes that do not hold beside each other: the build takes the next form, and says so.

The trial is the build's own, in a process that really dies; its device is the host's memory.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
from pathlib import Path
from typing import Any

import captured_jobs
import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from onnx import TensorProto, helper
from repository import SUPPORT, TOOLCHAIN
from workbench import Built, Workbench, only_variant

import aotc
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline import build as building
from aotc.pipeline import gates
from aotc.providers.cuda import CudaBackend
from aotc.runtime import runners
from aotc.runtime.warmup import capture_sizes, open_variant
from aotc.session.device import capturing_runner
from aotc.session.device.cuda_place import CudaPlace
from aotc.session.worker_pool import Workers
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.profile import Profile

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
PROOF = "aotc.pipeline.prove:prove_job"
EACH = "each captured size has a session of its own"


def model() -> onnx.ModelProto:
    """Tanh and a sum over rows of 4."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["y"], name="tanh"),
        helper.make_node("ReduceSum", ["y"], ["total"], name="sum", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def profile(refused: str = "run", sessions: str = "auto", **limits: Any) -> Profile:
    graphs = {"capture": "sizes", "on_refusal": refused, "sessions": sessions}
    return profile_with(
        "server-cuda",
        dims={"batch": {"min": 1, "max": 16, "buckets": [2, 8], "outside": ["pad", "route"]}},
        cuda={"graphs": graphs},
        budgets={},
        partitioning={"weigh_boundaries": False},
        **({"limits": limits} if limits else {}),
    )


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds as on a machine with CUDA: proof and trial run on the CPU, the trial by this job."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SUPPORT / "commands"), str(TOOLCHAIN))))
    monkeypatch.setattr("aotc.providers.cuda._missing_for_sessions", lambda: ("", ""))
    # It would load on this host's GPU.
    monkeypatch.setattr(building, "rehearse", lambda *_: None)
    run = Workers.run

    def by_job(workers: Workers, job: str, *given: Any, **named: Any) -> Any:
        return run(workers, {PROOF: "captured_jobs:prove_job"}.get(job, job), *given, **named)

    monkeypatch.setattr(Workers, "run", by_job)

    def trial(name: str) -> None:
        monkeypatch.setattr(gates, "CAPTURE_JOB", f"captured_jobs:{name}")

    return trial


def built(folder: Path, made: Profile) -> Built:
    folder.mkdir(exist_ok=True)
    bench = Workbench.at(folder)
    source, output = bench.save(model(), "rows"), folder / "rows.aotc"
    report = aotc.build(source, profile=made, output=output, key=bench.private, cache=False)
    text = (output / "payload" / "aotc.json").read_bytes()
    return Built(
        path=output, source=source, report=report, manifest=decode(Manifest, strict_json(text))
    )


@pytest.mark.parametrize(
    ("job", "how"),
    [
        ("crashing", "the process ended by SIGSEGV"),
        ("failing", "CUDA failure 715: illegal instruction"),
        ("stale", "output 'y' is not what a run without a graph computes"),
    ],
)
def test_each_size_gets_a_session_of_its_own(
    on_host: Any, tmp_path: Path, job: str, how: str
) -> None:
    on_host(job)
    found = built(tmp_path, profile())
    graphs = only_variant(found).cuda_graphs
    assert graphs is not None and graphs.sessions == "each"
    assert [size["batch"] for size in graphs.sizes] == [2, 8]
    assert {"captured-apart", "captured-sizes"} <= set(found.manifest.required_features)
    assert EACH in found.finding("AOTC-P015")
    assert found.manifest.variants[0].parity.status == "passed"
    (form,) = found.report.variants[0].replaced_forms
    assert form.form == "one session for all captured sizes"
    assert "at replay" in form.reason and "batch=" in form.reason and how in form.reason
    assert "(batch=8; batch=2 captured)" in form.reason


def test_a_proof_changes_sizes_as_seldom_as_it_can(
    on_host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of convolutions are planned anew at each change, for seconds on a GPU."""
    on_host("crashing")
    run, noted_sizes = Workers.run, tmp_path / "sizes"
    monkeypatch.setenv("NOTED_SIZES", str(noted_sizes))

    def noted(workers: Workers, job: str, *given: Any, **named: Any) -> Any:
        if job == PROOF:
            job = "captured_jobs:noting_sizes"
        return run(workers, job, *given, **named)

    monkeypatch.setattr(Workers, "run", noted)
    found = built(tmp_path, profile(sessions="each"))
    ran = [int(line) for line in noted_sizes.read_text().split()]
    changes = [size for size, _ in itertools.groupby(ran)]
    compared = changes[: len(set(ran))]
    assert len(set(compared)) == len(compared)
    # Calls of the optimal sizes are timed where these are compared, and those of others in a row.
    assert ran[:10] == ran[:1] * 10
    timed = changes[len(compared) :]
    assert len(timed) <= len(compared)
    # Evidence has them in the order of the fixtures all the same.
    monkeypatch.setattr(Workers, "run", run)
    assert compared_in(found) == compared_in(built(tmp_path / "again", profile(sessions="each")))


def compared_in(found: Built) -> list[str]:
    """What the evidence compares, in order: names of fixtures and sizes."""
    bundle = json.loads((found.path / "attestations" / "evidence.sigstore.json").read_text())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    (variant,) = statement["predicate"]["variants"]
    return [f"{each['fixture']} {each['sizes']}" for each in variant["comparisons"]]


def test_what_hangs_is_ended_by_the_limit_of_jobs(on_host: Any, tmp_path: Path) -> None:
    on_host("hanging")
    found = built(tmp_path, profile(seconds=8.0))
    graphs = only_variant(found).cuda_graphs
    assert graphs is not None and graphs.sessions == "each"
    assert "ran longer than 8 s" in found.report.variants[0].replaced_forms[0].reason


def test_graphs_are_given_up_where_no_form_holds(on_host: Any, tmp_path: Path) -> None:
    on_host("crashing_always")
    found = built(tmp_path, profile())
    assert only_variant(found).cuda_graphs is None
    texts = [each.what for each in found.manifest.findings if each.code == "AOTC-P015"]
    assert len(texts) == 2 and EACH in texts[0] and "no CUDA graphs are captured" in texts[1]
    assert not {"captured-apart", "captured-sizes"} & set(found.manifest.required_features)
    tried = [form.form for form in found.report.variants[0].replaced_forms]
    assert tried == ["one session for all captured sizes", "CUDA graphs"]


def test_or_the_build_fails_with_a_code_of_its_own(on_host: Any, tmp_path: Path) -> None:
    on_host("crashing_always")
    with pytest.raises(AotcError) as caught:
        built(tmp_path, profile(refused="fail"))
    assert (caught.value.code, caught.value.exit_status) == ("AOTC-P015", 1)
    assert caught.value.where == "variant portable"
    assert "before the first capture: the process ended by exit status 3" in caught.value.found


def test_a_stated_number_of_sessions_is_kept(on_host: Any, tmp_path: Path) -> None:
    on_host("crashing")
    found = built(tmp_path / "one", profile(sessions="one"))
    assert only_variant(found).cuda_graphs is None
    found = built(tmp_path / "each", profile(sessions="each"))
    graphs = only_variant(found).cuda_graphs
    assert graphs is not None and graphs.sessions == "each"
    assert "AOTC-P015" not in found.codes()


def test_a_refusal_by_onnx_runtime_is_no_crash(on_host: Any, tmp_path: Path) -> None:
    on_host("refusing")
    found = built(tmp_path, profile())
    assert only_variant(found).cuda_graphs is None
    assert found.finding("AOTC-P014").endswith("no CUDA graphs are captured: no such stream")


def test_too_little_memory_is_none_either(on_host: Any, tmp_path: Path) -> None:
    on_host("without_memory")
    with pytest.raises(AotcError, match="AOTC-M004"):
        built(tmp_path, profile())


def test_equal_builds_take_equal_forms(on_host: Any, tmp_path: Path) -> None:
    on_host("crashing")
    first, second = (built(tmp_path / name, profile()).manifest for name in ("first", "second"))
    assert [each.what for each in first.findings] == [each.what for each in second.findings]


@pytest.mark.parametrize("sessions", ["one", "each"])
def test_a_load_holds_them_as_the_artifact_says(
    on_host: Any, tmp_path: Path, sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where graphs fail after another size, calls of all sizes answer with a session for each."""
    on_host("crashing")
    found = built(tmp_path, profile())
    (stated,) = found.manifest.variants
    assert stated.cuda_graphs is not None
    variant = replace(
        stated,
        providers=(captured_jobs.CPU,),
        session=replace(stated.session, provider_options={}),
        cuda_graphs=replace(stated.cuda_graphs, sessions=sessions),
    )
    opened: list[Any] = []

    def opener(settings: Any) -> Any:
        opened.append(open_variant(found.payload, variant, threads=1))
        return opened[-1]

    monkeypatch.setattr(runners, "open_capturing", captured_jobs.open_on_host)
    monkeypatch.setattr(capturing_runner, "FixedRun", captured_jobs.PlannedRun)
    monkeypatch.setattr(captured_jobs, "fails", [captured_jobs.is_lost])
    runner = runners.open_runner(variant, CudaPlace(), opener)
    capture_sizes(runner, variant, found.manifest, found.payload)
    assert len(opened) == (3 if sessions == "each" else 1)
    failed = 0
    for number, batch in enumerate([2, 8, 5, 2, 5, 8, 8, 2]):
        given = np.full((batch, 4), number, np.float32)
        try:
            rows, total = runner.run({"x": given}, None, {"batch": batch})
        except AotcError as error:
            assert error.code == "AOTC-R036"
            failed += 1
            continue
        np.testing.assert_allclose(rows, np.tanh(given), rtol=1e-6)
        np.testing.assert_allclose(total, np.tanh(given).sum(), rtol=1e-5)
    assert bool(failed) == (sessions == "one")
    runner.close()
