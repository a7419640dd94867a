"""Ranges drawn as profiles may state them, and the domains that builds make of them."""

from __future__ import annotations

from hypothesis import strategies as st

from aotc.sizes.dim_hints import DimHints
from aotc.sizes.search import Prober
from aotc.sizes.trials import Trial
from aotc.spec.codec import Json
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import DimRange, Domain, Outside

ACTIONS: list[tuple[Outside, ...]] = [
    (), ("pad",), ("route",), ("pad", "route"), ("route", "pad"),
]  # fmt: skip


@st.composite
def ranges(draw: st.DrawFn) -> DimRange:
    """Any range that a profile can state, with small sizes."""
    step = draw(st.integers(1, 6))
    document: dict[str, Json] = {
        "multiple_of": step,
        "outside": draw(st.sampled_from([list(words) for words in ACTIONS])),
    }
    if draw(st.booleans()):
        counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True))
        document["buckets"] = sorted(step * count for count in counts)
        if draw(st.booleans()) and document["outside"]:
            document["min"] = draw(st.integers(0, document["buckets"][0]))
        if draw(st.booleans()) and "route" in document["outside"]:
            document["max"] = step * draw(st.integers(document["buckets"][-1] // step, 16))
        if draw(st.booleans()):
            document["opt"] = draw(st.sampled_from(document["buckets"]))
    elif draw(st.booleans()):
        high = draw(st.integers(2, 12))
        low = draw(st.integers(0, high - 1))
        padded = "pad" in document["outside"]
        document |= {"min": low if padded else low * step, "max": high * step}
        if draw(st.booleans()):
            document["opt"] = step * draw(st.integers(low + 1 if low else 1, high))
    return DimRange.from_json(document)


def domain_of(**stated: DimRange) -> Domain:
    """The domain that an artifact holds for these ranges, for a model that accepts every size."""
    return Prober(
        dims=tuple(stated),
        hints=DimHints(),
        stated=stated,
        limits=ProbeLimits(),
        trial=lambda sizes: Trial(ok=True),
        late=lambda: False,
        cost=lambda points: lambda sizes: (0, 0, 0.0),
    ).search()
