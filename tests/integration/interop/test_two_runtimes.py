"""What one minor version of ONNX Runtime built, with the other: the range that a variant requires.

The version before has an environment of its own, which `make test-previous` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import shared_workers
from built_artifact import DIGITS, BuiltArtifact
from repository import ROOT
from workbench import Built, Workbench, only_variant

from aotc.runtime.loading import load
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.providers import RUNTIME_MINORS
from aotc.spec.versions import release

BEFORE = ROOT / ".venv-previous" / "bin"
OLDER, NEWER = RUNTIME_MINORS


@pytest.fixture(scope="module")
def before() -> Path:
    """The folder of programs of the environment with the version before."""
    if release(ort.__version__)[:2] != NEWER:
        pytest.skip(f"ONNX Runtime {ort.__version__} is not the newer of the two")
    if not (BEFORE / "aotc").exists():
        pytest.skip("no .venv-previous is there: make test-previous makes it")
    return BEFORE


def aotc(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [folder / "aotc", *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture(scope="module")
def older(before: Path, bench: Workbench) -> Built:
    """The digits network as the version before builds it: portable, and for this host's ISA."""
    path = bench.folder / "older.aotc"
    options = ["--profile", "server-cpu", "--key", bench.private, "--output", path, "--json"]
    built = aotc(before, "build", DIGITS / "digits.onnx", *options)
    assert built.returncode == 0, built.stderr
    text = (path / "payload" / "aotc.json").read_bytes()
    manifest = decode(Manifest, strict_json(text))
    assert release(manifest.toolchain.onnxruntime)[:2] == OLDER
    report: Any = json.loads(built.stdout)
    return Built(path=path, source=DIGITS / "digits.onnx", report=report, manifest=manifest)


def test_what_the_version_before_built_is_loaded(
    older: Built, digits: BuiltArtifact, bench: Workbench
) -> None:
    with np.load(DIGITS / "heldout.npz") as arrays:
        images = arrays["image"][:32]
    expected = (f"{OLDER[0]}.{OLDER[1]}.0", f"{NEWER[0]}.{NEWER[1] + 1}")
    for variant in older.manifest.variants:
        needs = variant.requirements
        assert (needs.onnxruntime_min, needs.onnxruntime_below) == expected
        # Fixtures are run and placement is compared at load.
        with (
            bench.load(older, variant.name) as found,
            load(digits.path, key=digits.public_key, variant=variant.name, threads=1) as own,
        ):
            assert found.report.fixtures > 0
            assert found.report.verdict == "optimal"
            found_logits = found.run({"image": images})["logits"]
            own_logits = own.run({"image": images})["logits"]
            np.testing.assert_allclose(found_logits, own_logits, rtol=1e-4, atol=1e-5)


def test_what_the_newer_version_built_is_refused_before(
    before: Path, digits: BuiltArtifact
) -> None:
    verified = aotc(before, "verify", digits.path, "--key", digits.public_key, "--json")
    assert verified.returncode == 1
    refused = [
        (each["expected"], release(each["found"])[:2])
        for each in json.loads(verified.stdout)["refusals"]
        if each["code"] == "AOTC-C005"
    ]
    newer, older = ".".join(map(str, NEWER)), OLDER
    assert refused == [(f">= {newer}.0, < {NEWER[0]}.{NEWER[1] + 1}", older)] * 2


def test_cuda_requires_the_version_of_its_wheel(bench: Workbench) -> None:
    built = bench.build(DIGITS / "digits.onnx", "cuda", profile="server-cuda")
    needs = only_variant(built).requirements
    assert (needs.onnxruntime_min, needs.onnxruntime_below) == ("1.31.0", "1.32")


def test_builds_by_both_become_one_artifact(
    older: Built, before: Path, digits: BuiltArtifact, bench: Workbench
) -> None:
    newer = bench.build(DIGITS / "digits.onnx", "newer", profile="server-cpu")
    output = bench.folder / "both.aotc"
    report = shared_workers.merge([older.path, newer.path], output, key=bench.private)
    old, new = (".".join(map(str, each)) for each in (OLDER, NEWER))
    assert [variant.name for variant in report.variants] == [
        *(f"portable-ort{new}", f"portable-ort{old}"),
        *(f"native-ort{new}", f"native-ort{old}"),
    ]
    # What the version before built runs on both, so all of them were loaded here.
    assert all(variant.runs_here for variant in report.variants)
    with load(output, key=bench.public, store=bench.folder / "store") as found:
        assert (found.report.verdict, found.report.variant) == ("optimal", f"native-ort{new}")
    shown = aotc(before, "run", output, "--key", bench.public, "--json")
    assert shown.returncode == 0, shown.stderr
    loaded = json.loads(shown.stdout)["load"]
    assert (loaded["verdict"], loaded["variant"]) == ("optimal", f"native-ort{old}")
    assert loaded["fixtures"] > 0
    # An application of ONNX Runtime looks at neither version: both open the oldest.
    package = strict_json((output / "payload" / "manifest.json").read_bytes())
    assert list(package["components"]["model"]["variants"]) == [f"portable-ort{old}"]
