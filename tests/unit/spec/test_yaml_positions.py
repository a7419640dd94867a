"""Lines and columns of YAML documents: of values, of problems, and of what is not stated."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.base.errors import AotcError, Place
from aotc.spec.codec import ParseError, Problem
from aotc.spec.profile_files import load_profile_file
from aotc.spec.yaml import located, nearest_position, positions, strict_yaml
from aotc.trust.policy.document import parse_policy
from aotc.trust.signers import load_command

DOCUMENT = b"""\
schema: a/1
dims:
  a.b: 1
variants:
  - {name: x, isa: host}
  - name: y
    isa: baseline
"""


def test_positions_are_those_of_keys_and_of_items() -> None:
    known = positions(DOCUMENT)
    assert known[""] == (1, 1)
    assert known["dims"] == (2, 1)
    assert known["dims.a.b"] == (3, 3)
    assert known["variants[0]"] == (5, 5)
    assert known["variants[0].isa"] == (5, 15)
    assert known["variants[1].isa"] == (7, 5)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("variants[1].threads", (6, 5)),
        ("variants[7].isa", (4, 1)),
        ("budgets.cpu_share", (1, 1)),
        ("dims.a.c", (2, 1)),
    ],
)
def test_what_is_not_there_is_at_what_is_around_it(path: str, place: tuple[int, int]) -> None:
    assert nearest_position(positions(DOCUMENT), path) == place


@pytest.mark.parametrize("data", [b"", b"a: [", b"a: *b", b"\xff", b"x" * (1 << 21)])
def test_what_is_no_document_has_few_positions_and_no_error(data: bytes) -> None:
    assert nearest_position(positions(data), "a.b") == (1, 1)


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"a: 1\nb: [1,\n", 3, 1),
        (b"a: 1\na: 2\n", 2, 1),
        (b"a: 1\nb: &x 1\nc: *x\n", 3, 4),
        (b"a: 1\nb: !!set {}\n", 2, 4),
        (b"a:\n  - 99999999999999999\n", 2, 5),
    ],
)
def test_what_the_reader_refuses_has_its_place(data: bytes, line: int, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        strict_yaml(data)
    (problem,) = located(caught.value.problems, data)
    assert (problem.line, problem.column) == (line, column)


def test_a_known_line_stays() -> None:
    (problem,) = located([Problem("variants", "what", line=9, column=2)], DOCUMENT)
    assert (problem.line, problem.column) == (9, 2)


def test_policies_and_signer_files_have_places(tmp_path: Path) -> None:
    policy = b"schema: aotc.trust/1\nsequence: none\n"
    with pytest.raises(AotcError) as caught:
        parse_policy(policy, Path("trust.yaml"))
    told = [caught.value, *caught.value.also]
    assert Place(file="trust.yaml", line=2, column=1) in [error.place for error in told]
    signer = tmp_path / "signer.yaml"
    signer.write_text("schema: aotc.signer/1\ncommand: [x]\nformats: der\n")
    with pytest.raises(AotcError) as caught:
        load_command(signer)
    told = [caught.value, *caught.value.also]
    assert Place(file=str(signer), line=3, column=1) in [error.place for error in told]


def test_a_setting_of_a_profile_has_the_place_at_which_the_profile_was_read(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("schema: aotc.profile/1\nname: p\nbudgets:\n  partitions: 3\n")
    _, places = load_profile_file(path)
    path.write_text("# moved\n" * 50)
    assert places.of("budgets.partitions") == Place(file=str(path), line=4, column=3)
    assert places.of("budgets.cpu_share") == Place(file=str(path), line=3, column=1)
