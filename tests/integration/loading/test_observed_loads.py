"""What logs, metrics and telemetry say of real loads and calls."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built_artifact import DIGITS, BuiltArtifact
from made_profiles import profile_with
from reforged_artifact import promised, reforged
from workbench import Workbench

import aotc
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.spec.manifest import AcceptedWaiver, Manifest
from aotc.spec.target import Libc
from aotc.spec.variant import Variant

STAGES = ["verify", "choose", "import", "session", "placement", "warm-up"]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """The structured fields of a line."""
    return {
        name.removeprefix("aotc_"): value
        for name, value in vars(record).items()
        if name.startswith("aotc_")
    }


def lines(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == name]


def test_an_application_at_debug_sees_loads_and_calls(
    digits: BuiltArtifact, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with aotc.load(digits.path, key=digits.public_key, name="ranker") as model:
        given = np.full((3, 1, 8, 8), 0.123456, np.float32)
        model.run({"image": given})
        with pytest.raises(AotcError, match="AOTC-R002"):
            model.run({"image": given.astype("float64")})
        artifact, variant = model.report.artifact_id, model.variant.name
    *stages, loaded = lines(caplog, "aotc.load")
    assert [fields(record)["stage"] for record in stages] == STAGES
    for record in stages:
        found = fields(record)
        assert found["path"] == str(digits.path) and 0 <= found["seconds"] < 600
        milliseconds = f"{found['seconds'] * 1e3:.1f} ms"
        assert record.getMessage() == f"{digits.path}: {found['stage']} took {milliseconds}"
        assert record.levelno == logging.DEBUG
    found = fields(loaded)
    seconds = found.pop("seconds")
    assert found == {
        "model": "ranker",
        "artifact": artifact,
        "path": str(digits.path),
        "verdict": "optimal",
        "version": "",
    }
    assert loaded.getMessage() == (
        f"{digits.path}: loaded ranker, optimal, {variant} on CPUExecutionProvider "
        f"in {seconds:.3f} s"
    )
    assert seconds >= sum(fields(record)["seconds"] for record in stages[:-1])
    answered, refused = lines(caplog, "aotc.run")
    found = fields(answered)
    seconds = found.pop("seconds")
    of_model = {"model": "ranker", "artifact": artifact}
    assert found == {**of_model, "variant": variant, "route": "exact", "padding": 0}
    assert answered.getMessage() == f"ranker: exact to {variant} in {seconds * 1e3:.3f} ms"
    assert refused.getMessage() == "ranker: refused: AOTC-R002 [input image]"
    assert fields(refused) == {**of_model, "code": "AOTC-R002", "where": "input image"}
    for record in caplog.records:
        assert "0.123" not in f"{record.getMessage()} {fields(record)}"


def test_a_load_that_fails_is_a_warning(
    digits: BuiltArtifact, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.aotc"
    shutil.copytree(digits.path, bad)
    (manifest,) = bad.rglob("aotc.json")
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    with pytest.raises(AotcError) as caught:
        aotc.load(bad, key=digits.public_key)
    (line,) = lines(caplog, "aotc.load")
    assert line.levelno == logging.WARNING
    assert line.getMessage() == f"{bad}: not loaded: {caught.value.code} [{caught.value.where}]"
    assert fields(line)["code"] == caught.value.code
    assert not aotc.verify(bad, key=digits.public_key).authentic
    (line,) = lines(caplog, "aotc.verify")
    assert line.levelno == logging.WARNING
    assert line.getMessage() == f"{bad}: unverified: {', '.join(fields(line)['codes'])}"


def test_a_load_without_its_keys_is_a_failed_load(
    digits: BuiltArtifact, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    absent = tmp_path / "absent.pub"
    with pytest.raises(AotcError):
        aotc.load(digits.path, trust=absent)
    (line,) = (each for each in lines(caplog, "aotc.load") if each.levelno == logging.WARNING)
    assert line.getMessage() == f"{digits.path}: not loaded: AOTC-I001 [{absent}]"


def test_text_of_an_artifact_cannot_make_lines(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AotcError):
        aotc.load("no\nsuch\x1b[31m.aotc")
    (line,) = lines(caplog, "aotc.load")
    assert "\n" not in line.getMessage() and "\x1b" not in line.getMessage()


def test_stages_of_builds_and_verifications_are_logged(
    caplog: pytest.LogCaptureFixture, digits: BuiltArtifact
) -> None:
    from aotc.pipeline.context import Clock

    caplog.set_level(logging.DEBUG, "aotc")
    with Clock().stage("optimize", "portable"):
        pass
    (line,) = lines(caplog, "aotc.build")
    found = fields(line)
    assert line.getMessage() == f"optimize portable took {found['seconds']:.3f} s"
    assert found["stage"] == "optimize"
    report = aotc.verify(digits.path, key=digits.public_key)
    (line,) = lines(caplog, "aotc.verify")
    assert line.getMessage() == f"{digits.path}: optimal"
    assert fields(line)["artifact"] == report.artifact_id


def test_the_observed_placement_is_in_telemetry(digits: BuiltArtifact) -> None:
    with aotc.load(digits.path, key=digits.public_key) as model:
        (variant,) = model.variants
        promised = len(variant.placement.nodes)
        model.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        found = model.telemetry.to_dict()["variants"][variant.name]
        (load,) = model.report.variants
    assert found["nodes"] == load.nodes == {"CPUExecutionProvider": promised}
    assert (found["misplaced_nodes"], found["fallbacks"], found["captures"]) == (0, {}, 0)


def elsewhere(made: Manifest) -> Manifest:
    """One that promises the first node of each variant to another provider, and waives that."""

    def moved(variant: Variant) -> Variant:
        first, *others = variant.placement.nodes
        nodes = (replace(first, provider="NimbusExecutionProvider"), *others)
        return replace(variant, placement=replace(variant.placement, nodes=nodes))

    waiver = AcceptedWaiver(code="AOTC-P003", variant="", reason="tried by hand")
    return replace(made, variants=tuple(map(moved, made.variants)), waivers=(waiver,))


def of_newer_hosts(made: Manifest) -> Manifest:
    """One whose preferred variant needs a newer libc than there is."""
    (first,) = (variant for variant in made.variants if variant.name == "native")
    needs = replace(first.requirements, libc=Libc(name="glibc", version="99.0"))
    newer = replace(first, requirements=needs)
    return replace(made, variants=tuple(newer if each is first else each for each in made.variants))


@pytest.mark.parametrize(
    ("change", "reason", "told"),
    [
        (elsewhere, "placement", "nodes of {} are not where the artifact promises"),
        (of_newer_hosts, "variant", "{} takes the place of a preferred variant"),
    ],
)
def test_what_does_not_run_as_preferred_is_told(
    digits: BuiltArtifact,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Manifest], Manifest],
    reason: str,
    told: str,
) -> None:
    artifact, key = reforged(digits, tmp_path, change)
    with aotc.load(artifact, key=key, store=tmp_path / "store") as model:
        for _ in range(3):
            model.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        name = model.variant.name
        found = model.telemetry.snapshot()
    assert found.fallbacks == found.variants[name].fallbacks == {reason: 3}
    assert found.variants[name].misplaced_nodes == (reason == "placement")
    (line,) = lines(caplog, "aotc.run")
    assert line.levelno == logging.WARNING
    assert line.getMessage() == f"digits: {told.format(name)}"
    assert fields(line)["reason"] == reason


def test_a_variant_that_was_asked_for_is_no_fallback(digits: BuiltArtifact, tmp_path: Path) -> None:
    artifact, key = reforged(digits, tmp_path, of_newer_hosts)
    with aotc.load(artifact, key=key, store=tmp_path / "store", variant="portable") as model:
        model.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        assert model.telemetry.snapshot().fallbacks == {}


def test_buckets_of_latencies_are_in_the_artifact_only_where_a_profile_states_them(
    digits: BuiltArtifact, bench: Workbench
) -> None:
    assert "telemetry" not in promised(digits).profile  # type: ignore[operator]
    pytest.importorskip("prometheus_client")
    buckets = [0.001, 0.5]
    profile = profile_with("edge", telemetry={"latency_buckets": buckets})
    built = bench.build(DIGITS / "digits.onnx", "buckets", profile=profile)
    metrics = aotc.PrometheusMetrics(registry=None)
    with bench.load(built) as model:
        assert model.manifest.profile["telemetry"] == {"latency_buckets": buckets}
        model.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        ends = [
            line.partition('le="')[2].partition('"')[0]
            for line in metrics.text().splitlines()
            if line.startswith("aotc_call_duration_seconds_bucket")
        ]
    metrics.close()
    assert ends == ["0.001", "0.5", "+Inf"]


PROGRAM = """
import sys
import aotc
with aotc.load(sys.argv[1], key=sys.argv[2]) as model:
    model.route
assert "logging" not in sys.modules, "nobody listens"
assert "opentelemetry" not in sys.modules, "nobody listens"
import logging
aotc.verify(sys.argv[1], key=sys.argv[2])
assert [type(each).__name__ for each in logging.getLogger("aotc").handlers] == ["NullHandler"]
try:
    aotc.load(sys.argv[1] + "x")
except aotc.AotcError:
    pass
"""


def test_where_nobody_listens_nothing_is_imported_or_written(digits: BuiltArtifact) -> None:
    command = [sys.executable, "-c", PROGRAM, str(digits.path), str(digits.public_key)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
