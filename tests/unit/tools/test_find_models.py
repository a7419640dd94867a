"""Which files below a folder are models, and which test data belongs to which."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from aotc.base.errors import AotcError
from aotc.tools import found_models
from aotc.tools.found_models import find_models, matches, model_referring_to


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def found(folder: Path, pattern: str = "*") -> dict[str, list[str]]:
    models, _ = find_models(folder, pattern)
    return {model.name: [data.name for data in model.data] for model in models}


def test_a_folder_is_named_for_the_model_that_is_alone_in_it(tmp_path: Path) -> None:
    touch(tmp_path, "a/model.onnx", "b/model.onnx", "b/other.onnx", "model.onnx", "c/d/net.onnx")
    touch(tmp_path, "readme.txt", "a/model.onnx.data")
    assert list(found(tmp_path)) == [
        "a",
        "b/model.onnx",
        "b/other.onnx",
        "c/d/net.onnx",
        "model.onnx",
    ]


def test_whose_test_data_is_whose(tmp_path: Path) -> None:
    touch(
        tmp_path,
        *(f"one/{name}" for name in ("net.onnx", "test_data_set_10/x", "test_data_set_2/x")),
        *(f"two/{name}" for name in ("p.onnx", "q.onnx", "test_data_set_0/x")),
        *("two/q.test_data_set_0/x", "two/test_data_set_x/x", "two/q.test_data_set_0.old/x"),
    )
    assert found(tmp_path) == {
        "one/net.onnx": ["test_data_set_2", "test_data_set_10"],
        "two/p.onnx": [],
        "two/q.onnx": ["q.test_data_set_0"],
    }


def test_links_are_followed_once(tmp_path: Path) -> None:
    touch(tmp_path, "models/a.onnx", "elsewhere/b.onnx")
    (tmp_path / "models" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "models" / "round").symlink_to(tmp_path / "models")
    (tmp_path / "elsewhere" / "again").symlink_to(tmp_path / "models")
    (tmp_path / "models" / "itself").symlink_to(tmp_path / "models" / "itself")
    assert list(found(tmp_path / "models")) == ["a.onnx", "more/b.onnx"]


def test_an_artifact_is_skipped(tmp_path: Path) -> None:
    touch(tmp_path, "a.onnx", "a.aotc/payload/aotc.json", "a.aotc/payload/m/model.onnx")
    models, skipped = find_models(tmp_path)
    assert [model.name for model in models] == ["a.onnx"]
    assert [(item.path, item.reason) for item in skipped] == [("a.aotc", "an artifact")]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / b"a\xff.onnx".decode("utf-8", "surrogateescape")).write_bytes(b"x")
    assert list(found(tmp_path)) == ["a\\xff.onnx"]


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("node/test_abs", "node/*", True),
        ("node/test_abs", "test_a*", True),
        ("node/test_abs", "*/model.onnx", True),
        ("node/test_abs", "test_b*", False),
        ("a/net.onnx", "net.onnx", True),
        ("a/net.onnx", "a", False),
    ],
)
def test_patterns(name: str, pattern: str, fits: bool) -> None:
    assert matches(name, pattern) is fits


def test_who_speaks_of_a_file(tmp_path: Path) -> None:
    touch(tmp_path, "empty.onnx", "data.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert model_referring_to(tmp_path / "data.onnx") == ""
    weights = onnx.TensorProto(name="w", data_location=onnx.TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="data.onnx")
    model = onnx.ModelProto(graph=onnx.GraphProto(initializer=[weights]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert model_referring_to(tmp_path / "data.onnx") == "net.onnx"
    assert model_referring_to(tmp_path / "empty.onnx") == ""


def test_a_folder_of_files_that_are_no_models_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a pipe among them is not waited for."""
    names = [f"{number}.onnx" for number in range(100)]
    touch(tmp_path, *names)
    os.mkfifo(tmp_path / "pipe.onnx")
    read: list[Path] = []
    plain = found_models.read_at_most
    monkeypatch.setattr(found_models, "read_at_most", lambda *a: read.append(a[0]) or plain(*a))
    assert {model_referring_to(tmp_path / name) for name in names} == {""}
    assert len(read) == len(names) + 1


def test_no_model_is_no_success(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none", tmp_path / ("n" * 300)):
        with pytest.raises(AotcError) as caught:
            find_models(folder)
        assert caught.value.code == "AOTC-I001"
