"""How foreign text is shown."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from aotc.base.text import MAX_CHARACTERS, hidden_characters, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1/weights:0", "conv1/weights:0"),
        ("层 Größe café", "层 Größe café"),
        ("ok\nAOTC-G000 verified", "ok\\nAOTC-G000 verified"),
        ("a\tb\rc\vd\fe", "a\\tb\\rc\\x0bd\\x0ce"),
        ("\x1b[2K\x9b2K\x7f\x00", "\\x1b[2K\\x9b2K\\x7f\\x00"),
        ("\u202eabc\u2066\u200e\u061c", "\\u202eabc\\u2066\\u200e\\u061c"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("a\u200b\u200d\ufeff\u00ad\u3164\ufe0fb", "a\\u200b\\u200d\\ufeff\\xad\\u3164\\ufe0fb"),
        ("\ud800 \ue000 \U000e0041", "\\ud800 \\ue000 \\U000e0041"),
        ("C:\\new", "C:\\new"),
        ("a" + "\u0301" * 6, "a" + "\u0301" * 4 + "\\u0301" * 2),
        ("\u0301a", "\\u0301a"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


# Of the planes in which no character has a class of its own, some.
POINTS = (
    *range(0x40000),
    *range(0xE0000, 0xE1000),
    *range(0x40000, sys.maxunicode, 251),
    sys.maxunicode,
)


def test_no_character_of_unicode_breaks_or_steers_a_line() -> None:
    for point in POINTS:
        shown = printable(f"a{chr(point)}b")
        assert len(shown.splitlines()) == 1, hex(point)
        unseen = {unicodedata.category(item)[0] for item in shown} & {"C", "Z"}
        assert unseen <= {"Z"}, hex(point)
        assert " " in shown or "Z" not in unseen, hex(point)


def test_long_text_is_cut_and_says_how_long_it_was() -> None:
    shown = printable("x" * 30_000_000)
    assert len(shown) == MAX_CHARACTERS
    assert shown.endswith("... (30,000,000 characters)")
    assert printable(shown) == shown
    assert len(printable("\n" * MAX_CHARACTERS)) == MAX_CHARACTERS
    assert printable("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS


def test_what_is_hidden_in_a_document_is_escaped_where_it_is_shown() -> None:
    for point in POINTS:
        character = chr(point)
        escaped = printable(f"a{character}b") != f"a{character}b"
        hidden = any(hidden_characters(f"a{character}b"))
        if hidden:
            assert escaped, hex(point)
        elif escaped:
            # A character of a later Unicode has no class here, and is one that people may see.
            assert character in "\t\n" or unicodedata.category(character) == "Cn", hex(point)
