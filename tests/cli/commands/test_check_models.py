"""`aotc check-models`: every outcome, in one folder of real models, and what ends a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import TOOLCHAIN, Command, Outcome, finish, wait_until
from made_models import endless, enormous, linear, save, save_external
from onnx import numpy_helper
from process_tree import alive, descendants

import aotc as library
import aotc.fleet.executors.local as local_module
from aotc.base.errors import AotcError
from aotc.fleet.executors.base import Job, JobOutcome, Log
from aotc.spec.codec import decode
from aotc.spec.command_reports import CheckModelsReport
from aotc.spec.json_schema import schema_of
from aotc.tools.check_outcomes import RANKS

# A run takes so little CPU time that only a loop without end takes more.
_PROFILE = """\
schema: aotc.profile/1
name: tight
probe: {run_seconds: 1}
limits: {memory_bytes: 4000000000}
"""
# No model at hand crashes ONNX Runtime or finds a bug of ours: two names do so instead.
_BROKEN = """\
import os, sys
if "aotc.session.forkserver" in sys.orig_argv:
    import aotc.tools.model_sandbox as building
    real = building.build
    def build(model, **named):
        if model.stem == "crashes":
            os.abort()
        if model.stem == "finds_a_bug":
            return {}["no such key"]
        return real(model, **named)
    building.build = build
