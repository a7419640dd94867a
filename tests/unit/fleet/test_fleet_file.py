"""A fleet's file: the cells that it names, and all that is wrong with it at once, by line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_models import linear, save
from refusals import refusal, refusal_code

from aotc.fleet.building import executor_of
from aotc.fleet.cells import FleetFile, read_fleet
from aotc.spec.shapes import DimRange

_HEAD = "schema: aotc.fleet/1\nname: shop\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with five models and a profile and a target of its own."""
    for name in ("a", "b", "deep/a", "plain/model", "deep/plain/model"):
        path = tmp_path / "models" / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(linear(), path)
    (tmp_path / "models" / "notes.txt").write_text("no model")
    (tmp_path / "quick.yaml").write_text("schema: aotc.profile/1\nname: quick\n")
    (tmp_path / "box.yaml").write_text("schema: aotc.target/1\nname: box\n")
    return tmp_path


def read(folder: Path, text: str) -> FleetFile:
    """The fleet with this text after the schema and the name, which are two lines."""
    path = folder / "fleet.yaml"
    path.write_text(_HEAD + text)
    return read_fleet(path)


def problems(folder: Path, text: str) -> list[tuple[str, int, str]]:
    """The code, the line and the text of everything that is wrong."""
    found = refusal(read, folder, text)
    return [(e.code, e.place.line if e.place else 0, e.what) for e in found.every()]


def names(fleet: FleetFile) -> list[str]:
    """The names of the cells."""
    return [task.cell.name for task in fleet.tasks]


def test_models_alone_are_a_fleet(folder: Path) -> None:
    fleet = read(folder, "models: [models/a.onnx]\n")
    (task,) = fleet.tasks
    assert task.cell.name == "a/edge/host"
    assert Path(task.cell.output) == folder / "artifacts/a/edge/host.aotc"
    assert (task.cell.required, task.cell.timeout_seconds, task.cell.needs.cpus) == (True, 3600, 1)


def test_a_glob_finds_models_in_their_order_and_names_them_apart(folder: Path) -> None:
    fleet = read(folder, "models: ['models/**']\n")
    assert names(fleet) == [
        "models-a/edge/host",
        "b/edge/host",
        "deep-a/edge/host",
        "deep-plain/edge/host",
        "models-plain/edge/host",
    ]


