from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from aotc.report.html.graph_drawing import lay_out


def test_sources_are_above_their_targets() -> None:
    laid = lay_out(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [place.layer for place in laid.places] == [0, 1, 2, 3]
    assert laid.layers == 4
    long = next(route for route in laid.routes if (route.source, route.target) == (0, 3))
    assert [point.layer for point in long.through] == [1, 2]


def test_nothing_and_one_thing() -> None:
    assert lay_out(0, []).places == ()
    (place,) = lay_out(1, [(0, 0)]).places
    assert (place.x, place.layer) == (0, 0)


@given(
    st.integers(2, 14).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=30),
        )
    )
)
def test_things_do_not_lie_over_each_other(case: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = case
    laid = lay_out(count, edges)
    assert len(laid.places) == count
    by_layer: dict[int, list[float]] = {}
    for place in laid.places:
        assert 0 <= place.layer < laid.layers
        assert -0.01 <= place.x <= laid.width + 0.01
        by_layer.setdefault(place.layer, []).append(place.x)
    for places in by_layer.values():
        ordered = sorted(places)
        assert all(b - a > 0.99 for a, b in itertools.pairwise(ordered))
    assert {(r.source, r.target) for r in laid.routes} == {(a, b) for a, b in edges if a != b}
    assert laid == lay_out(count, list(reversed(edges)))
