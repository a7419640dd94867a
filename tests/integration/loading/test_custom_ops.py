"""Artifacts whose operators are of a library: shipped or required, registered, named, and held."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from custom_operators import (
    REGISTERS,
    compiled,
    file_model,
    image_model,
    plain_answers,
    png_file,
    real_library,
    text_model,
)
from made_models import linear
from made_profiles import small_profile
from refusals import refusal
from workbench import Built, Workbench, only_variant

from aotc import check_models, inspect, load, verify
from aotc.base.files.reading import file_sha256
from aotc.host.custom_op_libraries import python_abi
from aotc.spec.profile import Profile
from aotc.spec.target import CustomOps
from aotc.tools.bench import bench as run_bench
from aotc.tools.debug_parity import debug_parity
from aotc.tools.diff.artifacts import diff
from aotc.trust.packing import pack

TEXT = {"text": np.array(["hello worlds", "a cat"], object)}


def profile(library: Path, **fields: Any) -> Profile:
    """`edge` with the library, quick to prove."""
    spec = {"library": str(library), **fields}
    return small_profile("edge", custom_ops=[spec], dims={"batch": "1..2"})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the real library, which tests may move away."""
    real = real_library()
    return Path(shutil.copy(real, tmp_path_factory.mktemp("library") / real.name))


@pytest.fixture(scope="module")
def shipped(bench: Workbench, library: Path) -> Built:
    wanted = small_profile("edge", dims={"batch": "1..2"})
    return bench.build(text_model(), "shipped", profile=wanted, custom_ops=[library])


@pytest.fixture(scope="module")
def required(bench: Workbench, library: Path) -> Built:
    return bench.build(text_model(), "required", profile=profile(library, ship=False))


def described(built: Built) -> CustomOps:
    (found,) = only_variant(built).requirements.custom_ops
    return found


LOADING = """
import json, os, sys
import numpy as np
import aotc
path, key, store, *libraries = sys.argv[1:]
text = np.array(["hello worlds", "a cat"], object)
with aotc.load(path, key=key, store=store, custom_ops=libraries) as model:
    found = model.run({"text": text})
maps = open("/proc/self/maps").read()
answers = [found[name].tolist() for name in ("ids", "weights")]
print(json.dumps([*answers, "onnxruntime_extensions" in sys.modules]))
print("".join(line for line in maps.splitlines(True) if "_extensions_pydll" in line))
"""


def loaded_elsewhere(bench: Workbench, built: Built, *libraries: Path) -> tuple[list[Any], str]:
    """The answers of a new process, and the libraries of operators that it mapped."""
    words = (built.path, bench.public, bench.folder / "elsewhere", *libraries)
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
    )
    first, maps = done.stdout.split("\n", 1)
    return json.loads(first), maps


def test_a_shipped_library_is_a_file_of_the_payload(shipped: Built, library: Path) -> None:
    found = described(shipped)
    digest = file_sha256(library)
    assert found == CustomOps(
        name=library.name,
        sha256=digest,
        size=library.stat().st_size,
        path=f"custom_ops/sha256-{digest}/{library.name}",
        operators=("ai.onnx.contrib::BertTokenizer",),
        python=python_abi(),
    )
    assert found.path is not None
    assert file_sha256(shipped.payload / found.path) == digest
    assert [entry.role for entry in shipped.manifest.files if entry.path == found.path] == [
        "custom-ops"
    ]
    assert "custom-ops" in shipped.manifest.required_features
    assert found.path in only_variant(shipped).files


def test_a_new_process_answers_as_onnx_runtime_does_with_the_library(
    bench: Workbench, shipped: Built, library: Path
) -> None:
    expected = plain_answers(shipped.source, library, **TEXT)
    (ids, weights, imported), maps = loaded_elsewhere(bench, shipped)
    assert (ids, imported) == (expected["ids"].tolist(), False)
    np.testing.assert_allclose(weights, expected["weights"], rtol=1e-5)
    # The store's verified copy, and not the file that it was built from.
    assert str(bench.folder / "elsewhere") in maps
    assert str(library) not in maps


def test_an_image_is_encoded_and_decoded(bench: Workbench, library: Path) -> None:
    wanted = small_profile("edge", dims={"h": "8..16", "w": "8..16"})
    built = bench.build(image_model(), "image", profile=wanted, custom_ops=[library])
    image = np.random.default_rng(1).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    expected = plain_answers(built.source, library, image=image)["y"]
    with bench.load(built) as model:
        np.testing.assert_allclose(model.run({"image": image})["y"], expected, rtol=1e-4, atol=1e-3)
    assert described(built).operators == (
        "com.microsoft.extensions::DecodeImage",
        "com.microsoft.extensions::EncodeImage",
    )


