"""Declared shapes of outputs, compared with what runs produce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from graph_values import value

from aotc.sizes.output_shapes import DeclaredShapes
from aotc.spec.payload import Value

Run = tuple[Mapping[str, int], Sequence[Any]]


def tensor(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def findings(outputs: Sequence[Value], *runs: Run) -> list[str]:
    declared = DeclaredShapes(outputs)
    for sizes, produced in runs:
        declared.compare_run(sizes, produced)
    found = declared.findings()
    assert {finding.code for finding in found} <= {"AOTC-S009"}
    return [f"{finding.where}: {finding.what}" for finding in found]


def test_what_is_declared_and_produced_at_every_run_is_no_finding() -> None:
    outputs = [value("y", "n", 3, "k"), value("z", "k")]
    runs = [({"n": n}, [tensor(n, 3, n + 1), tensor(n + 1)]) for n in (4, 1, 7)]
    assert findings(outputs, *runs) == []


@pytest.mark.parametrize(
    ("shape", "runs", "expected"),
    [
        # A size that is true at the first run only.
        (
            ("n", 8),
            [({"n": 4}, (4, 8)), ({"n": 5}, (5, 10)), ({"n": 6}, (6, 12))],
            ["y: declared [n, 8], produced [5, 10] at n=5"],
        ),
        # The same of a name that an input's dim has.
        (
            ("n",),
            [({"n": 4, "m": 2}, (4,)), ({"n": 6, "m": 2}, (4,))],
            ["y: declared [n], produced [4] at n=6, m=2"],
        ),
        # Each axis at the first run that shows it.
        (
            ("n", "n", 2),
            [({"n": 1}, (1, 1, 3)), ({"n": 2}, (2, 4, 3)), ({"n": 3}, (4, 5, 3))],
            [
                "y: declared [n, n, 2], produced [1, 1, 3] at n=1",
                "y: declared [n, n, 2], produced [2, 4, 3] at n=2",
                "y: declared [n, n, 2], produced [4, 5, 3] at n=3",
            ],
        ),
        # Two axes of one run are one finding.
        (("n", 2), [({"n": 4}, (2, 4))], ["y: declared [n, 2], produced [2, 4] at n=4"]),
        # A rank, once; and axes where the rank is right.
        (
            ("n", 2),
            [({"n": 4}, (4,)), ({"n": 5}, (5, 2, 1)), ({"n": 6}, (6, 3))],
            [
                "y: declared [n, 2], produced [4] at n=4",
                "y: declared [n, 2], produced [6, 3] at n=6",
            ],
        ),
        ((), [({}, (1,))], ["y: declared [], produced [1]"]),
        ((2, 0), [({}, (2, 0)), ({}, (2, 1))], ["y: declared [2, 0], produced [2, 1]"]),
        # A name of no input, at two axes.
        (
            ("k", "k"),
            [({"n": 2}, (3, 3)), ({"n": 4}, (5, 6)), ({"n": 5}, (5, 7))],
            ["y: declared [k, k], produced [5, 6] at n=4; 'k' is 5, and 6 in axis 1"],
        ),
        # It may have any size, and another in another run.
        (("k",), [({"n": 2}, (3,)), ({"n": 4}, (9,))], []),
        # Names that say nothing.
        (("None", "None"), [({"n": 2}, (3, 4))], []),
        (("unk__1", "?"), [({"unk__1": 2}, (3, 4))], []),
        (("y.0", "y.1"), [({"n": 2}, (3, 4))], []),
    ],
)
def test_what_one_output_contradicts(
    shape: tuple[int | str, ...],
    runs: list[tuple[Mapping[str, int], tuple[int, ...]]],
    expected: list[str],
) -> None:
    assert findings([value("y", *shape)], *((at, [tensor(*size)]) for at, size in runs)) == expected


def test_a_name_that_two_outputs_share() -> None:
    outputs = [value("y", "k", 2), value("z", 3, "k")]
    runs: list[Run] = [({"n": n}, [tensor(n, 2), tensor(3, 4)]) for n in (4, 6, 8)]
    assert findings(outputs, *runs) == [
        "z: declared [3, k], produced [3, 4] at n=6; 'k' of 'y' is 6, and 4 in axis 1"
    ]


def test_findings_stand_in_the_order_of_the_outputs() -> None:
    outputs = [value("y", 2), value("z", 2)]
    runs: list[Run] = [({"n": 1}, [tensor(2), tensor(3)]), ({"n": 2}, [tensor(4), tensor(4)])]
    assert findings(outputs, *runs) == [
        "y: declared [2], produced [4] at n=2",
        "z: declared [2], produced [3] at n=1",
    ]


def test_each_tensor_of_a_sequence_has_the_declared_rank_and_sizes() -> None:
    outputs = [value("y", "n", 4, kind="sequence")]
    # What a name means of several tensors is not said.
    assert findings(outputs, ({"n": 2}, [[tensor(1, 4), tensor(3, 4)]]), ({"n": 0}, [[]])) == []
    assert findings(outputs, ({"n": 2}, [[tensor(2, 4), tensor(2, 5), tensor(2, 6)]])) == [
        "y: declared [n, 4], produced [2, 5] in element 1 at n=2"
    ]
    assert findings(outputs, ({"n": 2}, [[tensor(2, 4)]]), ({"n": 3}, [[tensor(3)]])) == [
        "y: declared [n, 4], produced [3] in element 0 at n=3"
    ]


def test_an_optional_has_the_declared_shape_or_none() -> None:
    outputs = [value("y", "n", kind="optional")]
    assert findings(outputs, ({"n": 2}, [None]), ({"n": 3}, [tensor(3)])) == []
    assert findings(outputs, ({"n": 2}, [None]), ({"n": 3}, [tensor(4)])) == [
        "y: declared [n], produced [4] at n=3"
    ]


@pytest.mark.parametrize("output", [{"a": 1.0}, [{"a": 1.0}, {"a": 2.0}]])
def test_a_map_has_no_shape(output: Any) -> None:
    map_ = Value(name="y", kind="map", dtype="string", shape=None)
    assert findings([map_], ({}, [output])) == []


def test_an_output_that_declares_no_shape_claims_none() -> None:
    bare = Value(name="y", kind="tensor", dtype="float32", shape=None)
    assert findings([bare], ({"n": 1}, [tensor(1)]), ({"n": 2}, [tensor(2, 2)])) == []
