"""Names that others chose, as names of files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from aotc.base.files.names import file_name, file_names

HOSTILE = (
    *(
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "C:\\x",
        "C:",
        "\x00",
        "a\0b",
    ),
    *(
        ".hidden",
        "-rf",
        "~root",
        "a.",
        "a ",
        " ",
        "a\nb",
        "\x1b[2K",
        "\u202e",
        "\ud800",
        "é",
        "e\u0301",
    ),
    *("con", "CON", "Nul.npy", "com1", "lpt9.x", "a%2Fb", "%", "%%", "a~b", "x" * 255, "é" * 255),
    *("x" * 1000 + "1", "x" * 1000 + "2", "*", "?", "a|b", '"', "$HOME", "`id`", ";"),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("logits", "logits"),
        ("Identity:0", "Identity%3A0"),
        ("encoder/layer.0/out", "encoder%2Flayer.0%2Fout"),
        ("..", "%2E%2E"),
        ("con", "%63on"),
        ("", "%"),
        ("图", "%E5%9B%BE"),
    ],
)
def test_a_name_is_encoded(name: str, expected: str) -> None:
    assert file_name(name) == expected
    assert file_name(name, ".npy") == f"{expected}.npy"


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_a_path(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / file_name(name, ".npy")).write_bytes(b"x")
    (made,) = tmp_path.rglob("*.npy")
    assert made.parent == folder
    assert len(made.name) <= 200
    assert made.name[0] not in ".-"


def test_no_two_names_are_one_file_whatever_the_case() -> None:
    names = [*HOSTILE, "logits", "Logits", "LOGITS", "\u212a", "k", "K"]
    found = file_names(names, ".npy")
    assert set(found) == set(names)
    assert len({name.lower() for name in found.values()}) == len(set(names))
    assert found["logits"] == "logits.npy"
    for one, other in itertools.combinations(sorted(set(names)), 2):
        assert file_name(one) != file_name(other)
