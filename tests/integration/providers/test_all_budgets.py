"""Every budget of every variant is judged, and one build tells all that are exceeded."""

from __future__ import annotations

from pathlib import Path

import gpu_models as models
import pytest
from workbench import Workbench

from aotc import build
from aotc.base.errors import AotcError
from aotc.providers.cuda import CudaBackend
from aotc.spec.run_report import Journal

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: placement is observed there"
)

# `alone` is left without a provider for the product of int32.
PROFILE = """\
schema: aotc.profile/1
name: narrow
target: linux-x86-64
providers: [cuda, cpu]
unproven: allow
compute_capabilities: ["8.6"]
partitioning: {weigh_boundaries: false}
variants:
  - {name: both}
  - {name: alone, providers: [cuda]}
dims: {batch: 1..4}
fallback: {policy: POLICY, max_node_share: 0.1}
budgets:
  providers:
    cuda: {min_node_share: 0.95}
  cpu_share: 0.1
  partitions: 1
  artifact_bytes: 100
"""

# Met on the CPU alone.
BUDGETS = (
    "fallback: {policy: alternate-variant}\nbudgets: {providers: {cuda: {min_node_share: 0.95}}}\n"
)


def failed(bench: Workbench, folder: Path, text: str) -> tuple[AotcError, Journal]:
    """The refusal of a build with the profile `text`, and what was judged."""
    profile = folder / "narrow.yaml"
    profile.write_text(text)
    journal = Journal()
    with pytest.raises(AotcError) as caught:
        build(
            bench.save(models.whole_numbers(), "narrow"),
            profile=profile,
            output=folder / "narrow.aotc",
            key=bench.private,
            cache=False,
            journal=journal,
        )
    assert not (folder / "narrow.aotc").exists()
    return caught.value, journal


def test_all_budgets_of_all_variants_in_one_build(bench: Workbench, tmp_path: Path) -> None:
    error, journal = failed(bench, tmp_path, PROFILE.replace("POLICY", "fail"))
    assert error.exit_status == 1
    told = [error, *error.also]
    lines = [each.place.line for each in told if each.place]
    assert lines == sorted(lines)
    assert len(lines) == len(told)
    stated = PROFILE.splitlines()
    found = [
        (each.code, each.where, stated[line - 1].split(":")[0].strip())
        for each, line in zip(told, lines, strict=True)
    ]
    assert found == [
        ("AOTC-P001", "variant alone", "providers"),
        ("AOTC-P002", "variant both", "fallback"),
        ("AOTC-P002", "variant both", "cuda"),
        ("AOTC-P002", "variant both", "cpu_share"),
        ("AOTC-P002", "variant both", "partitions"),
        ("AOTC-M001", "budgets.artifact_bytes", "artifact_bytes"),
    ]
    # Each with what was measured, and the nodes that it is about.
    assert all(each.expected and each.found for each in told)
    assert all(any(row["node"] == "whole_product" for row in each.rows) for each in told[:5])
    failing = [gate.name for gate in journal.gates if gate.status == "failed"]
    assert failing == [
        "variants",
        "fallback.max_node_share",
        "budgets.providers.cuda.min_node_share",
        "budgets.cpu_share",
        "budgets.partitions",
        "budgets.artifact_bytes",
    ]
    parity = [gate for gate in journal.gates if gate.name.startswith("parity.")]
    assert [gate.status for gate in parity] == ["passed"]


def test_a_variant_that_may_be_left_out_breaches_nothing(bench: Workbench, tmp_path: Path) -> None:
    """Both are left out, so that none is left; the size of nothing is not judged."""
    text = PROFILE.replace("POLICY", "alternate-variant")
    error, _ = failed(bench, tmp_path, text)
    assert error.code in ("AOTC-P001", "AOTC-P002")
    assert "AOTC-M001" not in [each.code for each in (error, *error.also)]


def test_what_may_not_stay_unproven_is_told_with_its_budgets(
    bench: Workbench, tmp_path: Path
) -> None:
    text = PROFILE.replace("POLICY", "fail").replace("unproven: allow", "unproven: refuse")
    error, _ = failed(bench, tmp_path, text)
    codes = [each.code for each in (error, *error.also)]
    assert codes[:2] == ["AOTC-P001", "AOTC-N002"]
    assert codes.count("AOTC-P002") == 4


def test_a_build_from_the_cache_tells_of_the_variant_that_was_left_out(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    text = PROFILE[: PROFILE.index("fallback")]
    # One runs on any host.
    text = text.replace("dims:", "  - {name: plain, providers: [cpu]}\ndims:")
    (tmp_path / "cached.yaml").write_text(text + BUDGETS)
    model = bench.save(models.whole_numbers(), "cached")
    told = []
    for number in range(2):
        journal = Journal()
        report = build(
            model,
            profile=tmp_path / "cached.yaml",
            output=tmp_path / f"{number}.aotc",
            key=bench.private,
            journal=journal,
        )
        assert report.cached == (number == 1)
        told.append((journal.gates, journal.measurements, journal.findings, journal.model_sha256))
    assert told[0] == told[1]
    assert "not-judged" in [gate.status for gate in told[0][0]], told[0][0]