def test_a_file_of_an_image_is_decoded(bench: Workbench, library: Path, tmp_path: Path) -> None:
    """No such file is generated: other sizes are tried with the user's, cut off or repeated."""
    folder = tmp_path / "files"
    folder.mkdir()
    for width, height in ((8, 8), (16, 12)):
        np.savez(folder / f"{width}.npz", png=png_file(width, height))
    wanted = small_profile("edge", dims={})
    built = bench.build(file_model(), "file", profile=wanted, custom_ops=[library], fixtures=folder)
    asked = png_file(9, 10)
    expected = plain_answers(built.source, library, png=asked)["y"]
    with bench.load(built) as model:
        found = model.run({"png": asked})["y"]
    assert found.shape == (10, 9, 3)
    np.testing.assert_array_equal(found, expected)


def test_a_library_that_ends_the_process_on_generated_values(
    bench: Workbench, library: Path
) -> None:
    """It does, where bytes are neither PNG nor JPEG."""
    error = refusal(bench.build, file_model(), "ended", custom_ops=[library])
    assert error.code == "AOTC-I013"
    assert "--fixtures" in error.fix


def statement(built: Built, name: str) -> dict[str, Any]:
    bundle = json.loads((built.path / "attestations" / f"{name}.sigstore.json").read_text())
    return json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))  # type: ignore[no-any-return]


@pytest.mark.parametrize("which", ["shipped", "required"])
def test_attestations_name_the_library(which: str, request: pytest.FixtureRequest) -> None:
    built: Built = request.getfixturevalue(which)
    found = described(built)
    components = statement(built, "sbom")["predicate"]["components"]
    (component,) = (each for each in components if each["name"] == found.name)
    assert component["hashes"] == [{"alg": "SHA-256", "content": found.sha256}]
    assert component["scope"] == "required"
    stated = {each["name"]: each["value"] for each in component["properties"]}
    assert stated["aotc:operators"] == "ai.onnx.contrib::BertTokenizer"
    assert stated.get("aotc:payload-path") == found.path
    provenance = statement(built, "provenance")["predicate"]
    resolved = provenance["buildDefinition"]["resolvedDependencies"]
    (resource,) = (each for each in resolved if each["name"] == found.name)
    assert resource["digest"] == {"sha256": found.sha256}
    assert resource["annotations"]["role"] == "custom operators"


def test_inspect_and_diff_tell_it(shipped: Built, required: Built) -> None:
    from aotc.report.sheets.variants import requirements_in_words

    assert inspect(shipped.path).artifact is not None
    needs = [requirements_in_words(only_variant(each).requirements) for each in (shipped, required)]
    assert "in the artifact) for cpython-" in needs[0]
    assert "at load) for cpython-" in needs[1]
    report = diff(shipped.path, required.path, run=False)
    assert {"requirements", "contents"} <= {each.area for each in report.areas if each.changes}


# A library that each host has to have.