def test_what_two_globs_find_is_one_model(folder: Path) -> None:
    fleet = read(folder, "models: [models/a.onnx, 'models/[ab].onnx']\n")
    assert names(fleet) == ["a/edge/host", "b/edge/host"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_path_says_more_of_a_model_than_a_glob(folder: Path, swapped: bool) -> None:
    (folder / "data.npz").touch()
    entries = ["'models/[ab].onnx'", "{path: models/a.onnx, fixtures: data.npz}"]
    fleet = read(folder, f"models: [{', '.join(entries[::-1] if swapped else entries)}]\n")
    assert names(fleet) == ["a/edge/host", "b/edge/host"]
    assert [task.fixtures for task in fleet.tasks] == [folder / "data.npz", None]


def test_names_are_the_same_wherever_the_fleet_lies(folder: Path) -> None:
    for name in ("a", "model"):
        shutil.copy(folder / "models/a.onnx", folder / f"{name}.onnx")
    text = "models: ['*.onnx', {path: models/b.onnx, name: a}]\n"
    assert names(read(folder, text)) == ["a-2/edge/host", "model/edge/host", "a/edge/host"]


def test_a_stated_name_stays_and_others_give_way(folder: Path) -> None:
    text = "models: [models/a.onnx, {path: models/b.onnx, name: a}]\n"
    assert names(read(folder, text)) == ["models-a/edge/host", "a/edge/host"]


def test_cells_are_models_by_profiles_by_targets(folder: Path) -> None:
    text = (
        "models: [models/a.onnx, models/b.onnx]\nprofiles: [edge, quick.yaml]\n"
        "targets: [box.yaml, linux-x86-64]\n"
        "exclude: [{match: {model: b, profile: quick}, reason: not asked for}]\n"
    )
    fleet = read(folder, text)
    assert names(fleet) == [
        f"a/{p}/{t}" for p in ("edge", "quick") for t in ("box", "linux-x86-64")
    ] + ["b/edge/box", "b/edge/linux-x86-64"]
    assert [(cell.name, reason) for cell, reason in fleet.excluded] == [
        ("b/quick/box", "not asked for"),
        ("b/quick/linux-x86-64", "not asked for"),
    ]


def test_a_later_row_comes_first_and_dims_add_up(folder: Path) -> None:
    text = (
        "models: ['models/[ab].onnx']\nrows:\n"
        "  - {match: {}, settings: {dims: {batch: 1..8}, precision: int8, timeout_seconds: 60}}\n"
        "  - {match: {model: b}, settings: {dims: {seq: 16}, precision: fp16, required: false}}\n"
    )
    a, b = read(folder, text).tasks
    assert (a.settings.precision, b.settings.precision) == ("int8", "float16")
    assert (a.cell.required, b.cell.required) == (True, False)
    assert (a.cell.timeout_seconds, b.cell.timeout_seconds) == (60, 60)
    dims = {"batch": DimRange.from_json("1..8"), "seq": DimRange.from_json(16)}
    assert (a.settings.dims, b.settings.dims) == ({"batch": dims["batch"]}, dims)


def test_values_that_are_none_are_told_by_line(folder: Path) -> None:
    text = (
        "models: [{path: models/a.onnx, nam: a}, 7]\n"
        "rows:\n  - match: {}\n    settings:\n      dims: {batch: 8..1}\n"
        "      needs: {cpus: 0, memory_bytes: many}\n      timeout_seconds: -1\n"
        "merge: all\n"
    )
    assert [(code, line) for code, line, _ in problems(folder, text)] == [
        ("AOTC-I160", 3),
        ("AOTC-I160", 3),
        ("AOTC-S003", 7),
        ("AOTC-I160", 8),
        ("AOTC-I160", 8),
        ("AOTC-I160", 9),
        ("AOTC-I160", 10),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("models: [\n", "AOTC-I160"),
        ("models: []\n", "AOTC-I160"),
        ("models: [a]\nmodels: [b]\n", "AOTC-I160"),
        ("models: [!!python/name:os.system a]\n", "AOTC-I160"),
        ("", "AOTC-I160"),
        (
            "models: [models/a.onnx]\nrows: [{match: {}, settings: {values: {x: ..}}}]\n",
            "AOTC-I110",
        ),
    ],
)
def test_what_is_no_fleet_is_refused(folder: Path, text: str, code: str) -> None:
    assert refusal_code(read, folder, text) == code


def test_a_newer_schema_is_told_as_such(folder: Path) -> None:
    path = folder / "fleet.yaml"
    path.write_text("schema: aotc.fleet/9\nname: x\nmodels: [a]\n")
    assert refusal_code(read_fleet, path) == "AOTC-I046"


def test_a_file_that_is_not_there(folder: Path) -> None:
    assert refusal_code(read_fleet, folder / "none.yaml") == "AOTC-I001"


def test_what_is_unknown_is_told_at_once(folder: Path) -> None:
    text = (
        "models:\n  - models/c.onnx\n  - 'models/*.pt2'\n"
        "  - {path: models/a.onnx, fixtures: none.npz}\n"
        "profiles:\n  - egde\n  - box.yaml\ntargets:\n  - hots\n"
        "output: '{model}/{modle}.aotc'\nmerged_output: '{target}.aotc'\n"
    )
    found = problems(folder, text)
    assert [(code, line) for code, line, _ in found] == [
        ("AOTC-I165", 12),
        ("AOTC-I165", 13),
        ("AOTC-I161", 4),
        ("AOTC-I161", 5),
        ("AOTC-I161", 6),
        ("AOTC-I162", 8),
        ("AOTC-I162", 9),
        ("AOTC-I022", 1),
        ("AOTC-I162", 11),
    ]
    assert found[2][2] == "there is no such model: 'models/c.onnx'; did you mean 'b.onnx'?"
    assert found[5][2] == "no such profile: 'egde'; did you mean 'edge'?"
    assert found[8][2] == "no such target: 'hots'; did you mean 'host'?"


