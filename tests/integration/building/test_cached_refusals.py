"""A build that is refused is refused alike with a warm cache: for every code of the import."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import onnx
import pytest
from made_models import linear, save, save_external
from onnx import TensorProto, helper
from refusals import refusal
from workbench import Workbench

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError

# Of what the machine does, not of the model: a crash, limits, and the operating system.
OF_THE_MACHINE: Final = {"AOTC-I013", "AOTC-I014", "AOTC-I015", "AOTC-I043"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """A bench with its own, empty cache."""
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AOTC_CACHE_BYTES", raising=False)
    (tmp_path / "bench").mkdir()
    return Workbench.at(tmp_path / "bench")


Place = Callable[[Path], Path]


def _external(change: Callable[[Path, bytes], object]) -> Place:
    """The model of `good`, whose weights are laid by `change`."""

    def lay(folder: Path) -> Path:
        model, content = save_external(folder)
        change(folder / "weights.bin", content)
        return model

    return lay


def _changed(change: Callable[[onnx.ModelProto], object]) -> Place:
    def lay(folder: Path) -> Path:
        model = linear()
        change(model)
        return save(model, folder / "external.onnx")

    return lay


def _linked(weights: Path, content: bytes) -> None:
    (weights.parent.parent / "elsewhere").write_bytes(content)
    weights.symlink_to("../elsewhere")


def _circle(weights: Path, content: bytes) -> None:
    weights.symlink_to(weights.name)


def _dangling(weights: Path, content: bytes) -> None:
    weights.symlink_to("nothing")


def _undecodable(folder: Path) -> Path:
    place = folder / os.fsdecode(b"\xff")
    place.mkdir()
    return good(place)


def _piped(folder: Path) -> Path:
    os.mkfifo(folder / "external.onnx")
    return folder / "external.onnx"


def _text(folder: Path) -> Path:
    (folder / "external.onnx").write_text("no model", encoding="utf-8")
    return folder / "external.onnx"


def _outside(folder: Path) -> Path:
    model, content = save_external(folder, "../weights.bin")
    (folder.parent / "weights.bin").write_bytes(content)
    return model


def _node(op_type: str, domain: str = "") -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type = op_type
        model.graph.node[0].domain = domain

    return change


def _twice(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def _random(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("RandomNormal", [], ["noise"], shape=[2]))


def _sparse(model: onnx.ModelProto) -> None:
    kind = helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2, 2])
    model.graph.input.append(helper.make_value_info("sparse", kind))


CASES: Final[tuple[tuple[str, Place], ...]] = (
    ("AOTC-I001", lambda folder: folder / "external.onnx"),
    ("AOTC-I001", _piped),
    ("AOTC-I001", _undecodable),
    ("AOTC-I002", lambda folder: folder),
    ("AOTC-I002", _text),
    ("AOTC-I003", _external(lambda weights, content: None)),
    ("AOTC-I003", _external(_dangling)),
    ("AOTC-I004", _external(lambda weights, content: weights.write_bytes(content[:-1]))),
    ("AOTC-I005", _outside),
    ("AOTC-I006", _external(_linked)),
    ("AOTC-I006", _external(_circle)),
    ("AOTC-I006", _external(lambda weights, content: os.mkfifo(weights))),
    ("AOTC-I006", _external(lambda weights, content: weights.mkdir())),
    ("AOTC-I007", _changed(lambda model: setattr(model.graph.initializer[0], "data_type", 99))),
    ("AOTC-I008", _changed(lambda model: setattr(model.opset_import[0], "version", 99))),
    ("AOTC-I009", _changed(_node("NoSuchOperator"))),
    ("AOTC-I010", _changed(_node("EPContext", "com.microsoft"))),
    ("AOTC-I011", _changed(_random)),
    ("AOTC-I012", _changed(_twice)),
    ("AOTC-I016", _changed(lambda model: setattr(model, "ir_version", 99))),
    ("AOTC-I042", _changed(_sparse)),
)


def good(folder: Path) -> Path:
    model, content = save_external(folder)
    (folder / "weights.bin").write_bytes(content)
    return model


def said(error: AotcError) -> tuple[str, ...]:
    return (error.code, error.what, error.where, error.expected, error.found, error.fix)


def test_every_code_of_the_import_is_here() -> None:
    refusing = {
        code
        for code, reason in REASONS.items()
        if reason.exit_status and ("AOTC-I001" <= code <= "AOTC-I016" or code == "AOTC-I042")
    }
    assert {code for code, _ in CASES} == refusing - OF_THE_MACHINE


@pytest.mark.parametrize(("code", "lay"), CASES, ids=[f"{c}-{n}" for n, (c, _) in enumerate(CASES)])
def test_a_warm_cache_refuses_as_a_cold_one(bench: Workbench, code: str, lay: Place) -> None:
    for name in ("good", "bad"):
        (bench.folder / name).mkdir()
    place = lay(bench.folder / "bad")
    cold = refusal(bench.build, place, "cold", cache=True, random="refuse")
    assert cold.code == code
    source = good(bench.folder / "good")
    assert not bench.build(source, "first", cache=True).report.cached
    assert bench.build(source, "again", cache=True).report.cached
    warm = refusal(bench.build, place, "warm", cache=True, random="refuse")
    assert said(warm) == said(cold)


def test_a_hub_is_read_from_a_warm_cache(bench: Workbench) -> None:
    """And what lies there is judged anew each time."""
    source = good(bench.folder)
    assert not bench.build(source, "first", cache=True).report.cached
    hub = bench.folder / "hub"
    (hub / "blobs").mkdir(parents=True)
    (hub / "snapshots" / "r1").mkdir(parents=True)
    place = hub / "snapshots" / "r1" / "external.onnx"
    for path in (source, source.with_name("weights.bin")):
        shutil.copy(path, hub / "blobs" / path.name)
        (place.parent / path.name).symlink_to(f"../../blobs/{path.name}")
    assert bench.build(place, "linked", cache=True).report.cached
    weights = place.with_name("weights.bin")
    weights.unlink()
    weights.symlink_to(source.with_name("weights.bin"))
    assert refusal(bench.build, place, "moved", cache=True).code == "AOTC-I006"
