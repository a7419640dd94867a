"""Documents that people review say to aotc what they say to who reads them.

A character that ends a line unseen, turns text around or has no width would put into effect what
shows as part of a comment, or is no part of a name that it stands in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from policy_setting import Setting
from refusals import refusal
from yaml_oracle import require_same

from aotc.base.errors import AotcError
from aotc.cli.configuration import read_settings
from aotc.spec.codec import ParseError
from aotc.spec.profile_files import load_profile, load_target
from aotc.spec.yaml import strict_yaml
from aotc.trust.key_loading import load_public
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.signers import load_command

# One of each kind, with what a refusal calls it.
UNSEEN = {
    "\u2028": "U+2028 LINE SEPARATOR",
    "\u2029": "U+2029 PARAGRAPH SEPARATOR",
    "\x85": "U+0085 NEXT LINE",
    "\r": "U+000D CARRIAGE RETURN",
    "\x0b": "U+000B",
    "\x1b": "U+001B ESCAPE",
    "\x7f": "U+007F",
    "\x00": "U+0000 NULL",
    "\u202a": "U+202A LEFT-TO-RIGHT EMBEDDING",
    "\u202e": "U+202E RIGHT-TO-LEFT OVERRIDE",
    "\u2066": "U+2066 LEFT-TO-RIGHT ISOLATE",
    "\u2069": "U+2069 POP DIRECTIONAL ISOLATE",
    "\u200e": "U+200E LEFT-TO-RIGHT MARK",
    "\u200f": "U+200F RIGHT-TO-LEFT MARK",
    "\u061c": "U+061C ARABIC LETTER MARK",
    "\u200b": "U+200B ZERO WIDTH SPACE",
    "\u200c": "U+200C ZERO WIDTH NON-JOINER",
    "\u200d": "U+200D ZERO WIDTH JOINER",
    "\u2060": "U+2060 WORD JOINER",
    "\ufeff": "U+FEFF ZERO WIDTH NO-BREAK SPACE",
    "\u00ad": "U+00AD SOFT HYPHEN",
    "\u00a0": "U+00A0 NO-BREAK SPACE",
    "\u3000": "U+3000 IDEOGRAPHIC SPACE",
    "\u2800": "U+2800 BRAILLE PATTERN BLANK",
    "\u3164": "U+3164 HANGUL FILLER",
    "\u115f": "U+115F HANGUL CHOSEONG FILLER",
    "\u180e": "U+180E MONGOLIAN VOWEL SEPARATOR",
    "\ufe0f": "U+FE0F VARIATION SELECTOR-16",
    "\U000e0100": "U+E0100 VARIATION SELECTOR-17",
    "\U000e0041": "U+E0041 TAG LATIN CAPITAL LETTER A",
    "\ue000": "U+E000",
    "\ufffe": "U+FFFE",
}
PROFILE = "schema: aotc.profile/1\nname: mine\n"
TARGET = "schema: aotc.target/1\nname: mine\n"


def first_line(error: AotcError) -> tuple[str, int, int]:
    assert error.place is not None
    return error.code, error.place.line, error.place.column


@pytest.mark.parametrize("character", UNSEEN, ids=UNSEEN.values())
@pytest.mark.parametrize("place", ["comment", "plain", "single", "double", "block", "key"])
def test_no_document_has_a_character_that_people_do_not_see(character: str, place: str) -> None:
    text = {
        "comment": "a: 1\n# xy{}b: 2\n",
        "plain": "a: 1\nb: x{}y\n",
        "single": "a: 1\nb: 'x{}y'\n",
        "double": 'a: 1\nb: "x{}y"\n',
        "block": "a: |\n  xy{}z\n",
        "key": "a: 1\nbcde{}: 2\n",
    }[place].format(character)
    with pytest.raises(ParseError) as caught:
        strict_yaml(text.encode())
    (problem,) = caught.value.problems
    assert problem.line == 2
    assert problem.column == 5 + (place == "single" or place == "double")
    told = UNSEEN[character]
    assert problem.what.startswith(f"line 2: {told} is not seen by who reads the file")
    assert problem.what.endswith("in double quotes")
    assert problem.what.isprintable()


def test_every_such_character_is_told() -> None:
    with pytest.raises(ParseError) as caught:
        strict_yaml("# \u202ea\nb: 1 #\u2066\u2069\n".encode())
    found = [(problem.line, problem.column) for problem in caught.value.problems]
    assert found == [(1, 3), (2, 7), (2, 8)]
    with pytest.raises(ParseError) as caught:
        strict_yaml(("\u200b" * 300_000).encode())
    assert len(caught.value.problems) == 100


def test_a_carriage_return_alone_is_a_line_for_some() -> None:
    """Both readers end a line at one, so that comparing them does not tell."""
    hidden = b"a: 1\n# reviewed\rb: 2\n"
    require_same(hidden.replace(b"\r", b"\n"), {"a": 1, "b": 2})
    for text in (hidden, b"a: 1\rb: 2", b"a: 'x\ry'\n", b"a: 1\r\r\nb: 2\n", b"a: 1\r"):
        with pytest.raises(ParseError, match="CARRIAGE RETURN"):
            strict_yaml(text)
    assert strict_yaml(b"a: 1\r\n# reviewed\r\nb: 2\r\n") == {"a": 1, "b": 2}


def test_a_byte_order_mark_is_one_at_the_start_alone() -> None:
    assert strict_yaml("\ufeffa: 1\n".encode()) == {"a": 1}
    for text in ("\ufeff\ufeffa: 1\n", "a: 1\n\ufeffb: 2\n"):
        with pytest.raises(ParseError, match=r"U\+FEFF"):
            strict_yaml(text.encode())


@pytest.mark.parametrize(
    ("written", "read"),
    [
        # A joiner in Persian and in Malayalam, an emoji, a character of direction.
        ('"\u0645\u06cc\\u200c\u062e\u0648"', "\u0645\u06cc\u200c\u062e\u0648"),
        ('"\u0d28\u0d4d\\u200d"', "\u0d28\u0d4d\u200d"),
        ('"\u26a0\\ufe0f"', "\u26a0\ufe0f"),
        ('"\\u202ex\\u2028y\\N\\_\\U000e0041"', "\u202ex\u2028y\x85\xa0\U000e0041"),
    ],
)
def test_an_escape_says_what_it_is(tmp_path: Path, written: str, read: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{PROFILE}description: {written}\n", encoding="utf-8")
    assert load_profile(path).description == read


def test_what_people_see_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text in (
        "Größe, café, cafe\u0301",
        "层の大きさ",
        "נפח",
        "حجم",
        "आकार",
        "⚡ 1\u00d710\u207b\u00b3",
    ):
        path.write_text(f"{PROFILE}# {text}\ndescription: {text}\n", encoding="utf-8")
        assert load_profile(path).description == text


def test_marks_do_not_pile_up_over_other_lines() -> None:
    assert strict_yaml(("a: e" + "\u0301" * 4).encode()) == {"a": "e" + "\u0301" * 4}
    with pytest.raises(ParseError, match=r"U\+0301 COMBINING ACUTE ACCENT"):
        strict_yaml(("# e" + "\u0301" * 5).encode())


def _configuration(path: Path) -> None:
    path.rename(path.with_name("aotc.yaml"))
    read_settings()


@pytest.mark.parametrize(
    ("read", "code", "text"),
    [
        (load_profile, "AOTC-I022", PROFILE),
        (load_target, "AOTC-I022", TARGET),
        (read_policy, "AOTC-G019", "schema: aotc.trust/1\nname: prod\n"),
        (read_roots, "AOTC-G019", "schema: aotc.root/1\npolicy: prod\n"),
        (load_command, "AOTC-I023", "schema: aotc.signer/1\ncommand: [sign]\n"),
        (_configuration, "AOTC-I052", "schema: aotc.config/1\nprofile: edge\n"),
    ],
)
def test_each_reader_refuses_them_with_line_and_column(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], object],
    code: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    for character, told in UNSEEN.items():
        path.write_bytes(f"{text}# seen {character}unproven: allow\n".encode())
        error = refusal(read, path)
        assert first_line(error) == (code, 3, 8)
        assert told in f"{error.what} {error.found}"


def test_a_signer_file_in_json_is_held_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "signer.json"
    said = {"schema": "aotc.signer/1", "command": ["sign", "\u202edaolpu"], "public_key": "a.pub"}
    path.write_text(json.dumps(said, ensure_ascii=False), encoding="utf-8")
    error = refusal(load_command, path)
    assert error.code == "AOTC-I023"
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in error.found


def test_a_comment_of_a_policy_takes_nothing_back(host: Setting) -> None:
    host.policy["sequence"] = 2
    host.write()
    assert host.codes("prod") == []
    text = host.path.read_text(encoding="utf-8")
    for character in ("\u2028", "\u2029", "\x85", "\r"):
        hidden = f'{text}# reviewed on 2026-11-20{character}rollback: ["{host.id}"]\n'
        host.path.write_bytes(hidden.encode())
        error = refusal(lambda: host.verify("prod"))
        assert error.code == "AOTC-G019"
        assert UNSEEN[character] in error.found


def test_a_comment_in_a_list_of_keys_holds_no_key(host: Setting) -> None:
    listed = host.folder / "team.pub"
    own, others = (host.keys[name].public_pem for name in ("release", "stranger"))
    listed.write_text(f"# ours\n{own}", encoding="utf-8")
    assert len(load_public(listed)) == 1
    for character in ("\u2028", "\u2029", "\x85"):
        hidden = character.join(others.splitlines())
        listed.write_text(f"# ours{character}{hidden}\n{own}", encoding="utf-8")
        error = refusal(load_public, listed)
        assert (error.code, error.found) == ("AOTC-G013", f"{UNSEEN[character]} on line 1")
