"""Signers are counted the same in any order, and never more than there are."""

from __future__ import annotations

from itertools import combinations, permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aotc.trust.policy.evaluation import distinct_signers

SIGNED = st.lists(
    st.tuples(st.sampled_from("klmn"), st.sampled_from("PQRS")), max_size=6, unique=True
)


def largest(signed: list[tuple[str, str]]) -> int:
    """The same, by trying all sets of signatures in which no two share a key or a name."""
    return max(
        count
        for count in range(len(signed) + 1)
        for chosen in combinations(signed, count)
        if len({key for key, _ in chosen}) == len({name for _, name in chosen}) == count
    )


@given(SIGNED, st.randoms(use_true_random=False))
def test_the_number_is_that_of_the_largest_choice(
    signed: list[tuple[str, str]], random: Random
) -> None:
    assert distinct_signers(signed) == largest(signed)
    again = [*signed, *signed]
    random.shuffle(again)
    assert distinct_signers(again) == largest(signed)


def test_one_key_certified_for_two_people_counts_the_same_in_any_order() -> None:
    signed = [("k", "alice"), ("k", "bob"), ("l", "alice")]
    assert {distinct_signers(order) for order in permutations(signed)} == {2}
    assert distinct_signers(signed[:2]) == 1
    assert distinct_signers([("k", "alice"), ("l", "alice")]) == 1


def test_as_many_signatures_as_an_artifact_may_hold() -> None:
    chain = [(f"k{n}", f"p{n + step}") for n in range(64) for step in (0, 1)]
    assert distinct_signers(chain) == 64
    assert distinct_signers(reversed(chain)) == 64
