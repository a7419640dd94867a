"""Importers of other packages: what a build makes of them, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal as raised
from toy_importer import toy
from workbench import Workbench

from aotc import inspect
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.cli.main import main
from aotc.sources.registry import importer_of
from aotc.spec.profile_files import load_profile


def refusal(code: str, *call: Any, **options: Any) -> AotcError:
    error = raised(*call, **options)
    assert error.code == code, error
    return error


def test_frameworks_answers_are_the_golden_outputs(bench: Workbench, toys: Path) -> None:
    # Within the tolerance of float32, but not the exported model's.
    source = toy(toys, "near", factor=2.0, exported=2.000001, dims={"n": "1..8"})
    built = bench.build(source, "near")
    framework = built.manifest.source.framework
    assert framework is not None
    assert (framework.importer, framework.source) == ("toy", "near.toy")
    assert framework.versions == {"toyframework": "1.0"}
    assert built.manifest.domain.dims["n"].text() == "1..8"
    assert built.manifest.domain.dims["n"].origin == "stated"
    for fixture in built.manifest.fixtures:
        given = np.load(built.payload / fixture.inputs[0].path)
        golden = np.load(built.payload / fixture.outputs[0].path)
        assert np.array_equal(golden, given * np.float32(2.0))
    shown = inspect(built.path).artifact
    assert shown is not None
    (error,) = shown.exported
    assert error.passed and 0 < error.max_abs < 1e-4


def test_exporter_is_named_where_its_model_answers_otherwise(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "wrong", factor=2.0, exported=2.1, dims={"n": 4})
    error = refusal("AOTC-N078", bench.build, source, "wrong")
    assert error.what == "output 'y' differs at n=4 from toy's own: toy.export changed it"
    assert error.where.startswith("wrong.toy, exporter, fixture ")
    assert error.exit_status == 1


def test_sizes_at_which_the_framework_fails_are_refused(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "fails", factor=2.0, fails_above=3, dims={"n": "1..8"})
    error = refusal("AOTC-I126", bench.build, source, "fails")
    assert error.what == "toy fails at n=8, where the exported model answers"
    assert error.found == "RuntimeError: toys take no 8 rows"


def test_empty_sizes_at_which_the_framework_fails_are_not_claimed(
    bench: Workbench, toys: Path
) -> None:
    source = toy(toys, "empty", factor=2.0, fails_at=[0])
    built = bench.build(source, "empty")
    assert built.manifest.domain.dims["n"].min == 1
    said = built.finding("AOTC-S027")
    assert "left out, because the framework fails there: size 0 of n" in said


def test_conditions_of_the_framework_bound_what_is_claimed(bench: Workbench, toys: Path) -> None:
    conditions = ["n >= 5", "n <= 12"]
    source = toy(toys, "guarded", factor=2.0, wrong_below=5, conditions=conditions)
    built = bench.build(source, "guarded")
    dim = built.manifest.domain.dims["n"]
    assert (dim.min, dim.max) == (5, 12)


def test_dims_that_became_static_are_findings_and_a_gate(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "static", factor=2.0, static=[1], dims={"n": "1..2"})
    built = bench.build(source, "static")
    assert built.finding("AOTC-I124") == "a.py:3: x.1 has the size 4 alone: 4 columns"
    plain = load_profile("edge")
    gated = replace(plain, gates=replace(plain.gates, dims="dynamic"))
    error = refusal("AOTC-I128", bench.build, source, "gated", profile=gated)
    assert (error.what, error.where) == ("dims are static", "a.py:3")
    assert error.found == "x.1 has the size 4 alone: 4 columns"
    assert error.exit_status == 1


def test_source_without_free_dims_is_told(bench: Workbench, toys: Path) -> None:
    built = bench.build(toy(toys, "fixed", factor=2.0, shape=[2, 4]), "fixed")
    assert built.finding("AOTC-I123") == "fixed.toy: every dim of the inputs has one size"


def test_missing_package_is_named_with_its_extra(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "needs", factor=2.0, needs="no_such_toy_module")
    error = refusal("AOTC-I019", bench.build, source, "needs")
    assert error.what == "a toy needs the package no_such_toy_module"
    assert "'.[toy]'" in error.fix


def test_what_a_framework_ends_with_is_told(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "breaks", factor=2.0, breaks="weights")
    error = refusal("AOTC-I121", bench.build, source, "breaks")
    assert (error.where, error.found) == ("breaks.toy", "KeyError: 'weights'")
    source = toy(toys, "broken", factor=2.0, broken="weights", dims={"n": 2})
    error = refusal("AOTC-I121", bench.build, source, "broken")
    assert error.found == "KeyError: 'weights'"
    source = toy(toys, "other", factor=2.0, needs="no_such_other_module")
    error = refusal("AOTC-I121", bench.build, source, "other")
    assert error.what == "a toy needs the package no_such_other_module"


def test_output_without_an_answer_is_not_taken_for_a_proof(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "silent", factor=2.0, silent=True, dims={"n": 2})
    error = refusal("AOTC-I126", bench.build, source, "silent")
    assert error.found == "KeyError: 'y'"


def test_nothing_is_kept_of_trusted_code(
    bench: Workbench, toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    source = toy(toys, "own", factor=2.0, runs_code=True, dims={"n": 2})
    for _ in range(2):
        assert not bench.build(source, "own", trust_source=True, force=True).report.cached
    refusal("AOTC-I127", bench.build, source, "own", force=True)


def test_what_cannot_be_looked_at_is_no_importers(toys: Path) -> None:
    assert importer_of("a" * 5000) is None
    assert importer_of(f"{'a' * 5000}:make") is None


def test_importer_that_cannot_be_loaded_is_in_nobodys_way(
    toys: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[aotc.importers]\nbroken = no_such_module:Broken\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importer_of("model") is None
    found = importer_of(toy(toys, "beside", factor=2.0))
    assert found is not None and found.name == "toy"


def test_code_is_run_where_it_is_trusted_alone(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "code", factor=2.0, runs_code=True, dims={"n": 2})
    error = refusal("AOTC-I127", bench.build, source, "code")
    assert "--trust-source" in error.fix
    built = bench.build(source, "code", trust_source=True)
    framework = built.manifest.source.framework
    assert framework is not None and framework.trusted


def test_provenance_names_the_source_and_the_exported_model(bench: Workbench, toys: Path) -> None:
    from aotc.base.files.reading import file_sha256

    source = toy(toys, "named", factor=2.0, dims={"n": 2})
    built = bench.build(source, "named")
    text = (built.path / "attestations" / "provenance.sigstore.json").read_text()
    import base64

    statement = json.loads(base64.b64decode(json.loads(text)["dsseEnvelope"]["payload"]))
    found = {
        each["name"]: each
        for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    }
    assert found["named.toy"]["digest"]["sha256"] == file_sha256(source)
    assert found["named.toy"]["annotations"]["role"] == "model"
    assert found["named.onnx"]["digest"]["sha256"] == built.manifest.source.sha256
    assert found["named.onnx"]["annotations"]["role"] == "exported model"


def test_cached_build_needs_no_capture_and_is_of_one_source(
    bench: Workbench, toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    source = toy(toys, "kept", factor=2.0, dims={"n": 2})
    first = bench.build(source, "kept")
    again = bench.build(source, "kept", force=True)
    assert (first.report.cached, again.report.cached) == (False, True)
    assert "capture" not in again.report.stages
    source.write_text(source.read_text().replace("2.0", "3.0"))
    changed = bench.build(source, "kept", force=True)
    assert not changed.report.cached
    assert changed.report.artifact_id != first.report.artifact_id


def test_changed_source_is_noticed(bench: Workbench, toys: Path) -> None:
    source = toy(toys, "moved", factor=2.0, dims={"n": 2})

    def touch(text: str) -> None:
        if text.startswith("analyze"):
            os.utime(source, ns=(1, 1))

    error = refusal("AOTC-I086", bench.build, source, "moved", progress=touch)
    assert error.where == str(source)


def test_inspect_captures_the_source(toys: Path) -> None:
    report = inspect(toy(toys, "seen", factor=2.0))
    assert report.kind == "model"
    assert [value.shape for value in report.inputs] == [("n", 4)]
    assert report.source.framework is not None


def test_debug_parity_takes_the_source(
    bench: Workbench, toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = toy(toys, "debugged", factor=2.0, dims={"n": 2})
    built = bench.build(source, "debugged")
    assert main(["debug", "parity", str(built.path), "--model", str(source)]) == 0
    assert "within tolerance" in " ".join(capsys.readouterr().out.split())
    source.write_text(source.read_text().replace("2.0", "3.0"))
    assert main(["debug", "parity", str(built.path), "--model", str(source)]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "AOTC-I083" in told
    assert "the artifact was built from another source" in told


def test_what_is_no_model_is_refused_in_memory(bench: Workbench) -> None:
    import aotc

    with pytest.raises(AotcError) as caught:
        aotc.build(3)
    assert caught.value.code == "AOTC-I027"
    assert caught.value.found == "builtins.int"
    with pytest.raises(AotcError, match="are those of a module in memory"):
        aotc.build("m.onnx", (1,))


def test_gate_that_says_nothing_is_in_no_manifest() -> None:
    # Ids of what was built before there was the gate stay.
    from aotc.spec.profile_files import stated_profile

    plain = load_profile("edge")
    assert "dims" not in stated_profile(plain)["gates"]
    gated = replace(plain, gates=replace(plain.gates, dims="dynamic"))
    assert stated_profile(gated)["gates"]["dims"] == "dynamic"
