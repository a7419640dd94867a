"""Documents in YAML that people review: two readers, and an editor, see the same in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from fuzz_target import Target
from repository import ROOT
from structured import mutated, words_of
from yaml_oracle import require_same

from aotc.spec.codec import ParseError
from aotc.spec.config import Config
from aotc.spec.trust_policy import TrustPolicy
from aotc.spec.yaml import positions, strict_yaml

# By other means than the reader's own list.
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def check(data: bytes) -> bool:
    """Refused with a line and a column, or the same for ruamel.yaml, with nothing unseen in it."""
    try:
        value = strict_yaml(data)
    except ParseError as error:
        assert all(str(problem).isprintable() or not problem.line for problem in error.problems)
        return False
    text = data.decode("utf-8").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").split("\n")
    # A break of a line is one for everybody who counts lines.
    assert len(lines) == len((text + ".").splitlines())
    for character in set("".join(lines)) - {"\t"}:
        assert unicodedata.category(character) not in UNSEEN, hex(ord(character))
    require_same(data, value)
    assert all(line <= len(lines) for line, _ in positions(data).values())
    return True


def seeds() -> Iterator[bytes]:
    """The profiles, each word that readers disagree about, and lines that end unseen."""
    for path in sorted((ROOT / "profiles").rglob("*.yaml")):
        yield path.read_bytes()
    numbers = ["010", "0o7", "0x1F", "1_000", "1:30", "1e3", ".5", "1.", "+7", "-.inf", ".NaN"]
    words = ["on", "yes", "No", *numbers, "~", "Null", "2026-11-26", "="]
    yield "".join(f"k{number}: {word}\n" for number, word in enumerate(words)).encode()
    yield b"%YAML 1.1\n---\na: on\nb: 1:30\n"
    yield b"%YAML 1.2\n---\na: on\n..."
    yield b"a: |\n  two\n  lines\nb: >-\n  folded\n  text\n\n  more\nc: 'it''s'\n"
    yield b'd: "\\u2028 \\u200d \\x85"\ne: {f: [1, 2.5, "g"], "h":1}\n? i\n: j\n'
    for unseen in ("\u2028", "\u2029", "\x85", "\r", "\u202e", "\u200b", "\ufeff", "\U000e0041"):
        yield f"a: 1\n# reviewed{unseen}b: 2\n".encode()
    yield b"\xef\xbb\xbfa: 1\r\nb: 2\r\n"


TARGET = Target("yaml", check, seeds, words_of(Config, TrustPolicy), 2048, mutated)
