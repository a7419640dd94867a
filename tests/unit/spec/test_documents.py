"""Profiles and targets: strict YAML, and every problem named with its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.spec.codec import ParseError
from aotc.spec.profile_files import builtin_profiles, builtin_targets, load_profile, load_target
from aotc.spec.shapes import DimRange
from aotc.spec.yaml import MAX_YAML_BYTES, MAX_YAML_VALUES, strict_yaml, yaml_text


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_built_ins() -> None:
    assert builtin_profiles() == (
        "edge",
        "edge-openvino",
        "edge-rtx",
        "server-cpu",
        "server-cuda",
        "server-tensorrt",
    )
    assert builtin_targets() == ("linux-arm64", "linux-x86-64", "linux-x86-64-avx512")
    for name in builtin_profiles():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.dims == {}
        assert profile.description
    for name in builtin_targets():
        assert load_target(name).name == name
    assert [variant.isa for variant in load_profile("edge").variants] == ["baseline"]
    assert [variant.isa for variant in load_profile("server-cpu").variants] == ["baseline", "host"]


def test_every_problem_is_named_with_its_path(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "schema: aotc.profile/1\nname: mine\nprovider: [cpu]\n"
        "dims: {batch: 8..1, seq: {min: 1, max: 64, multiple_of: 3}}\n"
        "fixtures: {max_count: 99}\nparity: {float32: {atol: -1, rtol: 1e-3}}\n",
    )
    with pytest.raises(AotcError) as caught:
        load_profile(path)
    found = [(error.code, error.where, error.what) for error in (caught.value, *caught.value.also)]
    assert found == [
        ("AOTC-I022", f"{path}: provider", "unknown field; did you mean 'providers'?"),
        ("AOTC-S003", f"{path}: dims.batch.min", "8 is more than max 1"),
        (
            "AOTC-S003",
            f"{path}: dims.seq.multiple_of",
            "the ends of 1..64 are not multiples of 3",
        ),
        ("AOTC-I022", f"{path}: fixtures.max_count", "99 is more than 16"),
        ("AOTC-I022", f"{path}: parity.float32.atol", "-1.0 is less than 0"),
    ]
    assert caught.value.exit_status == 3


def test_a_range_is_read_in_three_spellings(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "schema: aotc.profile/1\nname: mine\n"
        "dims: {a: 8, b: 1..8, c: {min: 16, max: 64, opt: 32, multiple_of: 16}}\n",
    )
    assert load_profile(path).dims == {
        "a": DimRange(min=8, max=8, opt=8),
        "b": DimRange(min=1, max=8),
        "c": DimRange(min=16, max=64, opt=32, multiple_of=16),
    }


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("edgy", "no such profile: 'edgy'; did you mean 'edge'?"),
        ("", "no such profile: ''"),
        ("no/such.yaml", "no such profile: 'no/such.yaml'"),
    ],
)
def test_an_unknown_name(name: str, what: str) -> None:
    with pytest.raises(AotcError) as caught:
        load_profile(name)
    assert (caught.value.code, caught.value.what) == ("AOTC-I021", what)
    listed = "edge, edge-openvino, edge-rtx, server-cpu, server-cuda, server-tensorrt"
    assert caught.value.expected == f"a YAML file, or one of: {listed}"


def test_a_file_wins_over_nothing_but_a_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edge").write_text("schema: aotc.profile/1\nname: other\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_profile("edge").name == "edge"
    assert load_profile("./edge").name == "other"


def test_words_are_read_by_the_core_schema_of_yaml_1_2() -> None:
    text = (
        b"a: 1e-3\nno: no\n1: 010\nb: 0.5\nc: ~\nd: 2026-01-01\ne: true\n'<<': {x: 3}\nf: 1.31.1\n"
    )
    assert strict_yaml(text) == {
        "a": 1e-3,
        "no": "no",
        "1": "010",
        "b": 0.5,
        "c": None,
        "d": "2026-01-01",
        "e": True,
        "<<": {"x": 3},
        "f": "1.31.1",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: &x 1\nb: *x", "(top): line 2: aliases are not allowed"),
        (b"a: 1\na: 2", "a: line 2: duplicate key"),
        (b"? [1]\n: 2", "(top): line 1: a key is not plain text"),
        (b"\xff", "(top): not UTF-8: invalid start byte"),
        (b"[" * 5000, "(top): nested too deeply"),
        (b"a: 1\n---\nb: 2", "(top): line 2: not YAML: but found another document"),
        (b"a: !!int x", "(top): line 1: tags are not allowed"),
        # Numbers of any length, which Python takes minutes over or cannot print.
        (b"a: !!int 1" + b":59" * 300_000, "(top): line 1: tags are not allowed"),
        (b"a: !!int 0x" + b"f" * 10_000, "(top): line 1: tags are not allowed"),
        (b"!!binary QUJD", "(top): line 1: tags are not allowed"),
        (b"a: !!python/object:os.system x", "(top): line 1: tags are not allowed"),
        (b"a: &x [1, 1]\nb: &y [*x, *x]", "(top): line 2: aliases are not allowed"),
        (b"[" + b"a," * MAX_YAML_VALUES + b"a]", f"(top): more than {MAX_YAML_VALUES} values"),
        (b"f0: 1\n" * MAX_YAML_VALUES, f"(top): more than {MAX_YAML_VALUES} values"),
        (b" " * (MAX_YAML_BYTES + 1), f"(top): more than {MAX_YAML_BYTES} bytes"),
    ],
)
def test_documents_that_are_not_plain_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        strict_yaml(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "[]", "edge", "schema: aotc.profile/2\nname: x\n"])
def test_other_documents_are_not_profiles(tmp_path: Path, text: str) -> None:
    with pytest.raises(AotcError) as caught:
        load_profile(write(tmp_path, text))
    assert caught.value.code == ("AOTC-I046" if "profile/2" in text else "AOTC-I022")


def test_written_out_documents_read_back_the_same(tmp_path: Path) -> None:
    for name in builtin_profiles():
        profile = load_profile(name)
        assert load_profile(write(tmp_path, yaml_text(profile))) == profile
    for name in builtin_targets():
        target = load_target(name)
        assert load_target(write(tmp_path, yaml_text(target))) == target
    odd = load_target(write(tmp_path, "schema: aotc.target/1\nname: '1e5'\ndescription: 'no'\n"))
    assert (odd.name, odd.description) == ("1e5", "no")
    assert load_target(write(tmp_path, yaml_text(odd))) == odd
