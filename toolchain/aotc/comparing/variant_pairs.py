"""Which variant of one artifact is compared with which of the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal

from aotc.contract.manifest.variant import Variant
from aotc.contract.results.diff_report import VariantPair
from aotc.records import record


@record(kw_only=False)
class Pair:
    """Two variants that are compared, and how they were matched."""

    a: Variant
    b: Variant
    matched_by: Literal["name", "providers", "buckets", "alone"]

    @property
    def label(self) -> str:
        """How reports name the pair."""
        return self.row().label

    def row(self) -> VariantPair:
        """The pair as a row of the report."""
        return VariantPair(a=self.a.name, b=self.b.name, matched_by=self.matched_by)


def pair_variants(
    a: Sequence[Variant], b: Sequence[Variant]
) -> tuple[tuple[Pair, ...], tuple[VariantPair, ...]]:
    """Pairs of variants in A's order, and the variants that one artifact alone has.

    Variants are matched by name; what is left, by buckets and providers; then by buckets, if one
    variant of each artifact has them; then, if one is left of each artifact, these two.
    """
    left_a, left_b = list(a), list(b)
    pairs: list[Pair] = []

    def match(
        key: Callable[[Variant], Hashable],
        how: Literal["name", "providers", "buckets", "alone"],
    ) -> None:
        for one in list(left_a):
            here = [each for each in left_a if key(each) == key(one)]
            there = [each for each in left_b if key(each) == key(one)]
            if len(here) == len(there) == 1:
                pairs.append(Pair(one, there[0], how))
                left_a.remove(one)
                left_b.remove(there[0])

    match(lambda variant: variant.name, "name")
    match(lambda variant: (_buckets(variant), variant.providers), "providers")
    match(_buckets, "buckets")
    match(lambda _: True, "alone")
    order = {variant.name: index for index, variant in enumerate(a)}
    pairs.sort(key=lambda pair: order[pair.a.name])
    alone = [VariantPair(a=variant.name) for variant in left_a]
    alone += [VariantPair(b=variant.name) for variant in left_b]
    return tuple(pairs), tuple(alone)


def _buckets(variant: Variant) -> Hashable:
    return tuple(sorted(variant.buckets.items()))
