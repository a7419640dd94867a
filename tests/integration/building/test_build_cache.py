"""The build cache in the pipeline: what is reused, what is rebuilt, and what survives."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino_models as models
import pytest
from file_bytes import flip_bit
from made_profiles import small_profile
from shared_workers import build
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import verify
from aotc.base.errors import AotcError
from aotc.pipeline.cache import ARTIFACT, PARTITION, SEAL, BuildCache
from aotc.session.worker_pool import JobResult, Workers
from aotc.spec.command_reports import CacheEntry
from aotc.spec.profile import Profile
from aotc.trust import key_files

OPENVINO = "OpenVINOExecutionProvider"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """A bench with its own, empty cache."""
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AOTC_CACHE_BYTES", raising=False)
    return Workbench.at(tmp_path)


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The plain model, built once with a cache next to it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_CACHE", str(folder / "cache"))
        return Workbench.at(folder).build(models.plain(), "plain", profile=profile())


@pytest.fixture
def first(bench: Workbench, built_once: Built) -> Built:
    """The plain model, already built with the key of `bench`, and its entries in the cache."""
    shutil.copytree(built_once.path.with_name("cache"), bench.folder / "cache")
    shutil.copytree(built_once.path, bench.folder / built_once.path.name)
    shutil.copyfile(built_once.source, bench.folder / built_once.source.name)
    for name in (bench.private.name, bench.public.name):
        shutil.copyfile(built_once.path.with_name(name), bench.folder / name)
    return replace(
        built_once,
        path=bench.folder / built_once.path.name,
        source=bench.folder / built_once.source.name,
    )


def profile(base: str = "edge", **fields: Any) -> Profile:
    """A built-in profile with other fields, quick to prove, its partitions kept."""
    return small_profile(base, **fields)


def entries(kind: str = "") -> list[CacheEntry]:
    return [entry for entry in BuildCache().entries() if not kind or entry.kind == kind]


def places(kind: str) -> Iterator[Path]:
    folder = BuildCache().folder
    assert folder is not None
    for entry in entries(kind):
        yield folder / "v1" / entry.key[:2] / entry.key


def digests(built: Built) -> dict[str, str]:
    """SHA-256 of every payload file."""
    return {
        path.relative_to(built.payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in built.payload.rglob("*")
        if path.is_file()
    }


def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a build fails if it starts any step; the gate still checks the result."""
    real = Workers.run

    def never(self: Workers, job: str, *rest: Any, **named: Any) -> JobResult:
        if job != "aotc.runtime.rehearsal_jobs:gate":
            raise AssertionError(f"{job} was run")
        return real(self, job, *rest, **named)

    monkeypatch.setattr(Workers, "run", never)


# What was built before.


