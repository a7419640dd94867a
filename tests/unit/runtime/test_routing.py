"""Which variants are loaded, why none is, and which of them takes a call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_manifest import manifest, variant

from aotc.base.errors import AotcError
from aotc.runtime.routing import Router, choose
from aotc.spec.manifest import Manifest
from aotc.spec.reports import Refusal, VariantVerdict
from aotc.spec.shapes import Dim, Domain, Padding, Relation
from aotc.spec.variant import Variant

RUNS = VariantVerdict(name="portable", runs=True)
NATIVE = VariantVerdict(name="native", runs=True)
OTHER_ISA = VariantVerdict(
    name="native", runs=False, reasons=(Refusal(code="AOTC-C004", what="the ISA differs"),)
)


def names(variants: Sequence[Variant]) -> list[str]:
    return [item.name for item in variants]


def test_the_variant_for_this_isa_comes_first() -> None:
    made = manifest()
    assert names(choose(made, (RUNS, NATIVE))) == ["native"]
    assert names(choose(made, (RUNS, OTHER_ISA))) == ["portable"]
    assert names(choose(made, (RUNS, NATIVE), "portable")) == ["portable"]


def test_equals_keep_the_order_of_the_manifest() -> None:
    both = manifest(variants=(variant("b"), variant("a")))
    verdicts = [VariantVerdict(name=name, runs=True) for name in ("a", "b")]
    assert names(choose(both, verdicts)) == ["b"]


@pytest.mark.parametrize(
    ("verdicts", "wanted", "lines"),
    [
        (
            (RUNS, NATIVE),
            "nativ",
            [
                "AOTC-I027 the artifact has no variant 'nativ'; did you mean 'native'?"
                " (expected portable or native; found nativ)"
            ],
        ),
        (
            (RUNS, OTHER_ISA),
            "native",
            [
                "AOTC-C009 variant 'native' does not run on this host",
                "AOTC-C004 the ISA differs",
            ],
        ),
        (
            (OTHER_ISA,),
            None,
            ["AOTC-C009 no variant runs on this host", "AOTC-C004 the ISA differs"],
        ),
    ],
)
def test_a_refusal_names_the_reasons(
    verdicts: tuple[VariantVerdict, ...], wanted: str | None, lines: list[str]
) -> None:
    with pytest.raises(AotcError) as caught:
        choose(manifest(), verdicts, wanted)
    assert [error.line() for error in (caught.value, *caught.value.also)] == lines


# -- buckets
SEQ = Dim(
    min=1, max=64, opt=16, buckets=(8, 16, 32), outside=("pad", "route"), pad_from=1,
    origin="stated",
)  # fmt: skip


def bucketed(domain: Domain, *, dynamic: bool) -> Manifest:
    """A manifest with every combination of buckets of one of the profile's variants."""
    dims = {name: dim.buckets for name, dim in domain.dims.items() if dim.buckets}
    combinations = [
        dict(zip(dims, sizes, strict=True)) for sizes in itertools.product(*dims.values())
    ]
    made = [
        replace(variant(f"v{index}"), spec="v", buckets=buckets)
        for index, buckets in enumerate([*([{}] if dynamic else []), *combinations])
    ]
    return replace(manifest(domain=domain, variants=tuple(made)), padding=Padding())


def test_a_kind_is_loaded_with_all_its_buckets() -> None:
    made = bucketed(Domain(dims={"seq": SEQ}), dynamic=True)
    verdicts = [VariantVerdict(name=item.name, runs=True) for item in made.variants]
    assert names(choose(made, verdicts)) == ["v0", "v1", "v2", "v3"]
    assert names(choose(made, verdicts, "v")) == ["v0", "v1", "v2", "v3"]
    assert names(choose(made, verdicts, ["v3", "v1"])) == ["v1", "v3"]
    both = replace(made, variants=(*made.variants, variant("other")))
    more = [*verdicts, VariantVerdict(name="other", runs=True)]
    with pytest.raises(AotcError, match="AOTC-I027 the variants are not buckets of one variant"):
        choose(both, more, ["v1", "other"])


@pytest.mark.parametrize(
    ("seq", "buckets", "cause"),
    [
        (8, {"seq": 8}, "exact"),
        (1, {"seq": 8}, "padded"),
        (9, {"seq": 16}, "padded"),
        (32, {"seq": 32}, "exact"),
        (33, {}, "routed"),
        (64, {}, "routed"),
    ],
)
def test_the_smallest_that_fits_takes_a_call(
    seq: int, buckets: Mapping[str, int], cause: str
) -> None:
    made = bucketed(Domain(dims={"seq": SEQ}), dynamic=True)
    route = Router(made, made.variants).route({"seq": seq})
    assert made.variants[route.variant].buckets == buckets
    assert route.cause == cause
    assert route.wanted == {"seq": buckets.get("seq", seq)}
    assert route.pads == (cause == "padded")


def test_what_a_dim_names_first_is_tried_first() -> None:
    dim = replace(SEQ, outside=("route", "pad"))
    made = bucketed(Domain(dims={"seq": dim}), dynamic=True)
    router = Router(made, made.variants)
    assert router.route({"seq": 5}).cause == "routed"
    assert router.route({"seq": 8}).cause == "exact"
    static = Router(made, made.variants[1:])
    assert static.route({"seq": 5}).wanted == {"seq": 8}


