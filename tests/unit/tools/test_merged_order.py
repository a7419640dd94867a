"""The order, the names and the profile of what is merged."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.spec.codec import decode, encode
from aotc.spec.manifest import MergedBuild
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile, stated_profile
from aotc.spec.variant import Toolchain
from aotc.tools.merge_agreement import built_alike, joined_profile, joined_target, renamed_profile
from aotc.tools.merged_payload import in_merged_order


def by_name(name: str) -> tuple[object, ...]:
    return (name,)


@pytest.mark.parametrize(
    ("chains", "expected"),
    [
        (["ab", "cd"], "abcd"),
        (["ba", "cd"], "bacd"),
        (["bd", "ad"], "abd"),
        (["acd", "bc"], "abcd"),
        (["xa", "b"], "bxa"),
        # These contradict each other, so that names alone decide.
        (["ab", "ba"], "ab"),
        (["zab", "bza", "abz"], "abz"),
    ],
)
def test_each_chain_keeps_its_order(chains: list[str], expected: str) -> None:
    for turned in itertools.permutations(chains):
        assert "".join(in_merged_order(turned, by_name)) == expected


def profile(base: str, **fields: Any) -> Any:
    made: Profile = decode(Profile, {**encode(load_profile(base)), **fields})
    return stated_profile(made)


def joined(*profiles: Any) -> Any:
    merged = joined_profile(profiles, "host", lambda chains: in_merged_order(chains, by_name))
    # It is a profile, which loads read.
    return decode(Profile, merged)


def test_what_profiles_state_of_all_variants_stands_at_each() -> None:
    one = profile("server-cuda", variants=[{"name": "gpu"}], budgets={"cpu_share": 0.1})
    other = profile("edge", variants=[{"name": "cpu", "threads": 2}])
    found = joined(one, other)
    assert found.name == "edge_server-cuda"
    assert {spec.name: spec.providers for spec in found.variants} == {
        "cpu": ("cpu",),
        "gpu": ("cuda", "cpu"),
    }
    captures = {spec.name: spec.cuda.graphs.capture for spec in found.variants if spec.cuda}
    assert captures == {"cpu": "none", "gpu": "sizes"}
    assert found.budgets.cpu_share is None
    assert found.description == ""


STATIC = {"form": "static"}
BUCKETS = {"batch": {"min": 1, "max": 64, "buckets": [1, 2, 4, 8, 16, 32, 64]}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Of its variants one alone is quantized, or may be.
        (
            {"quantization": {"form": "static"}, "variants": [{"name": "q", "precision": "int8"}]},
            {},
        ),
        ({"quantization": STATIC, "tune": {"precision": ["keep", "int8"]}}, {}),
        # Together they have more variants than each may.
        ({"max_variants": 1}, {"max_variants": 2}),
        ({"variants": [{"name": name} for name in "xyz"], "dims": BUCKETS}, {"dims": BUCKETS}),
    ],
)
def test_what_is_joined_is_a_valid_profile(one: Any, other: Any) -> None:
    of_one = profile("edge", **{**one, "variants": [*one.get("variants", ()), {"name": "a"}]})
    of_other = profile("edge", **{**other, "variants": [{"name": "b"}, {"name": "c"}]})
    for turned in ([of_one, of_other], [of_other, of_one]):
        names = {spec.name for spec in joined(*turned).variants}
        assert names == {spec["name"] for each in turned for spec in each["variants"]}


def test_more_variants_than_an_artifact_can_have() -> None:
    profiles = [
        profile("edge", max_variants=64, variants=[{"name": f"{at}-{n}"} for n in range(40)])
        for at in "ab"
    ]
    with pytest.raises(AotcError) as caught:
        joined(*profiles)
    assert caught.value.code == "AOTC-S017"


def test_equal_profiles_stay_as_they_are() -> None:
    one = profile("server-cpu")
    found = joined_profile([one, one], "host", lambda chains: in_merged_order(chains, by_name))
    assert found == one


def test_waivers_follow_the_names_of_variants() -> None:
    waiver = {"code": "AOTC-P003", "variant": "portable", "reason": "known"}
    one = profile("edge", waivers=[waiver, {**waiver, "variant": ""}])
    named = renamed_profile(one, {"portable": "portable-old"})
    assert [spec["name"] for spec in named["variants"]] == ["portable-old"]
    assert [each["variant"] for each in named["waivers"]] == ["portable-old", ""]


def test_what_is_built_alike() -> None:
    tools = Toolchain(aotc="1", python="3.12", onnx="1.2", onnxruntime="1.32.0")

    def artifact(digit: str, **fields: Any) -> MergedBuild:
        stated: dict[str, Any] = {
            "target": "host",
            "target_sha256": "0" * 64,
            "profile": {"name": "edge", "variants": [digit]},
            "toolchain": tools,
            **fields,
        }
        return MergedBuild(artifact_id=digit * 64, variants={digit: digit}, **stated)

    one = artifact("1")
    assert built_alike([one, artifact("2")])
    for fields in (
        {"target": "other"},
        {"target_sha256": "1" * 64},
        {"profile": {"name": "other", "variants": []}},
        {"toolchain": Toolchain(aotc="1", python="3.12", onnx="1.2", onnxruntime="1.31.1")},
    ):
        assert not built_alike([one, artifact("2", **fields)])
    assert joined_target([one, artifact("2", target="epyc"), artifact("3")]) == "epyc, host"