"""


def data_of(
    folder: Path, name: str, rows: int = 2, *, wrong: float = 0.0, dtype: Any = np.float32
) -> None:
    """Test data of the linear model, its outputs off by `wrong`."""
    place = folder / name
    place.mkdir(parents=True)
    (weight,) = linear().graph.initializer
    x = np.random.default_rng(3).standard_normal((rows, 16)).astype(dtype)
    y = x.astype(np.float32) @ numpy_helper.to_array(weight) + np.float32(wrong)
    (place / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    (place / "output_0.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())


def unknown() -> onnx.ModelProto:
    model = linear()
    model.graph.node[0].op_type = "NoSuchOperator"
    return model


def write_models(folder: Path) -> None:
    """A model for each outcome; and files and folders that are none."""
    expected = folder / "vision" / "expected"
    for place in (expected, folder / "others", folder / "text", folder / "weights"):
        place.mkdir(parents=True)
    save(linear(), expected / "model.onnx")
    data_of(expected, "test_data_set_0")
    data_of(expected, "test_data_set_10", rows=3)
    for name in ("alone", "by_runtime", "no_such_type"):
        save(linear(), folder / "others" / f"{name}.onnx")
    # Nobody's, as there are several models.
    data_of(folder / "others", "test_data_set_0", wrong=1.0)
    data_of(folder / "others", "by_runtime.test_data_set_0", wrong=1.0)
    data_of(folder / "others", "no_such_type.test_data_set_0", dtype=np.float64)
    save(unknown(), folder / "text" / "unknown.onnx")
    save(endless(), folder / "text" / "hangs.onnx")
    save(enormous(), folder / "text" / "enormous.onnx")
    save(linear(), folder / "text" / "crashes.onnx")
    save(linear(), folder / "text" / "finds_a_bug.onnx")
    (folder / "text" / "broken.onnx").write_bytes(b"no model")
    # A model whose weights are in a file that is called like a model.
    _, content = save_external(folder / "weights", "data.onnx")
    (folder / "weights" / "data.onnx").write_bytes(content)
    # A folder that comes round again.
    (folder / "vision" / "again").symlink_to(folder, target_is_directory=True)


OUTCOMES = {
    "others/alone.onnx": "built, nothing compared",
    "others/by_runtime.onnx": "built, as onnxruntime",
    "others/no_such_type.onnx": "built, data refused AOTC-R002",
    "text/broken.onnx": "refused AOTC-I002",
    "text/crashes.onnx": "crashed AOTC-I013",
    "text/enormous.onnx": "out-of-memory AOTC-I015",
    "text/finds_a_bug.onnx": "bug AOTC-R999",
    "text/hangs.onnx": "timeout AOTC-I014",
    "text/unknown.onnx": "refused AOTC-I009",
    "vision/expected": "built, as expected",
    "weights/external.onnx": "built, nothing compared",
}


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("check")
    (folder / "broken").mkdir()
    (folder / "broken" / "sitecustomize.py").write_text(_BROKEN)
    write_models(folder / "models")
    (folder / "tight.yaml").write_text(_PROFILE)
    return Command(folder)


@pytest.fixture(scope="module")
def checked(aotc: Command) -> Outcome:
    words = ("check-models", "models", "--profile", "tight.yaml", "--output", "first.json")
    path = os.pathsep.join((str(TOOLCHAIN), str(aotc.folder / "broken")))
    return Command(aotc.folder, {"PYTHONPATH": path}, anew=True)(*words, "--jobs", "2")


def words_of(document: Mapping[str, Any]) -> dict[str, str]:
    answer = decode(CheckModelsReport, document)
    from aotc.tools.check_outcomes import in_words

    return {each.model: in_words(each) for each in answer.models}


def test_every_outcome_is_told_and_the_run_goes_on(aotc: Command, checked: Outcome) -> None:
    document = checked.document
    assert words_of(document) == OUTCOMES
    assert checked.status == 1
    assert sum(document["summary"].values()) == len(OUTCOMES)
    assert document["skipped"] == [
        {"path": "weights/data.onnx", "reason": "external data of external.onnx"}
    ]
    models = {each["model"]: each for each in document["models"]}
    assert models["vision/expected"]["compared"] == 2
    assert models["vision/expected"]["verdict"] == "optimal"
    assert models["text/finds_a_bug.onnx"]["what"] == "KeyError: 'no such key'"
    assert "error" in models["others/by_runtime.onnx"]["what"]
    assert models["others/by_runtime.onnx"]["where"] == "by_runtime.test_data_set_0"
    assert document["versions"]["onnx"] == onnx.__version__
    # Nothing is left of all that, and nothing of the user's was touched.
    assert list((aotc.folder / "tmp").iterdir()) == []
    assert not (aotc.folder / "home" / "config").exists()
    assert not (aotc.folder / "home" / "cache" / "aotc").exists()


def test_the_document_keeps_its_schema(checked: Outcome) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(checked.document, schema_of(CheckModelsReport))


def test_the_output_is_the_document(aotc: Command, checked: Outcome) -> None:
    assert json.loads((aotc.folder / "first.json").read_text()) == checked.document
    again = aotc("check-models", "models", "--output", "first.json")
    again.refused("AOTC-I017", 3)


def changed(document: Mapping[str, Any], **outcomes: Mapping[str, str]) -> str:
    """The document with other outcomes of some models; None: without the model."""
    rows = []
    for row in document["models"]:
        name = Path(row["model"]).stem
        if name in outcomes:
            row = {"model": row["model"], **outcomes[name]}
        rows.append(row)
    return json.dumps({**document, "models": rows})


PART = ("--pattern", "others/*")


def test_what_is_worse_fails_and_what_is_better_does_not(aotc: Command, checked: Outcome) -> None:
    built = {"outcome": "built", "answers": "as-expected"}
    refused = {"outcome": "refused", "code": "AOTC-S001"}
    earlier = aotc.folder / "earlier.json"
    earlier.write_text(changed(checked.document, by_runtime=built, no_such_type=refused))
    worse = aotc("check-models", "models", *PART, "--against", earlier)
    assert worse.status == 1
    found = worse.document["against"]
    assert found["worse"] == [
        {
            "model": "others/by_runtime.onnx",
            "before": "built, as expected",
            "now": "built, as onnxruntime",
        }
    ]
    assert [each["model"] for each in found["better"]] == ["others/no_such_type.onnx"]
    # Of what the pattern leaves out, nothing is gone.
    assert (found["added"], found["removed"]) == ([], [])
    earlier.write_text(changed(checked.document, no_such_type=refused))
    words = ("--pattern", "others/no_such*", "--against", earlier)
    assert aotc("check-models", "models", *words).status == 0


def test_the_table(aotc: Command, checked: Outcome) -> None:
    earlier = aotc.folder / "table.json"
    built = {"outcome": "built", "answers": "as-expected"}
    earlier.write_text(changed(checked.document, by_runtime=built))
    words = ("--pattern", "others/by_*", "--against", earlier)
    shown = aotc.plain("check-models", "models", *words)
    assert shown.status == 1
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert lines[0] == "models 1 model, 1 WORSE"
    assert "built, as onnxruntime 1" in lines
    assert "worse before now" in lines
    assert "others/by_runtime.onnx built, as expected built, as onnxruntime" in lines


def test_given_test_data_becomes_the_fixtures(aotc: Command, tmp_path: Path) -> None:
    """Data of a type that the model does not take is refused by the build, once it is given."""
    shutil.copytree(aotc.folder / "models" / "others", tmp_path / "others")
    words = ("check-models", tmp_path / "others", "--pattern", "no_such*")
    found = aotc(*words, "--fixtures")
    assert words_of(found.document) == {"no_such_type.onnx": "refused AOTC-I024"}


def test_builds_come_from_the_cache_where_that_is_asked(tmp_path: Path) -> None:
    aotc = Command(tmp_path)
    (tmp_path / "models").mkdir()
    save(linear(), tmp_path / "models" / "linear.onnx")
    for _ in range(2):
        assert aotc("check-models", "models", "--cache").status == 0
    listed = aotc("cache", "list").document["entries"]
    assert "artifact" in {each["kind"] for each in listed}


# -- what a run refuses
def test_a_folder_without_models(aotc: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = aotc("check-models", tmp_path / "empty").refused("AOTC-I001", 3)
    assert found["what"] == "there is no *.onnx file below the folder"
    found = aotc("check-models", tmp_path / "none").refused("AOTC-I001", 3)
    assert found["what"] == "no such model folder"
    found = aotc("check-models", "models", "--pattern", "sound/*").refused("AOTC-I001", 3)
    assert found["expected"] == "one of 12, such as others/alone.onnx"


def test_a_folder_that_cannot_be_read(aotc: Command, tmp_path: Path) -> None:
    save(linear(), tmp_path / "linear.onnx")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    if os.access(closed, os.R_OK):
        pytest.skip("who runs this test may read every folder")
    found = aotc("check-models", tmp_path).refused("AOTC-I001", 3)
    assert found["where"] == str(closed)


def test_a_document_of_another_kind(aotc: Command, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "aotc.run/1"}')
    words = ("check-models", "models", "--against")
    aotc(*words, tmp_path / "run.json").refused("AOTC-I027", 2)
    aotc(*words, tmp_path / "none.json").refused("AOTC-I001", 3)


def test_artifacts_are_no_models(tmp_path: Path) -> None:
    aotc = Command(tmp_path)
    (tmp_path / "models").mkdir()
    save(linear(), tmp_path / "models" / "linear.onnx")
    assert aotc("build", "models/linear.onnx", "-o", "models/linear.aotc").status == 0
    found = aotc("check-models", "models").document
    assert [each["model"] for each in found["models"]] == ["linear.onnx"]
    assert found["skipped"] == [{"path": "linear.aotc", "reason": "an artifact"}]


def test_an_interrupt_ends_with_what_is_known(tmp_path: Path) -> None:
    aotc = Command(tmp_path)
    models = tmp_path / "models"
    models.mkdir()
    save(linear(), models / "a.onnx")
    save(endless(), models / "b.onnx")
    save(linear(), models / "c.onnx")
    process = aotc.start("check-models", "models", "--json", "--output", "known.json")

    def busy() -> set[int]:
        assert process.poll() is None, process.communicate()
        tried = (tmp_path / "tmp").glob("aotc-fleet-*/2-*/.b.aotc.*/build/reference/trying.json")
        return descendants(process.pid) if any(tried) else set()

    workers = wait_until(busy)
    os.killpg(process.pid, signal.SIGINT)
    outcome = finish(process)
    assert outcome.status == 130
    assert words_of(outcome.document) == {"a.onnx": "built, nothing compared"}
    assert outcome.document["unchecked"] == ["b.onnx", "c.onnx"]
    assert json.loads((tmp_path / "known.json").read_text()) == outcome.document
    assert aotc.leftovers() == []
    wait_until(lambda: not alive(workers))


def test_what_becomes_of_workers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Telling(local_module.LocalExecutor):
        def run(
            self, jobs: Sequence[Job], log: Log | None = None
        ) -> Generator[JobOutcome, None, None]:
            assert log is not None
            log("xeon", "is lost")
            log(jobs[0].name, "a line of the model's")
            yield JobOutcome(job=jobs[0], error=AotcError("AOTC-R055", "no worker is left"))

    monkeypatch.setattr(local_module, "LocalExecutor", Telling)
    save(linear(), tmp_path / "linear.onnx")
    told: list[str] = []
    library.check_models(tmp_path, progress=told.append)
    assert told == ["xeon: is lost"]


def test_the_library_function(tmp_path: Path) -> None:
    save(linear(), tmp_path / "linear.onnx")
    told: list[str] = []
    answer = library.check_models(tmp_path, progress=told.append)
    assert answer.summary == {"built, nothing compared": 1}
    assert told == ["1/1 linear.onnx"]


def test_each_outcome_has_one_rank() -> None:
    pairs = [pair for row in RANKS for pair in row]
    assert len(pairs) == len(set(pairs))
    answers = {"", "as-expected", "as-onnxruntime", "refused", "differ"}
    assert {other for outcome, other in pairs if outcome == "built"} == answers