def test_a_bucket_that_is_not_loaded_is_passed_over() -> None:
    made = bucketed(Domain(dims={"seq": SEQ}), dynamic=True)
    router = Router(made, [made.variants[0], made.variants[3]])
    assert router.route({"seq": 3}).wanted == {"seq": 32}
    alone = Router(made, made.variants[1:2])
    with pytest.raises(AotcError) as caught:
        alone.route({"seq": 9})
    assert caught.value.line() == (
        "AOTC-S010 no loaded variant accepts a call of these sizes [dim seq]"
        " (expected seq: 8, 16, 32, and 1..64 (padded from 1); found seq=9, with v1 loaded)"
    )


def test_the_dynamic_variant_takes_calls_of_a_bucket_that_is_not_loaded() -> None:
    exact = replace(SEQ, outside=("route",), pad_from=None)
    made = bucketed(Domain(dims={"seq": exact}), dynamic=True)
    route = Router(made, made.variants[:2]).route({"seq": 16})
    assert (route.variant, route.wanted, route.cause) == (0, {"seq": 16}, "routed")


def test_dims_that_follow_are_padded_along() -> None:
    past = Dim(min=0, max=16, opt=4, origin="stated")
    relation = Relation(dim="total", terms=("past", "seq"))
    made = bucketed(Domain(dims={"seq": SEQ, "past": past}, relations=(relation,)), dynamic=False)
    route = Router(made, made.variants).route({"seq": 5, "past": 3, "total": 8})
    assert route.wanted == {"seq": 8, "past": 3, "total": 11}


# -- against the definition
MOST = 8
ACTIONS: tuple[tuple[Literal["pad", "route"], ...], ...] = (
    (), ("pad",), ("route",), ("pad", "route"), ("route", "pad"),
)  # fmt: skip


@st.composite
def dims(draw: st.DrawFn) -> Dim:
    """A dim with buckets or a grid, and any handling of other sizes."""
    outside = draw(st.sampled_from(ACTIONS))
    pad_from = 1 if "pad" in outside else None
    if draw(st.booleans()):
        step = draw(st.sampled_from((1, 2, 4)))
        return Dim(min=step, max=MOST, opt=step, multiple_of=step, outside=outside,
                   pad_from=pad_from, origin="stated")  # fmt: skip
    buckets = tuple(sorted(draw(st.sets(st.integers(1, MOST), min_size=1, max_size=3))))
    low, high = (1, MOST) if "route" in outside else (buckets[0], buckets[-1])
    return Dim(min=low, max=high, opt=buckets[0], buckets=buckets, outside=outside,
               pad_from=pad_from, origin="stated")  # fmt: skip


def possible_routes(
    domain: Domain, loaded: Sequence[Variant], sizes: Mapping[str, int]
) -> Iterator[tuple[Variant, Mapping[str, int]]]:
    """Every loaded variant that may take a call, and the sizes that would run."""
    for item in loaded:
        wanted = {}
        for name, dim in domain.dims.items():
            grown = [
                full
                for full in ([item.buckets[name]] if name in item.buckets else range(1, MOST + 1))
                if full == sizes[name] or (dim.pad_from is not None and full > sizes[name])
                if name in item.buckets or (dim.min <= full <= dim.max and dim.spans(full))
            ]
            if not grown:
                break
            wanted[name] = min(grown)
        else:
            yield item, wanted


@given(st.data())
def test_against_every_way_to_serve_a_call(data: st.DataObject) -> None:
    domain = Domain(dims={"a": data.draw(dims()), "b": data.draw(dims())})
    others = [dim for dim in domain.dims.values() if dim.buckets]
    dynamic = not others or any("route" in dim.outside for dim in others)
    made = bucketed(domain, dynamic=dynamic) if others else manifest(domain=domain)
    places = st.sets(st.sampled_from(range(len(made.variants))), min_size=1)
    loaded = [made.variants[at] for at in sorted(data.draw(places))]
    sizes = {
        name: data.draw(st.sampled_from([n for n in range(1, MOST + 1) if dim.accepts(n)]))
        for name, dim in domain.dims.items()
    }
    router = Router(made, loaded)
    found = list(possible_routes(domain, loaded, sizes))
    if not found:
        with pytest.raises(AotcError, match="AOTC-S010"):
            router.route(sizes)
        return
    routed_first = any(
        dim.buckets and sizes[name] not in dim.buckets and dim.outside[0] == "route"
        for name, dim in domain.dims.items()
    )
    kinds = {bool(item.buckets) for item, _ in found}
    static = not routed_first if len(kinds) == 2 else kinds.pop()
    right = [(item, wanted) for item, wanted in found if bool(item.buckets) == static]
    least = min(math.prod(wanted.values()) for _, wanted in right)
    for _ in range(2):  # Found, then remembered.
        route = router.route(sizes)
        taken = loaded[route.variant], route.wanted
        assert taken in right
        assert math.prod(route.wanted.values()) == least
        assert route.pads == (route.wanted != sizes)
        dynamic_of_several = bool(others) and not static
        assert route.cause == (
            "padded" if route.pads else "routed" if dynamic_of_several else "exact"
        )
