"""How much of a model is in lower precision, by the record of the pass, and when that is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import helper

from aotc.pipeline.integers import share_finding
from aotc.precision.quantized_nodes import quantized_share
from aotc.spec.variant import PassRecord

node = helper.make_node


def network(columns: int) -> onnx.ModelProto:
    """Two convolutions, a product of `columns`, and one of two activations."""
    zeros = {
        "w": np.zeros((8, 4, 3, 3), np.float32),
        "v": np.zeros((8, 8, 3, 3), np.float32),
        "p": np.zeros((64, columns), np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"], "first"),
        node("Conv", ["a", "v"], ["b"], "second"),
        node("Flatten", ["b"], ["f"], "flat"),
        node("MatMul", ["f", "p"], ["g"], "product"),
        node("MatMul", ["g", "other"], ["y"], "activations"),
    ]
    inputs: dict[str, Any] = {"x": [1, 4, 6, 6], "other": [columns, 2]}
    return model_of(nodes, inputs, {"y": [1, 2]}, zeros)


def record(form: str, *kept: str) -> PassRecord:
    return PassRecord(
        name="quantize", options={"form": form}, nodes_before=5, nodes_after=9, kept=kept
    )


@pytest.mark.parametrize(
    ("form", "kept", "columns", "told"),
    [
        ("static", (), 16, ""),
        ("static", ("activations",), 16, ""),
        # By number: 1 of 3, although they have most of the bytes.
        (
            "dynamic",
            (),
            640,
            "int8 (dynamic) in 1 of 3 products, with 98% of the bytes of their weights; in float32 "
            "stay 2 Conv",
        ),
        # By bytes: 2 of 3, which have few of them.
        (
            "static",
            ("product",),
            640,
            "int8 (static) in 2 of 3 products, with 2% of the bytes of their weights; in float32 "
            "stay 1 MatMul",
        ),
        (
            "static",
            ("first", "second", "product"),
            16,
            "int8 (static) in 0 of 3 products, with 0% of the bytes of their weights; in float32 "
            "stay 2 Conv, 1 MatMul",
        ),
    ],
)
def test_what_is_told(form: str, kept: tuple[str, ...], columns: int, told: str) -> None:
    share = quantized_share(record(form, *kept), network(columns))
    found = share_finding(share, "int8", form, "variant portable")
    assert [each.what for each in found] == ([told] if told else [])
    assert all(each.code == "AOTC-N070" for each in found)


def test_operators_that_the_profile_leaves_out_count_as_left() -> None:
    share = quantized_share(record("static"), network(16), ["MatMul"])
    assert (share.products, dict(share.left)) == (1, {"Conv": 2})


def test_a_model_without_products_has_nothing_to_tell() -> None:
    model = model_of([node("Relu", ["x"], ["y"], "relu")], {"x": [1]}, {"y": [1]})
    assert not quantized_share(record("static"), model).is_little
