"""Rules for sizes: the simplest sum of products of dims that gives all that is known."""

from __future__ import annotations

from fractions import Fraction

import pytest

from aotc.graph.polynomials import Monomial, Polynomial, fitted, total

POINTS = [
    {"batch": 1, "seq": 16},
    {"batch": 4, "seq": 64},
    {"batch": 8, "seq": 128},
    {"batch": 3, "seq": 16},
    {"batch": 1, "seq": 40},
]


@pytest.mark.parametrize(
    ("rule", "terms"),
    [
        (lambda b, s: 12, {(): 12}),
        (lambda b, s: s, {("seq",): 1}),
        (lambda b, s: 3 * s + 1, {("seq",): 3, (): 1}),
        (lambda b, s: b * s, {("batch", "seq"): 1}),
        (lambda b, s: 12 * b, {("batch",): 12}),
        (lambda b, s: b + s, {("batch",): 1, ("seq",): 1}),
        (lambda b, s: s * s, {("seq", "seq"): 1}),
        (lambda b, s: b * s + 2 * s, {("batch", "seq"): 1, ("seq",): 2}),
        (lambda b, s: s // 8, {("seq",): Fraction(1, 8)}),
    ],
)
def test_the_simplest_rule_is_found(rule: object, terms: dict[Monomial, Fraction]) -> None:
    assert callable(rule)
    found = fitted([(at, rule(at["batch"], at["seq"])) for at in POINTS], ["batch", "seq"])
    assert found is not None
    assert found.terms == terms
    assert found.at({"batch": 5, "seq": 24}) == rule(5, 24)


def test_what_follows_no_rule_has_none() -> None:
    points = [(at, at["seq"] ** 3 % 17) for at in POINTS]
    assert fitted(points, ["batch", "seq"]) is None


def test_one_dim_is_preferred_where_two_grow_together() -> None:
    points = [({"a": 1, "b": 2}, 4), ({"a": 2, "b": 4}, 8)]
    found = fitted(points, ["a", "b"])
    assert found is not None
    assert len(found.terms) == 1


def test_polynomials_add_and_multiply() -> None:
    seq, one = Polynomial({("seq",): Fraction(1)}), Polynomial.of(1)
    product = (seq + one) * (seq + one)
    assert product.terms == {("seq", "seq"): 1, ("seq",): 2, (): 1}
    assert total([seq, seq, Polynomial.of(0)]).terms == {("seq",): 2}
    assert product.at({"seq": 3}) == 16
