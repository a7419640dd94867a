"""The smallest set of nodes that passes if kept in a higher precision: a search with few trials.

Each trial makes and runs a model, so their number is what counts.  Candidates are ranked by how
much they seem to add to the error.  The shortest passing prefix of that ranking is found in
growing steps and by bisection; its last node is needed, and what else is needed is searched in
front of it in the same way.  At last single nodes are left out (A. Zeller and R. Hildebrandt,
"Simplifying and Isolating Failure-Inducing Input", 2002, section 3; U. Junker, "QuickXplain",
2004).

If one node alone is to blame, of up to 300, it is found in 15 trials wherever it is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal

from aotc.base.records import record
from aotc.session.limits import FORM, JudgedLimit, judged_limits
from aotc.session.parity import TOLERANCE
from aotc.spec.evidence import UNBOUNDED, NodeError, NodeErrors, OutputError
from aotc.spec.precision import OutputGate, Tolerance

# The next float above 1: what fails by the breadth of a rounding.
_ABOVE: Final = 1.0 + 2.0**-52
# A prefix that does not pass is made so many times as long.
_GROWTH: Final = 4
# Up to so many nodes, leaving out one after the other takes fewer trials than bisection.
_FEW: Final = 6


@record(kw_only=False)
class Candidate:
    """A node that may be kept, and how much it seems to add to the error: more is worse."""

    name: str
    score: float


@record(kw_only=False)
class Trial:
    """One trial; `ratio` is the largest of measured/limit, above 1 where it does not pass."""

    passed: bool
    ratio: float


@record
class SmallestSet:
    """What was found: the names to keep, in the order of the candidates; empty: none passes.

    `after` is the ratio with them, None without any.  `minimal`: it was tried that none of them
    can be left out.  `all_pass` is whether all candidates together pass, None if that is not known;
    where it is False, precision is not what makes the error.  `ended` is by what the search ended:
    `time` is that `may_go_on` said no.
    """

    kept: tuple[str, ...]
    before: float
    after: float | None
    trials: int
    minimal: bool
    all_pass: bool | None
    ended: Literal["complete", "trials", "time"]


def smallest_set(
    candidates: Sequence[Candidate],
    trial: Callable[[frozenset[str]], Trial],
    *,
    before: float,
    trials: int = 15,
    may_go_on: Callable[[], bool] = lambda: True,
) -> SmallestSet:
    """Search with at most `trials` calls of `trial`, none for the same set twice.

    `candidates` are in execution order; nothing kept has failed already, with ratio `before`.
    The best set that passed is returned, also where the trials end or where keeping more makes the
    error larger.  `may_go_on` is asked before each trial, and ends the search if it is False.
    """
    search = _Search(candidates, trial, lambda made: made < trials and may_go_on())
    ended: Literal["complete", "trials", "time"] = "complete"
    try:
        search.run()
    except _Spent:
        ended = "trials" if len(search.tried) >= trials else "time"
    kept = search.best
    return SmallestSet(
        kept=tuple(each.name for each in candidates if kept and each.name in kept),
        before=before,
        after=search.tried[kept].ratio if kept else None,
        trials=len(search.tried),
        minimal=search.is_minimal(),
        all_pass=search.all_pass(),
        ended=ended,
    )


class _Spent(Exception):
    """No further trial may be made."""


class _Search:
    """The trials made so far, and the smallest set that passed."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        trial: Callable[[frozenset[str]], Trial],
        may_try: Callable[[int], bool],
    ) -> None:
        # Python's sort is stable: equal scores stay in execution order.
        ranked = sorted(candidates, key=lambda each: -each.score)
        self._ranked = list(dict.fromkeys(each.name for each in ranked))
        self._trial = trial
        self._may_try = may_try
        self.tried: dict[frozenset[str], Trial] = {}
        self.best: frozenset[str] | None = None

    def run(self) -> None:
        """Search until the best set is minimal; raises _Spent where trials end."""
        ranked = self._ranked
        # Where even all of them do not help, no other trial is worth its time.
        if not ranked or self._passes(ranked[:1]) or not self._passes(ranked):
            return
        needed: list[str] = []
        pool = ranked
        while pool:
            size = self._shortest(needed, pool)
            if not size:
                pool = []
                break
            needed.append(pool[size - 1])
            pool = pool[: size - 1]
            if len(pool) + len(needed) <= _FEW:
                break
        self._leave_out_singles([*pool, *reversed(needed)])

    def is_minimal(self) -> bool:
        """Whether it was tried, and failed, to leave out each node of the best set."""
        if self.best is None:
            return False
        smaller = [self.best - {name} for name in self.best]
        # Nothing kept has failed before the search.
        return all(not each or self._has_failed(each) for each in smaller)

    def _has_failed(self, kept: frozenset[str]) -> bool:
        return kept in self.tried and not self.tried[kept].passed

    def all_pass(self) -> bool | None:
        """Whether all candidates pass together; None: not tried, and nothing less passed."""
        tried = self.tried.get(frozenset(self._ranked))
        if tried is not None:
            return tried.passed
        return True if self.best is not None else None

    def _passes(self, names: Sequence[str]) -> bool:
        """Whether these pass if kept; nothing kept does not."""
        kept = frozenset(names)
        if not kept:
            return False
        if kept not in self.tried:
            if not self._may_try(len(self.tried)):
                raise _Spent
            self.tried[kept] = self._trial(kept)
            if self.tried[kept].passed and (self.best is None or len(kept) < len(self.best)):
                self.best = kept
        return self.tried[kept].passed

    def _shortest(self, needed: Sequence[str], pool: Sequence[str]) -> int:
        """The length of the shortest prefix of `pool` that passes with `needed`; all of it does."""
        if needed and self._passes(needed):
            return 0
        failing, passing, size = 0, len(pool), 1
        while size < passing:
            if self._passes([*needed, *pool[:size]]):
                passing = size
                break
            failing, size = size, size * _GROWTH
        while passing - failing > 1:
            middle = (failing + passing) // 2
            if self._passes([*needed, *pool[:middle]]):
                passing = middle
            else:
                failing = middle
        return passing

    def _leave_out_singles(self, names: list[str]) -> None:
        """Leave out each that can be, the least suspected first, until none can be."""
        remaining = names
        while True:
            shorter = next(
                (
                    without
                    for name in reversed(remaining)
                    if self._passes(without := [each for each in remaining if each != name])
                ),
                None,
            )
            if shorter is None:
                return
            remaining = shorter