def test_a_required_library_is_named_at_load(
    bench: Workbench, required: Built, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert described(required).path is None
    assert not (required.payload / "custom_ops").exists()
    expected = plain_answers(required.source, library, **TEXT)["ids"].tolist()
    assert loaded_elsewhere(bench, required, library)[0][0] == expected
    monkeypatch.setenv("AOTC_CUSTOM_OPS", str(library))
    assert loaded_elsewhere(bench, required)[0][0] == expected
    assert verify(required.path, key=bench.public).verdict == "optimal"


def test_without_it_or_with_another_nothing_is_loaded(
    bench: Workbench, required: Built, library: Path, tmp_path: Path
) -> None:
    other = tmp_path / library.name
    other.write_bytes(library.read_bytes() + b"\0")
    for named in ([], [other]):
        error = refusal(load, required.path, key=bench.public, custom_ops=named)
        assert [each.code for each in error.every()] == ["AOTC-C009", "AOTC-C023"]
    assert str(other) not in Path("/proc/self/maps").read_text()
    report = verify(required.path, key=bench.public)
    assert [each.code for each in report.refusals] == ["AOTC-C009", "AOTC-C023"]


def test_what_is_registered_is_a_copy_that_was_hashed(
    required: Built, library: Path, tmp_path: Path
) -> None:
    """Whatever the host's file holds after that."""
    from aotc.runtime.custom_ops import files_of, registrable

    own = Path(shutil.copy(library, tmp_path / "own.so"))
    variant = only_variant(required)
    with registrable(required.payload, [variant], [own]) as files:
        own.write_bytes(b"another")
        (file,) = files_of(variant, files)
        assert file_sha256(file) == described(required).sha256
    assert not file.exists()
    with pytest.raises(Exception, match="AOTC-C023"):
        registrable(required.payload, [variant], [own]).__enter__()


def test_a_pipe_is_no_library_and_is_not_waited_for(
    bench: Workbench, required: Built, tmp_path: Path
) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.so")
    error = refusal(load, required.path, key=bench.public, custom_ops=[tmp_path / "pipe.so"])
    assert error.code == "AOTC-I001"


# What is changed, and what is packed.


def test_a_changed_library_is_refused_as_any_file(
    bench: Workbench, shipped: Built, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.aotc"
    shutil.copytree(shipped.path, changed)
    place = changed / "payload" / str(described(shipped).path)
    place.chmod(0o600)
    place.write_bytes(place.read_bytes() + b"\0")
    assert verify(changed, key=bench.public).refusals[0].code == "AOTC-G005"
    error = refusal(load, changed, key=bench.public, store=tmp_path / "store")
    assert error.code == "AOTC-G005"


def test_it_stays_a_file_of_a_packed_artifact(
    bench: Workbench, shipped: Built, tmp_path: Path
) -> None:
    pack(shipped.path, tmp_path / "packed.aotc")
    with load(tmp_path / "packed.aotc", key=bench.public, store=tmp_path / "store") as model:
        assert model.run(TEXT)["ids"].tolist() == [2, 5, 6, 7, 3, 8, 9, 3]


def test_equal_builds_are_equal_and_the_cache_knows_libraries_apart(
    bench: Workbench, shipped: Built, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("AOTC_CACHE", raising=False)
    wanted = small_profile("edge", dims={"batch": "1..2"})

    def built(name: str, file: Path) -> Built:
        return bench.build(shipped.source, name, profile=wanted, custom_ops=[file])

    first = built("first", library)
    assert first.report.artifact_id == shipped.report.artifact_id
    (tmp_path / "other").mkdir()
    same = Path(shutil.copy(library, tmp_path / "other" / library.name))
    again = built("again", same)
    assert (again.report.cached, again.report.artifact_id) == (True, first.report.artifact_id)
    same.write_bytes(library.read_bytes() + b"\0")
    other = built("other", same)
    assert not other.report.cached
    assert described(other).sha256 == file_sha256(same) != described(first).sha256


def test_two_libraries_of_one_domain_are_refused(
    bench: Workbench, library: Path, tmp_path: Path
) -> None:
    second = tmp_path / library.name
    second.write_bytes(library.read_bytes() + b"\0")
    error = refusal(
        bench.build, text_model(), "twice", profile=profile(library), custom_ops=[second]
    )
    assert error.code == "AOTC-I106"
    # The same library twice is one.
    built = bench.build(text_model(), "once", profile=profile(library), custom_ops=[library])
    assert len(only_variant(built).requirements.custom_ops) == 1


# Whose code runs, and when.

MARKS = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    close(open("%s", O_CREAT | O_WRONLY, 0600));
}
"""


def test_a_library_runs_in_workers_and_after_the_signature_alone(
    bench: Workbench, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    own = compiled(tmp_path / "marks.so", MARKS % mark + REGISTERS)
    built = bench.build(linear(), "marks", custom_ops=[own])
    assert mark.exists()
    assert str(own.name) not in Path("/proc/self/maps").read_text()
    # None of the model's operators is its own.
    assert "marks.so" in built.finding("AOTC-I107")
    mark.unlink()
    verify(built.path, key=bench.public)
    inspect(built.path)
    pack(built.path, tmp_path / "packed.aotc")
    stranger = Workbench.at(tmp_path)
    assert refusal(load, built.path, key=stranger.public).code.startswith("AOTC-G")
    # Debugging looks at no signature, so nothing that the artifact ships may run.
    error = refusal(debug_parity, built.path, built.source)
    assert error.code == "AOTC-C023"
    assert not mark.exists()
    with load(built.path, key=bench.public, store=tmp_path / "store"):
        assert mark.exists()


# The tools.


def test_tools_register_it_too(
    bench: Workbench,
    shipped: Built,
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AOTC_CUSTOM_OPS", str(library))
    found = debug_parity(shipped.path, shipped.source)
    assert all(error.passed for error in found.outputs)
    measured = run_bench(shipped.path, against=shipped.source, key=bench.public, runs=3, nodes=True)
    assert "BertTokenizer" in {node.op for node in measured.nodes.nodes}
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(shipped.source, folder / "text.onnx")
    report = check_models(folder, profile=profile(library))
    assert [model.outcome for model in report.models] == ["built"]


def test_lower_precision_leaves_its_operators(bench: Workbench, library: Path) -> None:
    wanted = small_profile("edge", dims={"batch": "1..2"}, precision="float16")
    built = bench.build(text_model(), "half", profile=wanted, custom_ops=[library])
    expected = plain_answers(built.source, library, **TEXT)
    with bench.load(built) as model:
        found = model.run(TEXT)
    assert found["ids"].tolist() == expected["ids"].tolist()
    np.testing.assert_allclose(found["weights"], expected["weights"], atol=1e-2)