@pytest.mark.parametrize(
    "base",
    [
        "edge",
        pytest.param("edge-openvino", marks=pytest.mark.openvino),
        pytest.param("edge-rtx", marks=pytest.mark.rtx),
        "server-cuda",
    ],
)
def test_what_was_built_is_not_built_again(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    first = bench.build(models.plain(), "plain", profile=profile(base))
    assert not first.report.cached
    assert {"import", "analyze", "lower"} <= set(first.report.stages)
    kept = digests(first)
    shutil.rmtree(first.path)
    no_work(monkeypatch)
    stages: list[str] = []
    again = bench.build(first.source, "plain", profile=profile(base), progress=stages.append)
    assert again.report.cached
    assert set(again.report.stages) == {"sign", "check"}
    assert not any("compile" in words for words in stages)
    assert again.report.artifact_id == first.report.artifact_id
    assert digests(again) == kept
    # Measurements and findings are those of the build which made it.
    assert again.report.variants == first.report.variants
    assert again.report.findings == first.report.findings
    assert again.report.payload_bytes == first.report.payload_bytes


def test_a_file_of_another_place_is_the_same_model(bench: Workbench, first: Built) -> None:
    folder = bench.folder / "else where"
    folder.mkdir()
    source = Path(shutil.copyfile(first.source, folder / "plain.onnx"))
    again = build(source, output=folder / "o.aotc", key=bench.private, profile=profile())
    assert (again.cached, again.artifact_id) == (True, first.report.artifact_id)


@pytest.mark.parametrize("purpose", ["fixtures", "calibration"])
@pytest.mark.parametrize("changes", [False, True], ids=["as it was", "changed"])
def test_what_is_built_of_data_that_changes_meanwhile_is_not_stored(
    bench: Workbench, first: Built, purpose: str, changes: bool
) -> None:
    path = bench.folder / "data.npz"
    inputs = first.inputs({})
    np.savez(path, **inputs)
    seen: list[str] = []

    def progress(words: str) -> None:
        if changes and not seen and "prove" in words:
            seen.append(words)
            np.savez(path, **{name: array + 1 for name, array in inputs.items()})

    before = {entry.key for entry in entries(ARTIFACT)}
    options = {purpose: path}
    built = bench.build(first.source, "o", profile=profile(), progress=progress, **options)
    assert not built.report.cached
    assert bool(seen) == changes
    assert ({entry.key for entry in entries(ARTIFACT)} == before) == changes


def test_what_comes_from_the_cache_verifies_and_runs(bench: Workbench, first: Built) -> None:
    again = bench.build(first.source, "again", profile=profile(), dims={})
    # The output need not be named like the model.
    assert again.report.cached
    report = verify(again.path, key=bench.public)
    assert (report.authentic, report.verdict, report.refusals) == (True, "optimal", ())
    inputs = again.inputs({"batch": 2})
    expected = plain_answer(plain_session(again.source), inputs)
    with bench.load(again) as model:
        assert_agree(expected, dict(model.run(inputs)), tolerance_of(again))


def test_another_key_signs_the_same_payload(bench: Workbench, first: Built, tmp_path: Path) -> None:
    private, public = key_files.generate(tmp_path / "other.pem")
    output = tmp_path / "other.aotc"
    again = build(first.source, output=output, key=private, profile=profile())
    assert again.cached
    assert again.artifact_id == first.report.artifact_id
    assert again.key_id != first.report.key_id
    place = Path("attestations") / "oms.sigstore.json"
    assert (output / place).read_bytes() != (first.path / place).read_bytes()
    assert verify(output, key=public).authentic
    assert not verify(output, key=bench.public).authentic
    same = bench.build(first.source, "same", profile=profile())
    assert (same.path / place).read_bytes() == (first.path / place).read_bytes()


def test_nothing_that_is_secret_is_kept(bench: Workbench) -> None:
    bench.build(models.plain(), "plain", profile=profile())
    secret = bench.private.read_bytes()
    for path in (bench.folder / "cache").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert secret not in data
            assert b"dsseEnvelope" not in data


def test_a_change_of_an_output_does_not_reach_the_cache(bench: Workbench, first: Built) -> None:
    kept = digests(first)
    for path in first.payload.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"other")
    again = bench.build(first.source, "again", profile=profile())
    assert again.report.cached
    assert digests(again) == kept


# What the cache key depends on.


def other_weights(source: Path, folder: Path) -> dict[str, Any]:
    onnx.save(models.plain(seed=9), source)
    return {}


def other_sizes(source: Path, folder: Path) -> dict[str, Any]:
    return {"dims": {"batch": 3}}


def other_tolerance(source: Path, folder: Path) -> dict[str, Any]:
    parity = {"random_shapes": 0, "float32": {"atol": 1e-5, "rtol": 2e-3, "min_cosine": 0.9}}
    return {"profile": profile(parity=parity)}


def other_profile(source: Path, folder: Path) -> dict[str, Any]:
    return {"profile": profile("server-cpu")}


def other_target(source: Path, folder: Path) -> dict[str, Any]:
    return {"target": "linux-x86-64-avx512", "profile": profile(unproven="allow")}


def own_fixtures(source: Path, folder: Path) -> dict[str, Any]:
    path = folder / "mine.npz"
    np.savez(path, x=np.ones((2, models.WIDTH), np.float32))
    return {"fixtures": path}


def embedded(source: Path, folder: Path) -> dict[str, Any]:
    return {**own_fixtures(source, folder), "embed_fixtures": True}