def test_names_that_cannot_be(folder: Path) -> None:
    text = (
        "models:\n  - {path: 'models/[ab].onnx', name: one}\n"
        "  - {path: models/a.onnx, name: same}\n  - {path: models/b.onnx, name: same}\n"
    )
    assert problems(folder, text) == [
        ("AOTC-I160", 4, "the name 'one' is for one model"),
        ("AOTC-I160", 5, "two models have the name 'same'"),
        ("AOTC-I160", 6, "two models have the name 'same'"),
    ]


def test_two_cells_with_one_output_are_named(folder: Path) -> None:
    text = "models: ['models/[ab].onnx']\noutput: built.aotc\n"
    assert problems(folder, text) == [
        ("AOTC-I163", 4, "a/edge/host and b/edge/host have one output")
    ]
    text = (
        "models: ['models/[ab].onnx']\noutput: 'x/{model}.aotc'\n"
        "rows: [{match: {model: b}, settings: {output: x/a.aotc/b.aotc}}]\n"
    )
    assert problems(folder, text) == [
        ("AOTC-I163", 5, "a/edge/host and b/edge/host have one output")
    ]
    text = "models: [models/a.onnx]\nmerge: by-model\nmerged_output: 'artifacts/{model}/edge'\n"
    assert problems(folder, text)[0][0] == "AOTC-I163"


def test_rows_that_match_nothing_are_told(folder: Path) -> None:
    text = (
        "models: [models/a.onnx]\nrows:\n  - {match: {model: resnet}}\n"
        "exclude:\n  - {match: {target: gpu}}\n"
    )
    assert problems(folder, text) == [
        ("AOTC-I167", 5, "the row matches no cell"),
        ("AOTC-I167", 7, "the exclusion matches no cell"),
    ]


def test_only_and_nothing_to_build(folder: Path) -> None:
    fleet = read(folder, "models: ['models/[ab].onnx']\nprofiles: [edge, quick.yaml]\n")
    assert names(fleet.only(["b/*"])) == ["b/edge/host", "b/quick/host"]
    assert names(fleet.only(["*/edge/*", "a/*"])) == ["a/edge/host", "a/quick/host", "b/edge/host"]
    assert refusal_code(fleet.only, ["c/*"]) == "AOTC-I166"
    text = "models: [models/a.onnx]\nexclude: [{match: {}}]\n"
    assert refusal_code(read(folder, text).only, []) == "AOTC-I166"


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", "1/100001"])
def test_shares_that_are_none(folder: Path, shard: str) -> None:
    assert refusal_code(read(folder, "models: [models/a.onnx]\n").share, shard) == "AOTC-I027"


def test_shares_are_all_cells_and_none_twice(folder: Path) -> None:
    fleet = read(folder, "models: ['models/**']\nprofiles: [edge, quick.yaml]\n")
    found = [name for n in (1, 2, 3) for name in names(fleet.share(f"{n}/3"))]
    assert sorted(found) == sorted(names(fleet))
    assert all(names(fleet.share(f"{n}/3")) for n in (1, 2, 3))
    # A share is the same whatever is built of it.
    assert names(fleet.only(["b/*"]).share("1/3")) == names(fleet.share("1/3").only(["b/*"]))


def test_executors_that_are_none() -> None:
    found = refusal(executor_of, "loocal")
    assert found.what == "no such executor: 'loocal'; did you mean 'local'?"
    assert refusal_code(executor_of, "local://here") == "AOTC-I027"
