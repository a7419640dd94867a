"""The search for the smallest set of nodes to keep, against oracles that know the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.precision.blame_search import Candidate, SmallestSet, Trial, smallest_set

NODES = 300
NAMES = tuple(f"node.{index}" for index in range(NODES))


class Oracle:
    """Passes if all planted nodes are kept; counts its calls and remembers what it was asked."""

    def __init__(self, planted: set[str]) -> None:
        self.planted = planted
        self.asked: list[frozenset[str]] = []

    def __call__(self, kept: frozenset[str]) -> Trial:
        assert kept not in self.asked, "the same set is tried twice"
        self.asked.append(kept)
        missing = len(self.planted - kept)
        return Trial(not missing, 1.0 + missing if missing else 0.5)


def searched(
    trial: Callable[[frozenset[str]], Trial], scores: dict[str, float], trials: int = 15
) -> SmallestSet:
    candidates = [Candidate(name, scores.get(name, 0.0)) for name in NAMES]
    return smallest_set(candidates, trial, before=7.0, trials=trials)


def noise(seed: int) -> dict[str, float]:
    """A score in [0, 1) for every node, which says nothing."""
    return {
        name: int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest()[:8], 16) / 2**32
        for name in NAMES
    }


def test_the_worst_node_alone_takes_one_trial() -> None:
    oracle = Oracle({"node.17"})
    found = searched(oracle, {"node.17": 3.0})
    assert found == SmallestSet(
        kept=("node.17",),
        before=7.0,
        after=0.5,
        trials=1,
        minimal=True,
        all_pass=True,
        ended="complete",
    )


@pytest.mark.parametrize("rank", range(NODES))
def test_one_node_is_found_in_15_trials_wherever_it_is_ranked(rank: int) -> None:
    oracle = Oracle({NAMES[rank]})
    found = searched(oracle, {name: -float(index) for index, name in enumerate(NAMES)})
    assert found.kept == (NAMES[rank],)
    assert found.minimal
    assert found.trials == len(oracle.asked) <= 15


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=5), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_planted_nodes_with_the_largest_scores_are_found_in_15_trials(
    planted: set[str], seed: int
) -> None:
    oracle = Oracle(planted)
    scores = noise(seed) | {name: 5.0 + index for index, name in enumerate(sorted(planted))}
    found = searched(oracle, scores)
    assert set(found.kept) == planted
    assert list(found.kept) == sorted(found.kept, key=NAMES.index)
    assert found.minimal
    assert found.trials <= 15


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=5), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_misleading_scores_cost_trials_and_never_an_answer(planted: set[str], seed: int) -> None:
    found = searched(Oracle(planted), noise(seed), trials=400)
    assert set(found.kept) == planted
    assert found.minimal
    bounded = searched(Oracle(planted), noise(seed))
    assert set(bounded.kept) >= planted
    assert bounded.trials <= 15
    assert not bounded.minimal or set(bounded.kept) == planted


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_where_keeping_more_may_be_worse_what_is_returned_did_pass(
    seed: int, trials: int, nodes: int
) -> None:
    asked: dict[frozenset[str], Trial] = {}

    def trial(kept: frozenset[str]) -> Trial:
        text = f"{seed} {sorted(kept)}".encode()
        ratio = hashlib.sha256(text).digest()[0] / 100
        asked[kept] = Trial(ratio <= 1, ratio)
        return asked[kept]

    names = NAMES[:nodes]
    candidates = [Candidate(name, score) for name, score in noise(seed).items() if name in names]
    found = smallest_set(candidates, trial, before=2.0, trials=trials)
    assert found.trials == len(asked) <= trials
    kept = frozenset(found.kept)
    if not kept:
        assert not any(each.passed for each in asked.values())
        assert found.after is None
        assert not found.minimal
        return
    assert asked[kept].passed
    assert found.after == asked[kept].ratio
    assert not any(each.passed and len(tried) < len(kept) for tried, each in asked.items())
    if found.minimal:
        smaller = [kept - {name} for name in kept] if len(kept) > 1 else []
        assert all(not asked[each].passed for each in smaller)


def test_where_nothing_helps_two_trials_say_so() -> None:
    found = searched(lambda kept: Trial(False, 9.0), noise(3))
    assert found == SmallestSet(
        kept=(), before=7.0, after=None, trials=2, minimal=False, all_pass=False, ended="complete"
    )


def test_without_trials_nothing_is_known() -> None:
    found = searched(Oracle({"node.1"}), {}, trials=0)
    assert (found.kept, found.trials, found.all_pass) == ((), 0, None)


def test_one_trial_is_for_the_worst_node() -> None:
    oracle = Oracle({"node.9"})
    assert searched(oracle, {"node.9": 1.0}, trials=1).kept == ("node.9",)
    assert oracle.asked == [frozenset({"node.9"})]
    found = searched(Oracle({"node.9"}), {"node.8": 1.0}, trials=1)
    assert (found.kept, found.trials, found.all_pass) == ((), 1, None)


def test_a_search_that_ends_early_returns_what_passed_so_far() -> None:
    planted = {"node.100", "node.200"}
    found = searched(Oracle(planted), {}, trials=6)
    assert planted <= set(found.kept)
    assert len(found.kept) < NODES
    assert not found.minimal


def test_no_candidate_is_no_answer() -> None:
    found = smallest_set([], lambda kept: Trial(True, 0.0), before=2.0)
    assert (found.kept, found.trials, found.all_pass) == ((), 0, None)


def test_the_only_candidate_is_tried_once() -> None:
    found = smallest_set([Candidate("a", 1.0)], lambda kept: Trial(False, 3.0), before=2.0)
    assert (found.kept, found.trials, found.all_pass) == ((), 1, False)
