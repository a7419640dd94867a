"""Lines and columns of values in YAML, by their paths."""

from __future__ import annotations

import pytest

from aotc.contract.codec.yaml_marks import marks

TEXT = b"""\
# a comment
profile: edge
build:
    cache: true
    report: [a.json,
      b.md]
a.b:
  c: 1
list:
- x: 1
  y: 2
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", (2, 1)),
        ("profile", (2, 1)),
        ("build", (3, 1)),
        ("build.cache", (4, 5)),
        ("build.report[0]", (5, 14)),
        ("build.report[1]", (6, 7)),
        ("a.b.c", (8, 3)),
        ("list[0].y", (11, 3)),
        # What is not there has the place of what it is missing from.
        ("build.key", (3, 1)),
        ("list[7].y", (9, 1)),
        ("nothing", (2, 1)),
    ],
)
def test_the_place_of_a_path(path: str, place: tuple[int, int]) -> None:
    assert marks(TEXT, (path,))[path] == place


def test_an_empty_document_has_a_place_and_no_paths_need_none() -> None:
    assert marks(b"", ("profile",)) == {"profile": (1, 1)}
    assert marks(b"{ not yaml", ()) == {}