@pytest.mark.parametrize(
    "change",
    [
        other_weights,
        other_sizes,
        other_tolerance,
        other_profile,
        other_target,
        own_fixtures,
        embedded,
    ],
)
def test_whatever_the_bytes_depend_on_is_in_the_key(
    bench: Workbench, first: Built, change: Any
) -> None:
    options = {"profile": profile(), **change(first.source, bench.folder)}
    other = bench.build(first.source, "other", **options)
    assert not other.report.cached
    assert len(entries(ARTIFACT)) == 2
    same = bench.build(first.source, "same", **options)
    assert (same.report.cached, same.report.artifact_id) == (True, other.report.artifact_id)


def test_fixtures_are_known_by_what_they_hold(bench: Workbench, first: Built) -> None:
    options: dict[str, Any] = {"profile": profile(), **own_fixtures(first.source, bench.folder)}
    assert not bench.build(first.source, "one", **options).report.cached
    assert bench.build(first.source, "two", **options).report.cached
    np.savez(options["fixtures"], x=np.zeros((2, models.WIDTH), np.float32))
    assert not bench.build(first.source, "three", **options).report.cached


def calibration(folder: Path, value: float) -> Path:
    """A file of samples for the plain model, in a folder of that name."""
    folder.mkdir(exist_ok=True)
    np.savez(folder / "samples.npz", x=np.full((3, models.WIDTH), value, np.float32))
    return folder / "samples.npz"


@pytest.mark.parametrize("whole", [False, True], ids=["a file", "a folder"])
def test_calibration_data_is_known_by_what_it_holds(
    bench: Workbench, first: Built, whole: bool
) -> None:
    def cached(name: str, folder: str, value: float) -> bool:
        path = calibration(bench.folder / folder, value)
        given = path.parent if whole else path
        built = bench.build(first.source, name, profile=profile(), calibration=given)
        return built.report.cached

    assert not cached("first", "one", 1)
    assert cached("again", "one", 1)
    # The folder's name is not part of it, and its content is.
    assert cached("moved", "two", 1)
    assert not cached("changed", "two", 2)


def test_calibration_data_of_a_profile_is_known_by_what_it_holds(
    bench: Workbench, first: Built
) -> None:
    calibration(bench.folder / "data", 1)
    path = bench.folder / "own.yaml"
    path.write_text(
        "schema: aotc.profile/1\nname: own\nparity: {random_shapes: 0}\n"
        "calibration: {data: data/samples.npz}\n"
    )
    one = bench.build(first.source, "one", profile=path)
    again = bench.build(first.source, "two", profile=path)
    assert (one.report.cached, again.report.cached) == (False, True)
    moved = bench.folder / "elsewhere"
    moved.mkdir()
    shutil.copyfile(path, moved / "own.yaml")
    calibration(moved / "data", 1)
    same = bench.build(first.source, "three", profile=moved / "own.yaml")
    # Neither key nor payload knows where the profile is.
    assert (same.report.cached, same.report.artifact_id) == (True, one.report.artifact_id)
    assert same.manifest.profile["calibration"]["data"] == "samples.npz"
    calibration(moved / "data", 2)
    assert not bench.build(first.source, "four", profile=moved / "own.yaml").report.cached


def test_external_data_is_part_of_the_model(bench: Workbench) -> None:
    source = bench.folder / "external.onnx"
    onnx.save(
        models.plain(),
        source,
        save_as_external_data=True,
        location="weights.data",
        size_threshold=0,
    )
    first = bench.build(source, "one", profile=profile())
    again = bench.build(source, "two", profile=profile())
    assert (again.report.cached, again.report.artifact_id) == (True, first.report.artifact_id)
    data = source.with_name("weights.data")
    values = np.frombuffer(data.read_bytes(), np.float32).copy()
    values[5] += 0.25
    data.write_bytes(values.tobytes())
    other = bench.build(source, "three", profile=profile())
    assert not other.report.cached
    assert other.report.artifact_id != first.report.artifact_id
    data.unlink()
    with pytest.raises(AotcError) as caught:
        bench.build(source, "four", profile=profile())
    assert caught.value.exit_status == 3


