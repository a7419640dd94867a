"""From a signed artifact to answers: what `load` promises, and what it refuses."""

from __future__ import annotations

import copy
import hashlib
import pickle
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built_artifact import BuiltArtifact
from reforged_artifact import reforged, with_other_golden

from aotc.base.errors import AotcError
from aotc.runtime.loading import load
from aotc.runtime.model import Model
from aotc.session import sessions
from aotc.session.parity import compare
from aotc.spec.manifest import Manifest
from aotc.spec.precision import ParitySpec
from aotc.spec.variant import SessionSpec, Variant
from aotc.trust import key_files

CPU = ("CPUExecutionProvider",)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def model(digits: BuiltArtifact, store: Path) -> Model:
    return load(digits.path, key=digits.public_key, store=store, threads=1)


def images(model: Model, count: int) -> dict[str, Any]:
    (value,) = model.inputs
    assert value.shape is not None
    shape = (count, *(size for size in value.shape[1:] if isinstance(size, int)))
    return {value.name: np.random.default_rng(0).random(shape, np.float32)}


def output_of(model: Model) -> str:
    (value,) = model.outputs
    return value.name


def each_variant(manifest: Manifest, change: Callable[[Variant], Variant]) -> Manifest:
    return replace(manifest, variants=tuple(change(variant) for variant in manifest.variants))


def test_the_report_says_what_loading_cost(digits: BuiltArtifact, tmp_path: Path) -> None:
    with load(digits.path, key=digits.public_key, store=tmp_path) as first:
        assert not first.report.from_store
    with load(digits.path, key=digits.public_key, store=tmp_path) as model:
        report = model.report
        assert report.from_store
        assert (
            report.artifact_id
            == hashlib.sha256((digits.payload / "aotc.json").read_bytes()).hexdigest()
        )
        assert report.verdict == "optimal"
        assert report.fixtures == len(model.manifest.fixtures) > 0
        assert min(report.verify_seconds, report.session_seconds, report.warmup_seconds) > 0
        assert report.first_call_seconds is None
        model.run(images(model, 1))
        assert model.report.first_call_seconds == model.telemetry.first_call_seconds
        assert model.report.first_call_seconds is not None


@pytest.mark.parametrize("variant", ["portable", None])
def test_answers_are_the_source_models(
    digits: BuiltArtifact, store: Path, variant: str | None
) -> None:
    source = sessions.create_session(
        digits.source, SessionSpec(optimization="disable"), providers=CPU, threads=1
    )
    with load(digits.path, key=digits.public_key, store=store, variant=variant) as model:
        assert variant in (None, model.report.variant)
        for count in (1, 5):
            inputs = images(model, count)
            (golden,) = sessions.run(source, inputs)
            found = model.run(inputs)
            assert list(found) == [output_of(model)]
            error = compare(golden, found[output_of(model)], ParitySpec().float32, "y")
            assert error.passed, error


def test_many_threads_get_their_own_answers(model: Model) -> None:
    calls = [images(model, count) for count in range(1, 9)]
    alone = [model.run(inputs)[output_of(model)] for inputs in calls]
    before = model.telemetry.to_dict()["calls"]

    def work(index: int) -> bool:
        found = model.run(calls[index % 8])[output_of(model)]
        return bool(np.array_equal(found, alone[index % 8]))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))
    assert model.telemetry.to_dict()["calls"] == before + 200


def test_a_bad_call_is_refused_and_counted(model: Model) -> None:
    good = images(model, 1)
    (name,) = good
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "AOTC-R001"),
        ({name: good[name].astype(np.float64)}, "AOTC-R002"),
        ({name: good[name][0]}, "AOTC-R003"),
        ({name: good[name][..., :3]}, "AOTC-R004"),
    ]
    before = model.telemetry.to_dict()
    for inputs, code in bad:
        with pytest.raises(AotcError) as caught:
            model.run(inputs)
        assert caught.value.code == code
        rejects = model.telemetry.to_dict()["refusals"]
        assert rejects[code] == before["refusals"].get(code, 0) + 1
    assert model.telemetry.to_dict()["calls"] == before["calls"]


def test_outputs_are_chosen_by_name(model: Model) -> None:
    name = output_of(model)
    assert list(model.run(images(model, 1), [name])) == [name]
    with pytest.raises(AotcError) as caught:
        model.run(images(model, 1), [name + "x"])
    assert caught.value.line() == (
        f"AOTC-I027 the model has no output '{name}x'; did you mean '{name}'?"
        f" (expected {name}; found {name}x)"
    )


def test_a_size_that_was_never_proven_is_counted(model: Model) -> None:
    ((dim, proven),) = model.manifest.domain.dims.items()
    before = model.telemetry.to_dict()["out_of_domain"]
    model.run(images(model, proven.max + 1))
    document = model.telemetry.to_dict()
    assert document["out_of_domain"] == before + 1
    assert document["out_of_domain_by_dim"][dim] >= 1


def test_a_closed_model_says_so(digits: BuiltArtifact, store: Path) -> None:
    with load(digits.path, key=digits.public_key, store=store, warm_up=False) as model:
        assert model.report.fixtures == 0
    with pytest.raises(AotcError) as caught:
        model.run(images(model, 1))
    assert caught.value.line() == "AOTC-R005 the model is closed"


def test_a_closed_model_stays_closed(digits: BuiltArtifact, store: Path) -> None:
    with load(digits.path, key=digits.public_key, store=store) as model:
        given = images(model, 1)
        assert model.ready
    assert not model.ready
    for use in (
        *(model.warm, lambda: model.warm([]), lambda: model.route(given), model.__enter__),
        # Whatever else is wrong in the call.
        *(lambda: model.run({}), lambda: model.run(None), lambda: model.run(given, ["none"])),
    ):
        with pytest.raises(AotcError) as caught:
            use()
        assert caught.value.line() == "AOTC-R005 the model is closed"
    model.close()
    assert model.report.fixtures > 0


