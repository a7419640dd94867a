"""What a search may claim about sizes that are not stated: only what was challenged or run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from graph_values import value

from aotc.sizes.analysis import domain_findings
from aotc.sizes.dim_hints import DimHints, hints_on
from aotc.sizes.runs import input_bytes
from aotc.sizes.search import Prober
from aotc.sizes.trials import Trial
from aotc.spec.payload import Value
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import DimRange, Domain

Sizes = Mapping[str, int]


@dataclass
class Searched:
    """A search, and every run that it made."""

    inputs: Sequence[Value]
    runs: Callable[[Sizes], bool]
    outputs: Sequence[Value] = ()
    hints: DimHints | None = None
    stated: Mapping[str, DimRange] = field(default_factory=dict)
    limits: ProbeLimits = field(
        default_factory=lambda: ProbeLimits(max_input_bytes=1 << 40, max_size=1024)
    )
    flops: Callable[[Sizes], float] = lambda _: 0.0
    error: Callable[[Sizes], str] = lambda _: "no"
    late: Callable[[], bool] = lambda: False
    tried: list[dict[str, int]] = field(default_factory=list)

    def prober(self) -> Prober:
        dims = [d for value in self.inputs for d in value.shape or () if isinstance(d, str)]

        def trial(sizes: Sizes) -> Trial:
            self.tried.append(dict(sizes))
            if min(sizes.values()) >= 0 and self.runs(sizes):
                return Trial(ok=True, empty=0 in sizes.values())
            return Trial(ok=False, error=self.error(sizes))

        return Prober(
            dims=list(dict.fromkeys(dims)),
            hints=self.hints or hints_on(self.inputs, self.outputs),
            stated=self.stated,
            limits=self.limits,
            trial=trial,
            late=self.late,
            cost=lambda _: lambda sizes: (0, 0, self.flops(sizes)),
            input_bytes=lambda sizes: input_bytes(self.inputs, sizes),
        )

    def domain(self) -> Domain:
        return self.prober().search()


def ranges(domain: Domain) -> dict[str, tuple[int, int, int]]:
    return {name: (dim.min, dim.max, dim.multiple_of) for name, dim in domain.dims.items()}


def relations(domain: Domain) -> dict[str, bool]:
    return {str(relation): relation.enforced for relation in domain.relations}


# -- relations
DECODER = (
    value("ids", "batch", "seq", dtype="int64"),
    value("mask", "rows", "total", dtype="int64"),
    *(value(f"past.{i}.{k}", "batch", 2, "past", 8) for i in range(2) for k in ("key", "value")),
)


def at_least(sizes: Sizes) -> bool:
    """Exports of decoders: the mask may have more rows and columns than are read of it."""
    enough = sizes["rows"] >= sizes["batch"] and sizes["total"] >= sizes["past"] + sizes["seq"]
    return enough and min(sizes["batch"], sizes["seq"], sizes["past"] + 1) > 0


def exactly(sizes: Sizes) -> bool:
    same = sizes["rows"] == sizes["batch"] and sizes["total"] == sizes["past"] + sizes["seq"]
    return same and at_least(sizes)


def test_what_must_hold_is_enforced() -> None:
    found = Searched(DECODER, exactly).domain()
    assert relations(found) == {"rows = batch": True, "total = seq + past": True}
    assert all(dim.max == 1024 for dim in found.dims.values())


def test_what_may_be_exceeded_is_kept_to_and_not_enforced() -> None:
    found = Searched(DECODER, at_least).domain()
    assert relations(found) == {"rows = batch": False, "total = seq + past": False}
    assert all(dim.max == 1024 for dim in found.dims.values())
    what = [finding.what for finding in domain_findings(found) if finding.code == "AOTC-S007"]
    assert len(what) == 2
    assert all("so they are accepted" in item for item in what)


def test_a_size_of_1_that_is_broadcast_makes_an_equality_none() -> None:
    inputs = (value("ids", "batch", "seq"), value("positions", "rows", "seq"))
    found = Searched(inputs, lambda s: s["rows"] in (1, s["batch"]) and min(s.values()) > 0)
    assert relations(found.domain()) == {"rows = batch": False}
    exact = Searched(inputs, lambda s: s["rows"] == s["batch"] and min(s.values()) > 0)
    assert relations(exact.domain()) == {"rows = batch": True}


def test_the_past_of_all_layers_moves_as_one_with_the_length_of_the_mask() -> None:
    layers = 32
    inputs = (
        value("ids", "b", "s", dtype="int64"),
        value("mask", "rows", "total", dtype="int64"),
        *(
            value(f"past.{i}.{k}", f"past.{i}.{k}.0", 2, f"past.{i}.{k}.2", 8)
            for i in range(layers)
            for k in ("key", "value")
        ),
    )

    def runs(sizes: Sizes) -> bool:
        batches = {size for name, size in sizes.items() if name.endswith(".0")}
        pasts = {size for name, size in sizes.items() if name.endswith(".2")}
        if batches != {sizes["b"]} or len(pasts) > 1 or min(sizes["b"], sizes["s"]) < 1:
            return False
        return sizes["rows"] == sizes["b"] and sizes["total"] == sizes["s"] + pasts.pop()

    search = Searched(inputs, runs)
    found = search.domain()
    assert ranges(found) == {
        "b": (1, 1024, 1),
        "s": (1, 1024, 1),
        "past.0.key.2": (0, 1024, 1),
    }
    assert relations(found)["total = s + past.0.key.2"]
    assert len(found.relations) == 2 + 2 * 2 * layers - 1
    assert all(relations(found).values())
    assert len(search.tried) < ProbeLimits(max_size=1024).max_runs / 2


def test_a_relation_by_coincidence_at_one_base_is_dropped_at_another() -> None:
    """At 64 a reshape to 4096 elements makes the dims look equal; elsewhere it does not."""
    inputs = (value("x", "n", "a"), value("y", "n", "b"))

    def runs(sizes: Sizes) -> bool:
        near = all(60 <= sizes[d] <= 68 for d in "ab")
        return min(sizes.values()) > 0 and (sizes["a"] == sizes["b"] if near else True)

    found = Searched(inputs, runs).domain()
    assert not any(relations(found).values())


def test_a_relation_that_may_stand_for_a_dim_that_cannot_move_is_not_enforced() -> None:
    """`total` is the sum of three, of which one was found at one size alone."""
    inputs = (value("ids", "b", "s"), value("m", "b", "total"), value("p", "b", "past", 3))

    def runs(sizes: Sizes) -> bool:
        return (
            sizes["past"] == 5
            and sizes["total"] == sizes["s"] + sizes["past"]
            and min(sizes.values()) > 0
        )

    found = Searched(inputs, runs).domain()
    assert relations(found) == {"total = s + 5": False}
    assert ranges(found)["past"] == (5, 5, 1)


@pytest.mark.parametrize("most", range(8, 120, 7))
def test_a_search_that_ended_by_count_enforces_nothing_that_it_did_not_challenge(
    most: int,
) -> None:
    search = Searched(DECODER, at_least, limits=ProbeLimits(max_runs=most, max_size=1024))
    prober = search.prober()
    try:
        found = prober.search()
    except Exception as error:
        assert "AOTC-S001" in str(error)
        return
    assert len(search.tried) <= most
    assert not any(relations(found).values())
    if len(search.tried) == most:
        assert not any(dim.stopped_by == "error" for dim in found.dims.values())
        assert any("probe.max_runs" in finding.what for finding in prober.findings)


def test_a_search_that_time_ended_says_so() -> None:
    left = iter(range(30))
    search = Searched(DECODER, exactly, late=lambda: next(left, None) is None)
    prober = search.prober()
    found = prober.search()
    assert {dim.stopped_by for dim in found.dims.values()} == {"time"}
    assert any("probe.seconds" in finding.what for finding in domain_findings(found))
    assert any("probe.seconds" in finding.what for finding in prober.findings)


def test_a_sum_in_the_name_of_an_output_is_tried_early() -> None:
    outputs = (value("present", "batch", 2, "past + seq", 8),)
    search = Searched(DECODER, exactly, outputs=outputs)
    assert search.prober().base() is not None
    assert len(search.tried) == 1
    assert Searched(DECODER, exactly, outputs=outputs).domain() == search.domain()


# -- batches and images
DETECTOR = (value("image", 1, 3, "height", "width"),)


def on_grid(sizes: Sizes) -> bool:
    return all(size % 32 == 0 and size > 0 for size in sizes.values())


def test_the_first_free_dim_is_no_batch_unless_it_stands_first() -> None:
    assert hints_on(DETECTOR, ()).leading == frozenset()
    assert hints_on((value("x", "n", 3, "h", "w"),), ()).leading == {"n"}
    assert hints_on((value("x", 3, "n"), value("y", "n", 2)), ()).leading == frozenset()


def test_a_detector_of_one_image_takes_what_users_give_it() -> None:
    found = Searched(DETECTOR, on_grid).domain()
    assert ranges(found) == {"height": (32, 1024, 32), "width": (32, 1024, 32)}
    assert found.corner("opt") == {"height": 224, "width": 224}


def test_sizes_that_run_by_accident_are_not_the_range() -> None:
    found = Searched(DETECTOR, lambda s: on_grid(s) or all(0 < n <= 8 for n in s.values()))
    assert ranges(found.domain())["height"] == (32, 1024, 32)


def test_a_failure_is_believed_after_sizes_beyond_it_were_tried() -> None:
    """64 to 70 run, and from 96 on the multiples of 32: no doubling of 64 shows 96."""
    search = Searched((value("x", 1, "n"),), lambda s: 64 <= s["n"] <= 70 or on_grid(s))
    dim = search.domain().dims["n"]
    assert (dim.max, dim.multiple_of) == (1024, 32)
    few = Searched((value("x", 1, "n"),), lambda s: 0 < s["n"] <= 70)
    dim = few.domain().dims["n"]
    assert (dim.max, dim.stopped_by) == (70, "error")
    assert {71, 72, 80, 96, 128} <= {sizes["n"] for sizes in few.tried}


def test_images_are_square_and_batches_of_8_have_images_of_224() -> None:
    inputs = (value("image", "n", 3, "h", "w"),)
    limits = ProbeLimits(max_flops=8 * 224 * 224 + 1, max_size=1024)
    found = Searched(
        inputs,
        lambda s: min(s.values()) > 0,
        limits=limits,
        flops=lambda s: float(s["n"] * s["h"] * s["w"]),
    ).domain()
    assert {name: dim.max for name, dim in found.dims.items()} == {"n": 1, "h": 512, "w": 512}
    assert found.corner("opt") == {"n": 1, "h": 224, "w": 224}
    (further,) = found.further()
    assert further.corner("max") == {"n": 8, "h": 224, "w": 224}
    assert found.accepts({"n": 8, "h": 100, "w": 224})
    assert not found.accepts({"n": 8, "h": 225, "w": 224})


def test_decoders_reach_further_with_one_token_and_without_a_past() -> None:
    """A table of 256 positions; with a past and more than one token only one entry at a time."""

    def runs(sizes: Sizes) -> bool:
        total = sizes["seq"] + sizes["past"]
        one = sizes["batch"] == 1 or sizes["seq"] == 1 or sizes["past"] == 0
        return min(sizes["batch"], sizes["seq"]) > 0 and total <= 256 and one

    inputs = (value("ids", "batch", "seq"), value("past", "batch", 2, "past", 8))
    hints = DimHints(leading=frozenset({"batch"}), caches=frozenset({"past"}))
    found = Searched(inputs, runs, hints=hints).domain()
    assert found.accepts({"batch": 1, "seq": 128, "past": 128})
    assert found.accepts({"batch": 8, "seq": 1, "past": 255})
    assert found.accepts({"batch": 8, "seq": 256, "past": 0})
    assert not found.accepts({"batch": 8, "seq": 2, "past": 1})
    assert not found.accepts({"batch": 1, "seq": 129, "past": 129})
    assert all(runs(further.corner("max")) for further in found.further())


@pytest.mark.parametrize(("work", "rows"), [(512, 1), (512 * 4, 4), (512 * 8, 8)])
def test_lengths_of_512_come_before_batches(work: int, rows: int) -> None:
    inputs = (value("ids", "n", "length"),)
    found = Searched(
        inputs,
        lambda s: min(s.values()) > 0,
        limits=ProbeLimits(max_flops=work, max_size=1024),
        flops=lambda s: float(s["n"] * s["length"]),
    ).domain()
    assert {name: dim.max for name, dim in found.dims.items()} == {"n": rows, "length": 512}
    assert {dim.stopped_by for dim in found.dims.values()} == {"flops"}


def test_beyond_usual_sizes_a_run_costs_an_eighth() -> None:
    inputs = (value("ids", "n", "length"),)
    limits = ProbeLimits(max_flops=8 * 1024 * 8, max_size=1024)
    search = Searched(
        inputs,
        lambda s: min(s.values()) > 0,
        limits=limits,
        flops=lambda s: float(s["n"] * s["length"]),
    )
    found = search.domain()
    assert {name: dim.max for name, dim in found.dims.items()} == {"n": 8, "length": 1024}
    assert max(s["n"] * s["length"] for s in search.tried) == limits.max_flops / 8


# -- what nobody stated is never refused
def test_an_encoder_of_one_length_is_found_by_what_its_error_speaks_of() -> None:
    search = Searched(
        (value("mel", "n", 80, "frames"),),
        lambda s: s["frames"] in (2999, 3000) and s["n"] > 0,
        error=lambda s: (
            f"Attempting to broadcast an axis by a dimension other than 1. "
            f"{-(-s['frames'] // 2)} by 1500"
        ),
    )
    dims = search.domain().dims
    assert (dims["frames"].min, dims["frames"].max) == (2999, 3000)
    assert dims["frames"].stopped_by == "error"
    assert len(search.tried) < 60


def test_no_input_is_made_that_exceeds_its_bytes() -> None:
    inputs = (value("x", *"abcdef"),)
    limits = ProbeLimits(max_input_bytes=1 << 20, max_size=1024)
    search = Searched(inputs, lambda s: min(s.values()) > 0, limits=limits)
    found = search.domain()
    assert max(input_bytes(inputs, sizes) for sizes in search.tried) <= limits.max_input_bytes
    assert all(dim.max > 1 for name, dim in found.dims.items() if name != "a")


def test_what_is_stated_may_exceed_them() -> None:
    stated = {"n": DimRange(min=1 << 20, max=1 << 20)}
    limits = ProbeLimits(max_input_bytes=1 << 20, max_size=1024)
    found = Searched(
        (value("x", "b", "n"),), lambda s: min(s.values()) > 0, stated=stated, limits=limits
    ).domain()
    assert ranges(found)["n"] == (1 << 20, 1 << 20, 1)


def test_a_smallest_size_that_fails_with_others_is_raised_and_told() -> None:
    """Each may be 1, and not both: a convolution over few pixels."""
    prober = Searched(DETECTOR, lambda s: s["height"] * s["width"] >= 16).prober()
    found = prober.search()
    low = found.corner("min")
    assert low["height"] * low["width"] >= 16
    assert [finding.code for finding in prober.findings] == ["AOTC-S027"]


def test_what_runs_nowhere_but_at_its_base_is_that_base() -> None:
    """Corners fail, whatever gives way: what is left is what ran."""
    inputs = (value("x", 1, "a", "b"),)

    def runs(sizes: Sizes) -> bool:
        return sizes["a"] == 64 or sizes["b"] == 64

    found = Searched(inputs, runs).domain()
    for which in ("min", "opt", "max"):
        assert runs(found.corner(which))  # type: ignore[arg-type]


def test_a_box_that_gives_way_stays_within_what_is_stated() -> None:
    inputs = (value("x", "n", "a"), value("y", "n", "b"))
    stated = {"a": DimRange(min=4, max=512)}
    found = Searched(
        inputs, lambda s: s["a"] + s["b"] <= 600 and min(s.values()) > 0, stated=stated
    ).domain()
    assert ranges(found)["a"] == (4, 512, 1)
    assert 1 <= ranges(found)["b"][1] <= 88


# -- a search that starts again
def test_runs_that_are_recalled_take_no_time_and_give_the_same() -> None:
    first = Searched(DECODER, exactly)
    found = first.domain()
    known = {tuple(sorted(sizes.items())): exactly(sizes) for sizes in first.tried}

    def recall(sizes: Sizes) -> Trial | None:
        ok = known.get(tuple(sorted(sizes.items())))
        return None if ok is None else Trial(ok=ok, error="no", empty=0 in sizes.values())

    again = Searched(DECODER, exactly, late=lambda: True)
    prober = again.prober()
    prober = Prober(**{name: getattr(prober, name) for name in _FIELDS}, recall=recall)
    assert prober.search() == found
    assert again.tried == []


_FIELDS: tuple[Any, ...] = (
    *("dims", "hints", "stated", "limits", "trial", "late", "cost", "relations", "input_bytes"),
)


def test_a_name_that_is_a_number_is_tried_as_that_size() -> None:
    """As some exporters name dims that they know to be fixed."""
    inputs = (value("ids", "batch", "seq"), value("past", "batch", "2", "old", "8"))
    search = Searched(
        inputs, lambda s: (s["2"], s["8"]) == (2, 8) and min(s["batch"], s["seq"], s["old"]) > 0
    )
    found = search.domain()
    assert (ranges(found)["2"], ranges(found)["8"]) == ((2, 2, 1), (8, 8, 1))
    assert ranges(found)["seq"] == (1, 1024, 1)


def test_a_range_holds_the_sizes_of_all_fixtures() -> None:
    """What a user brings is what they need, be it costly."""
    search = Searched(
        (value("ids", "batch", "seq"),),
        lambda s: min(s.values()) > 0,
        limits=ProbeLimits(max_flops=2000, max_size=1024),
        flops=lambda s: float(s["batch"] * s["seq"]),
    )
    found = search.prober().search([{"batch": 1, "seq": 20}, {"batch": 3, "seq": 300}])
    assert found.dims["seq"].max >= 300
    assert found.dims["batch"].max >= 3
    assert 20 in found.dims["seq"].tested


def test_caches_and_masks_are_no_images() -> None:
    cache = value("past", "batch", 1, "past", 8)
    mask = value("mask", "batch", 1, "queries", "keys")
    tokens = value("ids", "batch", "queries"), value("seen", "batch", "keys")
    assert hints_on((cache, mask, *tokens), ()).images == ()
    assert hints_on((value("strip", 1, 3, 48, "width"),), ()).images == (("width",),)
    assert hints_on((value("nhwc", "n", "h", "w", 3),), ()).images == (("h", "w"),)
