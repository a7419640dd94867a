"""Which nodes a search may keep in half precision: those that round in it, and no others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import pytest
from model_parts import constant, info
from onnx import TensorProto, helper
from openvino_models import model_of, weight

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.pipeline.blame import write_half
from aotc.pipeline.half import KERNELS, to_half

node = partial(model_parts.node, name="n_{output}")


def network() -> onnx.ModelProto:
    """Products around a branch with one in it, and integers that count rows."""
    then = helper.make_graph(
        [node("MatMul", ["a", "u"], "inner")], "then", [], [info("inner", ["n", 32])]
    )
    other = helper.make_graph(
        [node("MatMul", ["a", "v"], "outer")], "else", [], [info("outer", ["n", 32])]
    )
    return model_of(
        [
            node("Shape", ["x"], "shape"),
            node("Gather", ["shape", "first"], "rows"),
            node("Mul", ["rows", "rows"], "square"),
            node("MatMul", ["x", "w"], "a"),
            node("If", ["c"], "b", then_branch=then, else_branch=other),
            node("MatMul", ["b", "held"], "y"),
        ],
        [info("x", ["n", 32]), info("c", [], TensorProto.BOOL)],
        [info("y", ["n", 32]), info("square", [], TensorProto.INT64)],
        [
            constant("first", np.array(0)),
            *(weight(name, 32, 32, seed=at) for at, name in enumerate(("u", "v", "w", "held"))),
        ],
    )


def request(folder: Path, *, stored_only: bool) -> dict[str, Any]:
    """What a worker is asked, with one reference, and a product that the profile keeps."""
    model = network()
    path = folder / "source.onnx"
    path.write_bytes(model.SerializeToString())
    inputs = {"x": np.ones((2, 32), np.float32), "c": np.array(True)}
    for name, array in inputs.items():
        values.save(array, folder / f"{name}.npy")
    seen = folder / "seen"
    seen.mkdir()
    return {
        "to": "float16",
        "stored_only": stored_only,
        "source": str(path),
        "graph": str(path),
        "weights": str(folder),
        "seen": str(seen),
        "keep_float32": ["n_y"],
        "failing": [],
        "backend": "cpu" if stored_only else "cuda",
        "plugins": {},
        "inputs": [],
        "padding": None,
        "references": [
            {
                "inputs": {name: str(folder / f"{name}.npy") for name in inputs},
                "sizes": {"n": 2},
                "wanted": {"n": 2},
            }
        ],
        "where": "variant v",
    }


@pytest.mark.parametrize("stored_only", [False, True], ids=["computed", "stored"])
def test_what_rounds_is_a_candidate_and_nothing_else(tmp_path: Path, stored_only: bool) -> None:
    asked = request(tmp_path, stored_only=stored_only)
    made = write_half(asked, frozenset(), tmp_path / "first")
    assert set(made.changed) == {"n_a", "n_inner", "n_outer"}
    fewer = write_half(asked, frozenset({"n_inner"}), tmp_path / "second")
    assert set(fewer.changed) == {"n_a", "n_outer"}
    none = write_half(asked, frozenset(made.changed), tmp_path / "third")
    assert none.changed == ()


def test_a_node_whose_kernel_fails_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {**request(tmp_path, stored_only=False), "failing": ["n_a"]}
    made = write_half(asked, frozenset(), tmp_path / "first")
    assert set(made.changed) == {"n_inner", "n_outer"}
    monkeypatch.chdir(tmp_path)
    change, _ = to_half(network(), {**asked, "keep_float32": []})
    assert change.kept == ("n_a",) and change.matched[KERNELS] == 1


def test_ranges_of_one_graph_are_observed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**request(tmp_path, stored_only=False), "ranges": str(tmp_path / "ranges")}
    (tmp_path / "ranges").mkdir()
    monkeypatch.chdir(tmp_path)
    first, _ = to_half(network(), asked, b"one graph")
    for path in asked["references"][0]["inputs"].values():
        np.save(path, np.full_like(np.load(path), 1e6))
    again, _ = to_half(network(), asked, b"one graph")
    assert again == first
    # Of another graph nothing is known: all of it is out of range now.
    with pytest.raises(AotcError, match="no node can compute in float16"):
        to_half(network(), asked, b"another graph")


def test_ranges_that_cannot_be_observed_are_told_of_each_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**request(tmp_path, stored_only=False), "ranges": str(tmp_path / "ranges")}
    (tmp_path / "ranges").mkdir()
    monkeypatch.chdir(tmp_path)
    for where in ("variant v", "variant w"):
        told = {**asked, "references": [], "where": where}
        _, findings = to_half(network(), told, b"one graph")
        assert [(each.code, each.where) for each in findings] == [("AOTC-N013", where)]
    assert len(list((tmp_path / "ranges").iterdir())) == 1
