"""Differences of manifests, field by field, and what --fail-on makes of them."""

from __future__ import annotations

import pytest
from plain_manifest import variant

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.spec.diff_report import AREAS, MEASURED, AreaDiff, Change, VariantPair
from aotc.spec.target import Plugin
from aotc.spec.variant import MemoryPlan, PassRecord
from aotc.tools.diff.artifacts import failures, read_allowed
from aotc.tools.diff.opened_artifact import changes_of, pair_variants, ratio


def test_records_are_compared_down_to_their_fields() -> None:
    a, b = MemoryPlan(weights_bytes=100), MemoryPlan(weights_bytes=150, input_bytes_max=8)
    assert changes_of(a, b, "memory", subject="portable") == (
        Change(subject="portable", what="memory.weights_bytes", a=100, b=150, ratio=1.5),
        Change(subject="portable", what="memory.input_bytes_max", a=0, b=8),
    )
    assert changes_of(a, a) == ()


def test_lists_with_names_are_entered_and_others_are_not() -> None:
    a = (Plugin(name="p", version="1"), Plugin(name="q", version="1"))
    b = (Plugin(name="q", version="2"),)
    found = {change.what: (change.a, change.b) for change in changes_of(a, b, "plugins")}
    assert found["plugins.q.version"] == ("1", "2")
    assert found["plugins.p"][1] is None
    assert [change.what for change in changes_of(("a",), ("b",), "isa")] == ["isa"]
    repeated = [{"name": "x", "n": 1}, {"name": "x", "n": 2}]
    assert [c.what for c in changes_of(repeated, repeated[:1], "list")] == ["list"]


def test_fields_of_one_side_alone() -> None:
    record = PassRecord(name="p", nodes_before=3, nodes_after=2, matched={"Relu": 2})
    (change,) = changes_of(record, replace(record, matched={}))
    assert (change.what, change.a, change.b) == ("matched.Relu", 2, None)
    assert changes_of(None, record)[0].what == ""


def test_a_ratio_is_of_two_positive_numbers() -> None:
    assert ratio(2, 3) == 1.5
    assert [ratio(a, b) for a, b in ((0, 1), (1, 0), (True, 2), ("1", 2), (None, 1))] == [None] * 5


def test_pairs_of_variants() -> None:
    portable, native, cuda = variant("portable"), variant("native"), variant("cuda")
    bucket = replace(variant("portable.batch4"), buckets={"batch": 4})
    other = replace(variant("cuda.batch4"), buckets={"batch": 4}, providers=("X",))
    pairs, alone = pair_variants((portable, native), (native, portable))
    assert [(p.label, p.matched_by) for p in pairs] == [("portable", "name"), ("native", "name")]
    assert alone == ()
    pairs, alone = pair_variants((portable, bucket), (cuda, other))
    assert [(p.label, p.matched_by) for p in pairs] == [
        ("portable -> cuda", "providers"),
        ("portable.batch4 -> cuda.batch4", "buckets"),
    ]
    pairs, alone = pair_variants((portable,), (other,))
    assert [p.matched_by for p in pairs] == ["alone"]
    # Two that could be either are nobody's.
    pairs, alone = pair_variants((portable, native), (cuda,))
    assert pairs == ()
    assert alone == (VariantPair(a="portable"), VariantPair(a="native"), VariantPair(b="cuda"))


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("placemnt", "no area is called 'placemnt'; did you mean 'placement'?"),
        ("zzzzz", f"no area is called 'zzzzz'; known: {', '.join(sorted(AREAS))}"),
        ("placement:1.5", f"placement has no ratio; those with one: {', '.join(MEASURED)}"),
        ("size:", "'' is not a ratio such as 1.05"),
        ("size:0", "'0' is not a ratio such as 1.05"),
        ("size:nan", "'nan' is not a ratio such as 1.05"),
        ("size:-1", "'-1' is not a ratio such as 1.05"),
        ("size:1e400", "'1e400' is not a ratio such as 1.05"),
        ("size:\u0661", "'\u0661' is not a ratio such as 1.05"),
    ],
)
def test_words_that_are_refused(word: str, what: str) -> None:
    with pytest.raises(AotcError) as caught:
        read_allowed([word])
    assert (caught.value.code, caught.value.what, caught.value.found) == ("AOTC-I060", what, word)


def test_an_area_is_named_once() -> None:
    with pytest.raises(AotcError, match="size is named twice"):
        read_allowed(["size", "size:1.05"])


def areas(**changed: AreaDiff) -> tuple[AreaDiff, ...]:
    return tuple(changed.get(name, AreaDiff(area=name, status="same")) for name in AREAS)


@pytest.mark.parametrize(
    ("word", "area", "found"),
    [
        ("size", AreaDiff(area="size", status="same", ratio=1.0), None),
        ("size:1.05", AreaDiff(area="size", status="changed", ratio=1.05), None),
        ("size:1.05", AreaDiff(area="size", status="changed", ratio=0.5), None),
        (
            "size:1.05",
            AreaDiff(area="size", status="changed", ratio=1.06),
            ("at most 1.05 times A's", "1.06 times A's"),
        ),
        (
            "memory:2",
            AreaDiff(area="memory", status="changed"),
            ("at most 2 times A's", "a ratio that is not known"),
        ),
        (
            "placement",
            AreaDiff(area="placement", status="changed", changes=(Change(what="share"),)),
            ("no difference", "1 difference, the first of share"),
        ),
        (
            "weights",
            AreaDiff(area="weights", status="not-compared", reason="no onnx"),
            ("a comparison", "not compared: no onnx"),
        ),
    ],
)
def test_what_fails(word: str, area: AreaDiff, found: tuple[str, str] | None) -> None:
    refusals = failures(read_allowed([word]), areas(**{area.area: area}), "a and b")
    assert [(each.expected, each.found) for each in refusals] == ([found] if found else [])
    assert all(each.code == "AOTC-I061" for each in refusals)