@pytest.mark.openvino
def test_a_replaced_library_is_another_key(bench: Workbench) -> None:
    """The same plugin at the same path, one byte longer: its earlier results are not reused."""
    from aotc.providers.openvino import OpenVinoBackend

    original = OpenVinoBackend().library()
    assert original is not None
    folder = bench.folder / "own"
    folder.mkdir()
    for path in original.parent.iterdir():
        if path.is_file() and path != original:
            (folder / path.name).symlink_to(path)
    library = Path(shutil.copyfile(original, folder / original.name))
    pin = '{"CPU":{"INFERENCE_PRECISION_HINT":"f32"}}'
    spec = {"provider": OPENVINO, "library": str(library), "options": {"load_config": pin}}
    stated = profile("edge-openvino", providers=["mine", "cpu"], plugins={"mine": spec})
    first = bench.build(models.plain(), "one", profile=stated)
    assert bench.build(first.source, "two", profile=stated).report.cached
    assert len(entries(PARTITION)) == 1
    library.write_bytes(library.read_bytes() + b"\0")
    other = bench.build(first.source, "three", profile=stated)
    assert not other.report.cached
    assert len(entries(PARTITION)) == 2
    plugins = [built.manifest.variants[0].requirements.plugins[0] for built in (first, other)]
    assert plugins[0].sha256 != plugins[1].sha256


# Damage.


def flip(place: Path) -> None:
    files = [path for path in (place / "files").rglob("*") if path.is_file()]
    flip_bit(max(files, key=lambda file: file.stat().st_size))


def cut(place: Path) -> None:
    path = next(path for path in (place / "files").rglob("*.onnx"))
    path.write_bytes(path.read_bytes()[:10])


def link(place: Path) -> None:
    path = next(path for path in (place / "files").rglob("*.onnx"))
    moved = place.parents[3] / "moved.onnx"
    path.rename(moved)
    path.symlink_to(moved)


def forget(place: Path) -> None:
    (place / "index.json").unlink()


@pytest.mark.parametrize("damage", [flip, cut, link, forget])
def test_a_damaged_entry_is_built_anew_and_reported(
    bench: Workbench, first: Built, damage: Any
) -> None:
    (place,) = places(ARTIFACT)
    damage(place)
    again = bench.build(first.source, "again", profile=profile())
    assert not again.report.cached
    (finding,) = (finding for finding in again.report.findings if finding.code == "AOTC-R015")
    assert finding.where == str(place)
    # This finding concerns this machine, and not the artifact.
    assert "AOTC-R015" not in again.codes()
    assert again.report.artifact_id == first.report.artifact_id
    assert digests(again) == digests(first)
    third = bench.build(first.source, "third", profile=profile())
    assert third.report.cached
    # Whether the machine was busy is measured anew.
    said, before = (
        {finding for finding in built.report.findings if finding.code != "AOTC-N055"}
        for built in (third, first)
    )
    assert said == before


@pytest.mark.openvino
def test_a_damaged_partition_is_compiled_anew(bench: Workbench) -> None:
    first = bench.build(models.plain(), "plain", profile=profile("edge-openvino"))
    for place in places(ARTIFACT):
        shutil.rmtree(place)
    (place,) = places(PARTITION)
    flip(place)
    again = bench.build(first.source, "again", profile=profile("edge-openvino"))
    assert [finding.code for finding in again.report.findings].count("AOTC-R015") == 1
    assert again.report.artifact_id == first.report.artifact_id
    assert verify(again.path, key=bench.public).verdict == "optimal"


def test_a_cache_that_others_may_write_is_not_used(bench: Workbench, first: Built) -> None:
    (bench.folder / "cache").chmod(0o777)
    again = bench.build(first.source, "again", profile=profile())
    assert not again.report.cached
    assert "AOTC-R014" in [finding.code for finding in again.report.findings]
    assert again.report.artifact_id == first.report.artifact_id


