"""What is shown and was not printed is seen, whatever the numbers are."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented_pages import Example
from example_place import Place
from jsonschema import ValidationError
from output_matching import missing_lines, said_of_prints

PRINTED = """\
build/digits.aotc  VERIFIED, optimal

  artifact   53b15af4cb7766550d0785e2e0b3d1ba75ece48d94a904aceab18d7b91087fd6
  took       32.8 ms, 73.3 kB hashed

  AOTC-G005  payload/shared_assets/sha256-dafda1af542541ab2816d1f50519c9e31f7c80ae/weights.bin:
             the file's bytes are not the ones that were signed
"""


@pytest.mark.parametrize(
    "shown",
    [
        "build/digits.aotc  VERIFIED, optimal",
        "  artifact   aa115af4cb7766550d0785e2e0b3d1ba75ece48d94a904aceab18d7b91087f00",
        "  took       1.2 s, 9 B hashed",
        "  AOTC-G005  payload/shared_assets/sha256-dafda1af…/weights.bin:\n    the file's",
        "VERIFIED\n\nsigned",
    ],
)
def test_what_was_printed_is_found(shown: str) -> None:
    assert missing_lines(shown, PRINTED) == []


@pytest.mark.parametrize(
    "shown",
    [
        "build/digits.aotc  REFUSED",
        "  artifact   deadbeef",
        "  took       32.8 ms, 73.3 kB read",
        "  AOTC-G005  payload/…/model.onnx: the file's bytes",
    ],
)
def test_what_was_not_printed_is_told(shown: str) -> None:
    assert missing_lines(shown, PRINTED) == [shown]


def test_lines_are_printed_in_the_order_shown() -> None:
    assert missing_lines("signed\nVERIFIED", PRINTED) == ["VERIFIED"]


def test_what_comments_say_that_a_program_prints() -> None:
    code = "print(a)  # [1 2]\nb = 1  # a number\n    print(b, c)  # AOTC-R002 float32"
    assert said_of_prints(code) == "[1 2]\nAOTC-R002 float32"


@pytest.mark.parametrize(
    ("language", "text", "output"),
    [
        ("sh", "echo yes", "no"),
        ("sh", "false", ""),
        ("sh", "true    # exit status 1", ""),
        ("sh", "sh -c 'exit 3'    # exit status 1", ""),
        ("python", "print('yes')  # no", ""),
        ("python", "raise SystemExit(1)", ""),
        ("console", "$ echo yes\nno\n", ""),
        ("yaml", "schema: aotc.profile/1\nname: x\nbudgts: {}\n", ""),
        ("yaml", "schema: aotc.trust/1\nname: x\nsequence: -1\n", ""),
    ],
)
def test_an_example_that_does_otherwise_fails(
    language: str, text: str, output: str, tmp_path: Path
) -> None:
    place = Place.new(tmp_path / "place")
    with pytest.raises((AssertionError, ValidationError)):
        place.run(Example(language, text, 1, {}, output))


@pytest.mark.parametrize(
    ("language", "text", "output"),
    [
        ("sh", "echo yes 1", "yes 2"),
        ("sh", "false    # exit status 1", ""),
        ("sh", "echo a \\\n    b", "a b"),
        ("python", "print('yes')  # yes", "yes"),
        ("console", "$ echo yes\nyes\n$ false\n", ""),
        ("yaml", "schema: aotc.profile/1\nname: x\n", ""),
    ],
)
def test_an_example_that_does_as_shown_passes(
    language: str, text: str, output: str, tmp_path: Path
) -> None:
    Place.new(tmp_path / "place").run(Example(language, text, 1, {}, output))