def test_a_model_tells_what_it_is(digits: BuiltArtifact, store: Path) -> None:
    with load(digits.path, key=digits.public_key, store=store, warm_up=False) as model:
        named = f"'digits', sha256-{model.report.artifact_id[:12]}"
        variant = f"{model.variant.name} on CPUExecutionProvider"
        assert repr(model) == f"<aotc model {named}, {variant}, open, not all warm>"
        model.warm()
        assert repr(model) == f"<aotc model {named}, {variant}, ready>"
    assert repr(model) == f"<aotc model {named}, {variant}, closed>"


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_model_that_is_to_leave_its_process_says_what_to_do(
    model: Model, leave: Callable[[object], object]
) -> None:
    with pytest.raises(AotcError) as caught:
        leave(model)
    assert caught.value.code == "AOTC-R020"
    assert "aotc.load" in caught.value.fix


def test_a_call_of_another_form_is_refused_with_the_right_one(model: Model) -> None:
    given = images(model, 1)
    name = output_of(model)
    (array,) = given.values()
    example = "run({'image': array})"
    for call, expected, found in (
        (lambda: model.run(array), example, "float32[1, 1, 8, 8]"),
        (lambda: model.run([array]), example, "list of 1 float32[1, 1, 8, 8]"),
        (lambda: model.run(None, given), example, "run(None, a mapping)"),
        (lambda: model.run([name], given), example, "run(a list of names, a mapping)"),
        (lambda: model.route(array), example, "float32[1, 1, 8, 8]"),
        (lambda: model.run(given, name), "a list of names, or None for all", repr(name)),
        (
            lambda: model.run(given, array),
            "a list of names, or None for all",
            "float32[1, 1, 8, 8]",
        ),
    ):
        with pytest.raises(AotcError) as caught:
            call()
        error = caught.value
        assert (error.code, error.expected, error.found) == ("AOTC-R021", expected, found)
    assert model.run(types.MappingProxyType(given), (name,))[name].shape[0] == 1
    with pytest.raises(AotcError) as caught:
        model.run({1: array})
    assert caught.value.code == "AOTC-R001"


def test_what_was_verified_is_what_runs(digits: BuiltArtifact, tmp_path: Path) -> None:
    """Once the artifact is loaded, neither its source nor its weights are needed."""
    copy = tmp_path / "copy.aotc"
    shutil.copytree(digits.path, copy)
    model = load(copy, key=digits.public_key, store=tmp_path / "store")
    before = model.run(images(model, 2))[output_of(model)]
    for path in copy.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff" * path.stat().st_size)
    np.testing.assert_array_equal(model.run(images(model, 2))[output_of(model)], before)


def test_an_unknown_key_loads_nothing(digits: BuiltArtifact, tmp_path: Path) -> None:
    _, public = key_files.generate(tmp_path / "stranger.pem")
    with pytest.raises(AotcError) as caught:
        load(digits.path, key=public, store=tmp_path / "store")
    assert caught.value.code == "AOTC-G002"


def test_another_placement_than_promised_is_refused(digits: BuiltArtifact, tmp_path: Path) -> None:
    def change(variant: Variant) -> Variant:
        first, *others = variant.placement.nodes
        moved = replace(first, provider="OtherExecutionProvider")
        return replace(variant, placement=replace(variant.placement, nodes=(moved, *others)))

    artifact, public = reforged(digits, tmp_path, lambda original: each_variant(original, change))
    with pytest.raises(AotcError) as caught:
        load(artifact, key=public, store=tmp_path / "store", variant="portable")
    error = caught.value
    assert (error.code, error.where) == ("AOTC-P003", "variant portable")
    assert error.what == "1 nodes are not placed as promised"
    assert error.found.endswith("runs on CPUExecutionProvider, promised OtherExecutionProvider")


def test_answers_other_than_the_golden_ones_are_refused(
    digits: BuiltArtifact, tmp_path: Path
) -> None:
    artifact, public = with_other_golden(digits, tmp_path, fixture=0)
    with pytest.raises(AotcError) as caught:
        load(artifact, key=public, store=tmp_path / "store")
    assert caught.value.code == "AOTC-N003"
    assert "differs from the golden output: error 1" in caught.value.what
    # The same artifact is loaded if acceptance is skipped.
    load(artifact, key=public, store=tmp_path / "store", warm_up=False).close()


def test_session_options_that_no_artifact_may_have(digits: BuiltArtifact, tmp_path: Path) -> None:
    def change(variant: Variant) -> Variant:
        spec = replace(variant.session, config={"session.optimized_model_filepath": "/tmp/x"})
        return replace(variant, session=spec)

    artifact, public = reforged(digits, tmp_path, lambda original: each_variant(original, change))
    with pytest.raises(AotcError) as caught:
        load(artifact, key=public, store=tmp_path / "store")
    assert caught.value.code == "AOTC-G014"
    assert "session.optimized_model_filepath" in caught.value.where


def test_loading_and_running_imports_no_onnx(digits: BuiltArtifact, store: Path) -> None:
    code = (
        "import sys, aotc\n"
        "model = aotc.load(sys.argv[1], key=sys.argv[2], store=sys.argv[3])\n"
        "print(model.report.fixtures, 'onnx' in sys.modules, 'yaml' in sys.modules)\n"
    )
    arguments = [str(digits.path), str(digits.public_key), str(store)]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert result.stdout.split()[1:] == ["False", "False"]
    assert int(result.stdout.split()[0]) > 0
    assert result.stderr == ""
