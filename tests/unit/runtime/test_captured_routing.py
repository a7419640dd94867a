"""Calls of a variant that captures sizes go where static variants would take them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_manifest import manifest, variant

from aotc.base.errors import AotcError
from aotc.runtime.routing import Route, Router
from aotc.runtime.warmup import warmup_fixtures
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Fixture
from aotc.spec.shapes import Dim, Domain, Padding, Relation
from aotc.spec.variant import DroppedVariant, GraphCapture

MOST = 12
SEQ = Dim(min=1, max=64, opt=16, buckets=(8, 16, 32), outside=("pad", "route"), pad_from=1,
          origin="stated")  # fmt: skip
PADDED = replace(SEQ, min=8, max=32, outside=("pad",))
BATCH = Dim(min=1, max=8, opt=4, origin="stated")


def combinations(domain: Domain) -> list[dict[str, int]]:
    buckets = {name: dim.buckets for name, dim in domain.dims.items() if dim.buckets}
    return [
        dict(zip(buckets, sizes, strict=True)) for sizes in itertools.product(*buckets.values())
    ]


def captured(domain: Domain, *, graphs: bool = True) -> Manifest:
    """A manifest with one dynamic variant that captures all combinations, or was refused to."""
    sizes = tuple(
        {name: buckets.get(name, dim.opt) for name, dim in domain.dims.items()}
        for buckets in combinations(domain)
    )
    made = replace(
        variant("portable"),
        cuda_graphs=GraphCapture(sizes=sizes, max_count=1024) if graphs else None,
    )
    return replace(manifest(domain=domain, variants=(made,)), padding=Padding())


def static(domain: Domain) -> Manifest:
    """A manifest with a static variant for each combination, and a dynamic one if any is routed."""
    routed = any("route" in dim.outside for dim in domain.dims.values())
    found = [*([{}] if routed else []), *(b for b in combinations(domain) if b)]
    made = tuple(
        replace(variant(f"v{index}"), spec="v", buckets=buckets)
        for index, buckets in enumerate(found or [{}])
    )
    return replace(manifest(domain=domain, variants=made), padding=Padding())


def route(made: Manifest, sizes: Mapping[str, int]) -> Route:
    return Router(made, made.variants).route(sizes)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(
    ("seq", "wanted", "cause"),
    [(1, 8, "padded"), (8, 8, "exact"), (9, 16, "padded"), (32, 32, "exact"), (33, 33, "routed")],
)
def test_the_smallest_captured_size_takes_a_call(
    seq: int, wanted: int, cause: str, graphs: bool
) -> None:
    made = captured(Domain(dims={"seq": SEQ, "batch": BATCH}), graphs=graphs)
    found = route(made, {"seq": seq, "batch": 3})
    assert (found.variant, found.cause) == (0, cause)
    # A dim without buckets is not padded to the size that is captured.
    assert found.wanted == {"seq": wanted, "batch": 3}


def test_two_dims_are_padded_together() -> None:
    domain = Domain(dims={"seq": PADDED, "batch": replace(PADDED, min=1, max=4, buckets=(1, 4))})
    found = route(captured(domain), {"seq": 20, "batch": 2})
    assert found.wanted == {"seq": 32, "batch": 4}


def test_dims_that_follow_are_padded_along() -> None:
    relation = Relation(dim="total", terms=("batch", "seq"))
    domain = Domain(dims={"seq": PADDED, "batch": BATCH}, relations=(relation,))
    found = route(captured(domain), {"seq": 5, "batch": 3, "total": 8})
    assert found.wanted == {"seq": 8, "batch": 3, "total": 11}


def test_a_size_that_may_not_be_padded_runs_as_it_is() -> None:
    exact = replace(SEQ, outside=("route",), pad_from=None)
    found = route(captured(Domain(dims={"seq": exact})), {"seq": 9})
    assert (found.wanted, found.cause) == ({"seq": 9}, "routed")


def test_without_buckets_there_is_nothing_to_pad_to() -> None:
    made = captured(Domain(dims={"batch": BATCH}))
    assert made.variants[0].cuda_graphs == GraphCapture(sizes=({"batch": 4},), max_count=1024)
    assert [route(made, {"batch": n}).wanted["batch"] for n in (1, 4, 8)] == [1, 4, 8]
    assert route(made, {"batch": 1}).cause == "exact"


def test_a_variant_whose_static_ones_were_left_out_takes_no_bucket() -> None:
    """Its graph is for all sizes, and the policy gave it the calls of the others."""
    made = captured(Domain(dims={"seq": SEQ}), graphs=False)
    left_out = DroppedVariant(name="v8", spec="portable", buckets={"seq": 8}, reason="P001")
    assert route(replace(made, dropped=(left_out,)), {"seq": 5}).wanted == {"seq": 5}


def test_fixtures_warm_up_the_sizes_that_their_calls_run_at() -> None:
    fixtures = tuple(
        Fixture(name=f"f{seq}", origin="generated", sizes={"seq": seq}, inputs=(), outputs=())
        for seq in (5, 16, 40)
    )
    made = replace(captured(Domain(dims={"seq": SEQ})), fixtures=fixtures)
    warmed = warmup_fixtures(made, made.variants[0])
    assert [wanted for _, wanted in warmed] == [{"seq": 8}, {"seq": 16}, {"seq": 40}]
    routed = replace(SEQ, outside=("route", "pad"))
    made = replace(captured(Domain(dims={"seq": routed})), fixtures=fixtures)
    assert [wanted for _, wanted in warmup_fixtures(made, made.variants[0])] == [
        {"seq": 5}, {"seq": 16}, {"seq": 40},
    ]  # fmt: skip


@st.composite
def dims(draw: st.DrawFn) -> Dim:
    """A dim with buckets or a grid, and any handling of other sizes."""
    outside = draw(st.sampled_from([(), ("pad",), ("route",), ("pad", "route"), ("route", "pad")]))
    pad_from = draw(st.integers(1, 3)) if "pad" in outside else None
    if draw(st.booleans()):
        step = draw(st.sampled_from((1, 2, 4)))
        return Dim(min=step, max=MOST, opt=step, multiple_of=step, outside=outside,
                   pad_from=pad_from, origin="stated")  # fmt: skip
    buckets = tuple(sorted(draw(st.sets(st.integers(3, MOST), min_size=1, max_size=5))))
    low, high = (1, MOST) if "route" in outside else (buckets[0], buckets[-1])
    return Dim(min=low, max=high, opt=buckets[0], buckets=buckets, outside=outside,
               pad_from=pad_from, origin="stated")  # fmt: skip


@given(st.data(), st.booleans())
def test_calls_run_where_static_variants_would_run_them(data: st.DataObject, graphs: bool) -> None:
    domain = Domain(dims={"a": data.draw(dims()), "b": data.draw(dims())})
    sizes = {
        name: data.draw(st.sampled_from([n for n in range(1, MOST + 1) if dim.accepts(n)]))
        for name, dim in domain.dims.items()
    }
    both = static(domain)
    try:
        expected = route(both, sizes)
    except AotcError as error:
        # Only if no static variant takes sizes that are routed first.
        assert error.code == "AOTC-S010"
        return
    found = route(captured(domain, graphs=graphs), sizes)
    assert (found.wanted, found.pads, found.cause) == (
        expected.wanted, expected.pads, expected.cause,
    )  # fmt: skip
    assert found.variant == 0
    assert all(found.wanted[name] >= size for name, size in sizes.items())
