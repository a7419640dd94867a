"""Conditions on sizes: what is read, what holds, and that nothing is run."""

from __future__ import annotations

import pytest

from aotc.spec.conditions import quoted_dim, read_condition


@pytest.mark.parametrize(
    ("text", "holding"),
    [
        ("n >= 3", [3, 4, 5]),
        ("(1 + n) // 2 != 1", [0, 3, 4, 5]),
        ("n % 2 == 0 and not n == 4", [0, 2]),
        ("max(1, n) == 1 or n > 4", [0, 1, 5]),
        ("2 <= n < 4", [2, 3]),
        ("-n + 4 == 0", [4]),
    ],
)
def test_holds(text: str, holding: list[int]) -> None:
    condition = read_condition(text)
    assert condition is not None
    assert condition.dims == ("n",)
    assert [size for size in range(6) if condition.holds({"n": size})] == holding


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true') == 0",
        "n.bit_length() == 1",
        "open('x') == n",
        "[n for n in (1,)] == n",
        "n ** n == 1",
        "n == 'a'",
        "min() == n",
        "max(n) == 1",
        "n / 2 == 1",
        "1 == 1",
        "n ==",
        "n == " + "1" * 3000,
        "(" * 500 + "n" + ")" * 500,
    ],
)
def test_other_forms_are_not_read(text: str) -> None:
    assert read_condition(text) is None


def test_holds_where_a_dim_is_unknown() -> None:
    condition = read_condition("n == m + 1")
    assert condition is not None
    assert condition.holds({"n": 5})
    assert not condition.holds({"n": 5, "m": 5})


def test_division_by_zero_does_not_hold() -> None:
    condition = read_condition("4 // n == 2")
    assert condition is not None
    assert condition.holds({"n": 2})
    assert not condition.holds({"n": 0})


def test_dims_have_any_names() -> None:
    assert quoted_dim("batch") == "batch"
    assert quoted_dim("max") == "D['max']"
    condition = read_condition(f"{quoted_dim('a b')} == 2*{quoted_dim('if')}")
    assert condition is not None
    assert set(condition.dims) == {"a b", "if"}
    renamed = condition.renamed({"a b": "n", "if": "m"})
    assert renamed.text == "n == 2 * m"
    assert renamed.holds({"n": 4, "m": 2})
