"""Models and profiles that a build refuses: each with its code, and nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from command import Command
from made_models import FEATURES, endless, enormous, linear, save, save_external
from onnx import helper

TIGHT = """\
schema: aotc.profile/1
name: tight
limits: {seconds: 600, memory_bytes: 4294967296}
probe: {run_seconds: 1, seconds: 10}
"""


def refused(aotc: Command, model: str | Path, code: str, *words: str) -> dict[str, str]:
    """The refusal of a build of `model`, which leaves nothing behind."""
    before = sorted(aotc.folder.iterdir())
    found = aotc("build", model, "-o", "out.aotc", *words).refused(code, 3)
    made = {path.name for path in set(aotc.folder.iterdir()) - set(before)}
    assert made <= {"home", "tmp"}
    assert aotc.leftovers() == []
    return found


def written(folder: Path, profile: str) -> str:
    path = folder / "given.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: given\n{profile}\n", encoding="utf-8")
    return str(path)


def with_weights(aotc: Command) -> tuple[Path, Path, bytes]:
    """A model, the path of its external weights, and what they should be."""
    model, content = save_external(aotc.folder)
    return model, aotc.folder / "weights.bin", content


def test_a_good_model_is_built(aotc: Command) -> None:
    """What follows is refused for its fault alone."""
    model, weights, content = with_weights(aotc)
    weights.write_bytes(content)
    outcome = aotc("build", model, "-o", "out.aotc")
    assert (outcome.status, outcome.document["schema"]) == (0, "aotc.build/1")
    assert aotc.leftovers() == []
    assert sorted(path.name for path in (aotc.folder / "out.aotc").iterdir()) == [
        "attestations",
        "payload",
    ]


# -- the file
def test_no_such_file(aotc: Command) -> None:
    found = refused(aotc, "none.onnx", "AOTC-I001")
    assert (found["what"], found["where"]) == ("no such model file", "none.onnx")


def test_a_folder(aotc: Command) -> None:
    (aotc.folder / "folder.onnx").mkdir()
    found = refused(aotc, "folder.onnx", "AOTC-I002")
    assert found["what"] == "the path is a folder, not a model file"


def test_paths_that_lead_nowhere(aotc: Command) -> None:
    (aotc.folder / "loop.onnx").symlink_to("loop.onnx")
    os.mkfifo(aotc.folder / "pipe.onnx")
    for path in ("loop.onnx", "pipe.onnx", "n" * 300 + ".onnx", "pipe.onnx/inner.onnx"):
        refused(aotc, path, "AOTC-I001")


def test_an_empty_file(aotc: Command) -> None:
    (aotc.folder / "empty.onnx").touch()
    assert refused(aotc, "empty.onnx", "AOTC-I002")["what"] == "the file is empty"


@pytest.mark.parametrize("left", [1, 2, 0.5, -1])
def test_a_truncated_file(aotc: Command, left: float) -> None:
    content = linear().SerializeToString()
    count = round(left * len(content)) if 0 < left < 1 else int(left)
    (aotc.folder / "cut.onnx").write_bytes(content[:count])
    refused(aotc, "cut.onnx", "AOTC-I002")


@pytest.mark.parametrize("seed", range(2))
def test_random_bytes(aotc: Command, seed: int) -> None:
    (aotc.folder / "random.onnx").write_bytes(random.Random(seed).randbytes(4096))
    refused(aotc, "random.onnx", "AOTC-I002")


def test_a_text_file(aotc: Command) -> None:
    (aotc.folder / "text.onnx").write_text("this is no model\n" * 100, encoding="utf-8")
    refused(aotc, "text.onnx", "AOTC-I002")


@pytest.mark.parametrize(("content", "code"), [(b"", "AOTC-I002"), (b"text\n", "AOTC-I002")])
def test_inspect_refuses_alike(aotc: Command, content: bytes, code: str) -> None:
    (aotc.folder / "bad.onnx").write_bytes(content)
    aotc("inspect", "bad.onnx").refused(code, 3)
    aotc("inspect", "none.onnx").refused("AOTC-I001", 3)


def test_what_may_not_be_read(aotc: Command) -> None:
    """Root may read everything, unless it gives that up."""
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]
    prefix = drop if os.geteuid() == 0 else []
    if prefix and not shutil.which("setpriv"):
        pytest.skip("this is root, and setpriv is missing: every file can be read")
    model, weights, content = with_weights(aotc)
    weights.write_bytes(content)
    weights.chmod(0)
    found = aotc("build", model, "-o", "out.aotc", prefix=prefix).refused("AOTC-I003", 3)
    assert found["what"] == "cannot read external data: Permission denied"
    model.chmod(0)
    found = aotc("build", model, "-o", "out.aotc", prefix=prefix).refused("AOTC-I001", 3)
    assert found["what"] == "cannot read the model: Permission denied"
    assert aotc.leftovers() == []


# -- external data
def test_external_data_missing(aotc: Command) -> None:
    model, weights, _ = with_weights(aotc)
    assert refused(aotc, model, "AOTC-I003")["where"] == str(weights)


def test_external_data_truncated(aotc: Command) -> None:
    model, weights, content = with_weights(aotc)
    weights.write_bytes(content[:-1])
    found = refused(aotc, model, "AOTC-I004")
    assert found["expected"] == f"at least {len(content)} bytes"
    assert found["found"] == f"{len(content) - 1} bytes"


@pytest.mark.parametrize("location", ["../up.bin", "in/../../up.bin", "{absolute}", "..\\up.bin"])
def test_external_data_elsewhere(aotc: Command, location: str) -> None:
    folder = aotc.folder / "model"
    (folder / "in").mkdir(parents=True)
    location = location.format(absolute=aotc.folder / "up.bin")
    model, content = save_external(folder, location)
    (aotc.folder / "up.bin").write_bytes(content)
    assert refused(aotc, model, "AOTC-I005")["where"] == repr(location)


def inside(aotc: Command, location: str = "weights.bin") -> tuple[Path, Path, Path]:
    """A model in a folder of its own, the path of its weights, and those weights elsewhere."""
    (aotc.folder / "model").mkdir()
    model, content = save_external(aotc.folder / "model", location)
    other = aotc.folder / "other" / "weights.bin"
    other.parent.mkdir()
    other.write_bytes(content)
    return model, aotc.folder / "model" / location, other


@pytest.mark.parametrize("way", ["absolute", "relative", "twice"])
def test_external_data_by_a_link_that_leads_elsewhere(aotc: Command, way: str) -> None:
    model, weights, other = inside(aotc)
    if way == "twice":
        (model.parent / "next").symlink_to("../other/weights.bin")
    target = {"absolute": other, "relative": "../other/weights.bin", "twice": "next"}[way]
    weights.symlink_to(target)
    found = refused(aotc, model, "AOTC-I006")
    assert (found["where"], found["found"]) == (str(weights), f"a link to {other}")
    assert "cp -rL" in found["fix"]


def test_external_data_in_a_folder_that_is_linked_elsewhere(aotc: Command) -> None:
    model, weights, other = inside(aotc, "data/weights.bin")
    weights.parent.symlink_to(other.parent)
    assert refused(aotc, model, "AOTC-I006")["found"] == f"a link to {other}"


def test_external_data_that_is_no_file(aotc: Command) -> None:
    model, weights, _ = with_weights(aotc)
    os.mkfifo(weights)
    assert refused(aotc, model, "AOTC-I006")["found"] == "a folder or special file"
    weights.unlink()
    weights.symlink_to("/dev/zero")
    assert refused(aotc, model, "AOTC-I006")["found"] == "a folder or special file"


def test_external_data_behind_links_that_lead_nowhere(aotc: Command) -> None:
    model, weights, _ = with_weights(aotc)
    weights.symlink_to("back.bin")
    assert refused(aotc, model, "AOTC-I003")["what"].endswith("does not exist: back.bin")
    (aotc.folder / "back.bin").symlink_to("weights.bin")
    assert refused(aotc, model, "AOTC-I006")["found"] == "links that lead in a circle"


def test_blobs_that_are_a_link_are_no_hub(aotc: Command) -> None:
    """Whoever lays the links must not choose where the hub is."""
    model, content = save_external(aotc.folder)
    (aotc.folder / "secret").mkdir()
    (aotc.folder / "secret" / "weights.bin").write_bytes(content)
    snapshot = aotc.folder / "hub" / "snapshots" / "r1"
    snapshot.mkdir(parents=True)
    (aotc.folder / "hub" / "blobs").symlink_to("../secret")
    shutil.copy(model, snapshot / "model.onnx")
    (snapshot / "weights.bin").symlink_to("../../blobs/weights.bin")
    assert refused(aotc, snapshot / "model.onnx", "AOTC-I006")["where"].endswith("r1/weights.bin")


# -- what the model says
def _weights_of_unknown_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def _input_of_unknown_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 99


def _unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "NoSuchOperator"


def _unknown_domain(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "org.example"
    model.opset_import.append(helper.make_opsetid("org.example", 1))


def _new_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99


def _new_ir_version(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def _already_compiled(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "EPContext"
    model.graph.node[0].domain = "com.microsoft"


@pytest.mark.parametrize(
    ("change", "code", "where", "says"),
    [
        (_weights_of_unknown_type, "AOTC-I007", "tensor W", "99"),
        (_input_of_unknown_type, "AOTC-I007", "x", "99"),
        (_new_opset, "AOTC-I008", "changed.onnx", "Opset 99"),
        (_unknown_operator, "AOTC-I009", "changed.onnx", "NoSuchOperator"),
        (_unknown_domain, "AOTC-I009", "changed.onnx", "org.example"),
        (_already_compiled, "AOTC-I010", "node product", ""),
        (_new_ir_version, "AOTC-I016", "changed.onnx", "99"),
    ],
)
def test_a_model_that_cannot_run(
    aotc: Command, change: Callable[[onnx.ModelProto], None], code: str, where: str, says: str
) -> None:
    model = linear()
    change(model)
    save(model, aotc.folder / "changed.onnx")
    found = refused(aotc, "changed.onnx", code)
    assert found["where"] == where
    assert says in found["found"]


def test_a_model_that_never_ends(aotc: Command) -> None:
    save(endless(), aotc.folder / "endless.onnx")
    (aotc.folder / "tight.yaml").write_text(TIGHT, encoding="utf-8")
    found = refused(aotc, "endless.onnx", "AOTC-I014", "--profile", "tight.yaml")
    assert found["what"] == "analyze_job ended by its alarm (one run took too much CPU time)"
    assert "probe.run_seconds" in found["fix"]


def test_a_build_that_takes_too_long(aotc: Command) -> None:
    """The limit of a whole step, where that of one run is never reached."""
    save(endless(), aotc.folder / "endless.onnx")
    # On a busy machine a step before it may be the one that takes so long.
    for seconds in (2, 16, 128):
        profile = written(aotc.folder, f"limits: {{seconds: {seconds}}}")
        found = refused(aotc, "endless.onnx", "AOTC-I014", "--profile", profile)
        if found["what"].startswith("analyze_job"):
            break
    assert found["what"] == f"analyze_job ran longer than {seconds} s"


@pytest.mark.parametrize("profile", ["edge", "tight.yaml"])
def test_a_model_that_allocates_without_end(aotc: Command, profile: str) -> None:
    save(enormous(), aotc.folder / "enormous.onnx")
    (aotc.folder / "tight.yaml").write_text(TIGHT, encoding="utf-8")
    found = refused(aotc, "enormous.onnx", "AOTC-I015", "--profile", profile)
    assert str(64 << 30) in found["found"]


# -- the profile
@pytest.mark.parametrize(
    ("profile", "code", "where", "says"),
    [
        ("dims: {batsh: 4}", "AOTC-S002", "dims.batsh", "nearest: batch"),
        ("inputs: {xx: {dtype: float32}}", "AOTC-S002", "inputs.xx", "nearest: x"),
        ("inputs: {x: {dtype: float64}}", "AOTC-S002", "inputs.x.dtype", "float64"),
        ("inputs: {x: {shape: [batch, 3]}}", "AOTC-S002", "inputs.x.shape", "[batch, 3]"),
        ("inputs: {x: {shape: [batch]}}", "AOTC-S002", "inputs.x.shape", "[batch]"),
        ("dims: {x.1: 3}", "AOTC-S004", "x.1", f"size {FEATURES}"),
        ("dims: {batch: 5..3}", "AOTC-S003", "{file}: dims.batch.min", "5 is more than max 3"),
        (
            "dims: {batch: {min: 1, max: 3, opt: 9}}",
            "AOTC-S003",
            "{file}: dims.batch.opt",
            "9 is outside 1..3",
        ),
        ("dims: {batch: few}", "AOTC-I022", "{file}: dims.batch", "is not SIZE, MIN..MAX or"),
        ("limit: {seconds: 3}", "AOTC-I022", "{file}: limit", "did you mean 'limits'?"),
        ("limits: {second: 3}", "AOTC-I022", "{file}: limits.second", "did you mean 'seconds'?"),
        ("strict: true\nstrict: false", "AOTC-I022", "{file}: strict", "line 4: duplicate key"),
        ("dims: {a: &a 1, b: *a}", "AOTC-I022", "{file}: (top)", "aliases are not allowed"),
        ("dims: {", "AOTC-I022", "{file}: (top)", "not YAML"),
    ],
)
def test_a_bad_profile(aotc: Command, profile: str, code: str, where: str, says: str) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    file = written(aotc.folder, profile)
    found = refused(aotc, "linear.onnx", code, "--profile", file)
    assert found["where"] == where.format(file=file)
    assert says in found["what"] + found["found"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("- schema\n- name\n", "a list"), ("just words\n", "'just words'"), ("", "nothing")],
)
def test_a_profile_that_is_no_mapping(aotc: Command, text: str, says: str) -> None:
    (aotc.folder / "p.yaml").write_text(text, encoding="utf-8")
    found = refused(aotc, "linear.onnx", "AOTC-I022", "--profile", "p.yaml")
    assert found["what"] == f"expected a mapping, found {says}"
    assert aotc("profile", "check", "p.yaml").refused("AOTC-I022", 3)["where"] == "p.yaml: (top)"


def test_every_problem_of_a_profile_is_told(aotc: Command) -> None:
    file = written(aotc.folder, "limit: 1\ndims: {batch: 5..3}\nstrict: perhaps")
    outcome = aotc("build", "linear.onnx", "--profile", file)
    assert outcome.status == 3
    assert [each["where"].partition(": ")[2] for each in outcome.document["errors"]] == [
        "limit",
        "dims.batch.min",
        "strict",
    ]


def test_unknown_names(aotc: Command) -> None:
    found = refused(aotc, "linear.onnx", "AOTC-I021", "--profile", "egde")
    assert "did you mean 'edge'?" in found["what"]
    save(linear(), aotc.folder / "linear.onnx")
    found = refused(aotc, "linear.onnx", "AOTC-I021", "--target", "linux-x86_64")
    assert "did you mean 'linux-x86-64'?" in found["what"]


@pytest.mark.parametrize(
    ("dim", "code", "where"),
    [
        ("batsh=4", "AOTC-S002", "dims.batsh"),
        ("batch=5..3", "AOTC-S003", "--dim batch=5..3"),
        ("batch=8..60:8", "AOTC-S003", "--dim batch=8..60:8"),
        ("batch=8..64:0", "AOTC-S003", "--dim batch=8..64:0"),
    ],
)
def test_a_bad_dim(aotc: Command, dim: str, code: str, where: str) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    assert refused(aotc, "linear.onnx", code, "--dim", dim)["where"] == where


def test_a_dim_that_cannot_be_read(aotc: Command) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    error = aotc("build", "linear.onnx", "--dim", "batch=many").refused("AOTC-I027", 2)
    assert error["where"] == "--dim batch=many"


def test_an_artifact_is_no_model(aotc: Command) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    assert aotc("build", "linear.onnx", "-o", "made.aotc").status == 0
    error = refused(aotc, "made.aotc", "AOTC-I002")
    assert error["what"] == "this is an artifact already, not a model"


def test_a_file_without_end_is_not_read(aotc: Command) -> None:
    """Zeros that no disk holds: whoever read them all would need the memory for it."""
    path = aotc.folder / "endless.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    refused(aotc, path, "AOTC-I002")