def scored_candidates(changed: Sequence[str], errors: Sequence[NodeError]) -> list[Candidate]:
    """The nodes `changed`, in that order, each scored by the error that is added where it computes.

    Between compared values all nodes have the score of the later one, as nothing tells them apart.
    What turns finite values into NaN or infinities is scored highest; what has no compared value,
    lowest.
    """
    scores: dict[str, float] = {}
    for error in errors:
        added = _added(error)
        for node in (error.node, *error.covers):
            scores[node] = max(scores.get(node, 0.0), added)
    return [Candidate(name, scores.get(name, -1.0)) for name in changed]


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else math.inf
    return error.added


def named_nodes(changed: Collection[str], errors: NodeErrors) -> tuple[str, str]:
    """The first and the worst node; where a value is of several nodes, that of `changed`.

    A product and the sum after it may be one node of the variant: what is inexact is the product.
    """

    def named(node: str) -> str:
        found = errors.of_node(node)
        covers = found.covers if found is not None else ()
        inexact = [name for name in covers if name in changed]
        return node if node in inexact or not inexact else inexact[-1]

    return named(errors.first), named(errors.worst)


def limit_ratio(error: OutputError, tolerance: Tolerance, gate: OutputGate | None = None) -> float:
    """The largest of measured/limit over the limits of one output: at most 1 where it passes.

    Of a cosine and an agreement, what lacks to 1 is compared; of an SQNR, amplitudes.  `UNBOUNDED`
    where nothing can be measured, as where NaN differ.
    """
    shares = [0.0]
    if gate is None or not gate.replaces_tolerance:
        shares += _tolerance_ratios(error, tolerance)
    if gate is not None:
        limits = (limit for _, limit in gate.limits() if limit is not None)
        shares += map(_ratio_of_limit, judged_limits(error, gate), limits)
    worst = min(max(shares), UNBOUNDED)
    if error.passed:
        return min(worst, 1.0)
    is_unmeasured = FORM in error.breached or error.max_abs >= UNBOUNDED
    return UNBOUNDED if worst <= 1.0 and is_unmeasured else max(worst, _ABOVE)


def _tolerance_ratios(error: OutputError, tolerance: Tolerance) -> list[float]:
    if error.rule and FORM not in error.breached:
        return [_ratio(float(error.differing), float(max(1, error.allowed)))]
    if error.max_abs >= UNBOUNDED:
        return [UNBOUNDED if TOLERANCE in error.breached or FORM in error.breached else 0.0]
    largest = error.max_abs / error.max_rel if 0.0 < error.max_rel < UNBOUNDED else 0.0
    found = [_ratio(error.max_abs, tolerance.atol + tolerance.rtol * largest)]
    if error.cosine is not None and error.max_abs > tolerance.atol:
        # A tensor of one element has no direction, which the verdict knows and the cosine does not.
        share = _ratio(1.0 - error.cosine, 1.0 - tolerance.min_cosine)
        found.append(min(share, 1.0) if error.passed else share)
    if error.worst_slice is not None:
        found.append(error.worst_slice.ratio)
    return found


def _ratio_of_limit(judged: JudgedLimit, limit: float) -> float:
    if judged.measured is None:
        return 0.0 if judged.passed else UNBOUNDED
    if judged.name == "min_sqnr_db":
        return float(10.0 ** min((limit - judged.measured) / 20.0, 300.0))
    if judged.name.startswith("min"):
        return _ratio(1.0 - judged.measured, 1.0 - limit)
    return _ratio(judged.measured, limit)


def _ratio(measured: float, limit: float) -> float:
    if measured <= 0.0:
        return 0.0
    return min(measured / limit, UNBOUNDED) if limit > 0.0 else UNBOUNDED