def test_a_cache_that_is_too_small_does_no_harm(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE_BYTES", "1000")
    built = bench.build(models.plain(), "plain", profile=profile())
    assert "AOTC-R014" in [finding.code for finding in built.report.findings]
    assert entries() == []


# Partial results, and builds side by side.


@pytest.mark.openvino
def test_what_was_compiled_survives_another_variants_failure(bench: Workbench) -> None:
    """The second variant has no provider for its middle; the first one's parts are cached."""
    variants = [{"name": "whole"}, {"name": "only", "providers": ["openvino"]}]
    failing = profile("edge-openvino", variants=variants)
    source = bench.save(models.divided(), "divided")
    with pytest.raises(AotcError) as caught:
        bench.build(source, "failing", profile=failing)
    assert caught.value.code == "AOTC-P001"
    assert not (bench.folder / "failing.aotc").exists()
    # Times are written in seconds: an hour ago, so that a change is visible.
    for place in places(PARTITION):
        os.utime(place / SEAL, (time.time() - 3600, time.time() - 3600))
    kept = {entry.key: entry.used_at for entry in entries()}
    assert len(kept) == len(entries(PARTITION)) == 2
    fixed = bench.build(source, "mended", profile=profile("edge-openvino", variants=variants[:1]))
    assert not fixed.report.cached
    now = {entry.key: entry.used_at for entry in entries(PARTITION)}
    assert now.keys() == kept.keys()
    assert all(now[key] > used for key, used in kept.items())
    assert sum(node.op_type == "EPContext" for node in fixed.nodes("whole")) == 2


@pytest.mark.rtx
def test_an_engine_is_taken_from_the_cache_for_another_profile(bench: Workbench) -> None:
    """What is compiled does not depend on tolerances: one engine serves both artifacts."""
    first = bench.build(models.plain(), "one", profile=profile("edge-rtx"))
    parity = {"random_shapes": 0, "float32": {"atol": 1e-4, "rtol": 1e-3, "min_cosine": 0.9}}
    other = bench.build(models.plain(), "two", profile=profile("edge-rtx", parity=parity))
    assert not other.report.cached
    assert other.report.artifact_id != first.report.artifact_id
    assert (len(entries(ARTIFACT)), len(entries(PARTITION))) == (2, 1)
    capability = profile("edge-rtx", compute_capabilities=["8.9"])
    bench.build(models.plain(), "three", profile=capability)
    assert len(entries(PARTITION)) == 2


BUILDING = """
import sys, aotc
from aotc.spec.profile_files import load_profile
report = aotc.build(sys.argv[1], output=sys.argv[2], key=sys.argv[3], dims={"batch": 2})
print(report.artifact_id, report.cached, *(each.code for each in report.findings))
"""


def test_two_builds_side_by_side(bench: Workbench) -> None:
    source = bench.save(models.plain(), "plain")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", BUILDING, source, bench.folder / f"{index}.aotc", bench.private],
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    outputs = [process.communicate(timeout=600)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs[0][0] == outputs[1][0]
    assert not {"AOTC-R014", "AOTC-R015"} & {*outputs[0], *outputs[1]}
    assert len(entries(ARTIFACT)) == 1
    for index in range(2):
        assert verify(bench.folder / f"{index}.aotc", key=bench.public).verdict == "optimal"
    third = build(source, output=bench.folder / "2.aotc", key=bench.private, dims={"batch": 2})
    assert (third.cached, third.artifact_id) == (True, outputs[0][0])


# Without it.


def test_no_cache_takes_nothing_and_keeps_nothing(bench: Workbench) -> None:
    first = bench.build(models.plain(), "plain", profile=profile(), cache=False)
    assert not (bench.folder / "cache").exists()
    kept = bench.build(first.source, "kept", profile=profile())
    used = [entry.used_at for entry in entries()]
    again = bench.build(first.source, "again", profile=profile(), cache=False)
    assert not again.report.cached
    assert [entry.used_at for entry in entries()] == used
    assert first.report.artifact_id == kept.report.artifact_id == again.report.artifact_id


def test_a_refused_build_is_not_kept(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(models.plain(), "tight", profile=profile(budgets={"artifact_bytes": 10}))
    assert caught.value.exit_status == 1
    assert entries(ARTIFACT) == []
