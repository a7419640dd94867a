"""Names of nodes as a line of a profile: YAML reads back what was written, whatever it is."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.spec.precision import kept_line, matching_names
from aotc.spec.yaml import strict_yaml

HOSTILE = (
    "/layer.0/MatMul",
    "a, b]",
    '"quoted"',
    "back\\slash",
    "colon: #comment",
    "line\nbreak\ttab\r",
    "\x00\x07\x7f\x85\xa0\u2028\ufeff",
    "é漢\U0001f600",
    "yes",
    "12",
    "",
    "- item",
    "*",
)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=5))
@settings(max_examples=200, deadline=None)
def test_yaml_reads_back_any_names(names: list[str]) -> None:
    line = kept_line(names)
    assert line.isascii()
    assert line.isprintable()
    assert yaml.safe_load(line) == {"keep_float32": names}


def test_hostile_names_are_read_back_and_found_in_the_model() -> None:
    found = strict_yaml(kept_line(HOSTILE).encode())["keep_float32"]
    assert tuple(found) == HOSTILE
    assert matching_names({*HOSTILE, "other"}, found) == {*HOSTILE}
